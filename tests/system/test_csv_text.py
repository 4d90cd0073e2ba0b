"""CSV that Python, pandas and Polars read alike, without formulas unless asked for."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile_text
import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from run_folders import quick

import dysat
from dysat.errors import GraphError
from dysat.system.table_files import write_table
from dysat.system.text.csv_text import csv_field, csv_text

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
LABELS = [
    *hostile_text.LABELS,
    "",
    " ",
    "x ",
    "a\r\nb",
    "\r",
    "007",
    "\x0b",
    '"',
    "'",
    "''",
    "'+",
    "＝x",
    "\tx",
    "plain",
]
FORMULAS = {"=cmd()", "+1+1", "-2", "@SUM(A1)", "'=quoted", "'+", "＝x", "\r", "\tx"}


def with_python(file: Path) -> list[str]:
    with open(file, encoding="utf-8", newline="") as lines:
        return [row["node"] for row in csv.DictReader(lines)]


def with_pandas(file: Path) -> list[str]:
    pd = pytest.importorskip("pandas")
    return list(pd.read_csv(file, dtype=str, keep_default_na=False)["node"])


def with_polars(file: Path) -> list[str]:
    return pl.read_csv(file, infer_schema=False)["node"].to_list()


def table(labels: list[str]) -> dict[str, Any]:
    return {"node": np.array(labels, dtype=object), "step": 3, "embedding": -np.ones((len(labels), 2), np.float32)}


@pytest.mark.parametrize("read", [with_python, with_pandas, with_polars])
def test_readers_agree(read: Callable[[Path], list[str]], tmp_path: Path) -> None:
    file = tmp_path / "e.csv"
    write_table([table(LABELS)], file, raw_labels=True)
    assert read(file) == LABELS
    write_table([table(LABELS)], file)
    assert read(file) == [f"'{label}" if label in FORMULAS else label for label in LABELS]
    assert file.read_text().count(",-1,-1\n") == len(LABELS)  # numbers have no apostrophe


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
@example(["'=a", "=a", "''=a"])
def test_different_texts_stay_different(texts: list[str]) -> None:
    for raw in (True, False):
        text = csv_text(["node", "x"], ([one, 1] for one in texts), raw=raw)
        found = [row[0] for row in csv.reader(io.StringIO(text, newline=""))][1:]
        assert len(found) == len(texts) and len(set(found)) == len(set(texts))
        assert [one[0:1] not in "=+-@\t\r\n" for one in found if one] == [True] * sum(map(bool, found)) or raw
        assert not raw or found == texts


def test_numbers_and_missing_values() -> None:
    assert csv_text(["a", "b", "c"], [(-1, -0.5, None), (True, "", "x")]) == 'a,b,c\n-1,-0.5,\nTrue,"",x\n'
    assert csv_field(np.int64(-3)) == "-3"


def test_parquet_and_json_lines_keep_labels(tmp_path: Path) -> None:
    for ending in ("parquet", "jsonl"):
        file = tmp_path / f"e.{ending}"
        write_table([table(LABELS)], file)
        read = pl.read_parquet(file)["node"].to_list() if ending == "parquet" else None
        lines = [] if read else file.read_text().removesuffix("\n").split("\n")
        assert (read or [json.loads(line)["node"] for line in lines]) == LABELS
        with pytest.raises(GraphError, match=r"raw labels are a choice of \.csv"):
            write_table([table(LABELS)], file, raw_labels=True)
    hostile_text.check_output((tmp_path / "e.jsonl").read_text())


def test_json_lines_are_strict(tmp_path: Path) -> None:
    part = {"node": ["a", "b"], "embedding": np.array([[1, np.nan], [np.inf, -np.inf]], np.float32)}
    write_table([part], tmp_path / "e.jsonl")
    text = (tmp_path / "e.jsonl").read_text()
    assert text == '{"node": "a", "embedding": [1.0, null]}\n{"node": "b", "embedding": [null, null]}\n'


def test_commands(cli: Cli, tmp_path: Path) -> None:
    """embed and forecast write a row per node, with and without apostrophes, and dysat reads the file back."""
    log, run = hostile_text.write_log(tmp_path / "log.csv", range(3)), tmp_path / "run"
    assert cli("fit", log, "-o", run, *hostile_text.READ, "--epochs", "1", "--no-backtest", "--device", "cpu")[0] == 0
    nodes = set(hostile_text.LABELS)
    escaped = {f"'{label}" if label in FORMULAS else label for label in nodes}
    for flags, expected in (((), escaped), (("--raw-labels",), nodes)):
        assert cli("embed", run, "-o", tmp_path / "e.csv", *flags)[0] == 0
        for reader in (with_python, with_pandas, with_polars):
            found = reader(tmp_path / "e.csv")
            assert len(found) == len(nodes) and set(found) == expected
        assert cli("forecast", run, "--each", "--top", "5", "-o", tmp_path / "f.csv", *flags)[0] == 0
        assert len(with_pandas(tmp_path / "f.csv")) == 5 * len(nodes)
        again = dysat.read_events(tmp_path / "f.csv", "node", "partner", "window_start", at_least=1)
        assert set(again.labels.tolist()) <= expected and len(again) == 5 * len(nodes)
    code, _, err = cli("embed", run, "-o", tmp_path / "e.parquet", "--raw-labels")
    assert code == 2 and "raw labels are a choice of .csv" in err
    code, _, err = cli("forecast", run, "--raw-labels")
    assert code == 2 and err == "dysat: --raw-labels needs -o and a .csv file\n"
