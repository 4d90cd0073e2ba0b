"""Labels numbered block by block."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dysat.data.reading import numbering as module
from dysat.data.reading.numbering import IntegerNumbering, Numbering, TextNumbering


def pack(texts: list[str]) -> np.ndarray:
    return np.array([text.encode() for text in texts], dtype="S16").view(np.uint64).reshape(-1, 2)


def check(numbering: Numbering, labels: list[Any], block: int, as_array: Callable[[list[Any]], Any]) -> None:
    """As a dictionary would do it; the next block is always looked up before this one is added."""
    expected: dict[Any, int] = {}
    for label in labels:
        expected.setdefault(label, len(expected))
    blocks = [as_array(labels[i : i + block]) for i in range(0, len(labels), block)]
    numbers: list[int] = []
    found = numbering.find(blocks[0])
    for part in [*blocks[1:], blocks[0][:0]]:
        this, found = found, numbering.find(part)
        numbers += numbering.add(this).tolist()
    assert numbers == [expected[label] for label in labels]
    known = [label.encode() if isinstance(label, str) else label for label in expected]
    assert numbering.labels.tolist() == known
    assert numbering.firsts.tolist() == [labels.index(label) for label in expected]
    assert numbering.size == len(expected) and numbering.seen == len(labels)


@pytest.mark.parametrize("block", [1, 7, 1000])
@pytest.mark.parametrize("distinct", [1, 2, 40, 900])
def test_numbers_are_those_of_a_dictionary(distinct: int, block: int) -> None:
    rng = np.random.default_rng(distinct)
    values = rng.integers(0, distinct, 1500).tolist()
    texts = [f"{'abcdefghijkl'[: n % 13]}{n}" for n in values]
    check(TextNumbering(bits=3), texts, block, pack)
    for spread in (1, 7919, 10**12):  # dense, far apart, and beyond any table
        check(IntegerNumbering(), [n * spread for n in values], block, np.array)


@pytest.mark.parametrize("block", [1, 5, 1000])
def test_whole_numbers_that_become_large(block: int) -> None:
    rng = np.random.default_rng(0)
    large = rng.choice([module.DENSE - 1, module.DENSE, 10**16 - 1], 300)
    values = [*rng.integers(0, 100, 300).tolist(), *np.where(rng.random(300) < 0.5, large, 50).tolist()]
    check(IntegerNumbering(), values, block, np.array)


@pytest.mark.parametrize("ways", [1, 3])
@pytest.mark.parametrize("block", [1, 60])
def test_keys_that_all_begin_at_the_same_places(ways: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def crowd(table: module.Table, keys: np.ndarray) -> np.ndarray:
        last = len(table.places) - 1  # so that a search goes on at the beginning
        return last - (keys.view(np.uint64)[::2] % np.uint64(ways)).astype(np.int64)

    monkeypatch.setattr(module, "_places", crowd)
    texts = [str(n) for n in np.random.default_rng(0).integers(0, 90, 400).tolist()]
    check(TextNumbering(bits=4), texts, block, pack)


def test_texts_that_share_a_word_stay_apart() -> None:
    check(TextNumbering(), ["12345678", "12345678a", "12345678b", "1234567", "a", "aa", "12345678a"], 3, pack)


def test_labels_are_looked_up_while_others_are_added() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 30_000, (60, 2000))
    for numbering, blocks in (
        (TextNumbering(bits=3), [pack([str(v) for v in part]) for part in values]),
        (IntegerNumbering(), list(values)),
    ):
        with ThreadPoolExecutor(4) as pool:
            numbers = [numbering.add(found) for found in pool.map(numbering.find, blocks)]
        labels = numbering.labels[np.concatenate(numbers)]
        assert labels.astype(np.int64).tolist() == values.flatten().tolist()
        assert len(set(numbering.labels.tolist())) == numbering.size


def test_nothing_to_number() -> None:
    for numbering, nothing in ((TextNumbering(), pack([])), (IntegerNumbering(), np.zeros(0, dtype=np.int64))):
        assert numbering.add(numbering.find(nothing)).tolist() == []
        assert numbering.labels.tolist() == [] == numbering.firsts.tolist()
