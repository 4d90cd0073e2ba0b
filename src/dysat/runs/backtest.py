"""Backtest: how well a model that has not seen the last snapshot predicts it, compared with the best heuristic."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import DysatError
from dysat.evaluation.probe import auc, average_precision, evaluate_probe, evaluate_scores
from dysat.evaluation.protocols import LinkSplit
from dysat.evaluation.reliability import reliability
from dysat.models import MODELS, OPPONENTS
from dysat.models.base.embedding import EmbeddingModel
from dysat.training import Progress


def backtest_facts(model: EmbeddingModel, past: DynamicGraph, split: LinkSplit, done: Progress) -> dict[str, Any]:
    """The entry `backtest` of metrics.json; a figure that is not a number becomes None."""
    # Embeddings with a probe. If training diverged, there is no figure.
    e = model.roles().cpu()
    result = evaluate_probe(e, split, feature=model.pair_feature) if bool(e.isfinite().all()) else None
    names = ("auc", "auc_sd", "average_precision", "average_precision_sd")
    facts: dict[str, Any] = {
        "step": split.step,
        **{name: None if result is None else getattr(result, name) for name in names},
        "validation_auc": done.best.score if done.best else None,
        "best_epoch": done.best.number if done.best else 0,
        "epochs": len(done.history),
        "links": int(split.labels.sum()),
        "repeats": split.num_repeats,
    }
    tested = ~(split.validation | split.train[0])  # [B], examples that did not help to choose the best epoch
    probed, scored = best_heuristics(past, split, tested)

    # The model's own pair score, if it has one.
    if getattr(model, "pair_score", False) and getattr(model, "pair_score_", None) is not None:
        pairs, labels = split.pairs[tested], split.labels[tested].cpu()
        scores = model.pair_scores(pairs).cpu()
        figures = {"auc": auc(scores, labels), "average_precision": average_precision(scores, labels)}
        facts["forecast"] = {
            **_without_nan(figures),
            "reliability": reliability(model.score_links(pairs), labels),
            "heuristic": scored,
        }
    return {**_without_nan(facts), "heuristic": probed}


def best_heuristics(
    past: DynamicGraph, split: LinkSplit, tested: Tensor
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Name and AUC of the heuristic that predicts best, measured in two ways.

    The first AUC is measured like that of embeddings: the mean over the test examples of all repeats, with a probe if
    the heuristic has embeddings. The second is that of its own scores on the `tested` examples, like the forecast
    score: it uses no label of the predicted snapshot.
    """
    probed: list[tuple[float, str]] = []
    scored: list[tuple[float, str]] = []
    for name in OPPONENTS:
        try:
            model = MODELS[name]().fit(past)
            scores = model.pair_scores(split.pairs)
            result = evaluate_scores(scores, split)
            if isinstance(model, EmbeddingModel):
                result = evaluate_probe(model.roles(), split, feature=model.pair_feature)
        except DysatError:
            continue  # it needs more snapshots
        probed.append((result.auc, name))
        scored.append((auc(scores[tested], split.labels[tested]), name))
    best = (max((pair for pair in found if pair[0] == pair[0]), default=None) for found in (probed, scored))
    first, second = (None if pair is None else {"name": pair[1], "auc": pair[0]} for pair in best)
    return first, second


def _without_nan(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and value != value else value for key, value in facts.items()}
