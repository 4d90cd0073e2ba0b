"""dysat bench --scale: made-up logs, seconds by phase, and the table."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from dysat.cli import bench
from dysat.experiments.scale import ACROSS, COMMUNITY, SNAPSHOTS, ScaleCase, _measure, made_graph

Cli = Callable[..., tuple[int, str, str]]


def test_a_made_up_log_has_communities_and_a_heavy_tail() -> None:
    graph = made_graph(1_000, 26_000)
    assert len(graph) == SNAPSHOTS and graph.num_nodes > 900
    links = [snapshot.links() for snapshot in graph]
    events = sum(float(weights.sum()) for _, _, weights in links)
    assert 0.95 * 26_000 < events < 26_000  # self-loops are left out
    total = graph.aggregate()
    degrees = np.sort(np.bincount(total.entries()[0].numpy(), total.entries()[2].numpy(), graph.num_nodes))[::-1]
    assert degrees[:50].sum() > 0.25 * degrees.sum() and degrees[0] > 20 * np.median(degrees)
    assert 0 < ACROSS < 0.5 and COMMUNITY < 1_000
    again, other = made_graph(1_000, 26_000), made_graph(1_000, 26_000, seed=1)
    assert again.fingerprint == graph.fingerprint != other.fingerprint


@pytest.mark.parametrize("embeddings", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_phases_add_up(embeddings: bool) -> None:
    found = _measure(ScaleCase(events=2_000, nodes=100, device="cpu", embeddings=embeddings, epochs=3))
    assert (found.events, found.embeddings, found.device) == (2_000, embeddings, "cpu")
    assert found.nodes <= 100 and 0 < found.links < 2_000
    assert sum(found.phases.values()) == pytest.approx(found.seconds)
    assert all(seconds >= 0 for seconds in found.phases.values()) and found.phases["pair score"] > 0
    assert (found.phases["epochs"] > 0) == (found.phases["inputs"] > 0) == embeddings
    assert found.microseconds_per_event == pytest.approx(found.seconds * 500)
    assert found.peak_gib > 0.05


def test_too_small_a_largest_log_is_refused(cli: Cli) -> None:
    assert cli("bench", "--scale", "--largest", 5) == (
        2,
        "",
        "dysat: --largest 5: the smallest log has 107,000 events\n",
    )


@pytest.mark.slow
def test_table_and_json(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SIZES", {300: 40, 600: 60, 10**9: 1})
    code, out, _ = cli("bench", "--scale", "--device", "cpu")
    assert code == 0 and out.count("forecast only") == out.count("default") == 2 and "µs/event" in out
    code, out, _ = cli("bench", "--scale", "--largest", 300, "--json")
    facts = json.loads(out)
    assert code == 0 and [row["embeddings"] for row in facts["timings"]] == [False, True]
