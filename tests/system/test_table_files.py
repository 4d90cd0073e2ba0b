"""Tables on disk: round trips with all kinds of labels, through Polars and through pyarrow."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from dysat.errors import GraphError
from dysat.system import table_files as tables
from dysat.system.table_files import write_table

ODD = ["ann", "b,c", 'say "hi"', "line\nbreak", "zoë", "", "007", " "]


def parts(nodes: Any, width: int = 3) -> list[dict[str, Any]]:
    """Two steps; the last node is not known in the first one."""
    rng = np.random.default_rng(0)
    found = []
    for step, known in ((0, len(nodes) - 1), (4, len(nodes))):
        values = rng.normal(size=(known, width)).astype(np.float32)
        found.append({"node": nodes[:known], "step": step, "embedding": values})
    return found


LABELS = {
    "int": np.array([5, -3, 2**62, 0], dtype=np.int64),
    "str": np.array(ODD, dtype=object),
    "fixed": np.array(["ann", "bob", "zoë"]),
    "list": ["ann", "bob", "cy"],
}


@pytest.fixture(params=LABELS)
def table(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return parts(LABELS[str(request.param)])


def test_parquet(table: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    assert write_table(table, file) == sum(len(part["node"]) for part in table)
    frame = pl.read_parquet(file)
    assert frame.columns == ["node", "step", "embedding"]
    assert frame["node"].dtype == (pl.Int64 if isinstance(table[0]["node"][0], np.int64) else pl.String)
    assert frame["node"].to_list() == [label for part in table for label in list(part["node"])]
    assert frame["step"].to_list() == [part["step"] for part in table for _ in part["node"]]
    assert frame["embedding"].dtype == pl.Array(pl.Float32, 3)
    np.testing.assert_array_equal(frame["embedding"].to_numpy(), np.concatenate([part["embedding"] for part in table]))


def test_pyarrow_writes_the_same_table(
    table: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(table, tmp_path / "polars.parquet")
    full = [tables._filled(part) for part in table]
    tables._write_with_arrow(full, str(tmp_path / "arrow.parquet"))
    assert_frame_equal(pl.read_parquet(tmp_path / "arrow.parquet"), pl.read_parquet(tmp_path / "polars.parquet"))
    monkeypatch.setitem(sys.modules, "polars", None)  # importing it fails
    write_table(table, tmp_path / "without.parquet")
    assert (tmp_path / "without.parquet").read_bytes() == (tmp_path / "arrow.parquet").read_bytes()


def test_csv(table: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "e.csv"
    assert write_table(table, file) == sum(len(part["node"]) for part in table)
    with open(file, encoding="utf-8", newline="") as lines:
        head, *rows = csv.reader(lines)
    assert head == ["node", "step", "embedding_0", "embedding_1", "embedding_2"]
    assert [row[0] for row in rows] == [str(label) for part in table for label in list(part["node"])]
    assert [int(row[1]) for row in rows] == [part["step"] for part in table for _ in part["node"]]
    values = np.array([row[2:] for row in rows], dtype=np.float32)  # nine digits restore every bit
    np.testing.assert_array_equal(values, np.concatenate([part["embedding"] for part in table]))


NO_NODES = {"step": 0, "embedding": np.zeros((0, 3), dtype=np.float32)}  # a step in which no node is known


@pytest.mark.parametrize(
    ("name", "labels"),
    [("e.parquet", "int"), ("e.csv", "int"), ("e.csv", "str"), ("e.parquet", "str")],
)
def test_a_step_without_nodes_has_no_rows(name: str, labels: str, tmp_path: Path) -> None:
    nodes = LABELS[labels]
    assert write_table([{"node": nodes[:0], **NO_NODES}, *parts(nodes)], tmp_path / name) == 2 * len(nodes) - 1
    write_table(parts(nodes), tmp_path / f"without-{name}")
    assert (tmp_path / name).read_bytes() == (tmp_path / f"without-{name}").read_bytes()


@pytest.mark.parametrize("name", ["e.parquet", "e.csv"])
def test_a_single_text_fills_its_column(name: str, tmp_path: Path) -> None:
    assert write_table([{**part, "kind": "user"} for part in parts(LABELS["int"])], tmp_path / name) == 7
    frame = pl.read_parquet(tmp_path / name) if name == "e.parquet" else pl.read_csv(tmp_path / name)
    assert frame["kind"].to_list() == ["user"] * 7 and frame["node"].to_list() == [5, -3, 2**62, 5, -3, 2**62, 0]


def test_a_write_replaces_the_file_and_leaves_no_other(tmp_path: Path) -> None:
    for name in ("e.parquet", "e.csv"):
        (tmp_path / name).write_text("before")
        write_table(parts(LABELS["int"]), tmp_path / name)
        assert (tmp_path / name).read_bytes()[:6] != b"before"
    assert {file.name for file in tmp_path.iterdir()} == {"e.parquet", "e.csv"}


def test_files_have_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_table(parts(LABELS["int"]), tmp_path / "e.csv")
    assert (tmp_path / "e.csv").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    for name in ("e.txt", "e", "e.CSV", "e.parquet.gz", "csv"):
        with pytest.raises(GraphError, match=rf"{name}: tables are written as \.parquet, \.csv or \.jsonl$"):
            write_table(parts(LABELS["int"]), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["e.parquet", "e.csv"])
def test_a_failed_write_leaves_the_old_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_text("before")

    def full(parts: Any, file: str) -> None:
        Path(file).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "_write_parquet", full)
    monkeypatch.setattr(tables, "_write_csv", full)
    with pytest.raises(
        GraphError, match=rf"{name}: cannot be written: No space left on device \(.* needed, .* free\)$"
    ):
        write_table(parts(LABELS["int"]), tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == [name] and (tmp_path / name).read_text() == "before"
    with pytest.raises(GraphError, match="cannot be written: No such file or directory"):
        write_table(parts(LABELS["int"]), tmp_path / "missing" / name)


def test_columns_can_have_any_name_and_single_values(tmp_path: Path) -> None:
    table = [{"node": ["a", "b"], "degree": np.array([1, 2]), "step": 1, "score": 0.5}]
    assert write_table(table, tmp_path / "e.csv") == 2
    assert (tmp_path / "e.csv").read_text() == "node,degree,step,score\na,1,1,0.5\nb,2,1,0.5\n"


@pytest.mark.parametrize("name", ["e.parquet", "e.csv", "e.jsonl"])
def test_flags_and_moments(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs read true and false as such; moments of a Parquet file are in UTC, with Polars or without."""
    part: dict[str, Any] = {"node": np.array(ODD, dtype=object), "known": np.arange(len(ODD)) % 2 == 0}
    if name == "e.parquet":
        part["start"] = np.full(len(ODD), np.datetime64("2024-05-01T12:30", "us"))
    assert write_table([part], tmp_path / name) == len(ODD)
    read = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".jsonl": pl.read_ndjson}[Path(name).suffix]
    frame = read(tmp_path / name)
    assert frame["known"].to_list() == part["known"].tolist()
    assert frame["node"].fill_null("").to_list() == ODD
    if name == "e.parquet":
        assert frame["start"].dtype == pl.Datetime("us", "UTC") and frame["start"][0].minute == 30
        monkeypatch.setitem(sys.modules, "polars", None)
        write_table([part], tmp_path / "arrow.parquet")
        monkeypatch.undo()
        assert_frame_equal(pl.read_parquet(tmp_path / "arrow.parquet"), frame)


def test_json_lines_have_embeddings_as_lists(tmp_path: Path) -> None:
    table = parts(LABELS["int"])
    assert write_table(table, tmp_path / "e.jsonl") == 7
    first = pl.read_ndjson(tmp_path / "e.jsonl").row(0, named=True)
    assert first["node"] == 5 and first["embedding"] == pytest.approx(table[0]["embedding"][0].tolist())
