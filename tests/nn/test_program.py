"""Forward pass and loss of the authors' program on a small graph (tests/fixtures/program_forward.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import dysat
from dysat.data.csr import Snapshot
from dysat.models.dysat import DySAT
from dysat.nn.walk_objective import Examples, walk_loss

FIXTURE = Path(__file__).parents[1] / "fixtures" / "program_forward.json"


@pytest.fixture(scope="module")
def fixture() -> dict[str, Any]:
    return dict(json.loads(FIXTURE.read_text()))


@pytest.fixture(scope="module")
def model(fixture: dict[str, Any]) -> DySAT:
    """The preset `program` with the fixture's layer sizes and weights."""
    snapshots = []
    for t, (known, links) in enumerate(zip(fixture["known"], fixture["links"], strict=True)):
        u, v, weight = np.array(links).T
        snapshots.append(Snapshot.from_links(u, v, weight.astype(float), num_nodes=known, start=t, stop=t + 1))
    graph = dysat.DynamicGraph(np.arange(fixture["known"][-1]), tuple(snapshots), clock="step")
    model = DySAT.from_preset(
        "program",
        structural_heads=(4, 2),
        structural_features=(16, 8),
        temporal_heads=(2,),
        temporal_features=(8,),
        epochs=0,
        device="cpu",
    )
    model.fit(graph)
    net = model.network_
    with torch.no_grad():
        for layer, saved in zip(net.structural, fixture["structural"], strict=True):
            w = torch.tensor(saved["W"])  # [H, in, F]
            (layer.weight if layer.table is None else layer.table).copy_(w.permute(1, 0, 2).flatten(1))
            # The program weights a message u → v by the entry (u, v): rows are senders, columns are receivers.
            layer.sender.copy_(torch.tensor(saved["a1"]).view_as(layer.sender))
            layer.receiver.copy_(torch.tensor(saved["a2"]).view_as(layer.receiver))
            layer.bias.copy_(torch.stack([torch.tensor(saved["b1"]).flatten(), torch.tensor(saved["b2"]).flatten()]))
        temporal = fixture["temporal"]
        net.position.copy_(torch.tensor(temporal["position"]))
        for name in ("query", "key", "value"):
            getattr(net.temporal[0], name).copy_(torch.tensor(temporal[name]))
        net.feedforward.inner.copy_(torch.tensor(temporal["feedforward_weight"]))
        net.feedforward.inner_bias.copy_(torch.tensor(temporal["feedforward_bias"]))
    return model


def embeddings(model: DySAT, fixture: dict[str, Any]) -> torch.Tensor:
    """Embeddings of all nodes at all steps, also before a node is known.  # [N, T, d]"""
    n, t = len(fixture["embeddings"]), len(fixture["known"])
    nodes, steps = torch.arange(n).repeat_interleave(t), torch.arange(t).repeat(n)
    plan = model.network_.plan(model.block_, nodes, steps)
    return model.network_(model.block_, model.inputs_, plan).view(n, t, -1)


def test_forward_pass_equals_the_program(model: DySAT, fixture: dict[str, Any]) -> None:
    ours, theirs = embeddings(model, fixture), torch.tensor(fixture["embeddings"])
    assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_loss_equals_the_program(model: DySAT, fixture: dict[str, Any]) -> None:
    saved = fixture["loss"]
    e = embeddings(model, fixture)
    num_steps = len(saved["pairs"])
    pairs = torch.tensor(saved["pairs"])  # [T, P, 2]
    steps = torch.arange(num_steps).repeat_interleave(pairs.shape[1])
    at = steps[:, None] + pairs.flatten(0, 1) * e.shape[1]  # rows of the flattened embeddings
    negatives = torch.tensor(saved["negatives"]) * e.shape[1] + torch.arange(num_steps)[:, None]
    examples = Examples(at[:, 0], steps, torch.ones(len(at)), at[:, 1:], negatives, num_steps)
    loss = walk_loss(
        e.flatten(0, 1), examples, negative_weight=saved["negative_weight"], sharing="shared", reduction="mean"
    )
    assert_close(loss, torch.tensor(saved["graph_loss"]), atol=1e-4, rtol=1e-4)
    assert_close(model.penalty(), torch.tensor(saved["reg_loss"]), atol=1e-5, rtol=1e-4)
