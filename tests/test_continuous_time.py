"""The comparison with continuous-time models: events, what is learned before a window, jobs, results, the table."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dysat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
ct_events = pytest.importorskip("ct_events")
ct_plan = pytest.importorskip("ct_plan")
ct_fast = pytest.importorskip("ct_fast")
ct_dyglib = pytest.importorskip("ct_dyglib")
theirs = pytest.importorskip("ct_their_protocol")
continuous_time = pytest.importorskip("continuous_time")

DAY = 86_400
DYGLIB = Path(os.environ.get("DYSAT_DYGLIB", "nowhere"))
needs_dyglib = pytest.mark.skipif(not DYGLIB.exists(), reason="DYSAT_DYGLIB is not a clone of DyGLib")


def events(number: int = 240, seed: int = 0) -> dysat.Events:
    """Two groups of twelve nodes; links join both groups, and most of them recur."""
    rng = np.random.default_rng(seed)
    u = rng.integers(0, 12, number)
    v = 12 + (u + rng.integers(0, 3, number)) % 12
    time = np.sort(rng.integers(0, 8 * DAY, number))
    return dysat.read_events((u.tolist(), v.tolist(), time.tolist()), time_unit="s")


@pytest.fixture(scope="module")
def log() -> Any:
    return ct_events.log_of("tiny", *ct_events.built(lambda: dysat.build_snapshots(events(), every="1d")))


def options(**changed: Any) -> argparse.Namespace:
    models = ["dysat", "EdgeBank", "DyGFormer", "TGN"]
    given = {"models": models, "condition": ["event", "window"], "seeds": [0, 1], "continue_training": True}
    return argparse.Namespace(**given | changed)


def test_events_are_those_of_the_windows(log: Any) -> None:
    for t, snapshot in enumerate(log.graph):
        inside = log.window == t
        links = np.sort(np.stack([log.u[inside], log.v[inside]], axis=1), axis=1)
        u, v, weight = snapshot.pairs()
        found, counts = np.unique(links, axis=0, return_counts=True)
        assert found.tolist() == torch.stack([u, v], 1).tolist()
        assert counts.tolist() == weight.tolist()
    assert log.time[0] == 0
    assert (np.diff(log.time) >= 0).all()


def test_events_outside_the_windows_are_left_out() -> None:
    cut = {"every": "1d", "start": "1970-01-03", "stop": "1970-01-06"}
    log = ct_events.log_of("part", *ct_events.built(lambda: dysat.build_snapshots(events(), **cut)))
    assert len(log.time) == round(sum(snapshot.total_weight for snapshot in log.graph))
    assert log.window.min() == 0
    assert log.window.max() == 2


def test_a_folder_keeps_a_log(log: Any, tmp_path: Path) -> None:
    ct_events.save(log, tmp_path / "tiny")
    again = ct_events.load(tmp_path / "tiny")
    assert again.graph.fingerprint == log.graph.fingerprint
    for name in ("u", "v", "time", "edges"):
        np.testing.assert_array_equal(getattr(again, name), getattr(log, name))


@pytest.mark.parametrize("condition", ["event", "window"])
@pytest.mark.parametrize("memory", [False, True])
def test_nothing_after_the_start_of_a_window_is_learned(log: Any, condition: str, memory: bool) -> None:
    for window in (3, 7):
        asked = ct_plan.questions(log, window, condition)
        steps = ct_plan.plan(log, window, condition, asked.known, memory)
        rows = np.concatenate([step.rows for step in steps])
        assert log.time[rows].max() < log.edges[window]
        assert len(asked.time) == log.number_before(window)
        assert (asked.time < log.edges[window]).all()
        train, validate = (
            np.concatenate([step.rows for step in steps if step.role == role]) for role in ("train", "validate")
        )
        assert log.time[train].max() < log.time[validate].min()
        if memory:
            remembered = np.concatenate([step.rows for step in steps if step.remember])
            assert remembered.tolist() == list(range(log.number_before(window)))


def test_windows_are_asked_for_at_their_start_and_before_they_are_remembered(log: Any) -> None:
    asked = ct_plan.questions(log, 7, "window")
    np.testing.assert_array_equal(asked.time, log.edges[log.window[: len(asked.time)]])
    first = np.full(log.graph.num_nodes, np.inf)
    for row in range(len(log.time)):
        for node in (log.u[row], log.v[row]):
            first[node] = min(first[node], log.time[row])
    remembered = -1
    for step in ct_plan.plan(log, 7, "window", asked.known, memory=True):
        if step.role is not None:
            assert log.window[step.rows].min() > remembered
            assert (first[log.u[step.rows]] < asked.time[step.rows]).all()
            assert (first[asked.negatives(step.rows, np.random.default_rng(0))] < asked.time[step.rows]).all()
        if step.remember:
            remembered = int(log.window[step.rows].max())


def past(log: Any, **options: Any) -> Any:
    return ct_plan.Neighbours(log.graph.num_nodes, log.u, log.v, log.time, **options)


def history_of(log: Any, neighbours: Any) -> Any:
    history = ct_fast.History(len(log.u) + 7, neighbours.total is not None, "cpu")
    history.fill(neighbours)
    return history


def some_pairs(log: Any) -> tuple[Any, Any, Any]:
    """Sources, destinations and times; the first nodes have no past, others many events."""
    rows = np.arange(0, len(log.u), 5)
    return log.u[rows], np.roll(log.v[rows], 3), log.time[rows]


def some_ends(log: Any, neighbours: Any) -> tuple[Any, Any]:
    return ct_fast.unpack(torch.from_numpy(ct_fast.pack(neighbours, *some_pairs(log))))


def earlier(log: Any, node: int, at: float) -> list[tuple[int, float]]:
    """The neighbours of a node before a time and the times since."""
    ends = zip(log.u.tolist(), log.v.tolist(), log.time.tolist(), strict=True)
    return [(v if u == node else u, at - time) for u, v, time in ends if node in (u, v) and time < at]


def test_neighbours_are_earlier_events(log: Any) -> None:
    neighbours = past(log)
    history = history_of(log, neighbours)
    u, v, times = some_pairs(log)
    for nodes, ends in zip((u, v), some_ends(log, neighbours), strict=True):
        last = history.recent(ends, 5)
        whole = history.sequences(ends, 9, 8)
        for row, (node, at) in enumerate(zip(nodes.tolist(), times.tolist(), strict=True)):
            found = earlier(log, node, at)
            padded = ([(-1, at)] * 5 + found)[-5:]
            sequence = [(node, 0.0), *found[-7:], *[(-1, at)] * 8][:9]
            for (ids, ages), expected in ((last, padded), (whole, sequence)):
                assert (ids[row] - 1).tolist() == [other for other, _ in expected]
                assert ages[row].tolist() == pytest.approx([age for _, age in expected])


def test_draws_are_earlier_events(log: Any) -> None:
    neighbours = past(log, strategy="time_interval_aware", scale=1e-5)
    ends = some_ends(log, neighbours)[0]
    ids, ages = history_of(log, neighbours).drawn(ends, 50)
    u, _, times = some_pairs(log)
    for row, (node, at) in enumerate(zip(u.tolist(), times.tolist(), strict=True)):
        possible = earlier(log, node, at) or [(-1, at)]
        drawn = set(zip((ids[row] - 1).tolist(), ages[row].tolist(), strict=True))
        assert drawn <= {(other, float(np.float32(age))) for other, age in possible}


def test_lengths_are_those_of_the_longest_sequence(log: Any) -> None:
    neighbours = past(log)
    u, v, times = some_pairs(log)
    first = np.array([0, 3, 20])
    found = ct_fast.lengths(ct_fast.pack(neighbours, u, v, times), first, patch=4, longest=16)
    for (a, b), size in zip(((0, 3), (3, 20), (20, len(u))), found, strict=True):
        for nodes, length in zip((u, v), size, strict=True):
            most = max(len(earlier(log, n, t)) for n, t in zip(nodes[a:b].tolist(), times[a:b].tolist(), strict=True))
            assert length == 4 * np.ceil(min(most + 1, 16) / 4)


def test_occurrences_are_counted_without_padding() -> None:
    ids, other = torch.tensor([[3, 3, 5, 0], [1, 0, 0, 0]]), torch.tensor([[3, 7, 3, 0, 0], [2, 1, 0, 0, 0]])
    assert ct_fast.times_in(ids, ids).tolist() == [[2, 2, 1, 0], [1, 0, 0, 0]]
    assert ct_fast.times_in(ids, other).tolist() == [[2, 2, 0, 0], [1, 0, 0, 0]]


def test_walks_are_encoded_like_an_lstm() -> None:
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(6, 3, batch_first=True, bidirectional=True)
    first, second = torch.rand(2, 1, 4), torch.rand(2, 5, 4)
    long = torch.tensor([True, False])[:, None, None].expand(2, 5, 1)
    columns = torch.tensor([0, 1, 4, 5])
    found = ct_fast.last_outputs(lstm, first, second, long, columns)
    for row, steps in ((0, 2), (1, 1)):
        walk = torch.zeros(5, 2, 6)
        walk[:, 0, columns], walk[:, 1, columns] = first[row], second[row]
        torch.testing.assert_close(found[row], lstm(walk[:, :steps])[0][:, -1])


def test_pairs_without_direction_are_scored_in_both_orders() -> None:
    pairs = torch.tensor([[0, 1], [2, 5]])

    def score(u: Any, v: Any) -> torch.Tensor:
        return torch.from_numpy(10.0 * u + v)

    assert ct_dyglib.both_orders(score, directed=False)(pairs).tolist() == [5.5, 38.5]
    assert ct_dyglib.both_orders(score, directed=True)(pairs).tolist() == [1.0, 25.0]


def test_jobs_come_in_order_of_information() -> None:
    windows = {"a": [3, 4, 5, 6, 7], "b": [2, 3]}
    found = continuous_time.jobs(windows, options())
    order = [(job.earlier, job.seed, continuous_time.MODELS.index(job.model)) for job in found]
    assert order == sorted(order)
    chains = {(job.log, job.windows) for job in found if job.model == "DyGFormer"}
    assert chains == {("a", (4, 5, 6, 7)), ("a", (3,)), ("b", (2, 3))}
    assert {job.condition for job in found if job.model in ("dysat", "EdgeBank")} == {"none"}
    assert {job.seed for job in found if job.model == "EdgeBank"} == {0}
    assert len({key for job in found for key in job.results()}) == sum(len(job.windows) for job in found)
    apart = continuous_time.jobs(windows, options(continue_training=False))
    assert {len(job.windows) for job in apart} == {1}


def entry(window: int, model: str = "DyGFormer", **facts: Any) -> dict[str, Any]:
    key = {"log": "a", "window": window, "model": model, "condition": "event" if model != "dysat" else "none"}
    return {**key, "seed": 0, "auc": 0.5, "mrr": 0.25, "seconds": 2.0, **facts}


def test_finished_work_is_skipped(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    for found in (entry(4, ended="patience"), entry(5, ended="budget"), entry(5, ended="budget", auc=0.75)):
        continuous_time.add(out, found)
    entries = continuous_time.read(out)
    assert [e["auc"] for e in entries] == [0.5, 0.75]
    (job,) = continuous_time.unfinished([continuous_time.Job("a", "DyGFormer", "event", 0, (4, 5, 6))], entries)
    assert job.windows == (5, 6)
    assert not continuous_time.unfinished([continuous_time.Job("a", "DyGFormer", "event", 0, (4,))], entries)


def test_the_table_has_our_score_on_the_same_windows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.json"
    for found in (
        entry(4, ended="patience"),
        entry(5, ended="seconds", auc=0.7),
        entry(4, "dysat", auc=0.8, seconds=1.0),
        entry(5, "dysat", auc=0.9, seconds=1.0),
        entry(6, "dysat", auc=0.1, seconds=1.0),
    ):
        continuous_time.add(out, found)
    continuous_time.show(out)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| a ")]
    assert rows[0].startswith("| a | dysat | none | 3 × 1 | 60.0 | – | 25.0 |")
    assert rows[1].startswith("| a | DyGFormer | event | 2 × 1 | 60.0 (85.0) | – | 25.0 (25.0) |")
    assert rows[1].endswith("| 2.0 | 1 patience, 1 seconds |")


@pytest.fixture(scope="module")
def event_log(log: Any) -> Any:
    return theirs.event_log("tiny", log.u, log.v, np.floor(log.time / 600) * 600)  # some times are equal


def test_parts_are_divided_by_time(event_log: Any) -> None:
    time, first, second = event_log.time, event_log.validation, event_log.test
    assert time[first - 1] < time[first]
    assert time[second - 1] < time[second]
    assert 0.6 < first / len(time) < 0.8 < second / len(time) < 0.9


def test_windows_have_equally_many_events(event_log: Any) -> None:
    windows = theirs.Windows(event_log, 20)
    assert {0, event_log.validation, event_log.test, len(event_log.time)} <= set(windows.cuts.tolist())
    before, after = event_log.time[windows.cuts[1:-1] - 1], event_log.time[windows.cuts[1:-1]]
    assert (before < after).all()
    assert np.diff(windows.cuts).max() <= 40
    events = np.diff(windows.cuts)
    assert [round(snapshot.total_weight) for snapshot in windows.graph] == events.tolist()
    assert set(windows.graph.known) == {event_log.num_nodes}


def test_moments_know_nothing_at_or_after_an_event(event_log: Any) -> None:
    rows = np.arange(50, 200)
    u, v, times = event_log.u[rows], np.roll(event_log.v[rows], 1), event_log.time[rows]
    begins = np.full(len(rows), 40)
    found = theirs.Moments(event_log)(u, v, times, begins)
    for row in (0, 57, 149):
        past = event_log.time < times[row]
        again = past & (event_log.u == u[row]) & (event_log.v == v[row])
        age = times[row] - event_log.time[again].max() if again.any() else theirs.NEVER
        assert found[row, 0] == pytest.approx(np.log1p(age))
        assert found[row, 2] == pytest.approx(np.log1p(again.sum()))
        assert found[row, 3] == pytest.approx(np.log1p(again[40:].sum()))
    later = theirs.EventLog("other", event_log.u.copy(), event_log.v.copy(), event_log.time, 0, 0)
    changed = event_log.time >= times[-1]
    later.u[changed], later.v[changed] = later.v[changed], later.u[changed]
    np.testing.assert_array_equal(theirs.Moments(later)(u, v, times, begins), found)


def test_figures_are_means_over_batches() -> None:
    positive = np.concatenate([np.ones(200), np.zeros(100)])
    found = theirs.batch_means(positive, np.concatenate([np.zeros(200), np.ones(100)]))
    assert found["auc"] == pytest.approx(0.5)


def test_our_score_in_their_protocol(event_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theirs, "SIZES", (20,))
    for moments in (False, True):
        (found,) = theirs.measure(event_log, ["random"], moments)
        assert found["window_size"] == 20
        assert found["auc"] > 0.6  # links join the same pairs again


@needs_dyglib
def test_random_negatives_are_those_of_dyglib(event_log: Any) -> None:
    ct_dyglib.use_dyglib(DYGLIB)
    from utils.utils import NegativeEdgeSampler

    sampler = NegativeEdgeSampler(event_log.u, event_log.v, seed=2)
    mine = theirs.random_negatives(event_log, np.arange(240), 2)[1]
    drawn = [sampler.sample(200)[1], sampler.sample(40)[1]]
    assert mine.tolist() == np.concatenate(drawn).tolist()


def original_sampler(log: Any, strategy: str, scale: float = 0.0) -> Any:
    from utils.DataLoader import Data
    from utils.utils import get_neighbor_sampler

    rows = np.arange(len(log.u)) + 1
    data = Data(log.u + 1, log.v + 1, log.time, rows, rows)
    return get_neighbor_sampler(data, strategy, scale, seed=0)


def opponent(log: Any, model: str, **settings: Any) -> Any:
    """A model of DyGLib with the events of a log as its past."""
    ct_dyglib.use_dyglib(DYGLIB)
    found = ct_dyglib.Opponent.__new__(ct_dyglib.Opponent)
    args = ct_dyglib.published_settings("enron", model)
    vars(args).update({"sample_neighbor_strategy": "recent", "num_neighbors": 5} | settings)
    torch.manual_seed(0)
    vars(found).update({"name": model, "log": log, "device": "cpu", "args": args})
    found.model = found._build()
    found.prepare()
    found._look_back(len(log.time))
    return found


def originals(mine: Any, *pairs: Any, **options: Any) -> torch.Tensor:
    """Scores by DyGLib's own forward pass."""
    model = mine.model[0]
    model.set_neighbor_sampler(original_sampler(mine.log, "recent"))
    model.edge_raw_features = torch.zeros(len(mine.log.u) + 1, ct_dyglib.FEATURES)
    if mine.memory is not None:
        model.embedding_module.edge_raw_features = model.edge_raw_features
    u, v, times = pairs
    return mine.model[1](*model.compute_src_dst_node_temporal_embeddings(u + 1, v + 1, times, **options)).squeeze(-1)


@needs_dyglib
@pytest.mark.parametrize(("model", "patch"), [("DyGFormer", 1), ("DyGFormer", 4), ("GraphMixer", 1), ("CAWN", 1)])
def test_scores_and_gradients_are_those_of_dyglib(log: Any, model: str, patch: int) -> None:
    mine = opponent(log, model, patch_size=patch, max_input_sequence_length=16)
    mine.model.eval()
    options = {"CAWN": {"num_neighbors": 5}, "GraphMixer": {"num_neighbors": 5, "time_gap": 3}}.get(model, {})
    expected = originals(mine, *some_pairs(log), **options)
    gradients = torch.autograd.grad(expected.square().sum(), weights := used(mine.model), allow_unused=True)
    ((packed, size),) = mine.batches([some_pairs(log)])
    found = mine.score(*ct_fast.unpack(packed), size)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    for a, b in zip(torch.autograd.grad(found.square().sum(), weights, allow_unused=True), gradients, strict=True):
        if a is not None and b is not None:
            torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)
        else:
            assert a is None or not a.any()
            assert b is None or not b.any()


def used(model: torch.nn.Module) -> list[torch.Tensor]:
    return [weight for weight in model.parameters() if weight.requires_grad]


@needs_dyglib
def test_the_memory_is_that_of_dyglib(log: Any) -> None:
    mine, theirs = opponent(log, "TGN"), opponent(log, "TGN")
    weights = [used(part.model.eval()) for part in (mine, theirs)]
    for at in range(0, len(log.u), 40):
        rows = np.arange(at, min(at + 40, len(log.u)))
        u, v, times = mine._events(rows)
        others = np.roll(v, 7)
        expected = [originals(theirs, u, others, times, edge_ids=None, edges_are_positive=False, num_neighbors=5)]
        expected.insert(0, originals(theirs, u, v, times, edge_ids=rows + 1, num_neighbors=5))
        ((packed, size),) = mine.batches([(np.tile(u, 2), np.concatenate([v, others]), np.tile(times, 2))])
        found = mine.score(*ct_fast.unpack(packed), size, remember=True)
        torch.testing.assert_close(found, torch.cat(expected), atol=1e-4, rtol=1e-4)
        gradients = [
            torch.autograd.grad(scores.square().sum(), part, allow_unused=True)
            for part, scores in zip(weights, (found, torch.cat(expected)), strict=True)
        ]
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(
                *(torch.zeros(()) if g is None or not g.any() else g for g in (a, b)), atol=1e-3, rtol=1e-3
            )
        theirs.model[0].memory_bank.detach_memory_bank()
    bank = theirs.model[0].memory_bank
    torch.testing.assert_close(mine.memory.memory, bank.node_memories.data, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(mine.memory.updated, bank.node_last_updated_times.data)


@needs_dyglib
def test_draws_have_the_probabilities_of_dyglib(log: Any) -> None:
    ct_dyglib.use_dyglib(DYGLIB)
    scale, node = 1e-5, int(log.u[-1])
    neighbours = past(log, strategy="time_interval_aware", scale=scale)
    original = original_sampler(log, "time_interval_aware", scale)
    _, _, theirs, weights = original.find_neighbors_before(node + 1, log.time[-1], return_sampled_probabilities=True)
    torch.manual_seed(0)
    packed = ct_fast.pack(neighbours, np.array([node]), np.array([node]), log.time[-1:])
    _, ages = history_of(log, neighbours).drawn(ct_fast.unpack(torch.from_numpy(packed))[0], 50_000)
    counts = np.array([(ages == float(np.float32(log.time[-1] - at))).sum() for at in theirs]) / 50_000
    np.testing.assert_allclose(counts, torch.softmax(torch.from_numpy(weights), 0).numpy(), atol=0.005)
    assert counts.sum() == pytest.approx(1)


@needs_dyglib
@pytest.mark.parametrize(("model", "condition"), [("TGN", "event"), ("TGN", "window"), ("GraphMixer", "window")])
def test_a_small_run(log: Any, tmp_path: Path, model: str, condition: str) -> None:
    ct_events.save(log, tmp_path / "tiny")
    out = tmp_path / "results.json"
    given = {"logs": tmp_path, "dyglib": DYGLIB, "device": "cpu", "out": out, "processes": 1, "windows": 2}
    args = argparse.Namespace(**given, patience=2, epochs=2, seconds=[60.0])
    job = continuous_time.Job("tiny", model, condition, 0, (6, 7))
    continuous_time.work(job, args, float("inf"))
    first, second = json.loads(out.read_text())["entries"]
    assert first["epochs"] == second["epochs"] == 2
    assert first["continued_from"] is None
    assert second["continued_from"] == 6
    assert 0 <= first["mrr"] <= 1
    assert first["events"] == log.number_before(6)
