"""Features of ordered pairs u → v in a directed graph: who sent to whom, how much, and who answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import distinct
from dysat.features import facts
from dysat.features.facts import Column, columns_of
from dysat.features.link_memory import Snapshots, past_arcs

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]
DECAYS = (0.0, 0.6, 1.0)  # weight of a snapshot relative to the one after it
EVEN = 0.5  # the fraction sent by a node without links
AMOUNT = "amount"  # what a node sent and received: a fact of the sender, and one of the receiver


class DirectedPaths(NamedTuple):
    """All two-step paths u – z – v of a chunk of pairs.

    Shapes:
        pair [P]: row of the pair, middle [P]: z; u_link and v_link [P]: links of u and of v with z, as indices
    """

    pair: Ids
    middle: Ids
    u_link: Ids
    v_link: Ids


class PairDirection:
    """All arcs up to a step, and the sums that the features of ordered pairs are read from; no self-loops.

    Arcs are stored with the link low – high they belong to: index 0 is low → high, 1 is high → low. All sums x are
    stored as log(1 + x).

    Shapes:
        low, high [E]: nodes of all links, sorted; weights [decays, 2, E + 1], counts and last_arc [2, E + 1]: of the
        arcs of each link, with a last column for pairs that were never linked; arc_keys [A]: u · N + v, sorted;
        sent and received [decays, N]: sums of weights; node_values [k, N]: fractions sent and answered, and degrees
    """

    def __init__(self, snapshots: Snapshots, link_keys: Ids) -> None:
        n, self.now = snapshots[-1].num_nodes, len(snapshots) - 1
        self.num_nodes, size = n, len(link_keys) + 1
        self.low, self.high = np.divmod(link_keys, max(1, n))
        u, v, weights, steps = past_arcs(snapshots)
        link = np.searchsorted(link_keys, np.minimum(u, v) * n + np.maximum(u, v))
        at = (u > v) * size + link  # two rows of one table
        self.arc_keys = distinct(u * n + v)
        counts = np.bincount(at, minlength=2 * size)
        last = np.full(2 * size, -1)
        np.maximum.at(last, at, steps)
        self.counts: Reals = np.log1p(counts).reshape(2, size)
        self.last_arc: Ids = last.reshape(2, size)
        sums, sent, received = [], [], []
        for decay in DECAYS:
            factor = np.power(decay, self.now - steps, dtype=np.float64) * weights  # 0⁰ = 1
            sums.append(np.bincount(at, factor, minlength=2 * size).reshape(2, size))
            sent.append(np.bincount(u, factor, minlength=n))
            received.append(np.bincount(v, factor, minlength=n))
        self.weights: Reals = np.log1p(sums)
        self.sent: Reals = np.log1p(sent)
        self.received: Reals = np.log1p(received)
        own = self._node_values(np.array(sent), np.array(received))
        self.node_facts = tuple(fact for fact, _ in own)
        self.node_values: Reals = np.array([values for _, values in own])

    def _node_values(self, sent: Reals, received: Reals) -> list[Column]:
        """Return the fractions sent of all weight, targets and senders, and fractions answered.  # k times [N]"""
        n = self.num_nodes
        total = sent + received
        fraction = np.divide(sent, total, out=np.full(total.shape, EVEN), where=total > 0)
        u, v = np.divmod(self.arc_keys, max(1, n))
        both = np.isin(v * n + u, self.arc_keys, assume_unique=True)  # the other node has sent too
        targets, senders = np.bincount(u, minlength=n), np.bincount(v, minlength=n)
        mutual = np.bincount(u[both], minlength=n)
        answered, answers = mutual / np.maximum(targets, 1), mutual / np.maximum(senders, 1)
        return [
            *columns_of(facts.ROLES, fraction),
            *columns_of(AMOUNT, [np.log1p(targets), np.log1p(senders)]),
            *columns_of(facts.ANSWERS, [answered, answers]),
        ]

    def linked(self, pairs: Ids, links: Ids) -> Bools:
        """Return whether u has sent to v; `links` are the indices of the links of these pairs.  # [B, 2], [B] → [B]"""
        sent: Bools = self.last_arc[_flipped(pairs), links] >= 0
        return sent

    def columns(self, pairs: Ids, links: Ids, paths: DirectedPaths) -> list[Column]:
        """Return the features of a chunk of ordered pairs.  # [B, 2], [B] → F times [B]"""
        there = _flipped(pairs)
        columns: list[Column] = []
        for fact, side in ((facts.SENT, there), (facts.RECEIVED, 1 - there)):  # u → v, then v → u
            columns += columns_of(fact, [weights[side, links] for weights in self.weights])
            last = self.last_arc[side, links]
            age = np.where(last < 0, self.now + 1, self.now - last).astype(np.float64)
            columns += columns_of(fact, [self.counts[side, links], age])
        amounts = columns_of(AMOUNT, [*self.sent, *self.received])
        for fact, values in (*amounts, *zip(self.node_facts, self.node_values, strict=True)):
            for end, role in enumerate((facts.SENDER, facts.RECEIVER)):
                columns.append((role if fact == AMOUNT else fact, values[pairs[:, end]]))
        return columns + columns_of(facts.DIRECTED_PATHS, self._paths(pairs, paths))

    def _paths(self, pairs: Ids, paths: DirectedPaths) -> list[Reals]:
        """Return log(1 + Σ_z a b / log(2 + degree of z)) of u → z → v, v → z → u, common targets, common senders."""
        u, v = pairs[paths.pair].T
        damping = 1 / np.log(2 + np.expm1(self.sent[-1]) + np.expm1(self.received[-1]))[paths.middle]
        from_u, from_v = ((end > paths.middle).astype(np.int64) for end in (u, v))  # row of the arc end → z
        columns: list[Reals] = []
        for weights in self.weights[1:]:
            u_to, to_u = weights[from_u, paths.u_link], weights[1 - from_u, paths.u_link]
            v_to, to_v = weights[from_v, paths.v_link], weights[1 - from_v, paths.v_link]
            kinds = (u_to * to_v, v_to * to_u, u_to * v_to, to_u * to_v)
            columns += [np.log1p(np.bincount(paths.pair, terms * damping, minlength=len(pairs))) for terms in kinds]
        return columns


def _flipped(pairs: Ids) -> Ids:
    """Return 1 where u > v, the row of the arc u → v in the tables; else 0.  # [B, 2] → [B]"""
    return (pairs[:, 0] > pairs[:, 1]).astype(np.int64)
