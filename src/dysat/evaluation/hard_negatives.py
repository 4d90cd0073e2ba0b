"""Negatives that are harder to tell from links than uniform pairs, for the test alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.data.summary import link_keys
from dysat.errors import GraphError, nearest
from dysat.evaluation.protocols import LinkSplit, TooFewLinksError

Ids = NDArray[np.int64]
Negatives = Literal["uniform", "historical", "inductive", "degree-matched"]
NEGATIVES: tuple[Negatives, ...] = get_args(Negatives)
SHUFFLES = 100  # of the positives' ends, at most


def with_negatives(split: LinkSplit, graph: DynamicGraph, kind: Negatives, seed: int = 0) -> LinkSplit:
    """The same positives, validation and training examples, tested against other negatives.

    - `uniform`: the split as it is.
    - `historical`: linked in a snapshot up to `step`, not in the target.
    - `inductive`: never linked up to `step` nor in the target, but in another snapshot after `step`: pairs that do
      belong together and that no model can have memorised. They are drawn from a future that only the evaluator sees,
      so the last snapshot has none unless it is predicted several steps ahead.
    - `degree-matched`: the ends of the positives joined anew, so that every node is as frequent as it is there, as
      far as pairs that are not linked allow.

    All are pairs of two nodes that the split may draw, of the kinds it joins. There are as many as positives, or all
    there are; each repeat tests as many as it has positives, drawn from those it was not trained on. A probe trained
    on historical negatives would merely learn that what was seen before is no link.
    """
    if kind not in NEGATIVES:
        raise GraphError(f"no negatives {kind!r}; there are {', '.join(NEGATIVES)}{nearest(kind, NEGATIVES)}")
    if split.negatives != "uniform":
        raise GraphError(f"the split has {split.negatives} negatives already; begin with its uniform ones")
    if seed < 0:
        raise GraphError(f"seed={seed} must not be negative")
    if kind == "uniform":
        return split
    rng = np.random.default_rng([seed, split.step, split.target, NEGATIVES.index(kind)])
    target = link_keys(graph[split.target])
    if kind == "degree-matched":
        pool = _rejoined(graph, split, target, rng)
    else:
        before, after = graph.snapshots[: split.step + 1], graph.snapshots[split.step + 1 :]
        pool = np.setdiff1d(_all_keys(before if kind == "historical" else after), target)
        if kind == "inductive":
            pool = np.setdiff1d(pool, _all_keys(before))
        pool = rng.permutation(pool[_allowed(pool, graph, split)])
    return _tested_on(split, pool[: int(split.labels.sum())], kind, rng)


def _tested_on(split: LinkSplit, pool: Ids, kind: Negatives, rng: np.random.Generator) -> LinkSplit:
    """Examples of the pool beside those there are; every repeat tests some of them instead of its negatives."""
    train, test, labels = (part.cpu().numpy() for part in (split.train, split.test & split.labels, split.labels))
    keys, used = _keys(split.pairs.cpu().numpy()), train | split.validation.cpu().numpy()
    hard = np.zeros((len(train), len(pool)), dtype=bool)
    for chosen, here, number in zip(hard, used, test.sum(1), strict=True):
        unused = np.flatnonzero(~np.isin(pool, keys[here]))  # a uniform negative may be a hard one by chance
        chosen[rng.permutation(unused)[:number]] = True
    if not hard.any(1).all():
        raise TooFewLinksError(f"step {split.step}: there are no {kind} negatives for snapshot {split.target}")
    none = np.zeros_like(hard)
    pairs = np.stack([pool >> 32, pool & 0xFFFFFFFF], axis=1)
    longer = replace(
        split,
        pairs=torch.from_numpy(np.concatenate([split.pairs.cpu().numpy(), pairs])),
        labels=torch.from_numpy(np.concatenate([labels, none[0]])),
        validation=torch.from_numpy(np.concatenate([split.validation.cpu().numpy(), none[0]])),
        train=torch.from_numpy(np.concatenate([train, none], axis=1)),
        test=torch.from_numpy(np.concatenate([test, hard], axis=1)),
        negatives=kind,
    )
    return longer.to(split.pairs.device)


def _rejoined(graph: DynamicGraph, split: LinkSplit, linked: Ids, rng: np.random.Generator) -> Ids:
    """Keys of distinct pairs that are not linked, each of a first end and a second end of positives.  # [≤ P]

    Every end is used once, until no two of those that are left fit each other; then all may be used again.
    """
    ends = split.pairs[split.labels].cpu().numpy()
    joined = np.zeros(ends.shape, dtype=np.uint8)  # the kinds of both ends
    if split.typed and graph.kinds is not None:
        ends = np.take_along_axis(ends, np.argsort(graph.kinds[ends], axis=1), axis=1)
        joined = graph.kinds[ends]
    found = np.empty(0, dtype=np.int64)
    first = second = np.arange(len(ends))
    for _ in range(SHUFFLES):
        if len(found) >= len(ends):
            break
        second = rng.permutation(second)
        keys = _keys(np.sort(np.stack([ends[first, 0], ends[second, 1]], axis=1), axis=1))
        fits = _allowed(keys, graph, split) & (joined[first] == joined[second]).all(1)
        fits &= ~np.isin(keys, linked) & ~np.isin(keys, found)
        once = np.zeros(len(keys), dtype=bool)
        once[np.unique(keys, return_index=True)[1]] = True
        fits &= once
        found = np.concatenate([found, keys[fits]])
        left = fits.any() and not fits.all()
        first, second = (first[~fits], second[~fits]) if left else (np.arange(len(ends)),) * 2
    return found


def _allowed(keys: Ids, graph: DynamicGraph, split: LinkSplit) -> NDArray[np.bool_]:
    """Whether both nodes are two that the split may draw."""
    u, v = keys >> 32, keys & 0xFFFFFFFF
    allowed: NDArray[np.bool_] = (
        (u != v) & (u >= split.lowest[0]) & (v >= split.lowest[1]) & (v < graph.known[split.step])
    )
    if split.typed and graph.kinds is not None:
        allowed[allowed] = graph.kinds[u[allowed]] != graph.kinds[v[allowed]]
    return allowed


def _all_keys(snapshots: Iterable[Snapshot]) -> Ids:
    return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *(link_keys(s) for s in snapshots)]))


def _keys(pairs: Ids) -> Ids:
    u, v = pairs[:, 0], pairs[:, 1]
    keys: Ids = u << 32 | v
    return keys
