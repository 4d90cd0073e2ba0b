"""The links of some snapshots, as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import Snapshot

if TYPE_CHECKING:
    from scipy.sparse import csr_array

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


class Links(NamedTuple):
    """A symmetric sparse matrix with an empty diagonal: every link once, in order.

    Shapes:
        keys [E]: u · N + v with u < v, values [E]
    """

    keys: Ids
    values: Reals
    num_nodes: int

    def look_up(self, u: Ids, v: Ids) -> Reals:
        """The values of pairs, 0 for those that are no links; shapes broadcast."""
        wanted = np.minimum(u, v) * self.num_nodes + np.maximum(u, v)
        if not len(self.keys):
            return np.zeros(wanted.shape)
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, self.values[at], 0.0)

    def degrees(self) -> Reals:
        """The sum of each node's values.  # [N]"""
        ends = np.concatenate(np.divmod(self.keys, max(1, self.num_nodes)))
        return np.bincount(ends, np.tile(self.values, 2), self.num_nodes).astype(np.float64)

    def matrix(self) -> csr_array[np.float64]:
        """Both directions as compressed sparse rows.  # [N, N]"""
        from scipy.sparse import coo_array

        u, v = np.divmod(self.keys, max(1, self.num_nodes))
        ends = np.concatenate([u, v]), np.concatenate([v, u])
        matrix = coo_array((np.tile(self.values, 2), ends), shape=(self.num_nodes,) * 2).tocsr()
        matrix.sort_indices()
        return matrix


def decayed_links(snapshots: Sequence[Snapshot], decay: float, *, weighted: bool = True) -> Links:
    """m_uv = Σ_k decay^(t−k) w_uv^k with t the last of the snapshots, or the same with 1 for each weight.

    Pairs with the same history have the same sum to the last bit, in whatever order the nodes are.
    """
    factors = np.array([decay**age for age in reversed(range(len(snapshots)))])  # 0⁰ is 1: the last snapshot counts
    links, num_nodes = past_links(tuple(snapshots)), snapshots[-1].num_nodes
    u, v, weights, steps = (part[factors[links[3]] > 0][::-1] for part in links)  # the newest first
    keys, which = np.unique(u * num_nodes + v, return_inverse=True)
    sums = np.bincount(which, factors[steps] * weights if weighted else factors[steps], len(keys))
    return Links(keys, sums.astype(np.float64), num_nodes)
