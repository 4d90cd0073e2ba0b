"""Compressed text: gzip is decompressed here, in checked pieces; zstd by Polars, after a look at its blocks."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from dysat.data.reading.limits import Limits
from dysat.errors import EventsError

try:  # decompresses in about half the time
    from zlib_ng import zlib_ng as zlib
except ImportError:  # no wheel for this platform
    import zlib

Item = TypeVar("Item")
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
SKIPPABLE = range(0x184D2A50, 0x184D2A60)  # magic numbers of zstd frames without text
STEP = 1 << 20  # bytes read at once
MOST = 1 << 22  # bytes decompressed at once, for a piece that Polars reads
TRIED = 1_000  # line ends at which a piece may be cut
BLOCK = 1 << 17  # most bytes in a block of zstd
WINDOW = 13 << 3  # 8 MB, in the notation of zstd
DAMAGED: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error)  # what `gunzip` raises


def gunzip(path: Path, most: int = MOST) -> Iterator[bytes]:
    """Decompress a gzip file of one or more members; raises one of `DAMAGED` if that is not possible.

    Each part has at most `most` bytes.
    """
    with open(path, "rb") as file:
        member, data = zlib.decompressobj(wbits=31), file.read(STEP)
        while data:
            if text := member.decompress(data, most):
                yield text
            data = member.unused_data if member.eof else member.unconsumed_tail
            if member.eof:
                data = (data or file.read(STEP)).lstrip(b"\0")
                while not data and (more := file.read(STEP)):
                    data = more.lstrip(b"\0")
                member = zlib.decompressobj(wbits=31) if data else member
            data = data or file.read(STEP)
        if not member.eof:
            raise EOFError("unexpected end of file")


def gunzip_pieces(
    path: Path, name: str, limits: Limits, *, quotes: bool, header: bytes = b"", size: int = MOST
) -> Iterator[bytes]:
    """Decompress a gzip file into pieces of whole lines, of about `size` bytes; no line may be too long.

    With `quotes`, a line end between double quotes does not end a line. No piece begins with an empty line. All but the
    first begin with `header`.
    """
    held: list[bytes] = []
    length = tail = 0  # bytes that are held, and those after their last line end
    odd, first = False, True  # whether the held text ends between quotes, and whether it begins the file
    try:
        for part in gunzip(path, size):
            cut = _cut(part, quotes=quotes, odd=odd) if length + len(part) >= size else 0
            if cut:
                piece = b"".join([*held, memoryview(part)[:cut]])
                check_lengths(name, piece, limits, numbered=first)
                yield piece
                held, length, tail, odd, first = [header], 0, 0, False, False
                part = part[cut:]
            held.append(part)
            end = max(part.rfind(b"\n"), part.rfind(b"\r"))
            length, tail = length + len(part), len(part) - 1 - end if end >= 0 else tail + len(part)
            odd ^= quotes and _is_odd(part)
            if (longest := max(tail, length - 2 * size)) > limits.line_length:  # or many lines between quotes
                limits.check_line(name, sum(count(p, b"\n") for p in held) + 1 if first else None, longest)
    except DAMAGED as problem:
        raise EventsError(f"{name}: cannot be read as gzip: {problem}") from None
    if length:
        check_lengths(name, piece := b"".join(held), limits, numbered=first)
        yield piece


def check_lengths(name: str, text: mmap.mmap | bytes, limits: Limits, *, numbered: bool = True) -> None:
    """Refuse a line that is too long, jumping from line end to line end; `numbered` if the text begins a file."""
    at, step = 0, int(limits.line_length) + 1
    while len(text) - at > step:
        end = text.rfind(b"\n", at, at + step)
        if end < 0:
            end = text.rfind(b"\r", at, at + step)  # line ends of old Macs
        if end < 0:
            before = sum(count(text[i : min(i + MOST, at)], b"\n") for i in range(0, at, MOST))
            limits.check_line(name, before + 1 if numbered else None, step)
        at = end + 1


def _cut(text: bytes, *, quotes: bool, odd: bool) -> int:
    """Where the last line begins, 0 if nowhere; `odd` if the text begins between quotes."""
    odd ^= quotes and _is_odd(text)
    at = len(text)
    for _ in range(TRIED):
        end = text.rfind(b"\n", 0, at)
        if end < 0:
            break
        odd ^= quotes and text.count(b'"', end, at) % 2 == 1
        if not odd and text[end + 1 : end + 2] not in (b"", b"\r", b"\n"):
            return end + 1
        at = end
    return 0


def _is_odd(text: bytes) -> bool:
    return b'"' in text and count(text, b'"') % 2 == 1


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; a thread makes the next while one is used."""
    end = object()
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item  # type: ignore[misc]


def count(text: bytes, mark: bytes) -> int:
    """How often a byte occurs; faster than `bytes.count` if that is often."""
    return int(np.count_nonzero(np.frombuffer(text, dtype=np.uint8) == mark[0]))


class Zstd(NamedTuple):
    """A zstd file: the most bytes of text it can hold, and its beginning, as a file of its own."""

    bound: int
    beginning: bytes


def look_into_zstd(path: Path, name: str, most: int) -> Zstd:
    """Add up the blocks of a zstd file without decompressing them; its beginning has about `most` bytes of text."""
    bound, taken = 0, []
    with open(path, "rb") as file:

        def read(size: int) -> bytes:
            if len(found := file.read(size)) < size:
                raise EventsError(f"{name}: cannot be read as zstd: incomplete frame")
            return found

        while magic := file.read(4):
            if int.from_bytes(magic, "little") in SKIPPABLE:
                file.seek(int.from_bytes(read(4), "little"), 1)
                continue
            if magic != ZSTD:
                raise EventsError(f"{name}: cannot be read as zstd: unknown frame")
            (flags,) = read(1)
            single, has_sum = flags >> 5 & 1, flags >> 2 & 1
            window = bytes([WINDOW]) if single else read(1)
            read((0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6])  # the dictionary, and the size it claims
            wanted = bound < most
            taken += [ZSTD, b"\0", window] if wanted else []
            last = 0
            while not last:
                head = int.from_bytes(read(3), "little")
                last, kind, size = head & 1, head >> 1 & 3, head >> 3
                bound += size if kind < 2 else BLOCK
                content = 1 if kind == 1 else size
                if wanted:
                    wanted = bound < most
                    taken += [(head | (not wanted)).to_bytes(3, "little"), read(content)]
                else:
                    file.seek(content, 1)
            file.seek(4 * has_sum, 1)
    return Zstd(bound, b"".join(taken))
