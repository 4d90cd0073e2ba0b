"""Facts about pairs in words, with the values of each pair.

The latest window is "now": a link in it was "in the latest window", one in the window before it "1 window ago". In a
directed graph, the first node of a pair is the sender and the second the receiver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dysat.data.attributes import Group, groups
from dysat.data.graph import DynamicGraph
from dysat.features import facts
from dysat.features.link_memory import recurrence
from dysat.features.lookup import at_links
from dysat.features.pair_attributes import features_at
from dysat.features.pair_direction import PairDirection
from dysat.features.pair_history import DECAYS, PairHistory
from dysat.features.rounding import narrow
from dysat.system.text.printable import printable

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
LONGEST = 40  # characters of a name or a value
UNUSUAL = 0.9  # fraction of the nodes below an unusually high value
RECENT = DECAYS.index(0.6)
PERIODS = ("day", "week")
RARE, MOST, TYPICAL, FEW, NONE = "unusually active (top 10 %)", "more active than most", "typical", "less", "none"
LEVELS = {RARE: RARE, MOST: MOST, TYPICAL: "about as active as most", FEW: "less active than most"}


class Words:
    """How facts about pairs of a step are said.

    Shapes:
        columns: the facts of all F features; random [R, F]: features of random pairs
    """

    def __init__(
        self, history: PairHistory, graph: DynamicGraph, step: int, columns: Sequence[str], random: Reals
    ) -> None:
        self.history, self.graph, self.step = history, graph, step
        self.columns, self.random = tuple(columns), random
        self.now = history.now
        self._said: dict[str, Callable[[Ids, Ids], list[str]]] = {
            facts.LAST_CONTACT: self._last_contact,
            facts.PAST_LINKS: self._past_links,
            facts.COMMON_NEIGHBOURS: self._common_neighbours,
            facts.SHARES: self._shares,
            facts.RHYTHM: self._rhythm,
            facts.ACTIVITY: self._activity,
            facts.AROUND: self._around,
            facts.LAST_ACTIVE: self._last_active,
            facts.TIME_KNOWN: self._time_known,
            facts.REGULARITY: self._regularity,
            facts.PARTNERS: self._partners,
            facts.KINDS: self._kinds,
        }
        if history.direction is not None:
            direction = history.direction
            self._said |= {
                facts.SENT: lambda pairs, links: self._sent(direction, pairs, links, "sender", "receiver"),
                facts.RECEIVED: lambda pairs, links: self._sent(direction, pairs, links, "receiver", "sender"),
                facts.SENDER: lambda pairs, _: self._amounts(direction, pairs[:, 0], "sender"),
                facts.RECEIVER: lambda pairs, _: self._amounts(direction, pairs[:, 1], "receiver"),
                facts.ROLES: lambda pairs, _: self._roles(direction, pairs),
                facts.ANSWERS: lambda pairs, _: self._answers(direction, pairs),
                facts.DIRECTED_PATHS: lambda pairs, _: self._directed_paths(direction, pairs),
            }

    def of(self, fact: str, pairs: Ids, features: Reals) -> list[str]:
        """Return a fact about each pair in words.  # [B, 2], [B, F]"""
        if fact == facts.LONGER_PATHS:
            ties = "ties over three links"
            return self._compared(fact, features, f"stronger {ties} than", f"weaker {ties} than", f"{ties} as in")
        if fact == facts.POSITION:
            texts = "closer in the network than", "further apart in the network than", "as close in the network as"
            return self._compared(fact, features, *texts)
        if fact == facts.ATTRIBUTES:
            texts = "attributes more alike than in", "attributes less alike than in", "attributes as alike as in"
            return self._compared(fact, features, *texts)
        if fact == facts.COMBINATION:
            return ["the combination of their attributes"] * len(pairs)
        if fact.startswith(facts.ATTRIBUTE):
            return self._attribute(fact.removeprefix(facts.ATTRIBUTE), pairs)
        ends = np.sort(pairs, axis=1)
        return self._said[fact](pairs, self.history.find(ends))

    # ---- of the pair ----

    def _last_contact(self, pairs: Ids, links: Ids) -> list[str]:
        last = at_links(self.history.last_link, links, -1).tolist()
        return ["no contact yet" if step < 0 else f"last contact {self._ago(step)}" for step in last]

    def _past_links(self, pairs: Ids, links: Ids) -> list[str]:
        number = at_links(self.history.extended.num_links, links).tolist()
        return [f"linked in {n} of {_windows(self.now + 1)}" if n else "never linked before" for n in number]

    def _common_neighbours(self, pairs: Ids, links: Ids) -> list[str]:
        paths = self.history.two_step_paths(np.sort(pairs, axis=1))
        number = np.bincount(paths.pair, minlength=len(pairs)).tolist()
        return [f"{_count(n)} common neighbour{'s' * (n != 1)}" for n in number]

    def _shares(self, pairs: Ids, links: Ids) -> list[str]:
        weight = np.expm1(at_links(self.history.weights[-1], links))
        total = np.expm1(self.history.strengths[-1][pairs])
        share = np.sort(np.divide(weight[:, None], total, out=np.zeros(total.shape), where=total > 0), axis=1)
        none = "none of their link weight is with each other"
        return [
            f"{_per_cent(high)} and {_per_cent(low)} of their link weight is with each other" if high else none
            for low, high in share.tolist()
        ]

    def _rhythm(self, pairs: Ids, links: Ids) -> list[str]:
        periods = [number for number, row in enumerate(recurrence(self.history.snapshots)) if row.any()]
        counts = self.history.extended.same_time[len(PERIODS) :]
        linked = np.array([at_links(counts[number], links) > 0 for number in periods]).reshape(-1, len(pairs)).T
        names, found = [PERIODS[number] for number in periods], []
        for row in linked.tolist():
            times = [name for name, at in zip(names, row, strict=True) if at]
            beginning = "linked" if times else "not linked"
            joined = " and ".join(times) if times else " or ".join(names)
            found.append(f"{beginning} lately at the next window's time of {joined}")
        return found

    # ---- of both nodes ----

    def _activity(self, pairs: Ids, links: Ids) -> list[str]:
        levels = self._levels(self.history.strengths[RECENT])[pairs].tolist()
        names = LEVELS | {NONE: "without any link so far"}
        return [_both("both {}", "one of them {}, the other {}", [names[level] for level in row]) for row in levels]

    def _around(self, pairs: Ids, links: Ids) -> list[str]:
        levels = self._levels(self._node_values(facts.AROUND))[pairs].tolist()
        names = LEVELS | {NONE: "none"}
        return [
            _both("partners of both: {}", "partners of one: {}, of the other: {}", [names[level] for level in row])
            for row in levels
        ]

    def _levels(self, values: Reals) -> NDArray[np.object_]:
        """Return how high the value of each node is among all nodes.  # [N] → [N]"""
        own = narrow(values)
        ordered, size = np.sort(own), max(1, len(own))
        below = np.searchsorted(ordered, own) / size
        above = 1 - np.searchsorted(ordered, own, side="right") / size
        levels = np.full(len(own), TYPICAL, dtype=object)
        for level, rows in ((FEW, above > 0.5), (MOST, below > 0.5), (RARE, below >= UNUSUAL)):
            levels[rows] = level
        levels[self.history.num_neighbours == 0] = NONE
        return levels

    def _last_active(self, pairs: Ids, links: Ids) -> list[str]:
        silent = np.sort(self.now - self.history.last_active[pairs], axis=1).tolist()
        found = []
        for low, high in silent:
            if not high:
                found.append("both active in the latest window")
            elif not low:
                found.append(f"one of them has been silent for {_windows(high)}")
            else:
                found.append(_of_windows("silent for", low, high))
        return found

    def _time_known(self, pairs: Ids, links: Ids) -> list[str]:
        known = np.sort(self.now - self.history.first_seen[pairs] + 1, axis=1).tolist()
        return [_of_windows("known for", low, high) for low, high in known]

    def _regularity(self, pairs: Ids, links: Ids) -> list[str]:
        active = np.rint(np.expm1(self._node_values(facts.REGULARITY)[pairs])).astype(np.int64).tolist()
        known = (self.now - self.history.first_seen[pairs] + 1).tolist()
        found = []
        for (one, two), (first, second) in zip(active, known, strict=True):
            if (one, first) == (two, second):
                found.append(f"both active in {one} of {_windows(first)}")
            else:
                found.append(f"active in {one} of {first} and {two} of {_windows(second)}")
        return found

    def _partners(self, pairs: Ids, links: Ids) -> list[str]:
        number = np.sort(self.history.num_neighbours[pairs], axis=1).tolist()
        found = []
        for low, high in number:
            text = f"{_count(low)} and {_count(high)} partners so far"
            found.append(f"{_count(low)} partner{'s' * (low != 1)} each so far" if low == high else text)
        return found

    def _node_values(self, fact: str) -> Reals:
        """Return the first value of a fact for each node.  # [N]"""
        sums = self.history.extended
        values: Reals = sums.node_values[sums.node_facts.index(fact)]
        return values

    # ---- of a sender and a receiver ----

    def _sent(self, direction: PairDirection, pairs: Ids, links: Ids, who: str, whom: str) -> list[str]:
        side = (pairs[:, 0] > pairs[:, 1]).astype(np.int64)  # the row of the arc u → v
        side = side if who == "sender" else 1 - side
        counts = np.rint(np.expm1(direction.counts[side, links])).astype(np.int64).tolist()
        last = direction.last_arc[side, links].tolist()
        return [
            f"the {who} sent to the {whom} in {n} of {_windows(self.now + 1)}, last {self._ago(step)}"
            if n
            else f"the {who} has never sent to the {whom}"
            for n, step in zip(counts, last, strict=True)
        ]

    def _amounts(self, direction: PairDirection, nodes: Ids, who: str) -> list[str]:
        n = max(1, direction.num_nodes)
        targets = np.bincount(direction.arc_keys // n, minlength=n)[nodes].tolist()
        senders = np.bincount(direction.arc_keys % n, minlength=n)[nodes].tolist()
        return [
            f"the {who} has sent to {_nodes(to)} and received from {_nodes(by)}"
            for to, by in zip(targets, senders, strict=True)
        ]

    def _roles(self, direction: PairDirection, pairs: Ids) -> list[str]:
        sent, received = np.expm1(direction.sent[-1])[pairs], np.expm1(direction.received[-1])[pairs]
        total = sent + received
        share = np.divide(sent, total, out=np.zeros(total.shape), where=total > 0)
        found = []
        for fractions, some in zip(share.tolist(), (total > 0).tolist(), strict=True):
            sender, receiver = (
                f"{_per_cent(part)} of its link weight" if any_ else "nothing yet"
                for part, any_ in zip(fractions, some, strict=True)
            )
            found.append(f"the sender has sent {sender}, the receiver {receiver}")
        return found

    def _answers(self, direction: PairDirection, pairs: Ids) -> list[str]:
        n, keys = max(1, direction.num_nodes), direction.arc_keys
        u, v = np.divmod(keys, n)
        targets = np.bincount(u, minlength=n)
        mutual = np.bincount(u[np.isin(v * n + u, keys, assume_unique=True)], minlength=n)
        return [
            f"{a} of {_nodes(b)} sent back to the sender, {c} of {_nodes(d)} to the receiver"
            for (a, c), (b, d) in zip(mutual[pairs].tolist(), targets[pairs].tolist(), strict=True)
        ]

    def _directed_paths(self, direction: PairDirection, pairs: Ids) -> list[str]:
        paths = self.history.directed_paths(pairs, self.history.two_step_paths(np.sort(pairs, axis=1)))
        from_u = (pairs[paths.pair, 0] > paths.middle).astype(np.int64)  # the row of the arc u → z
        to_v = (paths.middle > pairs[paths.pair, 1]).astype(np.int64)  # the row of the arc z → v
        there = (direction.last_arc[from_u, paths.u_link] >= 0) & (direction.last_arc[to_v, paths.v_link] >= 0)
        number = np.bincount(paths.pair[there], minlength=len(pairs)).tolist()
        return [f"{_count(n)} two-step path{'s' * (n != 1)} from sender to receiver" for n in number]

    # ---- of kinds and attributes ----

    def _kinds(self, pairs: Ids, links: Ids) -> list[str]:
        if self.graph.kinds is None:
            return ["nodes without kinds"] * len(pairs)
        names = list(map(_short, self.graph.kind_names))
        return [
            _both("both of kind {}", "kinds: {} and {}", [names[kind] for kind in row])
            for row in self.graph.kinds[pairs].tolist()
        ]

    def _attribute(self, name: str, pairs: Ids) -> list[str]:
        group = next(group for group in groups(self.graph.feature_names) if group.name == name)
        x, short = features_at(self.graph, self.step), _short(name)
        known = group.known(x).numpy()
        compared = self._categories if group.is_category else self._numbers
        values = compared(group, x.numpy(), pairs, short)
        missing = (~known[pairs]).sum(1).tolist()
        unknown = ["", f"{short} unknown for one of them", f"{short} unknown for both"]
        return [unknown[n] or text for n, text in zip(missing, values, strict=True)]

    def _categories(self, group: Group, x: Reals, pairs: Ids, name: str) -> list[str]:
        names = [_short(self.graph.feature_names[column].partition("=")[2]) for column in group.columns]
        other = group.columns.index(group.other) if group.other is not None else -1
        value = x[:, list(group.columns)].argmax(1)[pairs].tolist()
        found = []
        for one, two in value:
            if one == two == other:
                found.append(f"{name}: a rare value for both")
            elif one == two:
                found.append(f"same {name}: {names[one]}")
            else:
                found.append(f"different {name}: {names[one]} and {names[two]}")
        return found

    def _numbers(self, group: Group, x: Reals, pairs: Ids, name: str) -> list[str]:
        """Compare differences with those of random pairs: a graph keeps numbers on a scale of its own."""
        values, random = x[:, group.columns[0]], self.history.uniform_pairs
        known = np.ones(len(x), dtype=np.bool_) if group.missing is None else x[:, group.missing] < 0.5
        random = random[known[random].all(axis=1)]
        gap, others = (np.abs(values[part[:, 0]] - values[part[:, 1]]) for part in (pairs, random))
        says = f"{name} closer than in", f"{name} further apart than in", f"{name} as far apart as in"
        texts = _against(-gap, -others, *says)
        return [f"same {name}" if same else text for same, text in zip(gap == 0, texts, strict=True)]

    def _compared(self, fact: str, features: Reals, more: str, less: str, alike: str) -> list[str]:
        """Compare the first feature of a fact with that of random pairs."""
        column = self.columns.index(fact)
        return _against(features[:, column], self.random[:, column], more, less, alike)

    def _ago(self, step: int) -> str:
        return f"{_windows(self.now - step)} ago" if step < self.now else "in the latest window"


def _against(values: Reals, others: Reals, more: str, less: str, alike: str) -> list[str]:
    """Say that values are above or below those of some of the random pairs, or equal to most of them.  # [B], [R]"""
    own, ordered, size = narrow(values), np.sort(narrow(others)), max(1, len(others))
    below = np.searchsorted(ordered, own) / size
    above = (len(ordered) - np.searchsorted(ordered, own, side="right")) / size
    found = []
    for under, over in zip(below.tolist(), above.tolist(), strict=True):
        if 1 - under - over > 0.5:
            found.append(f"{alike} most random pairs")
        else:
            text, share = (more, under) if under >= over else (less, over)
            found.append(f"{text} {min(99, math.floor(100 * share + 1e-9))} % of random pairs")
    return found


def _both(same: str, different: str, texts: Sequence[str]) -> str:
    """Say something about two nodes once if it is the same for both."""
    return same.format(texts[0]) if texts[0] == texts[1] else different.format(*texts)


def _of_windows(what: str, low: int, high: int) -> str:
    return f"both {what} {_windows(low)}" if low == high else f"{what} {low:,} and {_windows(high)}"


def _windows(number: int) -> str:
    return f"{number:,} window{'s' * (number != 1)}"


def _nodes(number: int) -> str:
    return f"{number:,} node{'s' * (number != 1)}"


def _count(number: int) -> str:
    return f"{number:,}" if number else "no"


def _per_cent(share: float) -> str:
    return "under 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def _short(text: object) -> str:
    """Return foreign text as one printable line of at most `LONGEST` characters."""
    line = printable(text)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
