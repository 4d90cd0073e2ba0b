"""One model at one step: fitted on the past, measured on what follows, stored in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import DysatError, GraphError, ModelError
from dysat.evaluation.hard_negatives import with_negatives
from dysat.evaluation.probe import ProbeResult, evaluate_probe, evaluate_scores, validation_auc
from dysat.evaluation.protocols import LinkSplit, TooFewLinksError
from dysat.evaluation.ranking import (
    candidate_pairs,
    never_linked,
    pair_numbers,
    precision_figures,
    rank_figures,
    ranked_scores,
    ranking_candidates,
    ranks,
)  # fmt: skip
from dysat.experiments.evaluate.outcome import TENSORS, StepResult
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.versions import method_version
from dysat.models import MODELS, OPPONENTS
from dysat.models.attention import AttentionModel
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import Incremental, LinkModel
from dysat.models.base.trained import TrainedModel
from dysat.models.dysat import DySAT
from dysat.nn.pair import PairFeature
from dysat.system.tensors import read_tensors, write_tensors

FORMAT_VERSION = 1
MOST_PAIRS = 100_000  # pairs of a step that are ranked
GRAPH, STEPS, FITS = "graph", "steps", "fits"


@dataclass(frozen=True)
class Job:
    """Fit one model on the snapshots up to a step, and measure all targets predicted from there."""

    folder: Path
    contender: Contender
    request: Request
    step: int
    targets: tuple[int, ...]
    device: str
    fits: Path | None = None  # shared folder of fits that do not depend on the protocol

    @property
    def file(self) -> Path:
        code = method_version(self.contender)
        return self.folder / STEPS / f"{self.contender.key}-{code}-{self.step}.safetensors"

    @property
    def incremental(self) -> bool:
        """Whether its model can continue from the one of the step before."""
        return hasattr(MODELS[self.contender.method], "take_in")

    def is_done(self) -> bool:
        """Return whether its file exists and is complete."""
        try:
            self.results()
        except ModelError:
            return False
        return True

    def results(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Read what `Worker.run` has stored."""
        return read_tensors(self.file, "evaluation", FORMAT_VERSION, error=ModelError)


class Worker:
    """Runs jobs one after another; one per process.

    It keeps the graph of the last folder, so a graph is loaded once and not for every job, and an incremental model,
    which the next job of the same contender continues.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._graph: DynamicGraph
        self._last: tuple[Job, LinkModel] | None = None

    def run(self, job: Job) -> LinkModel | None:
        """Fit the model, measure it and store the result; return the model, or None if it could not be fitted."""
        graph, request, model = self._load(job.folder), job.request, self._previous(job)
        begin = time.perf_counter()
        facts: dict[str, Any] = {"step": job.step, "results": [], "lacking": [], "problem": None}
        tensors: dict[str, Tensor] = {}
        try:
            splits = [request.split(graph, job.step, target) for target in job.targets]
            model = model or job.contender.build(job.device)
            past = _past_examples(model, graph, job)
            _fit(model, graph, splits[0], past, job)
            for split in splits:
                for measured in _measure(model, graph, split, past, request, facts["lacking"]):
                    facts["results"].append(measured.facts())
                    tensors |= {f"{what}/{measured.name}": getattr(measured.result, what) for what in TENSORS}
        except DysatError as problem:
            facts["problem"], model = str(problem), None
        except torch.OutOfMemoryError:
            raise ModelError("out of memory on the device; finished steps are kept, try fewer processes") from None
        facts["seconds"] = round(time.perf_counter() - begin, 3)
        write_tensors(job.file, "evaluation", FORMAT_VERSION, facts, tensors, error=ModelError)
        self._last = (job, model) if model is not None and job.incremental else None
        return model

    def _load(self, folder: Path) -> DynamicGraph:
        if folder != self._folder:
            self._graph, self._folder = DynamicGraph.load(folder / GRAPH), folder
        return self._graph

    def _previous(self, job: Job) -> LinkModel | None:
        """Return the incremental model of an earlier step, if the last job left one."""
        if self._last is None:
            return None
        last, model = self._last
        same = (last.folder, last.contender, last.request) == (job.folder, job.contender, job.request)
        return model if same and last.step < job.step else None


def _past_examples(model: LinkModel, graph: DynamicGraph, job: Job) -> LinkSplit | None:
    """Return examples of the last snapshot seen, if the request wants a probe trained on the past."""
    wanted = job.request.probe == "past" or (job.request.past_probe and job.request.probe != "score")
    if not wanted or not _embeds(model) or _knows_one_step(model):
        return None
    return job.request.past_split(graph, job.step)


def _embeds(model: LinkModel) -> TypeGuard[EmbeddingModel]:
    """Return whether the model has embeddings; if not, its own scores are measured, as those of a heuristic."""
    return isinstance(model, EmbeddingModel) and model.has_embeddings


def _knows_one_step(model: LinkModel) -> bool:
    """Return whether the model embeds the last step only, so that a probe on the past has no embeddings."""
    return isinstance(model, AttentionModel) and model.history == 1


def _fit(model: LinkModel, graph: DynamicGraph, split: LinkSplit, past: LinkSplit | None, job: Job) -> None:
    """Fit the model up to the job's step; a model that can be validated keeps its best epoch, except for `score`."""
    seen = graph[: job.step + 1]
    if isinstance(model, Incremental):
        _take_in(model, graph, job.step, job.request)
    elif not isinstance(model, TrainedModel) or job.request.probe == "score":
        _fit_without_validation(model, seen, job)
    elif job.request.probe == "past":
        model.fit(seen, validate=None if past is None else _validation(past, -2))
    else:
        fit_validated(model, seen, split)


def fit_validated(model: TrainedModel, seen: DynamicGraph, split: LinkSplit) -> None:
    """Fit, and keep the best epoch on the validation examples."""
    model.fit(seen, validate=_validation(split, -1))


def _validation(split: LinkSplit, step: int) -> Callable[[EmbeddingModel], float]:
    return lambda model: validation_auc(model.roles(step).cpu(), split, feature=model.pair_feature)


def _take_in(model: Any, graph: DynamicGraph, last: int, request: Request) -> None:
    """Take in the snapshots up to `last`, each with its own best epoch, as if it were the last one."""
    for step in range(len(model.graph_) if hasattr(model, "graph_") else 0, last + 1):
        split, at = None, -1
        if request.probe == "past":
            split, at = request.past_split(graph, step), -2
        elif request.probe == "present":
            split = request.next_split(graph, step)
        if split is None or (at == -2 and (model.settled or _knows_one_step(model))):
            model.take_in(graph)
        else:
            model.take_in(graph, validate=_validation(split, at))


def needs_no_embeddings(model: LinkModel, request: Request) -> bool:
    """Return whether only scores that do not depend on the embeddings are measured."""
    return isinstance(model, DySAT) and model.pair_score and request.probe == "score"


def _fit_without_validation(model: LinkModel, seen: DynamicGraph, job: Job) -> None:
    """Fit; such a fit is the same for every protocol, so it is shared through the folder `fits` if there is one."""
    if needs_no_embeddings(model, job.request):
        try:
            model.set_params(embeddings=False)  # the score does not depend on them
            return _fit_or_read(model, seen, job)
        except ModelError:
            model.set_params(embeddings=True)  # no pair score can be learned: the embeddings score
    return _fit_or_read(model, seen, job)


def _fit_or_read(model: LinkModel, seen: DynamicGraph, job: Job) -> None:
    if job.fits is None or not isinstance(model, EmbeddingModel) or job.contender.method in OPPONENTS:
        model.fit(seen)
        return
    name = f"{job.contender.key}-{method_version(job.contender)}-{seen.fingerprint[:16]}.safetensors"
    try:
        _, tensors = read_tensors(job.fits / name, "fit", FORMAT_VERSION, error=ModelError)
        model.graph_ = seen
        model.take_tensors(tensors, job.fits / name)
    except ModelError:
        model.fit(seen)
        job.fits.mkdir(parents=True, exist_ok=True)
        write_tensors(job.fits / name, "fit", FORMAT_VERSION, {}, model._state(), error=ModelError)


def _measure(
    model: LinkModel,
    graph: DynamicGraph,
    split: LinkSplit,
    past: LinkSplit | None,
    request: Request,
    lacking: list[tuple[str, int]],
) -> Iterator[StepResult]:
    """Evaluate a target against every kind of negatives, by probes on the present and the past or by own scores."""
    own = "score" if isinstance(model, EmbeddingModel) and (_embeds(model) or request.probe == "score") else "none"
    e = model.roles().cpu() if _embeds(model) and request.probe != "score" else None
    earlier = (model.roles(-2).cpu(), past) if _embeds(model) and past is not None else None
    feature: PairFeature = model.pair_feature if isinstance(model, EmbeddingModel) else "product"
    ranking = _ranking(model, graph, split, request)
    for kind in request.negatives:
        try:
            hard = split if kind == "uniform" else with_negatives(split, graph, kind, request.seed)
        except TooFewLinksError:
            lacking.append((kind, split.target))
            continue
        results: dict[str, ProbeResult] = {}
        if e is None:
            results[own] = evaluate_scores(model.pair_scores(hard.pairs), hard)
        else:
            results["present"] = evaluate_probe(e, hard, feature=feature)
            if earlier is not None:
                results["past"] = evaluate_probe(e, hard, past=earlier, feature=feature)
        for probe, result in results.items():
            shown = ranking if kind == request.negatives[0] else {}  # does not depend on the negatives
            yield StepResult(result, probe, int(split.labels.sum()), hard.missing, **shown)


def _ranking(model: LinkModel, graph: DynamicGraph, split: LinkSplit, request: Request) -> dict[str, float | None]:
    """Return the ranking figures of the model's own scores, which are computed once."""
    if not request.candidates:
        return {}
    try:
        links, others = _to_rank(graph, split, request)
    except GraphError:
        return {}  # a small graph may have fewer candidates
    positive, negative = (scores.cpu() for scores in ranked_scores(model.pair_scores, links, others))
    pairs = torch.cat([links, candidate_pairs(links, others)])
    _, first = np.unique(pair_numbers(pairs, graph.directed), return_index=True)  # nodes share candidates
    rows = torch.from_numpy(first)
    labels, new = rows < len(links), never_linked(graph, split.step, pairs)
    figures = rank_figures(ranks(positive, negative), new[: len(links)])
    figures |= precision_figures(torch.cat([positive, negative.flatten()])[rows], labels, new[rows])
    return {name: None if isnan(value) else value for name, value in figures.items()}


def _to_rank(graph: DynamicGraph, split: LinkSplit, request: Request) -> tuple[Tensor, Tensor]:
    """Return links and the nodes that each is ranked among.  # [P, 2], [P, K]

    Beyond 100,000 pairs the links are a sample. Validation links are left out: they may have selected the best epoch.
    """
    tested = split.validation[split.labels].logical_not().nonzero()[:, 0].cpu()
    links, most = split.pairs[split.labels], MOST_PAIRS // request.candidates
    if len(tested) <= most:
        others = ranking_candidates(graph, split, request.candidates, request.seed, request.typed)
        return links[tested], others[tested]
    rng = np.random.default_rng([request.seed, split.step, split.target])
    links = links[tested[np.sort(rng.choice(len(tested), most, replace=False))]]
    chosen = replace(split, pairs=links, labels=torch.ones(len(links), dtype=torch.bool, device=links.device))
    return links, ranking_candidates(graph, chosen, request.candidates, request.seed, request.typed)
