"""The folder and the jobs of an evaluation.

evaluation.json                  the request
graph/                           the snapshots
steps/MODEL-…-STEP.safetensors   results and scores of one model at one step
results.json                     all results, once all steps are done
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import GraphError, ModelError
from dysat.evaluation.protocols import predictable_steps
from dysat.experiments.evaluate.job import GRAPH, STEPS, Job, needs_no_embeddings
from dysat.experiments.evaluate.outcome import Evaluation, Figures, StepResult
from dysat.experiments.evaluate.request import Contender, Request
from dysat.nn.device import choose_device
from dysat.system.hardware import hardware
from dysat.system.storage import replace_file
from dysat.system.text.json_text import json_text

REQUEST, RESULTS = "evaluation.json", "results.json"
WHICH = ("first", "last", "only")  # fields of a request that only say which snapshots are predicted


@dataclass(frozen=True, eq=False)
class EvaluationPlan:
    """All models at all steps; `jobs` has one job per model and step, the long ones first."""

    path: Path
    graph: DynamicGraph
    request: Request
    contenders: tuple[Contender, ...]
    left_out: dict[int, str]  # predicted snapshots with too few links, and why
    device: str
    jobs: tuple[Job, ...]

    @classmethod
    def make(
        cls,
        contenders: Sequence[Contender],
        graph: DynamicGraph,
        path: Path,
        request: Request,
        device: str,
        fits: Path | None = None,
    ) -> EvaluationPlan:
        """Check the request, open the folder and list the jobs; at least one snapshot must have enough links."""
        if request.typed and graph.kinds is None:
            raise GraphError("negatives cannot be typed: the nodes of this graph have no kinds")
        left_out: dict[int, str] = {}
        targets: dict[int, list[int]] = {}  # by step
        for step, target in request.steps(predictable_steps(graph, request.protocol, request.first, request.last)):
            if why := request.too_few_links(graph, step, target):
                left_out[target] = why
            else:
                targets.setdefault(step, []).append(target)
        if not targets:
            raise GraphError(f"no step has enough links to evaluate: {next(iter(left_out.values()), 'no steps')}")
        device = str(choose_device(device))
        jobs = tuple(
            Job(path, contender, request, step, tuple(targets[step]), device, fits)
            for step in sorted(targets, reverse=True)
            for contender in contenders
        )
        _check_memory(graph, jobs)
        _open_folder(path, graph, request, shared=fits is not None)
        return cls(path, graph, request, tuple(contenders), left_out, device, jobs)

    def evaluation(self) -> Evaluation:
        """Collect the results of all jobs, which must be done, and write them to the folder."""
        found = Evaluation(
            about=about(self.graph, self.request, self.device.partition(":")[0]),
            left_out={str(target): why for target, why in self.left_out.items()},
            figures=[self.figures(contender) for contender in self.contenders],
        )
        if not any(figures.results for figures in found.asked()):
            problems = (why for f in found.asked() for why in f.problems.values())
            why = next(problems, "no such negatives at any step")
            raise ModelError(f"no result for {self.contenders[0].name}: {why}")
        with replace_file(self.path / RESULTS, ModelError) as beside:
            beside.write_text(json_text(found.facts(), indent=1, ascii=True) + "\n", encoding="utf-8")
        return found

    def figures(self, contender: Contender) -> Figures:
        """Collect the stored results of one model."""
        results: list[StepResult] = []
        problems: dict[str, str] = {}
        lacking: dict[str, list[int]] = {}
        seconds = 0.0
        for job in sorted((job for job in self.jobs if job.contender is contender), key=lambda job: job.step):
            facts, tensors = job.results()
            seconds += facts["seconds"]
            if facts["problem"]:
                problems[str(job.step)] = facts["problem"]
            for kind, target in facts["lacking"]:
                lacking.setdefault(kind, []).append(target)
            results += [StepResult.restore(found, tensors) for found in facts["results"]]
        options = {key: value for key, value in contender.build().plain_params().items() if key != "device"}
        name, method = contender.name, contender.method
        return Figures(name, method, options, contender.opponent, results, problems, lacking, seconds)


def _check_memory(graph: DynamicGraph, jobs: Sequence[Job]) -> None:
    """Raise if a requested model does not fit in memory at its last unfinished step.

    A heuristic for comparison that does not fit reports a problem at its steps instead.
    """
    latest: dict[str, Job] = {}
    for job in jobs:  # later steps come first, and have more nodes
        if not job.contender.opponent and not job.file.exists():
            latest.setdefault(job.contender.key, job)
    for job in latest.values():
        model = job.contender.build(job.device)
        if not needs_no_embeddings(model, job.request):
            model.check_memory(graph[: job.step + 1])


def _open_folder(path: Path, graph: DynamicGraph, request: Request, shared: bool) -> None:
    """Create the folder, or resume one that has the same graph and request.

    File names of steps include the version of the method, so a `shared` folder can hold results of several versions
    and of other predicted snapshots.
    """
    wanted = {"dysat": dysat.__version__, "graph": graph.fingerprint, **asdict(request)}
    wanted = json.loads(json.dumps(wanted))
    file = path / REQUEST
    if (found := stored_request(path)) is not None:
        other = [key for key in wanted if found.get(key) != wanted[key] and not (shared and key in ("dysat", *WHICH))]
        if other:
            raise ModelError(
                f"{path}: an evaluation with another {other[0]} ({found.get(other[0])}); choose another folder"
            )
        (path / STEPS).mkdir(exist_ok=True)
        return
    unfinished = (f".{GRAPH}.", f".{REQUEST}.")  # left by a process that was killed while writing
    if path.exists() and any(
        file.name not in (STEPS, GRAPH) and not file.name.startswith(unfinished) for file in path.iterdir()
    ):
        raise ModelError(f"{path}: exists already and is not an evaluation; choose another folder")
    (path / STEPS).mkdir(parents=True, exist_ok=True)
    graph.save(path / GRAPH, overwrite=True)
    with replace_file(file, ModelError) as beside:
        beside.write_text(json_text(wanted, indent=2, ascii=True) + "\n", encoding="utf-8")


def stored_request(path: Path) -> dict[str, Any] | None:
    """Return the request of the evaluation in a folder; None if there is none."""
    file = path / REQUEST
    if not file.is_file():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ModelError(f"{file}: damaged; choose another folder")
    return found


def about(graph: DynamicGraph, request: Request, device: str, *packages: str) -> dict[str, Any]:
    """Return the context of a result: versions, date, hardware, graph and request."""
    from datetime import UTC, datetime
    from importlib.metadata import version

    return {
        "dysat": dysat.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "packages": {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn", *packages)},
        "device": device,
        "graph": {
            "fingerprint": graph.fingerprint,
            "nodes": graph.num_nodes,
            "snapshots": len(graph),
            "directed": graph.directed,
        },
        "request": asdict(request),
    }
