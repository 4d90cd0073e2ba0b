"""The paper's figures: what is drawn, the CSV, and reproducible bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dysat.errors import ModelError
from dysat.experiments.paper.catalogue import BASELINES, BOOSTING, DATASETS, DYSAT, HEADS, heads_row
from dysat.experiments.paper.curves import fig_multistep, fig_newnodes, fig_steps
from dysat.experiments.paper.figures import FIGURES, fig_heads, fig_runtime
from dysat.experiments.paper.heatmaps import fig_attention
from dysat.experiments.paper.lineup import LINEUP
from dysat.experiments.paper.pictures import Picture
from dysat.experiments.paper.records import Point, Record, Results

MEASURED = (*BASELINES, *DYSAT, "svd", BOOSTING)


def record(row: str, aucs: tuple[float, ...], first: int = 1, sd: float | None = 0.02) -> Record:
    mean = sum(aucs) / len(aucs)
    steps = tuple(Point(first + i, 40, auc, sd, auc, auc) for i, auc in enumerate(aucs))
    return Record(row, row, {}, "k", mean, sd, mean, sd, steps, {}, 1.0)


def attention(size: int) -> dict[str, Any]:
    """Uniform attention to all snapshots so far."""
    mean = [[1 / (i + 1) if j <= i else None for j in range(size)] for i in range(size)]
    sd = [[0.25 * i / size if j <= i else None for j in range(size)] for i in range(size)]
    return {"steps": list(range(3, 3 + size)), "mean": mean, "sd": sd}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Every row on UCI, only dysat:program on Yelp; heads, attention and times on one or two datasets."""
    found = Results(tmp_path_factory.mktemp("results"))
    for study in ("single-step", "multi-step", "new-nodes"):
        for i, row in enumerate(MEASURED):
            found.put(study, "uci", record(row, (0.70 + i / 100, 0.75, 0.80)))
        found.put(study, "yelp", record("dysat", (0.60, 0.65), first=4, sd=None))
    found.put_facts("new-nodes", "uci", "_counts", {"new_nodes": {"0": 5, "1": 70, "2": 80, "3": 90, "4": 7}})
    for block in ("structural", "temporal"):
        for i, heads in enumerate(HEADS):
            if (block, heads) != ("temporal", 16):
                found.put("single-step", "uci", record(heads_row(block, heads)[0], (0.80 + i / 100,)))
    for dataset, row in (("uci", "dysat"), ("uci", "dysat-text"), ("enron", "dysat")):
        found.put_facts("attention", dataset, row, attention(4))
    times = [
        {"window": w, "dysat": {"epoch_seconds": 0.5 * w}, "dynaernn": {"epoch_seconds": 3.0 * w}} for w in range(1, 11)
    ]
    found.put_facts("runtime", "ml-10m", "windows", {"timings": times})
    found.put_facts("runtime", "uci", "windows", {"timings": times[:2]})
    return found


def rows_of(picture: Picture) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(picture.csv)))


def lines_of(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines()}


@pytest.mark.parametrize(
    "file",
    [
        *("fig-heads.svg", "fig-heads.pdf"),
        *(
            pytest.param(file, marks=pytest.mark.slow)
            for file in ("fig-heads.png", "fig-attention.svg", "fig-newnodes.svg", "fig-runtime.svg")
        ),
    ],
)
def test_drawing_twice_gives_the_same_bytes(file: str, results: Results, tmp_path: Path) -> None:
    drawn = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        datasets = ["enron"] if "attention" in file else list(DATASETS)
        picture = FIGURES[file.partition(".")[0]](results, datasets)
        picture.draw(folder / file)
        assert [found.name for found in folder.iterdir()] == [f"{picture.name}.{file.partition('.')[2]}"]
        drawn.append((folder / file).read_bytes())
    assert len(drawn[0]) > 5_000
    assert drawn[0] == drawn[1]
    assert b"CreationDate" not in drawn[0]  # a date to the second would be the same in both


@pytest.mark.parametrize("name", FIGURES)
def test_figures_without_data_or_dataset_raise(name: str, results: Results, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"^{name}: nothing was measured on enron, uci$"):
        FIGURES[name](Results(tmp_path), ["uci", "enron"])
    with pytest.raises(ModelError, match=r"no dataset 'yolp'; .*did you mean 'yelp'"):
        FIGURES[name](results, ["yolp"])


def test_invalid_file_names_raise(results: Results, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"heads\.bmp: the name of a picture must end in \.svg, \.pdf, \.png"):
        fig_heads(results).draw(tmp_path / "heads.bmp")
    with pytest.raises(ModelError, match=r"heads\.svg: cannot be written"):
        fig_heads(results).draw(tmp_path / "absent" / "heads.svg")


@pytest.mark.parametrize("figure", [fig_steps, fig_multistep, fig_newnodes])
def test_curves_have_a_panel_per_dataset_and_a_line_per_method(
    figure: Callable[..., Picture], results: Results, tmp_path: Path
) -> None:
    picture = figure(results)
    uci, yelp = (axes for axes in picture.build().axes if axes.get_title(loc="left"))
    assert (uci.get_title(loc="left"), yelp.get_title(loc="left")) == ("UCI", "Yelp")
    assert uci.get_title(loc="right") == "best heuristic: svd"
    assert (len(uci.get_lines()), len(yelp.get_lines())) == (12, 1) == (len(LINEUP), 1)
    lines = lines_of(uci)
    assert lines["dysat:program"].get_linewidth() > lines["dysat:text"].get_linewidth()
    assert {lines[name].get_linestyle() for name in ("dysat:program", "dysat:text")} == {"-"}
    assert {lines[BASELINES[slug].name].get_linestyle() for slug in list(BASELINES)[:5]} == {"--"}
    assert {lines[BASELINES[slug].name].get_linestyle() for slug in list(BASELINES)[5:]} == {":"}
    assert list(lines["dysat:program"].get_xdata()) == [1, 2, 3]
    assert list(lines["dysat:program"].get_ydata()) == pytest.approx([78.0, 75.0, 80.0])
    assert len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in uci.get_lines()[1:]}) == 11
    if figure is not fig_steps:
        return
    picture.draw(tmp_path / "steps.svg")
    svg = (tmp_path / "steps.svg").read_text(encoding="utf-8")
    for text in (*lines, "UCI", "Yelp", "predicted snapshot", "AUC, per cent", picture.title):
        assert f">{text}</text>" in svg


def test_csv_of_curves_has_every_point(results: Results) -> None:
    rows = rows_of(fig_steps(results))
    assert len(rows) == 12 * 3 + 2
    assert rows[0] == {
        "figure": "fig-steps", "dataset": "uci", "row": "node2vec", "method": "node2vec", "predicted_snapshot": "1",
        "links": "40", "auc_percent": "70.0", "auc_sd": "2.0",
    }  # fmt: skip
    assert [(row["dataset"], row["predicted_snapshot"], row["auc_sd"]) for row in rows[-2:]] == [
        ("yelp", "4", ""), ("yelp", "5", ""),
    ]  # fmt: skip
    assert {row["method"] for row in rows if row["row"] == "best-heuristic"} == {"svd"}


def test_notes_list_missing_rows(results: Results) -> None:
    notes = fig_steps(results).notes
    assert "ML-10M: nothing was measured" in notes
    assert any(note.startswith("Yelp: not measured: node2vec, G-SAGE") for note in notes)
    assert not any(note.startswith("UCI") for note in notes)


def test_new_nodes_are_drawn_as_bars(results: Results) -> None:
    picture = fig_newnodes(results)
    bars = [bar.get_height() for axes in picture.build().axes for bar in axes.patches]
    assert bars == [70, 80, 90, 7]
    rows = rows_of(picture)
    assert {(row["predicted_snapshot"], row["new_nodes"]) for row in rows if row["dataset"] == "uci"} == {
        ("1", "70"), ("2", "80"), ("3", "90"), ("4", "7"),
    }  # fmt: skip
    assert [row["predicted_snapshot"] for row in rows if not row["row"]] == ["4"]
    assert {row["new_nodes"] for row in rows if row["dataset"] == "yelp"} == {""}


def test_heads_have_a_line_per_block_with_deviations(results: Results) -> None:
    picture = fig_heads(results)
    axes = picture.build().axes[0]
    structural, temporal = axes.containers
    assert list(structural.lines[0].get_xdata()) == [1, 2, 4, 8, 16]
    assert list(structural.lines[0].get_ydata()) == pytest.approx([80.0, 81.0, 82.0, 83.0, 84.0])
    assert list(temporal.lines[0].get_xdata()) == [1, 2, 4, 8]
    (low, high), *_ = [segment[:, 1] for segment in structural.lines[2][0].get_segments()]
    assert (low, high) == pytest.approx((78.0, 82.0))
    assert "UCI: not measured: 16 temporal heads" in picture.notes
    rows = rows_of(picture)
    assert len(rows) == 9
    assert (rows[0]["block"], rows[0]["heads"], rows[0]["macro_auc_percent"]) == ("structural", "1", "80.0")
    assert (rows[0]["macro_auc_sd"], rows[0]["steps"]) == ("2.0", "1")


def test_attention_has_two_maps_per_row(results: Results) -> None:
    picture = fig_attention(results)
    maps = [axes for axes in picture.build().axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in maps] == [
        "Enron, dysat:program: mean attention weight", "Enron, dysat:program: standard deviation over nodes",
        "UCI, dysat:program: mean attention weight", "UCI, dysat:program: standard deviation over nodes",
        "UCI, dysat:text: mean attention weight", "UCI, dysat:text: standard deviation over nodes",
    ]  # fmt: skip
    shown = maps[0].get_images()[0].get_array()
    assert (shown[3, 0], shown[1, 1]) == (0.25, 0.5)
    assert shown.mask[0, 1]
    assert len(maps[0].texts) == 10
    assert [text.get_text() for text in maps[0].texts[:3]] == ["1.00", "0.50", "0.50"]
    assert [label.get_text() for label in maps[0].get_xticklabels()] == ["3", "4", "5", "6"]
    rows = rows_of(picture)
    assert len(rows) == 3 * 10
    assert "Enron: not measured: dysat:text" in picture.notes
    assert rows[3] == {
        "figure": "fig-attention", "dataset": "enron", "row": "dysat", "snapshot": "5", "attended_snapshot": "3",
        "mean": "0.333333", "sd": "0.125",
    }  # fmt: skip


def test_small_maps_show_values(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for size, texts in ((16, 136), (17, 0)):
        results.put_facts("attention", "uci", "dysat", attention(size))
        assert len(fig_attention(results, ["uci"]).build().axes[0].texts) == texts


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"steps": [0, 1], "mean": [[1.0]], "sd": [[0.0]]}, "mean is 1 × 1, of 2 snapshots"),
        ({"steps": [0]}, "cannot be read"),
        ({"steps": [0], "mean": [["x"]], "sd": [[0.0]]}, "cannot be read"),
    ],
)
def test_damaged_attention_raises(facts: dict[str, Any], said: str, tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.put_facts("attention", "uci", "dysat", facts)
    with pytest.raises(ModelError, match=f"attention on uci.*{said}"):
        fig_attention(results)


def test_runtime_shows_our_times_and_published_ones(results: Results) -> None:
    picture = fig_runtime(results)
    uci, ml = picture.build().axes
    assert list(lines_of(uci)) == ["dysat:program", "DynAERNN"]  # the paper measured ML-10M
    lines = lines_of(ml)
    assert list(lines) == ["dysat:program", "DySAT, published (V100)", "DynAERNN", "DynAERNN, published (V100)"]
    assert list(lines["dysat:program"].get_ydata()) == [0.5 * window for window in range(1, 11)]
    papers = [line for label, line in lines.items() if "published" in label]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in papers] == [([10], [88.0]), ([10], [723.0])]
    assert ml.get_yscale() == "log"
    rows = rows_of(picture)
    assert len(rows) == 4 + 20 + 2
    assert [(row["method"], row["window"], row["epoch_seconds"]) for row in rows if row["source"] == "paper"] == [
        ("dysat", "10", "88.0"), ("dynaernn", "10", "723.0"),
    ]  # fmt: skip


def test_missing_times_are_skipped_and_damaged_ones_raise(tmp_path: Path) -> None:
    results = Results(tmp_path)
    timings: list[dict[str, Any]] = [{"window": 1, "dysat": {"epoch_seconds": 1.0}, "dynaernn": None}]
    results.put_facts("runtime", "uci", "windows", {"timings": timings})
    assert len(rows_of(fig_runtime(results))) == 1
    results.put_facts("runtime", "uci", "windows", {"timings": [{"window": 1, "dysat": {"seconds": 1.0}}]})
    with pytest.raises(ModelError, match="times of uci cannot be read"):
        fig_runtime(results)


def test_drawing_does_not_change_matplotlib_settings(results: Results, tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    fig_heads(results).draw(tmp_path / "heads.svg")
    assert dict(matplotlib.rcParams) == before
