"""How much each step attends to those before it, mean and spread over the nodes, as in the paper's heat maps."""

from __future__ import annotations

import json
from typing import Any

import torch

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.experiments.evaluate.job import fit_validated, split_of
from dysat.experiments.evaluate.plan import about
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.versions import content_key
from dysat.experiments.evaluate.workers import Told
from dysat.experiments.paper.catalogue import DYSAT
from dysat.experiments.paper.records import Results
from dysat.models.dysat import DySAT


def measure_attention(
    slug: str, graph: DynamicGraph, dataset: str, results: Results, device: str, seed: int, told: Told
) -> None:
    """Keep the weights of a row of DySAT on a dataset, unless they are there."""
    contender, request = DYSAT[slug].contender(dataset), Request(seed=seed, past_probe=False)
    key = content_key(graph, contender, request)
    if (results.facts("attention", dataset, slug) or {}).get("key") == key:
        return
    told(0, 1, f"attention of {slug} on {dataset}")
    facts = attention_facts(contender, graph, request, device)
    where = about(graph, request, device.partition(":")[0])
    found = {"key": key, **facts, "options": contender.build().values(), "about": where}
    results.put_facts("attention", dataset, slug, json.loads(json.dumps(found)))
    told(1, 1, f"attention of {slug} on {dataset}")


def attention_facts(contender: Contender, graph: DynamicGraph, request: Request, device: str) -> dict[str, Any]:
    """Weights of a model that has seen all snapshots but the last, with the best epoch for predicting that.

    Row i, column j: how much a node known at step i attends to step j, mean over heads and nodes; None for j > i.
    """
    model, last = contender.build(device), len(graph) - 2
    if not isinstance(model, DySAT):
        raise ModelError(f"{contender.method} has no temporal attention")
    fit_validated(model, graph[: last + 1], split_of(graph, request, last, last + 1))
    mean: list[list[float | None]] = []
    spread: list[list[float | None]] = []
    for step in model.steps():
        weights = model.attention(step).double()  # [known, steps]
        nothing = [None] * (last - step)
        mean.append([*(round(w, 6) for w in weights.mean(0).tolist()), *nothing])
        deviation = weights.std(0, correction=0) if len(weights) else torch.zeros(weights.shape[1])
        spread.append([*(round(w, 6) for w in deviation.tolist()), *nothing])
    return {"steps": list(model.steps()), "mean": mean, "sd": spread, "best_epoch": model.epochs_[-1].best}
