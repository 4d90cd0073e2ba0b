"""The links of some snapshots, as plain arrays."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import Snapshot

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Snapshots = tuple[Snapshot, ...]
TOGETHER = 32  # snapshots whose links are kept, as long as these are there
_kept: WeakKeyDictionary[Snapshot, tuple[list[ref[Snapshot]], tuple[NDArray[Any], ...]]] = WeakKeyDictionary()


def past_links(snapshots: Snapshots) -> tuple[Ids, Ids, Reals, Ids]:
    """All links u < v of all snapshots, with their steps.  # each [ΣE]"""
    parts = []
    for first in range(0, len(snapshots), TOGETHER):
        some = snapshots[first : first + TOGETHER]
        links = _once(some) if len(some) == TOGETHER else _links(some)
        parts.append((*links[:3], links[3] + first))
    u, v, weights, steps = (np.concatenate(column) for column in zip(*parts, strict=True))
    return u, v, weights, steps


def links_among(snapshot: Snapshot, known: int) -> Ids:
    """Links u < v of a snapshot between two of the first so many nodes.  # [L, 2]"""
    u, v, _ = (part.cpu().numpy() for part in snapshot.links())
    links: Ids = np.stack([u, v], axis=1)[(v < known) & (u != v)]
    return links


def _once(snapshots: Snapshots) -> tuple[NDArray[Any], ...]:
    """Those that are kept, or kept from now on: one history of many windows begins as the other does."""
    whose, links = _kept.get(snapshots[0], ([], ()))
    if [each() for each in whose] != list(snapshots):
        links = _links(snapshots)
        _kept[snapshots[0]] = [ref(snapshot) for snapshot in snapshots], links
    return links


def _links(snapshots: Snapshots) -> tuple[NDArray[Any], ...]:
    parts = []
    for step, snapshot in enumerate(snapshots):
        u, v, weights = (part.cpu().numpy() for part in snapshot.links())
        some = u < v
        parts.append((u[some], v[some], weights[some], np.full(some.sum(), step)))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
