"""Node labels: number them 0 … N − 1, pack them into arrays and unpack them.

A label is text or a whole number. If all labels are whole numbers in canonical form, they become int64. Otherwise
(`007`, `1e3`, a number beyond 64 bits) all keep their text, so no label ever changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.data.reading.numbering import (
    Found,
    Numbering,
    Numbers,
    Words,
    appearances,
    as_words,
    chunks,
    dense_slots,
    number_slots,
)
from dysat.errors import GraphError

if TYPE_CHECKING:
    import polars as pl

CHUNK = 1 << 17  # rows per lookup
Labels = NDArray[Any]  # [N] int64, or [N] objects that are str


def number_nodes(
    src: pl.Series,
    dst: pl.Series,
    time: NDArray[np.int64],
    order: NDArray[np.int64] | None = None,
    *,
    separate: bool = False,
) -> tuple[NDArray[np.int32], NDArray[np.int32], Labels, NDArray[np.uint8] | None]:
    """Number the nodes of events in order of first appearance.

    `time` is sorted; `order` sorts `src` and `dst` in the same way (None: they are sorted). Nodes that appear at the
    same moment are in order of label, so that the numbers do not depend on the order of rows. With `separate`, equal
    labels in the two columns are different nodes, of kind 0 and 1.

    Returns the nodes of `src` and `dst`, the labels, and the kinds if `separate`.
    """
    sides = [src, dst]
    numbering: Numbering | None = None
    if dense := dense_slots(sides):
        slots, size = dense
    else:
        numbering = Numbering()
        slots = _number_columns(sides, numbering)
        size = numbering.size
    if separate:
        slots = [slots[0], slots[1] + np.int32(size)]
    if order is not None:
        slots = [slot[order] for slot in slots]
    if numbering is not None and order is None and not separate:
        event, column, slot = numbering.firsts >> 1, numbering.firsts & 1, np.arange(size, dtype=np.int32)
    else:
        event, column, slot = appearances(slots, size * (1 + separate))
    labels = as_integers(_labels_of(sides, event if order is None else order[event], column))

    kind = column if separate else np.zeros_like(column)
    ranked = break_ties(time[event], kind, labels.gather)
    from_, to = number_slots(slots, size * (1 + separate), slot[ranked])
    return from_, to, to_labels(labels.gather(ranked)), kind[ranked].astype(np.uint8) if separate else None


class GrowingLabels:
    """Numbers for the labels of two columns that come in batches; memory grows with the distinct labels only."""

    def __init__(self) -> None:
        self._numbering = Numbering()
        self._labels: list[pl.Series] = []

    def number(self, sides: Sequence[pl.Series]) -> list[Numbers]:
        """Number a batch; all batches have the same type, Int64 or String."""
        before = self._numbering.seen
        numbers = _number_columns(sides, self._numbering)
        first = self._numbering.new_firsts() - before
        self._labels.append(_labels_of(sides, first >> 1, first & 1))
        return numbers

    def labels(self) -> pl.Series:
        """All labels, in order of their numbers: whole numbers if all of them are, or else texts."""
        import polars as pl

        return as_integers(pl.concat(self._labels) if self._labels else pl.Series([], dtype=pl.Int64))


def _number_columns(sides: Sequence[pl.Series], numbering: Numbering) -> list[Numbers]:
    """Number the labels of two columns, row by row, by keys of 128 bits: the whole number, or two hashes of the text.

    The chance that any two of a billion texts share both hashes is about 10^-21.
    """
    out = [np.empty(len(side), dtype=np.int32) for side in sides]

    def find(part: slice) -> Found:
        words = np.stack([_words_of(side.slice(part.start, part.stop - part.start)) for side in sides], axis=1)
        return numbering.find(words.reshape(-1, 2))

    def add(part: slice, found: Found) -> None:
        numbers = numbering.add(found).reshape(-1, len(sides))
        for side, column in enumerate(out):
            column[part] = numbers[:, side]

    _ahead(find, add, list(chunks(len(sides[0]), CHUNK)))
    return out


def _ahead(find: Callable[[slice], Found], add: Callable[[slice, Found], None], parts: list[slice]) -> None:
    """Add all parts in order while threads look up the next ones."""
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(threads) as pool:
        coming = deque((part, pool.submit(find, part)) for part in parts[: 2 * threads])
        for following in [*parts[2 * threads :], *[None] * len(coming)]:
            part, found = coming.popleft()
            add(part, found.result())
            if following is not None:
                coming.append((following, pool.submit(find, following)))


def _words_of(column: pl.Series) -> Words:
    if column.dtype.is_integer():
        return as_words(column.to_numpy())
    return np.stack([column.hash(seed=seed).to_numpy() for seed in (0, 1)], axis=1)


def break_ties(
    moment: NDArray[np.int64], kind: NDArray[np.integer[Any]], labels: Callable[[NDArray[np.int64]], pl.Series]
) -> NDArray[np.int64]:
    """Return the order of nodes sorted by moment, with ties broken by kind, then label."""
    import polars as pl

    order = np.arange(len(moment))
    same = moment[1:] == moment[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    if len(tied):
        columns = {"row": tied, "moment": moment[tied], "kind": kind[tied], "label": labels(tied)}
        order[tied] = pl.DataFrame(columns).sort("moment", "kind", "label")["row"].to_numpy()
    return order


def integer_expression(column: str) -> pl.Expr:
    """Return an expression that parses whole numbers; null if a text is not in canonical form."""
    import polars as pl

    text = pl.col(column)
    odd = (text.str.starts_with("0") & (text != "0")) | text.str.starts_with("+") | text.str.starts_with("-0")
    return pl.when(~odd).then(text.cast(pl.Int64, strict=False)).alias(column)


def _labels_of(sides: Sequence[pl.Series], row: NDArray[np.int64], column: NDArray[np.int64]) -> pl.Series:
    """Return the labels at these rows and columns."""
    import polars as pl

    first = [np.flatnonzero(column == side) for side in (0, 1)]
    at = np.empty(len(row), dtype=np.int64)
    at[np.concatenate(first)] = np.arange(len(row))
    return pl.concat([side.gather(row[here]) for side, here in zip(sides, first, strict=True)]).gather(at)


def pack_labels(labels: Labels) -> dict[str, NDArray[Any]]:
    """Pack labels into plain arrays: the numbers, or the concatenated texts and their offsets."""
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
    """Undo `pack_labels`."""
    if "labels" in arrays:
        return np.asarray(arrays["labels"])
    text, offsets = arrays["label_text"].tobytes(), arrays["label_offsets"].tolist()
    labels = np.empty(len(offsets) - 1, dtype=object)
    labels[:] = [text[start:stop].decode("utf-8") for start, stop in pairwise(offsets)]
    return labels


def as_labels(values: list[Any]) -> Labels:
    """Convert distinct labels to an array of one type; a mix of numbers and texts becomes texts."""
    if all(isinstance(v, int | np.integer) and not isinstance(v, bool) and -(2**63) <= v < 2**63 for v in values):
        return np.array(values, dtype=np.int64)
    texts = [str(v) for v in values if isinstance(v, str | int | np.integer) and not isinstance(v, bool)]
    if len(texts) != len(values):
        odd = next(v for v in values if not isinstance(v, str | int | np.integer) or isinstance(v, bool))
        raise GraphError(f"node {odd!r} is neither text nor a whole number")
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise GraphError(f"node {twice} occurs as a number and as text")
    labels = np.empty(len(texts), dtype=object)
    labels[:] = texts
    return labels


def as_integers(labels: pl.Series) -> pl.Series:
    """Convert texts to numbers if all are whole numbers in canonical form."""
    import polars as pl

    if labels.dtype != pl.String:
        return labels
    numbers = labels.cast(pl.Int64, strict=False)
    same = (numbers.cast(pl.String) == labels).fill_null(False).all()
    return numbers if same else labels


def to_labels(labels: pl.Series) -> Labels:
    """Convert to an array of int64, or of objects that are str."""
    import polars as pl

    if labels.dtype != pl.String:
        return labels.to_numpy(writable=True)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels.to_list()
    return array
