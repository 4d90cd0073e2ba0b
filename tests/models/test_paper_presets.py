"""The presets of the paper's tables: one per row and dataset, with a reason per parameter and the published figures."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from importlib import resources
from math import prod
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from conftest import SHARED

import dysat
from dysat.experiments.tune.spaces import PAPER as SPACES

FOLDER = resources.files("dysat.models").joinpath("presets")
RESULTS = Path(__file__).resolve().parents[2] / "results"
DATASETS = ("enron", "uci", "yelp", "ml-10m")
# Rows of the paper's tables: row, method, and the infix of the preset names.
ROWS = {
    "dysat": ("DySAT", "dysat", ""),
    "dysat-text": ("DySAT", "dysat", "text_"),
    "incsat": ("IncSAT", "incsat", ""),
    "node2vec": ("node2vec", "node2vec", ""),
    "graphsage": ("G-SAGE", "graphsage", ""),
    "graphsage-gat": ("G-SAGE + GAT", "graphsage", "gat_"),
    "gcn-ae": ("GCN-AE", "gcn-ae", ""),
    "gat-ae": ("GAT-AE", "gat-ae", ""),
    "dynamic-triad": ("DynamicTriad", "dynamic-triad", ""),
    "dyngem": ("DynGEM", "dyngem", ""),
    "dynaernn": ("DynAERNN", "dynaernn", ""),
}
# Options without effect in the paper's model.
UNUSED = ("future_negatives", "matched", "embeddings")
FIGURES = {"macro", "macro_std", "micro", "micro_std"}
ABLATIONS = ("No Structural", "No Temporal")
LAYERS = ("structural_heads", "structural_features", "temporal_heads", "temporal_features")
TUNED = [variant for variant in ROWS if variant in SPACES and "sat" not in variant]
ALL = [(variant, dataset) for variant in ROWS for dataset in DATASETS]
each_baseline = pytest.mark.parametrize("variant", [v for v in ROWS if "sat" not in v])


def text(variant: str, dataset: str) -> str:
    return FOLDER.joinpath(f"sankar2019_{variant}_{dataset}.toml").read_text(encoding="utf-8")


def built(variant: str, dataset: str) -> Any:
    _, method, kind = ROWS[variant]
    return dysat.MODELS[method].from_preset(f"sankar2019_{kind}{dataset}")


def measured(model: Any) -> dict[str, Any]:
    """Options as stored in a result."""
    return json.loads(json.dumps({key: value for key, value in model.get_params().items() if key != "device"}))


def best(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """The setting with the highest mean validation AUC over its rows."""
    settings: dict[str, list[float]] = {}
    for row in rows:
        if all(row[key] == value for key, value in wanted.items()):
            setting = row["setting"] if "setting" in row else row["options"]
            settings.setdefault(json.dumps(setting), []).append(row["validation_auc"])
    return json.loads(max(settings, key=lambda setting: fmean(settings[setting])))


def test_one_preset_per_row_and_dataset() -> None:
    files = {file.name for file in FOLDER.iterdir() if file.name.startswith("sankar2019")}
    assert files == {f"sankar2019_{variant}_{dataset}.toml" for variant in ROWS for dataset in DATASETS}
    assert len(files) == 44


def test_presets_set_every_option_of_the_paper() -> None:
    for variant, dataset in ALL:
        model, parameters = built(variant, dataset), tomllib.loads(text(variant, dataset))["parameters"]
        expected = {option.name for option in model.options()} - {"seed", "device", *UNUSED}
        assert parameters.keys() == expected, (variant, dataset)


def test_every_parameter_has_a_reason_on_its_line() -> None:
    for variant, dataset in ALL:
        whole = text(variant, dataset)
        assert whole.startswith("# "), (variant, dataset)
        assert [line for line in whole.splitlines() if len(line) > 120] == []
        lines = whole.split("[parameters]\n")[1].split("\n\n")[0].splitlines()
        matches = [re.fullmatch(r"(\w+) = [^#]+? +# \S.+", line) for line in lines]
        assert all(matches), [line for line, match in zip(lines, matches, strict=True) if not match]
        assert [match[1] for match in matches if match] == list(tomllib.loads(whole)["parameters"]), (variant, dataset)


def test_quotes_are_in_the_paper() -> None:
    if not (file := SHARED / "paper.tex").is_file():
        pytest.skip("no ../shared/paper.tex on this machine")
    paper = plain(file.read_text(encoding="utf-8"))
    for variant, dataset in ALL:
        comments = re.findall(r"# .*", text(variant, dataset))
        quoted = [words for comment in comments for words in re.findall(r'"([^"]+)"', comment)]
        assert quoted and [words for words in quoted if plain(words) not in paper] == [], (variant, dataset)


def plain(latex: str) -> str:
    """The text without LaTeX markup, in one line."""
    for pattern, plain in [(r"~?\\citep?\{[^}]*\}", ""), (r"~?\\name~?", " DySAT "), (r"\\emph\{([^}]*)\}", r"\1")]:
        latex = re.sub(pattern, plain, latex)
    return " ".join(latex.translate(str.maketrans("~", " ", "$\\")).split()).lower()


def test_attention_models_have_the_layers_of_the_paper() -> None:
    for variant in ("dysat", "dysat-text", "incsat"):
        for dataset in DATASETS:
            model = built(variant, dataset)
            structural = ((16,), (128,)) if dataset == "enron" else ((16, 8), (256, 128))
            assert tuple(getattr(model, key) for key in LAYERS) == (*structural, (16,), (128,)), (variant, dataset)


def test_every_preset_has_published_figures() -> None:
    for variant, dataset in ALL:
        published = tomllib.loads(text(variant, dataset))["published"]
        is_dysat = variant.startswith("dysat")
        tables = {"incsat"} if variant == "incsat" else {"single_step", "new_link", *(["ablation"] if is_dysat else [])}
        assert published.keys() == tables, (variant, dataset)
        ablation = published.pop("ablation", {})
        assert set(ablation) == (set(ABLATIONS) if is_dysat else set()), (variant, dataset)
        for figures in (*published.values(), *ablation.values()):
            assert figures.keys() == FIGURES and all(0 < value < 100 for value in figures.values()), (variant, dataset)


def test_published_figures_equal_those_of_the_paper() -> None:
    if not (file := SHARED / "published.toml").is_file():
        pytest.skip("no ../shared/published.toml on this machine")
    ours: dict[str, dict[str, dict[str, Any]]] = {"single_step": {}, "new_link": {}, "ablation": {}, "incsat": {}}
    for variant, (row, *_) in ROWS.items():
        for dataset in DATASETS:
            published = tomllib.loads(text(variant, dataset))["published"]
            of_row = {table: {row: figures} for table, figures in published.items() if table != "ablation"}
            for table, rows in (of_row | {"ablation": published.get("ablation", {})}).items():
                for name, figures in rows.items():
                    known = ours[table].setdefault(name, {}).setdefault(dataset, figures)
                    assert known == figures, f"{row} on {dataset}: two presets differ in {table}"
    # Rows that the paper prints twice.
    ours["ablation"]["Original"] = ours["incsat"]["DySAT"] = ours["single_step"]["DySAT"]
    ours["incsat"]["DynGEM"] = ours["single_step"]["DynGEM"]
    assert ours == tomllib.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("dataset", DATASETS)
def test_best_aggregator_of_the_paper_is_named(dataset: str) -> None:
    names = {"enron": "GCN", "uci": "GCN", "yelp": "LSTM", "ml-10m": "max-pooling"}
    assert f"The best of four aggregators in the paper: {names[dataset]}." in text("graphsage", dataset)


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("variant", ["dysat", "dysat-text"])
def test_dysat_presets_are_best_on_validation(variant: str, dataset: str) -> None:
    preset = "text" if variant == "dysat-text" else "program"
    name = "uci_cpu" if (preset, dataset) == ("program", "uci") else f"single_step_{dataset}"
    assert f"(results/{name}.json)" in text(variant, dataset)
    rows = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    options = best(rows, dataset=dataset, preset=preset, self_loops="drop")
    layers = {key: built(variant, dataset).get_params()[key] for key in LAYERS}
    if options["patience"] == options["epochs"]:
        options["patience"] = None  # patience never applies
    assert built(variant, dataset).get_params() == dysat.DySAT.from_preset(preset, **layers, **options).get_params()


@pytest.mark.parametrize("dataset", DATASETS)
def test_incsat_presets_are_the_measured_options(dataset: str) -> None:
    found = json.loads((RESULTS / f"incsat_{dataset}.json").read_text())["models"]
    assert measured(built("incsat", dataset)) == found[0]["options"]


@each_baseline
@pytest.mark.parametrize("dataset", DATASETS)
def test_baseline_presets_are_best_on_validation(variant: str, dataset: str) -> None:
    _, method, _ = ROWS[variant]
    chosen = tuned(variant, dataset)
    setting = chosen or best(results(variant, dataset) or results(variant, "uci"))
    source = f"(results/tuning_{dataset}.json)" if chosen else f"(results/baselines_{dataset}.json)"
    lines = text(variant, dataset).splitlines()
    notes = [line for line in lines if line.split(" = ")[0] in setting]
    assert len(notes) == len(setting)
    assert all(source in note for note in notes)
    # Options that were fixed during tuning at other values than the default.
    fixed = {"dynaernn": {"patience": 8}, "graphsage-gat": {"aggregator": "gat"}}.get(variant, {})
    if dataset in ("yelp", "ml-10m") and variant in ("dyngem", "dynaernn"):
        fixed = {**fixed, "batch_size": 512}
    assert built(variant, dataset).get_params() == dysat.MODELS[method].with_options({**fixed, **setting}).get_params()


@pytest.mark.parametrize("dataset", ["yelp", "ml-10m"])
def test_grids_of_the_large_datasets_are_complete(dataset: str) -> None:
    there = {variant: len({json.dumps(found) for found, _ in evaluated(variant, dataset)[1]}) for variant in ROWS}
    whole = {variant: prod(map(len, SPACES[variant].values())) for variant in TUNED}
    more = dict.fromkeys(("dysat", "dysat-text"), prod(map(len, SPACES["dysat"].values())))
    assert {variant: n for variant, n in there.items() if n} == whole | (more if dataset == "ml-10m" else {})


@pytest.mark.parametrize("dataset", ["yelp", "ml-10m"])
@pytest.mark.parametrize("variant", TUNED)
def test_tuned_parameters_name_their_validation_snapshots(variant: str, dataset: str) -> None:
    notes = [line for line in text(variant, dataset).splitlines() if f"(results/tuning_{dataset}.json)" in line]
    steps, chosen = evaluated(variant, dataset)[0], tuned(variant, dataset)
    suffix = f" at snapshot{'s' * (len(steps) > 1)} {', '.join(map(str, steps))} (results/"
    assert [line.split(" = ")[0] for line in notes] == list(chosen)
    assert all(suffix in line for line in notes)


@pytest.mark.parametrize("variant", ["dysat", "dysat-text"])
def test_complete_grid_on_ml_10m_confirms_dysat(variant: str) -> None:
    setting = tuned(variant, "ml-10m")
    assert setting.keys() == {"learning_rate", "negative_weight"}
    assert setting == {key: built(variant, "ml-10m").get_params()[key] for key in setting}


def results(variant: str, dataset: str) -> list[dict[str, Any]]:
    """The measured results of a row of the paper's table."""
    file = RESULTS / f"baselines_{dataset}.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    return [row for row in rows if (row["row"], row["self_loops"]) == (ROWS[variant][0], "drop")]


def tuned(variant: str, dataset: str) -> dict[str, Any]:
    """The best setting of the grid on validation."""
    _, fair = evaluated(variant, dataset)
    return dict(max(fair, key=lambda found: found[1], default=({}, 0.0))[0])


def evaluated(variant: str, dataset: str) -> tuple[list[int], list[tuple[dict[str, Any], float]]]:
    """The snapshots at which most settings of the grid were evaluated, and the mean of each setting over them.

    In a bipartite graph node2vec's walks depend on p / q only: a setting that was not evaluated at a snapshot has the
    value of a setting with the same ratio.
    """
    file = RESULTS / f"tuning_{dataset}.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    known = [(row["setting"], row["values"]) for row in rows if row["row"] == variant]
    if variant == "node2vec":
        same_ratio: dict[float, dict[str, float]] = {}
        for setting, values in known:
            same_ratio.setdefault(setting["p"] / setting["q"], {}).update(values)
        known = [(setting, {**same_ratio[setting["p"] / setting["q"]], **values}) for setting, values in known]
    counts = Counter(step for _, values in known for step in values)
    shared = [step for step, count in counts.items() if count == max(counts.values())]
    fair = [(setting, fmean(values[s] for s in shared)) for setting, values in known if values.keys() >= set(shared)]
    return sorted(map(int, shared)), fair
