"""Which pairs of nodes are examples of a link, and which of them tune, train and test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.data.summary import link_keys
from dysat.errors import GraphError, nearest
from dysat.sampling.pairs import unlinked_between, unlinked_pairs

Ids = NDArray[np.int64]
Protocol = Literal["single-step", "new-links", "multi-step", "new-nodes"]
SelfLoops = Literal["drop", "keep"]
NewEnds = Literal["both", "one"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
AHEAD = 6  # snapshots that multi-step prediction looks ahead


class TooFewLinksError(GraphError):
    """A step has too few examples of a class to tune, train and test with: it is reported, and left out of means."""


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """Examples of links for a model that has seen the snapshots up to `step`, and K ways to divide them.

    A fifth is for validation, once and for all. Of the rest each repeat trains on a quarter and tests on the others.
    Each class is divided by itself, as in the authors' program, and all but the test is rounded up; so from three
    examples of each class on none is missing. With fewer a mask may lack one or be empty: an AUC there is NaN.

    Shapes:
        pairs [B, 2] (int64, ids known at `step`, u ≤ v), labels [B], validation [B], train [K, B], test [K, B] (bool)
    """

    pairs: Tensor
    labels: Tensor
    validation: Tensor
    train: Tensor
    test: Tensor
    step: int
    target: int  # the snapshot whose links are predicted
    lowest: tuple[int, int] = (0, 0)  # the least ids u and v of a pair may have; others than 0 ask for new nodes
    typed: bool = False  # whether negatives are of the kinds of the positives
    negatives: str = "uniform"  # those of the test

    @property
    def num_repeats(self) -> int:
        return len(self.train)

    @property
    def missing(self) -> int:
        """How many negatives a test has fewer than positives, because there are no more such pairs."""
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
    """Links of a later snapshot between nodes known at `step`, and as many pairs that are not linked there.

    - `single-step`: the links of snapshot `step + 1`.
    - `new-links`: those of them that are absent from snapshot `step`.
    - `multi-step`: the links of snapshot `target`, which may be any after `step`.
    - `new-nodes`: the links of snapshot `step + 1` among nodes that first appear at `step`. Negatives are drawn among
      the same nodes, or a probe would only learn who is new. The paper's words ("links … among the new nodes") mean
      both ends. Few steps have enough of those (Enron one of eleven), though the paper's figure has every step; so
      `new_ends="one"` asks for one new end at least, of positives and negatives alike.

    Negatives are uniform pairs of two nodes known at `step`, none twice; all there are, where they are fewer than the
    links. With `typed` they join the same kinds as the positives do, as often: a user and an item. Nothing depends on
    snapshots after the target. The authors' program keeps self-loops among the positives.

    No link at all, or a class with less than `fewest` examples, is a `TooFewLinksError`; three leave one of each class
    to tune, train and test.
    """
    target = step + 1 if target is None else target
    _check_choices(protocol, seed, repeats, self_loops, new_ends)
    _check_steps(len(graph), step, target, protocol)
    known = graph.known[step]
    first_new = graph.known[step - 1] if protocol == "new-nodes" and step else 0
    lowest = (first_new if new_ends == "both" else 0, first_new)
    links = link_pairs(graph[target], known)
    links = links[(links >= lowest).all(1)]
    loops = links[:, 0] == links[:, 1]
    wanted = ~loops if self_loops == "drop" else np.ones(len(links), dtype=bool)
    if protocol == "new-links":
        wanted &= ~np.isin(links[:, 0] << 32 | links[:, 1], link_keys(graph[step]))
    positives = links[wanted]
    if not len(positives):
        nodes = f"nodes that first appear at step {step}" if first_new else f"two nodes known at step {step}"
        which = "new link" if protocol == "new-links" else "link"
        raise TooFewLinksError(f"step {step}: snapshot {target} has no {which} between {nodes}")
    # A target that is not the next snapshot has negatives of its own.
    rng = np.random.default_rng([seed, step] if target == step + 1 else [seed, step, target])
    if typed:
        negatives = _of_their_kinds(graph, known, positives, links[~loops], lowest, rng)
    else:
        shift = lowest[0]  # nodes are counted from the lowest
        here = links[~loops] - shift
        negatives = shift + unlinked_pairs(known - shift, here, len(positives), rng, newest=lowest[1] - shift)
    if min(len(positives), len(negatives)) < fewest:
        counts = f"links {len(positives):,}, pairs without {len(negatives):,}, needed {fewest} of each"
        raise TooFewLinksError(f"step {step}: too few examples in snapshot {target} ({protocol}): {counts}")
    split = _divide(positives, negatives, step, repeats, rng)
    return replace(split, target=target, lowest=lowest, typed=typed).to(graph.device)


def single_step(
    graph: DynamicGraph, step: int, *, seed: int = 0, repeats: int = 10, self_loops: SelfLoops = "drop"
) -> LinkSplit:
    """`link_split` of a single step, however few examples there are."""
    return link_split(graph, step, seed=seed, repeats=repeats, self_loops=self_loops, fewest=0)


def predictable_steps(
    graph: DynamicGraph, protocol: Protocol = "single-step", first: int | None = None, last: int | None = None
) -> list[tuple[int, int]]:
    """Every (step, target) of a protocol: which snapshot is the last one seen, and which is predicted.

    `first` and `last` are predicted snapshots, both included; without them all that can be predicted are.
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
            there = f"those from {lowest} to {highest} can be, of {len(graph)} snapshots counted from 0"
            raise GraphError(f"snapshot {asked} cannot be predicted ({protocol}); {there}")
    start, stop = lowest if first is None else first, highest if last is None else last
    if start > stop:
        raise GraphError(f"the first snapshot to predict, {start}, comes after the last, {stop}")
    return [(step, target) for step, target in steps if start <= target <= stop]


def multi_step_targets(graph: DynamicGraph, ahead: int = AHEAD) -> list[tuple[int, int]]:
    """(step, target) for each of the last `ahead` snapshots; `step`, the last one before all of them, is the same."""
    if ahead < 1:
        raise GraphError(f"ahead={ahead}: at least one snapshot must be predicted")
    if len(graph) <= ahead:
        raise GraphError(
            f"multi-step: to predict the last {ahead} snapshots takes more than the {len(graph)} there are"
        )
    step = len(graph) - ahead - 1
    return [(step, target) for target in range(step + 1, len(graph))]


def link_pairs(snapshot: Snapshot, known: int) -> Ids:
    """The links u ≤ v between nodes with ids below `known`.  # [E, 2]"""
    u, v, _ = (part.cpu().numpy() for part in snapshot.links())
    return np.stack([u, v], axis=1)[v < known]


def _of_their_kinds(
    graph: DynamicGraph, known: int, positives: Ids, links: Ids, lowest: tuple[int, int], rng: np.random.Generator
) -> Ids:
    """For each two kinds as many pairs without a link as there are positives.  # [≤ P, 2]"""
    if graph.kinds is None:
        raise GraphError("typed pairs need kinds of nodes, and the graph has none")
    kinds, nodes = graph.kinds[:known], np.arange(lowest[0], known)
    joined, counts = np.unique(np.sort(kinds[positives], axis=1), axis=0, return_counts=True)
    parts = []
    for (left, right), number in zip(joined.tolist(), counts.tolist(), strict=True):
        if left == right:
            raise GraphError(f"typed pairs join different kinds, but two of kind {graph.kind_names[left]!r} are linked")
        here, there = (nodes[kinds[nodes] == kind] for kind in (left, right))
        parts.append(unlinked_between(here, there, links, number, rng, newest=lowest[1]))
    return np.concatenate(parts)


def _divide(positives: Ids, negatives: Ids, step: int, repeats: int, rng: np.random.Generator) -> LinkSplit:
    """Divide the examples as `LinkSplit` says."""
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
    if not 0 <= step < number - 1:
        raise GraphError(f"step {step}: a graph with {number} snapshots has no links to predict after it")
    if not step < target < number:
        raise GraphError(f"step {step}: snapshot {target} is none of those after it, {step + 1} to {number - 1}")
    if target != step + 1 and protocol != "multi-step":
        raise GraphError(f"step {step}: {protocol} predicts snapshot {step + 1}, not {target}; multi-step can")
