"""Texts numbered block by block."""

from __future__ import annotations

import numpy as np
import pytest

from dysat.data.numbering import Numbering


def pack(texts: list[str]) -> np.ndarray:
    return np.array([text.encode() for text in texts], dtype="S16").view(np.uint64).reshape(-1, 2)


def number(texts: list[str], block: int, numbering: Numbering) -> list[int]:
    blocks = (texts[i : i + block] for i in range(0, len(texts), block))
    return [number for part in blocks for number in numbering.add(pack(part)).tolist()]


def check(texts: list[str], block: int, numbering: Numbering) -> None:
    """As a dictionary would do it."""
    expected: dict[str, int] = {}
    for text in texts:
        expected.setdefault(text, len(expected))
    assert number(texts, block, numbering) == [expected[text] for text in texts]
    assert numbering.texts.tolist() == [text.encode() for text in expected]
    assert numbering.firsts.tolist() == [texts.index(text) for text in expected]
    assert numbering.size == len(expected) and numbering.seen == len(texts)


@pytest.mark.parametrize("block", [1, 7, 1000])
@pytest.mark.parametrize("distinct", [1, 2, 40, 900])
def test_numbers_are_those_of_a_dictionary(distinct: int, block: int) -> None:
    rng = np.random.default_rng(distinct)
    texts = [f"{'abcdefghijkl'[: n % 13]}{n}" for n in rng.integers(0, distinct, 1500).tolist()]
    check(texts, block, Numbering(bits=3))


@pytest.mark.parametrize("ways", [1, 3])
@pytest.mark.parametrize("block", [1, 60])
def test_keys_that_all_begin_at_the_same_places(ways: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def crowd(self: Numbering, keys: np.ndarray) -> np.ndarray:
        last = len(self.table) - 1  # so that a search goes on at the beginning
        return last - (keys.view(np.uint64)[::2] % np.uint64(ways)).astype(np.int64)

    monkeypatch.setattr(Numbering, "_places", crowd)
    texts = [str(n) for n in np.random.default_rng(0).integers(0, 90, 400).tolist()]
    check(texts, block, Numbering(bits=4))


def test_texts_that_share_a_word_stay_apart() -> None:
    check(["12345678", "12345678a", "12345678b", "1234567", "a", "aa", "12345678a"], 3, Numbering())


def test_nothing_to_number() -> None:
    numbering = Numbering()
    assert numbering.add(pack([])).tolist() == [] and numbering.texts.tolist() == [] == numbering.firsts.tolist()
