"""An evaluation that is prepared: its folder, the steps it has, what is to be done for each model, and what came out.

evaluation.json              what was asked for
graph/                       the snapshots
steps/MODEL-…-STEP.safetensors   what one model reached at one step, and its scores
results.json                 everything, when all steps are done
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
from dysat.evaluation.protocols import TooFewLinksError, predictable_steps
from dysat.experiments.evaluate.job import GRAPH, STEPS, Job, split_of
from dysat.experiments.evaluate.outcome import Evaluation, Figures, StepResult
from dysat.experiments.evaluate.request import Contender, Request
from dysat.nn.device import choose_device
from dysat.system.hardware import hardware
from dysat.system.storage import replace_file

REQUEST, RESULTS = "evaluation.json", "results.json"
WHICH = ("first", "last", "only")  # of a request: which snapshots are predicted, and nothing about how


@dataclass(frozen=True, eq=False)
class Plan:
    """All models at all steps; `jobs` are what is to be done, the long ones first."""

    path: Path
    graph: DynamicGraph
    request: Request
    contenders: tuple[Contender, ...]
    left_out: dict[int, str]  # predicted snapshots that have too few links, and why
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
        threads: int,
        fits: Path | None = None,
    ) -> Plan:
        """Check what is asked for, and open the folder."""
        if request.typed and graph.kinds is None:
            raise GraphError("negatives cannot be typed: the nodes of this graph have no kinds")
        steps = request.steps(predictable_steps(graph, request.protocol, request.first, request.last))
        left_out = _check_steps(graph, request, steps)
        where = str(choose_device(device))
        _open_folder(path, graph, request, shared=fits is not None)
        by_step: dict[int, list[int]] = {}
        for step, target in steps:
            if target not in left_out:
                by_step.setdefault(step, []).append(target)
        jobs = tuple(
            Job(path, contender, request, step, tuple(targets), where, threads, fits)
            for step, targets in sorted(by_step.items(), reverse=True)
            for contender in contenders
        )
        return cls(path, graph, request, tuple(contenders), left_out, where, jobs)

    def evaluation(self) -> Evaluation:
        """What the jobs have kept, when all are done; written to the folder besides."""
        found = Evaluation(
            about=about(self.graph, self.request, self.device.partition(":")[0]),
            left_out={str(target): why for target, why in self.left_out.items()},
            figures=[self.figures(contender) for contender in self.contenders],
        )
        if not any(figures.results for figures in found.asked()):
            problems = (why for f in found.asked() for why in f.problems.values())
            why = next(problems, "no such negatives at any step")
            raise ModelError(f"no figure for {self.contenders[0].name}: {why}")
        with replace_file(self.path / RESULTS, ModelError) as beside:
            beside.write_text(json.dumps(found.facts(), indent=1) + "\n", encoding="utf-8")
        return found

    def figures(self, contender: Contender) -> Figures:
        """All that is kept of one model."""
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
        options = {key: value for key, value in contender.build().values().items() if key != "device"}
        name, method = contender.name, contender.method
        return Figures(name, method, options, contender.opponent, results, problems, lacking, seconds)


def _check_steps(graph: DynamicGraph, request: Request, steps: list[tuple[int, int]]) -> dict[int, str]:
    """Targets with too few links to divide, and why; at least one must be left."""
    left_out: dict[int, str] = {}
    for step, target in steps:
        try:
            split_of(graph, request, step, target)
        except TooFewLinksError as problem:
            left_out[target] = str(problem)
    if len(left_out) == len({target for _, target in steps}):
        raise GraphError(f"no step has enough links to evaluate: {next(iter(left_out.values()), 'no steps')}")
    return left_out


def _open_folder(path: Path, graph: DynamicGraph, request: Request, shared: bool) -> None:
    """Make the folder, or go on with one that has the same graph and request.

    Steps are named by the code that computed them, so in a `shared` folder those of any version can stand beside each
    other, and those of other predicted snapshots. That code does not include the hard negatives and ranks, which only
    an evaluation of its own has.
    """
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
        other = [key for key in wanted if found.get(key) != wanted[key] and not (shared and key in ("dysat", *WHICH))]
        if other:
            raise ModelError(
                f"{path}: an evaluation with another {other[0]} ({found.get(other[0])}); choose another folder"
            )
        (path / STEPS).mkdir(exist_ok=True)
        return
    begun = (f".{GRAPH}.", f".{REQUEST}.")  # left by a process that was killed while it wrote them
    if path.exists() and any(
        file.name not in (STEPS, GRAPH) and not file.name.startswith(begun) for file in path.iterdir()
    ):
        raise ModelError(f"{path}: exists already and is no evaluation; choose another folder")
    (path / STEPS).mkdir(parents=True, exist_ok=True)
    graph.save(path / GRAPH, overwrite=True)
    with replace_file(file, ModelError) as beside:
        beside.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")


def about(graph: DynamicGraph, request: Request, device: str, *packages: str) -> dict[str, Any]:
    """What was done, when and where, for the files of results."""
    from datetime import UTC, datetime
    from importlib.metadata import version

    return {
        "dysat": dysat.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "packages": {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn", *packages)},
        "device": device,
        "graph": {"fingerprint": graph.fingerprint, "nodes": graph.num_nodes, "snapshots": len(graph)},
        "request": asdict(request),
    }
