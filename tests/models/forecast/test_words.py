"""Facts in words: every number in a text against brute force over the links of a tiny graph."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from by_time import mornings_and_evenings
from directed import directed_graph, random_arcs
from hostile_text import check_output
from small import make_graph, meetings

from dysat.data.graph import DynamicGraph
from dysat.features import facts as f
from dysat.features.pair_attributes import attribute_facts, with_attributes
from dysat.features.pair_history import PairHistory
from dysat.features.positions import low_rank_scores, pair_products
from dysat.models.forecast.words import Words

GRAPH = meetings()
NOW, SIZE = len(GRAPH) - 1, GRAPH.num_nodes
PAIRS = np.array(list(combinations(range(SIZE), 2)))
LINKS = [  # (u, v) → weight in each window, without self-loops
    {(min(u, v), max(u, v)): w for u, v, w in zip(*(part.tolist() for part in s.links()), strict=True) if u != v}
    for s in GRAPH
]
NEIGHBOURS = [{u + v - z for links in LINKS for u, v in links if z in (u, v)} for z in range(SIZE)]


def words_of(graph: DynamicGraph, three_step: bool = True) -> tuple[Words, PairHistory]:
    history, step = PairHistory(graph.snapshots, three_step), len(graph) - 1
    history.prepare()
    random = history.uniform_pairs
    features = with_attributes(history.features(random)[0], graph, step, random)
    return Words(history, graph, step, (*history.column_facts, *attribute_facts(graph, step)), features), history


def texts(graph: DynamicGraph, fact: str, pairs: np.ndarray = PAIRS) -> list[str]:
    words, history = words_of(graph)
    ends = pairs if graph.directed else np.sort(pairs, axis=1)
    features = with_attributes(history.features(ends)[0], graph, len(graph) - 1, ends)
    return words.of(fact, ends, features)


def windows(number: int) -> str:
    return "1 window" if number == 1 else f"{number} windows"


def ago(step: int, now: int = NOW) -> str:
    return "in the latest window" if step == now else f"{windows(now - step)} ago"


def test_last_contact_and_past_links() -> None:
    last, past = texts(GRAPH, f.LAST_CONTACT), texts(GRAPH, f.PAST_LINKS)
    seen = set()
    for (u, v), one, two in zip(PAIRS.tolist(), last, past, strict=True):
        steps = [step for step, links in enumerate(LINKS) if (u, v) in links]
        assert one == (f"last contact {ago(steps[-1])}" if steps else "no contact yet")
        assert two == (f"linked in {len(steps)} of 5 windows" if steps else "never linked before")
        seen.add(one)
    assert {"no contact yet", "last contact in the latest window", "last contact 1 window ago"} <= seen


def test_common_neighbours_and_partners() -> None:
    common, partners = texts(GRAPH, f.COMMON_NEIGHBOURS), texts(GRAPH, f.PARTNERS)
    for (u, v), one, two in zip(PAIRS.tolist(), common, partners, strict=True):
        n = len(NEIGHBOURS[u] & NEIGHBOURS[v])
        assert one == {0: "no common neighbours", 1: "1 common neighbour"}.get(n, f"{n} common neighbours")
        low, high = sorted((len(NEIGHBOURS[u]), len(NEIGHBOURS[v])))
        assert two == (f"{low} partners each so far" if low == high else f"{low} and {high} partners so far")


def test_when_both_were_active() -> None:
    """Node 8 is known from the third window on and has no link; node 9 only links to itself."""
    more = make_graph([6, 7, 10, 10, 10], [[*links] for links in LINKS[:2]] + [[*LINKS[2], (9, 9)], [], [*LINKS[4]]])
    pairs = np.array(list(combinations(range(10), 2)))
    silent, known, active = (texts(more, fact, pairs) for fact in (f.LAST_ACTIVE, f.TIME_KNOWN, f.REGULARITY))
    of_node = [[s for s, links in enumerate(LINKS) if s != 3 and any(z in pair for pair in links)] for z in range(10)]
    first = [0] * 6 + [1] + [2] * 3
    found = set()
    for (u, v), one, two, three in zip(pairs.tolist(), silent, known, active, strict=True):
        low, high = sorted(NOW - (of_node[z][-1] if of_node[z] else first[z] - 1) for z in (u, v))
        if not high:
            expected = "both active in the latest window"
        elif not low:
            expected = f"one of them has been silent for {windows(high)}"
        else:
            expected = f"both silent for {windows(low)}" if low == high else f"silent for {low} and {windows(high)}"
        assert one == expected
        low, high = sorted(NOW - first[z] + 1 for z in (u, v))
        assert two == (f"both known for {low} windows" if low == high else f"known for {low} and {high} windows")
        (a, b), (c, d) = ((len(of_node[z]), NOW - first[z] + 1) for z in (u, v))
        both = f"both active in {a} of {b} windows"
        assert three == (both if (a, b) == (c, d) else f"active in {a} of {b} and {c} of {d} windows")
        found.add(one.partition(" for")[0])
    assert len(found) > 2


def test_shares_of_link_weight() -> None:
    total = {pair: sum(links.get(pair, 0.0) for links in LINKS) for pair in map(tuple, PAIRS.tolist())}
    for (u, v), text in zip(PAIRS.tolist(), texts(GRAPH, f.SHARES), strict=True):
        own = [sum(w for pair, w in total.items() if z in pair) for z in (u, v)]
        if not total[u, v]:
            assert text == "none of their link weight is with each other"
            continue
        low, high = sorted(total[u, v] / each for each in own)
        assert text == f"{100 * high:.0f} % and {100 * low:.0f} % of their link weight is with each other"


def level(values: list[float], node: int) -> str:
    """How high a value is among those of all nodes."""
    below = sum(value < values[node] - 1e-6 for value in values) / len(values)
    above = sum(value > values[node] + 1e-6 for value in values) / len(values)
    if below >= 0.9:
        return "unusually active (top 10 %)"
    if below > 0.5:
        return "more active than most"
    return "less active than most" if above > 0.5 else "about as active as most"


def test_activity_among_all_nodes() -> None:
    """Twenty nodes around a hub, and two that were never linked."""
    star = [(0, k) for k in range(1, 20)] + [(1, 2), (1, 3), (2, 3)]
    graph = make_graph([22, 22], [star, [(0, 1), (4, 5)]])
    strength = [0.0] * 22
    for factor, links in ((0.6, star), (1.0, [(0, 1), (4, 5)])):
        for u, v in links:
            strength[u] += factor
            strength[v] += factor
    pairs = np.array(list(combinations(range(22), 2)))
    seen = set()
    for (u, v), text in zip(pairs.tolist(), texts(graph, f.ACTIVITY, pairs), strict=True):
        one, two = ("without any link so far" if z > 19 else level(strength, z) for z in (u, v))
        assert text == (f"both {one}" if one == two else f"one of them {one}, the other {two}")
        seen.add(text)
    assert "both unusually active (top 10 %)" in seen and "both without any link so far" in seen
    around = texts(graph, f.AROUND, np.array([[0, 20], [20, 21]]))
    assert around[0].endswith("of the other: none") and around[1] == "partners of both: none"


def test_comparisons_with_random_pairs() -> None:
    """All 28 pairs are the random pairs."""
    _, history = words_of(GRAPH)
    values, vectors = history.spectra[0]
    score = np.round(low_rank_scores(values, pair_products(vectors, PAIRS))[0], 7)
    for own, text in zip(score, texts(GRAPH, f.POSITION), strict=True):
        below, above = (score < own - 1e-6).mean(), (score > own + 1e-6).mean()
        more = f"closer in the network than {min(99, math.floor(100 * below + 1e-9))} % of random pairs"
        less = f"further apart in the network than {math.floor(100 * above + 1e-9)} % of random pairs"
        assert text == (more if below >= above else less)
    empty = make_graph([3, 3], [[(0, 0)], [(1, 1)]])
    pairs = np.array([[0, 1]])
    assert texts(empty, f.POSITION, pairs) == ["as close in the network as most random pairs"]
    assert texts(empty, f.LONGER_PATHS, pairs) == ["ties over three links as in most random pairs"]


def test_rhythm() -> None:
    """Four windows a day; the next one is in the morning."""
    graph = mornings_and_evenings(days=6)
    now, size = len(graph) - 1, graph.num_nodes
    pairs = np.array(list(combinations(range(size), 2)))
    mornings = range(now + 1 - 4, -1, -4)
    linked = {pair for s in mornings for pair in zip(*(part.tolist() for part in graph[s].links()[:2]), strict=True)}
    for pair, text in zip(map(tuple, pairs.tolist()), texts(graph, f.RHYTHM, pairs), strict=True):
        yes, no = "linked lately at the next window's time of day", "not linked lately at the next window's time of day"
        assert text == (yes if pair in linked else no), pair
    assert linked


ARCS = random_arcs(14, 30, 4)
DIRECTED = directed_graph([14] * 4, ARCS)
ORDERED = np.array([(u, v) for u in range(14) for v in range(14) if u != v])
SENT = {(u, v) for arcs in ARCS for u, v in arcs if u != v}


def nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


def test_who_sent_to_whom() -> None:
    sent, received = (texts(DIRECTED, fact, ORDERED) for fact in (f.SENT, f.RECEIVED))
    for (u, v), one, two in zip(ORDERED.tolist(), sent, received, strict=True):
        for pair, text, who, whom in (((u, v), one, "sender", "receiver"), ((v, u), two, "receiver", "sender")):
            steps = [step for step, arcs in enumerate(ARCS) if pair in arcs]
            never = f"the {who} has never sent to the {whom}"
            some = f"the {who} sent to the {whom} in {len(steps)} of 4 windows"
            assert text == (f"{some}, last {ago(steps[-1], 3)}" if steps else never)


def test_senders_receivers_and_paths() -> None:
    wanted = (f.SENDER, f.RECEIVER, f.ANSWERS, f.DIRECTED_PATHS, f.ROLES)
    found = [texts(DIRECTED, fact, ORDERED) for fact in wanted]
    targets = [{v for u, v in SENT if u == z} for z in range(14)]
    senders = [{u for u, v in SENT if v == z} for z in range(14)]
    out, into = np.zeros(14), np.zeros(14)
    for arcs in ARCS:
        for (u, v), weight in arcs.items():
            out[u] += weight * (u != v)
            into[v] += weight * (u != v)
    for (u, v), sender, receiver, answers, paths, roles in zip(ORDERED.tolist(), *found, strict=True):
        for z, text, who in ((u, sender, "sender"), (v, receiver, "receiver")):
            assert text == f"the {who} has sent to {nodes(len(targets[z]))} and received from {nodes(len(senders[z]))}"
        back = [len(targets[z] & senders[z]) for z in (u, v)]
        of = [nodes(len(targets[z])) for z in (u, v)]
        assert answers == f"{back[0]} of {of[0]} sent back to the sender, {back[1]} of {of[1]} to the receiver"
        n = len(targets[u] & senders[v])
        count = {0: "no two-step paths", 1: "1 two-step path"}.get(n, f"{n} two-step paths")
        assert paths == f"{count} from sender to receiver"
        share = [f"{100 * out[z] / (out[z] + into[z]):.0f} % of its link weight" for z in (u, v)]
        assert roles == f"the sender has sent {share[0]}, the receiver {share[1]}"


def test_kinds_and_attributes() -> None:
    long = "x" * 60
    names = ("te{am}\x1b[31m=" + long, "te{am}\x1b[31m=b", "te{am}\x1b[31m=other", "age", "age missing")
    team, age = [0, 1, 2, None, 0, 2, 1, 0], [1.0, -0.5, None, 2.0, 1.0, None, 0.25, 0.75]
    rows = [[*(float(t == k) for k in range(3)), a or 0.0, float(a is None)] for t, a in zip(team, age, strict=True)]
    kinds = ["us\u202eer", "film"]
    graph = GRAPH.with_kinds([0, 1] * 4, kinds).with_features(torch.tensor(rows), names=names)
    short, shown = "x" * 39 + "…", r"te{am}\x1b[31m"
    value, kind = {0: short, 1: "b", 2: "other"}, [r"us\u202eer", "film"]
    gaps = [abs(age[u] - age[v]) for u, v in PAIRS.tolist() if None not in (age[u], age[v])]  # type: ignore[operator]
    found = [texts(graph, fact) for fact in ("attribute te{am}\x1b[31m", "attribute age", f.KINDS)]
    for (u, v), one, two, three in zip(PAIRS.tolist(), *found, strict=True):
        check_output(one + three)
        missing = sum(team[z] is None for z in (u, v))
        if missing:
            assert one == f"{shown} unknown for {'one of them' if missing == 1 else 'both'}"
        elif team[u] != team[v]:
            assert one == f"different {shown}: {value[team[u]]} and {value[team[v]]}"  # type: ignore[index]
        else:
            assert one == (f"{shown}: a rare value for both" if team[u] == 2 else f"same {shown}: {value[team[u]]}")  # type: ignore[index]
        a, b = age[u], age[v]
        if a is None or b is None:
            assert two == f"age unknown for {'both' if a is b is None else 'one of them'}"
        elif a == b:
            assert two == "same age"
        else:
            closer, further = (np.mean([sign * (gap - abs(a - b)) > 1e-6 for gap in gaps]) for sign in (1, -1))
            more = f"age closer than in {math.floor(100 * closer + 1e-9)} % of random pairs"
            less = f"age further apart than in {math.floor(100 * further + 1e-9)} % of random pairs"
            assert two == (more if closer >= further else less)
        assert three == (
            f"both of kind {kind[u % 2]}" if (u + v) % 2 == 0 else f"kinds: {kind[u % 2]} and {kind[v % 2]}"
        )
    assert set(texts(GRAPH, f.KINDS)) == {"nodes without kinds"}


@pytest.mark.parametrize("graph", [GRAPH, DIRECTED, GRAPH[:1], mornings_and_evenings(days=2)])
def test_every_fact_has_words(graph: DynamicGraph) -> None:
    words, history = words_of(graph)
    pairs = np.array([[0, 1], [2, 2]])
    features = with_attributes(history.features(pairs)[0], graph, len(graph) - 1, pairs)
    for fact in dict.fromkeys(words.columns):
        assert all(words.of(fact, pairs, features))
