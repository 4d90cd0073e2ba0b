"""Check what a stored graph holds before anything uses it.

A checksum only says that a file is as somebody wrote it. Each function here raises `GraphError` unless the content is
what `pack_graph` would have written, in passes over large pieces of arrays: types, shapes, ranges, order and
finiteness. The C code and every index into an array rely on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import CSR, LATEST, MAX_NODES, SENT, are_fractions
from dysat.data.reading.labels import Labels
from dysat.errors import GraphError

Ids = NDArray[np.int64]
Array = NDArray[Any]
LARGEST_MOMENT = 2**62  # of either clock: the difference of two is still an int64
AT_ONCE = 1 << 16  # known nodes of the snapshots that are checked together
PIECE = 1 << 22  # numbers that are compared at once, so that checks of a mapped graph need little memory
SAMPLED = 1 << 10  # entries whose second direction is looked up
DENSE = 8  # times as many numbers as labels: few enough for a table
INFINITY = 0x7FF0000000000000  # bits of the float64; those of NaN and of negative numbers are larger
REPORT = ("events", "used", "before", "after", "self_loops")
INTEGER, REAL, BYTE = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.uint8)
TYPES = {
    **dict.fromkeys(("rows", "offsets", "neighbours", "labels", "label_offsets"), (INTEGER,)),
    **dict.fromkeys(("weights", SENT), (REAL,)),
    LATEST: (np.dtype(np.float32),),
    **dict.fromkeys(("kinds", "label_text"), (BYTE,)),
    "features": (np.dtype(np.float32), REAL, np.dtype(np.float16)),
}


# ---- the manifest ----


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Check the type, number, range and order of all values besides the list of files."""
    steps = _numbers(manifest, "known", 0, MAX_NODES)
    edges = _numbers(manifest, "boundaries", -LARGEST_MOMENT, LARGEST_MOMENT)
    counts = {name: _numbers(manifest, name, 0, 2**62) for name in ("rows", "entries")}
    if not steps or len(edges) != len(steps) + 1 or any(len(count) != len(steps) for count in counts.values()):
        lengths = ", ".join(f"{len(manifest[name])} {name}" for name in ("known", "rows", "entries", "boundaries"))
        raise GraphError(f"the numbers of {lengths} do not fit each other")
    if any(sum(count) >= 2**62 for count in counts.values()):
        raise GraphError("more rows or entries than any file holds")
    if any(before >= after for before, after in pairwise(edges)):
        raise GraphError("the boundaries of the windows do not increase")
    for name in ("kind_names", "notes", "feature_names"):
        if not _are_texts(manifest.get(name, () if name == "feature_names" else None)):
            raise GraphError(f"{name} is not a list of texts")
    for name in ("features_per_snapshot", "directed"):
        if not isinstance(manifest.get(name, False), bool):
            raise GraphError(f"{name} is neither true nor false")
    _check_report(manifest.get("report"))


def _numbers(manifest: Mapping[str, Any], name: str, least: int, most: int) -> Sequence[int]:
    values = manifest.get(name)
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise GraphError(f"{name} is not a list of whole numbers")
    if values and not least <= min(values) <= max(values) <= most:
        raise GraphError(f"{name} has numbers outside {least:,} … {most:,}")
    return values


def _are_texts(values: object) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)


def _check_report(report: object) -> None:
    if report is None:
        return
    if not isinstance(report, dict) or not {*REPORT, "self_loops_kept"} <= set(report) <= {
        *(*REPORT, "self_loops_kept", "covered")
    }:
        raise GraphError("the report does not have the expected entries")
    covered = report.get("covered")
    counts = all(type(report[name]) is int and 0 <= report[name] < 2**63 for name in REPORT)
    fraction = covered is None or (type(covered) in (int, float) and math.isfinite(covered))
    if not (counts and fraction and isinstance(report["self_loops_kept"], bool)):
        raise GraphError("the report has an entry that is not a count, a fraction, true or false")


# ---- the arrays ----


def check_types(arrays: Mapping[str, Array], lengths: Mapping[str, Ids]) -> None:
    """Check types and dimensions of all arrays, the lengths of those of the snapshots, and that features are finite."""
    for name in (*lengths, *(("labels",) if "labels" in arrays else ("label_text", "label_offsets"))):
        if name not in arrays:
            raise GraphError(f"{name}.npy is not in the list of files")
    for name, array in arrays.items():
        if array.dtype not in TYPES.get(name, (array.dtype,)):
            raise GraphError(f"{name} holds {array.dtype}, expected {TYPES[name][0]}")
        if name in TYPES and array.ndim != (2 if name == "features" else 1):
            raise GraphError(f"{name} has shape {array.shape}")
    for name, sizes in lengths.items():
        if len(arrays[name]) != sizes.sum():
            raise GraphError(f"{name} has {len(arrays[name]):,} entries, expected {sizes.sum():,}")
    if "labels" not in arrays:
        check_offsets(arrays["label_offsets"], len(arrays["label_text"]))
    if "features" in arrays and not are_finite(arrays["features"]):
        raise GraphError("features have a value that is not a finite number")


def are_finite(values: Array) -> bool:
    """Whether all numbers are finite, without a temporary array."""
    return not values.size or bool(np.isfinite(values.min()) and np.isfinite(values.max()))


def check_offsets(offsets: Ids, size: int) -> None:
    """Check that the offsets of labels start at 0, do not decrease and end at the size of their text."""
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != size or _increases(offsets[::-1]):
        raise GraphError(f"label_offsets do not lead from 0 to {size:,}")


def check_labels(labels: Labels, kinds: Array | None) -> None:
    """Check that no two nodes (of one kind) have the same label."""
    for part in [labels] if kinds is None else [labels[kinds == kind] for kind in np.unique(kinds)]:
        if not (len(set(part.tolist())) == len(part) if part.dtype == object else _are_distinct(part)):
            raise GraphError("two nodes have the same label")


def _are_distinct(numbers: Ids) -> bool:
    if len(numbers) < 2:
        return True
    least, most = int(numbers.min()), int(numbers.max())
    if most - least < DENSE * len(numbers):
        seen = np.zeros(most - least + 1, dtype=np.bool_)
        seen[numbers - least] = True
        return bool(seen.sum() == len(numbers))
    ordered = np.sort(numbers)
    return not bool((ordered[1:] == ordered[:-1]).any())


def check_snapshot(arrays: Mapping[str, Array], known: int, *, directed: bool) -> None:
    """Check all arrays of one snapshot that was stored by itself, with the labels of its new nodes."""
    names = (*CSR, *(SENT,) * directed, *(LATEST,) * (LATEST in arrays))
    lengths = {name: np.array([len(arrays[name])]) for name in names}
    num_rows, num_entries = lengths["rows"], lengths["neighbours"]
    lengths |= {"offsets": num_rows + 1} | {name: num_entries for name in ("weights", SENT, LATEST) if name in lengths}
    check_types(arrays, lengths)
    check_snapshots({name: arrays[name] for name in lengths}, num_rows, num_entries, np.array([known]))


def check_new_nodes(known: Labels, new: Labels, number: int, kinds: Array | None, new_kinds: Array | None) -> None:
    """Check that there are `number` new nodes, with labels (and kinds) like those of the known ones."""
    if len(new) != number or (number and new.dtype != known.dtype):
        raise GraphError(f"{len(new):,} labels of {new.dtype} for {number:,} new nodes, after labels of {known.dtype}")
    if (kinds is None) != (new_kinds is None) or (new_kinds is not None and len(new_kinds) != number):
        raise GraphError(f"the new nodes do not have {number:,} kinds")


def check_snapshots(arrays: Mapping[str, Array], num_rows: Ids, num_entries: Ids, known: Ids) -> None:
    """Check the arrays of consecutive snapshots, of these numbers of rows, entries and known nodes.

    In every snapshot, the rows are increasing nodes below `known`, all of them with neighbours; the neighbours of a row
    are increasing nodes below `known`; weights are finite and not negative, times from 0 to 1. That a link is stored in
    both directions with the same weight and time is checked for `SAMPLED` entries at equal distances, which are all of
    a small graph: to check more would cost as much as the checksums. What needs the second direction checks it
    (`sampling/blocks.py`).

    Shapes: rows [Σ R], offsets [Σ (R + 1)], neighbours, weights, sent, latest [Σ E']; num_rows, num_entries, known [T].
    """
    for name in ("weights", SENT):
        if name in arrays and not _are_weights(arrays[name]):
            raise GraphError(f"{name} has a value that is not finite, or is negative")
    if LATEST in arrays and not are_fractions(arrays[LATEST]):
        raise GraphError(f"{LATEST} has a value that is not from 0 to 1")
    rows, offsets, neighbours = (arrays[name] for name in ("rows", "offsets", "neighbours"))
    first_row, first_entry = (np.concatenate([[0], np.cumsum(sizes)]) for sizes in (num_rows, num_entries))
    first_offset = first_row + np.arange(len(first_row))
    _check_row_offsets(offsets, first_offset, num_entries)
    _check_range("rows", rows, first_row, known)
    _check_range("neighbours", neighbours, first_entry, known)
    _check_order("rows of a snapshot", rows, first_row[:-1][num_rows > 0])
    for low, high in _groups(known):
        starts = _starts(offsets[first_offset[low] : first_offset[high]], num_rows[low:high], num_entries[low:high])
        _check_order("neighbours of a node", neighbours[first_entry[low] : first_entry[high]], starts)
    _check_both_directions(arrays, first_row, first_entry)


def _groups(known: Ids) -> Iterator[tuple[int, int]]:
    """Runs of snapshots [low, high) that know `AT_ONCE` nodes together, or single ones: few passes over many."""
    first_node = np.concatenate([[0], np.cumsum(known)])
    low = 0
    while low < len(known):
        high = max(low + 1, int(np.searchsorted(first_node, first_node[low] + AT_ONCE, side="right")) - 1)
        yield low, high
        low = high


def _are_weights(values: NDArray[np.float64]) -> bool:
    if not len(values) or values.view(np.uint64).max() < INFINITY:
        return True
    return bool(values.min() >= 0 and values.max() < np.inf)  # −0 is allowed


def _check_row_offsets(offsets: Ids, firsts: Ids, num_entries: Ids) -> None:
    """Check that the offsets of every snapshot increase from 0 to its number of entries."""
    ends = (offsets[firsts[:-1]] == 0).all() and (offsets[firsts[1:] - 1] == num_entries).all()
    # From one snapshot to the next they cannot increase.
    if not ends or _increases(offsets) != len(offsets) - len(num_entries):
        raise GraphError("the offsets of a snapshot do not increase from 0 to its number of entries")


def _increases(numbers: Ids) -> int:
    """How many numbers are larger than the one before."""
    pieces = (numbers[first : first + PIECE + 1] for first in range(0, len(numbers), PIECE))
    return sum(int(np.count_nonzero(piece[1:] > piece[:-1])) for piece in pieces)


def _check_range(name: str, nodes: Ids, firsts: Ids, known: Ids) -> None:
    """Check that the nodes of every snapshot are known; a negative number counts as a very large one."""
    filled = firsts[1:] > firsts[:-1]
    if filled.any():
        largest = np.maximum.reduceat(nodes.view(np.uint64), firsts[:-1][filled])
        if (largest >= known[filled].astype(np.uint64)).any():
            raise GraphError(f"{name} has a node that is not known at its step")


def _check_order(name: str, nodes: Ids, starts: Ids) -> None:
    """Check that nodes increase, except from one part to the next; parts begin at `starts`, and none is empty."""
    inside = 0
    for first in range(0, len(nodes), PIECE):
        piece = nodes[max(0, first - 1) : first + PIECE]  # from the last one of the piece before
        increases = np.zeros(len(piece), dtype=np.bool_)
        np.greater(piece[1:], piece[:-1], out=increases[1:])
        low, high = np.searchsorted(starts, [first, min(first + PIECE, len(nodes))])
        begins = starts[low:high] - first + bool(first)
        inside += int(np.count_nonzero(increases)) - int(np.count_nonzero(increases.take(begins)))
    if inside != len(nodes) - len(starts):
        raise GraphError(f"the {name} do not increase")


def _check_both_directions(arrays: Mapping[str, Array], first_row: Ids, first_entry: Ids) -> None:
    """Check that at most `SAMPLED` entries have an entry of the same weight and time in the row of their neighbour."""
    rows, offsets, neighbours, weights = (arrays[name] for name in CSR)
    entries = np.arange(0, len(neighbours), max(1, -(-len(neighbours) // SAMPLED)))
    step = np.searchsorted(first_entry, entries, side="right") - 1
    first, stop = first_row[step], first_row[step + 1]
    node = rows[_last_at_most(offsets, first + step, stop + step, entries - first_entry[step]) - step]
    row = _last_at_most(rows, first, stop, neighbours[entries])
    low, high = (offsets[row + step + i] + first_entry[step] for i in (0, 1))
    back = _last_at_most(neighbours, low, high, node)
    if not ((rows[row] == neighbours[entries]) & (neighbours[back] == node)).all():
        raise GraphError("a link is stored in the row of one of its nodes only")
    if not (weights[back] == weights[entries]).all():
        raise GraphError("a link has two weights")
    if LATEST in arrays and not (arrays[LATEST][back] == arrays[LATEST][entries]).all():
        raise GraphError("the last event of a link has two times")


def _last_at_most(numbers: Ids, low: Ids, high: Ids, values: Ids) -> Ids:
    """For each value, the last index in [low, high) whose number is at most it, or low.  # [n], [B], [B], [B] → [B]"""
    size = high - low
    while len(size) and size.max() > 1:  # a binary search for all values at once
        half = size // 2
        low = np.where(numbers[low + half] <= values, low + half, low)
        size = size - half
    return low


def _starts(offsets: Ids, num_rows: Ids, num_entries: Ids) -> Ids:
    """The first entry of every row of several snapshots, whose entries are concatenated."""
    if len(num_rows) == 1:
        return offsets[:-1]
    inner = np.ones(len(offsets), dtype=np.bool_)
    inner[np.cumsum(num_rows + 1) - 1] = False
    return offsets[inner] + np.repeat(np.cumsum(num_entries) - num_entries, num_rows)
