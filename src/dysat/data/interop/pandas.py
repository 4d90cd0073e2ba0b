"""Convert to and from pandas tables of links and of events. (`read_events` reads a table of events.)"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dysat.data.events import Events
from dysat.data.graph import DynamicGraph
from dysat.data.interop.assemble import assemble
from dysat.data.windows import MAX_SNAPSHOTS, Clock
from dysat.errors import GraphError, listed

if TYPE_CHECKING:
    import pandas as pd


def to_pandas(graph: DynamicGraph) -> pd.DataFrame:
    """Return one row per link: step, start, stop (UTC or steps), source, target, kinds if any, weight, node ids.

    In a directed graph the source sent the link, and a pair that linked both ways has two rows. If the times of events
    are known, `latest` is that of a `Snapshot`: when the last event of the link happened, as a fraction of the window.
    """
    import pandas as pd

    parts = [[column.cpu().numpy() for column in snapshot.pairs()] for snapshot in graph]
    u, v, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    steps = np.repeat(np.arange(len(graph)), [len(part[0]) for part in parts])
    edges = np.array(graph.boundaries)
    window = {name: _times(edges[steps + i], graph.clock) for i, name in enumerate(("start", "stop"))}
    table = pd.DataFrame({"step": steps, **window, "source": graph.nodes[u], "target": graph.nodes[v]})
    if graph.kinds is not None:
        table["source_kind"], table["target_kind"] = (_kinds(graph.kinds[ids], graph.kind_names) for ids in (u, v))
    table = table.assign(weight=weights, source_id=u, target_id=v)
    times = [part.cpu().numpy() for snapshot in graph if (part := snapshot.pair_times()) is not None]
    return table.assign(latest=np.concatenate(times)) if times else table


def from_pandas(table: pd.DataFrame, *, directed: bool = False) -> DynamicGraph:
    """Read one link per row: step, source and target, and the other columns of `to_pandas` if present.

    Rows of the same pair add up, in either direction; without a weight each counts 1. The graph runs from the first
    step to the last; steps without rows share the gap between their neighbours evenly. Nodes that appear in the same
    step are in order of their ids if present, else of kind and label. With `directed`, the source sends the link.
    """
    missing = [name for name in ("step", "source", "target") if name not in table]
    if missing:
        raise GraphError(f"the table has no column {missing[0]!r}; there are {listed(table.columns)}")
    if not len(table) or table["step"].dtype.kind not in "iu":
        raise GraphError(f"a table of {len(table)} rows with steps of type {table['step'].dtype}; whole numbers needed")
    table = table.sort_values("step", kind="stable")
    edges, clock = _table_windows(table)
    keys: list[Any] = _both(table, "")
    names: Iterable[str] = ()
    if {"source_kind", "target_kind"} <= set(table):
        names = getattr(table["source_kind"].dtype, "categories", ())
        keys = list(zip(_both(table, "_kind"), keys, strict=True))
    by_id = {"source_id", "target_id"} <= set(table)
    ranks = _both(table, "_id") if by_id else [_sortable(key) for key in keys]
    nodes = [key for key, _ in sorted(dict(zip(keys, ranks, strict=True)).items(), key=lambda item: item[1])]
    ids = {node: i for i, node in enumerate(nodes)}
    u, v = np.array([ids[key] for key in keys], dtype=np.int64).reshape(2, -1)
    weights = table["weight"].to_numpy() if "weight" in table else np.ones(len(table))
    steps = table["step"].to_numpy(dtype=np.int64)
    cuts = np.searchsorted(steps, steps[0] + np.arange(len(edges)))
    times = table["latest"].to_numpy() if "latest" in table else None
    parts = [(u[a:b], v[a:b], weights[a:b], None if times is None else times[a:b]) for a, b in pairwise(cuts)]
    return assemble(parts, nodes, (edges, clock, names), directed=directed)


def events_to_pandas(events: Events) -> pd.DataFrame:
    """Return one row per event, for `read_events`: src, dst, kinds if any, time (UTC or steps), weight if any."""
    import pandas as pd

    sides = {"src": events.src, "dst": events.dst}
    table = pd.DataFrame({name: events.labels[ids] for name, ids in sides.items()})
    if events.kinds is not None:
        table["src_kind"], table["dst_kind"] = (_kinds(events.kinds[ids], events.kind_names) for ids in sides.values())
    table["time"] = _times(events.time, events.clock)
    return table if events.weight is None else table.assign(weight=events.weight)


def _table_windows(table: pd.DataFrame) -> tuple[list[int], Clock]:
    """Return the windows of all steps; those of steps without rows are interpolated."""
    import pandas as pd

    steps = table["step"].astype("int64")
    if steps.max() - steps.min() >= MAX_SNAPSHOTS:
        raise GraphError(f"steps {steps.min()} to {steps.max()} would make more than {MAX_SNAPSHOTS:,} snapshots")
    clock: Clock = "step"
    starts, stops = steps, steps + 1
    if {"start", "stop"} <= set(table):
        starts, stops = table["start"], table["stop"]
    if starts.dtype.kind not in "iu":
        clock = "utc"
        try:
            starts, stops = (
                pd.to_datetime(x, utc=True, format="ISO8601").dt.as_unit("us").astype("int64") for x in (starts, stops)
            )
        except (TypeError, ValueError) as problem:
            raise GraphError(f"start and stop are neither times nor whole numbers: {problem}") from None
    edges: dict[int, int] = {}
    for step, start, stop in sorted(set(zip(steps.tolist(), starts.tolist(), stops.tolist(), strict=True))):
        if edges.setdefault(step, start) != start or edges.setdefault(step + 1, stop) != stop:
            raise GraphError(f"step {step}: its rows disagree on start and stop, or do not meet the step before")
    filled = []
    for (step, start), (later, stop) in pairwise(sorted(edges.items())):
        filled += [start + (stop - start) * k // (later - step) for k in range(later - step)]
    return [*filled, edges[max(edges)]], clock


def _both(table: pd.DataFrame, suffix: str) -> list[Any]:
    """Return the values of the source column, followed by those of the target column."""
    values: list[Any] = []
    for name in ("source" + suffix, "target" + suffix):
        if table[name].isna().any():
            raise GraphError(f"the table has a row without {name}")
        values += table[name].tolist()
    return values


def _sortable(key: Any) -> tuple[str, str, Any]:
    kind, label = key if isinstance(key, tuple) else ("", key)
    return kind, type(label).__name__, label  # numbers and texts cannot be compared


def _times(moments: NDArray[np.int64], clock: Clock) -> Any:
    import pandas as pd

    return pd.DatetimeIndex(moments.view("datetime64[us]"), tz="UTC") if clock == "utc" else moments


def _kinds(codes: NDArray[np.uint8], names: tuple[str, ...]) -> Any:
    import pandas as pd

    return pd.Categorical.from_codes(codes, pd.Index(names, dtype="str"))
