"""Values and bytes that programs get wrong, and ways to damage a file; every choice is drawn from a generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

Rng = np.random.Generator
Item = TypeVar("Item")

NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 7, -7, 255, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, -(2**63), 2**63, 10**9, 10**30),
    *(0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf"), True, False),
)
TEXTS = (
    *("", " ", "a", "0", "nan", "-1", "1e999", "none", "null", "../../etc/passwd", "/etc/passwd", "CON", "~", "."),
    *("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x00", "\x7f", "\x9b31m", "\u202egnp.exe", "\u2028", "\r", "\n"),
    *(
        "=cmd()",
        "+1+1",
        "@SUM(A1)",
        '"',
        "'",
        '""',
        "[bold]",
        "{}",
        "%s",
        "é",
        "👩‍👩‍👧",
        "a" * 3000,
        "ﷺ" * 50,
        "\ufeff",
    ),
    *("2024-01-01", "9999-12-31", "0001-01-01", "1w", "0d", "-1d", "1000000y", "10000000000000d", "1ns"),
)
LISTS: tuple[Any, ...] = ([], [[]], [0], [None], [1, 2, 3], {}, {"a": 1}, {"": []}, None)
PIECES = (
    *(b"\0", b'"', b"'", b'""', b"\n", b"\n\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\xff", b"\xc3"),
    *(b",", b";", b"\t", b" ", b"|", b",,,,", b"#", b"%", b"{", b"}", b"[", b"]", b"null", b"true", b"\\", b"\\ud800"),
    *(b"nan", b"inf", b"-inf", b"-1", b"0", b"1e400", b"1e308", b"9" * 25, b"1e-400", b"0x10", b"9223372036854775808"),
    *(b"2020-02-30", b"2020-01-01T25:00:00", b"0000-00-00", b"soon", b"9999-12-31T23:59:59", b"0001-01-01", b"24:00"),
    *(b"\x1b[31m", b"\x1b]0;x\x07", b"\xc2\x9b", b"\xe2\x80\xae", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"=cmd()", b"@SUM"),
    *(b"x" * 5_000, b"7" * 5_000, b"[" * 2_000, b'{"a":' * 2_000, b"(" * 500, b"," * 2_000, b'"' * 501),
)


def chance(rng: Rng, probability: float) -> bool:
    return bool(rng.random() < probability)


def pick(rng: Rng, items: Sequence[Item]) -> Item:
    return items[int(rng.integers(len(items)))]


def number(rng: Rng) -> Any:
    """A hostile number, or a small ordinary one."""
    return int(rng.integers(-5, 50)) if chance(rng, 0.3) else pick(rng, NUMBERS)


def text(rng: Rng) -> str:
    """A hostile text, or random characters."""
    if chance(rng, 0.2):
        codes = rng.integers(1, 0x2FFF, int(rng.integers(1, 12)))
        return "".join(map(chr, codes))
    return pick(rng, TEXTS)


def value(rng: Rng, *, depth: int = 2) -> Any:
    """A hostile value of any JSON type; sometimes nested, rarely very deep."""
    choice = rng.random()
    if choice < 0.4:
        return number(rng)
    if choice < 0.7:
        return text(rng)
    if choice < 0.9 or not depth:
        return pick(rng, LISTS)
    if choice < 0.91:
        return deep(500)
    return [value(rng, depth=depth - 1) for _ in range(int(rng.integers(0, 4)))]


def deep(levels: int) -> Any:
    """Lists inside lists."""
    nested: Any = 1
    for _ in range(levels):
        nested = [nested]
    return nested


def change_json(rng: Rng, tree: Any) -> Any:
    """Change one place of a JSON value: replace, remove, add, double, or a value a little off."""
    if isinstance(tree, dict) and tree and chance(rng, 0.95):
        key = pick(rng, list(tree))
        action = rng.random()
        if action < 0.12:
            return {name: item for name, item in tree.items() if name != key}
        if action < 0.2:
            return {**tree, text(rng): value(rng)}
        if action < 0.25:
            return {(text(rng) if name == key else name): item for name, item in tree.items()}
        return {**tree, key: change_json(rng, tree[key])}
    if isinstance(tree, list) and tree and chance(rng, 0.9):
        at, action = int(rng.integers(len(tree))), rng.random()
        if action < 0.15:
            return tree[:at] + tree[at + 1 :]
        if action < 0.3:
            return [*tree[:at], tree[at], *tree[at:]]
        if action < 0.4:
            return tree[::-1]
        return [*tree[:at], change_json(rng, tree[at]), *tree[at + 1 :]]
    if isinstance(tree, (int, float)) and not isinstance(tree, bool) and chance(rng, 0.4):
        return tree + pick(rng, (-1, 1, 2, 1000))
    return value(rng)


# Damage to bytes


def _spot(rng: Rng, data: bytes) -> int:
    return int(rng.integers(0, len(data) + 1))


def flip_bits(rng: Rng, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        if changed:
            changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def cut_end(rng: Rng, data: bytes) -> bytes:
    return data[: _spot(rng, data)]


def insert_piece(rng: Rng, data: bytes) -> bytes:
    at = _spot(rng, data)
    return data[:at] + pick(rng, PIECES) + data[at:]


def overwrite(rng: Rng, data: bytes) -> bytes:
    at, length = _spot(rng, data), int(rng.integers(1, 9))
    return data[:at] + rng.bytes(length) + data[at + length :]


def swap_chunks(rng: Rng, data: bytes) -> bytes:
    a, b, c, d = sorted(_spot(rng, data) for _ in range(4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def change_line(rng: Rng, data: bytes) -> bytes:
    """Remove, double, cut, join or repeat one line many times."""
    lines = data.split(b"\n")
    at, action = int(rng.integers(len(lines))), int(rng.integers(5))
    line = lines[at]
    new = ([], [line, line], [line[: len(line) // 2]], [line + pick(rng, PIECES)], [line] * 200)[action]
    return b"\n".join([*lines[:at], *new, *lines[at + 1 :]])


def change_field(rng: Rng, data: bytes) -> bytes:
    """Replace, empty, drop or double one field of one line."""
    lines = data.split(b"\n")
    at = int(rng.integers(len(lines)))
    mark = max((b",", b"\t", b";", b" "), key=data.count)
    fields = lines[at].split(mark)
    place, action = int(rng.integers(len(fields))), rng.random()
    if action < 0.6:
        fields[place] = pick(rng, (b"", *PIECES))
    elif action < 0.8:
        del fields[place]
    else:
        fields.insert(place, fields[place])
    return b"\n".join([*lines[:at], mark.join(fields), *lines[at + 1 :]])


def change_encoding(rng: Rng, data: bytes) -> bytes:
    """The same text in another encoding, or with other line ends."""
    decoded = data.decode("utf-8", "replace")
    action = int(rng.integers(7))
    if action < 4:
        return decoded.replace("p", "ö" * (action % 2) + "p").encode(
            ("utf-16", "utf-16-be", "utf-32", "cp1252")[action], "replace"
        )
    return data.replace(b"\n", (b"\r", b"\r\n", b"\n\r")[action - 4])


DAMAGE: tuple[Callable[[Rng, bytes], bytes], ...] = (
    flip_bits, cut_end, insert_piece, insert_piece, overwrite, swap_chunks, change_line, change_field, change_field,
    change_encoding,
)  # fmt: skip


def damage(rng: Rng, data: bytes) -> bytes:
    """Damage bytes in one to three ways."""
    for _ in range(int(rng.integers(1, 4))):
        data = pick(rng, DAMAGE)(rng, data)
    return data
