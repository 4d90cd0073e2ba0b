"""Labels, names and logs that try to act on a terminal or a spreadsheet, and what they may leave in an output."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from dysat.system.text.csv_text import csv_text

LABELS = [
    "\x1b[2J\x1b[31mred",  # clear the screen
    "\x1b]0;title\x07",  # set the title of the window
    "\x1b]8;;evil\x1b\\link",
    "nul\x00 bell\x07 back\x08",
    "c1 \x9b31m \x9d0;title\x9c",
    "\u202egnp.exe",
    "\u2066isolate",
    "zero\u200bwidth \ufeff",
    "two\nlines",
    "carriage\rreturn",
    "tab\tstop",
    "line\u2028separator \u2029 \x85",
    "tag \U000e0041\U000e0042",
    "[bold]markup[/bold]",
    "[link=http://evil.example]x[/link]",
    "[red",
    "x] [/] :smile:",
    "back\\",
    "=cmd()",
    "+1+1",
    "-2",
    "@SUM(A1)",
    "'=quoted",
    '"quotes", and commas',
    "雪 zoë 👩\u200d🔬",
]
COLUMNS = ["from\x1b[1m", "to\u202e", "sent\x9b"]
READ = ("--src", COLUMNS[0], "--dst", COLUMNS[1], "--time", COLUMNS[2], "--every", "7d")
KINDS = "us\x1b[5mer,it\u202eem"
NAME = "a\x1b]0;owned\x07\u202e[red]\n"  # of files and folders
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
SGR = re.compile(r"\x1b\[[0-9;]*m")  # colours
LIVE = re.compile(r"\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\r")  # cursor movements of a progress display


def write_log(file: Path, weeks: range, every: int = 1) -> Path:
    """Every label as a sender in every week, with a different receiver each time."""
    lines = [
        (LABELS[i], LABELS[(2 * i + week + 1) % len(LABELS)], f"2024-01-{7 * week + 1 + i % 7:02}")
        for week in weeks
        for i in range(0, len(LABELS), every)
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(csv_text(COLUMNS, lines, raw=True), encoding="utf-8", newline="")
    return file


def check_output(text: str, *, colours: bool = False, live: bool = False) -> None:
    """Fail if a line of an output has a hidden character, except for the colours and the progress display of Rich."""
    text = SGR.sub("", text) if colours else text
    text = LIVE.sub("", text) if live else text
    hidden = {char for char in text if unicodedata.category(char) in HIDDEN and char not in "\n\u200d"}
    assert not hidden, f"{hidden} in {text!r}"
