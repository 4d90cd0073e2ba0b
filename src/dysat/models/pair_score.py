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

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.pair_features import AT_ONCE, Snapshots, differ_in_kind, past_links, standing, were_linked
from dysat.models.pair_more import pair_columns, uniform_columns
from dysat.models.trees import Trees
from dysat.nn.logistic import fit_logistic
from dysat.sampling.pairs import unlinked_pairs

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]
ENOUGH = 1_000  # links; the past changes, so that no more than needed is learned from
AGAIN = 0.04  # pairs that were linked before, but not next, for each link: many more cost what uniform ones gain
GIVEN_BACK = 0.6  # of what these cost pairs that were linked: all of it for ranks among any pairs, nothing among such
L2 = 300.0  # of the logistic regression, on standardised features: many of them say nearly the same
FURTHEST = 10.0  # standard deviations; a feature far beyond all examples counts no more
EVEN = 4_000  # links from which trees learn as well as the logistic regression: their part is links / (links + EVEN)
LEAST_SLOPE = 0.1  # a last transition that contradicts all others does not turn the order around
MOST_NODES = 32_768  # for three-step paths
TREES = ("feature", "threshold", "left", "right", "value", "baseline")
LOGISTIC = ("means", "scales", "weights", "bias")


@dataclass(frozen=True, eq=False)
class Examples:
    """Pairs as seen before a transition: first those of which a link came, then uniform ones, then once linked ones.

    Shapes:
        features [B, F], standings [B, F − 1] of all but their kinds, once [B]: whether the pair was linked before
    """

    features: Reals
    standings: Reals
    once: Bools
    links: int
    uniform: int  # links and uniform pairs
    expected: float  # uniform pairs that were linked before, as many as there are in the mean

    def labels(self, number: int) -> tuple[Bools, Reals]:
        """Whether a link came of the first so many, and weights with which both classes weigh the same.  # [B], [B]"""
        linked = np.arange(number) < self.links
        return linked, np.where(linked, 1.0, self.links / (number - self.links))


@dataclass(frozen=True, eq=False)
class PairScore:
    """Log-odds of a link: slope · ((1 − mix) · logistic regression + mix · boosted trees + lift · once) + shift.

    Both parts learn from the last transitions t' → t' + 1 of a graph: links of t' + 1 between nodes known at t' against
    uniform pairs without one, all seen as at t'. Few of these were linked before, so that a few such pairs are added to
    tell them apart from those that are linked again; `lift`, most of the logarithm of how many times as many there are
    then, is given back to every pair that was linked `once`. The regression also sees where each feature stands among
    uniform pairs of the same step, which means the same when a graph has grown. The more links, the more the trees
    count. Slope and shift come from the last transition, predicted by what was learned from those before it; so 0.8
    means four in five among as many links and uniform pairs without one.

    Shapes:
        means, scales, weights [2F − 1], bias []: of the logistic regression, on standardised features and standings
    """

    means: Tensor
    scales: Tensor
    weights: Tensor
    bias: Tensor
    trees: Trees
    far: bool  # whether three-step paths are among the features
    mix: float  # the trees' part
    lift: float = 0.0
    slope: float = 1.0
    shift: float = 0.0

    @classmethod
    def learn(cls, graph: DynamicGraph, *, transitions: int = 6, negatives: int = 3, seed: int = 0) -> PairScore | None:
        """What the last transitions inside a graph teach, or None where there is no link or no other pair.

        They are the last `transitions`, and those before them while there are fewer than `ENOUGH` links. Without any,
        half of all links stands for the past and another half for what came of it.
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
            found = _examples_of(graph, graph.snapshots[: last + 1], far, negatives, seed)
            links += found.links
            if 0 < found.links < found.uniform:
                past.insert(0, found)
        if not past:
            found = _examples_of(graph, _halves(graph.aggregate(), seed), far, negatives, seed)
            past = [found] if 0 < found.links < found.uniform else []
        if not past:
            return None
        score = _learn(past, far, seed)
        return score if len(past) == 1 else _calibrated(score, _learn(past[:-1], far, seed), past[-1])

    def log_odds(self, graph: DynamicGraph, step: int, pairs: Tensor) -> Tensor:
        """Of pairs of nodes known at a step, from the snapshots up to it alone, on the CPU.  # [B, 2] → [B] float64"""
        if not 0 <= step < len(graph):
            raise ModelError(f"step={step} of a graph with {len(graph)} snapshots")
        snapshots = graph.snapshots[: step + 1]
        parts = [torch.empty(0, dtype=torch.float64)]
        for part in torch.split(pairs.cpu(), AT_ONCE):
            some = np.sort(part.numpy(), axis=1)
            columns = pair_columns(snapshots, some, self.far)
            standings = standing(columns, uniform_columns(snapshots, self.far))
            mixed = self.mixed(np.column_stack([columns, differ_in_kind(graph, some)]), standings)
            mixed += self.lift * were_linked(snapshots, some)
            parts.append(torch.from_numpy(self.slope * mixed + self.shift))
        return torch.cat(parts)

    def mixed(self, features: Reals, standings: Reals) -> Reals:
        """What the logistic regression and the trees say together, not calibrated.  # [B, F], [B, F − 1] → [B]"""
        standard = (torch.from_numpy(np.column_stack([features, standings])) - self.means) / self.scales
        logistic = standard.clamp(-FURTHEST, FURTHEST) @ self.weights + self.bias
        mixed: Reals = (1 - self.mix) * logistic.numpy() + self.mix * self.trees.sum(features)
        return mixed

    def tensors(self) -> dict[str, Tensor]:
        """All of it as plain tensors."""
        found = {name: getattr(self, name) for name in LOGISTIC}
        found |= {f"tree_{name}": getattr(self.trees, name) for name in TREES}
        calibration = torch.tensor([self.mix, self.lift, self.slope, self.shift], dtype=torch.float64)
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
        expected = dict.fromkeys(LOGISTIC, features) | {"bias": (), "calibration": (4,), "far": ()}
        expected |= {f"tree_{name}": tables for name in TREES} | {"tree_baseline": ()}
        for name, shape in expected.items():
            if shapes[name] != shape or len(features) != 1 or len(tables) != 2:
                raise ModelError(f"the tensors do not fit a pair score: {name} has shape {shapes[name]}")
        mix, lift, slope, shift = tensors["calibration"].tolist()
        trees = Trees(**{name: tensors[f"tree_{name}"] for name in TREES})
        parts = {name: tensors[name] for name in LOGISTIC}
        return cls(**parts, trees=trees, far=bool(tensors["far"]), mix=mix, lift=lift, slope=slope, shift=shift)


def _examples_of(graph: DynamicGraph, snapshots: Snapshots, far: bool, negatives: int, seed: int) -> Examples:
    """Those of the last transition of some snapshots of a graph."""
    pairs, found = _examples(snapshots, far, negatives, seed)
    return replace(found, features=np.column_stack([found.features, differ_in_kind(graph, pairs)]))


# The models of an evaluation, one for each step, have most of their examples in common.
@lru_cache(maxsize=16)
def _examples(snapshots: Snapshots, far: bool, negatives: int, seed: int) -> tuple[Ids, Examples]:
    """The examples of the last transition, without their kinds, and their pairs.  # [B, 2]"""
    past, known = snapshots[:-1], snapshots[-2].num_nodes
    rng = np.random.default_rng([seed, len(snapshots)])
    u, v, _ = (part.cpu().numpy() for part in snapshots[-1].links())
    links = np.stack([u, v], axis=1)[(v < known) & (u != v)]
    others = unlinked_pairs(known, links, negatives * len(links), rng)
    u, v, _, _ = past_links(past)
    left = np.setdiff1d(u * known + v, links @ [known, 1])  # were linked, and are not next
    keys = rng.permutation(left)[: math.ceil(AGAIN * len(links))]
    pairs = np.concatenate([links, others, np.stack([keys // known, keys % known], axis=1)])
    columns = pair_columns(past, pairs, far)
    return pairs, Examples(
        features=columns,
        standings=standing(columns, uniform_columns(past, far)),
        once=were_linked(past, pairs),
        links=len(links),
        uniform=len(links) + len(others),
        expected=len(others) * len(left) / max(1, known * (known - 1) // 2 - len(links)),
    )


def _halves(snapshot: Snapshot, seed: int) -> Snapshots:
    """Two snapshots of the same nodes; every link is in each of them with chance one half, so that some come again."""
    u, v, weights = (part.cpu().numpy() for part in snapshot.links())
    parts = (np.random.default_rng([seed, 1]).random((2, len(u))) < 0.5) & (u != v)
    n, start, stop = snapshot.num_nodes, snapshot.start, snapshot.stop
    return tuple(
        Snapshot.from_links(u[part], v[part], weights[part], num_nodes=n, start=start, stop=stop) for part in parts
    )


def _learn(past: Sequence[Examples], far: bool, seed: int) -> PairScore:
    """Both parts, mixed by the number of links, not calibrated."""
    labels = [examples.labels(len(examples.features)) for examples in past]
    y, weights = (np.concatenate(part) for part in zip(*labels, strict=True))
    x = np.concatenate([each.features for each in past])
    features = torch.from_numpy(np.column_stack([x, np.concatenate([each.standings for each in past])]))
    means, deviation = features.mean(0), features.std(0, correction=0)
    scales = torch.where(deviation > 0, deviation, 1.0)
    w, bias = fit_logistic(
        (features - means) / scales, torch.from_numpy(y), l2=L2, sample_weight=torch.from_numpy(weights)
    )
    # With weights scikit-learn takes many times as long; without them the odds are those among all examples.
    trees = Trees.grown(x, y, seed=seed)
    trees = replace(trees, baseline=trees.baseline + np.log((~y).sum() / y.sum()))
    links = int(y.sum())
    added = sum(len(examples.once) - examples.uniform for examples in past)
    expected = sum(examples.expected for examples in past)
    lift = GIVEN_BACK * math.log1p(added / max(1.0, expected))
    return PairScore(means, scales, w, bias, trees, far, mix=links / (links + EVEN), lift=lift)


def _calibrated(score: PairScore, before: PairScore, last: Examples) -> PairScore:
    """A score with the slope and shift that suit an earlier one best on a transition it has not seen (Platt)."""
    some = slice(last.uniform)
    mixed = replace(before, mix=score.mix).mixed(last.features[some], last.standings[some])
    lifted = torch.from_numpy(mixed + before.lift * last.once[some])
    linked, weights = (torch.from_numpy(part) for part in last.labels(last.uniform))
    slope, shift = fit_logistic(lifted.unsqueeze(1), linked, sample_weight=weights)
    return replace(score, slope=max(LEAST_SLOPE, float(slope)), shift=float(shift))
