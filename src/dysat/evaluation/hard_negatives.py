"""Test negatives that are harder to distinguish from links than uniform pairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.data.csr import Snapshot, distinct
from dysat.data.graph import DynamicGraph
from dysat.data.summary import target_keys
from dysat.errors import GraphError, nearest
from dysat.evaluation.protocols import LinkSplit, TooFewLinksError

Ids = NDArray[np.int64]
Negatives = Literal["uniform", "historical", "inductive", "degree-matched", "reversed"]
NEGATIVES: tuple[Negatives, ...] = get_args(Negatives)
MAX_SHUFFLES = 100  # of the endpoints of the positives


def with_negatives(split: LinkSplit, graph: DynamicGraph, kind: Negatives, seed: int = 0) -> LinkSplit:
    """Return the split with other test negatives; positives, validation and training examples stay the same.

    - `uniform`: the split unchanged.
    - `historical`: linked in a snapshot up to `step`, but not in the target.
    - `inductive`: not linked up to `step` or in the target, but in another snapshot after `step`: plausible pairs that
      no model can have memorised. They come from a future that only the evaluation sees, so the last snapshot has
      none unless it is predicted several steps ahead.
    - `degree-matched`: the endpoints of the positives, shuffled. Every node is as frequent as among the positives, as
      far as unlinked pairs allow.
    - `reversed`: v → u for positives u → v of a directed graph, unless v links to u too. A score that ignores direction
      cannot tell them from the positives.

    Negatives obey the constraints of the split (known nodes, new nodes, kinds). Their number is that of the positives,
    or fewer if not enough exist. Each repeat tests as many negatives as positives and excludes those it was trained
    on. Training negatives stay uniform: a probe trained on historical ones would only learn that a pair seen before is
    not a link.
    """
    if kind not in NEGATIVES:
        raise GraphError(f"no negatives {kind!r}; there are {', '.join(NEGATIVES)}{nearest(kind, NEGATIVES)}")
    if split.negatives != "uniform":
        raise GraphError(f"the split already has {split.negatives} negatives; start from its uniform ones")
    if seed < 0:
        raise GraphError(f"seed={seed} must not be negative")
    if kind == "uniform":
        return split
    if kind == "reversed" and not graph.directed:
        raise GraphError("reversed negatives need direction: build the graph with directed=True")
    rng = np.random.default_rng([seed, split.step, split.target, NEGATIVES.index(kind)])
    target = target_keys(graph[split.target])
    if kind == "degree-matched":
        pool = _shuffled_ends(graph, split, target, rng)
    elif kind == "reversed":
        back = _keys(split.pairs[split.labels].cpu().numpy()[:, ::-1])
        pool = rng.permutation(np.setdiff1d(back, target))
    else:
        before, after = graph.snapshots[: split.step + 1], graph.snapshots[split.step + 1 :]
        pool = np.setdiff1d(_all_keys(before if kind == "historical" else after), target)
        if kind == "inductive":
            pool = np.setdiff1d(pool, _all_keys(before))
        pool = rng.permutation(pool[_allowed(pool, graph, split)])
    return _with_test_negatives(split, pool[: int(split.labels.sum())], kind, rng)


def _with_test_negatives(split: LinkSplit, pool: Ids, kind: Negatives, rng: np.random.Generator) -> LinkSplit:
    """Append the pool to the examples and let every repeat test a sample of it instead of its own negatives."""
    train, test, labels = (part.cpu().numpy() for part in (split.train, split.test & split.labels, split.labels))
    keys, used = _keys(split.pairs.cpu().numpy()), train | split.validation.cpu().numpy()
    hard = np.zeros((len(train), len(pool)), dtype=bool)
    for chosen, used_here, number in zip(hard, used, test.sum(1), strict=True):
        unused = np.flatnonzero(~np.isin(pool, keys[used_here]))  # a uniform negative may be a hard one by chance
        chosen[rng.permutation(unused)[:number]] = True
    if not hard.any(1).all():
        raise TooFewLinksError(f"step {split.step}: snapshot {split.target} has no {kind} negatives")
    none = np.zeros_like(hard)
    pairs = np.stack([pool >> 32, pool & 0xFFFFFFFF], axis=1)
    extended = replace(
        split,
        pairs=torch.from_numpy(np.concatenate([split.pairs.cpu().numpy(), pairs])),
        labels=torch.from_numpy(np.concatenate([labels, none[0]])),
        validation=torch.from_numpy(np.concatenate([split.validation.cpu().numpy(), none[0]])),
        train=torch.from_numpy(np.concatenate([train, none], axis=1)),
        test=torch.from_numpy(np.concatenate([test, hard], axis=1)),
        negatives=kind,
    )
    return extended.to(split.pairs.device)


def _shuffled_ends(graph: DynamicGraph, split: LinkSplit, linked: Ids, rng: np.random.Generator) -> Ids:
    """Return keys of distinct unlinked pairs, each joining the first end of a positive with the second of another.

    Every end is used once, until no two of the remaining ends form a valid pair; then all ends may be used again.
    Shape: [≤ P].
    """
    ends = split.pairs[split.labels].cpu().numpy()
    kinds = np.zeros(ends.shape, dtype=np.uint8)  # of both ends
    if split.typed and graph.kinds is not None:
        ends = np.take_along_axis(ends, np.argsort(graph.kinds[ends], axis=1), axis=1)
        kinds = graph.kinds[ends]
    found = np.empty(0, dtype=np.int64)
    first = second = np.arange(len(ends))
    for _ in range(MAX_SHUFFLES):
        if len(found) >= len(ends):
            break
        second = rng.permutation(second)
        pairs = np.stack([ends[first, 0], ends[second, 1]], axis=1)
        keys = _keys(pairs if graph.directed else np.sort(pairs, axis=1))
        fits = _allowed(keys, graph, split) & (kinds[first] == kinds[second]).all(1)
        fits &= ~np.isin(keys, linked) & ~np.isin(keys, found)
        distinct = np.zeros(len(keys), dtype=bool)
        distinct[np.unique(keys, return_index=True)[1]] = True
        fits &= distinct
        found = np.concatenate([found, keys[fits]])
        some_left = fits.any() and not fits.all()
        first, second = (first[~fits], second[~fits]) if some_left else (np.arange(len(ends)),) * 2
    return found


def _allowed(keys: Ids, graph: DynamicGraph, split: LinkSplit) -> NDArray[np.bool_]:
    """Return whether each pair obeys the constraints of the split.  # [B] → [B]"""
    u, v = keys >> 32, keys & 0xFFFFFFFF
    low, high = np.minimum(u, v), np.maximum(u, v)
    allowed: NDArray[np.bool_] = (
        (low != high) & (low >= split.lowest[0]) & (high >= split.lowest[1]) & (high < graph.known[split.step])
    )
    if split.typed and graph.kinds is not None:
        allowed[allowed] = graph.kinds[u[allowed]] != graph.kinds[v[allowed]]
    return allowed


def _all_keys(snapshots: Iterable[Snapshot]) -> Ids:
    return distinct(np.concatenate([np.empty(0, dtype=np.int64), *(target_keys(s) for s in snapshots)]))


def _keys(pairs: Ids) -> Ids:
    u, v = pairs[:, 0], pairs[:, 1]
    keys: Ids = u << 32 | v
    return keys
