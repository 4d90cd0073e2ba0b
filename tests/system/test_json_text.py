"""JSON that every reader accepts and no terminal obeys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dysat.system.text.json_text import finite, json_text
from dysat.system.text.printable import printable


def strict(text: str) -> Any:
    """Parse JSON, without the NaN and Infinity that Python accepts."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


@given(st.text(st.characters()), st.sampled_from([None, 2]), st.booleans())
def test_labels_are_decoded_as_they_were(label: str, indent: int | None, ascii: bool) -> None:
    value = {"label": label, label: [label, 1]}
    text = json_text(value, indent=indent, ascii=ascii)
    assert strict(text) == value
    assert all(printable(line) == line for line in text.split("\n"))
    assert text.isascii() or not ascii


def test_ordinary_text_is_readable_and_hidden_characters_are_escapes() -> None:
    assert json_text(["雪 zoë 👩\u200d🔬"]) == '["雪 zoë 👩\u200d🔬"]'
    assert json_text(["\x1b\x7f\x9b\u202e\U000e0041"]) == r'["\u001b\u007f\u009b\u202e\udb40\udc41"]'


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_null(number: float) -> None:
    value = {"a": number, "b": [1.5, (number, {"c": number})]}
    assert strict(json_text(value, indent=1)) == {"a": None, "b": [1.5, [None, {"c": None}]]}
    assert finite(number) is None
    assert finite(1.5) == 1.5
