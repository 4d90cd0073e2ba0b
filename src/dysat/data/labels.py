"""Node labels: from whatever stands in two columns to the numbers 0 … N − 1, and to arrays and back.

A label is text or a whole number. Labels that are all whole numbers, written as a program would write them,
become int64; anything else (`007`, `1e3`, a number beyond 64 bits) keeps its text, so no label ever changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dysat.errors import GraphError

if TYPE_CHECKING:
    import polars as pl

Labels = NDArray[Any]  # [N] int64, or [N] objects that are str

CHUNK = 1 << 18  # endpoints per pass, so that what a pass touches stays in the cache
MIX = 0x9E3779B97F4A7C15


def number_nodes(
    src: pl.Series,
    dst: pl.Series,
    time: NDArray[np.int64],
    order: NDArray[np.int64] | None = None,
    *,
    separate: bool = False,
) -> tuple[NDArray[np.int32], NDArray[np.int32], Labels, NDArray[np.uint8] | None]:
    """Number the nodes of events. `time` is in order; `order` puts `src` and `dst` in the same (None: they are).

    Nodes are in order of first appearance; those that appear at the same moment in order of label, so that
    the numbers depend on the events alone and not on the order of rows. With `separate`, equal labels
    in the two columns are different nodes, of kind 0 and 1.

    Returns the nodes of `src` and `dst`, the labels, and the kinds where `separate`.
    """
    import polars as pl

    num_events = len(src)
    if separate:
        (left, size_left), (right, size_right) = _slots([src]), _slots([dst])
        slots, size = np.concatenate([left, right + np.int32(size_left)]), size_left + size_right
    else:
        slots, size = _slots([src, dst])

    place = np.arange(num_events)  # of each row, in order of time
    if order is not None:
        place = np.empty_like(order)
        place[order] = np.arange(num_events)
    nowhere = 2 * num_events
    first = np.full(size, nowhere)  # per slot, its first endpoint: 2 · place + column
    np.minimum.at(first, slots[:num_events], 2 * place)
    np.minimum.at(first, slots[num_events:], 2 * place + 1)
    used = np.flatnonzero(first < nowhere)
    event, column = np.divmod(first[used], 2)

    row = event if order is None else order[event]
    labels = pl.concat([src.gather(row[column == 0]), dst.gather(row[column == 1])])
    at = np.empty_like(row)
    at[np.argsort(column, kind="stable")] = np.arange(len(row))
    labels = _as_integers(labels.gather(at))

    kind = column if separate else np.zeros_like(column)
    ranked = _break_ties(np.argsort(event, kind="stable"), time[event], kind, labels)
    rank = np.empty(size, dtype=np.int32)
    rank[used[ranked]] = np.arange(len(ranked), dtype=np.int32)
    ids = rank[slots]
    from_, to = ids[:num_events], ids[num_events:]
    if order is not None:
        from_, to = from_[order], to[order]
    return from_, to, _to_labels(labels.gather(ranked)), kind[ranked].astype(np.uint8) if separate else None


def pack_labels(labels: Labels) -> dict[str, NDArray[Any]]:
    """Labels as arrays that need no pickle: the numbers, or all texts end to end with their offsets."""
    if labels.dtype != object:
        return {"labels": labels}
    try:
        encoded = [label.encode("utf-8") for label in labels]
    except UnicodeEncodeError as problem:
        raise GraphError(f"label {problem.object!r} is not valid Unicode text") from None
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    return {"label_text": np.frombuffer(b"".join(encoded), dtype=np.uint8), "label_offsets": offsets}


def unpack_labels(arrays: dict[str, NDArray[Any]]) -> Labels:
    """What `pack_labels` packed."""
    if "labels" in arrays:
        return np.asarray(arrays["labels"])
    text, offsets = arrays["label_text"].tobytes(), arrays["label_offsets"].tolist()
    labels = np.empty(len(offsets) - 1, dtype=object)
    labels[:] = [text[start:stop].decode("utf-8") for start, stop in zip(offsets, offsets[1:], strict=False)]
    return labels


def as_labels(values: list[Any]) -> Labels:
    """Distinct labels of one type as an array; numbers and texts together become texts."""
    if all(isinstance(v, int | np.integer) and not isinstance(v, bool) and -(2**63) <= v < 2**63 for v in values):
        return np.array(values, dtype=np.int64)
    texts = [str(v) for v in values if isinstance(v, str | int | np.integer) and not isinstance(v, bool)]
    if len(texts) != len(values):
        odd = next(v for v in values if not isinstance(v, str | int | np.integer) or isinstance(v, bool))
        raise GraphError(f"node {odd!r} is neither text nor a whole number")
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise GraphError(f"node {twice} stands there as a number and as text")
    labels = np.empty(len(texts), dtype=object)
    labels[:] = texts
    return labels


def _slots(columns: list[pl.Series]) -> tuple[NDArray[np.int32], int]:
    """A slot for every label of the columns, end to end; and how many slots there are."""
    import polars as pl

    if columns[0].dtype != pl.String:
        return assign_slots(np.concatenate([column.to_numpy() for column in columns]).view(np.uint64))
    hashes = [
        column.to_frame("text")
        .lazy()
        .select(pl.col("text").hash(seed=0).alias("key"), pl.col("text").hash(seed=1).alias("check"))
        .collect(engine="streaming")
        for column in columns
    ]
    slots, size = assign_slots(np.concatenate([part["key"].to_numpy() for part in hashes]))
    if not _one_to_one(slots, size, np.concatenate([part["check"].to_numpy() for part in hashes])):
        # Two labels share a 64-bit hash: once in some 10^7 files of a million labels. Exact, and slow.
        ranks = pl.concat(columns).rank("dense").to_numpy()
        return (ranks - 1).astype(np.int32), int(ranks.max())
    return slots, size


def assign_slots(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], int]:
    """A slot for every key, equal keys the same and different keys different ones; and how many slots there are.

    A hash table filled in rounds: all keys write themselves to their slot, the last one wins, and those
    that find another key there go on to the next, smaller table.
    """
    if not len(keys):
        return np.empty(0, dtype=np.int32), 0
    low, high = keys.view(np.int64).min(), keys.view(np.int64).max()
    if int(high) - int(low) < max(1 << 16, 2 * len(keys)):  # numbers so dense that they are their own slots
        return (keys.view(np.int64) - low).astype(np.int32), int(high) - int(low) + 1
    slots = np.empty(len(keys), dtype=np.int32)
    rest: NDArray[np.int64] | None = None  # None: all
    size, factor = 0, MIX
    while True:
        bits = min(23, max(10, len(keys).bit_length() - (rest is None)))
        multiplier, shift = np.uint64(factor), np.uint64(64 - bits)
        table = np.zeros(1 << bits, dtype=np.uint64)
        for i in range(0, len(keys), CHUNK):
            part = keys[i : i + CHUNK]
            table[(part * multiplier >> shift).view(np.int64)] = part
        misses = []
        for i in range(0, len(keys), CHUNK):
            part = keys[i : i + CHUNK]
            slot = (part * multiplier >> shift).view(np.int64)
            here = slice(i, i + CHUNK) if rest is None else rest[i : i + CHUNK]
            slots[here] = size + slot
            misses.append(i + np.flatnonzero(table[slot] != part))
        size += 1 << bits
        if size > np.iinfo(np.int32).max:
            raise GraphError("more distinct nodes than a graph can hold")
        missed = np.concatenate(misses)
        if not len(missed):
            return slots, size
        keys, rest = keys[missed], missed if rest is None else rest[missed]
        factor = factor * MIX % 2**64 | 1


def _one_to_one(slots: NDArray[np.int32], size: int, checks: NDArray[np.uint64]) -> bool:
    """Whether all labels of a slot agree in their second hash too."""
    expected = np.zeros(size, dtype=np.uint64)
    expected[slots] = checks
    parts = range(0, len(slots), CHUNK)
    return all(np.array_equal(expected[slots[i : i + CHUNK]], checks[i : i + CHUNK]) for i in parts)


def _break_ties(
    order: NDArray[np.int64], moment: NDArray[np.int64], kind: NDArray[np.int64], labels: pl.Series
) -> NDArray[np.int64]:
    """Among nodes that first appear at the same moment, order by kind and label."""
    import polars as pl

    same = moment[order][1:] == moment[order][:-1]
    tied = np.append(same, False) | np.insert(same, 0, False)
    rows = order[tied]
    if len(rows):
        table = pl.DataFrame({"row": rows, "moment": moment[rows], "kind": kind[rows], "label": labels.gather(rows)})
        order[tied] = table.sort("moment", "kind", "label")["row"].to_numpy()
    return order


def _as_integers(labels: pl.Series) -> pl.Series:
    """Text that is all whole numbers, as a program would write them, as numbers."""
    import polars as pl

    if labels.dtype != pl.String:
        return labels
    numbers = labels.cast(pl.Int64, strict=False)
    same = (numbers.cast(pl.String) == labels).fill_null(False).all()
    return numbers if same else labels


def _to_labels(labels: pl.Series) -> Labels:
    import polars as pl

    if labels.dtype != pl.String:
        return labels.to_numpy(writable=True)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels.to_list()
    return array
