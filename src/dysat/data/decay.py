"""All snapshots as one sparse matrix, in which the older count less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import Snapshot
from dysat.data.past_links import past_links

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


class Links(NamedTuple):
    """A symmetric sparse matrix with an empty diagonal: every link once, in order.

    Shapes:
        keys [E]: u · N + v with u < v, values [E]
    """

    keys: Ids
    values: Floats
    num_nodes: int

    def look_up(self, u: Ids, v: Ids) -> Floats:
        """The values of pairs, 0 for those that are no links; shapes broadcast."""
        wanted = np.minimum(u, v) * self.num_nodes + np.maximum(u, v)
        if not len(self.keys):
            return np.zeros(wanted.shape)
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, self.values[at], 0.0)

    def degrees(self) -> Floats:
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
