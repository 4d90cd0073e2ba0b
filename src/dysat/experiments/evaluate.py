"""How well models predict links, step by step: in several processes, kept as it comes, taken up again after a stop.

evaluation.json              what was asked for
graph/                       the snapshots
steps/MODEL-…-STEP.safetensors   what one model reached at one step, and its scores
results.json                 everything, when all steps are done
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor

import dysat
from dysat.data.graph import DynamicGraph
from dysat.data.storage import write_beside
from dysat.data.tensors import read_tensors, write_tensors
from dysat.errors import DysatError, GraphError, ModelError, listed, nearest
from dysat.evaluation.negatives import NEGATIVES, Negatives, with_negatives
from dysat.evaluation.probe import ProbeResult, evaluate_probe, evaluate_scores, validation_auc
from dysat.evaluation.protocols import (
    PROTOCOLS,
    LinkSplit,
    NewEnds,
    Protocol,
    TooFewLinksError,
    link_split,
    predictable_steps,
)
from dysat.evaluation.ranking import hits, mrr, ranking_candidates, ranks
from dysat.experiments.summary import TENSORS, Evaluation, Figures, StepResult
from dysat.models import MODELS, OPPONENTS
from dysat.models.base import EmbeddingModel, LinkModel, choose_device
from dysat.training import keep_freed_memory

FORMAT_VERSION = 1
REQUEST, GRAPH, STEPS, RESULTS = "evaluation.json", "graph", "steps", "results.json"
Probe = Literal["present", "past"]


@dataclass(frozen=True)
class Contender:
    """A model by its name, with a preset and options."""

    method: str
    preset: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    opponent: bool = False  # asked for by nobody

    def __post_init__(self) -> None:
        if self.method not in MODELS:
            raise ModelError(f"no model {self.method!r}; there are {listed(MODELS, 30)}{nearest(self.method, MODELS)}")
        self.build()

    @property
    def name(self) -> str:
        return self.method if self.preset is None else f"{self.method}:{self.preset}"

    def build(self, device: str | None = None) -> LinkModel:
        """A new model, not fitted."""
        kind = MODELS[self.method]
        here = {"device": device} if device and any(o.name == "device" for o in kind.options()) else {}
        given = {**self.options, **here}
        return kind.with_options(given) if self.preset is None else kind.from_preset(self.preset, **given)

    @property
    def key(self) -> str:
        """Differs with every option but where it is computed."""
        values = {name: value for name, value in self.build().values().items() if name != "device"}
        text = json.dumps([self.method, values], sort_keys=True, default=str)
        return f"{self.method}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Request:
    """What is evaluated, and how.

    `first` and `last` are snapshots to predict; None: all that can be. `probe="past"`: no label of a predicted snapshot
    is used for anything but testing, not even to choose the best epoch. `new_ends`: whether both ends of a link among
    new nodes must be new, or one. `candidates`: so many other nodes for each link's MRR and Hits@10; 0 for none.
    """

    protocol: Protocol = "single-step"
    negatives: tuple[Negatives, ...] = ("uniform",)
    probe: Probe = "present"
    first: int | None = None
    last: int | None = None
    repeats: int = 10
    seed: int = 0
    self_loops: Literal["drop", "keep"] = "drop"
    typed: bool = False
    new_ends: NewEnds = "both"
    candidates: int = 0

    def __post_init__(self) -> None:
        kinds = (self.negatives,) if isinstance(self.negatives, str) else tuple(self.negatives)
        object.__setattr__(self, "negatives", tuple(dict.fromkeys(kinds)) or ("uniform",))
        if self.protocol not in PROTOCOLS:
            hint = nearest(self.protocol, PROTOCOLS)
            raise GraphError(f"no protocol {self.protocol!r}; there are {listed(PROTOCOLS)}{hint}")
        for kind in self.negatives:
            if kind not in NEGATIVES:
                raise GraphError(f"no negatives {kind!r}; there are {listed(NEGATIVES)}{nearest(kind, NEGATIVES)}")
        if self.probe not in ("present", "past"):
            raise GraphError(f"probe={self.probe!r} is neither 'present' nor 'past'")
        whole = all(isinstance(n, int) for n in (self.candidates, self.repeats, self.seed))
        if not whole or self.candidates < 0 or self.repeats < 1:
            raise GraphError("candidates must not be negative, and there must be at least one repeat")


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

    @property
    def file(self) -> Path:
        return self.folder / STEPS / f"{self.contender.key}-{self.step}.safetensors"

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


Told = Callable[[int, int, str], None]  # done, of how many, what was done last


Models = str | LinkModel | Contender


def evaluate(
    models: Models | Sequence[Models],
    graph: DynamicGraph,
    folder: str | os.PathLike[str] | None = None,
    *,
    opponents: Sequence[str] = OPPONENTS,
    device: str = "auto",
    processes: int | None = 1,
    on_progress: Told = lambda done, total, what: None,
    **request: Any,
) -> Evaluation:
    """Fit every model anew at every step and tell how well it predicts what comes after.

    Parameters:
        models: names, or models, of which only the options count; one or several.
        folder: keeps what is finished, which the same call then does not compute again.
        opponents: evaluated beside the models that are asked for, so that one sees whether learning pays.
        processes: how many; None for one for each core, which needs `if __name__ == "__main__":` in a script.
        request: the fields of a `Request`: protocol, negatives, probe, first, last, repeats, …

    Example:
        >>> import dysat
        >>> graph = dysat.load_dataset("uci")
        >>> found = dysat.evaluate("edge-memory", graph, opponents=["edgebank"], first=11, processes=1)
        >>> [model.name for model in found.shown()]
        ['edge-memory', 'edgebank']
    """
    if folder is None:
        with TemporaryDirectory(prefix="dysat-") as place:
            return evaluate(
                models, graph, place, opponents=opponents, device=device, processes=processes, on_progress=on_progress,
                **request,
            )  # fmt: skip
    unknown = [name for name in request if name not in Request.__dataclass_fields__]
    if unknown:
        there = listed(Request.__dataclass_fields__, 20)
        raise ModelError(f"evaluate() has no argument {unknown[0]!r}; of a request there are {there}")
    several = models if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    asked = list({one.key: one for one in map(_as_contender, several)}.values())
    path = Path(os.path.abspath(folder))
    return _evaluate(asked, graph, path, Request(**request), opponents, device, processes, on_progress)


def _as_contender(model: Models) -> Contender:
    if isinstance(model, LinkModel):
        return Contender(model.method, options=model.values())
    return Contender(model) if isinstance(model, str) else model


def _evaluate(
    asked: list[Contender],
    graph: DynamicGraph,
    path: Path,
    request: Request,
    opponents: Sequence[str],
    device: str,
    processes: int | None,
    on_progress: Told,
) -> Evaluation:
    present = {contender.key for contender in asked}
    others = [Contender(name, opponent=True) for name in opponents]
    contenders = [*asked, *(contender for contender in others if contender.key not in present)]
    steps = predictable_steps(graph, request.protocol, request.first, request.last)
    if request.typed and graph.kinds is None:
        raise GraphError("typed=True, but the nodes of this graph have no kinds")
    left_out = _check_steps(graph, request, steps)
    where = choose_device(device)
    _open_folder(path, graph, request)
    by_step: dict[int, list[int]] = {}
    for step, target in steps:
        if target not in left_out:
            by_step.setdefault(step, []).append(target)
    workers = processes or _processes(where.type, len(by_step) * len(contenders))
    threads = max(1, torch.get_num_threads() // workers)
    jobs = [
        Job(path, contender, request, step, tuple(targets), str(where), threads)
        for step, targets in sorted(by_step.items(), reverse=True)  # the long ones first
        for contender in contenders
    ]
    _run([job for job in jobs if not job.is_done()], len(jobs), workers, on_progress)
    evaluation = Evaluation(
        about=_about(graph, request, where.type),
        left_out={**{str(target): why for target, why in left_out.items()}},
        figures=[_figures(contender, [job for job in jobs if job.contender is contender]) for contender in contenders],
    )
    if not any(figures.results for figures in evaluation.asked()):
        why = next((why for f in evaluation.asked() for why in f.problems.values()), "no such negatives at any step")
        raise ModelError(f"no figure for {asked[0].name}: {why}")
    with write_beside(path / RESULTS, ModelError) as beside:
        beside.write_text(json.dumps(evaluation.facts(), indent=1) + "\n", encoding="utf-8")
    return evaluation


def run_jobs(jobs: Sequence[Job]) -> None:
    """One after the other, in a process of their own."""
    keep_freed_memory()
    for job in jobs:
        run_job(job)


def run_job(job: Job) -> None:
    """Fit one model at one step and keep what it reached."""
    from threadpoolctl import threadpool_limits

    if job.device == "cpu":
        torch.set_num_threads(job.threads)
    with threadpool_limits(job.threads):  # of SciPy and scikit-learn
        facts, tensors = _run_job(job)
    write_tensors(job.file, "evaluation", FORMAT_VERSION, facts, tensors, error=ModelError)


def _run_job(job: Job) -> tuple[dict[str, Any], dict[str, Tensor]]:
    graph, request = DynamicGraph.load(job.folder / GRAPH), job.request
    begin = time.perf_counter()
    facts: dict[str, Any] = {"step": job.step, "results": [], "lacking": [], "problem": None}
    tensors: dict[str, Tensor] = {}
    try:
        splits = [_split(graph, request, job.step, target) for target in job.targets]
        model = job.contender.build(job.device)
        before = _split_before(graph, request, job.step) if getattr(model, "history", None) != 1 else None
        _fit(model, graph[: job.step + 1], splits[0], before, request)
        for split in splits:
            for found in _measure(model, graph, split, before, request, facts["lacking"]):
                facts["results"].append(found.facts())
                tensors |= {f"{what}/{found.name}": getattr(found.result, what) for what in TENSORS}
    except DysatError as problem:
        facts["problem"] = str(problem)
    except torch.OutOfMemoryError:
        raise ModelError("out of memory on the device; finished steps are kept, try fewer processes") from None
    facts["seconds"] = round(time.perf_counter() - begin, 3)
    return facts, tensors


def _fit(model: LinkModel, past: DynamicGraph, split: LinkSplit, before: LinkSplit | None, request: Request) -> None:
    """Fit; a model that can be validated keeps its best epoch."""
    if "validate" not in signature(model.fit).parameters or not isinstance(model, EmbeddingModel):
        model.fit(past)
        return
    chosen = before if request.probe == "past" else split
    at = -2 if request.probe == "past" else -1

    def validate(model: EmbeddingModel) -> float:
        return validation_auc(model.embed(at).cpu(), chosen)  # type: ignore[arg-type]

    model.fit(past, **({"validate": validate} if chosen is not None else {}))


def _measure(
    model: LinkModel,
    graph: DynamicGraph,
    split: LinkSplit,
    before: LinkSplit | None,
    request: Request,
    lacking: list[tuple[str, int]],
) -> Iterator[StepResult]:
    """Every kind of negatives, with a probe trained on the present and on the past, where a probe is needed."""
    e = model.embed().cpu() if isinstance(model, EmbeddingModel) else None
    past = (model.embed(-2).cpu(), before) if isinstance(model, EmbeddingModel) and before is not None else None
    ranked = _ranking(model, graph, split, request)
    for kind in request.negatives:
        try:
            hard = split if kind == "uniform" else with_negatives(split, graph, kind, request.seed)
        except TooFewLinksError:
            lacking.append((kind, split.target))
            continue
        results: dict[str, ProbeResult] = {}
        if e is None:
            results["none"] = evaluate_scores(model.pair_scores(hard.pairs), hard)
        else:
            results["present"] = evaluate_probe(e, hard)
            if past is not None:
                results["past"] = evaluate_probe(e, hard, past=past)
        for probe, result in results.items():
            own = ranked if kind == request.negatives[0] else {}
            yield StepResult(result, probe, int(split.labels.sum()), hard.missing, **own)


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


def _split(graph: DynamicGraph, request: Request, step: int, target: int) -> LinkSplit:
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


def _check_steps(graph: DynamicGraph, request: Request, steps: list[tuple[int, int]]) -> dict[int, str]:
    """Targets with too few links to divide, and why; at least one must be left."""
    left_out: dict[int, str] = {}
    for step, target in steps:
        try:
            _split(graph, request, step, target)
        except TooFewLinksError as problem:
            left_out[target] = str(problem)
    if len(left_out) == len({target for _, target in steps}):
        raise GraphError(f"no step has enough links to evaluate: {next(iter(left_out.values()), 'no steps')}")
    return left_out


def _open_folder(path: Path, graph: DynamicGraph, request: Request) -> None:
    """Make the folder, or go on with one that has the same graph and request."""
    wanted = {"dysat": dysat.__version__, "graph": graph.fingerprint, **asdict(request)}
    wanted = json.loads(json.dumps(wanted))
    file = path / REQUEST
    if file.is_file():
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ModelError(f"{file}: damaged; choose another folder")
        other = [key for key in wanted if found.get(key) != wanted[key]]
        if other:
            raise ModelError(
                f"{path}: an evaluation with another {other[0]} ({found.get(other[0])}); choose another folder"
            )
        (path / STEPS).mkdir(exist_ok=True)
        return
    if path.exists() and any(file.name not in (STEPS, GRAPH) for file in path.iterdir()):
        raise ModelError(f"{path}: exists already and is no evaluation; choose another folder")
    (path / STEPS).mkdir(parents=True, exist_ok=True)
    graph.save(path / GRAPH, overwrite=True)
    with write_beside(file, ModelError) as beside:
        beside.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")


def _run(jobs: list[Job], total: int, workers: int, told: Told) -> None:
    """All jobs, each kept when it is done."""
    done = total - len(jobs)
    told(done, total, "")
    for finished in _finished(_stretches(jobs, workers), workers):
        done += len(finished)
        told(done, total, f"{finished[-1].contender.name}, snapshots up to {finished[-1].step}")


def _stretches(jobs: list[Job], workers: int) -> list[list[Job]]:
    """What one process does in one go: a model that is trained at one step, or consecutive steps of others.

    The pair models share what they compute, with each other and from step to step; so they stay together.
    """
    alone, together = [], dict[str, list[Job]]()
    for job in jobs:
        if any(option.name == "device" for option in MODELS[job.contender.method].options()):
            alone.append([job])
        else:
            together.setdefault(job.contender.method.partition("-")[0], []).append(job)
    parts = []
    for family in together.values():
        family.sort(key=lambda job: job.step)
        size = -(-len(family) // workers)
        parts += [family[i : i + size] for i in range(0, len(family), size)]
    return [*alone, *sorted(parts, key=len, reverse=True)]


def _finished(stretches: list[list[Job]], workers: int) -> Iterator[list[Job]]:
    if workers == 1 or len(stretches) < 2:
        threads = torch.get_num_threads()
        for job in (job for stretch in stretches for job in stretch):
            run_job(job)
            torch.set_num_threads(threads)
            yield [job]
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(stretches)), context, _leave_interrupts) as pool:
        try:
            waiting: dict[Future[None], list[Job]] = {pool.submit(run_jobs, stretch): stretch for stretch in stretches}
            while waiting:
                # Not without end: Polars lets system calls begin again after a signal, and Ctrl-C would not be heard.
                for future in wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED).done:
                    future.result()
                    yield waiting.pop(future)
        except BrokenProcessPool:
            why = (
                "a process was ended from outside, perhaps for want of memory; a script needs if __name__ == '__main__'"
            )
            raise ModelError(f"{why}; finished steps are kept, try processes=1") from None
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()  # what is finished is kept, and a file is there whole or not at all
            raise


def _leave_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal; only the first decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _processes(device: str, jobs: int) -> int:
    """As many as there are cores; one where all share a GPU."""
    return 1 if device == "cuda" else max(1, min(torch.get_num_threads(), jobs))


def _figures(contender: Contender, jobs: list[Job]) -> Figures:
    """All that is kept of one model."""
    results: list[StepResult] = []
    problems: dict[str, str] = {}
    lacking: dict[str, list[int]] = {}
    seconds = 0.0
    for job in sorted(jobs, key=lambda job: job.step):
        facts, tensors = job.results()
        seconds += facts["seconds"]
        if facts["problem"]:
            problems[str(job.step)] = facts["problem"]
        for kind, target in facts["lacking"]:
            lacking.setdefault(kind, []).append(target)
        results += [StepResult.restore(found, tensors) for found in facts["results"]]
    options = {key: value for key, value in contender.build().values().items() if key != "device"}
    return Figures(contender.name, contender.method, options, contender.opponent, results, problems, lacking, seconds)


def _about(graph: DynamicGraph, request: Request, device: str) -> dict[str, Any]:
    from datetime import UTC, datetime
    from importlib.metadata import version

    from dysat.experiments.bench import hardware

    return {
        "dysat": dysat.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "packages": {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")},
        "device": device,
        "graph": {"fingerprint": graph.fingerprint, "nodes": graph.num_nodes, "snapshots": len(graph)},
        "request": asdict(request),
    }
