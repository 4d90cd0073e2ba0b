"""Labels that may be wrong: spellings of one label, several labels in one cell, and two id spaces in one.

`normal_form` is what `normalise_labels` writes. The notes need only the distinct labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import distinct
from dysat.data.reading.labels import Labels

if TYPE_CHECKING:
    import polars as pl

# Name <address>, but not several of them: a name that is not quoted has no semicolon, and no comma after an address.
ADDRESS = r"""^\s*(?:"[^"]*"\s*|[^<>;,]*|[^<>;@]*)<\s*([^<>\s]+@[^<>\s]+)\s*>\s*$"""
# Words in the names of columns. Two columns hold different things if one has a word of THINGS, and the other a word of
# THINGS or PEOPLE that is not the same.
PEOPLE = frozenset(
    re.findall(
        r"\w+",
        """user customer client person member patient author reader listener viewer student buyer shopper reviewer rater
        visitor player employee worker subscriber consumer account profile editor contributor developer guest actor""",
    )
)
THINGS = frozenset(
    re.findall(
        r"\w+",
        """item product movie film book song track album artist article page paper url site website tag hashtag repo
        repository project channel group forum thread topic event shop store merchant restaurant business hotel place
        poi venue location station drug gene protein disease game video post course module question file document
        subreddit category ad campaign job sku asin isbn stock asset company team brand dish recipe show series podcast
        app service conference journal keyword word skill""",
    )
)
LOOKED_AT = 20_000  # labels compared for a note
MARKS = ["<", "mailto:", "  ", "\t", "\n", "\r", "\v", "\f"]  # what a label has that needs more than lower case
MIN_LABELS = 20  # per column, for columns whose names say nothing
MIN_RATIO = 1.5  # of the two id ranges


def normal_form(labels: pl.Series) -> pl.Series:
    """Return labels in lower case, without surrounding or repeated blanks; of `Name <address>` the address."""
    import polars as pl

    lower = labels.str.to_lowercase().str.strip_chars()
    odd = lower.str.contains_any(MARKS) | (lower.str.len_bytes() != lower.str.len_chars())
    if not odd.any():
        return lower
    label = pl.col("label").str.normalize("NFC").str.to_lowercase().str.replace(ADDRESS, "$1").str.strip_chars()
    label = label.str.strip_prefix("mailto:").str.strip_chars().str.replace_all(r"\s+", " ")
    full = labels.filter(odd).to_frame("label").lazy().select(label).collect(engine="streaming").to_series()
    return lower.scatter(odd.arg_true(), full)


def label_notes(labels: Labels, kinds: NDArray[np.uint8] | None, dst: str) -> list[str]:
    """Note labels that differ only in what `normal_form` removes, and labels that are several addresses.

    Only the first labels of a large graph are looked at; `dst` is the column of destinations.
    """
    import polars as pl

    if labels.dtype != object:
        return []
    texts = pl.Series("label", labels[:LOOKED_AT].tolist(), dtype=pl.String)
    among = f" of the first {LOOKED_AT:,}" * (len(labels) > LOOKED_AT)
    return [*_spelling_note(texts, kinds, among), *_recipients_note(texts, dst, among)]


def _spelling_note(texts: pl.Series, kinds: NDArray[np.uint8] | None, among: str) -> list[str]:
    import polars as pl

    table = pl.DataFrame({"normal": normal_form(texts), "kind": 0 if kinds is None else kinds[: len(texts)]})
    if (table["normal"] if kinds is None else table).n_unique() == len(texts):
        return []
    table = table.with_columns(label=texts)
    groups = table.group_by("kind", "normal", maintain_order=True).agg("label").filter(pl.col("label").list.len() > 1)
    number = int(groups["label"].list.len().sum())
    one, other = groups["label"][0].to_list()[:2]
    what = f"{number:,} labels{among} differ only in case, blanks or the form of an address"
    return [f"{what}, as {one!r} and {other!r}; normalise_labels=True merges them"]


def _recipients_note(texts: pl.Series, dst: str, among: str) -> list[str]:
    texts = texts.filter(texts.str.contains_any([";", ","]))
    several = texts.filter(texts.str.contains(r"@[^;,]*[;,][^;,]*@"))
    if several.is_empty():
        return []
    mark = ";" if ";" in several[0] else ","
    what = f"{len(several):,} labels{among} hold several addresses, as {several[0][:60]!r}"
    return [f"{what}; split_dst={mark!r} makes one event per address in {dst!r}"]


def kinds_note(
    columns: dict[str, str], sides: NDArray[np.bool_], labels: Labels, count_pairs: Callable[[], tuple[int, int]]
) -> list[str]:
    """Note labels that occur in both columns if the two seem to hold different things.

    They do if their names say so, as user and movie. In a file without names, they do if both are numbered from 1 to
    different ends, nearly all numbers of the shorter range occur in the longer one, and no more pairs than by chance
    occur in both directions.

    `sides` says which labels occur in each column [2, N]. `count_pairs` returns the number of distinct pairs, and of
    those that occur in both directions.
    """
    kinds = _things(_words(columns["src"]), _words(columns["dst"]))
    named = not (columns["src"].isdigit() and columns["dst"].isdigit())
    if kinds is None and named:
        return []
    shared = int(sides.all(0).sum())
    if not shared or (kinds is None and not _two_ranges(sides, labels, count_pairs)):
        return []
    one, other = kinds or ("user", "item")
    what = f"{shared:,} labels occur in both {columns['src']!r} and {columns['dst']!r} and are taken for the same nodes"
    return [f"{what}; if they are not, state kinds=({one!r}, {other!r})"]


def _words(column: str) -> frozenset[str]:
    """The words of a column name in lower case and singular: userId, user_ids and user.id all have the word user."""
    parts = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", column).lower())
    parts = [part.removesuffix("id") if len(part) > 4 else part for part in parts]
    return frozenset(part if part in PEOPLE | THINGS else part.removesuffix("s") for part in parts)


def _things(src: frozenset[str], dst: frozenset[str]) -> tuple[str, str] | None:
    """The word for each column, if one names a thing and the other something else."""
    if (src & dst) & (PEOPLE | THINGS):
        return None
    one, other = sorted(src & (PEOPLE | THINGS)), sorted(dst & (PEOPLE | THINGS))
    if not one or not other or not (set(one) | set(other)) & THINGS:
        return None
    return one[0], other[0]


def _two_ranges(sides: NDArray[np.bool_], labels: Labels, count_pairs: Callable[[], tuple[int, int]]) -> bool:
    """Whether labels are numbers from 0 or 1 in both columns, to different ends, and directions do not matter."""
    if labels.dtype == object:
        return False
    numbers = [labels[side] for side in sides]
    ends = [int(side.max()) for side in numbers]
    dense = all(side.min() in (0, 1) and 2 * len(side) > side.max() for side in numbers)
    short = int(np.argmin(ends))
    if not dense or min(map(len, numbers)) < MIN_LABELS or max(ends) < MIN_RATIO * min(ends):
        return False
    if sides.all(0).sum() < 0.9 * len(numbers[short]):
        return False
    pairs, returned = count_pairs()
    chance = pairs**2 / (len(numbers[0]) * len(numbers[1]))
    return bool(returned <= 2 * chance + 3)


def count_pairs(src: NDArray[np.integer[Any]], dst: NDArray[np.integer[Any]], num_labels: int) -> tuple[int, int]:
    """Return the number of distinct pairs, and of those that occur in both directions."""
    pairs = distinct(src.astype(np.int64) * num_labels + dst)
    backwards = distinct(dst.astype(np.int64) * num_labels + src)
    return len(pairs), len(np.intersect1d(pairs, backwards, assume_unique=True))
