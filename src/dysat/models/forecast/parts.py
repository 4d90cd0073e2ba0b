"""The parts of the pair score, learned from past transitions: two regressions and boosted trees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.errors import ModelError
from dysat.features.pair_history import PLAIN_COLUMNS
from dysat.models.forecast.boosting import tree_grower
from dysat.models.forecast.examples import Examples
from dysat.nn.logistic import MANY_ROWS, fit_logistic, logistic_fitter, mean_and_scale
from dysat.nn.trees import Trees
from dysat.system.parallel.matrices import matrix_device
from dysat.system.parallel.process import in_threads, return_freed_memory, side_by_side
from dysat.system.parallel.ranks import ranks

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
ORDER_WEIGHT = 2 / 3  # in the trees, of a pair that should rank below a link, relative to an example
L2 = 300.0, 30.0  # of both regressions, on standardised features: many features are nearly the same
ATTRIBUTE_L2 = 30.0  # of the first regression, on columns of attributes: they are few, and have no ranks beside them
LARGE_REGRESSION = 1 << 25  # bytes of features; with fewer, copying them to a GPU does not pay
ROWS_AT_ONCE = 1_024  # that stay in the cache of a core
MAX_DEVIATIONS = 10.0  # standard deviations; features far outside the training range are clamped
TREES = ("feature", "threshold", "left", "right", "value", "baseline")  # stored names: do not change
LINEAR = ("means", "scales", "weights", "bias")
# What a score is mixed from; each is linear in standardised features, but for the trees.
REGRESSION, REPEATED, PLAIN, CONSTANT = 0, 1, slice(2, 2 + len(PLAIN_COLUMNS)), 2 + len(PLAIN_COLUMNS)
TREE_SUM = CONSTANT + 1
NUM_EXPERTS = TREE_SUM + 1


@dataclass(frozen=True, eq=False)
class Parts:
    """A regression of all pairs, one of pairs linked before, and trees; all give log-odds.

    The first regression and the trees learn from the last transitions t → t + 1 of a graph: links of t + 1 between
    nodes known at t, against uniform pairs that are not linked in t + 1, all with their features at t. Few uniform
    pairs were linked before, so some dropped pairs (linked up to t, not in t + 1) are added as negatives. For ranking,
    both also learn that a link (u, v) scores more than pairs (u, w) without a link, by the logistic loss of the
    difference. The second regression learns only from pairs linked before which of them are linked again. Regressions
    also see the rank of each feature among uniform pairs of the same step, which stays comparable as a graph grows.

    Shapes:
        means, scales [2F − K], weights [2, 2F − K], bias [2]: of both regressions, on features and the ranks of all
        but the K columns of kinds and attributes (`with_attributes`)
    """

    means: Tensor
    scales: Tensor
    weights: Tensor
    bias: Tensor
    trees: Trees
    num_links: int  # that they learned from

    def linear(self) -> tuple[Tensor, Tensor]:
        """Return weights and bias of all experts but the trees.  # [X − 1, 2F − K], [X − 1]"""
        weights = self.means.new_zeros(TREE_SUM, len(self.means))
        weights[: PLAIN.start], bias = self.weights, self.means.new_zeros(TREE_SUM)
        bias[: PLAIN.start], bias[CONSTANT] = self.bias, 1.0
        for row, columns in zip(weights[PLAIN], PLAIN_COLUMNS.values(), strict=True):
            row[list(columns)] = 1 / len(columns)
        return weights, bias

    def experts(self, features: Reals, ranks: Reals) -> Reals:
        """Return the scores of all experts.  # [B, F], [B, F − K] → [B, X]"""
        weights, bias = self.linear()
        found = np.empty((len(features), NUM_EXPERTS))

        def fill(first: int) -> None:
            rows = slice(first, first + ROWS_AT_ONCE)
            linear = standardised(features[rows], ranks[rows], self.means, self.scales) @ weights.mT + bias
            found[rows, :TREE_SUM] = linear.numpy()

        list(in_threads(fill, range(0, max(1, len(features)), ROWS_AT_ONCE)))
        found[:, TREE_SUM] = self.trees.sum(features)
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Return everything learned as named tensors, to send it to other processes."""
        return {
            **{name: getattr(self, name) for name in LINEAR},
            **{name: getattr(self.trees, name) for name in TREES},
            "num_links": torch.tensor(self.num_links),
        }

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Parts:
        """Build parts from the tensors that `tensors` returned."""
        linear, trees = ({name: tensors[name] for name in names} for names in (LINEAR, TREES))
        return cls(**linear, trees=Trees(**trees), num_links=int(tensors["num_links"]))


def standardised(features: Reals, ranks: Reals, means: Tensor, scales: Tensor) -> Tensor:
    """Return what regressions multiply with their weights.  # [B, F], [B, F − K] → [B, 2F − K]"""
    columns = np.column_stack([features, ranks])
    if columns.shape[1] != len(means):
        counts = f"{len(means)} columns, and there are {columns.shape[1]} now"
        raise ModelError(f"the pair score was learned from {counts}; fit the model again")
    return torch.from_numpy(columns).sub_(means).div_(scales).clamp_(-MAX_DEVIATIONS, MAX_DEVIATIONS)


def learn_parts(past: Sequence[Examples], seed: int) -> Parts:
    """Learn all parts from the examples of some transitions."""
    labels = [examples.labels(examples.num_training) for examples in past]
    y, weights = (np.concatenate(part) for part in zip(*labels, strict=True))
    columns, order = _stacked(past)
    width, ranked = past[0].features.shape[1], past[0].ranks.shape[1]
    above, below = torch.from_numpy(first_of_each(order)).unbind(1)

    def regressions(only: list[Tensor]) -> dict[str, Tensor]:
        """What both have learned, by name; the columns are taken from the list, overwritten, and freed."""
        x = only.pop()
        means, scales = mean_and_scale(x[: len(y)])
        penalty = torch.full_like(means, L2[0])
        penalty[ranked + 1 : width] = ATTRIBUTE_L2  # the first of these columns is the kind
        x.sub_(means).div_(scales)
        fit = logistic_fitter(
            x[: len(y)],
            torch.from_numpy(y).to(x.device),
            l2=penalty,
            sample_weight=torch.from_numpy(weights).to(x.device),
            differences=x[above.to(x.device)] - x[below.to(x.device)],
        )
        del x  # before more memory is needed
        repeated = _learn_repeated(past, means, scales)
        both = (torch.stack(pair) for pair in zip(fit(), repeated, strict=True))
        return {name: found.cpu() for name, found in zip(LINEAR, (means, scales, *both), strict=True)}

    growing = partial(tree_grower, columns[:, :width], y, seed=seed, order=order, order_weight=ORDER_WEIGHT)
    large = columns.nbytes >= LARGE_REGRESSION
    device = matrix_device(5 * columns.nbytes) if large else torch.device("cpu")
    every = [torch.from_numpy(columns)]
    del columns
    if device.type == "cpu":
        both: list[Callable[[], object]] = [growing(), lambda: regressions(every)]
        del growing
        found = tuple(side_by_side(lambda learn: learn(), both))
        trees, linear = cast("tuple[Trees, dict[str, Tensor]]", found)
    else:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: regressions([every[0].to(device)]))
            grow, linear = growing(), waiting.result()
        trees = grow()  # alone: threads that wait for each other are slow beside others
    if large:
        return_freed_memory()  # the next examples would not fit into the gaps
    # The trees learn without weights: shift their odds to those of balanced classes.
    trees = replace(trees, baseline=trees.baseline + np.log((~y).sum() / y.sum()))
    return Parts(**linear, trees=trees, num_links=int(y.sum()))


def learned_by_ranks(several: Sequence[Sequence[Examples]], seed: int) -> Iterator[Parts]:
    """Yield the parts of some lists of examples, in order; every rank learns its share, and all have the result."""
    learning = side_by_side(lambda past: learn_parts(past, seed), ranks().share(several))
    if ranks().size == 1:
        yield from learning
        return
    own = list(learning)
    tensors = {f"{i}/{name}": t for i, parts in enumerate(own) for name, t in parts.tensors().items()}
    every = ranks().gathered(None, tensors)
    for number in range(len(several)):
        place, theirs = f"{number // ranks().size}/", every[number % ranks().size][1]
        yield Parts.of({name.removeprefix(place): t for name, t in theirs.items() if name.startswith(place)})


def load_regressions(device: torch.device) -> None:
    """Fit a small regression on a GPU, so that it has loaded what larger ones need."""
    x = torch.linspace(-1, 1, MANY_ROWS, dtype=torch.float64, device=device)[:, None]
    means, scales = mean_and_scale(x)
    x = x.sub(means).div(scales).clamp(-1, 1)
    fit_logistic(x, x[:, 0] > 0, l2=means + 1, sample_weight=x[:, 0].abs(), differences=x[[1]] - x[[0]])
    torch.cuda.synchronize(device)


def _stacked(past: Sequence[Examples]) -> tuple[Reals, Ids]:
    """Return features and ranks of all examples with a label, then of pairs that should rank below a link.

    The second array has the rows of both: a link, and a pair that should rank below it.

    Shapes: [B + C, 2F − K], [C, 2]
    """
    width = past[0].features.shape[1]
    number = [each.num_training for each in past] + [len(each.above) for each in past]
    columns = np.empty((sum(number), width + past[0].ranks.shape[1]))
    parts = np.split(columns, np.cumsum(number)[:-1])
    labelled, below = parts[: len(past)], parts[len(past) :]

    def fill(at: int) -> None:
        each = past[at]
        for rows, first in ((labelled[at], 0), (below[at], len(each.features) - len(below[at]))):
            source = slice(first, first + len(rows))
            rows[:, :width], rows[:, width:] = each.features[source], each.ranks[source]

    list(in_threads(fill, range(len(past))))
    first = np.cumsum([0, *map(len, labelled)])
    above = np.concatenate([start + each.above for start, each in zip(first, past, strict=False)])
    return columns, np.stack([above, first[-1] + np.arange(len(above))], axis=1)


def first_of_each(order: Ids) -> Ids:
    """Return the first pair of every link; the pairs of a link follow each other.  # [C, 2] → [≤ C, 2]"""
    return order[np.flatnonzero(np.diff(order[:, 0], prepend=-1))]


def _learn_repeated(past: Sequence[Examples], means: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights and bias of the regression of pairs linked before.

    The bias is shifted from the odds among pairs linked before to those in a balanced mix of links and uniform pairs.
    """
    parts = [each.recurring() for each in past]
    x, y = (torch.from_numpy(np.concatenate(part)).to(means.device) for part in zip(*parts, strict=True))
    standard = ((x - means) / scales).clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS)
    weights, bias = fit_logistic(standard, y, l2=L2[1])
    dropped, sampled = sum(each.num_dropped for each in past), int((~y).sum())
    unlinked, links = sum(each.num_unlinked for each in past), sum(each.num_links for each in past)
    shift = math.log(max(1, sampled) / max(1, dropped)) + math.log(max(1, unlinked) / max(1, links))
    return weights, bias + shift
