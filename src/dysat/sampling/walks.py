"""Random walks on compressed sparse rows, and the contexts of nodes in these walks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from dysat.system.compiled import native

ROUNDS = 8  # in which a walk that ended where it began is drawn again; then a neighbour takes its place
CPU_CHUNK = 65_536  # walks at a time: few enough to fit in the cache, enough to keep every core busy


@dataclass(frozen=True, eq=False, repr=False)
class WeightedRows:
    """Rows of weighted values; a value is drawn with probability proportional to its weight.

    Row r owns the integers [r · 2^bits, (r + 1) · 2^bits), divided in proportion to its weights; `ends` is where the
    share of each value ends. One binary search for a random integer of the row then draws a value. Integers, because
    `r + u` in float64 loses bits of u as r grows, and can round into the next row.

    Shapes:
        ends [E'], values [E'] (int64), where E' = E + number of rows without weight, whose only value is `otherwise`.
    """

    ends: Tensor
    values: Tensor
    bits: int

    @classmethod
    def from_csr(cls, offsets: Tensor, values: Tensor, weights: Tensor, otherwise: Tensor) -> Self:
        """Row r holds `values[offsets[r]:offsets[r + 1]]`, or `otherwise[r]` if no weight is above 0."""
        bits = min(52, 62 - len(otherwise).bit_length())
        rows = torch.repeat_interleave(offsets.diff(), output_size=len(values))  # [E]
        shares, empty = _cumulative_shares(offsets, rows, weights)  # [E], [rows without weight]
        ends = (rows << bits) + (shares * 2.0**bits).round().long()
        if len(empty):
            # First, so that a stable sort puts them before zero-width shares of the next row.
            ends, order = torch.cat([(empty + 1) << bits, ends]).sort(stable=True)
            values = torch.cat([otherwise[empty], values])[order]
        return cls(ends, values, bits)

    def draw(self, rows: Tensor, *, generator: torch.Generator) -> Tensor:
        """Draw one value of each row, independently.  # [...] → [...]"""
        keys = torch.randint(1 << self.bits, rows.shape, generator=generator, device=rows.device)
        keys.add_(rows, alpha=1 << self.bits)
        # right=True: a zero-width share ends where the one before it ends, so it is never the first beyond a key.
        return self.values[torch.searchsorted(self.ends, keys, right=True)]


def _cumulative_shares(offsets: Tensor, rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Cumulative share of each entry in its row, 1 from the row's last positive weight on; and the rows without weight.

    Weights are scaled by the largest of their row and added as integers. The sums are exact, so rows do not affect each
    other and the last share is exactly 1.
    """
    num_rows, device = len(offsets) - 1, weights.device
    largest = torch.zeros(num_rows, dtype=torch.float64, device=device)
    largest.scatter_reduce_(0, rows, weights.double(), "amax")
    relative = weights.double() / largest.masked_fill(largest == 0, 1.0)[rows]  # [E]
    longest = int(offsets.diff().max()) if num_rows else 0
    units = (relative * 2.0 ** (62 - longest.bit_length())).round().long()
    # The sum over all rows may exceed 2^63 and wrap around; differences within a row stay correct.
    sums = torch.nn.functional.pad(units.cumsum(0), (1, 0))  # [E + 1]
    before = sums[offsets[:-1]]  # [R]
    totals = sums[offsets[1:]] - before
    shares = (sums[1:] - before[rows]).double() / totals.clamp(min=1)[rows].double()
    return shares, (totals == 0).nonzero().flatten()


def random_walks(
    offsets: Tensor, neighbours: Tensor, weights: Tensor, starts: Tensor, length: int, *, generator: torch.Generator
) -> Tensor:
    """First-order walks: a step goes to a neighbour with probability proportional to the weight of the link.

    A walk stays on a row that has no neighbours or only zero weights.

    Shapes:
        offsets [R + 1], neighbours [E], weights [E] (at least 0), starts [S] → walks [S, length] (int32).
    """
    walks, at = torch.empty(len(starts), length, dtype=torch.int32, device=starts.device), 0
    for part in walk_parts(offsets, neighbours, weights, starts, length, generator=generator):
        walks[at : at + len(part)] = part
        at += len(part)
    return walks


def walk_parts(
    offsets: Tensor, neighbours: Tensor, weights: Tensor, starts: Tensor, length: int, *, generator: torch.Generator
) -> Iterator[Tensor]:
    """The same walks, some at a time.  # each [≤ CPU_CHUNK, length]"""
    stay = torch.arange(len(offsets) - 1, device=offsets.device)
    steps = WeightedRows.from_csr(offsets, neighbours, weights, otherwise=stay)
    for here in starts_at_once(starts):
        walk = torch.empty(len(here), length, dtype=torch.int32, device=here.device)
        walk[:, 0] = here
        for i in range(1, length):
            here = steps.draw(here, generator=generator)
            walk[:, i] = here
        yield walk


def starts_at_once(starts: Tensor) -> Sequence[Tensor]:
    """Groups of start rows whose walks are drawn together; one group on a GPU."""
    return torch.split(starts, CPU_CHUNK if starts.device.type == "cpu" else max(len(starts), 1))


@dataclass(frozen=True, eq=False, repr=False)
class Contexts:
    """The (node, context) pairs of stored walks, without listing them.

    Position i of walk w pairs w[i] with every w[j] ≠ w[i] at most `window` positions away. Pairs are numbered by
    node, then by occurrence of the node, then by j; a pair is computed from its number.

    Shapes:
        walks [S, L], order [S · L]: occurrences sorted by row, as positions in the flattened walks;
        first_of_occurrence [S · L + 1], first_of_row [R + 1]: the number of the first pair of each.
    """

    walks: Tensor
    order: Tensor
    first_of_occurrence: Tensor
    first_of_row: Tensor
    window: int

    @classmethod
    def from_walks(cls, walks: Tensor, num_rows: int, window: int) -> Self:
        walks = walks.int().contiguous()
        window = max(0, min(window, walks.shape[1] - 1))
        counts = _count_contexts(walks, window).flatten()  # [S · L]
        rows, order = walks.flatten().sort(stable=True)
        firsts = torch.zeros(len(order) + 1, dtype=torch.int64, device=walks.device)
        torch.cumsum(counts[order], 0, dtype=torch.int64, out=firsts[1:])
        borders = torch.arange(num_rows + 1, dtype=torch.int32, device=walks.device)
        narrow = torch.int32 if len(order) < 2**31 else torch.int64
        return cls(walks, order.to(narrow), firsts, firsts[torch.searchsorted(rows, borders)], window)

    @property
    def num_pairs(self) -> Tensor:
        """Number of pairs of each row.  # [R]"""
        return self.first_of_row.diff()

    @cached_property
    def linked(self) -> Tensor:
        """Whether a row has contexts.  # [R]"""
        return self.num_pairs > 0

    @cached_property
    def _starts(self) -> Tensor:
        """First occurrence that has a pair and belongs to the row or a later row.  # [R + 1]"""
        return torch.searchsorted(self.first_of_occurrence, self.first_of_row)

    def draw(self, rows: Tensor, count: int, *, generator: torch.Generator) -> Tensor:
        """Draw contexts of each row from its pairs, with replacement; −1 if it has none.  # [B] → [B, count]"""
        if self.walks.numel() == 0:  # no position to index
            return rows.new_full((len(rows), count), -1, dtype=torch.int64)
        uniform = torch.rand(len(rows), count, dtype=torch.float64, generator=generator, device=rows.device)
        if rows.is_cpu and self.order.dtype == torch.int32 and (call := native()):
            out = torch.empty(len(rows), count, dtype=torch.int64)
            stored = self.walks, self.order, self.first_of_occurrence, self.first_of_row, self._starts
            call("draw_contexts", *stored, rows, uniform, out, self.walks.shape[1], self.window, *out.shape)
            return out
        first = self.first_of_row[rows].unsqueeze(1)  # [B, 1]
        pairs = self.first_of_row[rows + 1].unsqueeze(1) - first
        pair = first + (uniform * pairs).long().minimum(pairs - 1)  # [B, count]
        # right=True: of occurrences that start at the same number, only the last has pairs.
        occurrence = torch.searchsorted(self.first_of_occurrence, pair, right=True) - 1
        occurrence = occurrence.clamp(0, len(self.order) - 1)  # rows without pairs may be out of range
        rank = pair - self.first_of_occurrence[occurrence]
        return self._context(rows, self.order[occurrence].long(), rank).masked_fill(pairs == 0, -1)

    def _context(self, rows: Tensor, position: Tensor, rank: Tensor) -> Tensor:
        """The rank-th node, other than the row itself, in the window of a position.  # [B, count]"""
        shifts = torch.arange(-self.window, self.window + 1, device=rows.device)  # [2w + 1]; 0 is the row itself
        inside = (position % self.walks.shape[1]).unsqueeze(2) >= -shifts  # [B, count, 2w + 1]; no rank is past the end
        near = (position.unsqueeze(2) + shifts).clamp(0, self.walks.numel() - 1)
        nodes = self.walks.flatten()[near]
        valid = inside & (nodes != rows[:, None, None])
        # A cumulative sum as a matrix product: a scan over such a short axis is slow on CUDA.
        upto = torch.ones(len(shifts), len(shifts), device=rows.device).triu()
        before = valid.to(upto.dtype) @ upto <= rank.unsqueeze(2)
        chosen = before.sum(2, keepdim=True).clamp(max=2 * self.window)
        return nodes.gather(2, chosen).squeeze(2).long()


@dataclass(frozen=True, eq=False, repr=False)
class FreshContexts:
    """Contexts from walks that are drawn when they are needed, for graphs whose walks would take too much memory.

    A context of row v is the row X_k that a walk from v reaches in k steps, given X_k ≠ v. k is drawn in proportion to
    how often two positions of a stored walk are k apart, length − k. Walks along undirected links look the same in both
    directions, so contexts are drawn as from `Contexts`. Those differ slightly, because a stored walk starts at every
    row equally often and not in proportion to the weights of its links.

    Shapes:
        linked [R]: whether the row has a link with another row; distances [K]: cumulative shares of k = 1 … K.
    """

    steps: WeightedRows
    others: WeightedRows  # the same without links of a row with itself
    linked: Tensor
    distances: Tensor

    @classmethod
    def from_csr(cls, offsets: Tensor, neighbours: Tensor, weights: Tensor, *, length: int, window: int) -> Self:
        """The contexts of walks of this length along weighted links."""
        rows = torch.arange(len(offsets) - 1, device=offsets.device)
        receivers = torch.repeat_interleave(rows, offsets.diff(), output_size=len(neighbours))
        apart = torch.where(receivers == neighbours, 0.0, weights.double())
        linked = torch.zeros(len(rows), dtype=torch.bool, device=offsets.device)
        linked[receivers[apart > 0]] = True
        window = max(1, min(window, length - 1))
        shares = torch.arange(length - 1, length - 1 - window, -1, dtype=torch.float64, device=offsets.device)
        return cls(
            WeightedRows.from_csr(offsets, neighbours, weights, otherwise=rows),
            WeightedRows.from_csr(offsets, neighbours, apart, otherwise=rows),
            linked if length > 1 else torch.zeros_like(linked),
            shares.cumsum(0) / shares.sum(),
        )

    def draw(self, rows: Tensor, count: int, *, generator: torch.Generator) -> Tensor:
        """Draw contexts of each row, with replacement; −1 if it has none.  # [B] → [B, count]"""
        own = rows.repeat_interleave(count)
        found, left = own.clone(), self.linked[own].nonzero()[:, 0]
        for _ in range(ROUNDS):
            if not len(left):
                break
            found[left] = self._walk(own[left], generator)
            left = left[found[left] == own[left]]
        found[left] = self.others.draw(own[left], generator=generator)
        return torch.where(self.linked[own], found, -1).view(len(rows), count)

    def _walk(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Where walks from these rows are after a random number of steps.  # [W] → [W]"""
        uniform = torch.rand(len(rows), dtype=torch.float64, generator=generator, device=rows.device)
        distance = torch.searchsorted(self.distances, uniform, right=True).clamp(max=len(self.distances) - 1) + 1
        # The longest walks first, so that those that go on are always at the front.
        distance, order = distance.sort(descending=True, stable=True)
        here = rows[order]
        for going in (
            (distance[:, None] >= torch.arange(1, len(self.distances) + 1, device=rows.device)).sum(0).tolist()
        ):
            here[:going] = self.steps.draw(here[:going], generator=generator)
        return torch.empty_like(here).index_copy_(0, order, here)


def _count_contexts(walks: Tensor, window: int) -> Tensor:
    """Number of pairs whose node is at each position.  # [S, L]"""
    counts = torch.zeros(walks.shape, dtype=torch.int16 if window < 2**14 else torch.int32, device=walks.device)
    for shift in range(1, window + 1):
        differ = walks[:, shift:] != walks[:, :-shift]
        counts[:, shift:] += differ
        counts[:, :-shift] += differ
    return counts
