"""Results are keyed by declared versions; the output of every method is compared with stored values.

If a test here fails because a method's output changed on purpose, raise `version` of the method (or `MEASUREMENT`) and
store the new values:

    PYTHONPATH=tests/support python tests/experiments/evaluate/test_versions.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from event_times import with_times

import dysat
from dysat.experiments.evaluate import versions
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.versions import content_key, method_version
from dysat.models import MODELS

STORED = Path(__file__).resolve().parents[2] / "fixtures" / "outputs.json"
SMALL: dict[str, Any] = {
    "structural_heads": (2,),
    "structural_features": (8,),
    "temporal_heads": (2,),
    "temporal_features": (8,),
    "walks_per_node": 2,
    "walk_length": 5,
    "epochs": 2,
    "dimensions": 8,
    "device": "cpu",
}
PRESETS = {"dysat": ("default", "text", "program"), "incsat": ("program", "text")}
TIMES = "times"  # the default on a graph with times inside windows
CASES = [*((method, preset) for method in MODELS for preset in PRESETS.get(method, (None,))), ("dysat", TIMES)]
SHOWN = 12  # scores and coordinates that are stored


def communities() -> dysat.DynamicGraph:
    """Thirty nodes in two communities over eight snapshots; nodes arrive until the fourth."""
    rng = np.random.default_rng(0)
    u, v = np.triu_indices(30, 1)
    rows: list[tuple[int, int, int]] = []
    for step in range(8):
        linked = rng.random(len(u)) < np.where((u + v) % 2, 1 / 30, 1 / 3)
        linked &= v < 18 + 4 * min(step, 3)
        rows += [(int(a), int(b), step) for a, b in zip(u[linked], v[linked], strict=True)]
    src, dst, time = zip(*rows, strict=True)
    return dysat.build_snapshots(dysat.read_events((src, dst, time), time_unit="step"), every=1)


def output(method: str, preset: str | None) -> dict[str, Any]:
    """Return a small part of the output of a method: scores of pairs and norms of embeddings."""
    kind, graph = MODELS[method], communities()
    if preset == TIMES:
        graph, preset = with_times(graph), "default"
    names = {option.name for option in kind.options()}
    given = {name: value for name, value in SMALL.items() if name in names}
    model = (kind.with_options(given) if preset is None else kind.from_preset(preset, **given)).fit(graph)
    pairs = torch.combinations(torch.arange(graph.num_nodes))[:: 435 // SHOWN][:SHOWN]
    scores = model._chances(model.pair_scores(pairs))  # what an evaluation ranks by
    found = {"version": model.version, "scores": scores.tolist()}
    if hasattr(model, "embed"):
        norms = model.embed().double().norm(dim=1)  # signs of the axes are arbitrary
        found["norms"] = norms[:SHOWN].tolist()
    return found


def measurement() -> dict[str, Any]:
    """Return the results of two heuristics for all protocols, negatives and metrics."""
    means = {}
    for protocol in ("single-step", "new-links", "multi-step", "new-nodes"):
        ends = {"new_ends": "one"} if protocol == "new-nodes" else {}
        hard = ("uniform", "historical", "degree-matched") if protocol == "single-step" else ("uniform",)
        found = dysat.evaluate(
            "edge-memory", communities(), opponents=["svd"], protocol=protocol, negatives=hard, repeats=2, **ends
        )
        means[protocol] = [
            [model.name, negatives, probe, figures.macro_auc, figures.micro_auc, figures.macro_average_precision]
            for model, negatives, probe, figures in found.rows(found.figures)
        ]
    return {"version": versions.MEASUREMENT, "means": means}


def close(found: Any, stored: Any) -> bool:
    """Return whether values agree up to rounding, which differs between processors."""
    if isinstance(stored, dict):
        return found.keys() == stored.keys() and all(close(found[key], stored[key]) for key in stored)
    if isinstance(stored, list):
        return len(found) == len(stored) and all(map(close, found, stored))
    if isinstance(stored, float):
        return found == pytest.approx(stored, rel=2e-3, abs=2e-3)
    return bool(found == stored)


@pytest.mark.parametrize(("method", "preset"), CASES)
def test_output_matches_the_declared_version(method: str, preset: str | None) -> None:
    stored = json.loads(STORED.read_text())[f"{method}:{preset}"]
    assert close(output(method, preset), stored), f"the output of {method} changed: raise its version (see above)"


def test_measurement_matches_the_declared_version() -> None:
    assert close(measurement(), json.loads(STORED.read_text())["measurement"]), "raise MEASUREMENT (see above)"


def test_version_names_method_and_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODELS["svd"], "version", 7)
    assert method_version(Contender("svd")) == f"v7.{versions.MEASUREMENT}"
    neither = Contender("dysat", options={"pair_score": False, "agreement": 0.0})
    plain = Contender("dysat", options={"pair_score": False, "agreement": 0.0, "spectrum": 0})
    assert method_version(Contender("dysat", "text")) == method_version(plain) != method_version(neither)
    assert method_version(Contender("dysat", "text")) != method_version(Contender("dysat"))


def graph(last: int = 3) -> dysat.DynamicGraph:
    events = dysat.read_events(([0, 1, 2, 0], [1, 2, 0, last], [0, 0, 1, 1]), time_unit="step")
    return dysat.build_snapshots(events, every=1)


def test_key_depends_on_graph_options_request_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, bank, asked = graph(), Contender("edgebank"), Request()
    key = content_key(whole, bank, asked)
    assert key == content_key(graph(), Contender("edgebank"), Request())
    others = [
        content_key(graph(4), bank, asked),
        content_key(whole[:1], bank, asked),
        content_key(whole, Contender("edgebank", options={"window": 2}), asked),
        content_key(whole, Contender("last-snapshot"), asked),
        *(
            content_key(whole, bank, Request(**given))
            for given in (
                {"seed": 1}, {"self_loops": "keep"}, {"protocol": "new-links"}, {"only": (1,)}, {"past_probe": False},
                {"new_ends": "one"}, {"repeats": 3}, {"first": 1}, {"negatives": ("historical",)},
            )
        ),
    ]  # fmt: skip
    monkeypatch.setattr(MODELS["edgebank"], "version", 2)
    others.append(content_key(whole, bank, asked))
    monkeypatch.setattr(versions, "MEASUREMENT", 2)
    others.append(content_key(whole, bank, asked))
    assert len({key, *others}) == 1 + len(others)


def test_key_depends_on_times_only_for_models_that_use_them() -> None:
    timed, plain, asked = with_times(graph()), graph(), Request()
    assert timed.without_times().equals(plain) and not timed.equals(plain)
    for contender in (
        Contender("edgebank"),
        Contender("pair-boosting"),
        Contender("dysat", "text"),
        Contender("incsat"),
    ):
        assert content_key(timed, contender, asked) == content_key(plain, contender, asked)
    for options in ({}, {"embeddings": False}, {"pair_score": False}):  # the embeddings learn from the pair score
        contender = Contender("dysat", options=options)
        assert content_key(timed, contender, asked) != content_key(plain, contender, asked)


def test_key_does_not_depend_on_device_or_presets() -> None:
    whole, asked = graph(), Request()
    plain = content_key(whole, Contender("gcn-ae", "sankar2019_uci"), asked)
    assert plain == content_key(whole, Contender("gcn-ae", "sankar2019_uci", {"device": "cpu"}), asked)
    said = Contender("gcn-ae", options=dict(Contender("gcn-ae", "sankar2019_uci").build().get_params()))
    assert plain == content_key(whole, said, asked)


if __name__ == "__main__":
    before = json.loads(STORED.read_text())
    after = {f"{method}:{preset}": output(method, preset) for method, preset in CASES} | {"measurement": measurement()}
    kept = {name: before[name] if close(now, before.get(name)) else now for name, now in after.items()}
    STORED.write_text(json.dumps(kept, indent=1) + "\n")
