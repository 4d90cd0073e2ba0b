"""A logistic probe on pairs of embeddings, and the area under its curves."""

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

CACHED = 2**20  # numbers of all problems solved together on a CPU; past its cache a loop is faster
STORED = 2**26  # the same elsewhere


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """How well the links after one step are told from other pairs, in K repeats.

    `auc` and `average_precision` are means over the repeats, on their test examples; `aucs` and
    `average_precisions` have each, and the standard deviations (of a sample; NaN for one repeat) end in `_sd`.

    Shapes:
        scores [K, B] of all examples in float64 (a probe's are log-odds), labels [B], test [K, B]
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
    """What several steps come to: means over the repeats, and their standard deviations.

    macro is the mean of the steps' own figures, micro the figure of all their test examples pooled. NaN without steps.
    """

    targets: tuple[int, ...]  # the predicted snapshots
    left_out: tuple[int, ...]  # predicted snapshots without a figure
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
    """AUC on the validation examples of the first repeat's probe: what chooses the best epoch."""
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
    """Train and test a probe on the embeddings in every repeat; `feature` is what it sees of a pair.  # [N, d]

    The paper trains it on links of the very snapshot it predicts. With `past`, embeddings of the same model at an
    earlier step and the examples of a snapshot up to `split.step`, one probe is trained on all of those instead, and
    tested as ever: no label of the target is used.
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
    """Test scores of the split's pairs that need no probe, on the same examples.  # [B]"""
    if scores.shape != split.labels.shape:
        raise ModelError(f"scores have shape {tuple(scores.shape)}, expected [{len(split.labels)}]: one for each pair")
    if not (finite := scores.isfinite()).all():
        at = int((~finite).nonzero()[0])
        u, v = split.pairs[at].tolist()
        raise ModelError(f"the score of pair ({u}, {v}) is {float(scores[at])}, not a finite number")
    return _result(scores.double().expand(split.num_repeats, -1), split.to(scores.device))


def pair_features(embeddings: Tensor, pairs: Tensor, kind: PairFeature = "product") -> Tensor:
    """e_u ⊙ e_v or |e_u − e_v| in float64.  # [N, d], [B, 2] → [B, d]"""
    u, v = pairs.unbind(-1)
    return pair.pair_features(embeddings[u].double(), embeddings[v].double(), kind)


def macro_auc(results: Sequence[ProbeResult]) -> float:
    """Mean of the steps' AUC; NaN if a step has none."""
    return fmean(result.auc for result in results)


def micro_auc(results: Sequence[ProbeResult]) -> float:
    """AUC of all steps' test predictions pooled, a repeat at a time, then the mean of the repeats."""
    return fmean(masked_auc(*_pooled(results)).tolist())


def means(results: Sequence[ProbeResult]) -> Means:
    """Macro and micro figures of the steps that have one; those without are named and left out."""
    there = [result for result in results if not isnan(result.auc)]
    pooled = _pooled(there) if there else None
    repeats = {  # of each figure, one value per repeat
        "macro_auc": _across(result.aucs for result in there),
        "micro_auc": tuple(masked_auc(*pooled).tolist()) if pooled else (),
        "macro_average_precision": _across(result.average_precisions for result in there),
        "micro_average_precision": tuple(masked_average_precision(*pooled).tolist()) if pooled else (),
    }
    return Means(
        targets=tuple(result.target for result in there),
        left_out=tuple(result.target for result in results if isnan(result.auc)),
        **{name: fmean(values) if values else float("nan") for name, values in repeats.items()},
        **{f"{name}_sd": _deviation(values) for name, values in repeats.items()},
    )


def auc(scores: Tensor, labels: Tensor) -> float:
    """The chance that a positive scores above a negative, ties one half; NaN without both.  # [B], [B]"""
    return float(masked_auc(scores, labels, torch.ones_like(labels, dtype=torch.bool)))


def average_precision(scores: Tensor, labels: Tensor) -> float:
    """Mean over the positives of the precision among all that score as high; NaN without both.  # [B], [B]"""
    return float(masked_average_precision(scores, labels, torch.ones_like(labels, dtype=torch.bool)))


def masked_auc(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """`auc` of the examples in each mask, leading axes at once.  # [..., B], [..., B], [..., B] → [...]"""
    scores, positive, negative = _classes(scores, labels, mask)
    below, upto = _count(scores, negative)
    wins = (positive * (below + upto)).sum(-1).double() / 2  # [...]
    area = wins / (positive.sum(-1) * negative.sum(-1))
    return _where_defined(area, scores, positive, negative)


def masked_average_precision(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """`average_precision` of the examples in each mask, leading axes at once.  # three [..., B] → [...]"""
    scores, positive, negative = _classes(scores, labels, mask)
    as_high = positive.sum(-1, keepdim=True) - _count(scores, positive)[0]  # [..., B]
    as_high_negative = negative.sum(-1, keepdim=True) - _count(scores, negative)[0]
    precision = as_high.double() / (as_high + as_high_negative).clamp(min=1)
    area = (positive * precision).sum(-1) / positive.sum(-1)
    return _where_defined(area, scores, positive, negative)


def _fit_past(
    before: Tensor, examples: LinkSplit, embeddings: Tensor, split: LinkSplit, feature: PairFeature
) -> tuple[Tensor, Tensor]:
    """One probe on all examples of an earlier snapshot.  # [d], []"""
    if examples.target > split.step:
        raise GraphError(
            f"a probe on the past of step {split.step} cannot know the links of snapshot {examples.target}"
        )
    if examples.negatives != "uniform":
        raise GraphError(f"a probe is trained with uniform negatives, not with {examples.negatives} ones")
    _check_embeddings(before, examples)
    if before.shape[1] != embeddings.shape[1]:
        raise ModelError(
            f"embeddings of {before.shape[1]} numbers before and {embeddings.shape[1]} now: of two models?"
        )
    x = pair_features(before.to(embeddings.device), examples.pairs.to(embeddings.device), feature)
    return fit_logistic(x, examples.labels.to(embeddings.device))


def _check_embeddings(embeddings: Tensor, split: LinkSplit) -> None:
    """Every node of the examples has a row of finite numbers; others are not looked at."""
    if embeddings.dim() != 2:
        raise ModelError(f"embeddings have shape {tuple(embeddings.shape)}, expected [N, d]: one row for each node")
    nodes: Tensor = split.pairs.unique().to(embeddings.device)  # type: ignore[no-untyped-call]
    if len(nodes) and int(nodes[-1]) >= len(embeddings):
        missing = int(nodes[nodes >= len(embeddings)][0])
        raise ModelError(f"embeddings have {len(embeddings):,} rows, and none for node {missing} of the examples")
    bad = nodes[~embeddings[nodes].isfinite().all(1)]
    if len(bad):
        raise ModelError(f"the embedding of node {int(bad[0])} has a value that is not a finite number")


def fit_repeats(x: Tensor, split: LinkSplit) -> tuple[Tensor, Tensor]:
    """The probes of all repeats, on their own rows only.  # [B, d] → [K, d], [K]"""
    most = int(split.train.sum(-1).max())
    rows = split.train.int().argsort(dim=-1, descending=True, stable=True)[:, :most]  # [K, B']
    used = split.train.gather(-1, rows)  # a shorter repeat is filled up with rows that do not count
    limit = CACHED if x.device.type == "cpu" else STORED
    at_once = max(1, limit // max(1, most * x.shape[-1]))
    parts = [
        fit_logistic(x[some], split.labels[some], sample_weight=counted)
        for some, counted in zip(torch.split(rows, at_once), torch.split(used, at_once), strict=True)
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
    """Scores, labels and test masks of all steps end to end.  # [K, ΣB], [ΣB], [K, ΣB]"""
    scores = torch.cat([result.scores for result in results], -1)
    return scores, torch.cat([result.labels for result in results]), torch.cat([result.test for result in results], -1)


def _across(steps: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    """For each repeat the mean over the steps."""
    return tuple(fmean(values) for values in zip(*steps, strict=True))


def _classes(scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, and which of them are positives and negatives that count; all of one shape.  # each [..., B]"""
    scores = torch.where(mask, scores.double(), 0.0)  # NaN that does not count would upset the order of the rest
    labels = labels.bool()
    return scores, (labels & mask).long().expand_as(scores), (~labels & mask).long().expand_as(scores)


def _count(scores: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """For each score, how many of `counted` score less, and how many no more.  # each [..., B]"""
    ordered, order = scores.sort(-1)
    sums = functional.pad(counted.gather(-1, order).cumsum(-1), (1, 0))  # [..., B + 1]
    less, no_more = (torch.searchsorted(ordered, scores.contiguous(), right=right) for right in (False, True))
    return sums.gather(-1, less), sums.gather(-1, no_more)


def _where_defined(area: Tensor, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """NaN where a class is missing or a score that counts is NaN."""
    unknown = (scores.isnan() & (positive + negative > 0)).any(-1)
    missing = (positive.sum(-1) == 0) | (negative.sum(-1) == 0)
    return area.masked_fill(unknown | missing, torch.nan)


def _deviation(values: tuple[float, ...]) -> float:
    return stdev(values) if len(values) > 1 and not any(map(isnan, values)) else float("nan")
