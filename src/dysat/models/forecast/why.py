"""Why the pair score of a pair is high or low: the effect of each fact, compared with a random pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features.facts import PAST_LINKS, SENT
from dysat.features.pair_attributes import attribute_facts, with_attributes
from dysat.features.pair_history import PairHistory, chunks, history_of, sorted_ends
from dysat.models.forecast.pair_score import PairScore
from dysat.models.forecast.words import Words
from dysat.system.parallel.process import few_blas_threads, in_threads

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]
Result = TypeVar("Result")
LEFT_OUT = 30  # random pairs that take the place of a fact that is left out


class Reason(NamedTuple):
    """A fact about a pair, in words, and how it moves the score compared with a random pair.

    `effect` is in log-odds. `share` is the effect divided by the sum of the sizes of all effects, so it has the sign of
    the effect: a fact with a negative share makes the link less likely.
    """

    fact: str  # short name, such as "last contact"
    text: str  # with the values of this pair
    effect: float
    share: float


class Why(NamedTuple):
    """Why a link from `u` to `v` is likely or unlikely: its reasons, the most important first.

    `log_odds` is the score of the pair before it becomes a probability, and `baseline` the mean of random pairs. The
    effects of all facts, also of those not listed, add up to the difference.
    """

    u: object  # labels
    v: object
    log_odds: float
    baseline: float
    reasons: tuple[Reason, ...]


class Effects(NamedTuple):
    """The effect of each fact on each pair, in log-odds.

    Shapes:
        facts: G names, effects [B, G], baseline: the score of a random pair; baseline + Σ_g effects = `log_odds`
    """

    facts: tuple[str, ...]
    effects: Reals
    baseline: float


class Examined(NamedTuple):
    """Pairs with everything that the pair score reads.

    Shapes:
        pairs [B, 2], features [B, F], ranks [B, F − K], linked_before [B]
    """

    pairs: Ids
    features: Reals
    ranks: Reals
    linked_before: Bools


class Explainer:
    """The effects of facts on the pair score s at a step of a graph, all relative to random pairs of that step.

    - The weights give a fact the sum of w · (z − mean z) over its columns, where z are standardised features and
      ranks, and the mean is that of random pairs.
    - A tree gives a fact the change of the expected value at each split on one of its columns, along the path of the
      pair. The value expected at a node is the mean over the random pairs below it.
    - A pair linked before has weights of its own. Whether it was belongs to the fact `PAST_LINKS`, or `SENT` with
      direction. If it is known, other facts have their effect with these weights or those of new pairs; if not, the
      mean of both with the fraction of random pairs that were linked before. Other facts get the average of the two
      cases, and this fact the rest, as in a Shapley value.

    The baseline is the mean score of the random pairs.
    """

    def __init__(self, score: PairScore, graph: DynamicGraph, step: int) -> None:
        if not 0 <= step < len(graph):
            raise ModelError(f"step={step} of a graph with {len(graph)} snapshots")
        self.score, self.graph, self.step = score, graph, step
        with few_blas_threads(graph.known[step]):
            history = history_of(graph, step, score.three_step)
            self.history: PairHistory = history.prepared(steady=score.steady, by_kind=score.by_kind)
            _ = self.history.uniform_features
            self.random = self._examined(self.history.uniform_pairs)
        self.columns = (*self.history.column_facts, *attribute_facts(graph, step))  # F
        self.facts = tuple(dict.fromkeys(self.columns))
        place = {fact: number for number, fact in enumerate(self.facts)}
        self._groups = np.array([place[fact] for fact in self.columns], dtype=np.int64)
        self._switch = place[SENT if graph.directed else PAST_LINKS]
        ranked = len(self.history.column_facts)
        belongs = np.concatenate([self._groups, self._groups[:ranked]])  # [2F − K]
        self._sums = (belongs[:, None] == np.arange(len(self.facts))).astype(np.float64)  # [2F − K, G]
        self._measure_random_pairs()

    def _measure_random_pairs(self) -> None:
        score, random = self.score, self.random
        standard = score.standard(random.features, random.ranks).numpy()
        some = len(standard) > 0  # otherwise a random pair has the means of the training examples
        self._means: Reals = standard.mean(0) if some else np.zeros(standard.shape[1])
        self._expected = score.trees.expected(random.features)
        trees = float(score.trees.baseline) + self._expected[:, 0].sum()
        means = score.weights.numpy() @ self._means + score.bias.numpy() + score.tree_weights.numpy() * trees
        self._new, self._old = means.tolist()  # the mean score of new pairs, and of pairs linked before
        self._linked = float(random.linked_before.mean()) if some else 0.0
        raw = score.raw(random.features, random.ranks, random.linked_before)
        self._mean = float(raw.mean()) if some else self._new
        self.baseline = score.slope * self._mean + score.shift

    def effects(self, pairs: Tensor) -> Effects:
        """Return the effects of all facts on these pairs.  # [B, 2]"""
        parts, places = self._of_parts(self._effects, self._ends(pairs))
        return Effects(self.facts, np.concatenate(parts)[places], self.baseline)

    def reasons(self, pairs: Tensor, number: int) -> tuple[Effects, Ids, list[list[str]]]:
        """Return effects, the most important facts of each pair, and these facts in words.  # [B, 2] → [B, number]

        Facts without any effect come last and have no words.
        """
        words = Words(self.history, self.graph, self.step, self.columns, self.random.features)

        def explain(part: Examined) -> tuple[Reals, Ids, list[list[str]]]:
            effects = self._effects(part)
            best = np.argsort(-np.abs(effects), axis=1, kind="stable")[:, :number]
            told = np.where(np.take_along_axis(effects, best, axis=1) == 0, -1, best)
            return effects, best, self._texts(words, part, told)

        parts, places = self._of_parts(explain, self._ends(pairs))
        effects, best, texts = zip(*parts, strict=True)
        every = [row for part in texts for row in part]
        found = Effects(self.facts, np.concatenate(effects)[places], self.baseline)
        return found, np.concatenate(best)[places], [every[place] for place in places.tolist()]

    def _texts(self, words: Words, part: Examined, chosen: Ids) -> list[list[str]]:
        found = np.full(chosen.shape, "", dtype=object)
        for number, fact in enumerate(self.facts):
            rows, places = np.nonzero(chosen == number)
            if len(rows):
                own = words.of(fact, part.pairs[rows], part.features[rows])
                found[rows, places] = np.array(own, dtype=object)
        return [list(row) for row in found]

    def left_out(self, pairs: Tensor, number: int = LEFT_OUT) -> Effects:
        """Return the same measured by leaving out one fact at a time, to check `effects`.  # [B, 2]

        The effect of a fact is the score minus its mean when the columns of the fact are those of random pairs.
        """
        own = self._examined(self._ends(pairs))
        there = len(self.random.pairs)
        drawn = np.linspace(0, there, min(number, there), endpoint=False).astype(np.int64)
        others = self._examined(self.random.pairs[drawn])
        whole = self._log_odds(own.features, own.ranks, own.linked_before)
        effects, ranked = np.zeros((len(own.pairs), len(self.facts))), own.ranks.shape[1]
        for g in range(len(self.facts)):
            chosen = self._groups == g
            total = np.zeros(len(whole))
            for other in range(len(others.pairs)):
                features = np.where(chosen, others.features[other], own.features)
                ranks = np.where(chosen[:ranked], others.ranks[other], own.ranks)
                switched = np.full(len(whole), others.linked_before[other])
                total += self._log_odds(features, ranks, switched if g == self._switch else own.linked_before)
            effects[:, g] = whole - total / max(1, len(others.pairs))
        return Effects(self.facts, effects, self.baseline)

    def _log_odds(self, features: Reals, ranks: Reals, linked_before: Bools) -> Reals:
        found: Reals = self.score.slope * self.score.raw(features, ranks, linked_before) + self.score.shift
        return found

    def _ends(self, pairs: Tensor) -> Ids:
        return sorted_ends(pairs.cpu().numpy(), self.graph.known[self.step], directed=self.graph.directed)

    def _examined(self, ends: Ids) -> Examined:
        features, linked_before = self.history.features(ends)
        ranks = self.history.ranks(features)
        return Examined(ends, with_attributes(features, self.graph, self.step, ends), ranks, linked_before)

    def _of_parts(self, compute: Callable[[Examined], Result], ends: Ids) -> tuple[list[Result], Ids]:
        """Return the results of chunks of pairs, and the place of each pair in them.  # [B, 2] → [B]"""
        order = np.argsort(ends[:, 0], kind="stable")  # the chunks of `log_odds`: features have the same bits
        with few_blas_threads(self.graph.known[self.step]):
            parts = list(in_threads(lambda rows: compute(self._examined(ends[rows])), chunks(order)))
        return parts, np.argsort(order, kind="stable")

    def _effects(self, part: Examined) -> Reals:
        """Return the effects of a chunk of pairs, in log-odds.  # [b, G]"""
        score, size = self.score, len(self.facts)
        with np.errstate(over="ignore", invalid="ignore"):  # of a hostile file
            apart = score.standard(part.features, part.ranks).numpy() - self._means
            trees = score.trees.path_effects(part.features, self._expected, self._groups, size)
            of_class = zip(score.weights.numpy(), score.tree_weights.tolist(), strict=True)
            new, old = ((apart * weights) @ self._sums + weight * trees for weights, weight in of_class)  # [b, G]
            linked = part.linked_before
            share = ((linked + self._linked) / 2)[:, None]  # of pairs linked before, on average
            effects: Reals = (1 - share) * new + share * old
            scores = np.where(linked, self._old + old.sum(1), self._new + new.sum(1)) - self._mean
            effects[:, self._switch] += scores - effects.sum(1)
            effects *= score.slope
        if not np.isfinite(effects).all():
            raise ModelError("the pair score of a pair is not finite; fit the model again")
        return effects


def explain(score: PairScore, graph: DynamicGraph, step: int, pairs: Tensor) -> Effects:
    """Return the effect of each fact on the log-odds of pairs known at a step.  # [B, 2]"""
    return Explainer(score, graph, step).effects(pairs)


def reasons(
    score: PairScore, graph: DynamicGraph, step: int, pairs: Tensor, number: int
) -> tuple[Reals, float, list[tuple[Reason, ...]]]:
    """Return log-odds, their baseline, and at most `number` reasons for each pair.  # [B, 2] → [B]"""
    effects, best, texts = Explainer(score, graph, step).reasons(pairs, number)
    shares = shares_of(effects.effects)
    found = [
        tuple(
            Reason(effects.facts[fact], text, float(effects.effects[row, fact]), float(shares[row, fact]))
            for fact, text in zip(best[row].tolist(), texts[row], strict=True)
            if text
        )
        for row in range(len(best))
    ]
    return effects.baseline + effects.effects.sum(1), effects.baseline, found


def reason_rows(
    score: PairScore, graph: DynamicGraph, step: int, pairs: Tensor, number: int
) -> tuple[list[list[str]], NDArray[np.float32]]:
    """Return the texts and shares of many pairs; a missing reason is an empty text with share 0.  # [B, number]"""
    effects, best, texts = Explainer(score, graph, step).reasons(pairs, number)
    shares = np.zeros((len(best), number), dtype=np.float32)
    shares[:, : best.shape[1]] = np.take_along_axis(shares_of(effects.effects), best, axis=1)
    return [row + [""] * (number - len(row)) for row in texts], shares


def shares_of(effects: Reals) -> Reals:
    """Return effects divided by the sum of the sizes of all effects of a pair.  # [B, G] → [B, G]"""
    total = np.abs(effects).sum(axis=1, keepdims=True)
    shares: Reals = np.divide(effects, total, out=np.zeros_like(effects), where=total > 0)
    return shares
