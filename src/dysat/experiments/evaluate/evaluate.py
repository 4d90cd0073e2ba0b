"""How well models predict links, step by step: in several processes, kept as it comes, taken up again after a stop."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError, listed
from dysat.experiments.evaluate.outcome import Evaluation
from dysat.experiments.evaluate.plan import Plan
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.workers import Told, processes_for, run_all
from dysat.models import OPPONENTS
from dysat.models.base.link_model import LinkModel
from dysat.nn.device import choose_device

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
    asked = list({one.key: one for one in map(as_contender, several)}.values())
    present = {contender.key for contender in asked}
    others = [Contender(name, opponent=True) for name in opponents]
    contenders = [*asked, *(contender for contender in others if contender.key not in present)]
    workers = processes or processes_for(choose_device(device).type, len(graph) * len(contenders))
    threads = max(1, torch.get_num_threads() // workers)
    plan = Plan.make(contenders, graph, Path(os.path.abspath(folder)), Request(**request), device, threads)
    run_all(plan.jobs, workers, on_progress)
    return plan.evaluation()


def as_contender(model: Models) -> Contender:
    """Whatever says which model, and its options."""
    if isinstance(model, LinkModel):
        return Contender(model.method, options=model.values())
    return Contender(model) if isinstance(model, str) else model
