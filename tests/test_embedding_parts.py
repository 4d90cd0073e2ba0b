"""Variants of the default model: the first is the default itself, events do not leak, links are ranked among others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from event_times import with_times
from small import meetings, two_blocks

import dysat
from dysat.nn.future_objective import Cells, Transitions
from dysat.sampling.blocks import whole_block

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
parts = pytest.importorskip("embedding_parts")


@pytest.mark.slow
def test_the_first_variant_is_the_default_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, target = with_times(two_blocks(steps=6)), 5
    graph.save(tmp_path / "blocks")
    task = {"graph": str(tmp_path / "blocks"), "target": target, "prepared": str(tmp_path / "ready.pt")}
    task |= {"only_prepare": False, "device": "cpu", "epochs": 2, "variants": list(parts.VARIANTS)}
    found = parts.measure(task)["variants"]
    assert not [name for name, cell in found.items() if "problem" in cell]
    given = parts.examples(graph, target, 0)
    model = dysat.DySAT(epochs=2, device="cpu").fit(graph[:target])
    product = parts.figures(super(dysat.DySAT, model).pair_scores, given)
    assert found["default"]["product"] == parts.known(product)
    assert found["score"] == parts.known(parts.figures(model.pair_scores, given))
    row = {"log": "blocks", "target": target, "variants": found}
    (tmp_path / "found.json").write_text(json.dumps({"rows": [row]}))
    monkeypatch.setattr(sys, "argv", ["x", "--show", str(tmp_path / "found.json")])
    parts.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 logs, 1 windows: blocks."
    assert lines[5].startswith(f"| default | 1 | {100 * product['auc']:.2f} (")


def test_tokens_are_the_latest_events_up_to_a_step() -> None:
    graph = with_times(meetings())
    network = parts.EventNetwork(graph, 8, 3, 4, torch.Generator().manual_seed(0))
    block = whole_block(graph, link_weights="raw", self_loops=True, lonely=True, unknown="masked", every_step=True)
    steps = torch.repeat_interleave(torch.arange(5), torch.tensor(graph.known))
    nodes = torch.cat([torch.arange(known) for known in graph.known])
    plan = network.plan(block, nodes, steps)
    for query, (node, step) in enumerate(zip(nodes.tolist(), steps.tolist(), strict=True)):
        events = []
        for t in range(step + 1):
            receivers, senders, weights = graph[t].entries()
            own = receivers == node
            passed = graph[t].latest[own].double().clamp(max=1 - 1e-6)
            events += list(zip((t + passed).tolist(), senders[own].tolist(), weights[own].tolist(), strict=True))
        latest = sorted(events, reverse=True)[:4]
        valid = plan.valid[query]
        assert int(valid.sum()) == len(latest)
        rows = plan.active[plan.neighbours[query][valid]] - plan.active[plan.own[query]] + node
        moments = step + 1 - plan.times[query, valid, -2].double().expm1()
        amounts = plan.times[query, valid, -1].double().expm1()
        assert moments.tolist() == pytest.approx([moment for moment, _, _ in latest], abs=1e-5)
        triples = zip(np.round(moments.tolist(), 4), rows.tolist(), np.round(amounts.tolist(), 4), strict=True)
        assert set(triples) <= {(np.round(m, 4), v, np.round(w, 4)) for m, v, w in events}  # several may be as late


def test_links_are_ranked_among_pairs_of_the_same_node_that_are_not_linked() -> None:
    graph = meetings()
    cells = Cells.of(graph.known, 1, torch.device("cpu"))
    links = Transitions.of(graph, cells, 1, 0.0)
    ahead = parts.RankedAhead(cells, links, None, (1.0, 0.0), kinds=torch.arange(8) % 2, logistic=False)
    own, others, counts = ahead.draw(torch.Generator().manual_seed(0)).links
    linked = {frozenset(pair) for pair in links.pairs.tolist()}
    assert all(frozenset(pair) in linked for pair in own.tolist())
    kept = others[counts]
    assert len(kept) and not any(frozenset(pair) in linked or pair[0] == pair[1] for pair in kept.tolist())
    assert torch.equal(others[:, 0], own[:, 0].repeat_interleave(parts.OTHERS))
    ends = own[:, 1].repeat_interleave(parts.OTHERS)[counts]
    assert torch.equal(cells.nodes[kept[:, 1]] % 2, cells.nodes[ends] % 2)
    assert torch.equal(cells.steps[kept[:, 0]], cells.steps[kept[:, 1]])
