"""How long a fit will take on this machine, and how much memory it needs, from small pieces of the real work.

Every phase is a sum of parts: features of pairs, eigenvectors, learning from rows, epochs. A part is measured on the
real graph, for as many pairs or rows as take about a second, and scaled to the number that a fit needs. Eigenvectors
and epochs of a large graph are measured on a sample of its nodes. Nothing is written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.errors import DysatError, GraphError
from dysat.evaluation.probe import validation_auc
from dysat.evaluation.protocols import LinkSplit, single_step
from dysat.features.eigenvectors import EXACT_NODES, RANKS
from dysat.features.link_memory import links_among
from dysat.features.pair_attributes import with_attributes
from dysat.features.pair_history import CHUNK, UNIFORM_PAIRS, PairHistory
from dysat.features.spectrum import spectrum
from dysat.models import MODELS, OPPONENTS
from dysat.models.attention import MOST_ROWS
from dysat.models.dysat import DySAT
from dysat.models.forecast.candidates import likely_pairs
from dysat.models.forecast.examples import (
    DROPPED_PAIRS,
    MAX_LINKS,
    REPLACED_PER_LINK,
    UNIFORM_PER_LINK,
    Examples,
    Plan,
    num_uniform,
    planned,
    transitions_at_once,
)
from dysat.models.forecast.mixture import rule
from dysat.models.forecast.pair_score import THREE_STEP_NODES, PairScore
from dysat.models.forecast.parts import learn_parts
from dysat.nn.device import choose_device
from dysat.system.hardware import peak_gib, reset_peak, resident_gib
from dysat.system.parallel.process import few_blas_threads
from dysat.system.progress import report
from dysat.training import Epoch

Ids = NDArray[np.int64]
Result = TypeVar("Result")
EIGENVECTOR_NODES = 8_000  # graphs with more nodes: eigenvectors of a sample
EPOCH_CELLS = 30_000  # (node, step) pairs of an epoch; with more, epochs of a sample
SAMPLE_NODES = 4_000  # of such a sample
LONG_ENOUGH = 0.5  # seconds; a piece of work is doubled until it takes as long
TRIAL_EPOCHS = 3  # the first is a warm-up
NEGATIVES = UNIFORM_PER_LINK + REPLACED_PER_LINK  # other pairs per link: uniform pairs and replaced ends
PAIR_MODEL_TRANSITIONS, PAIR_MODELS = 6, ("pair-logistic", "pair-boosting")
WRITTEN_PER_SECOND = 100e6  # bytes of a table of embeddings
HELD_PER_ENTRY = 120  # bytes of a row or of an entry of a link, with the order by sender
COPIES = 6  # of the examples at the peak, found by measuring three fits
LOW, HIGH = 0.6, 1.7  # range around the total: machines are busy, and eigenvectors converge at their own pace


@dataclass(frozen=True)
class Estimate:
    """Expected seconds of each phase of a fit, and the peak of its memory in GiB."""

    phases: dict[str, float]
    memory: float
    gpu_memory: float | None
    device: str

    @property
    def seconds(self) -> float:
        return sum(self.phases.values())

    @property
    def range(self) -> tuple[float, float]:
        """A range that the wall time should fall into."""
        return LOW * self.seconds, HIGH * self.seconds

    def facts(self) -> dict[str, Any]:
        """Plain values for JSON."""
        facts = {**asdict(self), "seconds": self.seconds, "range": list(self.range)}
        facts["phases"] = {name: round(seconds, 3) for name, seconds in self.phases.items()}
        return {**facts, "seconds": round(self.seconds, 3), "range": [round(end, 3) for end in self.range]}


def estimate(graph: DynamicGraph, model: DySAT, *, windows: int = 1, reading: float = 0.0) -> Estimate:
    """Estimate a fit of a DySAT.

    Parameters:
        graph: the snapshots to learn from.
        model: the model to fit; only its options are used.
        windows: number of snapshots that the backtest predicts; 0 for no backtest.
        reading: seconds that reading and cutting the log took.
    """
    model.check_graph(graph)
    windows = min(windows, len(graph) - 1)
    before = resident_gib()
    phases, memory = {"reading": reading}, 0.0
    pairs = None
    if model.pair_score or model.agreement:
        pairs = _PairWork.measure(graph, model, windows)
        phases["pair score"] = pairs.learning()
        memory = pairs.memory()
    training = None
    if model.embeddings:
        training = _TrainingWork.measure(graph, model, None if pairs is None else pairs.score)
        epochs = model.epochs * training.epoch
        trained = min(windows, 1) if model.pair_score else windows  # a pair score needs no network for the others
        phases["training"] = (trained + 1) * (training.preparation + epochs) + (
            trained * model.epochs * training.validation
        )
        if pairs is not None and model.agreement:
            phases["training"] += (trained + 1) * pairs.scoring(pairs.num_taught)
        memory += training.memory  # examples of past transitions stay in memory while the network is trained
    if windows:
        phases["heuristics"] = windows * _heuristics(graph, pairs)
    phases["writing"] = 0.1 if training is None else training.writing
    phases["ranking"] = 0.1
    if training is not None:
        phases["ranking"] += training.preparation
    if pairs is not None and model.pair_score:
        phases["ranking"] += pairs.scoring(pairs.num_candidates)
    device = "cpu" if training is None else training.device
    return Estimate(phases, before + memory, None if training is None else training.gpu_memory, device)


@dataclass(frozen=True)
class _PairWork:
    """Seconds of the parts of the pair score."""

    history: float  # all sums of one step
    eigenvectors: float  # of one step
    pair: float  # features of one pair of a training example
    candidate: float  # features and score of one candidate
    row: float  # learning from one example
    learning_once: float  # learning, whatever the number of examples
    transitions: int  # distinct ones of all fits
    examples: int  # of these transitions
    learnings: int  # in all fits: from all transitions, and before each window that weighs the parts
    rows: int  # of all learnings; transitions that count more are there several times
    most_rows: int  # of one learning
    at_once: int  # transitions that are prepared at the same time
    num_columns: int
    num_candidates: int
    num_taught: int
    score: PairScore  # learned from a few examples
    grown: float  # GiB by which memory grew meanwhile

    @classmethod
    def measure(cls, graph: DynamicGraph, model: DySAT, windows: int) -> _PairWork:
        report("estimating the pair score")
        reset_peak()
        begun = resident_gib()
        snapshots, n = graph.snapshots, graph.num_nodes
        three_step = n < THREE_STEP_NODES
        with few_blas_threads(n):
            seconds, history = _timed(lambda: _history(snapshots, three_step))
            eigenvectors = _eigenvector_seconds(graph, history)
            plans = [planned(snapshots[: len(snapshots) - back], model.transitions) for back in range(windows + 1)]
            learned = [steps for plan in plans for steps in _learnings(plan)]
            links = links_among(snapshots[-1], n)
            if not len(links):
                links = np.stack(np.divmod(history.keys, n), axis=1)
            examples = _PairSample(graph, history, links)
            pair = _unit_seconds(examples.features, CHUNK)
            row, once, score = examples.learning_seconds(model.seed, three_step)
            candidates = likely_pairs(graph, torch.zeros(n, 1), torch.ones(1), 1000, _no_score).numpy()
            candidate = _unit_seconds(lambda number: examples.score(score, _slices(candidates, number)), CHUNK)
        steps = sorted({step for some in learned for step in some})
        known = {step: len(links_among(snapshots[step], snapshots[step - 1].num_nodes)) for step in steps}
        number = {step: _num_examples(known[step]) + DROPPED_PAIRS for step in steps} or {0: _num_examples(len(links))}
        rows = [sum(number[step] for step in steps or number) for steps in learned]
        own = replace(model)
        own.graph_ = graph
        return cls(
            history=seconds,
            eigenvectors=eigenvectors,
            pair=pair,
            candidate=candidate,
            row=row,
            learning_once=once,
            transitions=len(number),
            examples=sum(number.values()),
            learnings=len(rows),
            rows=sum(rows),
            most_rows=max(rows),
            at_once=transitions_at_once(snapshots, len(number)),
            num_columns=len(score.means),
            num_candidates=len(candidates),
            num_taught=len(own._taught_pairs()) if model.embeddings and model.agreement else 0,
            score=score,
            grown=max(0.0, peak_gib() - begun),
        )

    def learning(self) -> float:
        """Examples of all transitions; regression and trees of every fit, once more before each window."""
        sums = self.history + self.eigenvectors + UNIFORM_PAIRS * self.pair
        learning = self.learnings * self.learning_once + self.rows * self.row
        return math.ceil(self.transitions / self.at_once) * sums + self.examples * self.pair + learning

    def scoring(self, number: int) -> float:
        """Scores of pairs at a step for which nothing is computed yet."""
        return self.history + self.eigenvectors + UNIFORM_PAIRS * self.pair + number * self.candidate

    def memory(self) -> float:
        """GiB of what was measured, and of the examples with their copies for regression, trees and later fits."""
        return self.at_once * self.grown + COPIES * 8 * self.most_rows * self.num_columns / 2**30


class _PairSample:
    """Examples of a transition, as many as wanted."""

    def __init__(self, graph: DynamicGraph, history: PairHistory, links: Ids) -> None:
        rng, n = np.random.default_rng(0), graph.num_nodes
        self.graph, self.history = graph, history
        self.links = links[rng.permutation(len(links))]
        self.others = np.sort(rng.integers(0, n, (NEGATIVES * max(len(links), CHUNK), 2)), axis=1)

    def pairs(self, number: int) -> tuple[Ids, int]:
        """Return links and uniform pairs, and the number of links.  # [B, 2]"""
        links = self.links[: max(1, number // (1 + NEGATIVES))]
        return np.concatenate([links, self.others[: max(1, number - len(links))]]), len(links)

    def features(self, number: int) -> Examples:
        pairs, num_links = self.pairs(number)
        columns, linked_before = self.history.features(pairs)
        return Examples(
            features=with_attributes(columns, self.graph, len(self.graph) - 1, pairs),
            ranks=self.history.ranks(columns),
            linked_before=linked_before,
            num_links=num_links,
            num_uniform=len(pairs),
            num_added=0,
            num_dropped=0,
            num_unlinked=len(pairs),
        )

    def score(self, score: PairScore, pairs: Ids) -> None:
        columns, linked_before = self.history.features(pairs)
        features = with_attributes(columns, self.graph, len(self.graph) - 1, pairs)
        score.raw(features, self.history.ranks(columns), linked_before)

    def learning_seconds(self, seed: int, three_step: bool) -> tuple[float, float, PairScore]:
        """Return seconds per example and seconds for any number of them, and the score learned from a few."""
        few, many = self.features(1_000), self.features(4_000)
        short, parts = _timed(lambda: learn_parts([few], seed))
        long, _ = _timed(lambda: learn_parts([many], seed))
        more = max(1, len(many.features) - len(few.features))
        row = max(0.0, long - short) / more
        score = PairScore.mixed(parts, rule(parts.num_links), three_step)
        return row, max(0.0, short - row * len(few.features)), score


def _num_examples(links: int) -> int:
    """Return the number of examples of a transition with this many links, without dropped pairs."""
    learned = min(MAX_LINKS, links)
    return (1 + REPLACED_PER_LINK) * learned + num_uniform(learned)


@dataclass(frozen=True)
class _TrainingWork:
    """Seconds of the parts of training."""

    preparation: float
    epoch: float
    validation: float
    writing: float
    memory: float
    gpu_memory: float | None
    device: str

    @classmethod
    def measure(cls, graph: DynamicGraph, model: DySAT, score: PairScore | None) -> _TrainingWork:
        report("estimating an epoch")
        recent = graph if model.history is None else graph[-model.history :]
        cells = sum(recent.known[-1 - model.transitions :])
        part = graph if cells <= EPOCH_CELLS else sampled(graph, SAMPLE_NODES)
        scale = sum(graph.known) / max(1, sum(part.known))
        trial = _Trial(**{**model.get_params(), "epochs": TRIAL_EPOCHS})
        in_parts = sum(recent.known) > MOST_ROWS[choose_device(model.device).type]
        trial.score, trial.in_parts = score, in_parts
        seen: list[Epoch] = []
        reset_peak()
        begun = resident_gib()
        seconds, _ = _timed(lambda: trial.fit(part, on_epoch=seen.append))
        spectra = _spectrum_seconds(graph, model.spectrum) if model.spectrum and part is not graph else None
        if spectra is not None:
            own = _timed(lambda: tuple(spectrum(part, model.spectrum)))[0]
        device = str(trial.embed().device)
        grown = max(0.0, peak_gib() - begun)
        table = _timed(lambda: trial.table())[0]
        values = 4 * trial.network_.width * sum(graph.known)
        preparation = max(0.0, seconds - sum(epoch.seconds for epoch in seen))
        if spectra is not None:
            preparation = max(0.0, preparation - own) * scale + spectra
        return cls(
            preparation=preparation,
            epoch=(1 if in_parts else scale) * min((epoch.seconds for epoch in seen[1:]), default=0.0),
            validation=scale * _validation_seconds(trial, part),
            writing=scale * table * len(graph) + values / WRITTEN_PER_SECOND,
            memory=(grown + _held_gib(graph, trial) if in_parts else grown * scale) + 2 * values / 2**30,
            gpu_memory=peak_gib(device) * (1 if in_parts else scale) if device.startswith("cuda") else None,
            device=device,
        )


class _Trial(DySAT):
    """A model whose network and epochs are real, but which learns no pair score and does not ask one."""

    # Not annotated as class variables: not options either, for lack of @dataclass.
    score: PairScore | None = None
    in_parts: bool = False  # whether the whole graph is computed in parts

    @property
    def _in_parts(self) -> bool:
        return self.in_parts

    def _learn_pair_score(self, on_trees: Callable[[], object] = lambda: None) -> PairScore | None:
        return self.score

    def _expected(self, pairs: Tensor) -> Tensor:
        return torch.full((len(pairs),), 0.5)


def _held_gib(graph: DynamicGraph, model: DySAT) -> float:
    """Memory of the inputs, twice while they are joined, and of all rows and links, whatever a step computes."""
    rows, links = sum(graph.known), sum(snapshot.num_links for snapshot in graph)
    columns = 0 if model.inputs_.values is None else model.inputs_.values.shape[1]
    return (8 * columns * rows + HELD_PER_ENTRY * (rows + 2 * links)) / 2**30


def sampled(graph: DynamicGraph, number: int) -> DynamicGraph:
    """Return the graph of nodes that are close to each other, so that they keep most of their links."""
    from scipy.sparse.csgraph import breadth_first_order

    history = PairHistory(graph.snapshots, three_step=False)
    matrix = history.matrix(np.ones(len(history.entry_links))).scipy()
    left, chosen = np.ones(graph.num_nodes, dtype=bool), list[Ids]()
    for start in np.random.default_rng(0).permutation(graph.num_nodes):
        if left[start]:
            reached = breadth_first_order(matrix, start, directed=False, return_predecessors=False)
            chosen.append(reached[: number - sum(map(len, chosen))].astype(np.int64))
            left[reached] = False
        if sum(map(len, chosen)) >= min(number, graph.num_nodes):
            break
    keep = np.sort(np.concatenate(chosen))
    new = np.full(graph.num_nodes, -1)
    new[keep] = np.arange(len(keep))
    snapshots = []
    for snapshot in graph:
        u, v, weights = (part.cpu().numpy() for part in snapshot.links())
        times = snapshot.link_times()
        inside = (new[u] >= 0) & (new[v] >= 0)
        known = int(np.searchsorted(keep, snapshot.num_nodes))
        snapshots.append(
            Snapshot.from_links(
                new[u[inside]], new[v[inside]], weights[inside],
                num_nodes=known, start=snapshot.start, stop=snapshot.stop,
                latest=None if times is None else times.cpu().numpy()[inside],
            )
        )  # fmt: skip
    kinds = None if graph.kinds is None else graph.kinds[keep]
    return DynamicGraph(graph.nodes[keep], tuple(snapshots), graph.clock, kinds, graph.kind_names)


def _learnings(plan: Plan | None) -> list[list[int]]:
    """The transitions that parts of the pair score learn from, each time; none if they learn from halves of links."""
    return [plan.training, *(windows.earlier for windows in plan.windows)] if plan else [[]]


def _history(snapshots: tuple[Snapshot, ...], three_step: bool) -> PairHistory:
    """A history with all of its sums, but without eigenvectors."""
    history = PairHistory(snapshots, three_step)
    _ = history.extended, history.times
    return history


def _eigenvector_seconds(graph: DynamicGraph, history: PairHistory) -> float:
    """Seconds of the eigenvectors of one step; for a large graph those of a sample, and random vectors are used."""
    n = graph.num_nodes
    if n <= EIGENVECTOR_NODES:
        return _timed(lambda: history.spectra)[0]
    part = _spectral_sample(graph)
    own = PairHistory(part.snapshots, three_step=False)
    seconds, _ = _timed(lambda: own.spectra)
    rng = np.random.default_rng(0)
    vectors = (rng.standard_normal((n, max(RANKS))) / np.sqrt(n)).astype(np.float32)
    vars(history)["spectra"] = tuple((np.ones(max(RANKS)), vectors) for _ in own.spectra)
    return seconds * n / part.num_nodes


def _spectral_sample(graph: DynamicGraph) -> DynamicGraph:
    """A sample whose eigenvectors are found in the same way."""
    if graph.num_nodes <= EXACT_NODES:
        return sampled(graph, SAMPLE_NODES)
    return graph if graph.num_nodes <= 2 * EXACT_NODES else sampled(graph, 2 * EXACT_NODES)


def _spectrum_seconds(graph: DynamicGraph, number: int) -> float:
    """Seconds of the spectral coordinates of all steps, by those of a sample."""
    part = _spectral_sample(graph)
    return _timed(lambda: tuple(spectrum(part, number)))[0] * graph.num_nodes / part.num_nodes


def _validation_seconds(model: DySAT, graph: DynamicGraph) -> float:
    try:
        split: LinkSplit = single_step(graph, len(graph) - 2, seed=model.seed)
    except GraphError:
        return 0.0
    examples = split.to(model.embed().device)
    return _timed(lambda: validation_auc(model.roles(), examples, feature=model.pair_feature))[0]


def _heuristics(graph: DynamicGraph, pairs: _PairWork | None) -> float:
    """Seconds of all heuristics on one snapshot; those without pair features are measured, on a sample if need be."""
    report("estimating the heuristics")
    part = graph if graph.num_nodes <= SAMPLE_NODES else sampled(graph, SAMPLE_NODES)
    links = torch.from_numpy(links_among(part[-1], part.known[-2])) if len(part) > 1 else torch.empty(0, 2).long()
    seconds = 0.0
    for name in OPPONENTS:
        if name in PAIR_MODELS:
            continue
        try:
            seconds += _timed(lambda name=name: MODELS[name]().fit(part[:-1]).pair_scores(links))[0]  # type: ignore[misc]
        except DysatError:
            continue  # it needs more snapshots
    seconds *= graph.num_nodes / part.num_nodes
    if pairs is None:
        return seconds
    steps = min(PAIR_MODEL_TRANSITIONS, len(graph) - 2)
    rows = steps * pairs.examples / pairs.transitions * 2 / (1 + NEGATIVES)  # a link and a uniform pair each
    features = steps * (pairs.history + pairs.eigenvectors) + rows * pairs.pair / 2  # half of the features
    return seconds + features + 2 * (pairs.learning_once + rows * pairs.row)


def _no_score(pairs: Tensor) -> Tensor:
    return torch.zeros(len(pairs), dtype=torch.float64)


def _slices(pairs: Ids, number: int) -> Ids:
    """As many of these sorted pairs, in a few runs, so that as many share a node as among all of them."""
    runs = [pairs[int(start) :][: max(1, number // 4)] for start in np.linspace(0, len(pairs), 4, endpoint=False)]
    return np.concatenate(runs) if number < len(pairs) else pairs


def _unit_seconds(work: Callable[[int], object], most: int) -> float:
    """Seconds per piece of work that takes a number of pieces at once."""
    number = 512
    while True:
        seconds, _ = _timed(partial(work, number))
        if seconds >= LONG_ENOUGH or number >= most:
            return seconds / number
        number = min(most, 4 * number)


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result
