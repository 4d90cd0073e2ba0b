"""One model at one step: fitted on the past, measured on what comes after, kept in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import DysatError, GraphError, ModelError
from dysat.evaluation.hard_negatives import with_negatives
from dysat.evaluation.probe import ProbeResult, evaluate_probe, evaluate_scores, validation_auc
from dysat.evaluation.protocols import LinkSplit, TooFewLinksError, link_split
from dysat.evaluation.ranking import hits, mrr, ranking_candidates, ranks
from dysat.experiments.evaluate.outcome import TENSORS, StepResult
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.versions import method_version
from dysat.models import MODELS, OPPONENTS
from dysat.models.attention import AttentionModel
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import Incremental, LinkModel
from dysat.models.base.trained import TrainedModel
from dysat.nn.pair import PairFeature
from dysat.system.process import keep_freed_memory
from dysat.system.tensors import read_tensors, write_tensors

FORMAT_VERSION = 1
GRAPH, STEPS = "graph", "steps"


@dataclass(frozen=True)
class Job:
    """One model fitted on the snapshots up to a step, for all that it predicts from there."""

    folder: Path
    contender: Contender
    request: Request
    step: int
    targets: tuple[int, ...]
    device: str
    threads: int
    fits: Path | None = None  # where what no validation can change is kept once for all protocols

    @property
    def file(self) -> Path:
        code = method_version(self.contender.method)
        return self.folder / STEPS / f"{self.contender.key}-{code}-{self.step}.safetensors"

    @property
    def goes_on(self) -> bool:
        """Whether its model can go on from the one of the step before."""
        return hasattr(MODELS[self.contender.method], "take_in")

    def is_done(self) -> bool:
        """Whether its file is there and whole."""
        try:
            self.results()
        except ModelError:
            return False
        return True

    def results(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What `run_job` has kept."""
        return read_tensors(self.file, "evaluation", FORMAT_VERSION, error=ModelError)


def run_jobs(jobs: Sequence[Job]) -> None:
    """One after the other, in a process of their own."""
    keep_freed_memory()
    for _ in run_stretch(jobs):
        pass


def run_stretch(jobs: Sequence[Job]) -> Iterator[Job]:
    """Jobs that are done, one after the other; an incremental model goes on from the job before."""
    model: LinkModel | None = None
    for job in jobs:
        model = run_job(job, model if model is not None and job.goes_on else None)
        yield job


def run_job(job: Job, before: LinkModel | None = None) -> LinkModel | None:
    """Fit one model at one step and keep what it reached; the model, if it has one."""
    from threadpoolctl import threadpool_limits

    if job.device == "cpu":
        torch.set_num_threads(job.threads)
    with threadpool_limits(job.threads):  # of SciPy and scikit-learn
        facts, tensors, model = _run_job(job, before)
    write_tensors(job.file, "evaluation", FORMAT_VERSION, facts, tensors, error=ModelError)
    return model


def _run_job(job: Job, model: LinkModel | None) -> tuple[dict[str, Any], dict[str, Tensor], LinkModel | None]:
    graph, request = DynamicGraph.load(job.folder / GRAPH), job.request
    begin = time.perf_counter()
    facts: dict[str, Any] = {"step": job.step, "results": [], "lacking": [], "problem": None}
    tensors: dict[str, Tensor] = {}
    try:
        splits = [split_of(graph, request, job.step, target) for target in job.targets]
        model = model or job.contender.build(job.device)
        wanted = request.probe == "past" or (request.past_probe and request.probe != "score")
        before = None if not wanted or _forgets_the_past(model) else _split_before(graph, request, job.step)
        if isinstance(model, Incremental):
            _go_on(model, graph, job.step, request)
        else:
            _fit(model, graph[: job.step + 1], splits[0], before, job)
        for split in splits:
            for found in _measure(model, graph, split, before, request, facts["lacking"]):
                facts["results"].append(found.facts())
                tensors |= {f"{what}/{found.name}": getattr(found.result, what) for what in TENSORS}
    except DysatError as problem:
        facts["problem"], model = str(problem), None
    except torch.OutOfMemoryError:
        raise ModelError("out of memory on the device; finished steps are kept, try fewer processes") from None
    facts["seconds"] = round(time.perf_counter() - begin, 3)
    return facts, tensors, model


def _go_on(model: Any, graph: DynamicGraph, last: int, request: Request) -> None:
    """Take in the snapshots up to the last, each with its own best epoch, as if it were the last one."""
    for step in range(len(model.graph_) if hasattr(model, "graph_") else 0, last + 1):
        chosen, at = None, -1
        if request.probe == "past":
            chosen, at = _split_before(graph, request, step), -2
        elif request.probe == "present":
            chosen = own_split(graph, request, step)
        if chosen is None or (at == -2 and (model.settled or _forgets_the_past(model))):
            model.take_in(graph)
        else:
            model.take_in(graph, validate=_validation(chosen, at))


def _forgets_the_past(model: LinkModel) -> bool:
    """Whether it knows no step but the last, so that there is no step before it to look at."""
    return isinstance(model, AttentionModel) and model.history == 1


def own_split(graph: DynamicGraph, request: Request, step: int) -> LinkSplit | None:
    """The transition from a step to the next, by the request's protocol where that has one for every step."""
    try:
        single = replace(request, protocol="single-step") if request.protocol == "multi-step" else request
        return split_of(graph, single, step, step + 1)
    except GraphError:
        return None


def _fit(model: LinkModel, past: DynamicGraph, split: LinkSplit, before: LinkSplit | None, job: Job) -> None:
    """Fit; a model that can be validated keeps its best epoch, unless its own scores are asked for."""
    if not isinstance(model, TrainedModel) or job.request.probe == "score":
        _fit_once(model, past, job)
        return
    chosen = before if job.request.probe == "past" else split
    at = -2 if job.request.probe == "past" else -1
    model.fit(past, validate=None if chosen is None else _validation(chosen, at))


def _fit_once(model: LinkModel, past: DynamicGraph, job: Job) -> None:
    """Without validation a model is the same for every protocol: where there is a place for it, it is fitted once."""
    if job.fits is None or not isinstance(model, EmbeddingModel) or job.contender.method in OPPONENTS:
        model.fit(past)
        return
    name = f"{job.contender.key}-{method_version(job.contender.method)}-{past.fingerprint[:16]}.safetensors"
    try:
        _, tensors = read_tensors(job.fits / name, "fit", FORMAT_VERSION, error=ModelError)
        model.graph_ = past
        model._take_state(tensors)
    except ModelError:
        model.fit(past)
        job.fits.mkdir(parents=True, exist_ok=True)
        write_tensors(job.fits / name, "fit", FORMAT_VERSION, {}, model._state(), error=ModelError)


def fit_validated(model: TrainedModel, past: DynamicGraph, split: LinkSplit) -> None:
    """Fit, and keep the best epoch on the validation examples."""
    model.fit(past, validate=_validation(split, -1))


def _validation(split: LinkSplit, at: int) -> Callable[[EmbeddingModel], float]:
    return lambda model: validation_auc(model.embed(at).cpu(), split, feature=model.pair_feature)


def _measure(
    model: LinkModel,
    graph: DynamicGraph,
    split: LinkSplit,
    before: LinkSplit | None,
    request: Request,
    lacking: list[tuple[str, int]],
) -> Iterator[StepResult]:
    """Every kind of negatives, with a probe trained on the present and on the past, or the scores as they are."""
    own = "score" if isinstance(model, EmbeddingModel) else "none"
    e = model.embed().cpu() if isinstance(model, EmbeddingModel) and request.probe != "score" else None
    past = (model.embed(-2).cpu(), before) if isinstance(model, EmbeddingModel) and before is not None else None
    feature: PairFeature = model.pair_feature if isinstance(model, EmbeddingModel) else "product"
    ranked = _ranking(model, graph, split, request)
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
            if past is not None:
                results["past"] = evaluate_probe(e, hard, past=past, feature=feature)
        for probe, result in results.items():
            ranking = ranked if kind == request.negatives[0] else {}
            yield StepResult(result, probe, int(split.labels.sum()), hard.missing, **ranking)


def _ranking(model: LinkModel, graph: DynamicGraph, split: LinkSplit, request: Request) -> dict[str, float]:
    """MRR and Hits@10 of the model's own scores, each link against other nodes for its second end."""
    if not request.candidates:
        return {}
    try:
        others = ranking_candidates(graph, split, request.candidates, request.seed, request.typed)  # [P, K]
    except GraphError:
        return {}  # a small graph may have fewer
    tested = ~split.validation[split.labels]  # the others may have chosen the best epoch
    links, others = split.pairs[split.labels][tested], others[tested]
    pairs = torch.stack([links[:, :1].expand_as(others), others], 2).flatten(0, 1)
    found = ranks(model.pair_scores(links).double(), model.pair_scores(pairs).double().view_as(others))
    return {"mrr": mrr(found), "hits_at_10": hits(found, 10)}


def split_of(graph: DynamicGraph, request: Request, step: int, target: int) -> LinkSplit:
    """The examples of one predicted snapshot."""
    return link_split(
        graph,
        step,
        protocol=request.protocol,
        target=target,
        seed=request.seed,
        repeats=request.repeats,
        self_loops=request.self_loops,
        typed=request.typed,
        new_ends=request.new_ends,
    )


def _split_before(graph: DynamicGraph, request: Request, step: int) -> LinkSplit | None:
    """The transition before, which a model that has seen `step` knows."""
    try:
        return link_split(
            graph[: step + 1],
            step - 1,
            seed=request.seed,
            repeats=1,
            self_loops=request.self_loops,
            typed=request.typed,
        )
    except GraphError:
        return None
