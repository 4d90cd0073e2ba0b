"""Compare the default model with boosting on synthetic logs that were not used to choose any setting.

    python benchmarks/made_up.py --seeds 0 1 --processes 2 --out results/forecasting_made_up.json

Three worlds of 400 people and eight days: *blocks* (communities, heavy-tailed and drifting activity, repeated ties),
*tastes* (people and items that come and go out of fashion, no repeated pairs), *bursts* (pairs that meet for a while,
friends of friends, people who leave). Three of the last days are predicted; figures as in benchmarks/forecasting.py.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

DAYS, PEOPLE, CONTACTS = 8, 400, 600
TARGETS = (4, 6, 7)
Contact = tuple[str, str, int]


def blocks(rng: np.random.Generator) -> list[Contact]:
    """Half of the contacts repeat an earlier one; the others are mostly within a community, by activity."""
    community, since = rng.integers(0, 8, PEOPLE), rng.integers(0, DAYS, PEOPLE) // 2
    activity = rng.pareto(1.5, PEOPLE) + 0.1
    found: list[tuple[int, int, int]] = []
    for day in range(DAYS):
        activity *= np.exp(0.4 * rng.normal(size=PEOPLE))
        chance = np.where(since <= day, activity, 0.0)
        for _ in range(CONTACTS):
            if found and rng.random() < 0.5:
                u, v, _ = found[int(len(found) * rng.beta(4, 1))]
            else:
                u = _drawn(chance, rng)
                v = _drawn(chance * np.where(community == community[u], 1.0, 0.05) * (np.arange(PEOPLE) != u), rng)
            found.append((u, v, day))
    return [(f"p{u}", f"p{v}", day) for u, v, day in found]


def tastes(rng: np.random.Generator) -> list[Contact]:
    """People choose items by taste and by fashion, each item at most once."""
    people, things = rng.normal(size=(PEOPLE, 6)), rng.normal(size=(PEOPLE // 2, 6))
    activity, peak = rng.pareto(1.2, PEOPLE) + 0.2, rng.uniform(-1, DAYS, len(things))
    found: dict[tuple[int, int], int] = {}
    for day in range(DAYS):
        fashion = np.exp(-np.abs(day - peak))
        for _ in range(CONTACTS):
            u = _drawn(activity, rng)
            found.setdefault((u, _drawn(np.exp(1.2 * things @ people[u]) * fashion, rng)), day)
    return [(f"p{u}", f"t{v}", day) for (u, v), day in found.items()]


def bursts(rng: np.random.Generator) -> list[Contact]:
    """A pair that met meets again the next day with probability 0.6; new pairs are mostly friends of friends."""
    since, stay = rng.integers(0, DAYS, PEOPLE), rng.geometric(0.3, PEOPLE)
    since[: PEOPLE // 3] = 0
    friends: list[list[int]] = [[] for _ in range(PEOPLE)]
    meeting: list[tuple[int, int]] = []
    found = []
    for day in range(DAYS):
        here = (since <= day) & (day < since + stay)
        meeting = [(u, v) for u, v in meeting if here[u] and here[v] and rng.random() < 0.6]
        for _ in range(CONTACTS // 2):
            u = v = int(rng.choice(np.flatnonzero(here)))
            if friends[u] and rng.random() < 0.6:
                near = [w for w in friends[int(rng.choice(friends[u]))] if here[w]]
                v = int(rng.choice(near)) if near else u
            else:
                v = int(rng.choice(np.flatnonzero(here)))
            if u != v:
                meeting.append((u, v))
                friends[u].append(v)
                friends[v].append(u)
        found += [(f"p{u}", f"p{v}", day) for u, v in meeting]
    return found


def _drawn(weights: Any, rng: np.random.Generator) -> int:
    return int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum()))


WORLDS = {"blocks": blocks, "tastes": tastes, "bursts": bursts}


def measure(task: tuple[str, int, str]) -> list[dict[str, Any]]:
    """Fit and evaluate one model in one world, for each predicted day."""
    from forecasting import figures

    import dysat

    world, seed, name = task
    columns = tuple(map(list, zip(*WORLDS[world](np.random.default_rng(seed)), strict=True)))
    graph = dysat.build_snapshots(dysat.read_events(columns, time_unit="step"), every=1)
    rows = []
    for target in TARGETS:
        model: Any = dysat.MODELS["pair-boosting"]()
        if name == "whole":
            model = dysat.DySAT(device="cpu", seed=seed)
        found = figures(model.fit(graph[:target]), graph, target, seed)
        rows.append({"world": world, "seed": seed, "model": name, "target": target, **found})
    return rows


def main() -> None:
    """Measure, print means, and write a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    from dysat.system.hardware import hardware
    from dysat.system.parallel.pool import worker_pool

    tasks = list(product(WORLDS, args.seeds, ("whole", "pair-boosting")))
    with worker_pool(args.processes, "rows") as pool:
        rows = [row for part in pool.map(measure, tasks) for row in part]
    for world, model in product(WORLDS, ("whole", "pair-boosting")):
        mine = [row for row in rows if row["world"] == world and row["model"] == model]
        means = {
            n: [row[n] for row in mine if n in row] for n in ("embeddings", "score", "new links", "historical", "mrr")
        }
        print(f"| {world}, {model} | {' | '.join(f'{100 * fmean(v):.1f}' if v else '–' for v in means.values())} |")
    if args.out is not None:
        about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "device": "cpu"}
        args.out.write_text(json.dumps({"command": "benchmarks/made_up.py", **about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
