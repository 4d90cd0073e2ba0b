"""Numbering gives the numbers that a dictionary would give."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dysat.data.reading import numbering as module
from dysat.data.reading.numbering import Numbering, as_words


def pack(texts: list[str]) -> np.ndarray:
    """Short texts as keys of two words."""
    return np.array([text.encode() for text in texts], dtype="S16").view(np.uint64).reshape(-1, 2)


def keys_of(numbering: Numbering) -> np.ndarray:
    """The key of every number.  # [N, 2]"""
    return numbering.table.keys[1 : numbering.size + 1].view(np.uint64).reshape(-1, 2)


def check(numbering: Numbering, keys: np.ndarray, block: int) -> None:
    """Compare with a dictionary. Each block is looked up before the block before it is added."""
    labels = [tuple(key) for key in keys.tolist()]
    expected: dict[tuple[int, int], int] = {}
    for label in labels:
        expected.setdefault(label, len(expected))
    blocks = [keys[i : i + block] for i in range(0, len(keys), block)]
    numbers: list[int] = []
    found = numbering.find(blocks[0])
    for part in [*blocks[1:], blocks[0][:0]]:
        this, found = found, numbering.find(part)
        numbers += numbering.add(this).tolist()
    assert numbers == [expected[label] for label in labels]
    assert keys_of(numbering).tolist() == [list(label) for label in expected]
    assert numbering.firsts.tolist() == [labels.index(label) for label in expected]
    assert numbering.size == len(expected) and numbering.seen == len(labels)


@pytest.mark.parametrize(("distinct", "block"), [(1, 7), (2, 1), (40, 7), (900, 7), (900, 1000)])
def test_numbers_match_a_dictionary(distinct: int, block: int) -> None:
    values = np.random.default_rng(distinct).integers(0, distinct, 1500)
    check(Numbering(bits=3), pack([f"{'abcdefghijkl'[: n % 13]}{n}" for n in values.tolist()]), block)
    for spread in (1, 7919, 10**12):
        check(Numbering(bits=3), as_words(values * spread), block)


@pytest.mark.parametrize(("starts", "block"), [(1, 60), (3, 1)])
def test_keys_that_collide_get_their_own_numbers(starts: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def crowd(table: module.Table, keys: np.ndarray) -> np.ndarray:
        last = len(table.places) - 1  # so that probing wraps around
        return last - (keys.view(np.uint64)[::2] % np.uint64(starts)).astype(np.int64)

    monkeypatch.setattr(module, "_places", crowd)
    check(Numbering(bits=4), pack([str(n) for n in np.random.default_rng(0).integers(0, 90, 300)]), block)


def test_keys_that_share_a_word_are_distinct() -> None:
    check(Numbering(), pack(["12345678", "12345678a", "12345678b", "1234567", "a", "aa", "12345678a"]), 3)
    check(Numbering(), np.array([[1, 2], [2, 1], [1, 1], [0, 1], [1, 0], [1, 2]], dtype=np.uint64), 2)


def test_lookups_in_threads_while_keys_are_added() -> None:
    values = np.random.default_rng(1).integers(0, 30_000, (60, 2000))
    numbering = Numbering(bits=3)
    with ThreadPoolExecutor(4) as pool:
        numbers = [numbering.add(found) for found in pool.map(numbering.find, map(as_words, values))]
    keys = keys_of(numbering)[:, 0]
    assert keys[np.concatenate(numbers)].tolist() == values.flatten().tolist()
    assert len(np.unique(keys)) == numbering.size


def test_an_empty_block() -> None:
    numbering = Numbering()
    assert numbering.add(numbering.find(pack([]))).tolist() == []
    assert numbering.size == 0 and numbering.firsts.tolist() == []
