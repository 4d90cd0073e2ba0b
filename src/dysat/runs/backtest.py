"""How well the last snapshot is predicted by a model that has not seen it, and by the heuristics beside it."""

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
    """What a run keeps of its backtest, as JSON has it: no NaN."""
    e = model.embed().cpu()
    finite = bool(e.isfinite().all())  # where training went astray there is no figure
    result = evaluate_probe(e, split, feature=model.pair_feature) if finite else None
    best = done.best
    names = ("auc", "auc_sd", "average_precision", "average_precision_sd")
    facts = {
        "step": split.step,
        **{name: None if result is None else getattr(result, name) for name in names},
        "validation_auc": best.score if best else None,
        "best_epoch": best.number if best else 0,
        "epochs": len(done.history),
        "links": int(split.labels.sum()),
        "repeats": split.num_repeats,
    }
    probed, scored = strongest_opponents(past, split)
    forecast = forecast_facts(model, split)
    if forecast is not None:
        facts["forecast"] = {**forecast, "heuristic": scored}
    return {key: _known(value) for key, value in facts.items()} | {"heuristic": probed}


def forecast_facts(model: EmbeddingModel, split: LinkSplit) -> dict[str, Any] | None:
    """How well a model's own score of pairs tells examples apart, and whether it means what it says.

    None for a model without a pair score, which learns from past transitions alone. Some examples of the snapshot chose
    the best epoch of the embeddings; the score does not use them, but they are left out all the same (`untouched`).
    """
    if not getattr(model, "pair_score", False) or getattr(model, "pair_score_", None) is None:
        return None
    tested = untouched(split)
    pairs, labels = split.pairs[tested], split.labels[tested].cpu()
    scores = model.pair_scores(pairs).cpu()
    return {
        "auc": _known(auc(scores, labels)),
        "average_precision": _known(average_precision(scores, labels)),
        "reliability": reliability(model.score_links(pairs), labels),
    }


def untouched(split: LinkSplit) -> Tensor:
    """The examples that had no part in choosing the best epoch, which validation and the first division have.  # [B]"""
    return ~(split.validation | split.train[0])


def strongest_opponents(past: DynamicGraph, split: LinkSplit) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The heuristic that predicts best and its AUC: measured like embeddings, and by its own scores, as a forecast.

    The first is the mean over the test examples of every division, with a probe where there are embeddings; the second
    uses no label of the predicted snapshot, on the examples of the forecast score.
    """
    probed: list[tuple[float, str]] = []
    scored: list[tuple[float, str]] = []
    for name in OPPONENTS:
        try:
            model = MODELS[name]().fit(past)
            scores = model.pair_scores(split.pairs)
            result = evaluate_scores(scores, split)
            if isinstance(model, EmbeddingModel):
                result = evaluate_probe(model.embed(), split, feature=model.pair_feature)
        except DysatError:
            continue  # it needs more snapshots than there are
        probed.append((result.auc, name))
        tested = untouched(split)
        scored.append((auc(scores[tested], split.labels[tested]), name))
    first, second = (max((pair for pair in found if pair[0] == pair[0]), default=None) for found in (probed, scored))
    return _named(first), _named(second)


def _named(best: tuple[float, str] | None) -> dict[str, Any] | None:
    return None if best is None else {"name": best[1], "auc": best[0]}


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value
