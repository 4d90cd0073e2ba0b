"""Tables of node attributes: columns, types, missing values, and errors of one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import dysat
from dysat.errors import EventsError

PEOPLE = """email,department,age,boss,joined,name
ann,sales,31,true,2020-01-01,Ann A.
bob,sales,,false,2020-03-01,Bob B.
cy,it,45,false,NA,Cy C.
dee,,28.5,true,2021-01-01,Dee D.
"""


@pytest.fixture
def people(tmp_path: Path) -> Path:
    file = tmp_path / "people.csv"
    file.write_text(PEOPLE)
    return file


def known(table: dysat.NodeTable, name: str) -> list[Any]:
    """The values of a column as a person would write them, None if missing."""
    values, categories = table.columns[name]
    return [None if np.isnan(v) else categories[int(v)] if categories else float(v) for v in values]


def test_columns_are_categories_or_numbers(people: Path) -> None:
    table = dysat.read_nodes(people, id="email")
    assert known(table, "department") == ["sales", "sales", "it", None]
    assert known(table, "age") == [31, None, 45, 28.5]
    assert known(table, "boss") == [1, 0, 0, 1]
    days = np.diff(table.columns["joined"].values[[0, 1]]) / 86_400e6
    assert days == [60] and known(table, "joined")[2] is None
    assert table.notes == (f"{people}: column 'name' is left out: 4 texts, all of different nodes",)
    shown = "NodeTable: 4 nodes; department (2 categories, 25 % missing), age (number, 25 % missing), boss (number), "
    assert repr(table) == f"{shown}joined (number, 25 % missing)"


@pytest.mark.parametrize("form", ["parquet", "jsonl", "polars", "pandas"])
def test_all_sources_give_the_same(people: Path, tmp_path: Path, form: str) -> None:
    frame = pl.read_csv(people, null_values=["", "NA"])
    source: Any = tmp_path / f"people.{form}"
    if form == "parquet":
        frame.write_parquet(source)
    elif form == "jsonl":
        frame.write_ndjson(source)
    else:
        source = frame if form == "polars" else frame.to_pandas()
    table, expected = dysat.read_nodes(source), dysat.read_nodes(people)
    assert table.ids.tolist() == expected.ids.tolist() == ["ann", "bob", "cy", "dee"]
    assert list(table.columns) == list(expected.columns)
    for name in expected.columns:
        assert known(table, name) == known(expected, name)


def test_chosen_columns_are_used_as_asked() -> None:
    columns = {"id": [1, 2, 3], "team": [7, 8, 7], "name": ["a", "b", "c"], "price": ["1,5", "2,0", "-"]}
    table = dysat.read_nodes(columns, columns=["team:category", "name", "price"])
    assert known(table, "team") == ["7", "8", "7"] and known(table, "name") == ["a", "b", "c"]
    assert known(table, "price") == [1.5, 2.0, None]
    assert known(dysat.read_nodes(columns), "team") == [7, 8, 7]


def test_free_text_and_constants_are_left_out() -> None:
    ids = list(range(60))
    texts = [f"note {i % 40}" for i in ids]
    table = dysat.read_nodes({"id": ids, "note": texts, "city": [f"c{i % 20}" for i in ids], "land": ["x"] * 60})
    assert list(table.columns) == ["city"]
    assert table.notes == (
        "table: column 'note' is left out: 40 different texts for 60 nodes",
        "table: column 'land' is left out: it has the same value everywhere",
    )


@pytest.mark.parametrize(
    ("columns", "how", "message"),
    [
        ({"who": [1], "age": [2]}, {}, "table: which column has the ids (--node-id)? There are who, age"),
        ({"id": [1], "age": [2]}, {"id": "ID"}, "table: no column 'ID' for ids; there are id, age; did you mean 'id'?"),
        ({"id": [1, 2], "age": [1, 2]}, {"columns": ["agee"]}, "table: no column 'agee' for an attribute; there are"),
        ({"id": [1, 2], "age": [1, 2]}, {"columns": ["id"]}, "table: column 'id' has the ids or times, and cannot be"),
        ({"id": [1, 1], "age": [3, 4]}, {}, "table: '1' has two rows that differ in 'age'; if values change over time"),
        (
            {"id": [1, 2], "age": [None, None]},
            {},
            "table: has no attributes: column 'age' is left out: it has no values",
        ),
        ({"id": [1, 2]}, {}, "table: has no attributes, only ids"),
        ({"id": [0.5], "age": [1]}, {}, "table: column 'id' holds 0.5; ids are texts or whole numbers"),
        ({"id": [" ", ""], "age": [1, 2]}, {}, "table: column 'id' has no ids"),
        ({"id": [1], "age": [1], "at": ["soon"]}, {"time": "at"}, "table: time 'soon' is not a date or a number"),
    ],
    ids=str,
)
def test_errors_are_one_line(columns: dict[str, list[Any]], how: dict[str, Any], message: str) -> None:
    with pytest.raises(EventsError) as problem:
        dysat.read_nodes(columns, **how)
    assert str(problem.value).startswith(message) and "\n" not in str(problem.value)


def test_a_repeated_row_is_fine() -> None:
    table = dysat.read_nodes({"id": [1, 1, 2], "age": [3.0, 3.0, None], "size": [None, None, 5]})
    assert len(table) == 3
