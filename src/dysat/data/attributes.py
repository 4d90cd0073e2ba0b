"""Attributes of nodes as feature columns.

A category `department` becomes columns `department=sales`, `department=it`, … of 0 and 1; a row of zeros is a missing
value, and `department=other` pools rare values. A number `age` is standardised, with 0 for missing values, which the
column `age missing` marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.growth import Features
from dysat.data.nodes import BEGINNING, Attribute, NodeTable, describe
from dysat.data.reading.labels import Labels
from dysat.data.windows import Clock
from dysat.errors import GraphError

Reals = NDArray[np.float64]
Ids = NDArray[np.int64]
MAX_CATEGORIES = 32  # columns of one category; the rarest values share the last
MAX_DEVIATIONS = 10.0  # numbers further from the mean are clamped
HUGE = 1e100  # numbers beyond it are divided by the largest before they are standardised
OTHER, MARK = "other", " missing"


class Encoded(NamedTuple):
    """Features of the nodes known at each step, the names of their columns, and notes."""

    features: Features
    names: tuple[str, ...]
    notes: tuple[str, ...]


class Group(NamedTuple):
    """The columns of one attribute."""

    name: str
    columns: tuple[int, ...]  # one per category, or one for a number
    is_category: bool
    missing: int | None = None  # the column that marks missing numbers
    other: int | None = None  # the column of pooled categories

    def known(self, features: Tensor) -> Tensor:
        """Which rows have a value.  # [N, F] → [N]"""
        if self.is_category:
            return features[:, list(self.columns)].sum(1) > 0
        if self.missing is None:
            return torch.ones(len(features), dtype=torch.bool, device=features.device)
        return features[:, self.missing] < 0.5


def groups(names: Sequence[str]) -> list[Group]:
    """The attributes that these columns stand for, in order."""
    found: dict[tuple[bool, str], list[int]] = {}
    place = {name: column for column, name in enumerate(names)}
    for column, name in enumerate(names):
        if name.endswith(MARK) and name.removesuffix(MARK) in place:
            continue
        base, equals, _ = name.partition("=")
        found.setdefault((bool(equals), base if equals else name), []).append(column)
    return [
        Group(
            name, tuple(columns), category, place.get(name + MARK), place.get(f"{name}={OTHER}") if category else None
        )
        for (category, name), columns in found.items()
    ]


def describe_features(features: Features | None, names: Sequence[str]) -> list[str]:
    """Each attribute in words, such as `age (number, 3 % missing)`, at the last step."""
    if features is None:
        return []
    last = features if isinstance(features, Tensor) else features[-1]
    if not names:
        return [f"{last.shape[1]} unnamed features"]
    found = []
    for group in groups(names):
        missing = 1 - float(group.known(last).double().mean())
        found.append(f"{group.name} ({describe(len(group.columns) * group.is_category, missing)})")
    return found


def missing_rows(names: Sequence[str], number: int, like: Tensor) -> Tensor:
    """Features of nodes without values.  # [number, F]"""
    marks = [group.missing for group in groups(names) if group.missing is not None]
    rows = like.new_zeros(number, len(names))
    rows[:, marks] = 1.0
    return rows


def continued(features: Features, names: Sequence[str], known: Sequence[int]) -> Features:
    """Features of a graph that has grown to these known nodes: values stay as they were, new nodes have none."""
    if isinstance(features, Tensor):
        return torch.cat([features, missing_rows(names, known[-1] - len(features), features)])
    parts = list(features)
    for number in known[len(features) :]:
        parts.append(torch.cat([parts[-1], missing_rows(names, number - len(parts[-1]), parts[-1])]))
    return tuple(parts)


def encode_tables(
    tables: Iterable[NodeTable],
    nodes: Labels,
    kinds: NDArray[np.uint8] | None,
    kind_names: tuple[str, ...],
    known: Sequence[int],
    stops: Sequence[int],
    clock: Clock,
) -> Encoded:
    """Encode the rows of these nodes; at each step those count whose time lies before the end of the window."""
    rows = dict[str, list[_Rows]]()
    notes, tables = list[str](), tuple(tables)
    if all(table.time is None for table in tables):  # the same at all steps
        known, stops = known[-1:], stops[-1:]
    for table in tables:
        if table.time is not None and table.clock != clock:
            times = {"utc": "dates", "step": "numbers of steps"}
            raise GraphError(f"{table.name}: times are {times[table.clock]}, but windows are {times[clock]}")
        at = _nodes_of(table, nodes, kinds, kind_names, notes)
        time = np.full(len(table), BEGINNING) if table.time is None else table.time
        for name, column in table.columns.items():
            use = (at >= 0) & ~np.isnan(column.values) & (time < stops[-1])
            rows.setdefault(name.replace("=", "_"), []).append(_Rows(at[use], time[use], column, use))
    steps, names = list[list[Reals]](), list[str]()
    for name, parts in rows.items():
        if not any(len(part.node) for part in parts):
            notes.append(f"column {name!r} is left out: no node of the graph has a value")
            continue
        values, categories = _merged(name, parts)
        every = _by_step(parts, values, len(nodes), known, stops)
        encoded, columns = _categories(name, every, categories, notes) if categories else _numbers(name, every)
        names += columns
        steps.append(encoded)
    if not steps:
        raise GraphError("no attribute has a value for any node of the graph")
    whole = [np.column_stack([each[step] for each in steps]) for step in range(len(known))]
    parts_ = tuple(torch.from_numpy(part).to(torch.get_default_dtype()) for part in whole)
    constant = all(torch.equal(part, parts_[-1][: len(part)]) for part in parts_)
    return Encoded(parts_[-1] if constant else parts_, tuple(names), tuple(notes))


class _Rows(NamedTuple):
    """Rows of a table with a value of one attribute for a node of the graph."""

    node: Ids
    time: Ids
    column: Attribute
    use: NDArray[np.bool_]


def _nodes_of(
    table: NodeTable, nodes: Labels, kinds: NDArray[np.uint8] | None, kind_names: tuple[str, ...], notes: list[str]
) -> Ids:
    """The node of each row of a table, −1 if it is none of the graph.  # [R]"""
    if table.kind is not None and table.kind not in kind_names:
        there = f"there are {', '.join(kind_names)}" if kind_names else "nodes have no kinds (--kinds)"
        raise GraphError(f"{table.name}: no kind {table.kind!r}; {there}")
    ours: Sequence[int] = range(len(nodes))
    if table.kind is not None and kinds is not None:
        ours = np.flatnonzero(kinds == kind_names.index(table.kind)).tolist()
    labels = [str(nodes[node]) for node in ours]
    index = _index(labels, ours)
    at = np.array([index.get(id_, -1) for id_ in table.ids], dtype=np.int64)
    if (at < -1).any():
        both = table.ids[at < -1][0]
        raise GraphError(f"{table.name}: {both!r} is a node of both kinds; say which: --nodes {kind_names[0]}=FILE")
    left = np.flatnonzero(at < 0)
    taken, loose = set(at.tolist()), _index([_plain(label) for label in labels], ours)
    for row in left:
        node = loose.get(_plain(table.ids[row]), -1)
        at[row] = node if node not in taken else -1
    unlike, unknown = int((at[left] >= 0).sum()), len(set(table.ids[at < 0].tolist()))
    if not (at >= 0).any():
        raise GraphError(f"{table.name}: none of its ids is a node: ids like {table.ids[0]!r}, nodes like {labels[:1]}")
    without, all_ids = len(labels) - len(np.unique(at[at >= 0])), len(set(table.ids.tolist()))
    if unlike:
        notes.append(f"{table.name}: ids matched although case or blanks differ: {unlike:,}")
    if unknown:
        notes.append(f"{table.name}: ids that are not in the log, ignored: {unknown:,} of {all_ids:,}")
    if without:
        notes.append(f"{table.name}: nodes without a row, values missing: {without:,} of {len(labels):,}")
    notes += table.notes
    return at


def _index(labels: Sequence[str], nodes: Iterable[int]) -> dict[str, int]:
    """Nodes by label; −2 for a label of several."""
    index: dict[str, int] = {}
    for label, node in zip(labels, nodes, strict=True):
        index[label] = -2 if label in index else node
    return index


def _plain(label: Any) -> str:
    return str(label).strip().casefold()


def _merged(name: str, parts: Sequence[_Rows]) -> tuple[Reals, tuple[str, ...]]:
    """The values of an attribute from all tables, and its categories, numbered alike.  # [R]"""
    if len({bool(part.column.categories) for part in parts}) > 1:
        raise GraphError(f"column {name!r} is a number in one table and a category in another")
    categories = tuple(sorted({text for part in parts for text in part.column.categories}))
    code = {text: float(number) for number, text in enumerate(categories)}
    values = []
    for part in parts:
        here = part.column.values[part.use]
        own = np.array([code[text] for text in part.column.categories])
        values.append(own[here.astype(np.int64)] if categories else here)
    return np.concatenate(values), categories


def _by_step(
    parts: Sequence[_Rows], values: Reals, num_nodes: int, known: Sequence[int], stops: Sequence[int]
) -> list[Reals]:
    """The latest value of each node known at each step, NaN if there is none.  # each [known]"""
    node, time = (np.concatenate([getattr(part, field) for part in parts]) for field in ("node", "time"))
    order = np.argsort(time, kind="stable")
    node, time, values = node[order], time[order], values[order]
    now, first, steps = np.full(num_nodes, np.nan), 0, []
    for number, stop in zip(known, stops, strict=True):
        last = int(np.searchsorted(time, stop))
        now[node[first:last]] = values[first:last]  # the last one wins
        steps.append(now[:number].copy())
        first = last
    return steps


def _numbers(name: str, steps: Sequence[Reals]) -> tuple[list[Reals], list[str]]:
    """Standardise a number; a second column marks missing values if there are any."""
    every = np.concatenate(steps)
    known = ~np.isnan(every)
    largest = float(np.abs(every[known]).max(initial=0.0))
    if largest > HUGE:  # the squares of such numbers overflow
        every, steps = every / largest, [values / largest for values in steps]
    mean, deviation = (float(every[known].mean()), float(every[known].std())) if known.any() else (0.0, 0.0)
    marked = not known.all()
    encoded = []
    for values in steps:
        missing = np.isnan(values)
        number = np.clip((values - mean) / (deviation or 1.0), -MAX_DEVIATIONS, MAX_DEVIATIONS)
        number = np.where(missing, 0.0, number)
        encoded.append(np.column_stack([number, missing]) if marked else number[:, None])
    return encoded, [name, name + MARK] if marked else [name]


def _categories(
    name: str, steps: Sequence[Reals], categories: tuple[str, ...], notes: list[str]
) -> tuple[list[Reals], list[str]]:
    """One column of 0 and 1 per category that occurs; the rarest share one."""
    every = np.concatenate(steps)
    counts = np.bincount(every[~np.isnan(every)].astype(np.int64), minlength=len(categories))
    kept = [number for number in np.argsort(-counts, kind="stable").tolist() if counts[number]]
    pooled = set(kept[MAX_CATEGORIES - 1 :]) if len(kept) > MAX_CATEGORIES else set()
    kept = [number for number in kept if number not in pooled and not (pooled and categories[number] == OTHER)]
    columns = np.full(len(categories), len(kept))
    columns[sorted(kept)] = np.arange(len(kept))
    names = [f"{name}={categories[number]}" for number in sorted(kept)]
    if pooled:
        notes.append(f"column {name!r}: the {len(pooled):,} rarest values count as {name}={OTHER}")
        names.append(f"{name}={OTHER}")
    encoded = []
    for values in steps:
        table = np.zeros((len(values), len(names)))
        there = np.flatnonzero(~np.isnan(values))
        table[there, columns[values[there].astype(np.int64)]] = 1.0
        encoded.append(table)
    return encoded, names
