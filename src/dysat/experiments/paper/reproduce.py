"""The paper's tables and figures, measured: what each needs, computed in processes, kept by content.

results/BUDGET/STUDY_DATASET.json   a record for each row, which tables and figures are made of
cache/…/                     finished steps, by graph, request, options and code; a second run computes what changed
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from dysat.data.datasets import DATASETS as FILES
from dysat.data.graph import DynamicGraph
from dysat.errors import DatasetError, ModelError, listed, nearest
from dysat.experiments.evaluate.job import Job
from dysat.experiments.evaluate.plan import WHICH, Plan, about
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.versions import content_key
from dysat.experiments.evaluate.workers import Told, processes_for, run_all
from dysat.experiments.paper import catalogue as paper
from dysat.experiments.paper.attention_study import measure_attention
from dysat.experiments.paper.catalogue import Row, Target
from dysat.experiments.paper.records import NothingMeasuredError, Record, Results
from dysat.experiments.paper.runtime_study import METHODS, measure_windows
from dysat.nn.device import choose_device

Budget = Literal["quick", "full"]
QUICK_STEPS = 4  # predicted snapshots of a quick budget, spread evenly
SIDE_BY_SIDE = 8  # processes that share a GPU, unless told otherwise: one alone leaves most of it idle
CACHE, RESULTS = "cache", "results"


@dataclass(frozen=True)
class Need:
    """A row of a study on a dataset."""

    study: str
    dataset: str
    slug: str
    row: Row


def rows_of(target: Target) -> tuple[str, dict[str, Row]]:
    """The study of a table or figure, and the rows it shows; none where it is measured otherwise."""
    every = paper.BASELINES | paper.DYSAT | paper.HEURISTICS
    found: dict[str, tuple[str, dict[str, Row]]] = {
        "table2": ("single-step", every),
        "table3": ("single-step", paper.DYSAT | paper.ABLATIONS),
        "table4": ("new-links", every),
        "table5": ("single-step", paper.DYSAT | {"dyngem": paper.BASELINES["dyngem"]} | paper.INCSAT),
        "fig-steps": ("single-step", every),
        "fig-heads": ("single-step", paper.heads_rows()),
        "fig-multistep": ("multi-step", every),
        "fig-newnodes": ("new-nodes", every),
    }
    return found.get(target, ("", {}))


def datasets_of(target: Target, datasets: Sequence[str]) -> list[str]:
    """Which of the datasets a table or figure shows: as in the paper, and Enron's self-loops both ways in tables."""
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
    """Every row that is wanted, once."""
    check_methods(methods)
    found: dict[tuple[str, str, str], Need] = {}
    for target in targets:
        study, rows = rows_of(target)
        for dataset in datasets_of(target, datasets):
            for slug, row in rows.items():
                if methods is None or slug in methods or row.preset in methods:
                    found[study, dataset, slug] = Need(study, dataset, slug, row)
    return list(found.values())


def check_methods(methods: Sequence[str] | None) -> None:
    """Names of rows, or of presets whose rows are meant."""
    for name in methods or ():
        if name not in paper.ROWS:
            raise ModelError(f"no method {name!r}; there are {listed(paper.ROWS, 40)}{nearest(name, paper.ROWS)}")


def reproduce(
    targets: Sequence[Target],
    graphs: Mapping[str, DynamicGraph],
    folder: Path,
    *,
    methods: Sequence[str] | None = None,
    budget: Budget = "full",
    device: str = "auto",
    processes: int | None = None,
    seed: int = 0,
    on_progress: Told = lambda done, total, what: None,
) -> Results:
    """Measure what the tables and figures need of these graphs, by the datasets' names; what is kept is not redone.

    Parameters:
        folder: keeps finished steps in `cache/` and records in `results/`, those of a budget and seed by themselves.
        methods: rows to measure; None for all.
        budget: `quick` predicts four snapshots of each dataset, `full` all of the paper's.
        processes: how many at a time; None for one for each core, on a GPU at most eight.
    """
    for name in graphs:
        if name not in FILES:
            raise DatasetError(f"no dataset {name!r}; there are {listed(FILES)}{nearest(name, FILES)}")
    if not graphs:
        raise DatasetError("no dataset to measure anything on")
    results = Results(folder / RESULTS / (budget if seed == 0 else f"{budget}-seed-{seed}"))
    where = choose_device(device)
    wanted = needs(targets, list(graphs), methods)
    jobs = QUICK_STEPS * len(wanted)
    workers = processes or (min(SIDE_BY_SIDE, _cores()) if where.type == "cuda" else processes_for("cpu", jobs))
    threads = max(1, torch.get_num_threads() // workers)
    plans = []
    for (study, dataset), some in _grouped(wanted).items():
        graph, request = graphs[dataset.removesuffix("-loops")], request_of(study, dataset, budget, seed)
        plan = _Rows.make(some, graph, folder, request, results, str(where), threads)
        if plan is not None:
            plans.append(plan)
    plans.sort(key=lambda plan: -plan.plan.graph.num_nodes)  # the long ones first
    by_folder = {plan.plan.path: plan for plan in plans}

    def on_done(jobs: Sequence[Job]) -> None:
        for job in jobs:
            by_folder[job.folder].done(job)

    run_all([job for plan in plans for job in plan.plan.jobs], workers, on_progress, on_done)
    for name, graph in graphs.items():
        results.put_facts("datasets", name, "counts", dataset_facts(graph, name))
    if "fig-attention" in targets:
        for name in datasets_of("fig-attention", list(graphs)):
            for slug in (slug for slug in paper.DYSAT if methods is None or slug in methods):
                measure_attention(slug, graphs[name], name, results, str(where), seed, on_progress)
    if "fig-runtime" in targets and (methods is None or not {*METHODS}.isdisjoint(methods)):
        for name in datasets_of("fig-runtime", list(graphs)):
            measure_windows(graphs[name], name, results, str(where), budget == "quick", on_progress)
    return results


def _cores() -> int:
    return os.cpu_count() or 1


def dataset_facts(graph: DynamicGraph, name: str) -> dict[str, Any]:
    """What Table 1 tells of a dataset."""
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
    """How a study is evaluated on a dataset."""
    predicted = FILES[dataset.removesuffix("-loops")].predicted
    ends: dict[str, Any] = {"first": predicted[0], "last": predicted[-1]} if study != "multi-step" else {}
    if budget == "quick" and study != "multi-step":
        places = torch.linspace(0, len(predicted) - 1, QUICK_STEPS).round().long().tolist()
        ends["only"] = tuple(dict.fromkeys(predicted[place] for place in places))
    loops: Literal["drop", "keep"] = "keep" if dataset.endswith("-loops") else "drop"
    return Request(**paper.STUDIES[study], **ends, self_loops=loops, seed=seed, past_probe=False)


class _Rows:
    """The rows of a study on a dataset that are not measured yet; a record is kept as soon as its last step is done."""

    def __init__(self, plan: Plan, study: str, dataset: str, results: Results, rows: dict[str, list[str]]) -> None:
        self.plan, self.study, self.dataset, self.results, self.rows = plan, study, dataset, results, rows
        self.waiting = {one.key: {job.step for job in plan.jobs if job.contender is one} for one in plan.contenders}

    @classmethod
    def make(
        cls, some: list[Need], graph: DynamicGraph, folder: Path, request: Request, results: Results,
        device: str, threads: int,
    ) -> _Rows | None:  # fmt: skip
        """None where all are there."""
        study, dataset = some[0].study, some[0].dataset
        contenders: dict[str, Contender] = {}
        rows: dict[str, list[str]] = {}
        for need in some:
            contender = need.row.contender(dataset)
            record = results.record(study, dataset, need.slug)
            if record is not None and record.key == content_key(graph, contender, request):
                continue
            contenders.setdefault(contender.key, contender)
            rows.setdefault(contender.key, []).append(need.slug)
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
        plan = Plan.make(list(contenders.values()), graph, path, request, device, threads, fits)
        return cls(plan, study, dataset, results, rows)

    def done(self, job: Job) -> None:
        """One more step is there."""
        key = job.contender.key
        self.waiting[key].discard(job.step)
        if not self.waiting[key]:
            found = self.plan.figures(job.contender)
            content = content_key(self.plan.graph, job.contender, self.plan.request)
            told = about(self.plan.graph, self.plan.request, self.plan.device.partition(":")[0])
            left_out = {str(target): why for target, why in self.plan.left_out.items()}
            for slug in self.rows[key]:
                try:
                    self.results.put(self.study, self.dataset, Record.of(slug, content, found, told, left_out))
                except NothingMeasuredError as problem:  # the other rows go on
                    self.results.problems.append(f"{self.study}, {self.dataset}: {problem}")


def _grouped(wanted: Sequence[Need]) -> dict[tuple[str, str], list[Need]]:
    found: dict[tuple[str, str], list[Need]] = {}
    for need in wanted:
        found.setdefault((need.study, need.dataset), []).append(need)
    return found
