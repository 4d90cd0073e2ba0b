"""Properties that hold for every list of events, checked on random ones against slow loops."""

from __future__ import annotations

import calendar
import csv
import io
import itertools
import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st

from dysat import DynamicGraph, EventsError, SnapshotsError, build_snapshots, read_events

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
DAY = 86_400 * SECOND
PHASES = (Phase.explicit, Phase.generate)  # add Phase.shrink to make a failing example small
TINY = 5e-324
# Texts that look like something else, and texts that are easily confused with each other.
TRICKY = (
    *("007", "7", "+7", "-7", "-0", "0", "1e3", "1.0", "９", "9223372036854775807", "9223372036854775808", " 7", "7 "),
    *("nan", "NaN", "null", "None", "NA", "true", "2020-01-01", "inf", "#", "%", "# x", "%x", "é", "e\u0301", "\ufeff"),
    *('"', '""', '"a"', "'", "a,b", "a;b", "a|b", "a\tb", "a\nb", "a\r\nb", "\n", " ", "\u2028", "\x85", "\x0b", "\\"),
    *("a", "a ", " a", "A", "\x1f", "\x1c", "\\n", "\\u0061", "{", "[", "😀", "\U0010ffff", "\u200b"),
    *("ISODate(x)", "ObjectId(7)"),
)
LABELS = st.one_of(
    st.sampled_from(TRICKY),
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=6),
    st.integers(-5, 20).map(str),
)
NUMBERS = st.one_of(st.integers(0, 12), st.integers(-(2**63), 2**63 - 1))
WEIGHTS = st.one_of(
    st.sampled_from([1.0, 0.1, 1e9, 1e-12, TINY]),
    st.floats(min_value=1e-300, max_value=1e9),
    st.integers(1, 5).map(float),
)
WIDTHS = ("10d", "30d", "1mo", "2mo", "1q", "1y", timedelta(hours=100), timedelta(days=40, microseconds=1))


def profile(examples=40):
    return settings(
        max_examples=min(examples, settings.default.max_examples),
        derandomize=True,
        deadline=None,
        database=None,
        phases=PHASES,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


def micros(*date):
    return (datetime(*date, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def as_datetime(moment):
    return EPOCH + timedelta(microseconds=moment)


def moments(first_year, months):
    """Moments within some months, often at the start of a day or month, or a microsecond off."""
    firsts = [micros(first_year + m // 12, m % 12 + 1, 1) for m in range(months)]
    days = st.integers(0, (firsts[-1] - firsts[0]) // DAY).map(lambda k: firsts[0] + k * DAY)
    edges = st.tuples(st.one_of(st.sampled_from(firsts), days), st.sampled_from([0, 0, -1, 1])).map(sum)
    return st.one_of(edges, st.integers(firsts[0], firsts[-1]))


@st.composite
def event_rows(draw, labels=None, times=None, weighted=None, most=15):
    """Rows (src, dst, moment, weight or None): few labels and moments, so that links, ties and loops repeat."""
    labels = draw(st.sampled_from([LABELS, NUMBERS])) if labels is None else labels
    names = draw(st.lists(labels, min_size=2, max_size=7, unique=True))
    stamps = draw(st.lists(moments(2019, 17) if times is None else times, min_size=1, max_size=12))
    weight = WEIGHTS if (draw(st.booleans()) if weighted is None else weighted) else st.none()
    row = st.tuples(st.sampled_from(names), st.sampled_from(names), st.sampled_from(stamps), weight)
    return draw(st.lists(row, min_size=2, max_size=most))


def cuts(widths=WIDTHS):
    """Ways to cut: every=, count= or boundaries=, with start and stop for some."""
    ends = st.one_of(st.none(), st.none(), moments(2019, 17).map(as_datetime))
    every = st.fixed_dictionaries({"every": st.sampled_from(widths), "start": ends, "stop": ends})
    count = st.fixed_dictionaries({"count": st.integers(1, 9), "start": ends, "stop": ends})
    edges = st.lists(moments(2019, 17), min_size=2, max_size=8, unique=True).map(sorted)
    return st.one_of(every, count, edges.map(lambda e: {"boundaries": [as_datetime(m) for m in e]}))


def labels_of(column):
    """Texts as objects: NumPy's own text arrays cut off trailing NULs."""
    if isinstance(column[0], int):
        return np.array(column, dtype=np.int64)
    array = np.empty(len(column), dtype=object)
    array[:] = column
    return array


def arrays(rows):
    src, dst, time, weight = zip(*rows, strict=True)
    time = np.array(time, dtype="datetime64[us]")
    parts = (labels_of(src), labels_of(dst), time)
    return parts if weight[0] is None else (*parts, np.array(weight))


def read(rows):
    return read_events(arrays(rows))


def build(rows, **how):
    """The graph, or None if the cut is refused."""
    try:
        return build_snapshots(read(rows), **how)
    except SnapshotsError:
        return None


# --- the slow reference: what the documentation says, in plain loops ---


def slow_rows(rows):
    """Labels that are all whole numbers as a program writes them become numbers, others keep their text."""
    every = [label for row in rows for label in row[:2]]

    def canonical(label):
        if isinstance(label, int):
            return True
        digits = label.removeprefix("-")
        plain = digits.isascii() and digits.isdigit() and label == str(int(label))
        return plain and -(2**63) <= int(label) < 2**63

    if all(canonical(label) for label in every):
        return [(int(u), int(v), at, weight) for u, v, at, weight in rows]
    return [(str(u), str(v), at, weight) for u, v, at, weight in rows]


def slow_month(at, months):
    year, month = divmod(at.year * 12 + at.month - 1 + months, 12)
    day = min(at.day, calendar.monthrange(year, month + 1)[1])
    return at.replace(year=year, month=month + 1, day=day)


def slow_edges(times, every=None, count=None, boundaries=None, start=None, stop=None):
    """The window edges, or None if the cut is refused."""
    if boundaries is not None:
        return [(edge - EPOCH) // timedelta(microseconds=1) for edge in boundaries]
    low, high = (None if end is None else (end - EPOCH) // timedelta(microseconds=1) for end in (start, stop))
    inside = [at for at in times if (low is None or at >= low) and (high is None or at < high)]
    if not inside or (low is not None and high is not None and low >= high):
        return None
    begin = min(inside) if low is None else low
    end = max(inside) + 1 if high is None else high
    if count is not None:
        return None if end - begin < count else [begin + (end - begin) * k // count for k in range(count + 1)]
    months = {"1mo": 1, "2mo": 2, "1q": 3, "1y": 12}.get(every)
    at = as_datetime(begin)
    if months and low is None:
        at = datetime(at.year, {12: 1, 3: (at.month - 1) // 3 * 3 + 1}.get(months, at.month), 1, tzinfo=UTC)
    length = {"10d": timedelta(days=10), "1w": timedelta(weeks=1), "30d": timedelta(days=30)}.get(every, every)
    edges, k = [at], 0
    while edges[-1] < as_datetime(end):
        k += 1
        edges.append(slow_month(at, k * months) if months else at + k * length)
    if high is not None:
        edges[-1] = as_datetime(end)
    return [(edge - EPOCH) // timedelta(microseconds=1) for edge in edges]


def slow_window(edges, at):
    """The window that holds a moment, as a list of one; empty if it lies outside."""
    return [t for t in range(len(edges) - 1) if edges[t] <= at < edges[t + 1]]


def slow_graph(rows, self_loops="drop", **how):
    """Edges, nodes, known and links per window, or None if the cut is refused."""
    rows = slow_rows(rows)
    edges = slow_edges([at for *_, at, _ in rows], **how)
    if edges is None:
        return None
    inside = [row for row in rows if slow_window(edges, row[2])]
    occupied = {slow_window(edges, at)[0] for *_, at, _ in inside}
    if not inside or ("boundaries" not in how and len(occupied) < 2):
        return None
    used = [row for row in inside if self_loops == "keep" or row[0] != row[1]]
    if not used:
        return None
    first = {}
    for u, v, at, _ in used:
        for label in (u, v):
            first[label] = min(at, first.get(label, at))
    nodes = sorted(first, key=lambda label: (first[label], label))
    known = [sum(at < edge for at in first.values()) for edge in edges[1:]]
    links = [defaultdict(list) for _ in known]
    for u, v, at, weight in used:
        links[slow_window(edges, at)[0]][frozenset((u, v))].append(1.0 if weight is None else weight)
    return edges, nodes, known, links, (rows, inside, used)


def slow_times(used, edges, t):
    """For each link of a window, the fraction of the window before its last event."""
    last = {}
    for u, v, at, _ in used:
        if edges[t] <= at < edges[t + 1]:
            last[frozenset((u, v))] = max(at, last.get(frozenset((u, v)), at))
    return {pair: float(np.float32((at - edges[t]) / (edges[t + 1] - edges[t]))) for pair, at in last.items()}


def check_snapshot(s):
    """Rows with links only, in order; neighbours in order; both directions of every link with the same weight."""
    rows, offsets, neighbours = s.rows.tolist(), s.offsets.tolist(), s.neighbours.tolist()
    weights = s.weights.tolist()
    assert s.rows.dtype == s.offsets.dtype == s.neighbours.dtype == torch.int64
    assert s.weights.dtype == torch.float64
    assert len(offsets) == len(rows) + 1 and offsets[0] == 0
    assert offsets[-1] == len(neighbours) == len(weights)
    assert rows == sorted(set(rows))
    entries = {}
    for i, row in enumerate(rows):
        here = slice(offsets[i], offsets[i + 1])
        assert neighbours[here], "an empty row"
        assert neighbours[here] == sorted(set(neighbours[here]))
        entries |= {(row, other): w for other, w in zip(neighbours[here], weights[here], strict=True)}
    assert len(entries) == len(neighbours)
    for (u, v), weight in entries.items():
        assert 0 <= u < s.num_nodes and 0 <= v < s.num_nodes
        assert entries[v, u] == weight and 0 < weight < float("inf")
    assert s.num_links == len({frozenset(pair) for pair in entries})
    assert s.num_self_loops == sum(u == v for u, v in entries)
    return entries


def dense(s, size):
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for (u, v), weight in check_snapshot(s).items():
        matrix[u, v] = weight
    return matrix


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for files, without fsync, which would take longer than everything else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield tmp_path_factory.mktemp("properties")


# --- properties ---


@profile(80)
@given(event_rows(), cuts(), st.sampled_from(["keep", "drop"]))
def test_graph_equals_the_slow_reference(rows, how, self_loops):
    expected = slow_graph(rows, self_loops, **how)
    if expected is None:
        with pytest.raises(SnapshotsError):
            build_snapshots(read(rows), self_loops=self_loops, **how)
        return
    edges, nodes, known, links, (all_, inside, used) = expected
    graph = build_snapshots(read(rows), self_loops=self_loops, **how)
    assert list(graph.boundaries) == edges
    assert graph.nodes.tolist() == nodes
    assert [type(label) for label in graph.nodes.tolist()] == [type(label) for label in nodes]
    assert list(graph.known) == known
    weights, sums = [], []
    for t, s in enumerate(graph):
        entries = check_snapshot(s)
        found = {frozenset((nodes[u], nodes[v])): weight for (u, v), weight in entries.items()}
        assert found.keys() == links[t].keys()
        weights += found.values()
        sums += [sum(links[t][pair]) for pair in found]
        last = {(u, v): at for (u, v), at in zip(entries, s.latest.tolist(), strict=True)}
        assert {frozenset((nodes[u], nodes[v])): at for (u, v), at in last.items()} == slow_times(used, edges, t)
        assert all(last[v, u] == at for (u, v), at in last.items())
    torch.testing.assert_close(np.array(weights), np.array(sums), rtol=1e-13, atol=0)
    report = graph.report
    assert (report.events, report.used) == (len(all_), len(used))
    assert report.before == sum(at < edges[0] for *_, at, _ in all_)
    assert report.after == sum(at >= edges[-1] for *_, at, _ in all_)
    assert report.self_loops == sum(u == v for u, v, *_ in inside)
    assert report.self_loops_kept == (self_loops == "keep")
    dropped = 0 if report.self_loops_kept else report.self_loops
    assert report.used + report.before + report.after + dropped == report.events


@profile()
@given(event_rows(), st.sampled_from(WIDTHS))
def test_total_weight_is_preserved(rows, every):
    events = read(rows)
    total = sum(1.0 if weight is None else weight for *_, weight in rows)
    torch.testing.assert_close(events.total_weight, total, rtol=1e-13, atol=0)
    loops = sum(1.0 if weight is None else weight for u, v, _, weight in rows if u == v)
    links = [weight for u, v, _, weight in rows if u != v]
    kept = build(rows, every=every, self_loops="keep")
    assume(kept is not None)
    weight = sum(s.total_weight for s in kept)
    if links and links[0] is None:
        assert weight == events.total_weight == len(rows)
    torch.testing.assert_close(weight, events.total_weight, rtol=1e-13, atol=0)
    if links:
        dropped = build_snapshots(events, every=every, self_loops="drop")
        expected = sum(1.0 if weight is None else weight for weight in links)
        torch.testing.assert_close(sum(s.total_weight for s in dropped), expected, rtol=1e-13, atol=0)
        torch.testing.assert_close(expected + loops, total, rtol=1e-13, atol=0)


@profile()
@given(event_rows(), cuts(), st.sampled_from(["keep", "drop"]), st.randoms(use_true_random=False))
def test_order_of_rows_and_direction_change_nothing(rows, how, self_loops, chance):
    graph = build(rows, self_loops=self_loops, **how)
    assume(graph is not None)
    shuffled = chance.sample(rows, len(rows))
    assert build(shuffled, self_loops=self_loops, **how).equals(graph)
    turned = [(v, u, at, w) if chance.random() < 0.5 else (u, v, at, w) for u, v, at, w in shuffled]
    turned_graph = build(turned, self_loops=self_loops, **how)
    assert turned_graph.equals(graph)
    assert turned_graph.report == graph.report


@profile(30)
@given(event_rows(), st.sampled_from(["keep", "drop"]), st.randoms(use_true_random=False))
def test_order_of_rows_changes_nothing_in_bipartite_data(rows, self_loops, chance):
    """Kinds keep the columns apart, so no event is a self-loop."""

    def build_kinds(rows):
        events = read_events(arrays(rows), kinds=("user", "item"))
        return build_snapshots(events, boundaries=["2018-01-01", "2019-08-03", "2021-01-01"], self_loops=self_loops)

    graph = build_kinds(rows)
    assert build_kinds(chance.sample(rows, len(rows))).equals(graph)
    assert graph.report.self_loops == 0 and graph.report.used == len(rows)
    first = {}
    for u, v, at, _ in slow_rows(rows):
        for node in ((0, u), (1, v)):
            first[node] = min(at, first.get(node, at))
    expected = sorted(first, key=lambda node: (first[node], *node))
    assert list(zip(graph.kinds.tolist(), graph.nodes.tolist(), strict=True)) == expected
    for s in graph:
        for u, v in check_snapshot(s):
            assert graph.kinds[u] != graph.kinds[v]


@profile()
@given(event_rows(weighted=True), st.data())
def test_events_of_weight_zero_are_ignored(rows, data):
    graph = build(rows, count=2)
    assume(graph is not None)
    idle = data.draw(event_rows(labels=LABELS if isinstance(rows[0][0], str) else NUMBERS, weighted=True, most=4))
    idle = [(rows[0][0], v, at, 0.0) for _, v, at, _ in idle]
    assert build([*idle, *rows], count=2).equals(graph)


SPANS = {
    "recent": (moments(2019, 17), ("10d", "1w", "1mo", "1q", "1y", timedelta(hours=100))),
    "before 1970": (moments(1851, 17), ("10d", "1mo", "2mo", "1q", "1y")),
    "years": (moments(1999, 200), ("1y", "1q", "5y", "200d")),
    "microseconds": (st.integers(0, 200).map(lambda k: micros(2020, 2, 29) + k), ("7us", "1us", "13us", "1ms")),
}


@pytest.mark.parametrize("span", SPANS)
@profile(30)
@given(kind=st.sampled_from(["every", "count"]), data=st.data())
def test_windows_partition_time(span, kind, data):
    times, widths = SPANS[span]
    rows = data.draw(event_rows(labels=NUMBERS, times=times, weighted=False))
    chosen = st.sampled_from(widths) if kind == "every" else st.integers(1, 12)
    graph = build(rows, self_loops="keep", **{kind: data.draw(chosen)})
    assume(graph is not None)
    edges = graph.boundaries
    stamps = [at for *_, at, _ in rows]
    assert all(before < after for before, after in itertools.pairwise(edges))
    assert edges[0] <= min(stamps) < edges[1] and edges[-2] <= max(stamps) < edges[-1]
    widths = [after - before for before, after in itertools.pairwise(edges)]
    if kind == "count":
        assert max(widths) - min(widths) <= 1
        assert (edges[0], edges[-1]) == (min(stamps), max(stamps) + 1)
    counts = [0] * len(graph)
    for at in stamps:
        (window,) = slow_window(edges, at)
        counts[window] += 1
    assert [s.total_weight for s in graph] == counts
    assert [(s.start, s.stop) for s in graph] == list(itertools.pairwise(edges))


@profile()
@given(event_rows(labels=NUMBERS), st.lists(moments(2019, 17), min_size=2, max_size=9, unique=True))
def test_boundaries_partition_time(rows, edges):
    edges = sorted(edges)
    inside = [row for row in rows if edges[0] <= row[2] < edges[-1]]
    graph = build(rows, boundaries=[as_datetime(m) for m in edges], self_loops="keep")
    assert (graph is None) == (not inside)
    if graph is not None:
        assert list(graph.boundaries) == edges
        active = [set() for _ in graph]
        for u, v, at, _ in inside:
            (window,) = slow_window(edges, at)
            active[window] |= {u, v}
        assert [set(graph.nodes[s.rows.numpy()].tolist()) for s in graph] == active


@profile()
@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(-20, 20)), min_size=2, max_size=20), st.integers(1, 7))
def test_steps_partition_time(rows, every):
    events = read_events(tuple(map(np.array, zip(*rows, strict=True))), time_unit="step")
    first, last = min(row[2] for row in rows), max(row[2] for row in rows)
    if last - first < every:
        with pytest.raises(SnapshotsError, match="one window"):
            build_snapshots(events, every=every, self_loops="keep")
        return
    graph = build_snapshots(events, every=every, self_loops="keep")
    counts = [0] * ((last - first) // every + 1)
    for *_, at in rows:
        counts[(at - first) // every] += 1
    assert [s.total_weight for s in graph] == counts
    assert graph.boundaries == tuple(first + k * every for k in range(len(counts) + 1))


@profile(25)
@given(event_rows(), st.integers(0, 2), st.booleans(), st.data())
def test_load_returns_what_was_saved(folder, rows, width, with_kinds, data):
    graph = build(rows, count=3, self_loops="keep")
    assume(graph is not None)
    values = np.random.default_rng(width).normal(size=(graph.num_nodes, width)).astype(np.float32)
    if data.draw(st.booleans(), label="features"):
        per_snapshot = data.draw(st.booleans(), label="per snapshot")
        graph = graph.with_features([values[:n] for n in graph.known] if per_snapshot else values)
    if with_kinds:
        graph = graph.with_kinds(np.arange(graph.num_nodes) % 3, ["person", "paper", 'a "third"\n'])
    graph.save(folder / "graph", overwrite=True)
    for verify in (True, False):
        for mmap in (True, False):
            again = DynamicGraph.load(folder / "graph", verify=verify, mmap=mmap)
            assert again.equals(graph)
            assert again.nodes.tolist() == graph.nodes.tolist() and again.nodes.dtype == graph.nodes.dtype
            assert again.kind_names == graph.kind_names and again.clock == graph.clock
            assert (again.report, again.notes) == (graph.report, graph.notes)
            assert (again.features is None) == (graph.features is None)
            assert isinstance(again.features, tuple) == isinstance(graph.features, tuple)
            if graph.features is not None:
                torch.testing.assert_close(again.features, graph.features, rtol=0, atol=0)


@profile()
@given(event_rows(), cuts(), st.sampled_from(["keep", "drop"]))
def test_a_slice_is_the_graph_of_its_own_events(rows, how, self_loops):
    graph = build(rows, self_loops=self_loops, **how)
    assume(graph is not None)
    events, edges = read(rows), [as_datetime(edge) for edge in graph.boundaries]
    for t in range(1, len(graph) + 1):
        if graph.known[t - 1] == 0 or (t > 1 and graph[t - 1].num_links == 0 and t < len(graph)):
            continue  # nothing yet, or nothing new
        past, stop = graph[:t], edges[t]
        again = build_snapshots(events.between(stop=stop), boundaries=edges[: t + 1], self_loops=self_loops)
        assert again.equals(past)
        assert again.nodes.tolist() == past.nodes.tolist()
        early = [row for row in rows if row[2] < graph.boundaries[t]]
        # The type of labels depends on all rows: "7" alone is a number, with "a" it is a text.
        if len(early) >= 2 and type(slow_rows(early)[0][0]) is type(slow_rows(rows)[0][0]):
            assert build(early, boundaries=edges[: t + 1], self_loops=self_loops).equals(past)


@profile()
@given(event_rows(), st.data())
def test_between_gives_the_graph_of_its_own_events(rows, data):
    first, last = sorted(data.draw(st.tuples(moments(2019, 17), moments(2019, 17))))
    inside = [row for row in rows if first <= row[2] < last]
    part = read(rows).between(as_datetime(first), as_datetime(last))
    assert len(part) == len(inside)
    assume(len(inside) >= 2 and type(slow_rows(inside)[0][0]) is type(slow_rows(rows)[0][0]))
    boundaries = [as_datetime(first), as_datetime(last)]
    expected = build(inside, boundaries=boundaries, self_loops="keep")
    assert build_snapshots(part, boundaries=boundaries, self_loops="keep").equals(expected)


@profile()
@given(event_rows(), st.sampled_from(["1q", "30d"]), st.sampled_from(["keep", "drop"]))
def test_aggregate_is_the_sum_of_dense_matrices(rows, every, self_loops):
    graph = build(rows, every=every, self_loops=self_loops)
    assume(graph is not None)
    whole = graph.aggregate()
    expected = sum((dense(s, graph.num_nodes) for s in graph), torch.zeros(1, dtype=torch.float64))
    torch.testing.assert_close(dense(whole, graph.num_nodes), expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(expected, expected.T, rtol=1e-13, atol=0)
    assert (whole.start, whole.stop, whole.num_nodes) == (graph.boundaries[0], graph.boundaries[-1], graph.num_nodes)


def write_csv(file, names, rows, separator, line_end):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator=line_end)
    writer.writerows([names, *rows])
    file.write_bytes(text.getvalue().encode())


def write_json(file, names, rows, ascii):
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=ascii) for row in rows]
    file.write_bytes("".join(line + "\n" for line in lines).encode())


def write_mongo(file, names, rows, ascii):
    texts = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=ascii, indent=2) for row in rows]
    file.write_bytes("\n".join(texts).encode())


def write_file(file, kind, rows):
    """Write rows as a file of one kind; text files have ISO times."""
    names = ["src", "dst", "time", "weight"][: 3 if rows[0][3] is None else 4]
    rows = [(u, v, as_datetime(at).replace(tzinfo=None), w)[: len(names)] for u, v, at, w in rows]
    texts = [(u, v, at.isoformat(), *map(repr, rest)) for u, v, at, *rest in rows]
    numbers = [(u, v, at.isoformat(), *rest) for u, v, at, *rest in rows]
    if kind in ("csv", "semicolon", "pipe", "tsv"):
        mark = {"csv": ",", "semicolon": ";", "pipe": "|", "tsv": "\t"}[kind]
        write_csv(file, names, texts, mark, "\r\n" if kind == "csv" else "\n")
    elif kind.startswith("json"):
        write_json(file, names, numbers, ascii=kind == "json ascii")
    elif kind == "mongo":
        write_mongo(file, names, numbers, ascii=False)
    else:
        pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None).write_parquet(file)


KINDS = {
    "csv": ".csv",
    "semicolon": ".csv",
    "pipe": ".csv",
    "tsv": ".tsv",
    "parquet": ".parquet",
    "json": ".jsonl",
    "json ascii": ".jsonl",
    "mongo": ".json",
}


@pytest.mark.parametrize("kind", KINDS)
@profile(12)
@given(rows=event_rows(most=10))
def test_files_give_the_same_graph_as_arrays(folder, kind, rows):
    graph = build_snapshots(read(rows), boundaries=["2018-01-01", "2019-08-03", "2021-01-01"], self_loops="keep")
    file = folder / f"events{KINDS[kind]}"
    write_file(file, kind, rows)
    weight = None if rows[0][3] is None else "weight"
    events = read_events(file, weight=weight)
    assert events.labels.tolist() == read(rows).labels.tolist()
    again = build_snapshots(events, boundaries=["2018-01-01", "2019-08-03", "2021-01-01"], self_loops="keep")
    assert again.equals(graph)


@pytest.mark.parametrize("kind", KINDS)
def test_odd_labels_survive_files(folder, kind):
    for label in ("a\rb", "\r", "a\0", "\0", "a\0b", "a\r", "\u2028", "\x85", "ISODate(x)", "007"):
        rows = [(label, "a", micros(2020, 1, 1), None), ("b", "a\nb", micros(2020, 1, 2), None)]
        file = folder / f"odd{KINDS[kind]}"
        write_file(file, kind, rows)
        assert read_events(file).labels.tolist() == [*sorted([label, "a"]), *sorted(["b", "a\nb"])]


@profile(80)
@given(st.lists(st.one_of(LABELS, NUMBERS.map(str)), min_size=2, max_size=12, unique=True), st.booleans())
@example(["007", "7"], False)
@example(["7", "-7"], False)
@example(["-0", "0"], False)
@example(["9223372036854775807", "-9223372036854775808"], False)
@example(["9223372036854775808", "1"], False)
@example(["a\0", "a"], False)
@example(["a\0", "a"], True)
@example(["a\r\n", "a\n"], True)
def test_labels_survive(labels, as_list):
    """All events have the same time, so that nodes are sorted by label."""
    src, dst = labels, labels[1:] + labels[:1]
    rows = [(u, v, micros(2020, 1, 1), None) for u, v in zip(src, dst, strict=True)]
    expected = sorted({label for row in slow_rows(rows) for label in row[:2]})
    stamps = ["2020-01-01"] * len(src)
    source = (src, dst, stamps) if as_list else (labels_of(src), labels_of(dst), stamps)
    events = read_events(source)
    assert events.labels.tolist() == expected
    assert {type(label) for label in events.labels.tolist()} == {type(expected[0])}
    graph = build_snapshots(events, boundaries=["2019-01-01", "2021-01-01"])
    assert graph.nodes.tolist() == expected
    assert [str(label) for label in graph.nodes] == sorted(map(str, labels), key=expected[0].__class__)
    ids = graph.ids(expected)
    np.testing.assert_array_equal(ids, np.arange(len(expected)))


@profile()
@given(st.lists(st.integers(-(2**64), 2**64), min_size=2, max_size=8, unique=True))
@example([2**63, -1])
@example([2**63, 2**63 + 1])
@example([2**53 + 1, 2**53])
def test_whole_numbers_as_labels_survive_or_are_refused(labels):
    """Beyond 64 bits a number may become text or be refused, but never become another number."""
    src, dst = labels, labels[1:] + labels[:1]
    try:
        events = read_events((src, dst, ["2020-01-01"] * len(labels)))
    except EventsError:
        assert not all(-(2**63) <= label < 2**63 for label in labels)
        return
    assert sorted(int(label) for label in events.labels.tolist()) == sorted(labels)


def test_a_large_shuffle_changes_nothing():
    """Enough labels that the hash table has to grow."""
    rng = np.random.default_rng(0)
    number = 40_000
    for names in (rng.integers(-(2**62), 2**62, 9_000), np.array([f"n{i}" for i in range(9_000)], dtype=object)):
        src, dst = names[rng.integers(0, 9_000, number)], names[rng.integers(0, 9_000, number)]
        time = np.datetime64("2020-01-01", "us") + rng.integers(0, 4_000, number) * np.timedelta64(1, "h")
        weight = rng.exponential(size=number)
        graph = build_snapshots(read_events((src, dst, time, weight)), every="10d", self_loops="keep")
        order = rng.permutation(number)
        shuffled = read_events((dst[order], src[order], time[order], weight[order]))
        assert build_snapshots(shuffled, every="10d", self_loops="keep").equals(graph)
        assert set(graph.nodes.tolist()) == set(src.tolist()) | set(dst.tolist())
        torch.testing.assert_close(sum(s.total_weight for s in graph), float(weight.sum()), rtol=1e-12, atol=0)
