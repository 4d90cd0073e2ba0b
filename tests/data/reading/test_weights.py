"""Weights with a decimal comma, with marks between thousands, and below zero."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dysat
from dysat import EventsError
from dysat.data.reading.weights import parse_numbers

CENTS = st.integers(-(10**9), 10**9)


def read(weights: list[object], **options: object) -> dysat.Events:
    number = len(weights)
    return dysat.read_events(([*range(number)], [*range(1, number + 1)], ["2024-01-01"] * number, weights), **options)  # type: ignore[arg-type]


def written(cents: int, decimal: str, thousands: str) -> str:
    text = f"{cents / 100:_.2f}"
    return text.replace(".", decimal).replace("_", thousands)


@settings(deadline=None)
@given(
    st.lists(CENTS, min_size=1, max_size=5),
    st.sampled_from([(",", "."), (",", ""), (",", " "), (".", ","), (".", "'")]),
)
def test_amounts_are_read_in_every_style(cents: list[int], style: tuple[str, str]) -> None:
    """Two decimals are unambiguous, so the style is recognised, or stated with the same result."""
    texts = pl.Series([written(one, *style) for one in cents])
    expected = [one / 100 for one in cents]
    assert parse_numbers(texts)[0].to_list() == expected
    assert parse_numbers(texts, style[0])[0].to_list() == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["3,5", "1.234"], [3.5, 1234]),
        (["1.234,5", "7"], [1234.5, 7]),
        (["0,125", "7"], [0.125, 7]),
        (["1.234.567", "7"], [1234567, 7]),
        (["1,234", "7.5"], [1234, 7.5]),
        (["1.234", "7"], [1.234, 7]),  # plain numbers
        (["1e3", " 2 "], [1000, 2]),
        (["1,234", "7"], [None, 7]),  # 1234 or 1.234
        (["3,5", "3.5"], [None, 3.5]),
        (["3,5,5", "3"], [None, 3]),
    ],
)
def test_a_style_is_recognised_only_if_unambiguous(texts: list[str], numbers: list[float | None]) -> None:
    assert parse_numbers(pl.Series(texts))[0].to_list() == numbers


def test_styles_are_noted_stated_and_explained() -> None:
    events = read(["3,5", "1.234,5"])
    assert events.weight is not None and events.weight.tolist() == [3.5, 1234.5]
    assert events.notes == ("weights read with a decimal comma: '3,5' is 3.5; decimal='.' overrides this",)
    assert "marks between thousands: '1,234.5' is 1,234.5" in read(["1,234.5", "2"]).notes[0]
    with pytest.raises(EventsError, match=r"weight '1,234' is not a number; state decimal=',' or decimal='.'"):
        read(["1,234", "7"])
    assert read(["1,234", "7"], decimal=",").total_weight == 8.234
    assert read(["1,234", "7"], decimal=".").total_weight == 1241
    with pytest.raises(EventsError, match=r"weight '3\.5' is not a number with decimal=','"):
        read(["3.5", "7"], decimal=",")
    with pytest.raises(EventsError, match=r"decimal=';' is not one of '\.', ','"):
        read(["3", "7"], decimal=";")
    assert "1 of 3 rows could not be read" in str(read(["1,234", "7", "8"], bad_rows="skip").notes)


@pytest.mark.parametrize(
    ("choice", "weights", "notes"),
    [
        ("abs", [2, 3, 1.5], ["1 negative weights were made positive"]),
        ("drop", [2, 3], ["1 negative weights were left out with their events"]),
        ("clip", [2, 3], ["1 negative weights were set to 0", "1 events of weight 0 were left out"]),
    ],
)
def test_negative_weights(choice: str, weights: list[float], notes: list[str]) -> None:
    for given_weights in ([2, 3, -1.5], ["2", "3", "-1.5"]):
        events = read(given_weights, negative_weights=choice)
        assert events.weight is not None and events.weight.tolist() == weights and list(events.notes) == notes


def test_negative_weights_are_an_error_with_advice() -> None:
    with pytest.raises(
        EventsError, match=r"row 3: weight -1\.5 is negative; negative_weights= says .* abs, drop or clip"
    ):
        read([2.0, 3.0, -1.5])
    with pytest.raises(EventsError, match="negative_weights='keep' is not one of 'error', 'abs', 'drop', 'clip'"):
        read([2, 3], negative_weights="keep")
    assert read([2, 3, -1.5], bad_rows="skip").notes == ("1 of 3 rows could not be read and were skipped",)
