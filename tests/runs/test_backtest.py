"""The backtest of a run: forecast score, probe and heuristics, on examples that did not choose the epoch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
import torch
from run_folders import RING, SMALL, assert_same, graph_of, quick, small_graph, stop_after, unseal

import dysat
from dysat.evaluation.probe import auc, average_precision, evaluate_probe, evaluate_scores, validation_auc
from dysat.evaluation.protocols import single_step
from dysat.evaluation.ranking import ranking_candidates
from dysat.evaluation.reliability import reliability
from dysat.models import MODELS
from dysat.models.base.best_pairs import pair_keys
from dysat.models.base.embedding import EmbeddingModel
from dysat.runs import backtest
from dysat.runs import run as run_module
from dysat.runs.run import Run, Watch
from dysat.training import Epoch

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
TINY = {"structural_heads": 2, "structural_features": 8, "temporal_heads": 2, "temporal_features": 8, "spectrum": 2}
FORECAST: dict[str, Any] = {**SMALL, "spectrum": 2, "learning_rate": 0.005}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run.start(tmp_path_factory.mktemp("ended") / "run", small_graph(), dysat.DySAT(**FORECAST))
    assert run.train()
    return run


def test_every_window_is_predicted_by_a_pair_score_of_its_own_past(ended: Run) -> None:
    graph, found = small_graph(), ended.metrics()["backtest"]
    assert [window["step"] for window in found["windows"]] == [1, 2, 3]
    for window in found["windows"]:
        step = window["step"]
        split, model = single_step(graph, step), dysat.DySAT(**FORECAST | {"epochs": 0}).fit(graph[: step + 1])
        scores, labels = model.pair_scores(split.pairs), split.labels
        assert (window["start"], window["end"], window["links"]) == (str(step + 1), str(step + 2), int(labels.sum()))
        assert window["auc"] == auc(scores, labels)
        assert window["average_precision"] == average_precision(scores, labels)
        chances, before = (
            model.score_links(split.pairs, ids=True),
            torch.isin(pair_keys(split.pairs, 40), linked_up_to(step)),
        )
        assert window["reliability"]["all"] == reliability(chances, labels)
        assert window["reliability"]["known"] == reliability(chances[before], labels[before])
        assert window["reliability"]["new"] == reliability(chances[~before], labels[~before])
    aucs = [window["auc"] for window in found["windows"]]
    assert found["mean"]["auc"] == pytest.approx(fmean(aucs)) and found["sd"]["auc"] == pytest.approx(stdev(aucs))
    assert found["forecast"]["auc"] == aucs[-1] and found["reliable"]
    assert sum(part["pairs"] for part in found["forecast"]["reliability"]) == 2 * sum(
        window["links"] for window in found["windows"]
    )


def linked_up_to(step: int) -> torch.Tensor:
    parts = [torch.stack(snapshot.links()[:2], 1) for snapshot in small_graph().snapshots[: step + 1]]
    return pair_keys(torch.cat(parts), 40)


def test_precision_counts_the_most_likely_links_that_came_true(tmp_path: Path) -> None:
    """As a slow loop over all pairs of the model's ranking."""
    graph = small_graph()
    model = dysat.DySAT(**FORECAST | {"epochs": 0}).fit(graph[:4])
    found = backtest.precision(model, graph, split := single_step(graph, 3))
    u, v, _ = (part.tolist() for part in graph[4].links())
    links, number = {tuple(sorted(pair)) for pair in zip(u, v, strict=True)}, int(split.labels.sum())
    for name, known in (("all", "include"), ("new", "exclude")):
        ids = [graph.ids([link.u, link.v]).tolist() for link in model.top_links(200, known=known)]  # type: ignore[arg-type]
        true = [tuple(sorted(pair)) in links for pair in ids]
        assert found[name] == {"10": sum(true[:10]), "100": sum(true[:100]), "links": sum(true[:number])}


def test_ranking_figures_of_every_window(ended: Run) -> None:
    """As a slow loop over links and candidates, for the model and a heuristic."""
    graph, found = small_graph(), ended.metrics()["backtest"]
    window = found["windows"][-1]
    split = single_step(graph, 3)
    links, number = split.pairs[split.labels], window["candidates"]
    assert (window["ranked"], number) == (len(links), 20)
    others = ranking_candidates(graph, split, number)
    before = set(linked_up_to(3).tolist())
    new = [key not in before for key in pair_keys(links, 40).tolist()]
    assert window["ranked_new"] == sum(new) >= 5
    model = dysat.DySAT(**FORECAST | {"epochs": 0}).fit(graph[:4])
    degrees = MODELS["degree-product"]().fit(graph[:4])
    reciprocals = {}
    for name, one, facts in (("own", model, window), ("degrees", degrees, window["heuristics"]["degree-product"])):
        places = []
        for (u, v), row in zip(links.tolist(), others.tolist(), strict=True):
            mine, *theirs = one.pair_scores(torch.tensor([[u, v], *([u, w] for w in row)])).tolist()
            places.append(1 + sum(1 if score > mine else 0.5 if score == mine else 0 for score in theirs))
        reciprocals[name] = [1 / place for place in places]
        assert facts["mrr"] == pytest.approx(fmean(reciprocals[name]))
        assert facts["hits_at_10"] == pytest.approx(fmean(place <= 10 for place in places))
        assert facts["new_mrr"] == pytest.approx(fmean(1 / r for r, is_new in zip(places, new, strict=True) if is_new))
    differences = [a - b for a, b in zip(reciprocals["own"], reciprocals["degrees"], strict=True)]
    error = stdev(differences) / len(differences) ** 0.5
    assert window["heuristics"]["degree-product"]["mrr_error"] == pytest.approx(error)
    for name in ("mrr", "hits_at_10", "new_mrr"):
        assert found["mean"][name] == pytest.approx(fmean(w[name] for w in found["windows"]))
        theirs = [w["heuristics"]["degree-product"][name] for w in found["windows"]]
        assert found["heuristics"]["degree-product"][name] == pytest.approx(fmean(theirs))
    rivals = {name: means["mrr"] for name, means in found["heuristics"].items() if "mrr" in means}
    best = max(rivals, key=lambda name: rivals[name])
    assert found["mrr_comparison"]["heuristic"] == best
    assert found["mrr_comparison"]["difference"] == pytest.approx(found["mean"]["mrr"] - rivals[best])


def test_scores_of_ranked_pairs_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranking figures of a model come from one pass over the candidates."""
    monkeypatch.setattr(backtest, "OPPONENTS", ("edgebank",))
    sizes, scores = list[int](), dysat.DySAT.pair_scores

    def count(model: dysat.DySAT, pairs: torch.Tensor, step: int = -1) -> torch.Tensor:
        sizes.append(len(pairs))
        return scores(model, pairs, step)

    graph, split = small_graph(), single_step(small_graph(), 3)
    model = dysat.DySAT(embeddings=False).fit(graph[:4])
    monkeypatch.setattr(dysat.DySAT, "pair_scores", count)
    facts = backtest.window_facts(model, graph, split, None)
    assert sorted(sizes) == sorted([facts["links"], facts["links"] * facts["candidates"], len(split.pairs)])


def test_few_new_links_have_no_mrr_of_their_own(tmp_path: Path) -> None:
    graph = graph_of([(u, (u + d) % 30, t) for t in range(4) for u in range(30) for d in (1, 2)])
    found = forecast(tmp_path / "run", graph, backtest=1).metrics()["backtest"]
    window = found["windows"][0]
    assert window["ranked_new"] == 0 and window["new_mrr"] is None and window["mrr"] > 0.5
    assert "new_mrr" not in found["mean"] and "New links only" not in (backtest.ranking_text(found) or "")


def test_metrics_without_ranking_figures_are_still_read_and_shown(cli: Cli, ended: Run, tmp_path: Path) -> None:
    """As a version wrote them that had AUC and MRR only."""
    run = Run.open(shutil.copytree(ended.folder, tmp_path / "run"))
    metrics = json.loads((run.folder / "metrics.json").read_text())
    found = metrics["backtest"]
    del found["mrr_comparison"], found["heuristics"], found["mean"]["hits_at_10"], found["mean"]["new_mrr"]
    for window in found["windows"]:
        for facts in (window, *window["heuristics"].values()):
            for name in ("hits_at_10", "new_mrr", "ranked", "ranked_new", "mrr_error"):
                facts.pop(name, None)
    (run.folder / "metrics.json").write_text(json.dumps(metrics))
    code, out, err = cli("fit", "--resume", run.folder)
    assert code == 0, err
    text = " ".join(out.split())
    first = found["windows"][0]
    assert f"forecast score {first['auc']:.4f} {first['mrr']:.4f} {found['comparison']['heuristic']}" in text
    assert "Hits@10" not in text and "In ranking" not in text


def test_a_model_without_a_pair_score_is_fitted_for_every_window(tmp_path: Path) -> None:
    graph, options = small_graph(), SMALL | {"epochs": 1}
    run = Run.start(tmp_path / "run", graph, dysat.DySAT.from_preset("program", **options), backtest=2)
    assert run.train()
    found = run.metrics()["backtest"]
    assert [window["step"] for window in found["windows"]] == [2, 3] and "forecast" not in found
    for window in found["windows"]:
        split, past = single_step(graph, window["step"]), graph[: window["step"] + 1]
        model = dysat.DySAT.from_preset("program", **options).fit(past)
        assert window["auc"] == pytest.approx(evaluate_probe(model.embed(), split).auc)
    assert found["auc"] == found["windows"][-1]["auc"]


# Which windows


def ratings(last_day: int) -> dysat.DynamicGraph:
    """Ten weeks of ratings; those of the last week end on this day of it."""
    rng = np.random.default_rng(1)
    days = np.sort(rng.integers(0, 63 + last_day, 300))
    days[[0, -1]] = 0, 63 + last_day - 1
    times = ["2024-01-01T00:00:00Z" if not day else str(np.datetime64("2024-01-01") + int(day)) for day in days]
    users, items = rng.integers(0, 30, 300), rng.integers(0, 25, 300)
    table = ([f"u{u}" for u in users], [f"i{i}" for i in items], times)
    return dysat.build_snapshots(dysat.read_events(table, kinds=("user", "item")), every="1w")


def test_an_incomplete_last_window_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    graph = ratings(2)
    assert graph.report is not None and len(graph) == 10 and graph.report.covered == pytest.approx(1 / 7, abs=1e-3)
    run = forecast(tmp_path / "run", graph)
    found = run.metrics()["backtest"]
    assert predicted(run) == [8, 7, 6] and found["left_out"] == {"step": 9, "covered": graph.report.covered}
    assert len(run.model("cpu").graph_) == 10  # the final model learns from all snapshots
    asked = forecast(tmp_path / "asked", graph, backtest=1, include_incomplete=True)
    assert predicted(asked) == [9] and asked.metrics()["backtest"]["left_out"] is None
    assert predicted(forecast(tmp_path / "complete", ratings(7), backtest=1)) == [9]


def forecast(folder: Path, graph: dysat.DynamicGraph, **how: Any) -> Run:
    """A finished run without embeddings."""
    run = Run.start(folder, graph, dysat.DySAT(embeddings=False), **how)
    assert run.train()
    return run


def predicted(run: Run) -> list[int]:
    """The windows that the backtest predicted, newest first."""
    return [window["step"] + 1 for window in reversed(run.metrics()["backtest"]["windows"])]


def test_windows_without_links_between_known_nodes_are_skipped(tmp_path: Path) -> None:
    graph = graph_of([*RING, (0, 2, 1), (1, 3, 2), (5, 6, 3), (0, 3, 4)])
    assert predicted(forecast(tmp_path / "a", graph)) == [4, 2, 1]
    assert predicted(forecast(tmp_path / "b", graph, backtest=9)) == [4, 2, 1]


def test_an_incomplete_window_that_is_the_only_one_to_predict(tmp_path: Path) -> None:
    table = (["a", "b", "c", "a"], ["b", "c", "a", "c"], ["2024-01-01", "2024-01-06", "2024-01-08", "2024-01-08"])
    graph = dysat.build_snapshots(dysat.read_events(table), every="1w")
    notes: list[str] = []
    run = Run.start(tmp_path / "run", graph, dysat.DySAT(embeddings=False))
    assert run.train(Watch(on_note=notes.append)) and run.metrics()["backtest"] is None
    assert notes == ["no backtest: the last window is incomplete, and there is no other one to predict"]


@pytest.mark.parametrize(("given", "stored"), [(True, 3), (False, 0), (5, 5)])
def test_the_number_of_windows_is_stored(given: bool | int, stored: int, tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", small_graph(), dysat.DySAT(**FORECAST), backtest=given)
    assert run.config["backtest"] == stored and "include_incomplete" not in run.config
    with pytest.raises(dysat.ModelError, match="backtest=-1 must not be negative"):
        Run.start(tmp_path / "other", small_graph(), dysat.DySAT(**FORECAST), backtest=-1)


def test_a_config_of_an_earlier_version_predicts_one_window(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", small_graph(), dysat.DySAT(**FORECAST | {"epochs": 1}), backtest=1)
    file = unseal(run.folder)
    file.write_text(file.read_text().replace("backtest = 1", "backtest = true"))
    old = Run.open(run.folder)
    assert old.config["backtest"] is True and old.train()
    assert [window["step"] for window in old.metrics()["backtest"]["windows"]] == [3]


# Resuming


def test_a_run_killed_between_windows_reaches_the_same_result(
    ended: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, facts = list[int](), run_module.window_facts

    def kill_at_the_second(model: Any, graph: Any, split: Any, done: Any) -> dict[str, Any]:
        measured.append(split.target)
        if len(measured) == 2:
            raise KeyboardInterrupt
        return facts(model, graph, split, done)

    monkeypatch.setattr(run_module, "window_facts", kill_at_the_second)
    run = Run.start(tmp_path / "run", small_graph(), dysat.DySAT(**FORECAST))
    with pytest.raises(KeyboardInterrupt):
        run.train()
    epochs = list[Epoch]()
    assert Run.open(run.folder).train(Watch(on_epoch=epochs.append))
    assert measured == [4, 3, 3, 2]  # the first window is not predicted again
    assert len(epochs) == ended.metrics()["epochs"]  # those of the final model only
    assert_same(run.folder, ended.folder)


def test_a_stop_between_windows_keeps_those_before(ended: Run, tmp_path: Path) -> None:
    run, stages = Run.start(tmp_path / "run", small_graph(), dysat.DySAT(**FORECAST)), list[str]()
    stop = Watch(on_stage=lambda stage, epochs: stages.append(stage), stop=lambda: stages.count("heuristics") >= 2)
    assert not run.train(stop) and not run.finished
    assert stages == ["backtest", "heuristics", "backtest", "heuristics"]
    assert Run.open(run.folder).train()
    assert_same(run.folder, ended.folder)


def test_no_tested_label_chooses_the_epoch() -> None:
    split = single_step(small_graph(), 3)
    flipped = replace(split, labels=split.labels ^ split.test[0])
    model = dysat.DySAT(**FORECAST).fit(small_graph()[:-1])
    assert split.test[0].any() and validation_auc(model.embed(), split) == validation_auc(model.embed(), flipped)


def test_heuristics_are_measured_on_the_same_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backtest, "OPPONENTS", ("edgebank", "common-neighbours", "svd", "pair-logistic"))
    run = Run.start(tmp_path / "run", small_graph(), dysat.DySAT(**FORECAST | {"epochs": 0}))
    assert run.train()
    graph, split = small_graph(), single_step(small_graph(), 3)
    own = {
        name: auc(MODELS[name]().fit(graph[:-1]).pair_scores(split.pairs), split.labels) for name in backtest.OPPONENTS
    }
    found = run.metrics()["backtest"]
    newest = found["windows"][-1]["heuristics"]
    assert {name: newest[name]["auc"] for name in own} == own
    means = {
        name: fmean(window["heuristics"][name]["auc"] for window in found["windows"])
        for name in own
        if all(name in window["heuristics"] for window in found["windows"])
    }
    best = max(means, key=lambda name: means[name])
    assert (found["comparison"]["heuristic"], found["comparison"]["auc"]) == (best, pytest.approx(means[best]))
    assert found["forecast"]["heuristic"] == {"name": best, "auc": own[best]}
    assert found["comparison"]["difference"] == pytest.approx(found["mean"]["auc"] - means[best])
    assert found["verdict"] in ("beats", "tie", "behind")

    probed = {}
    for name in backtest.OPPONENTS:
        model = MODELS[name]().fit(graph[:-1])
        probed[name] = evaluate_scores(model.pair_scores(split.pairs), split).auc
        if isinstance(model, EmbeddingModel):
            probed[name] = evaluate_probe(model.embed(), split, feature=model.pair_feature).auc
    best = max(probed, key=lambda name: probed[name])
    assert found["heuristic"] == {"name": best, "auc": probed[best]}


def test_without_a_pair_score_there_is_no_forecast(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", small_graph(), dysat.DySAT.from_preset("program", **SMALL | {"epochs": 1}))
    assert run.train() and "forecast" not in run.metrics()["backtest"]


def test_a_single_link_decides_nothing(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", graph_of([*RING, (0, 2, 1)]), dysat.DySAT(**FORECAST | {"walk_weight": 1.0}))
    assert run.train()
    found = run.metrics()["backtest"]
    assert found["auc"] is None and not found["reliable"] and found["verdict"] == "tie"
    json.loads((run.folder / "metrics.json").read_text(), parse_constant=pytest.fail)  # NaN is not JSON


def test_a_stop_after_the_backtest_keeps_its_figures(ended: Run, tmp_path: Path) -> None:
    expected = ended.metrics()["backtest"]
    assert expected["best_epoch"] > 1  # otherwise there is no epoch to stop after
    run = Run.start(tmp_path / "run", small_graph(), dysat.DySAT(**FORECAST))
    stop_after(run, 5)  # in the final stage
    assert Run.open(run.folder).train()
    assert Run.open(run.folder).metrics()["backtest"] == expected


def test_fit_shows_the_backtest(cli: Cli, ended: Run, tmp_path: Path) -> None:
    run = Run.open(shutil.copytree(ended.folder, tmp_path / "run"))
    (run.folder / "metrics.json").rename(tmp_path / "metrics.json")  # resumed: only the results are written again
    code, out, err = cli("fit", "--resume", run.folder)
    assert code == 0, err
    found, text = run.metrics()["backtest"], " ".join(out.split())
    names = ("auc", "mrr", "hits_at_10")
    for title, values in (("mean", found["mean"]), ("standard deviation", found["sd"])):
        assert f"{title} forecast score {' '.join(f'{values[name]:.4f}' for name in names)}" in text
    rivals = [found[f"{which}comparison"]["heuristic"] for which in ("", "mrr_", "mrr_")]
    label = rivals[0] if rivals[0] == rivals[1] else "best heuristic"
    for window in found["windows"]:
        own = " ".join(f"{window[name]:.4f}" for name in names)
        other = " ".join(f"{window['heuristics'][who][name]:.4f}" for who, name in zip(rivals, names, strict=True))
        row = f"{window['start']} … {window['end']} {window['links']} forecast score {own} {label} {other}"
        assert row in text
    word = {"beats": "beats", "tie": "ties with", "behind": "is behind"}[found["mrr_comparison"]["verdict"]]
    assert f"In ranking it {word} the strongest heuristic, {rivals[1]}: MRR {found['mean']['mrr']:.4f}" in text
    assert "embeddings with a probe on the newest of these windows: AUC 0." in text
    word = {"beats": "beats", "tie": "ties with", "behind": "is behind"}[found["verdict"]]
    assert f"The forecast score {word} the strongest heuristic, {found['comparison']['heuristic']}: AUC" in text
    counts = [f"{found['precision'][name]['100']:.1f}".removesuffix(".0") for name in ("all", "new")]
    assert (
        f"Of the 100 most likely links {counts[0]} came true (of the 100 most likely new contacts: {counts[1]})" in text
    )
    for name, words in (("new", "new pairs"), ("known", "pairs linked before")):
        part = next(part for part in found["forecast"][f"reliability_{name}"] if part["pairs"])
        share = f"{100 * part['linked']:.0f} % of {part['pairs']} pair{'s' * (part['pairs'] != 1)}"
        mix = f"Calibration, {words}: in a balanced mix of links and non-links"
        assert f"{mix}, scores of {part['from']:.1f}–{part['to']:.1f} came true for {share}" in text


def test_a_figure_from_few_links_is_marked(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    links = [*RING, *((u, (u + 2) % 5, t) for t in (1, 2) for u in range(4)), (0, 1, 2)]
    graph_of(links).save("graph")
    code, out, err = cli("fit", "graph", "--epochs", "1", *(f"--set={name}={value}" for name, value in TINY.items()))
    assert code == 0, err
    text = " ".join(out.split())
    assert "only 4 links: not a reliable figure" in text and "only 5 links: not a reliable figure" in text
    assert "this is not a reliable comparison" in text


def test_backtest_options_of_fit(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ratings(2).save("graph")
    quick = ["--epochs=1", *(f"--set={name}={value}" for name, value in TINY.items())]
    code, out, err = cli("fit", "graph", "--backtest-windows", "2", *quick)
    assert code == 0, err
    text = " ".join(out.split())
    assert "the last window is incomplete, its events end 14% into it, so it is not predicted" in text
    assert "2024-02-26 … 2024-03-04" in text and "2024-03-04 … 2024-03-11" not in text
    assert len(Run.open("run").metrics()["backtest"]["windows"]) == 2
    code, out, err = cli("fit", "graph", "--include-incomplete", "--backtest-windows=1", "-o", "all", *quick)
    assert code == 0 and "2024-03-04 … 2024-03-11" in out and "incomplete" not in out
    code, _, err = cli("fit", "graph", "--backtest-windows", "0", "-o", "none")
    assert code == 2 and "--backtest-windows 0 must be at least 1; --no-backtest predicts none" in err
    code, _, err = cli("fit", "--resume", "run", "--backtest-windows", "5")
    assert code == 2 and "--resume run continues with the options of the run" in err


def test_a_run_of_an_earlier_version_still_shows_its_backtest(cli: Cli, tmp_path: Path) -> None:
    old = Path(__file__).resolve().parents[1] / "fixtures" / "old_runs" / "dysat-forecast"
    code, out, err = cli("fit", "--resume", shutil.copytree(old, tmp_path / "run"))
    assert code == 0, err
    found, text = json.loads((old / "metrics.json").read_text())["backtest"]["forecast"], " ".join(out.split())
    assert f"{found['auc']:.4f}" in text and f"{found['heuristic']['auc']:.4f}" in text and "beats" not in text
