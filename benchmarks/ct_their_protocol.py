"""DyGLib's protocol: every event of the last 15 % against a random other destination, asked for at its own time.

Events are divided 70/15/15 by time. AP and AUC are means over batches of 200 test events, each with as many negatives,
which are drawn as DyGLib draws them (seed 2). Differences from DyGLib: its clone has no data, so UCI and Enron are the
logs of the DySAT paper; and training leaves out no nodes, since the inductive setting is not measured. DyGLib's models
are trained here on the same events and with the same negatives.

Our score has two forms. "dysat" is the default: the log is cut into windows of equally many events, the score learns
from the windows before the test part, and an event is scored with the windows strictly before its own. "dysat, moments"
learns from events and random destinations instead, as DyGLib's models do, and has features of the moment in addition:
what happened up to the event itself (`Moments`). The size of windows is chosen on the validation part.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ct_events
import numpy as np
import torch
from ct_events import Ids, Times
from ct_plan import BATCH
from numpy.typing import NDArray

import dysat
from dysat.data.snapshots import cut_snapshots
from dysat.evaluation.probe import auc, average_precision
from dysat.features.pair_history import chunks, pair_history, sorted_ends
from dysat.models.forecast.examples import Examples
from dysat.models.forecast.mixture import rule
from dysat.models.forecast.pair_score import PairScore
from dysat.models.forecast.parts import learn_parts

Reals = NDArray[np.float64]
Entry = dict[str, Any]
OURS, MOMENTS = "dysat", "dysat, moments"
SIZES = (200, 500, 1000)  # events of a window
LEARNED = 10_000  # latest events that the score with moments learns from
NEVER = 1e11  # seconds since an event that never happened
VALIDATION_SEED, TEST_SEED = 0, 2  # of DyGLib's negatives


@dataclass(frozen=True)
class EventLog:
    """All events of a log in order of time, and the first events of the validation and the test part.

    Shapes: u, v [M] node ids, time [M] in seconds
    """

    name: str
    u: Ids
    v: Ids
    time: Times
    validation: int
    test: int

    @property
    def num_nodes(self) -> int:
        return int(max(self.u.max(), self.v.max())) + 1


def event_log(name: str, u: Ids, v: Ids, time: Times) -> EventLog:
    """Divide events 70/15/15 by the quantiles of their times, as DyGLib."""
    first, second = (int(np.searchsorted(time, np.quantile(time, q), side="right")) for q in (0.7, 0.85))
    return EventLog(name, u, v, time, first, second)


def load(folder: Path) -> EventLog:
    """Read all events of a prepared log, also those outside its windows."""
    with np.load(folder / "all_events.npz", allow_pickle=False) as arrays:
        return event_log(folder.name, arrays["u"], arrays["v"], arrays["time"])


def random_negatives(log: EventLog, rows: Ids, seed: int) -> tuple[Ids, Ids]:
    """The source of each event and a random destination, in the order in which DyGLib draws them.  # [B], [B]"""
    sources, destinations = np.unique(log.u), np.unique(log.v)
    rng = np.random.RandomState(seed)
    drawn = []
    for at in range(0, len(rows), BATCH):
        size = len(rows[at : at + BATCH])
        rng.randint(0, len(sources), size)  # DyGLib draws a source too, and keeps the one of the event
        drawn.append(destinations[rng.randint(0, len(destinations), size)])
    return log.u[rows], np.concatenate(drawn)


def harder_negatives(log: EventLog, rows: Ids, seed: int, strategy: str) -> tuple[Ids, Ids]:
    """Historical or inductive negatives, by DyGLib's own sampler.  # [B], [B]"""
    from utils.utils import NegativeEdgeSampler

    last = float(log.time[log.validation - 1])
    sampler = NegativeEdgeSampler(log.u, log.v, log.time, last, strategy, seed)
    found = []
    for at in range(0, len(rows), BATCH):
        part = rows[at : at + BATCH]
        times = log.time[part[0]], log.time[part[-1]]
        found.append(sampler.sample(len(part), log.u[part], log.v[part], *times))
    sources, destinations = (np.concatenate(part) for part in zip(*found, strict=True))
    return sources, destinations


def batch_means(positive: Reals, negative: Reals) -> dict[str, float]:
    """Means of AP and AUC over batches of events.  # [B], [B]"""
    found = []
    for at in range(0, len(positive), BATCH):
        parts = [torch.from_numpy(part[at : at + BATCH]) for part in (positive, negative)]
        scores = torch.cat(parts)
        labels = torch.arange(len(scores)) < len(parts[0])
        found.append((average_precision(scores, labels), auc(scores, labels)))
    means = np.mean(found, axis=0)
    return {"average_precision": float(means[0]), "auc": float(means[1])}


class Windows:
    """A log cut into windows of equally many events; equal times stay together, and so do the three parts.

    All nodes are known from the start, because DyGLib's negatives include nodes before their first event.
    """

    def __init__(self, log: EventLog, size: int) -> None:
        starts = [k for a, b in _parts(log) for k in (a, *range(a + size, b - size // 2, size))]
        self.cuts = np.unique([*np.searchsorted(log.time, log.time[starts], side="left"), len(log.time)])
        self.log, self.of = log, np.searchsorted(self.cuts, np.arange(len(log.time)), side="right") - 1
        micros = np.round(log.time * 1e6).astype(np.int64)
        edges = [*micros[self.cuts[:-1]].tolist(), int(micros[-1]) + 1]
        ends = [end.astype(np.int32) for end in (log.u, log.v)]
        snapshots = cut_snapshots(
            *ends, None, None, edges, self.cuts, known=log.num_nodes, self_loops=False, directed=True
        )
        self.graph = dysat.DynamicGraph(nodes=np.arange(log.num_nodes), snapshots=snapshots)

    def columns(self, window: int, pairs: Ids) -> tuple[Reals, Reals]:
        """Features of pairs before a window, and their ranks.  # [B, 2] → [B, F], [B, F]"""
        history = pair_history(self.graph.snapshots[:window], True)
        history.prepare()
        found = np.concatenate(
            [history.features(part)[0] for part in chunks(sorted_ends(pairs, self.log.num_nodes, directed=True))]
        )
        return found, history.ranks(found)


def _parts(log: EventLog) -> list[tuple[int, int]]:
    return [(0, log.validation), (log.validation, log.test), (log.test, len(log.time))]


class Moments:
    """Features of a pair at a moment: earlier events in either direction, of both nodes, and since the window began."""

    def __init__(self, log: EventLog) -> None:
        self.log, self.base, n = log, len(log.time) + 1, log.num_nodes
        events = np.arange(len(log.time))
        keys = {"pair": log.u * n + log.v, "source": log.u, "destination": log.v}
        self.sorted = {name: np.sort(key * self.base + events) for name, key in keys.items()}

    def _find(self, name: str, keys: Ids, limit: Ids) -> tuple[Ids, Ids]:
        """The number of earlier events with a key, and the last of them (−1 without any).  # [B], [B]"""
        ordered = self.sorted[name]
        stop = np.searchsorted(ordered, keys * self.base + limit)
        count = stop - np.searchsorted(ordered, keys * self.base)
        return count, np.where(count > 0, ordered[np.maximum(stop, 1) - 1] % self.base, -1)

    def __call__(self, u: Ids, v: Ids, times: Times, begins: Ids) -> Reals:
        """Features of pairs at times, in windows that begin with given events.  # [B], … → [B, K]"""
        log, n = self.log, self.log.num_nodes
        limit = np.searchsorted(log.time, times, side="left")
        asked = [("pair", u * n + v), ("pair", v * n + u)]
        asked += [(role, node) for node in (u, v) for role in ("source", "destination")]
        columns: list[NDArray[Any]] = []
        for name, keys in asked:
            count, last = self._find(name, keys, limit)
            age = np.where(last >= 0, times - log.time[last], NEVER)
            columns += [np.log1p(age), np.log1p(np.where(last >= 0, limit - last, len(log.time))), np.log1p(count)]
            columns.append(np.log1p(count - self._find(name, keys, begins)[0]))  # since the window began
        for role, other, partners in (("source", v, log.v), ("destination", v, log.u)):
            _, last = self._find(role, u, limit)
            columns.append((last >= 0) & (partners[last] == other))  # v is the last partner of u
        return np.column_stack(columns).astype(np.float64)


def moment_features(windows: Windows, moments: Moments, rows: Ids, u: Ids, v: Ids) -> tuple[Reals, Reals]:
    """Features of pairs at the times of events of one window, and ranks of those before the window."""
    window = int(windows.of[rows[0]])
    columns, ranks = windows.columns(window, np.stack([u, v], axis=1))
    begins = np.full(len(rows), windows.cuts[window])
    now = moments(u, v, windows.log.time[rows], begins)
    return np.column_stack([columns, np.ones(len(rows)), now]), ranks  # the kind of nodes is the same for all


def learn_moments(windows: Windows, moments: Moments, stop: int, seed: int) -> PairScore:
    """Learn from the latest events before `stop`, each against three random destinations."""
    log, rng = windows.log, np.random.default_rng(seed)
    known = np.unique(log.v[:stop])
    past = []
    for window in np.unique(windows.of[max(0, stop - LEARNED) : stop]):
        if window < 2:
            continue
        rows = np.arange(windows.cuts[window], windows.cuts[window + 1])
        many = np.tile(rows, 4)
        v = np.concatenate([log.v[rows], rng.choice(known, 3 * len(rows))])
        features, ranks = moment_features(windows, moments, many, log.u[many], v)
        numbers = {"num_links": len(rows), "num_uniform": len(many), "num_added": 0, "num_dropped": 0}
        past.append(Examples(features, ranks, np.zeros(len(many), dtype=bool), **numbers, num_unlinked=len(many)))
    # Pairs linked before need no model of their own: random negatives are rarely among them.
    parts = learn_parts(past, seed)
    return PairScore.mixed(parts, rule(parts.num_links)[[0, 0]], True)


def our_scores(windows: Windows, score: PairScore, rows: Ids, u: Ids, v: Ids, moments: Moments | None) -> Reals:
    """The score of a pair for each event, window by window.  # [B], [B], [B] → [B]"""
    found = np.zeros(len(rows))
    for window in np.unique(windows.of[rows]):
        at = np.flatnonzero(windows.of[rows] == window)
        if moments is None:
            pairs = torch.from_numpy(np.stack([u[at], v[at]], axis=1))
            found[at] = score.log_odds(windows.graph, int(window) - 1, pairs).numpy()
        else:
            features, ranks = moment_features(windows, moments, rows[at], u[at], v[at])
            found[at] = score.raw(features, ranks, np.zeros(len(at), dtype=bool))
    return found


def evaluate(
    windows: Windows, start: int, stop: int, moments: Moments | None, negatives: dict[str, tuple[Ids, Ids]], seed: int
) -> dict[str, dict[str, float]]:
    """Learn from the events before `start`; figures of the events up to `stop` for each kind of negatives."""
    rows = np.arange(start, stop)
    if moments is None:
        score = PairScore.learn(windows.graph[: int(windows.of[start])], seed=seed)
    else:
        score = learn_moments(windows, moments, start, seed)
    if score is None:
        raise SystemExit("there are no transitions to learn from")
    every = [(windows.log.u[rows], windows.log.v[rows]), *negatives.values()]
    u, v = (np.concatenate(part) for part in zip(*every, strict=True))
    positive, *others = np.split(our_scores(windows, score, np.tile(rows, len(every)), u, v, moments), len(every))
    return {name: batch_means(positive, negative) for name, negative in zip(negatives, others, strict=True)}


def measure(log: EventLog, strategies: Sequence[str], with_moments: bool, seed: int = 0) -> list[Entry]:
    """Choose the size of windows on the validation part, then evaluate our score on the test part."""
    begin = time.time()
    moments = Moments(log) if with_moments else None
    rows = np.arange(log.validation, log.test)
    drawn = {"random": random_negatives(log, rows, VALIDATION_SEED)}
    cut = {size: Windows(log, size) for size in SIZES if 4 * size <= log.validation}  # fewer windows teach nothing
    by_size = {
        size: evaluate(cut[size], log.validation, log.test, moments, drawn, seed)["random"]["average_precision"]
        for size in cut
    }
    size = max(by_size, key=lambda size: by_size[size])
    chosen = time.time()
    found = evaluate(cut[size], log.test, len(log.time), moments, drawn_negatives(log, strategies), seed)
    about = {"window_size": size, "validation_average_precision": by_size, "seconds": round(time.time() - chosen, 2)}
    about |= {"seconds_of_choice": round(chosen - begin, 2)}
    return entries(log, MOMENTS if with_moments else OURS, seed, found, about)


def measure_edge_bank(log: EventLog, strategies: Sequence[str]) -> list[Entry]:
    """EdgeBank, whose memory has all events before a batch, with DyGLib's settings for each kind of negatives."""
    import ct_dyglib

    begin, found = time.time(), {}
    whole = as_one_window(log)
    for name, (u, v) in drawn_negatives(log, strategies).items():
        scores = []
        for at in range(log.test, len(log.time), BATCH):
            rows = np.arange(at, min(at + BATCH, len(log.time)))
            score, part = ct_dyglib.edge_bank(whole, at, name), slice(at - log.test, at - log.test + BATCH)
            scores.append((score(log.u[rows], log.v[rows]).numpy(), score(u[part], v[part]).numpy()))
        positive, negative = (np.concatenate(part) for part in zip(*scores, strict=True))
        found[name] = batch_means(positive, negative)
    return entries(log, "EdgeBank", 0, found, {"seconds": round(time.time() - begin, 2)})


def measure_opponent(
    log: EventLog, model: str, strategies: Sequence[str], seed: int, device: str, limits: Any
) -> list[Entry]:
    """Train a model of DyGLib on the first two parts, and evaluate it on the test part."""
    import ct_dyglib

    opponent = ct_dyglib.Opponent(model, as_one_window(log), "event", seed, device)
    done = opponent.fit(1, limits)
    rows = np.arange(log.test, len(log.time))
    found = {
        name: batch_means(*(part.numpy() for part in opponent.at_events(rows, *pairs)))
        for name, pairs in drawn_negatives(log, strategies).items()
    }
    return entries(log, model, seed, found, vars(done))


def as_one_window(log: EventLog) -> ct_events.Log:
    """The log with the test part as its second window."""
    edges = np.array([0.0, log.time[log.test], log.time[-1] + 1])
    micros = np.round(edges * 1e6).astype(np.int64).tolist()
    ends, cuts = [end.astype(np.int32) for end in (log.u, log.v)], np.array([0, log.test, len(log.time)])
    snapshots = cut_snapshots(*ends, None, None, micros, cuts, known=log.num_nodes, self_loops=True, directed=True)
    graph = dysat.DynamicGraph(nodes=np.arange(log.num_nodes), snapshots=snapshots)
    part = 1 - log.validation / log.test
    return ct_events.Log(log.name, graph, log.u, log.v, log.time, edges, validation=part)


def drawn_negatives(log: EventLog, strategies: Sequence[str]) -> dict[str, tuple[Ids, Ids]]:
    """The negatives of the test part, by strategy."""
    rows = np.arange(log.test, len(log.time))
    return {
        name: random_negatives(log, rows, TEST_SEED)
        if name == "random"
        else harder_negatives(log, rows, TEST_SEED, name)
        for name in strategies
    }


def entries(log: EventLog, model: str, seed: int, found: dict[str, Any], about: Entry) -> list[Entry]:
    """One entry for each kind of negatives."""
    key = {"log": log.name, "window": "test", "model": model, "seed": seed}
    sizes = {"events": len(log.time), "test_events": len(log.time) - log.test, "nodes": log.num_nodes}
    return [{**key, "condition": f"{name} negatives", **figures, **sizes, **about} for name, figures in found.items()]
