"""Plain CSV in whole-array operations: ASCII without quotes, all fields in every line, values in their usual form.

Fields are found by their separators and read in words of eight bytes. Whatever is unusual raises an error, and the
general reader takes over: nothing here decides what a strange file means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Condition
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.data.reading.numbering import Found, Numbering, Words

BLOCK = 1 << 21  # bytes a thread reads at a time: few enough to stay in the cache, enough to seldom need the GIL
PAD = 16  # bytes before and after a block, so that whole words can be read at its ends
NEWLINE, COMMA, ZEROS = ord("\n"), ord(","), b"0" * 8
MONTHS = np.arange("1970-01", "2100-02", dtype="datetime64[M]").astype("datetime64[D]").astype(np.int64)
POWERS = 10 ** np.arange(16, dtype=np.uint64)
# The words of a text of n bytes that keep its own bytes: FIRST from its beginning, LAST up to its end.
FIRST = np.array([list(b"\xff" * n + b"\0" * (16 - n)) for n in range(17)], dtype=np.uint8).view(np.uint64)
LAST = np.array([list(b"\0" * (8 - n) + b"\xff" * n) for n in range(9)], dtype=np.uint8).view(np.uint64)[:, 0]


class UnusualError(Exception):
    """Something that only the general reader understands."""


@dataclass(frozen=True)
class Fields:
    """One column of a block of lines: where each of its fields starts, and how many bytes it has."""

    raw: bytearray
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def words(self, at: NDArray[np.int64] | int) -> Words:
        """Of each field the eight bytes at a place; the first is the lowest."""
        everywhere: Words = np.ndarray(len(self.raw) - 7, dtype="<u8", buffer=self.raw, strides=(1,))
        return np.asarray(everywhere[self.starts + at])


Parse = Callable[[Fields], NDArray[Any]]


def read_plain(
    path: Path, separator: str, width: int, header: bool, wanted: dict[int, Parse], numbering: Numbering | None = None
) -> list[NDArray[Any]]:
    """Some columns, by number from 0, of a file that has `width` of them; the first two are numbered, if asked for."""
    start = _end_of_header(path, separator, width) if header else 0
    blocks = list(pairwise(_cuts(path, start)))
    _check(bool(blocks))
    joined = _Joined(len(blocks), numbering)

    def read(number: int) -> None:
        with joined.failing():
            columns = _split(_read_block(path, *blocks[number]), ord(separator), width, list(wanted))
            parts = [parse(fields) for parse, fields in zip(wanted.values(), columns, strict=True)]
            found = None if numbering is None else numbering.find(_in_turn(parts[0], parts[1]))
            joined.append(number, parts, found)

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(read, range(len(blocks))))
    return joined.columns()


def parser_of_integers(first: str) -> Parse | None:
    """How to read whole numbers, if the first text is one as a program would write it."""
    return parse_integers if re.fullmatch(r"[1-9]\d{0,15}", first) else None


def parser_of_moments(first: str) -> Parse | None:
    """How to read times as microseconds, if the first looks like 2024-01-31T12:00:00 or 2024-01-31 12:00:00Z."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ?", first, re.ASCII):
        return None
    return partial(_parse_moments, form=re.sub(r"\d", "0", first).encode())


def pack_texts(fields: Fields) -> Words:
    """Texts of at most 16 bytes as they are, in two words each that end in zeros."""
    _check_within(fields.lengths, 1, 16)
    everywhere = np.ndarray(len(fields.raw) - 15, dtype="V16", buffer=fields.raw, strides=(1,))
    packed = everywhere[fields.starts].view(np.uint64).reshape(-1, 2)
    packed &= FIRST.take(fields.lengths, axis=0)
    return packed


def parse_integers(fields: Fields) -> NDArray[np.int64]:
    """Whole numbers of at most 16 digits, without a sign and without zeros in front."""
    lengths = fields.lengths
    _check_within(lengths, 1, 16)
    numbers = _number(fields.words(lengths - 8), np.minimum(lengths, 8))
    if lengths.max() > 8:
        numbers += _number(fields.words(lengths - 16), np.maximum(lengths - 8, 0)) * POWERS[8]
    _check(not ((numbers < POWERS.take(lengths - 1)) & (lengths > 1)).any())
    return numbers.view(np.int64)


def _parse_moments(fields: Fields, form: bytes) -> NDArray[np.int64]:
    """Times from 1970 to 2099 in one form, which is given with zeros for all digits."""
    _check_within(fields.lengths, len(form), len(form))
    if form.endswith(b"Z"):
        _check(bool((fields.words(12) >> np.uint64(56) == ord("Z")).all()))
    month, day, clock = (fields.words(at) for at in (0, 8, 11))
    day &= _word(b"\xff" * 3)
    # In a log in order of time a date is the same for many lines: it is read where it changes.
    new = np.append(True, (month[1:] != month[:-1]) | (day[1:] != day[:-1]))
    dates = _parse_dates(month[new], day[new], form)
    clock = _pairs(clock, form[11:19])
    hour, minute, second = (_byte(clock, place) for place in (0, 3, 6))
    for values, most in ((hour, 23), (minute, 59), (second, 59)):
        _check_within(values, 0, most)
    minute += hour * 60
    second += minute * 60
    second += np.repeat(dates * 86_400, np.diff(np.flatnonzero(np.append(new, True))))
    second *= 1_000_000
    return second


def _parse_dates(month: Words, day: Words, form: bytes) -> NDArray[np.int64]:
    """Days since 1970 of texts like 2024-01- and 31T, which are checked."""
    month, day = _pairs(month, form[:8]), _pairs(day, form[8:11] + bytes(5))
    number = _byte(month, 5)
    since = (_byte(month, 0) * 100 + _byte(month, 2) - 1970) * 12 + number - 1
    _check_within(number, 1, 12)
    _check_within(since, 0, len(MONTHS) - 2)
    days: NDArray[np.int64] = MONTHS[since] + _byte(day, 0) - 1
    _check(not ((days < MONTHS[since]) | (days >= MONTHS[since + 1])).any())
    return days


class _Joined:
    """The columns of all blocks, end to end. Threads append theirs in order of blocks, each as soon as it is its turn.

    A block is let go once it is copied, so that its memory serves the next.
    """

    def __init__(self, num_blocks: int, numbering: Numbering | None) -> None:
        self.num_blocks, self.numbering = num_blocks, numbering
        self.next = self.filled = 0
        self.failed = False
        self.changed = Condition()
        self.arrays: list[NDArray[Any]] = []

    def columns(self) -> list[NDArray[Any]]:
        return [array[: self.filled] for array in self.arrays]

    def append(self, number: int, part: list[NDArray[Any]], found: Found | None = None) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.failed or self.next == number)
            _check(not self.failed)
        if self.numbering is not None and found is not None:
            ends = self.numbering.add(found).reshape(-1, 2)
            part = [ends[:, 0], ends[:, 1], *part[2:]]
        self._append(part)
        with self.changed:
            self.next += 1
            self.changed.notify_all()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """An error ends the waiting of all threads."""
        try:
            yield
        except BaseException:
            with self.changed:
                self.failed = True
                self.changed.notify_all()
            raise

    def _append(self, part: list[NDArray[Any]]) -> None:
        rows, room = len(part[0]), self.num_blocks + 1 + self.num_blocks // 8
        self.arrays = self.arrays or [np.empty((rows * room, *v.shape[1:]), v.dtype) for v in part]
        for array, values in zip(self.arrays, part, strict=True):
            if self.filled + rows > len(array):  # the first block had longer lines than the others
                array.resize((2 * self.filled + rows, *array.shape[1:]), refcheck=False)
            array[self.filled : self.filled + rows] = values
        self.filled += rows


def _in_turn(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """The labels of both ends, row by row.  # [n, …] each → [2 n, …]"""
    return np.stack([left, right], axis=1).reshape(-1, *left.shape[1:])


def _end_of_header(path: Path, separator: str, width: int) -> int:
    with open(path, "rb") as data:
        line = data.readline()
    _check(line.isascii() and b'"' not in line and b"\r" not in line and line.count(separator.encode()) == width - 1)
    return len(line)


def _cuts(path: Path, start: int) -> Iterator[int]:
    """Where blocks of whole lines begin, and where the last one ends."""
    with open(path, "rb") as data:
        size = data.seek(0, 2)
        while start < size:
            yield start
            data.seek(start + BLOCK)
            data.readline()
            start = min(data.tell(), size)
    yield size


def _read_block(path: Path, start: int, stop: int) -> bytearray:
    """Whole lines, the last one ended, with zeros around them."""
    raw = bytearray(PAD + stop - start + PAD)
    with open(path, "rb", buffering=0) as data:
        data.seek(start)
        _check(data.readinto(memoryview(raw)[PAD:-PAD]) == stop - start)
    if raw[-PAD - 1] != NEWLINE:
        raw[-PAD:] = b"\n" + bytes(PAD)
    return raw


def _split(raw: bytearray, separator: int, width: int, wanted: Sequence[int]) -> Iterator[Fields]:
    """The fields of some columns."""
    ends = _marks(raw, separator, width).reshape(-1, width)
    for column in wanted:
        starts = ends[:, column - 1] + 1 if column else np.append(PAD, ends[:-1, -1] + 1)
        yield Fields(raw, starts, ends[:, column] - starts)


def _marks(raw: bytearray, separator: int, width: int) -> NDArray[np.int64]:
    """Where all fields end."""
    codes = np.frombuffer(raw, dtype=np.uint8)[PAD:-PAD]
    _check(codes.max() < 0x80)
    marks = np.flatnonzero(codes <= separator)
    if separator != COMMA or not _alternate(codes, marks, separator, width):
        # Quotes, blanks and whatever ends lines come before the comma: in most files only separators do.
        _check(b'"' not in raw and b"\r" not in raw and raw.find(b"\0", PAD, -PAD) < 0)
        marks = np.flatnonzero((codes == NEWLINE) | (codes == separator))
        _check(_alternate(codes, marks, separator, width))
    marks += PAD
    return marks


def _alternate(codes: NDArray[np.uint8], marks: NDArray[np.int64], separator: int, width: int) -> bool:
    """Whether every line has all its fields."""
    if len(marks) % width:
        return False
    found = codes[marks].reshape(-1, width)
    return bool((found[:, :-1] == separator).all() and (found[:, -1] == NEWLINE).all())


def _number(words: Words, lengths: NDArray[np.int64]) -> Words:
    """The last so many digits of each word as a number: first pairs of them, then fours, then all eight."""
    keep = LAST.take(lengths)
    pairs = _pairs(words & keep | ~keep & _word(ZEROS), ZEROS)
    fourth = _word(b"\xff\0\0\0" * 2)
    high, low = pairs & fourth, pairs >> np.uint64(16) & fourth
    return high * np.uint64((10**6 << 32) + 100) + low * np.uint64((10**4 << 32) + 1) >> np.uint64(32)


def _pairs(words: Words, form: bytes) -> Words:
    """Each digit and its next as a number of one byte; what is not a digit must be as in the form."""
    digits = words ^ _word(form)
    beyond = digits + _word(bytes(0x76 if code == ZEROS[0] else 0x7F for code in form))  # 0x80 above 9, or above 0
    _check(not np.any(beyond & _word(b"\x80" * 8)))
    return digits * np.uint64(10) + (digits >> np.uint64(8))


def _byte(words: Words, place: int) -> NDArray[np.int64]:
    return (words >> np.uint64(8 * place) & np.uint64(0xFF)).view(np.int64)


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


def _check_within(values: NDArray[np.int64], least: int, most: int) -> None:
    _check(least <= int(values.min()) and int(values.max()) <= most)


def _check(usual: bool) -> None:
    if not usual:
        raise UnusualError
