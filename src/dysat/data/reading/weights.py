"""Weights: numbers with a decimal point or comma, which must be finite and not negative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dysat.data.reading.columns import Rows
from dysat.errors import EventsError

if TYPE_CHECKING:
    import polars as pl

Decimal = Literal[".", ","]
NegativeWeights = Literal["error", "abs", "drop", "clip"]
# Numbers with a decimal mark and a mark between thousands; D stands for the one and T for the other.
NUMBER = r"^[+-]?(?:\d{1,3}(?:T\d{3})+|\d+)?(?:D\d+)?(?:[eE][+-]?\d{1,3})?$"
# Those that are no number if the two marks change places: 3,5 and 1.234,5 but not 1,234 or 12.
ONLY = (
    r"^[+-]?(?:\d{0,3}D(?:\d{1,2}|\d{4,})|\d{4,}D\d+|0D\d+|\d{1,3}(?:T\d{3})+D\d+|\d{1,3}(?:T\d{3}){2,})"
    r"(?:[eE][+-]?\d+)?$"
)
FATES = {"abs": "made positive", "drop": "left out with their events", "clip": "set to 0"}
GROUP = r"(\d)[ \u00a0\u202f'’](\d{3})"  # blanks and apostrophes between thousands


class Weights(NamedTuple):
    """The weights, or None if every event counts 1; how many of them were negative, and notes on how they were read."""

    values: NDArray[np.float64] | None
    negative: int = 0
    notes: tuple[str, ...] = ()


def weights_of(
    table: pl.DataFrame, columns: dict[str, str], rows: Rows, decimal: Decimal | None, negative: NegativeWeights
) -> Weights:
    """Read the weights of a table and check every row."""
    import polars as pl

    if "weight" not in columns:
        return Weights(None)
    column, name = table["weight"], columns["weight"]
    if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Null)):
        raise EventsError(f"{rows.source.name}: column {name!r} holds {column.dtype}, not numbers")
    numbers, notes = parse_numbers(column, decimal) if column.dtype == pl.String else (column.cast(pl.Float64), [])
    rows.check("weight", name, numbers, lambda cell: _complaint(cell, decimal))
    numbers = _blanked(numbers, ~numbers.is_finite())
    rows.check("weight", name, numbers, "is not finite")
    below = numbers < 0
    number = int((below.fill_null(False).to_numpy() & rows.good).sum()) if below.any() else 0
    if number == 0:
        return Weights(numbers.fill_null(0.0).to_numpy(), 0, tuple(notes))
    if negative == "error":
        complaint = "is negative; negative_weights= says what to do with such weights: abs, drop or clip"
        rows.check("weight", name, _blanked(numbers, below), complaint)
    if negative == "drop":
        rows.leave_out(below.fill_null(False).to_numpy())
    numbers = numbers.abs() if negative == "abs" else numbers.clip(lower_bound=0.0)
    return Weights(numbers.fill_null(0.0).to_numpy(), number, tuple(notes))


def negative_note(number: int, fate: NegativeWeights) -> list[str]:
    """Note what happened to negative weights."""
    return [f"{number:,} negative weights were {FATES[fate]}"] if number and fate in FATES else []


def _blanked(numbers: pl.Series, bad: pl.Series) -> pl.Series:
    """The same numbers with null where `bad`."""
    import polars as pl

    return numbers.to_frame("n").select(pl.when(~bad).then("n")).to_series() if bad.any() else numbers


def check_plain(rows: Rows, name: str) -> None:
    """Refuse weights that are texts, but not plain numbers: other batches may say what their marks mean."""
    import polars as pl

    column = rows.table["weight"]
    if column.dtype == pl.String:
        numbers = column.str.strip_chars().cast(pl.Float64, strict=False)
        skip, rows.skip = rows.skip, False
        rows.check("weight", name, numbers, "is not a plain number; state decimal='.' or decimal=',' to cut it on disk")
        rows.skip = skip


def parse_numbers(column: pl.Series, decimal: Decimal | None = None) -> tuple[pl.Series, list[str]]:
    """Parse texts as numbers, null if one is not; a decimal comma is recognised if no other reading is possible."""
    import polars as pl

    texts = column.str.strip_chars()
    plain = texts.cast(pl.Float64, strict=False)
    if decimal != "," and plain.null_count() == texts.null_count():
        return plain, []
    for _ in range(2):  # groups may share a digit
        texts = texts.str.replace_all(GROUP, "$1$2")
    if decimal is not None:
        return _with_marks(texts, decimal), []
    seen = texts.unique()
    styles = [mark for mark in (".", ",") if seen.str.contains(_marked(ONLY, mark)).any()]
    if len(styles) != 1:
        return texts.cast(pl.Float64, strict=False), []
    values = _with_marks(texts, styles[0])
    first = (plain.is_null() & values.is_not_null()).arg_max()
    if first is None or values[first] is None or plain[first] is not None:
        return values, []
    what, other = ("a decimal comma", ".") if styles[0] == "," else ("marks between thousands", ",")
    return values, [
        f"weights read with {what}: {column[first]!r} is {values[first]:,}; decimal={other!r} overrides this"
    ]


def _marked(pattern: str, decimal: str) -> str:
    return pattern.replace("D", f"[{decimal}]").replace("T", "[,]" if decimal == "." else "[.]")


def _with_marks(texts: pl.Series, decimal: str) -> pl.Series:
    """Parse numbers with this decimal mark, and possibly the other mark between thousands."""
    import polars as pl

    fits = texts.str.contains(_marked(NUMBER, decimal)) & texts.str.contains(r"\d")
    bare = texts.str.replace_all("," if decimal == "." else ".", "", literal=True)
    bare = bare.str.replace(",", ".", literal=True) if decimal == "," else bare
    return _blanked(bare, (~fits).fill_null(True)).cast(pl.Float64, strict=False)


def _complaint(cell: object, decimal: Decimal | None) -> str:
    import polars as pl

    marks = [mark for mark in (".", ",") if _with_marks(pl.Series([str(cell).strip()]), mark).is_not_null().all()]
    if decimal is None and "," in marks:
        return f"is not a number; state {' or '.join(f'decimal={mark!r}' for mark in reversed(marks))}"
    return "is not a number" if decimal is None else f"is not a number with decimal={decimal!r}"
