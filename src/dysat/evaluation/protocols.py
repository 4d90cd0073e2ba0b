"""Examples of links and non-links for a step, divided into validation, training and test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.data.summary import target_keys
from dysat.errors import GraphError, nearest
from dysat.sampling.pairs import unlinked_between, unlinked_pairs

Ids = NDArray[np.int64]
Protocol = Literal["single-step", "new-links", "multi-step", "new-nodes"]
SelfLoops = Literal["drop", "keep"]
NewEnds = Literal["both", "one"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
AHEAD = 6  # snapshots predicted by the multi-step protocol


class TooFewLinksError(GraphError):
    """A step has too few examples of a class for validation, training and test; it is reported and left out."""


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """Examples for a model that has seen the snapshots up to `step`, and K ways to divide them.

    A fifth of the examples is for validation, the same in all repeats. Each repeat trains on a quarter of the rest and
    tests on the other three quarters. Each class is divided separately, as in the authors' program. Validation and
    training parts are rounded up, so three examples per class are enough for every part. With fewer, a part may lack a
    class, and its AUC is NaN.

    Shapes:
        pairs [B, 2] (int64, ids known at `step`, u ≤ v, or u → v with direction);
        labels [B], validation [B], train [K, B], test [K, B] (bool)
    """

    pairs: Tensor
    labels: Tensor
    validation: Tensor
    train: Tensor
    test: Tensor
    step: int
    target: int  # the snapshot whose links are predicted
    lowest: tuple[int, int] = (0, 0)  # smallest ids allowed for the lower and the higher node; above 0 for new nodes
    typed: bool = False  # negatives join the same kinds of nodes as the positives
    negatives: str = "uniform"  # kind of the test negatives

    @property
    def num_repeats(self) -> int:
        return len(self.train)

    @property
    def missing(self) -> int:
        """Number of test negatives missing, because not enough such pairs exist."""
        positive, negative = ((self.test & label).sum(-1) for label in (self.labels, ~self.labels))
        return max(0, int((positive - negative).max()))

    def to(self, device: str | torch.device) -> LinkSplit:
        names = ("pairs", "labels", "validation", "train", "test")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def link_split(
    graph: DynamicGraph,
    step: int,
    *,
    protocol: Protocol = "single-step",
    target: int | None = None,
    seed: int = 0,
    repeats: int = 10,
    self_loops: SelfLoops = "drop",
    typed: bool = False,
    new_ends: NewEnds = "both",
    fewest: int = 3,
) -> LinkSplit:
    """Return the links of a later snapshot between nodes known at `step`, and as many unlinked pairs.

    - `single-step`: the links of snapshot `step + 1`.
    - `new-links`: those that are absent from snapshot `step`.
    - `multi-step`: the links of snapshot `target`, which can be any snapshot after `step`.
    - `new-nodes`: the links of snapshot `step + 1` among nodes that first appear at `step`. Negatives are drawn among
      the same nodes; otherwise a probe would only learn which nodes are new. Taken literally, the paper ("links …
      among the new nodes") means that both ends are new. Few steps have enough such links (one of eleven on Enron),
      although the paper's figure shows every step. With `new_ends="one"` one new end is enough, for positives and
      negatives alike.

    Negatives are distinct uniform pairs of two nodes known at `step`, or all such pairs if there are fewer than links.
    With `typed`, negatives join the same kinds as the positives, equally often, such as a user and an item. Nothing
    depends on snapshots after the target. The authors' program keeps self-loops among the positives.

    In a directed graph positives are the directed links u → v, and negatives are ordered pairs without that link.

    Raises `TooFewLinksError` without any link, or if a class has fewer than `fewest` examples. Three examples leave one
    each for validation, training and test.
    """
    target = step + 1 if target is None else target
    _check_choices(protocol, seed, repeats, self_loops, new_ends)
    positives, links, lowest = _positives(graph, step, target, protocol, self_loops, new_ends)
    # A target that is not the next snapshot has negatives of its own.
    rng = np.random.default_rng([seed, step] if target == step + 1 else [seed, step, target])
    if typed:
        parts = _kind_pairs(graph, step, positives, lowest)
        negatives = np.concatenate(
            [unlinked_between(left, right, links, number, rng, newest=lowest[1]) for left, right, number in parts]
        )
    else:
        shift = lowest[0]  # nodes are counted from the lowest
        num_nodes, newest = graph.known[step] - shift, lowest[1] - shift
        negatives = shift + unlinked_pairs(
            num_nodes, links - shift, len(positives), rng, newest=newest, directed=graph.directed
        )
    _check_counts(len(positives), len(negatives), fewest, step, target, protocol)
    split = _divide(positives, negatives, step, repeats, rng)
    return replace(split, target=target, lowest=lowest, typed=typed).to(graph.device)


def check_links(
    graph: DynamicGraph,
    step: int,
    target: int,
    *,
    protocol: Protocol = "single-step",
    self_loops: SelfLoops = "drop",
    typed: bool = False,
    new_ends: NewEnds = "both",
    fewest: int = 3,
) -> None:
    """Raise the `TooFewLinksError` that `link_split` would raise, by counting: no example is drawn."""
    _check_choices(protocol, 0, 1, self_loops, new_ends)
    positives, links, lowest = _positives(graph, step, target, protocol, self_loops, new_ends)
    if typed:
        parts = _kind_pairs(graph, step, positives, lowest)
        negatives = sum(min(number, _count_between(left, right, links, lowest[1])) for left, right, number in parts)
    else:
        pairs, older = (n * (n - 1) // 2 for n in (graph.known[step] - lowest[0], lowest[1] - lowest[0]))
        negatives = min(len(positives), (pairs - older) * (1 + graph.directed) - len(links))
    _check_counts(len(positives), negatives, fewest, step, target, protocol)


def single_step(
    graph: DynamicGraph, step: int, *, seed: int = 0, repeats: int = 10, self_loops: SelfLoops = "drop"
) -> LinkSplit:
    """Return `link_split` of a single step, however few examples it has."""
    return link_split(graph, step, seed=seed, repeats=repeats, self_loops=self_loops, fewest=0)


def predictable_steps(
    graph: DynamicGraph, protocol: Protocol = "single-step", first: int | None = None, last: int | None = None
) -> list[tuple[int, int]]:
    """Return every (step, target) of a protocol: the last snapshot seen, and the predicted one.

    `first` and `last` limit the predicted snapshots, both inclusive; None means no limit.
    """
    _check_protocol(protocol)
    if protocol == "multi-step":
        steps = multi_step_targets(graph)
    else:
        steps = [(target - 1, target) for target in range(1, len(graph))]
    if not steps:
        raise GraphError("a graph with one snapshot has none to predict")
    lowest, highest = steps[0][1], steps[-1][1]
    for asked in (first, last):
        if asked is not None and not lowest <= asked <= highest:
            range_ = f"choose from {lowest} to {highest}, of {len(graph)} snapshots counted from 0"
            raise GraphError(f"snapshot {asked} cannot be predicted ({protocol}); {range_}")
    start, stop = lowest if first is None else first, highest if last is None else last
    if start > stop:
        raise GraphError(f"the first snapshot to predict, {start}, comes after the last, {stop}")
    return [(step, target) for step, target in steps if start <= target <= stop]


def multi_step_targets(graph: DynamicGraph, ahead: int = AHEAD) -> list[tuple[int, int]]:
    """Return (step, target) for each of the last `ahead` snapshots; `step` is the last snapshot before all of them."""
    if ahead < 1:
        raise GraphError(f"ahead={ahead}: at least one snapshot must be predicted")
    if len(graph) <= ahead:
        raise GraphError(
            f"multi-step: predicting the last {ahead} snapshots takes more than the {len(graph)} there are"
        )
    step = len(graph) - ahead - 1
    return [(step, target) for target in range(step + 1, len(graph))]


def link_pairs(snapshot: Snapshot, known: int) -> Ids:
    """Return the links u ≤ v between nodes with ids below `known`; with direction those u → v.  # [E, 2]"""
    u, v, _ = (part.cpu().numpy() for part in snapshot.pairs())
    links: Ids = np.stack([u, v], axis=1)[np.maximum(u, v) < known]
    return links


def _positives(
    graph: DynamicGraph, step: int, target: int, protocol: Protocol, self_loops: SelfLoops, new_ends: NewEnds
) -> tuple[Ids, Ids, tuple[int, int]]:
    """Return positives, links of the target without loops, and the smallest ids allowed for u and v.  # [P, 2], [E, 2]

    No negative may be one of the links, even if the protocol does not count that link as a positive.
    """
    _check_steps(len(graph), step, target, protocol)
    first_new = graph.known[step - 1] if protocol == "new-nodes" and step else 0
    lowest = (first_new if new_ends == "both" else 0, first_new)
    links = link_pairs(graph[target], graph.known[step])
    links = links[(np.sort(links, axis=1) >= lowest).all(1)]
    loops = links[:, 0] == links[:, 1]
    wanted = ~loops if self_loops == "drop" else np.ones(len(links), dtype=bool)
    if protocol == "new-links":
        wanted &= ~np.isin(links[:, 0] << 32 | links[:, 1], target_keys(graph[step]))
    if not wanted.any():
        nodes = f"nodes that first appear at step {step}" if first_new else f"two nodes known at step {step}"
        which = "new link" if protocol == "new-links" else "link"
        raise TooFewLinksError(f"step {step}: snapshot {target} has no {which} between {nodes}")
    return links[wanted], links[~loops], lowest


def _kind_pairs(graph: DynamicGraph, step: int, positives: Ids, lowest: tuple[int, int]) -> list[tuple[Ids, Ids, int]]:
    """Return, for each pair of kinds, the nodes of both kinds and the number of positives that join them."""
    if graph.kinds is None:
        raise GraphError("typed pairs need kinds of nodes, and the graph has none")
    kinds, nodes = graph.kinds[: graph.known[step]], np.arange(lowest[0], graph.known[step])
    joined, counts = np.unique(np.sort(kinds[positives], axis=1), axis=0, return_counts=True)
    parts = []
    for (left, right), number in zip(joined.tolist(), counts.tolist(), strict=True):
        if left == right:
            raise GraphError(f"typed pairs join different kinds, but two of kind {graph.kind_names[left]!r} are linked")
        parts.append((nodes[kinds[nodes] == left], nodes[kinds[nodes] == right], number))
    return parts


def _count_between(left: Ids, right: Ids, links: Ids, newest: int) -> int:
    """Count the unlinked pairs of a node of `left` and one of `right`, one of them at least `newest`."""
    older = int(np.searchsorted(left, newest)) * int(np.searchsorted(right, newest))
    ends = np.concatenate([links, links[:, ::-1]])
    linked = np.isin(ends[:, 0], left) & np.isin(ends[:, 1], right)
    return len(left) * len(right) - older - int(linked.sum())


def _check_counts(positives: int, negatives: int, fewest: int, step: int, target: int, protocol: str) -> None:
    if min(positives, negatives) < fewest:
        counts = f"links {positives:,}, pairs without {negatives:,}, needed {fewest} of each"
        raise TooFewLinksError(f"step {step}: too few examples in snapshot {target} ({protocol}): {counts}")


def _divide(positives: Ids, negatives: Ids, step: int, repeats: int, rng: np.random.Generator) -> LinkSplit:
    """Divide the examples as described in `LinkSplit`."""
    labels = np.arange(len(positives) + len(negatives)) < len(positives)
    validation = np.zeros(len(labels), dtype=bool)
    train = np.zeros((repeats, len(labels)), dtype=bool)
    rest = []
    for label in (True, False):
        order = rng.permutation(np.flatnonzero(labels == label))
        fifth = -(-len(order) // 5)
        validation[order[:fifth]] = True
        rest.append(order[fifth:])
    for mask in train:
        for examples in rest:
            mask[rng.permutation(examples)[: -(-len(examples) // 4)]] = True
    return LinkSplit(
        pairs=torch.from_numpy(np.concatenate([positives, negatives])),
        labels=torch.from_numpy(labels),
        validation=torch.from_numpy(validation),
        train=torch.from_numpy(train),
        test=torch.from_numpy(~train & ~validation),
        step=step,
        target=step + 1,
    )


def _check_choices(protocol: str, seed: int, repeats: int, self_loops: str, new_ends: str) -> None:
    _check_protocol(protocol)
    if self_loops not in ("drop", "keep"):
        raise GraphError(f"self_loops={self_loops!r} is neither 'drop' nor 'keep'")
    if new_ends not in ("both", "one"):
        raise GraphError(f"new_ends={new_ends!r} is neither 'both' nor 'one'")
    if repeats < 1:
        raise GraphError(f"repeats={repeats}: at least one is needed")
    if seed < 0:
        raise GraphError(f"seed={seed} must not be negative")


def _check_protocol(protocol: str) -> None:
    if protocol not in PROTOCOLS:
        raise GraphError(f"no protocol {protocol!r}; there are {', '.join(PROTOCOLS)}{nearest(protocol, PROTOCOLS)}")


def _check_steps(number: int, step: int, target: int, protocol: str) -> None:
    if number < 2:
        raise GraphError("the graph has only one snapshot")
    if not 0 <= step < number - 1:
        raise GraphError(f"step {step}: a graph with {number} snapshots has no links to predict after it")
    if not step < target < number:
        raise GraphError(f"step {step}: snapshot {target} is not one of those after it, {step + 1} to {number - 1}")
    if target != step + 1 and protocol != "multi-step":
        raise GraphError(f"step {step}: {protocol} predicts snapshot {step + 1}, not {target}; multi-step can")
