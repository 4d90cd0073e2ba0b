"""Logs that are cut on a Ray cluster become the same graph folders, byte for byte, as on one machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from logs import contents, made_up, named, written

from dysat.data import on_cluster
from dysat.data.on_cluster import cut_on_cluster
from dysat.data.on_disk import cut_on_disk
from dysat.errors import DysatError, EventsError, GraphError
from dysat.system.extras import is_installed
from dysat.system.parallel.cluster import cluster

pytestmark = pytest.mark.skipif(
    not is_installed("ray"), reason="needs ray"
)  # which must not be imported before its token
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def ray(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One Ray for all tests, with the modules of this checkout."""
    with cluster(cpus=2) as module:
        yield module


@pytest.fixture(autouse=True)
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and cells so small that every small log has several of them."""
    monkeypatch.setattr(on_cluster, "LEAST", 9)
    monkeypatch.setattr(on_cluster, "MOST", 25)
    monkeypatch.setattr(on_cluster, "ENTRIES", 30)


def assert_same(sources: Path | list[Path], one: Path, **how: Any) -> None:
    """A cluster cuts `sources` into the graph folder that one machine makes of `one`."""
    here = one.parent
    expected = cut_on_disk(one, here / "disk", overwrite=True, **how)
    found = cut_on_cluster(sources, here / "cluster", overwrite=True, **how)
    assert contents(here / "cluster") == contents(here / "disk")
    assert found.equals(expected) and (found.notes, found.report) == (expected.notes, expected.report)


def but(row: int, value: Any, column: pl.Expr) -> pl.Expr:
    """The column with another value in one row."""
    return pl.when(pl.int_range(pl.len()) == row).then(pl.lit(value)).otherwise(column)


TEXTS = made_up().with_columns(pl.col("src", "dst").map_elements(named, return_dtype=pl.String))
NUMBERS = made_up().with_columns(pl.col("src", "dst").cast(pl.String))
SECONDS = pl.col("time").dt.epoch("s")
ONE_FRACTION = but(50, "1704500000.75", SECONDS.cast(pl.String))


def quick(names: Iterable[str], number: int) -> list[Any]:
    """All of these, those after the first few as slow tests."""
    return [name if i < number else pytest.param(name, marks=pytest.mark.slow) for i, name in enumerate(names)]


LOGS: dict[str, tuple[pl.DataFrame, dict[str, Any]]] = {
    "numbers": (made_up(), {}),
    "sorted": (made_up(order="sorted"), {}),
    "texts": (TEXTS, {}),
    "one text": (NUMBERS.with_columns(src=but(50, "é", pl.col("src"))), {}),
    "number texts": (NUMBERS, {}),
    "weights": (
        made_up(400, nodes=4).with_columns(weight=np.random.default_rng(1).lognormal(size=400)),
        {"weight": "weight", "every": "2w"},
    ),
    "directed": (made_up(400, nodes=4), {"weight": "weight", "directed": True}),
    "self-loops": (made_up(), {"self_loops": "keep", "weight": "weight"}),
    "two kinds": (made_up(), {"kinds": ("user", "item")}),
    "two kinds of texts": (TEXTS, {"kinds": ("user", "item"), "normalise_labels": True}),
    "ties": (made_up(200, nodes=90).with_columns(time=pl.col("time").dt.truncate("10d")), {"every": "10d"}),
    "epoch numbers": (made_up().with_columns(time=SECONDS), {}),
    "texts of fractions": (made_up().with_columns(time=ONE_FRACTION), {}),
    "empty windows": (
        made_up(),
        {"every": None, "boundaries": [f"{day}-01" for day in ("2023-01", "2023-02", "2024-02", "2025-01")]},
    ),
    "between": (made_up(), {"every": "3d", "start": "2024-01-10", "stop": "2024-01-25T12:00"}),
    "weights of 0": (
        made_up().with_columns(weight=pl.col("weight").round(0) - 1),
        {"weight": "weight", "negative_weights": "abs"},
    ),
}


@pytest.mark.parametrize("name", quick(LOGS, 2))
def test_logs(ray: Any, tmp_path: Path, name: str) -> None:
    table, how = LOGS[name]
    file = written(table, tmp_path / "log.parquet")
    assert_same(file, file, **{"every": "1w", **how})


@pytest.mark.slow
def test_csv(ray: Any, tmp_path: Path) -> None:
    text = written(made_up(order="sorted"), tmp_path / "log.csv").read_text().splitlines()
    text[5], text[20], text[40] = ",3,2024-01-02,1", "", "3,4,soon,1"
    (tmp_path / "log.csv").write_text("\n".join(text) + "\n\n")
    assert_same(tmp_path / "log.csv", tmp_path / "log.csv", every="1w", bad_rows="skip")


def test_several_csv_files_are_one_log(ray: Any, tmp_path: Path) -> None:
    table = TEXTS
    parts = [table[:20], table[20:21], table[:0], table[21:]]
    files = [written(part, tmp_path / f"{i}.csv{'.gz' * (i == 1)}") for i, part in enumerate(parts)]
    assert_same(files, written(table, tmp_path / "log.csv"), every="1w", weight="weight")
    part = written(table[:5].rename({"dst": "to"}), tmp_path / "4.csv")
    with pytest.raises(EventsError, match=rf"^{part}: no column 'dst', which {files[0]} has$"):
        cut_on_cluster([*files, part], tmp_path / "g", every="1w")
    assert not (tmp_path / "g").exists()


@pytest.mark.slow
def test_parquet_files_and_folders(ray: Any, tmp_path: Path) -> None:
    (tmp_path / "parts" / "more").mkdir(parents=True)
    tables = [made_up(30, seed=1), made_up(0, seed=3), made_up(30, seed=2).with_columns(pl.col("src").cast(pl.Int32))]
    names = ["a.parquet", "b.parquet", "more/c.parquet"]
    files = [written(table, tmp_path / "parts" / name) for table, name in zip(tables, names, strict=True)]
    assert_same(tmp_path / "parts", tmp_path / "parts", every="1w")
    assert_same(files, tmp_path / "parts", every="1w")
    assert_same([files[0], files[1].parent / "more"], tmp_path / "parts", every="1w")


@pytest.mark.slow
@pytest.mark.parametrize("bipartite", [True, False])
def test_notes_on_two_kinds(ray: Any, tmp_path: Path, bipartite: bool) -> None:
    rng = np.random.default_rng(3)
    src, dst = rng.integers(1, 31, 600), rng.integers(1, 91 if bipartite else 31, 600)
    table = pl.DataFrame({"user": src, "movie": dst, "time": 1_700_000_000 + 3600 * np.arange(600)})
    for part, name in ((table, "log.csv"), (table[:250], "a.csv"), (table[250:], "b.csv")):
        part.write_csv(tmp_path / name, include_header=False)
    how: dict[str, Any] = {"src": "1", "dst": "2", "time": "3", "header": False, "every": "1w"}
    assert_same([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "log.csv", **how)


def test_cells_cover_every_window_and_node_once() -> None:
    counts, known = np.array([3, 0, 40, 5, 5, 90, 0]), [4, 4, 9, 9, 10, 12, 12]
    cells = on_cluster._cells(counts, np.cumsum([50, 1, 30, 9, 90, 1, 1, 8, 20, 3, 3, 70]), known)
    windows = [cell.first + i for cell in cells for i in range(cell.stop - cell.first)]
    assert sorted(set(windows)) == list(range(7)) and windows == sorted(windows)
    for window in range(7):
        ranges = [cell.nodes for cell in cells if cell.first <= window < cell.stop]
        if ranges != [None]:
            assert all(r is not None for r in ranges) and [r[0] for r in ranges[1:]] == [r[1] for r in ranges[:-1]]
            assert (ranges[0][0], ranges[-1][1]) == (0, known[window])
    assert [len([c for c in cells if c.first == w]) for w in (2, 5)] == [
        3,
        4,
    ]  # the first node has a quarter of all entries


# ---- errors ----


WRONG: dict[str, tuple[pl.DataFrame, str, dict[str, Any]]] = {
    "a time": (made_up().with_columns(time=but(50, "soon", pl.col("time").cast(pl.String))), "csv", {}),
    "a row": (made_up().with_columns(src=but(41, None, pl.col("src"))), "parquet", {}),
    "negative": (made_up().with_columns(weight=-1.0), "parquet", {"weight": "weight"}),
    "one event": (made_up(1), "parquet", {}),
    "no event": (made_up(0), "parquet", {}),
    "no rows": (made_up(0), "csv", {}),
    "a unit": (made_up().with_columns(time=SECONDS), "parquet", {"time_unit": "ns"}),
    "numbers": (made_up().with_columns(time=SECONDS // 10**6), "parquet", {}),
    "implausible": (made_up().with_columns(time=pl.col("time").dt.offset_by("-3000y")), "parquet", {}),
    "one window": (made_up(), "parquet", {"every": "10y"}),
    "nothing left": (made_up(), "parquet", {"start": "2030-01-01"}),
    "only loops": (made_up().with_columns(dst="src"), "parquet", {}),
    "too much weight": (made_up().with_columns(weight=1.7e308), "parquet", {"weight": "weight"}),
    "split": (made_up(), "csv", {"split_dst": ";"}),
    "directed kinds": (made_up(), "csv", {"kinds": ("a", "b"), "directed": True}),
    "a column": (made_up(), "csv", {"src": "who"}),
}


@pytest.mark.parametrize("name", quick(WRONG, 2))
def test_errors_are_those_of_one_machine(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)  # the names of files are relative to it
    table, suffix, how = WRONG[name]
    file, how = written(table, Path(f"log.{suffix}")), {"every": "1w", **how}
    with pytest.raises(DysatError) as expected:
        cut_on_disk(file, "disk", **how)
    with pytest.raises(type(expected.value)) as found:
        cut_on_cluster(file, "cluster", **how)
    assert str(found.value) == str(expected.value)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.slow
def test_files_that_do_not_fit_each_other_are_refused(ray: Any, tmp_path: Path) -> None:
    a, b = written(made_up(), tmp_path / "a.parquet"), written(made_up(), tmp_path / "b.csv")
    with pytest.raises(EventsError, match=rf"^{b}: has another format than {a}; give Parquet files or CSV files"):
        cut_on_cluster([a, b], tmp_path / "g", every="1w")
    with pytest.raises(EventsError, match=rf"^{a}: is given twice$"):
        cut_on_cluster([a, a], tmp_path / "g", every="1w")
    with pytest.raises(EventsError, match=r"c\.parquet: no such file"):
        cut_on_cluster([a, tmp_path / "c.parquet"], tmp_path / "g", every="1w")
    texts = written(TEXTS, tmp_path / "c.parquet")
    with pytest.raises(EventsError, match=rf"^{a} and 1 more: cannot be read as events: data type mismatch"):
        cut_on_cluster([a, texts], tmp_path / "g", every="1w")
    assert not (tmp_path / "g").exists()


@pytest.mark.slow
def test_a_machine_without_the_file_is_named(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(made_up(), tmp_path / "log.parquet")
    elsewhere = on_cluster._Job.parts

    def lost(job: Any, *given: Any) -> Any:
        return [on_cluster.replace(p, files=(Path("/nowhere/log.parquet"),)) for p in elsewhere(job, *given)]

    monkeypatch.setattr(on_cluster._Job, "parts", lost)
    with pytest.raises(EventsError, match=r"^/nowhere/log.parquet: is not there on .*; put it on a disk that all"):
        cut_on_cluster(file, tmp_path / "g", every="1w")


@pytest.mark.slow
def test_a_full_disk_leaves_nothing(
    ray: Any, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(20_000)
    table = pl.DataFrame({"src": rows % 97, "dst": rows % 89, "time": 1_700_000_000 + 60 * rows})
    file = written(table, tmp_path / "log.parquet")
    for name in ("LEAST", "MOST", "ENTRIES"):
        monkeypatch.setattr(on_cluster, name, 1 << 14)
    with pytest.raises(GraphError, match=r"cannot be written: No space left on device \(.* needed, .*kB free\)"):
        cut_on_cluster(file, small_disk / "graph", every="1d")
    assert list(small_disk.iterdir()) == []


def test_command(ray: Any, tmp_path: Path, cli: Cli) -> None:
    files = [written(made_up(30, seed=i), tmp_path / f"{i}.parquet") for i in range(2)]
    out, advice = ("--every", "1w", "-o", tmp_path / "g"), "give it to dysat fit, with the graph folder"
    code, shown, error = cli("snapshots", *files, *out, "--engine", "ray")
    assert code == 0 and "written to" in shown, error
    assert_same(
        files, written(pl.concat([made_up(30, seed=i) for i in range(2)]), tmp_path / "one.parquet"), every="1w"
    )
    assert contents(tmp_path / "g") == contents(tmp_path / "disk")
    with_ray = (files[0], *out, "--overwrite", "--engine", "ray")
    for more, said in (
        ((*files, *out), "several files need --engine ray; on one machine, give a folder of Parquet files"),
        ((files[0], *out, "--address", "auto"), "--address auto needs --engine ray"),
        ((*with_ray, "--on-disk"), "--engine ray cannot be used with --on-disk"),
        ((files[0], "--every", "1w", "--engine", "ray"), "--engine ray needs --out, the folder to write the graph to"),
        ((*with_ray, "--nodes", files[0]), f"--nodes cannot be used with --engine ray; {advice}"),
    ):
        assert cli("snapshots", *more) == (2, "", f"dysat: {said}\n")


# ---- machines that are lost ----


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["reading", "cutting", "writing"])
def test_a_lost_machine_does_not_change_the_graph(tmp_path: Path, stage: str) -> None:
    rng = np.random.default_rng(5)
    src, dst, weight = rng.integers(0, 5000, 200_000), rng.integers(0, 5000, 200_000), rng.lognormal(size=200_000)
    time = 1_700_000_000 + rng.integers(0, 26 * 7 * 86400, 200_000)
    written(pl.DataFrame({"src": src, "dst": dst, "time": time, "weight": weight}), tmp_path / "log.parquet")
    cut_on_disk(tmp_path / "log.parquet", tmp_path / "disk", every="4w", weight="weight")
    script = Path(__file__).parents[1] / "support" / "lost_machine.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path, stage], check=False, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0 and (tmp_path / "lost").exists(), done.stderr
    assert contents(tmp_path / stage) == contents(tmp_path / "disk")
