"""The neighbours of some rows of a block, for layers that compute these rows only, with a cap on the fan-out."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from dysat.sampling.blocks import Block, Part, Pattern
from dysat.sampling.distinct import Distinct

Side = Literal["receiver", "sender"]


class Nearby(NamedTuple):
    """All that one layer of structural attention needs to compute some rows of a block.

    `links` holds the entries of each softmax, over the rows of the block in `rows` (sorted). `part` selects the entries
    that the computed rows sum, with their senders among `rows`.

    A row with more entries than the fan-out draws that many, with replacement, and `scale` multiplies its attention by
    the fraction of all entries to drawn ones. A sender with more receivers than the fan-out, if the softmax runs over
    the receivers of a sender, draws as many of those that are not computed; `shift` adds the logarithm of the same
    fraction to their logits, so that the sum in the softmax is estimated without bias. Both are None if nothing is
    drawn, and then the result is exact.

    Shapes: rows [A'], weights and shift [E'], scale [E'']
    """

    rows: Tensor
    links: Pattern
    weights: Tensor
    part: Part
    shift: Tensor | None
    scale: Tensor | None


def nearby(block: Block, rows: Tensor, side: Side, fan_out: int, generator: torch.Generator | None) -> Nearby:
    """Return what computes these rows of a block, which must be sorted and distinct.  # [R]

    Without a generator nothing is drawn, whatever the fan-out.
    """
    links = block.links
    summed, at, scale = _entries(links.offsets, rows, fan_out, generator)  # entries, index into rows, [E'']
    entries, shift = Distinct.of(summed, links.num_entries), None
    senders = Distinct.of(links.senders.index_select(0, entries.numbers), links.num_senders)
    if side == "sender":
        entries, shift = _columns(links, senders.numbers, entries, fan_out, generator)
    elif scale is not None:  # a softmax over the drawn entries needs no scale, and each entry once
        summed, scale = entries.numbers, None
        at = torch.searchsorted(rows, links.receivers.index_select(0, summed))
    receivers = links.receivers.index_select(0, entries.numbers)
    near = Distinct.of(torch.cat([rows, senders.numbers, receivers]), links.num_senders)
    number = len(near.numbers)
    pattern = Pattern.from_counts(
        torch.bincount(near.places(receivers), minlength=number),
        near.places(links.senders.index_select(0, entries.numbers)),
        number,
    )
    part = Part(
        near.places(rows),
        near.places(senders.numbers),
        entries.places(summed),
        Pattern.from_counts(
            torch.bincount(at, minlength=len(rows)),
            senders.places(links.senders.index_select(0, summed)),
            len(senders.numbers),
        ),
    )
    return Nearby(near.numbers, pattern, block.weights.index_select(0, entries.numbers), part, shift, scale)


def _columns(
    links: Pattern, senders: Tensor, computed: Distinct, fan_out: int, generator: torch.Generator | None
) -> tuple[Distinct, Tensor | None]:
    """Return the entries of all receivers of these senders, and their shifts.  # [S], [E''] → [E'], [E']

    The entries in `computed` are always among them.
    """
    found, _, scale = _entries(links.transposed.offsets, senders, fan_out, generator)
    found = links.by_sender.index_select(0, found)
    if scale is None:
        return Distinct.of(found, links.num_entries), None
    other = ~computed.has(found)
    found, scale = found[other], scale[other]
    drawn = Distinct.of(found, links.num_entries)
    times = scale.new_zeros(len(drawn.numbers))
    times.index_add_(0, drawn.places(found), scale)  # one drawn twice counts twice
    every = Distinct.of(torch.cat([computed.numbers, drawn.numbers]), links.num_entries)
    shift = times.new_zeros(len(every.numbers))
    shift[every.places(drawn.numbers)] = times.log()
    return every, shift


def _entries(
    offsets: Tensor, rows: Tensor, fan_out: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return entries of these rows of a CSR, the index of each into `rows`, and the scale of each.

    Rows with more than `fan_out` entries draw that many; the scale is None if there is no such row.
    """
    first = offsets.index_select(0, rows)
    counts = offsets.index_select(0, rows + 1) - first
    kept = counts if generator is None else counts.clamp(max=fan_out)
    total = int(kept.sum()) if len(kept) else 0
    at = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), kept, output_size=total)
    entries = torch.arange(total, device=rows.device) + (first - (kept.cumsum(0) - kept)).index_select(0, at)
    if generator is None or not bool((kept < counts).any()):
        return entries, at, None
    drawn = (kept < counts).index_select(0, at)
    random = torch.rand(total, generator=generator, device=rows.device, dtype=torch.float64)
    number = counts.index_select(0, at)
    within = (random * number).long().clamp(max=number - 1)
    scale = (counts / kept).float().index_select(0, at)  # 1 for a row of which nothing is drawn
    return torch.where(drawn, first.index_select(0, at) + within, entries), at, scale
