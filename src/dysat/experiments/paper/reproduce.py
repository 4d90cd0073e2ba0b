"""Measure the paper's tables and figures, in several processes; results are stored by content.

results/BUDGET/STUDY_DATASET.json   one record per row, for tables and figures
cache/…/                            finished steps by graph, request, options and version; a second run computes only
                                    what changed
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from dysat.data.datasets import DATASETS as FILES
from dysat.data.graph import DynamicGraph
from dysat.errors import DatasetError, listed, nearest
from dysat.experiments.evaluate.job import Job
from dysat.experiments.evaluate.plan import WHICH, EvaluationPlan, about
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.versions import content_key
from dysat.experiments.evaluate.workers import OnProgress, processes_for, run_all
from dysat.experiments.paper import catalogue as paper
from dysat.experiments.paper.attention_study import measure_attention
from dysat.experiments.paper.catalogue import Row, Target, row_keys
from dysat.experiments.paper.records import NothingMeasuredError, Record, Results
from dysat.experiments.paper.runtime_study import METHODS, measure_windows
from dysat.nn.device import choose_device
from dysat.system.parallel.engine import Engine, EngineName

Budget = Literal["quick", "full"]
QUICK_STEPS = 4  # predicted snapshots of the quick budget, evenly spread
GPU_PROCESSES = 8  # default number of processes on one GPU: a single one leaves most of it idle
CACHE, RESULTS = "cache", "results"


@dataclass(frozen=True)
class Need:
    """A row of a study on a dataset."""

    study: str
    dataset: str
    key: str  # of the row
    row: Row


def rows_of(target: Target) -> tuple[str, dict[str, Row]]:
    """Return the study and the rows of a table or figure; no rows if it is not made of evaluations."""
    every = paper.BASELINES | paper.DYSAT | paper.HEURISTICS
    rows: dict[str, tuple[str, dict[str, Row]]] = {
        "table2": ("single-step", every),
        "table3": ("single-step", paper.DYSAT | paper.ABLATIONS),
        "table4": ("new-links", every),
        "table5": ("single-step", paper.DYSAT | {"dyngem": paper.BASELINES["dyngem"]} | paper.INCSAT),
        "fig-steps": ("single-step", every),
        "fig-heads": ("single-step", paper.heads_rows()),
        "fig-multistep": ("multi-step", every),
        "fig-newnodes": ("new-nodes", every),
    }
    return rows.get(target, ("", {}))


def datasets_of(target: Target, datasets: Sequence[str]) -> list[str]:
    """Return the datasets of a table or figure, as in the paper; tables show Enron with and without self-loops."""
    if target == "fig-attention":
        return [name for name in datasets if name in ("uci", "yelp", "enron")]
    if target == "fig-heads":
        return [name for name in datasets if name in ("uci", "yelp")] or list(datasets)
    if target == "fig-runtime":
        return ["ml-10m"] if "ml-10m" in datasets else list(datasets)[-1:]
    if target in ("table2", "table3", "table4", "table5"):
        return [name for one in datasets for name in ((one, "enron-loops") if one == "enron" else (one,))]
    return list(datasets)


def needs(targets: Sequence[Target], datasets: Sequence[str], methods: Sequence[str] | None = None) -> list[Need]:
    """Return every required row once; a method is the name of a row, and includes all rows with the same preset."""
    keys = check_methods(methods)
    found: dict[tuple[str, str, str], Need] = {}
    for target in targets:
        study, rows = rows_of(target)
        for dataset in datasets_of(target, datasets):
            for key, row in rows.items():
                if keys is None or key in keys or row.preset in keys:
                    found[study, dataset, key] = Need(study, dataset, key, row)
    return list(found.values())


def check_methods(methods: Sequence[str] | None) -> list[str] | None:
    """Return the keys of rows by their names, such as `dysat:program` or `gcn-ae`; None for all."""
    return None if methods is None else row_keys(methods)


def any_row(targets: Sequence[Target], datasets: Sequence[str], methods: Sequence[str]) -> bool:
    """Return whether a table or figure has one of these rows."""
    keys = row_keys(methods)
    special: dict[str, Iterable[str]] = {"fig-attention": paper.DYSAT, "fig-runtime": METHODS}
    return any(key in keys for t in targets for key in special.get(t, ())) or bool(needs(targets, datasets, methods))


def reproduce(
    targets: Sequence[Target],
    graphs: Mapping[str, DynamicGraph],
    folder: Path,
    *,
    methods: Sequence[str] | None = None,
    budget: Budget = "full",
    device: str = "auto",
    processes: int | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    job_cpus: int | None = None,
    job_gpus: float | None = None,
    seed: int = 0,
    on_progress: OnProgress = lambda done, total, what: None,
) -> Results:
    """Measure the rows of tables and figures on the given graphs; finished results are not computed again.

    Parameters:
        targets: tables and figures.
        graphs: graphs by the name of the dataset.
        folder: folder of finished steps (`cache/`) and records (`results/`, one folder per budget and seed).
        methods: names of rows to measure, such as `dysat:program`, `dysat:text` or `gcn-ae`; None for all.
        budget: `quick` predicts four snapshots of each dataset, `full` all of the paper's.
        device: device to train on.
        processes: number of processes; None for one per core, at most eight on a GPU.
            With Ray, the cluster determines it.
        engine: `local`, or `ray` for a Ray cluster; fig-attention and fig-runtime are measured on this machine.
        address, job_cpus, job_gpus: of Ray, see `dysat.system.parallel.engine.Engine`.
        seed: random seed of examples and splits.
        on_progress: called with the number of finished jobs, the number of all jobs, and the last job.
    """
    ray_or_local = Engine(engine, address, job_cpus, job_gpus)
    for name in graphs:
        if name not in FILES:
            raise DatasetError(f"no dataset {name!r}; there are {listed(FILES)}{nearest(name, FILES)}")
    if not graphs:
        raise DatasetError("no dataset to measure anything on")
    results = Results(folder / RESULTS / (budget if seed == 0 else f"{budget}-seed-{seed}"))
    where = choose_device(device)
    keys = check_methods(methods)
    wanted = needs(targets, list(graphs), methods)
    jobs = QUICK_STEPS * len(wanted)
    workers = processes or (min(GPU_PROCESSES, _cores()) if where.type == "cuda" else processes_for("cpu", jobs))
    studies = []
    for (study, dataset), group in _grouped(wanted).items():
        graph, request = graphs[dataset.removesuffix("-loops")], request_of(study, dataset, budget, seed)
        rows = _Rows.make(group, graph, folder, request, results, str(where))
        if rows is not None:
            studies.append(rows)
    studies.sort(key=lambda rows: -rows.plan.graph.num_nodes)  # the long ones first
    by_folder = {rows.plan.path: rows for rows in studies}

    def on_done(jobs: Sequence[Job]) -> None:
        for job in jobs:
            by_folder[job.folder].done(job)

    jobs_of_all = [job for rows in studies for job in rows.plan.jobs]
    run_all(jobs_of_all, workers, on_progress, on_done, engine=ray_or_local, gpus=1 / GPU_PROCESSES)
    for name, graph in graphs.items():
        results.put_facts("datasets", name, "counts", dataset_facts(graph, name))
    if "fig-attention" in targets:
        for name in datasets_of("fig-attention", list(graphs)):
            for key in (key for key in paper.DYSAT if keys is None or key in keys):
                measure_attention(key, graphs[name], name, results, str(where), seed, on_progress)
    if "fig-runtime" in targets and (keys is None or not {*METHODS}.isdisjoint(keys)):
        for name in datasets_of("fig-runtime", list(graphs)):
            measure_windows(graphs[name], name, results, str(where), budget == "quick", on_progress)
    return results


def _cores() -> int:
    return os.cpu_count() or 1


def dataset_facts(graph: DynamicGraph, name: str) -> dict[str, Any]:
    """Return the values of a dataset in Table 1."""
    rows, predicted = graph.summary(), FILES[name].predicted
    return {
        "nodes": graph.num_nodes,
        "snapshots": len(graph),
        "links": sum(row.links for row in rows),
        "distinct_links": graph.num_distinct_links,
        "self_loops": sum(row.self_loops for row in rows),
        "predicted": [predicted[0], predicted[-1]],
    }


def request_of(study: str, dataset: str, budget: Budget, seed: int = 0) -> Request:
    """Return how a study is evaluated on a dataset."""
    predicted = FILES[dataset.removesuffix("-loops")].predicted
    ends: dict[str, Any] = {"first": predicted[0], "last": predicted[-1]} if study != "multi-step" else {}
    if budget == "quick" and study != "multi-step":
        places = torch.linspace(0, len(predicted) - 1, QUICK_STEPS).round().long().tolist()
        ends["only"] = tuple(dict.fromkeys(predicted[place] for place in places))
    loops: Literal["drop", "keep"] = "keep" if dataset.endswith("-loops") else "drop"
    return Request(**paper.STUDIES[study], **ends, self_loops=loops, seed=seed, past_probe=False)


class _Rows:
    """The rows of a study on a dataset that are not measured yet; a record is stored when its last step is done."""

    def __init__(
        self, plan: EvaluationPlan, study: str, dataset: str, results: Results, rows: dict[str, list[str]]
    ) -> None:
        self.plan, self.study, self.dataset, self.results, self.rows = plan, study, dataset, results, rows
        self.waiting = {one.key: {job.step for job in plan.jobs if job.contender is one} for one in plan.contenders}

    @classmethod
    def make(
        cls, group: list[Need], graph: DynamicGraph, folder: Path, request: Request, results: Results,
        device: str,
    ) -> _Rows | None:  # fmt: skip
        """Return the rows to measure, or None if all are stored."""
        study, dataset = group[0].study, group[0].dataset
        contenders: dict[str, Contender] = {}
        rows: dict[str, list[str]] = {}
        for need in group:
            contender = need.row.contender(dataset)
            record = results.record(study, dataset, need.key)
            if record is not None and record.key == content_key(graph, contender, request):
                continue
            contenders.setdefault(contender.key, contender)
            rows.setdefault(contender.key, []).append(need.key)
        if study == "new-nodes":
            known = (0, *graph.known)
            new = {str(target): known[target] - known[target - 1] for target in range(1, len(graph))}
            if results.facts(study, dataset, "_counts") != {"new_nodes": new}:
                results.put_facts(study, dataset, "_counts", {"new_nodes": new})
        if not contenders:
            return None
        how = {name: value for name, value in asdict(request).items() if name not in WHICH}
        short = hashlib.sha256(json.dumps([graph.fingerprint, how]).encode()).hexdigest()[:8]
        path = (folder / CACHE / f"{study}-{dataset}-{short}").absolute()
        fits = path.parent / "fits"
        plan = EvaluationPlan.make(list(contenders.values()), graph, path, request, device, fits)
        return cls(plan, study, dataset, results, rows)

    def done(self, job: Job) -> None:
        """Note that a step is finished; store the records of its rows if it was the last one."""
        key = job.contender.key
        self.waiting[key].discard(job.step)
        if not self.waiting[key]:
            figures = self.plan.figures(job.contender)
            content = content_key(self.plan.graph, job.contender, self.plan.request)
            context = about(self.plan.graph, self.plan.request, self.plan.device.partition(":")[0])
            left_out = {str(target): why for target, why in self.plan.left_out.items()}
            for row in self.rows[key]:
                try:
                    self.results.put(self.study, self.dataset, Record.of(row, content, figures, context, left_out))
                except NothingMeasuredError as problem:  # the other rows continue
                    name = paper.ROWS[row].name if row in paper.ROWS else row
                    self.results.problems.append(f"{self.study}, {self.dataset}: {name}: {problem}")


def _grouped(wanted: Sequence[Need]) -> dict[tuple[str, str], list[Need]]:
    found: dict[tuple[str, str], list[Need]] = {}
    for need in wanted:
        found.setdefault((need.study, need.dataset), []).append(need)
    return found
