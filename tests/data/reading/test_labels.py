"""Node labels are numbered, packed and unpacked without loss."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from dysat.data.reading import labels as module
from dysat.data.reading.labels import as_labels, number_nodes, pack_labels, unpack_labels
from dysat.errors import GraphError


@pytest.mark.parametrize("distinct", [1, 1000, 30_000])
def test_numbering_is_one_to_one(distinct: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 3_000)
    rng = np.random.default_rng(distinct)
    keys = rng.integers(-(2**63), 2**63 - 1, distinct)
    ends = rng.choice(keys, (2, 20_000))
    for columns in (ends, ends.astype(str)):
        src, dst = (pl.Series(column) for column in columns)
        from_, to, names, _ = number_nodes(src, dst, np.arange(20_000))
        assert names[from_].tolist() == ends[0].tolist() and names[to].tolist() == ends[1].tolist()
        assert len(np.unique(names)) == len(names) == len(np.unique(ends))


def test_labels_that_share_their_low_or_high_bits_are_distinct() -> None:
    for keys in (np.arange(500) << 54, np.arange(0, 10**12, 10**9 + 7), np.array([5, -5, 2**63 - 1, -(2**63)])):
        from_, to, names, _ = number_nodes(pl.Series(keys), pl.Series(keys[::-1]), np.arange(len(keys)))
        assert names[from_].tolist() == keys.tolist() and names[to].tolist() == keys[::-1].tolist()


def test_labels_that_differ_only_in_their_second_hash_are_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "_words_of", lambda column, original=module._words_of: original(column) * np.array([0, 1], np.uint64)
    )
    src, dst = pl.Series(["ann", "bob", "ann"]), pl.Series(["bob", "cy", "cy"])
    from_, to, names, _ = number_nodes(src, dst, np.array([1, 2, 3]))
    assert names[from_].tolist() == src.to_list() and names[to].tolist() == dst.to_list()
    assert len(names) == 3


def test_nodes_are_in_order_of_first_appearance_then_label() -> None:
    src, dst = pl.Series(["zoe", "bob", "ann"]), pl.Series(["cy", "zoe", "bob"])
    time = np.array([5, 1, 9])
    order = np.argsort(time)
    from_, to, names, kinds = number_nodes(src, dst, time[order], order)
    assert names.tolist() == ["bob", "zoe", "cy", "ann"] and kinds is None
    assert names[from_].tolist() == ["bob", "zoe", "ann"] and names[to].tolist() == ["zoe", "cy", "bob"]


def test_separate_columns_are_separate_nodes() -> None:
    from_, to, names, kinds = number_nodes(pl.Series([1, 2]), pl.Series([1, 1]), np.array([1, 2]), separate=True)
    assert kinds is not None
    assert list(zip(kinds.tolist(), names.tolist(), strict=True)) == [(0, 1), (1, 1), (0, 2)]
    assert from_.tolist() == [0, 2] and to.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "2", "-3", "0"], [1, 2, -3, 0]),
        (["007", "7"], ["007", "7"]),
        (["1", "x"], ["1", "x"]),
        (["1", "+2"], ["1", "+2"]),
        (["1", "-0"], ["1", "-0"]),
        (["1", "9223372036854775808"], ["1", "9223372036854775808"]),
    ],
)
def test_only_canonical_whole_numbers_become_numbers(texts: list[str], expected: list[object]) -> None:
    src, dst = pl.Series(texts), pl.Series(texts)
    _, _, names, _ = number_nodes(src, dst, np.arange(len(texts)))
    assert names.tolist() == expected


@pytest.mark.parametrize("values", [["a", "", "é\n\0'\"", "x" * 10_000], [1, -2, 2**62], []])
def test_unpacking_gives_the_packed_labels(values: list[object]) -> None:
    labels = as_labels(values)
    assert unpack_labels(pack_labels(labels)).tolist() == values
    assert all(array.dtype != object for array in pack_labels(labels).values())


def test_mixed_labels_become_texts_unless_that_would_merge_two() -> None:
    assert as_labels([1, "a"]).tolist() == ["1", "a"]
    with pytest.raises(GraphError, match="as a number and as text"):
        as_labels([1, "1"])
    for odd in (1.5, None, True, ("a", 1)):
        with pytest.raises(GraphError, match="neither text nor a whole number"):
            as_labels(["a", odd])
    with pytest.raises(GraphError, match="not valid Unicode"):
        pack_labels(as_labels(["\ud800"]))
