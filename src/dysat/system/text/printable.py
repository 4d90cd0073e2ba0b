r"""Make foreign text safe to print: labels, file names and messages become plain characters on one line.

A terminal obeys what it is sent. A label may contain escape sequences that change the title of the window or hide
other rows, and characters that reverse the order of the text around them or are not seen at all.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

ESCAPED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
ZWNJ, ZWJ = "\u200c", "\u200d"
# Format characters with a shape of their own: signs of numbers and verses in Arabic, Syriac and Kaithi.
SEEN = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
# Letters and marks that are not seen: joiners and fillers of Hangul, and inherent vowels of Khmer.
UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
# Flags of England, Scotland and Wales: a black flag, then letters as tags.
FLAG = re.compile("\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074|"
                  "\U000e0077\U000e006c\U000e0073)\U000e007f")  # fmt: skip
JOINED_SCRIPTS = ((0x0600, 0x0E00), (0x1000, 0x10A0), (0x1780, 0x18B0), (0xA840, 0xA880), (0xA8E0, 0xA900))


def printable(text: object) -> str:
    r"""Return a text as one line that is safe to print: characters with a hidden effect become escapes.

    Control characters, bidirectional controls, invisible and unassigned characters, line separators and lone surrogates
    are written as in a Python string: `\x1b`, `\u202e`, `\U000e0041`. Text in any script stays as it is, with the
    joiners that its spelling needs, and so do emoji. A backslash is not doubled, so this is for reading only.

    Example:
        >>> print(printable("a\x1b[31mred\x07"), printable("naïve 雪 👩‍🔬"))
        a\x1b[31mred\x07 naïve 雪 👩‍🔬
    """
    return with_escapes(str(text), _escaped)


def with_escapes(text: str, escaped: Callable[[str], str]) -> str:
    """Return a text in which every character with a hidden effect is replaced by its escape."""
    if text.isascii() and text.isprintable():
        return text
    kept = {at for flag in FLAG.finditer(text) for at in range(*flag.span())}
    return "".join(
        char if at in kept or _is_harmless(char, at, text) else escaped(char) for at, char in enumerate(text)
    )


def _escaped(char: str) -> str:
    if char in ESCAPED:
        return ESCAPED[char]
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_harmless(char: str, at: int, text: str) -> bool:
    """Whether a character is seen, or only shapes its neighbours as their script or emoji expects."""
    if char in (ZWNJ, ZWJ):
        return 0 < at < len(text) - 1 and _joins(char, text[at - 1], text[at + 1])
    if _is_selector(char):
        return at > 0 and _selects(char, text[at - 1])
    if char in SEEN or unicodedata.category(char) == "Zs":
        return True
    return char.isprintable() and char not in UNSEEN


def _joins(char: str, before: str, after: str) -> bool:
    """Whether a joiner stands between two characters that it can shape: letters of a joined script, or emoji."""
    if unicodedata.combining(before) == 9:  # a virama
        return after.isprintable()
    if _in_joined_script(before) and _in_joined_script(after):
        return True
    return char == ZWJ and (_is_picture(before) or before == "\ufe0f") and _is_picture(after)


def _in_joined_script(char: str) -> bool:
    return char.isprintable() and any(first <= ord(char) < stop for first, stop in JOINED_SCRIPTS)


def _is_picture(char: str) -> bool:
    """Whether a character is an emoji or a modifier of its skin tone."""
    return unicodedata.category(char) in ("So", "Sk", "Sm") and ord(char) >= 0x2190


def _is_selector(char: str) -> bool:
    """Whether a character chooses one of several forms of the character before it."""
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef" or char in "\u180b\u180c\u180d\u180f"


def _selects(char: str, before: str) -> bool:
    """Whether a character can have another form: hidden bytes can be written as selectors after any other."""
    if char in "\u180b\u180c\u180d\u180f":
        return "\u1820" <= before < "\u18b0"
    if char >= "\U000e0100":
        return unicodedata.category(before) == "Lo" and ord(before) >= 0x3400  # ideographs
    if char in "\ufe0e\ufe0f":
        return _is_picture(before) or before in "#*0123456789©®‼⁉™ℹ〰〽㊗㊙"
    return before.isprintable() and not before.isascii() and not _is_selector(before)
