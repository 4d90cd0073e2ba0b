"""Backtest: how well models that have not seen the last windows predict them, compared with the best heuristic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.data.windows import write_moment
from dysat.errors import DysatError
from dysat.evaluation.comparison import compare, difference_error, mrr_difference_error
from dysat.evaluation.probe import ProbeResult, auc, average_precision, evaluate_probe, evaluate_scores
from dysat.evaluation.protocols import LinkSplit, link_pairs
from dysat.evaluation.ranking import TOP, drawn_ranking, link_ranks, never_linked, rank_figures
from dysat.evaluation.reliability import pooled, reliability
from dysat.models import MODELS, OPPONENTS
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import LinkModel
from dysat.system.progress import report
from dysat.training import Progress

Facts = dict[str, Any]
WINDOWS = 3  # predicted by default
FEWEST_LINKS = 20  # a figure from fewer links is not reliable
MOST = 1_000  # at most as many, if a window has more links
FIGURES = ("auc", "average_precision")
RANKING = ("mrr", "hits_at_10", "new_mrr")


def incomplete(graph: DynamicGraph) -> bool:
    """Return whether the events end early in the last window."""
    return graph.report is not None and not graph.report.complete


def probe_facts(model: EmbeddingModel, split: LinkSplit, done: Progress) -> tuple[Facts, ProbeResult | None]:
    """Return how well the embeddings predict with a probe; if training diverged, there are no figures."""
    e = model.roles().cpu()
    result = evaluate_probe(e, split, feature=model.pair_feature) if bool(e.isfinite().all()) else None
    facts = {
        "step": split.step,
        **{
            f"{name}{suffix}": None if result is None else getattr(result, f"{name}{suffix}")
            for name in FIGURES
            for suffix in ("", "_sd")
        },
        "validation_auc": done.best.score if done.best else None,
        "best_epoch": done.best.number if done.best else 0,
        "epochs": len(done.history),
        "links": int(split.labels.sum()),
        "repeats": split.num_repeats,
    }
    return _without_nan(facts), result


def window_facts(model: LinkModel, graph: DynamicGraph, split: LinkSplit, done: Progress | None) -> Facts:
    """One window: figures of the model and of every heuristic. `done` is the training of its embeddings, if any.

    A model with a pair score is measured by that score on all examples, and so are the heuristics. Others are measured
    by their embeddings with a probe, over the test examples of all repeats; a heuristic with embeddings has a probe
    too. Neither pair scores nor heuristics see a label of the predicted window.
    """
    target, labels = graph[split.target], split.labels.cpu()
    probe, result = (None, None) if done is None else probe_facts(_embedding(model), split, done)
    by_score = getattr(model, "pair_score", False) and getattr(model, "pair_score_", None) is not None
    rivals: list[tuple[str, Tensor, ProbeResult]] = []
    ranked = _to_rank(graph, split)
    own_ranks, ranks = _ranks(model, ranked), dict[str, Tensor | None]()
    for number, name in enumerate(OPPONENTS):
        report(f"{name}, heuristic", number, len(OPPONENTS))
        try:
            rival = MODELS[name]().fit(graph[: split.target])
            own = rival.pair_scores(split.pairs).double().cpu()
            found = evaluate_scores(own, split)
            if done is not None and isinstance(rival, EmbeddingModel):
                found = evaluate_probe(rival.roles(), split, feature=rival.pair_feature)
        except DysatError:
            continue  # it needs more snapshots
        rivals.append((name, own, found))
        ranks[name] = _ranks(rival, ranked)
    facts: Facts = {
        "step": split.step,
        "start": write_moment(target.start, graph.clock),
        "end": write_moment(target.stop, graph.clock),
        "links": int(labels.sum()),
        "by": "score" if by_score else "probe",
    }
    if by_score:
        scores = model.pair_scores(split.pairs).double().cpu()
        facts |= {"auc": auc(scores, labels), "average_precision": average_precision(scores, labels)}
        facts["heuristics"] = {
            name: _without_nan({"auc": auc(own, labels), "error": difference_error(scores, own, labels)})
            for name, own, _ in rivals
        }
        facts["reliability"] = _reliability(model, split, labels)
    else:
        facts |= {name: None if probe is None else probe[name] for name in FIGURES}
        facts["heuristics"] = {name: _rival(result, found) for name, _, found in rivals}
    facts |= _ranking(own_ranks, ranked) | _counts(ranked)
    for name, theirs in ranks.items():
        facts["heuristics"][name] |= _ranking(theirs, ranked) | {"mrr_error": _mrr_error(own_ranks, theirs)}
    facts["precision"] = precision(model, graph, split)
    if probe is not None:
        best = max(((found.auc, name) for name, _, found in rivals if found.auc == found.auc), default=None)
        facts["probe"] = {**probe, "heuristic": None if best is None else {"name": best[1], "auc": best[0]}}
    return _without_nan(facts)


class Ranked(NamedTuple):
    """Links of a window, the nodes that each is ranked among, and which links are new.  # [P, 2], [P, K], [P]"""

    links: Tensor
    others: Tensor
    new: Tensor


def _to_rank(graph: DynamicGraph, split: LinkSplit) -> Ranked | None:
    """Return the links to rank and their candidates; None in a small graph."""
    drawn = drawn_ranking(graph, split)
    if drawn is None:
        return None
    links = split.pairs[drawn[0]]
    return Ranked(links, drawn[1], never_linked(graph, split.step, links))


def _ranks(model: LinkModel, ranked: Ranked | None) -> Tensor | None:
    """Return the ranks of the links by the model's own scores, which are computed here only; None without any."""
    try:
        return None if ranked is None else link_ranks(model.pair_scores, ranked.links, ranked.others).cpu()
    except DysatError:  # training diverged
        return None


def _ranking(ranks: Tensor | None, ranked: Ranked | None) -> Facts:
    """Return MRR, Hits@10 and the MRR of new links."""
    if ranks is None or ranked is None:
        return dict.fromkeys(RANKING)
    return _without_nan(dict(rank_figures(ranks, ranked.new)))


def _counts(ranked: Ranked | None) -> Facts:
    """Return how many links were ranked, how many of them are new, and among how many other nodes each."""
    if ranked is None:
        return {"candidates": None, "ranked": 0, "ranked_new": 0}
    return {"candidates": ranked.others.shape[1], "ranked": len(ranked.links), "ranked_new": int(ranked.new.sum())}


def _mrr_error(one: Tensor | None, other: Tensor | None) -> float | None:
    """Return the standard error of the difference of two MRRs; None if it is not known."""
    error = float("nan") if one is None or other is None else mrr_difference_error(one, other)
    return None if error != error else error


def precision(model: LinkModel, graph: DynamicGraph, split: LinkSplit) -> dict[str, dict[str, int]]:
    """Return how many of the k most likely pairs came true: of all pairs, and of pairs never linked before.

    k is 10, 100, and as many as there are links (at most 1,000). A k beyond the number of pairs is left out.
    """
    number = min(MOST, int(split.labels.sum()))
    known = graph.known[split.step]
    links = model._pair_keys(torch.from_numpy(link_pairs(graph[split.target], known)))
    found: dict[str, dict[str, int]] = {}
    for name, pairs in zip(("all", "new"), model.likeliest(max(*TOP, number)), strict=True):
        true = torch.isin(model._pair_keys(pairs), links)
        wanted = {**{str(k): k for k in TOP}, "links": number}
        found[name] = {key: int(true[:k].sum()) for key, k in wanted.items() if k <= len(pairs)}
    return found


def summary(windows: Sequence[Facts], left_out: Facts | None) -> Facts:
    """The entry `backtest` of metrics.json, from the windows that were predicted, newest first."""
    newest, measured = windows[0], [window for window in windows if window["auc"] is not None]
    values: dict[str, list[float]] = {name: [window[name] for window in measured] for name in FIGURES}
    for name in RANKING:  # a small graph has none; a window with few new links has no MRR of these
        known = [window[name] for window in measured if window.get(name) is not None]
        if known and (name == "new_mrr" or len(known) == len(measured)):
            values[name] = known
    rival = _strongest(measured)
    facts: Facts = {
        **newest.get("probe", {}),
        "windows": [{key: value for key, value in window.items() if key != "probe"} for window in reversed(windows)],
        "mean": {name: fmean(found) if found else None for name, found in values.items()},
        "sd": {name: stdev(found) if len(found) > 1 else None for name, found in values.items()},
        "reliable": bool(measured) and all(window["links"] >= FEWEST_LINKS for window in windows),
        "verdict": None if rival is None else rival["verdict"],
        "comparison": rival,
        "mrr_comparison": _strongest(measured, "mrr", "mrr_error"),
        "heuristics": _heuristic_means(measured),
        "precision": _mean_precision(windows),
        "left_out": left_out,
    }
    if newest["by"] == "score":
        curves = {name: pooled([window["reliability"][name] for window in windows]) for name in newest["reliability"]}
        best = None if rival is None else rival["heuristic"]
        facts["forecast"] = {
            **{name: newest[name] for name in FIGURES},
            "reliability": curves.pop("all"),
            **{f"reliability_{name}": curve for name, curve in curves.items()},
            "heuristic": None if best is None else {"name": best, "auc": _figure_of(newest, best, "auc")},
        }
    return facts


def with_windows(backtest: Facts) -> Facts:
    """The entry `backtest` of metrics.json in today's form; version 0.1.0 predicted one window."""
    if "windows" in backtest:
        return backtest
    measured = backtest.get("forecast") or backtest
    strongest = measured.get("heuristic")
    window = {"step": backtest["step"], "links": backtest["links"], "auc": measured["auc"], "heuristics": {}}
    comparison = None
    if strongest is not None and measured["auc"] is not None:
        window["heuristics"] = {strongest["name"]: {"auc": strongest["auc"]}}
        comparison = {"heuristic": strongest["name"], "auc": strongest["auc"], "verdict": None}
    mean = {"auc": measured["auc"]}
    return {**backtest, "windows": [window], "mean": mean, "comparison": comparison, "left_out": None}


def verdict_text(backtest: Facts) -> str | None:
    """One or two sentences: the strongest heuristic on this data, and whether the model beats it."""
    backtest = with_windows(backtest)
    rival, what = backtest["comparison"], "The forecast score" if "forecast" in backtest else "The model"
    if rival is None:
        return None
    if rival["verdict"] is None:  # of version 0.1.0
        heuristic = f"the strongest heuristic, {rival['heuristic']}"
        return f"{what} has AUC {backtest['mean']['auc']:.4f}; {heuristic}, has {rival['auc']:.4f}."
    doubt = "" if backtest["reliable"] else " The windows have few links, so this is not a reliable comparison."
    return f"{what} {_compared(backtest, rival, 'auc')}.{doubt}"


def ranking_text(backtest: Facts) -> str | None:
    """One or two sentences: the same by MRR, for all links and for new ones; None if no links were ranked."""
    rival, mean = backtest.get("mrr_comparison"), backtest["mean"]
    if rival is None or mean.get("mrr") is None:
        return None
    text = f"In ranking it {_compared(backtest, rival, 'mrr')}."
    if mean.get("new_mrr") is None or (best := rivals(backtest).get("new_mrr")) is None:
        return text
    other = backtest["heuristics"][best]["new_mrr"]
    return f"{text} New links only: MRR {mean['new_mrr']:.4f}; the best heuristic, {best}, has {other:.4f}."


def rivals(backtest: Mapping[str, Any]) -> dict[str, str]:
    """The heuristic beside each figure: the best by AUC, by MRR (also for Hits@10), and by the MRR of new links."""
    by_auc, by_mrr = (backtest.get(name) for name in ("comparison", "mrr_comparison"))
    best = {"auc": by_auc, "mrr": by_mrr, "hits_at_10": by_mrr}
    found = {figure: str(rival["heuristic"]) for figure, rival in best.items() if rival is not None}
    means = {name: figures.get("new_mrr") for name, figures in (backtest.get("heuristics") or {}).items()}
    known = {name: value for name, value in means.items() if value is not None}
    return {**found, "new_mrr": max(known, key=lambda name: known[name])} if known else found


def _compared(backtest: Facts, rival: Facts, figure: str) -> str:
    """Whether the model beats a heuristic by a figure, with both values, their difference and its spread."""
    heuristic, own, other = f"the strongest heuristic, {rival['heuristic']}", backtest["mean"][figure], rival[figure]
    over = "over windows and links" if len(backtest["windows"]) > 1 else "over links"
    spread = "no spread is known" if rival["spread"] is None else f"spread {over} {rival['spread']:.4f}"
    words = {"beats": f"beats {heuristic}", "behind": f"is behind {heuristic}", "tie": f"ties with {heuristic}"}
    figures = f"{figure.upper()} {own:.4f} against {other:.4f}, difference {rival['difference']:+.4f}, {spread}"
    return f"{words[rival['verdict']]}: {figures}"


def _strongest(windows: Sequence[Facts], figure: str = "auc", error: str = "error") -> Facts | None:
    """The heuristic with the highest mean AUC or MRR of those measured in all windows, compared window by window."""
    if any(window.get(figure) is None for window in windows):
        return None
    means = {name: found[figure] for name, found in _heuristic_means(windows).items() if figure in found}
    if not means:
        return None
    best = max(means, key=lambda name: means[name])
    rivals = [window["heuristics"][best] for window in windows]
    found = compare(
        [window[figure] - rival[figure] for window, rival in zip(windows, rivals, strict=True)],
        [float("nan") if rival.get(error) is None else rival[error] for rival in rivals],
    )
    spread = None if found.spread == float("inf") else found.spread
    values = [rival[figure] for rival in rivals]
    return {
        "heuristic": best,
        figure: means[best],
        f"{figure}_sd": stdev(values) if len(values) > 1 else None,
        "difference": found.difference,
        "spread": spread,
        "verdict": found.verdict,
    }


def _heuristic_means(windows: Sequence[Facts]) -> dict[str, dict[str, float]]:
    """The means of every heuristic over windows: of figures that all windows have, and of the MRR of new links."""
    found: dict[str, dict[str, float]] = {}
    for name in OPPONENTS:
        values = {
            figure: [_figure_of(window, name, figure) for window in windows if window.get(figure) is not None]
            for figure in ("auc", *RANKING)
        }
        found[name] = {
            figure: fmean(value for value in known if value is not None)
            for figure, known in values.items()
            if known and None not in known and (figure == "new_mrr" or len(known) == len(windows))
        }
    return {name: means for name, means in found.items() if means}


def _figure_of(window: Facts, heuristic: str, figure: str) -> float | None:
    found: float | None = window["heuristics"].get(heuristic, {}).get(figure)
    return found


def _rival(model: ProbeResult | None, rival: ProbeResult) -> Facts:
    """AUC of a heuristic and the standard error of the difference, on the test examples of the first repeat."""
    if model is None:
        return _without_nan({"auc": rival.auc, "error": float("nan")})
    test = model.test[0].cpu()
    own, other = (found.scores[0].cpu()[test] for found in (model, rival))
    return _without_nan({"auc": rival.auc, "error": difference_error(own, other, model.labels.cpu()[test])})


def _reliability(model: LinkModel, split: LinkSplit, labels: Tensor) -> Facts:
    """Reliability curves of the probabilities of all examples, of new pairs, and of pairs linked before."""
    chances = model._probabilities(split.pairs)
    before = torch.isin(model._pair_keys(split.pairs.cpu()), model._linked())
    parts = {"all": torch.ones_like(before), "new": ~before, "known": before}
    return {name: reliability(chances[rows], labels[rows]) for name, rows in parts.items()}


def _mean_precision(windows: Sequence[Facts]) -> dict[str, dict[str, float]]:
    """The mean over windows, for each k that all windows have."""
    return {
        name: {
            key: fmean(window["precision"][name][key] for window in windows)
            for key in windows[0]["precision"][name]
            if all(key in window["precision"][name] for window in windows)
        }
        for name in ("all", "new")
    }


def _embedding(model: LinkModel) -> EmbeddingModel:
    if not isinstance(model, EmbeddingModel):
        raise TypeError("a model without embeddings")
    return model


def _without_nan(facts: Facts) -> Facts:
    return {key: None if isinstance(value, float) and value != value else value for key, value in facts.items()}
