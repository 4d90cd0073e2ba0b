"""Temporal attention weights between steps, mean and deviation over the nodes, as in the paper's heat maps."""

from __future__ import annotations

import json
from typing import Any

import torch

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.experiments.evaluate.job import fit_validated
from dysat.experiments.evaluate.plan import about
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.versions import content_key
from dysat.experiments.evaluate.workers import OnProgress
from dysat.experiments.paper.catalogue import DYSAT
from dysat.experiments.paper.records import Results
from dysat.models.dysat import DySAT


def measure_attention(
    key: str, graph: DynamicGraph, dataset: str, results: Results, device: str, seed: int, on_progress: OnProgress
) -> None:
    """Measure and store the weights of a row of DySAT on a dataset, unless they are stored already."""
    contender, request = DYSAT[key].contender(dataset), Request(seed=seed, past_probe=False)
    content, what = content_key(graph, contender, request), f"attention of {DYSAT[key].name} on {dataset}"
    if (results.facts("attention", dataset, key) or {}).get("key") == content:
        return
    on_progress(0, 1, what)
    facts = attention_facts(contender, graph, request, device)
    context = about(graph, request, device.partition(":")[0])
    stored = {"key": content, **facts, "options": contender.build().plain_params(), "about": context}
    results.put_facts("attention", dataset, key, json.loads(json.dumps(stored)))
    on_progress(1, 1, what)


def attention_facts(contender: Contender, graph: DynamicGraph, request: Request, device: str) -> dict[str, Any]:
    """Return the weights of a model fitted on all snapshots but the last, at the best epoch for predicting that one.

    Row i, column j: the weight of step j for nodes known at step i, mean over heads and nodes; None for j > i.
    """
    model, last = contender.build(device), len(graph) - 2
    if not isinstance(model, DySAT):
        raise ModelError(f"{contender.method} has no temporal attention")
    fit_validated(model, graph[: last + 1], request.split(graph, last, last + 1))
    mean: list[list[float | None]] = []
    spread: list[list[float | None]] = []
    for step in model.steps():
        weights = model.attention(step).double()  # [known, steps]
        nothing = [None] * (last - step)
        mean.append([*(round(w, 6) for w in weights.mean(0).tolist()), *nothing])
        deviation = weights.std(0, correction=0) if len(weights) else torch.zeros(weights.shape[1])
        spread.append([*(round(w, 6) for w in deviation.tolist()), *nothing])
    return {"steps": list(model.steps()), "mean": mean, "sd": spread, "best_epoch": model.epochs_[-1].best}
