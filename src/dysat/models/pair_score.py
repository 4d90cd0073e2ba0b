"""Log-odds of a link from what the past says of a pair, learned from past transitions and calibrated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.pair_features import AT_ONCE, Snapshots, differ_in_kind, past_links
from dysat.models.pair_more import pair_columns
from dysat.models.trees import Trees
from dysat.nn.logistic import fit_logistic
from dysat.sampling.pairs import unlinked_pairs

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]
ENOUGH = 1_000  # links; the past changes, so that no more than needed is learned from
HARD = 0.04  # harder pairs of either sort for each link: many more cost what uniform ones gain
L2 = 100.0  # of the logistic regression, on standardised features: many of them say nearly the same
FURTHEST = 10.0  # standard deviations; a feature far beyond all examples counts no more
EVEN = 2_000  # links from which trees learn as well as the logistic regression: their part is links / (links + EVEN)
LEAST_SLOPE = 0.1  # a last transition that contradicts all others does not turn the order around
MOST_NODES = 32_768  # for three-step paths
TREES = ("feature", "threshold", "left", "right", "value", "baseline")
LOGISTIC = ("means", "scales", "weights", "bias")


@dataclass(frozen=True, eq=False)
class Examples:
    """Pairs as seen before a transition: first those of which a link came, then uniform ones, then harder ones.

    Shapes:
        features [B, F]
    """

    features: Reals
    links: int
    easy: int  # links and uniform pairs

    def labels(self, number: int) -> tuple[Bools, Reals]:
        """Whether a link came of the first so many, and weights with which both classes weigh the same.  # [B], [B]"""
        linked = np.arange(number) < self.links
        return linked, np.where(linked, 1.0, self.links / (number - self.links))


@dataclass(frozen=True, eq=False)
class PairScore:
    """Log-odds of a link: slope · ((1 − mix) · logistic regression + mix · boosted trees) + shift.

    Both parts learn from the last transitions t' → t' + 1 of a graph: links of t' + 1 between nodes known at t' against
    uniform pairs without one and a few harder ones, all seen as at t'. The more links, the more the trees count. Slope
    and shift come from the last transition, predicted by what was learned from those before it; so 0.8 means four in
    five among as many links and uniform pairs without one.

    Shapes:
        means, scales, weights [F], bias []: of the logistic regression, on standardised features
    """

    means: Tensor
    scales: Tensor
    weights: Tensor
    bias: Tensor
    trees: Trees
    far: bool  # whether three-step paths are among the features
    mix: float  # the trees' part
    slope: float = 1.0
    shift: float = 0.0

    @classmethod
    def learn(cls, graph: DynamicGraph, *, transitions: int = 6, negatives: int = 3, seed: int = 0) -> PairScore | None:
        """What the last transitions inside a graph teach, or None where they hold no link or no other pair.

        They are the last `transitions`, and those before them while there are fewer than `ENOUGH` links.
        """
        for name, value in (("transitions", transitions), ("negatives", negatives)):
            if value < 1:
                raise ModelError(f"{name}={value} must be at least 1")
        far = graph.num_nodes < MOST_NODES
        past: list[Examples] = []
        links = 0
        for last in range(len(graph) - 1, 0, -1):
            if last < len(graph) - transitions and links >= ENOUGH:
                break
            pairs, some, easy, columns = _examples(graph.snapshots[: last + 1], far, negatives, seed)
            links += some
            if 0 < some < easy:
                past.insert(0, Examples(np.column_stack([columns, differ_in_kind(graph, pairs)]), some, easy))
        if not past:
            return None
        score = _learn(past, far, seed)
        return score if len(past) == 1 else _calibrated(score, _learn(past[:-1], far, seed), past[-1])

    def log_odds(self, graph: DynamicGraph, step: int, pairs: Tensor) -> Tensor:
        """Of pairs of nodes known at a step, from the snapshots up to it alone, on the CPU.  # [B, 2] → [B] float64"""
        if not 0 <= step < len(graph):
            raise ModelError(f"step={step} of a graph with {len(graph)} snapshots")
        parts = [torch.empty(0, dtype=torch.float64)]
        for part in torch.split(pairs.cpu(), AT_ONCE):
            some = np.sort(part.numpy(), axis=1)
            columns = pair_columns(graph.snapshots[: step + 1], some, self.far)
            logistic, trees = self.both(np.column_stack([columns, differ_in_kind(graph, some)]))
            mixed = (1 - self.mix) * logistic + self.mix * trees
            parts.append(torch.from_numpy(self.slope * mixed + self.shift))
        return torch.cat(parts)

    def both(self, features: Reals) -> tuple[Reals, Reals]:
        """What the logistic regression and the trees say, before they are mixed.  # [B, F] → [B], [B]"""
        standard = (torch.from_numpy(features) - self.means) / self.scales
        logistic = standard.clamp(-FURTHEST, FURTHEST) @ self.weights + self.bias
        return logistic.numpy(), self.trees.sum(features)

    def tensors(self) -> dict[str, Tensor]:
        """All of it as plain tensors."""
        found = {name: getattr(self, name) for name in LOGISTIC}
        found |= {f"tree_{name}": getattr(self.trees, name) for name in TREES}
        calibration = torch.tensor([self.mix, self.slope, self.shift], dtype=torch.float64)
        return {**found, "calibration": calibration, "far": torch.tensor(self.far)}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> PairScore:
        """What `tensors` gave."""
        wanted = [*LOGISTIC, *(f"tree_{name}" for name in TREES), "calibration", "far"]
        missing = [name for name in wanted if name not in tensors]
        if missing:
            raise ModelError(f"the tensors do not fit a pair score: {missing[0]} is missing")
        shapes = {name: tuple(tensors[name].shape) for name in wanted}
        features, tables = shapes["weights"], shapes["tree_feature"]
        expected = dict.fromkeys(LOGISTIC, features) | {"bias": (), "calibration": (3,), "far": ()}
        expected |= {f"tree_{name}": tables for name in TREES} | {"tree_baseline": ()}
        for name, shape in expected.items():
            if shapes[name] != shape or len(features) != 1 or len(tables) != 2:
                raise ModelError(f"the tensors do not fit a pair score: {name} has shape {shapes[name]}")
        mix, slope, shift = tensors["calibration"].tolist()
        trees = Trees(**{name: tensors[f"tree_{name}"] for name in TREES})
        parts = {name: tensors[name] for name in LOGISTIC}
        return cls(**parts, trees=trees, far=bool(tensors["far"]), mix=mix, slope=slope, shift=shift)


# The models of an evaluation, one for each step, have most of their examples in common.
@lru_cache(maxsize=16)
def _examples(snapshots: Snapshots, far: bool, negatives: int, seed: int) -> tuple[Ids, int, int, Reals]:
    """The examples of the last transition: links, then uniform pairs, then a few harder ones.  # [B, 2], …, [B, F]

    Beside the pairs and their features: how many are links, and how many are links or uniform.
    """
    known, rng = snapshots[-2].num_nodes, np.random.default_rng([seed, len(snapshots)])
    u, v, _ = (part.cpu().numpy() for part in snapshots[-1].links())
    links = np.stack([u, v], axis=1)[(v < known) & (u != v)]
    others = unlinked_pairs(known, links, negatives * len(links), rng)
    pairs = np.concatenate([links, others, _harder(snapshots[:-1], links, rng)])
    return pairs, len(links), len(links) + len(others), pair_columns(snapshots[:-1], pairs, far)


def _harder(snapshots: Snapshots, links: Ids, rng: np.random.Generator) -> Ids:
    """Pairs that are not linked, one part of which were before, and one joins ends of links.  # [≤ 2 · HARD · E, 2]"""
    n, some = snapshots[-1].num_nodes, math.ceil(HARD * len(links))
    u, v, _, _ = past_links(snapshots)
    linked = links[:, 0] * n + links[:, 1]
    before = rng.permutation(np.setdiff1d(u * n + v, linked))[:some]
    joined = np.sort(rng.permutation(links.ravel()).reshape(-1, 2), axis=1)
    keys = (joined[:, 0] * n + joined[:, 1])[joined[:, 0] != joined[:, 1]]
    keys = np.concatenate([before, rng.permutation(np.setdiff1d(keys, linked))[:some]])
    return np.stack([keys // n, keys % n], axis=1)


def _learn(past: Sequence[Examples], far: bool, seed: int) -> PairScore:
    """Both parts, mixed by the number of links, not calibrated."""
    labels = [examples.labels(len(examples.features)) for examples in past]
    x, y, weights = (np.concatenate(part) for part in ([each.features for each in past], *zip(*labels, strict=True)))
    features = torch.from_numpy(x)
    means, deviation = features.mean(0), features.std(0, correction=0)
    scales = torch.where(deviation > 0, deviation, 1.0)
    w, bias = fit_logistic(
        (features - means) / scales, torch.from_numpy(y), l2=L2, sample_weight=torch.from_numpy(weights)
    )
    # With weights scikit-learn takes many times as long; without them the odds are those among all examples.
    trees = Trees.grown(x, y, seed=seed)
    trees = replace(trees, baseline=trees.baseline + np.log((~y).sum() / y.sum()))
    links = int(y.sum())
    return PairScore(means, scales, w, bias, trees, far, mix=links / (links + EVEN))


def _calibrated(score: PairScore, before: PairScore, last: Examples) -> PairScore:
    """A score with the slope and shift that suit an earlier one best on a transition it has not seen (Platt)."""
    logistic, trees = (torch.from_numpy(part) for part in before.both(last.features[: last.easy]))
    mixed = (1 - score.mix) * logistic + score.mix * trees
    linked, weights = (torch.from_numpy(part) for part in last.labels(last.easy))
    slope, shift = fit_logistic(mixed.unsqueeze(1), linked, sample_weight=weights)
    return replace(score, slope=max(LEAST_SLOPE, float(slope)), shift=float(shift))
