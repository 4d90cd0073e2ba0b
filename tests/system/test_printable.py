"""Foreign text as one line that is safe to print."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dysat.system.text.printable import printable

READABLE = [
    "plain text, with punctuation: [x] {y} <z> \\ ' \" %",
    "naïve café ångström",
    "cafe\u0301",  # a combining accent
    "雪 ゆき 눈 снег χιόνι שלג ثلج हिम หิมะ თოვლი",
    "می\u200cخواهم",  # Persian needs its non-joiner
    "ක්\u200dෂ श्\u200dर क्\u200cष",  # Sinhala and Devanagari need their joiners
    "👩\u200d🔬 👩🏽\u200d🚀 ❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈 1\ufe0f\u20e3 🇫🇷 ☎\ufe0e",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # the flag of Scotland
    "10\u00a0000 km\u3000全角",  # spaces that are not U+0020
    "葛\U000e0100城",  # an ideograph and its variant
    "\u06dd١٢",  # a verse sign
]
HIDDEN = {
    "\x1b[2Jgone": "\\x1b[2Jgone",
    "\x1b]0;title\x07": "\\x1b]0;title\\x07",
    "\x00\x08\x7f": "\\x00\\x08\\x7f",
    "\x9b31m": "\\x9b31m",
    "a\nb\r\tc": "a\\nb\\r\\tc",
    "\u202egnp.exe": "\\u202egnp.exe",
    "\u2066x\u2069\u200e\u200f\u061c": "\\u2066x\\u2069\\u200e\\u200f\\u061c",
    "ad\u200bmin \ufeffx\u00ady\u2060": "ad\\u200bmin \\ufeffx\\xady\\u2060",
    "a\u200db\u200c": "a\\u200db\\u200c",  # joiners where nothing is joined
    "line\u2028para\u2029": "line\\u2028para\\u2029",
    "\udcff\ud800": "\\udcff\\ud800",
    "x\U000e0041\U000e0001": "x\\U000e0041\\U000e0001",
    "a\ufe01\ufe0f\U000e0100": "a\\ufe01\\ufe0f\\U000e0100",  # bytes hidden as selectors
    "☎\ufe0f\ufe0f": "☎\ufe0f\\ufe0f",
    "\u3164\u115f\u034f": "\\u3164\\u115f\\u034f",
    "\uffff\U000e0fff\ue000": "\\uffff\\U000e0fff\\ue000",
}


@pytest.mark.parametrize("text", READABLE)
def test_ordinary_text_stays(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(("text", "shown"), HIDDEN.items(), ids=ascii)
def test_characters_with_a_hidden_effect_become_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_what_is_printed_has_no_controls_and_is_stable(text: str) -> None:
    shown = printable(text)
    assert all(unicodedata.category(char) not in ("Cc", "Cs", "Cn", "Co", "Zl", "Zp") for char in shown)
    assert printable(shown) == shown
    shown.encode("utf-8")


def test_every_control_and_format_character_alone() -> None:
    for code in range(0x110000):
        char = chr(code)
        if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(char) in (
            "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN",
        ):  # fmt: skip
            assert printable(f"x{char}y") != f"x{char}y", hex(code)


def test_any_object_is_written() -> None:
    assert printable(17) == "17"
    assert printable(OSError("bad \x1b name")) == "bad \\x1b name"
