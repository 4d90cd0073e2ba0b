"""A logistic probe on pairs of embeddings, AUC and average precision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import fmean, stdev

import torch
from torch import Tensor
from torch.nn import functional

from dysat.errors import GraphError, ModelError
from dysat.evaluation.protocols import LinkSplit
from dysat.nn import pair
from dysat.nn.logistic import fit_logistic
from dysat.nn.pair import PairFeature

CPU_BATCH = 2**20  # values in a batch of probes solved together; beyond the CPU cache a loop is faster
GPU_BATCH = 2**26  # the same on other devices


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """Link prediction for one step, in K repeats.

    `aucs` and `average_precisions` have one value per repeat, on its test examples; `auc` and `average_precision` are
    their means. Sample standard deviations end in `_sd` (NaN for one repeat).

    Shapes:
        scores [K, B] of all examples in float64 (log-odds, if a probe made them), labels [B], test [K, B]
    """

    step: int
    target: int
    negatives: str
    aucs: tuple[float, ...]
    average_precisions: tuple[float, ...]
    validation_auc: float  # of the first repeat
    scores: Tensor
    labels: Tensor
    test: Tensor

    @property
    def auc(self) -> float:
        return fmean(self.aucs)

    @property
    def auc_sd(self) -> float:
        return _deviation(self.aucs)

    @property
    def average_precision(self) -> float:
        return fmean(self.average_precisions)

    @property
    def average_precision_sd(self) -> float:
        return _deviation(self.average_precisions)


@dataclass(frozen=True)
class Means:
    """Results over several steps: means over the repeats, and their standard deviations.

    macro is the mean of the steps' values, micro the value of all their test examples pooled. NaN without steps.
    """

    targets: tuple[int, ...]  # the predicted snapshots
    left_out: tuple[int, ...]  # predicted snapshots without a value
    macro_auc: float
    macro_auc_sd: float
    micro_auc: float
    micro_auc_sd: float
    macro_average_precision: float
    macro_average_precision_sd: float
    micro_average_precision: float
    micro_average_precision_sd: float


@torch.no_grad()
def validation_auc(embeddings: Tensor, split: LinkSplit, *, feature: PairFeature = "product") -> float:
    """Return the validation AUC of the first repeat's probe; it selects the best epoch."""
    split = split.to(embeddings.device)
    train, validation = split.train[0], split.validation
    weights, bias = fit_logistic(pair_features(embeddings, split.pairs[train], feature), split.labels[train])
    scores = pair_features(embeddings, split.pairs[validation], feature) @ weights + bias
    return auc(scores, split.labels[validation])


@torch.no_grad()
def evaluate_probe(
    embeddings: Tensor,
    split: LinkSplit,
    past: tuple[Tensor, LinkSplit] | None = None,
    *,
    feature: PairFeature = "product",
) -> ProbeResult:
    """Train and test a probe on the embeddings in every repeat; `feature` is its input for a pair.

    Embeddings are [N, d], or [N, 2, d] if nodes have two roles, source and target.

    The paper trains the probe on links of the predicted snapshot itself. `past` holds embeddings of the same model at
    an earlier step and the examples of a snapshot up to `split.step`: a single probe is then trained on those, and no
    label of the target is used for training.
    """
    _check_embeddings(embeddings, split)
    split = split.to(embeddings.device)
    x = pair_features(embeddings, split.pairs, feature)  # [B, d]
    if past is None:
        weights, bias = fit_repeats(x, split)  # [K, d], [K]
    else:
        probe = _fit_past(*past, embeddings, split, feature)
        weights, bias = (part.expand(split.num_repeats, *part.shape) for part in probe)
    return _result(weights @ x.mT + bias.unsqueeze(-1), split)


@torch.no_grad()
def evaluate_scores(scores: Tensor, split: LinkSplit) -> ProbeResult:
    """Evaluate scores of the split's pairs directly, without a probe, on the same test examples.  # [B]"""
    if scores.shape != split.labels.shape:
        raise ModelError(f"scores have shape {tuple(scores.shape)}, expected [{len(split.labels)}]: one per pair")
    if not (finite := scores.isfinite()).all():
        at = int((~finite).nonzero()[0])
        u, v = split.pairs[at].tolist()
        raise ModelError(f"the score of pair ({u}, {v}) is {float(scores[at])}, not a finite number")
    return _result(scores.double().expand(split.num_repeats, -1), split.to(scores.device))


def pair_features(embeddings: Tensor, pairs: Tensor, kind: PairFeature = "product") -> Tensor:
    """e_u ⊙ e_v or |e_u − e_v| in float64; u as source and v as target, if there are roles.  # [N, d] → [B, d]"""
    one, two = pair.both_ends(embeddings, pairs)
    return pair.pair_features(one.double(), two.double(), kind)


def macro_auc(results: Sequence[ProbeResult]) -> float:
    """Return the mean AUC of the steps; NaN if a step has none."""
    return fmean(result.auc for result in results)


def micro_auc(results: Sequence[ProbeResult]) -> float:
    """Return the AUC of all steps' test predictions pooled, as a mean over the repeats."""
    return fmean(masked_auc(*_pooled(results)).tolist())


def means(results: Sequence[ProbeResult]) -> Means:
    """Return macro and micro values of the steps that have one, and the list of those without."""
    valid = [result for result in results if not isnan(result.auc)]
    pooled = _pooled(valid) if valid else None
    repeats = {  # one value per repeat
        "macro_auc": _across(result.aucs for result in valid),
        "micro_auc": tuple(masked_auc(*pooled).tolist()) if pooled else (),
        "macro_average_precision": _across(result.average_precisions for result in valid),
        "micro_average_precision": tuple(masked_average_precision(*pooled).tolist()) if pooled else (),
    }
    return Means(
        targets=tuple(result.target for result in valid),
        left_out=tuple(result.target for result in results if isnan(result.auc)),
        **{name: fmean(values) if values else float("nan") for name, values in repeats.items()},
        **{f"{name}_sd": _deviation(values) for name, values in repeats.items()},
    )


def auc(scores: Tensor, labels: Tensor) -> float:
    """Return the probability that a positive scores above a negative; ties count one half.  # [B], [B]

    NaN if a class is missing.
    """
    return float(masked_auc(scores, labels, torch.ones_like(labels, dtype=torch.bool)))


def average_precision(scores: Tensor, labels: Tensor) -> float:
    """Return the mean over positives of the precision at their score; NaN if a class is missing.  # [B], [B]"""
    return float(masked_average_precision(scores, labels, torch.ones_like(labels, dtype=torch.bool)))


def masked_auc(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Return `auc` of the examples in each mask, batched over leading axes.  # three [..., B] → [...]"""
    scores, positive, negative = _classes(scores, labels, mask)
    below, upto = _count(scores, negative)
    wins = (positive * (below + upto)).sum(-1).double() / 2  # [...]
    area = wins / (positive.sum(-1) * negative.sum(-1))
    return _where_defined(area, scores, positive, negative)


def masked_average_precision(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Return `average_precision` of the examples in each mask, batched over leading axes.  # three [..., B] → [...]"""
    scores, positive, negative = _classes(scores, labels, mask)
    as_high = positive.sum(-1, keepdim=True) - _count(scores, positive)[0]  # [..., B]
    as_high_negative = negative.sum(-1, keepdim=True) - _count(scores, negative)[0]
    precision = as_high.double() / (as_high + as_high_negative).clamp(min=1)
    area = (positive * precision).sum(-1) / positive.sum(-1)
    return _where_defined(area, scores, positive, negative)


def _fit_past(
    before: Tensor, examples: LinkSplit, embeddings: Tensor, split: LinkSplit, feature: PairFeature
) -> tuple[Tensor, Tensor]:
    """Fit one probe on all examples of an earlier snapshot.  # [d], []"""
    if examples.target > split.step:
        raise GraphError(f"a probe on the past of step {split.step} cannot use the links of snapshot {examples.target}")
    if examples.negatives != "uniform":
        raise GraphError(f"a probe is trained on uniform negatives, not on {examples.negatives} ones")
    _check_embeddings(before, examples)
    if before.shape[1:] != embeddings.shape[1:]:
        raise ModelError(
            f"past embeddings have {before.shape[-1]} dimensions, present ones {embeddings.shape[-1]}: two models?"
        )
    x = pair_features(before.to(embeddings.device), examples.pairs.to(embeddings.device), feature)
    return fit_logistic(x, examples.labels.to(embeddings.device))


def _check_embeddings(embeddings: Tensor, split: LinkSplit) -> None:
    """Check that every node of the examples has a row of finite numbers."""
    if embeddings.dim() != 2 and embeddings.shape[1:-1] != (2,):
        raise ModelError(f"embeddings have shape {tuple(embeddings.shape)}, expected [N, d]: one row per node")
    nodes: Tensor = split.pairs.unique().to(embeddings.device)  # type: ignore[no-untyped-call]
    if len(nodes) and int(nodes[-1]) >= len(embeddings):
        missing = int(nodes[nodes >= len(embeddings)][0])
        raise ModelError(f"embeddings have {len(embeddings):,} rows, but none for node {missing} of the examples")
    bad = nodes[~embeddings[nodes].isfinite().flatten(1).all(1)]
    if len(bad):
        raise ModelError(f"the embedding of node {int(bad[0])} has a value that is not a finite number")


def fit_repeats(x: Tensor, split: LinkSplit) -> tuple[Tensor, Tensor]:
    """Fit the probes of all repeats, each on its own training rows.  # [B, d] → [K, d], [K]"""
    most = int(split.train.sum(-1).max())
    rows = split.train.int().argsort(dim=-1, descending=True, stable=True)[:, :most]  # [K, B']
    used = split.train.gather(-1, rows)  # shorter repeats are padded with rows of weight 0
    limit = CPU_BATCH if x.device.type == "cpu" else GPU_BATCH
    at_once = max(1, limit // max(1, most * x.shape[-1]))
    parts = [
        fit_logistic(x[batch], split.labels[batch], sample_weight=weight)
        for batch, weight in zip(torch.split(rows, at_once), torch.split(used, at_once), strict=True)
    ]
    weights, biases = zip(*parts, strict=True)
    return torch.cat(weights), torch.cat(biases)


def _result(scores: Tensor, split: LinkSplit) -> ProbeResult:
    return ProbeResult(
        step=split.step,
        target=split.target,
        negatives=split.negatives,
        aucs=tuple(masked_auc(scores, split.labels, split.test).tolist()),
        average_precisions=tuple(masked_average_precision(scores, split.labels, split.test).tolist()),
        validation_auc=float(masked_auc(scores[0], split.labels, split.validation)),
        scores=scores,
        labels=split.labels,
        test=split.test,
    )


def _pooled(results: Sequence[ProbeResult]) -> tuple[Tensor, Tensor, Tensor]:
    """Concatenate scores, labels and test masks of all steps.  # [K, ΣB], [ΣB], [K, ΣB]"""
    scores = torch.cat([result.scores for result in results], -1)
    return scores, torch.cat([result.labels for result in results]), torch.cat([result.test for result in results], -1)


def _across(steps: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    """Return the mean over the steps for each repeat."""
    return tuple(fmean(values) for values in zip(*steps, strict=True))


def _classes(scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores, and masks of the positives and negatives that count, in one shape.  # each [..., B]"""
    scores = torch.where(mask, scores.double(), 0.0)  # a masked NaN would break the sort order
    labels = labels.bool()
    return scores, (labels & mask).long().expand_as(scores), (~labels & mask).long().expand_as(scores)


def _count(scores: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Count, for each score, how many of `counted` score less, and how many at most as much.  # each [..., B]"""
    ordered, order = scores.sort(-1)
    sums = functional.pad(counted.gather(-1, order).cumsum(-1), (1, 0))  # [..., B + 1]
    less, no_more = (torch.searchsorted(ordered, scores.contiguous(), right=right) for right in (False, True))
    return sums.gather(-1, less), sums.gather(-1, no_more)


def _where_defined(area: Tensor, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Set the area to NaN if a class is missing or an unmasked score is NaN."""
    unknown = (scores.isnan() & (positive + negative > 0)).any(-1)
    missing = (positive.sum(-1) == 0) | (negative.sum(-1) == 0)
    return area.masked_fill(unknown | missing, torch.nan)


def _deviation(values: tuple[float, ...]) -> float:
    return stdev(values) if len(values) > 1 and not any(map(isnan, values)) else float("nan")
