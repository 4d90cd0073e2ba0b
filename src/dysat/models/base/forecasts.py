"""Forecast and Forecasts: predicted links as a sequence and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from html import escape
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from dysat.data.continuation import next_window
from dysat.data.graph import DynamicGraph
from dysat.data.windows import SECOND, as_datetime, write_edges
from dysat.system.extras import require
from dysat.system.text.printable import printable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

SHOWN = 10  # rows of a text or HTML table
AT_ONCE = 4_096  # tuples made at once by an iteration
SCORE = "score: calibrated probability of a link, for a balanced mix of links and non-links"
DIGITS = 9  # most digits shown of a score, so that scores near 1 stay distinct


class Forecast(NamedTuple):
    """A predicted link: labels `u` and `v`, a `score` in [0, 1], and `known`, whether the pair was linked before.

    In a directed graph `u` sends the link, and `known` says whether `u` has sent one to `v` before.
    """

    u: Any  # labels
    v: Any
    score: float  # between 0 and 1
    known: bool  # whether the two nodes were linked in any snapshot so far


@dataclass(frozen=True, eq=False, repr=False)
class Forecasts(Sequence[Forecast]):
    """Predicted links, best first: an immutable sequence of `Forecast`, and a table.

    Links of chosen nodes, or of each node, are grouped by node, which is `u` in every one of them. Rows are kept as
    arrays, so a million of them need little memory; a `Forecast` is made when it is read.

    Example:
        >>> import dysat
        >>> model = dysat.MODELS["degree-product"]().fit(dysat.load_dataset("uci"))
        >>> model.top_links(2, node=[9, 105]).to_polars().select("node", "partner", "rank").rows()
        [(9, 105, 1), (9, 1624, 2), (105, 1624, 1), (105, 1543, 2)]

    Shapes:
        ids [R, 2] of nodes of `graph`, scores [R], known [R], ranks [R] from 1, of each node or of all pairs
    """

    graph: DynamicGraph
    ids: NDArray[np.int64]
    scores: NDArray[np.float64]
    known: NDArray[np.bool_]
    ranks: NDArray[np.int64]
    by_node: bool  # whether `u` is a node that was asked for

    def __post_init__(self) -> None:
        for array in (self.ids, self.scores, self.known, self.ranks):
            array.flags.writeable = False

    @property
    def window(self) -> tuple[datetime, datetime] | tuple[int, int]:
        """Start and end of the window that is forecast, in UTC or as steps: the one after the last snapshot."""
        start, end = self._edges
        return (start, end) if self.graph.clock == "step" else (as_datetime(start), as_datetime(end))

    @property
    def kinds(self) -> NDArray[np.str_] | None:
        """Kinds of both nodes of each link as an array [R, 2] of names; None if nodes have no kinds."""
        kinds = self.graph.kinds
        return None if kinds is None else np.array(self.graph.kind_names)[kinds[self.ids]]

    @property
    def _edges(self) -> tuple[int, int]:
        return next_window(self.graph.boundaries, self.graph.clock)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, rows: int) -> Forecast: ...
    @overload
    def __getitem__(self, rows: slice) -> Forecasts: ...
    def __getitem__(self, rows: int | slice) -> Forecast | Forecasts:
        if isinstance(rows, slice):
            parts = {name: getattr(self, name)[rows] for name in ("ids", "scores", "known", "ranks")}
            return replace(self, **parts)
        at = index(rows)
        if not -len(self) <= at < len(self):
            raise IndexError(f"link {at} of {len(self):,} forecasts")
        u, v = self.graph.nodes[self.ids[at]].tolist()
        return Forecast(u, v, float(self.scores[at]), bool(self.known[at]))

    def __iter__(self) -> Iterator[Forecast]:
        for first in range(0, len(self), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            u, v = self.graph.nodes[self.ids[part].T].tolist()
            yield from map(Forecast, u, v, self.scores[part].tolist(), self.known[part].tolist())

    def __eq__(self, other: object) -> bool:
        """Whether two sequences, or a sequence and a list, have the same links, scores and marks in the same order."""
        if not isinstance(other, Forecasts | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def columns(self, *, texts: bool = False) -> dict[str, Any]:
        """Return the columns of the table as arrays.

        The columns are node and partner, or u and v if no node was asked for; then their kinds, if there are kinds;
        score, known, rank, and window_start and window_end as datetime64 or steps, or with `texts` as ISO texts.
        """
        names = ("node", "partner") if self.by_node else ("u", "v")
        table: dict[str, Any] = {name: self.graph.nodes[self.ids[:, i]] for i, name in enumerate(names)}
        if (kinds := self.kinds) is not None:
            table |= {f"{name}_kind": kinds[:, i] for i, name in enumerate(names)}
        table |= {"score": self.scores, "known": self.known, "rank": self.ranks}
        for name, edge in zip(("window_start", "window_end"), self._edges, strict=True):
            value: Any = edge if self.graph.clock == "step" else np.datetime64(edge, "us")
            if texts and self.graph.clock == "utc":
                value = f"{np.datetime_as_string(value, unit='us' if edge % SECOND else 's')}Z"
            table[name] = np.full(len(self), value)
        return table

    def to_polars(self) -> pl.DataFrame:
        """Return the table as a Polars data frame; times are in UTC."""
        import polars as pl

        columns = {
            name: column.tolist() if column.dtype.hasobject else column for name, column in self.columns().items()
        }
        table = pl.DataFrame({name: columns[name] for name in columns})
        return (
            table
            if self.graph.clock == "step"
            else table.with_columns(pl.col("window_start", "window_end").dt.replace_time_zone("UTC"))
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return the table as a pandas data frame; times are in UTC. Needs pandas."""
        require("pandas", "to_pandas()")
        import pandas as pd

        table = pd.DataFrame(self.columns())
        if self.graph.clock == "utc":
            for name in ("window_start", "window_end"):
                table[name] = table[name].dt.tz_localize("UTC")
        return table

    def __repr__(self) -> str:
        """Return a short text table."""
        rows = [self._names(), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        texts = len(self._names()) - 3  # labels and kinds are aligned left, numbers right
        lines = [
            "  ".join(
                cell.ljust(w) if i < texts else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        return "\n".join([self.title(), *(f"  {line}".rstrip() for line in lines), *self._rest()])

    def _repr_html_(self) -> str:
        """Return a small table for a notebook."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self._names())
        rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self._cells())
        rest = "".join(f"<p>{escape(line)}</p>" for line in self._rest())
        return (
            f"<table><caption>{escape(self.title())}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"
        )

    def title(self) -> str:
        """Return how many links there are, and the window that is forecast."""
        edges = write_edges([*self.graph.boundaries[-2:], self._edges[1]], self.graph.clock)[1:]
        links = f"{len(self):,} likely link{'s' * (len(self) != 1)}"
        of = f" of {len(np.unique(self.ids[:, 0])):,} nodes" if self.by_node else ""
        return f"{links}{of} in {'steps ' * (self.graph.clock == 'step')}{edges[0]} … {edges[1]}"

    def _names(self) -> list[str]:
        return [name for name in self[:0].columns() if name not in ("window_start", "window_end")]

    def _cells(self) -> list[list[str]]:
        """The first rows as texts."""
        part = self[:SHOWN]
        columns = part.columns() | {"score": map(score_text, part.scores.tolist())}
        columns["known"] = ["yes" if known else "no" for known in part.known]
        return [list(map(printable, row)) for row in zip(*(columns[name] for name in self._names()), strict=True)]

    def _rest(self) -> list[str]:
        return [f"… and {len(self) - SHOWN:,} more; to_polars() and to_pandas() have all"] * (len(self) > SHOWN)


def score_text(score: float) -> str:
    """Format a score with three digits, or more if it would read 1.000."""
    digits = next((n for n in range(3, DIGITS) if round(score, n) < 1), DIGITS)
    return f"{score:.{3 if score == 1 else digits}f}"
