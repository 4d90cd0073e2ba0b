"""The rows of the paper's tables: models, presets, names and published values."""

from __future__ import annotations

from pathlib import Path

import pytest

from dysat.errors import ModelError
from dysat.experiments.evaluate.request import Request
from dysat.experiments.paper.catalogue import (
    ABLATIONS,
    BASELINES,
    BOOSTING,
    DATASETS,
    DYSAT,
    HEADS,
    HEURISTICS,
    INCSAT,
    KEYS,
    ROWS,
    STUDIES,
    TARGETS,
    Row,
    heads_row,
    row_keys,
)  # fmt: skip

SHARED = Path(__file__).resolve().parents[4] / "shared" / "published.toml"


def test_catalogue_has_nine_methods_and_eleven_heuristics() -> None:
    assert len({row.published for row in (BASELINES | DYSAT).values()}) == 9
    assert len(HEURISTICS) == 11
    assert BOOSTING in HEURISTICS
    assert len(TARGETS) == 11


@pytest.mark.parametrize(
    ("row", "method", "preset"),
    [
        ("dysat", "dysat", "sankar2019_uci"),
        ("dysat-text", "dysat", "sankar2019_text_uci"),
        ("graphsage", "graphsage", "sankar2019_uci"),
        ("graphsage-gat", "graphsage", "sankar2019_gat_uci"),
        ("dynamic-triad", "dynamic-triad", "sankar2019_uci"),
        ("dyngem", "dyngem", "sankar2019_uci"),
        ("dysat-text-no-temporal", "dysat", "sankar2019_text_uci"),
        ("incsat", "incsat", "sankar2019_uci"),
    ],
)
def test_rows_have_method_and_preset(row: str, method: str, preset: str) -> None:
    contender = ROWS[row].contender("uci")
    assert (contender.method, contender.preset) == (method, preset)


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_row_can_be_built_for_every_dataset(dataset: str) -> None:
    for row in (
        *ROWS.values(),
        *(heads_row(block, heads)[1] for block in ("structural", "temporal") for heads in HEADS),
    ):
        assert row.contender(dataset).build().method == row.method


def test_names_of_dysat_rows_say_the_preset() -> None:
    named = {name: key for name, key in KEYS.items() if name != key}
    assert named == {
        "dysat:program": "dysat",
        "dysat:text": "dysat-text",
        "dysat:program-no-structural": "dysat-no-structural",
        "dysat:program-no-temporal": "dysat-no-temporal",
        "dysat:text-no-structural": "dysat-text-no-structural",
        "dysat:text-no-temporal": "dysat-text-no-temporal",
    }
    assert sorted(KEYS.values()) == sorted(ROWS) and {ROWS[key].name for key in named.values()} == set(named)
    assert row_keys(["dysat:text", "gcn-ae"]) == ["dysat-text", "gcn-ae"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dysat", "no method 'dysat': the default model is not in the paper; use dysat:program or dysat:text"),
        ("dysat-text", "no method 'dysat-text'; there are .*; did you mean 'dysat:text'?"),
        ("dyszt", "no method 'dyszt'; there are node2vec, .*; did you mean 'dysat:program' or 'dysat:text'?"),
    ],
)
def test_bare_dysat_and_unknown_names_raise(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=f"^{message.replace('?', '[?]')}$"):
        row_keys([name])


def test_heuristics_have_no_preset() -> None:
    contender = ROWS["svd"].contender("uci")
    assert (contender.method, contender.preset) == ("svd", None)


def test_ablations_remove_one_block() -> None:
    blocks = {slug: row.contender("uci").build().get_params()["blocks"] for slug, row in ABLATIONS.items()}
    assert blocks == {
        "dysat-no-structural": "temporal", "dysat-no-temporal": "structural",
        "dysat-text-no-structural": "temporal", "dysat-text-no-temporal": "structural",
    }  # fmt: skip


def test_heads_change_in_every_layer_and_sizes_stay() -> None:
    whole = DYSAT["dysat"].contender("uci").build().get_params()
    slug, row = heads_row("structural", 4)
    changed = row.contender("uci").build().get_params()
    assert slug == "dysat-structural-heads-4"
    assert changed["structural_heads"] == (4, 4)
    assert {key for key in whole if whole[key] != changed[key]} == {"structural_heads"}
    assert heads_row("temporal", 2)[1].contender("enron").build().get_params()["temporal_heads"] == (2,)


def test_contender_takes_more_options() -> None:
    assert DYSAT["dysat"].contender("uci", epochs=3).build().get_params()["epochs"] == 3


def test_published_figures() -> None:
    row = BASELINES["gcn-ae"]
    found = row.figures("single_step", "uci")
    assert found is not None
    assert (found.macro, found.macro_std, found.micro, found.micro_std) == (83.50, 0.5, 80.53, 0.3)
    assert row.figures("new_link", "uci") != found
    assert DYSAT["dysat"].figures("single_step", "enron-loops") == DYSAT["dysat-text"].figures("single_step", "enron")


def test_changed_models_have_no_published_values_of_the_whole_one() -> None:
    row = ABLATIONS["dysat-no-structural"]
    found = row.figures("ablation", "uci")
    assert found is not None
    assert found.macro == 81.24
    assert row.figures("single_step", "uci") is row.figures("new_link", "uci") is None
    assert heads_row("temporal", 8)[1].figures("single_step", "uci") is None
    assert HEURISTICS["svd"].figures("single_step", "uci") is None


def test_other_tables_repeat_the_published_values_of_dysat() -> None:
    dysat = DYSAT["dysat"]
    assert dysat.figures("ablation", "yelp") == dysat.figures("incsat", "yelp") == dysat.figures("single_step", "yelp")
    found = INCSAT["incsat"].figures("incsat", "uci")
    assert found is not None
    assert found.macro == 85.37


def test_published_values_equal_the_paper() -> None:
    import tomllib

    if not SHARED.is_file():
        pytest.skip("no ../shared/published.toml on this machine")
    tables = tomllib.loads(SHARED.read_text(encoding="utf-8"))
    rows = [row for row in ROWS.values() if row.published and not row.changes]
    checked = 0
    for table in ("single_step", "new_link"):
        for row in (row for row in rows if row.published != "IncSAT"):
            for dataset, figures in tables[table][row.published].items():
                assert vars(row.figures(table, dataset)) == figures, (table, row, dataset)
                checked += 1
    assert checked == 2 * 10 * 4


def test_studies_are_valid_requests() -> None:
    assert [Request(**how).protocol for how in STUDIES.values()] == list(STUDIES)


def test_longest_matching_method_wins() -> None:
    assert Row("x", "dysat-text").method == "dysat"
    assert Row("x", "pair-logistic").method == "pair-logistic"
