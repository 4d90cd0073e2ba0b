"""CSV that every reader splits alike, and that spreadsheets do not execute."""

from __future__ import annotations

import re
from collections.abc import Iterable

# A reader may split at a line break or trim a blank. Python's csv module leaves a lone carriage return unquoted.
NEEDS_QUOTES = re.compile(r'[,"\x00-\x1f\x7f\x85\u2028\u2029]|^[ \ufeff]|[ ]$|^$')
# A spreadsheet takes a cell that begins with one of these for a formula, also in full width.
FORMULA = re.compile("'*[=+\\-@\t\r\n＝＋－＠]")


def csv_text(header: Iterable[str], lines: Iterable[Iterable[object]], *, raw: bool = False) -> str:
    """Return a table as CSV; None is an empty field, and texts are written by `csv_field`."""
    return "".join(f"{','.join(csv_field(value, raw=raw) for value in line)}\n" for line in (header, *lines))


def csv_field(value: object, *, raw: bool = False) -> str:
    """Return a value as a field of CSV; a text that a spreadsheet would execute gets an apostrophe in front.

    Spreadsheets show such a cell as text, from the apostrophe or without it. A text that begins with apostrophes and
    then a formula gets one more, so that different labels stay different. `raw` writes texts as they are.

    Example:
        >>> print(csv_field("=1+1"), csv_field("=1+1", raw=True), csv_field('a "b"'), csv_field(-1.5))
        '=1+1 =1+1 "a ""b""\" -1.5
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value)
    text = value if raw or not FORMULA.match(value) else f"'{value}"
    return f'"{text.replace(chr(34), 2 * chr(34))}"' if NEEDS_QUOTES.search(text) else text
