"""Slots: numbers for the labels of two columns, the same for equal labels, in no order and with gaps.

Columns are handled in chunks: what a chunk needs stays in the cache, and no column of 64-bit indices is ever held
whole. Fresh memory costs more than most computations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

Result = TypeVar("Result")

CHUNK = 1 << 16  # rows whose keys stay in the cache


def dense_slots(sides: Sequence[pl.Series]) -> tuple[list[NDArray[np.int32]], int] | None:
    """Whole numbers that lie so dense that they are their own slots, counted from the least; and how many there are."""
    if not all(side.dtype.is_integer() for side in sides):
        return None
    numbers = [side.to_numpy() for side in sides]
    low, high = min(int(n.min()) for n in numbers), max(int(n.max()) for n in numbers)
    if high - low >= max(1 << 16, 2 * sum(map(len, numbers))):
        return None
    return _in_threads(partial(_subtract, low), numbers), high - low + 1


def appearances(
    slots: Sequence[NDArray[np.int32]], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """The slots of events that are in order of time: where each appears first (event and column), in that order."""
    first = _first_endpoints(slots, size)
    ends = np.sort(first[first < 2 * len(slots[0])]).astype(np.int64)
    event, column = ends >> 1, ends & 1
    return event, column, np.where(column == 0, slots[0][event], slots[1][event])


def number_slots(slots: Sequence[NDArray[np.int32]], size: int, order: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """Write over every slot its place in `order`; −1 over those that have none."""
    rank = np.full(size, -1, dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return _in_threads(partial(_look_up, rank), slots)


def _first_endpoints(slots: Sequence[NDArray[np.int32]], size: int) -> NDArray[np.integer[Any]]:
    """For each slot the endpoint that comes first, 2 · event + column; beyond all of them if there is none."""
    num_events = len(slots[0])
    dtype = np.int32 if 2 * num_events < 2**31 else np.int64  # the smaller, the more of it the cache holds

    def first(slot: NDArray[np.int32], column: int) -> NDArray[np.integer[Any]]:
        ends = np.full(size, 2 * num_events, dtype=dtype)
        for part in reversed(list(chunks(num_events))):  # backwards, so that the first comes last and stays
            places = np.arange(2 * part.stop - 2 + column, 2 * part.start - 1 + column, -2, dtype=dtype)
            ends[slot[part][::-1]] = places
        return np.asarray(ends)

    left, right = _in_threads(first, slots, (0, 1))
    return np.asarray(np.minimum(left, right, out=left))


def _subtract(low: int, numbers: NDArray[np.int64]) -> NDArray[np.int32]:
    """`numbers - low`, which fits into 32 bits."""
    slots = np.empty(len(numbers), dtype=np.int32)
    for part in chunks(len(numbers)):
        slots[part] = numbers[part] - low
    return slots


def _look_up(table: NDArray[np.int32], slots: NDArray[np.int32]) -> NDArray[np.int32]:
    """`table[slots]`, written over the slots."""
    for part in chunks(len(slots)):
        slots[part] = table.take(slots[part])
    return slots


def chunks(length: int, size: int = CHUNK) -> Iterator[slice]:
    """Consecutive parts of something."""
    return (slice(i, min(i + size, length)) for i in range(0, length, size))


def _in_threads(work: Callable[..., Result], *columns: Sequence[Any]) -> list[Result]:
    """One thread a column; small columns are not worth starting one."""
    if max(map(len, columns[0])) <= CHUNK:
        return list(map(work, *columns))
    with ThreadPoolExecutor(len(columns[0])) as pool:
        return list(pool.map(work, *columns))
