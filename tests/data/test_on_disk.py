"""Logs that are cut on disk become the same graph folders, byte for byte, as in memory."""

from __future__ import annotations

import itertools
import re
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from logs import contents, made_up, named, written
from run_folders import die_at, in_process

import dysat
from dysat.data import on_disk
from dysat.data.on_disk import cut_on_disk
from dysat.data.reading import sources
from dysat.errors import DysatError, EventsError, GraphError, SnapshotsError
from dysat.system.writing import PREFIX, sweep_once

WINDOWS = ("every", "boundaries", "count", "start", "stop", "self_loops", "directed")


@pytest.fixture(autouse=True)
def pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pieces so small that every small log has many of them."""
    monkeypatch.setattr(sources, "BATCH", 7)
    monkeypatch.setattr(on_disk, "RECORDS", 5)
    monkeypatch.setattr(on_disk, "ENTRIES", 6)
    return


def assert_same(file: Path, **how: Any) -> dysat.DynamicGraph:
    """Both ways write the same folder; returns the graph."""
    windows = {name: how.pop(name) for name in WINDOWS if name in how}
    here = file.parent
    expected = dysat.build_snapshots(dysat.read_events(file, **how), **windows)
    expected.save(here / "memory", overwrite=True)
    found = cut_on_disk(file, here / "disk", **windows, overwrite=True, **how)
    assert contents(here / "disk") == contents(here / "memory")
    assert found.equals(expected) and (found.notes, found.report) == (expected.notes, expected.report)
    assert found.timed == (found.clock == "utc")
    return found


# ---- logs ----


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.csv.gz"])
@pytest.mark.parametrize("order", ["sorted", "shuffled"])
@pytest.mark.parametrize("labels", ["numbers", "texts"])
def test_files(tmp_path: Path, name: str, order: str, labels: str) -> None:
    table = made_up(order=order)
    if labels == "texts":
        table = table.with_columns(pl.col("src", "dst").map_elements(named, return_dtype=pl.String))
    graph = assert_same(written(table, tmp_path / name), every="1w")
    assert (
        graph.report is not None
        and graph.report.self_loops > 0
        and (graph.nodes.dtype == object) == (labels == "texts")
    )


@pytest.mark.parametrize(
    "entries", [pytest.param(1, marks=pytest.mark.slow), 6, pytest.param(40, marks=pytest.mark.slow), 10**6]
)
@pytest.mark.parametrize("how", [{}, {"directed": True}, {"self_loops": "keep"}, {"kinds": ("user", "item")}], ids=str)
def test_sums_of_weights_have_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], entries: int
) -> None:
    """A pair has up to 50 events, so that the order of summation shows."""
    monkeypatch.setattr(on_disk, "ENTRIES", entries)
    table = made_up(400, nodes=4).with_columns(weight=np.random.default_rng(1).lognormal(size=400))
    graph = assert_same(written(table, tmp_path / "log.parquet"), weight="weight", every="2w", **how)
    assert max(s.weights.max() for s in graph) > 15 and graph.directed == ("directed" in how)


@pytest.mark.parametrize(
    "windows",
    [
        {"every": "10d"},
        {"every": "1mo"},
        {"count": 5},
        {"every": "3d", "start": "2024-01-10"},
        {"every": "3d", "stop": "2024-01-25T12:00"},
        {"count": 4, "start": "2024-01-05", "stop": "2024-01-30"},
        {"boundaries": ["2024-01-03", "2024-01-04", "2024-01-29"]},
        {"boundaries": ["2023-01-01", "2023-02-01", "2024-01-20", "2025-01-01"], "self_loops": "keep"},
    ],
    ids=str,
)
@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_windows(tmp_path: Path, windows: dict[str, Any], order: str) -> None:
    assert_same(written(made_up(order=order), tmp_path / "log.parquet"), **windows)


def as_seconds(scale: float) -> pl.Expr:
    return (pl.col("time").dt.epoch("us") / 1e6 * scale).cast(pl.Int64)


TIMES: dict[str, tuple[pl.Expr, dict[str, Any]]] = {
    "date": (pl.col("time").dt.date(), {}),
    "local": (pl.col("time").dt.replace_time_zone(None), {"timezone": "America/New_York"}),
    "zoned": (pl.col("time").dt.convert_time_zone("Asia/Tokyo"), {}),
    "ns": (pl.col("time").cast(pl.Datetime("ns", "UTC")), {}),
    "seconds": (as_seconds(1), {}),
    "milliseconds": (as_seconds(1e3), {}),
    "stated": (as_seconds(1e6), {"time_unit": "us"}),
    "fractions": (as_seconds(1) + 0.25, {}),
    "one fraction": (pl.when(pl.int_range(pl.len()) == 50).then(0.5).otherwise(0) + as_seconds(1), {}),
    "steps": (as_seconds(1 / 86400), {"time_unit": "step"}),
    "pattern": (pl.col("time").dt.strftime("%d.%m.%Y %H:%M"), {"time_format": "%d.%m.%Y %H:%M"}),
    "compact": (pl.col("time").dt.strftime("%Y%m%d").cast(pl.Int64), {"time_format": "%Y%m%d"}),
    "iso": (pl.col("time").dt.strftime("%Y-%m-%dT%H:%M:%SZ"), {}),
    "rfc": (pl.col("time").dt.strftime("%a, %d %b %Y %H:%M:%S +0100"), {}),
    "mixed": (
        pl.when(pl.int_range(pl.len()) % 3 == 0)
        .then(pl.col("time").dt.strftime("%Y-%m-%d"))
        .otherwise(pl.col("time").dt.strftime("%Y-%m-%d %H:%M")),
        {},
    ),
    "number texts": (as_seconds(1).cast(pl.String) + " ", {}),
    "texts of fractions": (
        pl.when(pl.int_range(pl.len()) == 50).then(pl.lit("1704500000.75")).otherwise(as_seconds(1).cast(pl.String)),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        pytest.param(name, suffix, marks=[pytest.mark.slow] * (number % 2 == odd))  # each form once in `make test`
        for number, name in enumerate(TIMES)
        for odd, suffix in enumerate(["parquet", "csv"])
    ],
)
def test_times(tmp_path: Path, name: str, suffix: str) -> None:
    expression, how = TIMES[name]
    if name == "compact" and suffix == "csv":
        pytest.skip("the same texts as in a pattern")
    file = written(made_up().with_columns(time=expression), tmp_path / f"log.{suffix}")
    assert_same(file, every=7 if name == "steps" else "1w", **how)


LABELS: dict[str, tuple[tuple[Any, Any], dict[str, Any]]] = {
    "beyond 64 bits": ((pl.col("src").cast(pl.UInt64) + 2**63 - 5, pl.col("dst").cast(pl.UInt64)), {}),
    "within 64 bits": ((pl.col("src").cast(pl.UInt64), pl.col("dst").cast(pl.Int8)), {}),
    "floats": ((pl.col("src").cast(pl.Float64), pl.col("dst").cast(pl.Float32)), {}),
    "a number and a text": ((pl.col("src"), pl.col("dst").cast(pl.String)), {}),
    "leading zeros": ((pl.col("src").cast(pl.String), "0" + pl.col("dst").cast(pl.String)), {}),
    "categories": ((pl.col("src").cast(pl.String).cast(pl.Categorical), pl.col("dst").cast(pl.String)), {}),
    "negative": ((pl.col("src") - 5, pl.col("dst")), {}),
    "kinds": ((pl.col("src"), pl.col("dst")), {"kinds": ("user", "item")}),
    "text kinds": (("u" + pl.col("src").cast(pl.String), "u" + pl.col("dst").cast(pl.String)), {"kinds": ("a", "b")}),
    "normalised": (
        (pl.col("src").map_elements(named, return_dtype=pl.String), pl.col("dst").cast(pl.String)),
        {"normalise_labels": True},
    ),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels(tmp_path: Path, name: str) -> None:
    (src, dst), how = LABELS[name]
    assert_same(written(made_up().with_columns(src=src, dst=dst), tmp_path / "log.parquet"), every="1w", **how)


def test_both_nodes_in_one_column(tmp_path: Path) -> None:
    table = made_up().select(pair=pl.format("{}>{}", "src", "dst"), time="time")
    assert_same(written(table, tmp_path / "log.csv"), src="pair", pair_separator=">", every="1w")


def test_a_folder_of_parts(tmp_path: Path) -> None:
    (tmp_path / "parts" / "more").mkdir(parents=True)
    written(made_up(20, seed=1), tmp_path / "parts" / "a.parquet")
    written(made_up(20, seed=2).with_columns(pl.col("src").cast(pl.Int32)), tmp_path / "parts" / "more" / "b.parquet")
    assert_same(tmp_path / "parts", every="1w")


@pytest.mark.parametrize("fate", ["abs", "drop", "clip"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_notes_on_weights(tmp_path: Path, fate: str, suffix: str) -> None:
    table = made_up().with_columns(weight=pl.col("weight").round(0) - 1)
    graph = assert_same(written(table, tmp_path / f"log.{suffix}"), weight="weight", every="1w", negative_weights=fate)
    assert any("of weight 0 were left out" in note for note in graph.notes)
    table = table.with_columns(weight=-pl.col("weight"))
    graph = assert_same(
        written(table, tmp_path / f"log.{suffix}"), weight="weight", every="1w", negative_weights=fate
    ) if fate == "abs" else graph  # fmt: skip
    assert fate != "abs" or any("negative weights were made positive" in note for note in graph.notes)


def test_bad_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    text = written(made_up(order="sorted"), tmp_path / "log.csv").read_text().splitlines()
    text[5], text[20], text[40] = ",3,2024-01-02,1", "", "3,4,soon,1"
    (tmp_path / "log.csv").write_text("\n".join(text) + "\n\n")
    graph = assert_same(tmp_path / "log.csv", every="1w", bad_rows="skip")
    assert "2 of 59 rows could not be read and were skipped" in graph.notes


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("bipartite", [True, False])
def test_notes_on_two_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bool, bipartite: bool) -> None:
    """Numbers from 1 to different ends in a file without names, which differ from links in both directions."""
    monkeypatch.setattr(on_disk, "RECORDS", 100)
    monkeypatch.setattr(on_disk, "ENTRIES", 200)
    monkeypatch.setattr(sources, "BATCH", 150)
    rng = np.random.default_rng(3)
    src, dst = rng.integers(1, 31, 600), rng.integers(1, 91 if bipartite else 31, 600)
    table = pl.DataFrame({"user": src, "movie": dst, "time": 1_700_000_000 + 3600 * np.arange(600)})
    table.write_csv(tmp_path / "log.csv", include_header=header)
    how = {"src": "user", "dst": "movie"} if header else {"src": "1", "dst": "2", "time": "3", "header": False}
    graph = assert_same(tmp_path / "log.csv", every="1w", **how)
    assert any("are taken for the same nodes" in note for note in graph.notes) == (header or bipartite)


@pytest.mark.parametrize("seed", range(6))
def test_many_small_logs(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    rows, nodes = int(rng.integers(2, 40)), int(rng.integers(2, 12))
    table = made_up(rows, nodes, seed)
    how: dict[str, Any] = {"self_loops": rng.choice(["keep", "drop"]), "directed": bool(rng.integers(2))}
    assert_same(written(table, tmp_path / "log.parquet"), boundaries=["2024-01-01", "2024-01-15", "2024-03-01"], **how)


# ---- errors ----


def failing(table: pl.DataFrame, suffix: str = "csv", **how: Any) -> tuple[pl.DataFrame, str, dict[str, Any]]:
    return table, suffix, how


WRONG = {
    "a time": failing(made_up().with_columns(time=pl.lit("soon"))),
    "no width": failing(made_up(), every=None),
    "too narrow": failing(made_up(), every="1s"),
    "one window": failing(made_up(), every="10y"),
    "nothing left": failing(made_up(), start="2030-01-01"),
    "outside": failing(made_up(), every=None, boundaries=["2020-01-01", "2021-01-01"]),
    "only loops": failing(made_up().with_columns(dst="src")),
    "directed kinds": failing(made_up(), kinds=("a", "b"), directed=True),
    "one event": failing(made_up(1)),
    "a column": failing(made_up(), src="who"),
    "negative": failing(made_up().with_columns(weight=-1.0), "parquet", weight="weight"),
    "implausible": failing(made_up().with_columns(time=pl.col("time").dt.offset_by("-3000y")), "parquet"),
    "a unit": failing(made_up().with_columns(time=as_seconds(1)), "parquet", time_unit="ns"),
    "a zone": failing(made_up(), timezone="Atlantis"),
    "self_loops": failing(made_up(), self_loops="maybe"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_those_of_the_other_way(tmp_path: Path, name: str) -> None:
    table, suffix, how = WRONG[name]
    file, how = written(table, tmp_path / f"log.{suffix}"), {"every": "1w", **how}
    with pytest.raises(DysatError) as expected:
        assert_same(file, **how)
    with pytest.raises(type(expected.value)) as found:
        cut_on_disk(file, tmp_path / "disk", **how)
    assert str(found.value) == str(expected.value)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_what_needs_the_whole_log_is_refused(tmp_path: Path) -> None:
    file = written(made_up(), tmp_path / "log.csv")
    advice = "cannot be cut on disk; .* read .*in memory"
    with pytest.raises(EventsError, match="split_dst= cannot be cut on disk; read the log in memory"):
        cut_on_disk(file, tmp_path / "g", every="1w", split_dst=";")
    made_up().with_columns(pl.col("time").cast(pl.String)).write_ndjson(tmp_path / "log.jsonl")
    with pytest.raises(EventsError, match=f"log.jsonl: jsonl {advice}"):
        cut_on_disk(tmp_path / "log.jsonl", tmp_path / "g", every="1w")
    (tmp_path / "old.csv").write_bytes("src,dst,time\né,b,2024-01-01\n".encode("cp1252") * 9)
    with pytest.raises(EventsError, match=f"old.csv: cp1252 {advice}"):
        cut_on_disk(tmp_path / "old.csv", tmp_path / "g", every="1w")
    text = file.read_text().splitlines()
    text[30] = text[30].rpartition(",")[0] + ',"2,5"'
    file.write_text("\n".join(text))
    with pytest.raises(EventsError, match=r"log\.csv, line 31: weight '2,5' is not a plain number; state decimal="):
        cut_on_disk(file, tmp_path / "g", every="1w", weight="weight")
    assert not (tmp_path / "g").exists()


# ---- disks and kills ----


def test_a_full_disk_leaves_nothing(small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_disk, "RECORDS", 1 << 12)
    monkeypatch.setattr(on_disk, "ENTRIES", 1 << 20)
    monkeypatch.setattr(sources, "BATCH", 1 << 12)
    rows = np.arange(20_000)
    table = pl.DataFrame({"src": rows % 97, "dst": rows % 89, "time": 1_700_000_000 + 60 * rows})
    file = written(table, tmp_path / "log.parquet")
    with pytest.raises(GraphError) as problem:
        cut_on_disk(file, small_disk / "graph", every="1d")
    wanted = f"{small_disk}: not enough room on the disk (320.0 kB needed for temporary files, "
    assert str(problem.value).startswith(wanted) and "kB free); choose a folder on a larger disk" in str(problem.value)
    for part, size in (("events", 12_000), ("graph", 8_000)):
        with pytest.raises(GraphError, match=r"cannot be written: No space left on device \(.* needed, .*kB free\)"):
            monkeypatch.setattr(on_disk, "_check_disk", lambda *_: None)
            shorter = written(table.head(20_000 if part == "events" else size), tmp_path / "log.parquet")
            cut_on_disk(shorter, small_disk / "graph", every="1d")
        assert list(small_disk.iterdir()) == []


def cut_with_small_files(file: Path, folder: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    wanted = rf"^{re.escape(str(folder))}: cannot be written: File too large$"
    with pytest.raises(GraphError, match=wanted):
        cut_on_disk(file, folder, every="1w")


@pytest.mark.slow
def test_a_file_that_may_not_grow_leaves_nothing(tmp_path: Path) -> None:
    """As on a full disk, but for everybody: the system ends writes after a number of bytes."""
    file = written(made_up(400), tmp_path / "log.parquet")
    assert in_process(cut_with_small_files, file, tmp_path / "graph") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def cut_and_die(file: Path, folder: Path, number: int) -> None:
    die_at(number, str(folder.parent))
    cut_on_disk(file, folder, every="1w", overwrite=True)


@pytest.mark.slow
def test_a_killed_cut_leaves_the_old_graph_and_nothing_else(tmp_path: Path) -> None:
    file, place = written(made_up(), tmp_path / "log.parquet"), tmp_path / "place"
    place.mkdir()
    old = dysat.build_snapshots(dysat.read_events(file), every="2w")
    new = dysat.build_snapshots(dysat.read_events(file), every="1w").fingerprint
    old.save(place / "graph")
    kills = 0
    for number in itertools.count(1, 4):
        code = in_process(cut_and_die, file, place / "graph", number)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
        sweep_once.cache_clear()
        cut_on_disk(file, place / "other", every="1w", overwrite=True)  # the next write removes what is left
        assert [path.name for path in place.iterdir() if path.name.startswith(PREFIX)] == []
        assert dysat.DynamicGraph.load(place / "graph").fingerprint in (old.fingerprint, new)
    assert kills > 3 and dysat.DynamicGraph.load(place / "graph").fingerprint == new


def test_a_folder_that_exists_is_kept(tmp_path: Path) -> None:
    file = written(made_up(), tmp_path / "log.parquet")
    cut_on_disk(file, tmp_path / "graph", every="1w")
    with pytest.raises(GraphError, match="exists already"):
        cut_on_disk(file, tmp_path / "graph", every="2w")
    with pytest.raises(SnapshotsError):
        cut_on_disk(file, tmp_path / "graph", every="2h30", overwrite=True)
    assert len(dysat.DynamicGraph.load(tmp_path / "graph")) == 6
