"""Compare the forecast of the default model with every heuristic on the logs of the wide bench.

    python benchmarks/forecasting_wide.py --graphs GRAPHS --half development --processes 2 --out results/FILE.json
    python benchmarks/forecasting_wide.py --graphs GRAPHS --half all --processes 16 --out results/forecasting_wide.json
    python benchmarks/forecasting_wide.py --show results/forecasting_wide.json

GRAPHS comes from benchmarks/wide_logs.py. Of every log, the last complete windows are predicted that have at least 20
links between nodes known before and at least 3 windows before them. All methods learn from the windows before and are
measured on the same examples:

- AUC: the links of the window against as many unlinked pairs.
- MRR and Hits@10: up to 200 of these links, each ranked among 100 nodes (50, 20 or 10 in small graphs).
- The same of new links: pairs that were never linked before. Their AUC is against the same unlinked pairs.
- Reliability gap of the probabilities of the default model over all windows of a log: |mean probability − fraction
  linked|, averaged over the pairs of ten bins. Few pairs have a gap by chance alone, which is printed beside it.

--embeddings also fits the default model with embeddings and measures the weighted product of its embeddings, without
any probe. Each seed in --seed draws its own examples. Finished windows are stored in the --out file and not computed
again. A file holds results of one version of the code.

No result of a log of the test half may be seen while the method changes: --half development does not open them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from math import pi, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import dysat
from dysat.data.windows import write_moment
from dysat.errors import GraphError
from dysat.evaluation.probe import auc
from dysat.evaluation.protocols import LinkSplit, link_pairs, single_step
from dysat.evaluation.ranking import CANDIDATES, RANKED, candidate_pairs, hits, mrr, ranking_candidates, ranks
from dysat.evaluation.reliability import mean_gap, pooled, reliability
from dysat.models import MODELS, OPPONENTS
from dysat.runs.backtest import FEWEST_LINKS, incomplete
from dysat.system.hardware import hardware
from dysat.system.parallel.pool import THREAD_VARIABLES, worker_pool
from dysat.system.parallel.process import keep_freed_memory

Row = dict[str, Any]
Values = dict[str, dict[str, float]]  # by log and method

DEVELOPMENT, TEST, ALL = "development", "test", "all"
# The test half of benchmarks/wide_logs.py, which needs more packages than this script. logs.json may be older.
TEST_LOGS = frozenset(
    {
        *("activity-driven", "baseball", "binutils", "co-citations", "college-baseball", "daily-contacts", "dissents"),
        *("earthquakes", "film-distributors", "film-writers", "flights", "gnulib", "key-signatures", "moving-blocks"),
        *("ruby-uploads", "shop-clicks"),
    }
)
DEVELOPMENT_LOGS = frozenset(
    {
        *("ageing-attachment", "bird-strikes", "browser-features", "classes-2012", "classes-2013", "fading-papers"),
        *("films", "football", "glibc", "hawkes-blocks", "hospital", "office", "planes", "school", "uci"),
    }
)
OURS, EMBEDDINGS = "dysat", "dysat embeddings"
RUNS = {"forecasts": (OURS, *OPPONENTS), "embeddings": (EMBEDDINGS,)}  # methods of a job
PAST = 3  # windows before the first predicted one
TOP = 10  # of Hits@10
FIGURES = {"auc": "AUC", "mrr": "MRR", "new_mrr": "new-link MRR"}
CURVE = ("pairs", "mean_score", "linked")  # of a bin
TIE = 0.05  # points; a smaller difference is a tie
BEHIND = {"auc": 0.3, "mrr": 1.0}  # points; a log where the default model is further behind is marked
LEVEL = 0.05  # of the critical difference


class Examples(NamedTuple):
    """What all methods are measured on in one window.

    Shapes:
        pairs [B, 2], labels [B], new [B] (links never seen before);
        ranked, new_ranked: links [P, 2] and the nodes that each is ranked among [P, K]; None in a small graph
    """

    pairs: Tensor
    labels: Tensor
    new: Tensor
    ranked: tuple[Tensor, Tensor] | None
    new_ranked: tuple[Tensor, Tensor] | None


def examples(graph: dysat.DynamicGraph, target: int, seed: int) -> Examples:
    """Draw the examples of a window."""
    split = single_step(graph, target - 1, seed=seed)
    links = [link_pairs(snapshot, snapshot.num_nodes) for snapshot in graph.snapshots[:target]]
    before = np.unique(np.concatenate([u << 32 | v for u, v in (part.T for part in links)]))
    u, v = split.pairs.numpy().T
    new = split.labels & torch.from_numpy(~np.isin(u << 32 | v, before))
    ranked, new_ranked = (to_rank(graph, split, split.pairs[rows], seed) for rows in (split.labels, new))
    return Examples(split.pairs, split.labels, new, ranked, new_ranked)


def to_rank(graph: dysat.DynamicGraph, split: LinkSplit, links: Tensor, seed: int) -> tuple[Tensor, Tensor] | None:
    """Sample links and the nodes that each is ranked among.  # [E, 2] → [P, 2], [P, K]"""
    if len(links) > RANKED:
        rng = np.random.default_rng([seed, split.step])
        links = links[np.sort(rng.choice(len(links), RANKED, replace=False))]
    chosen = replace(split, pairs=links, labels=torch.ones(len(links), dtype=torch.bool))
    for number in CANDIDATES:
        with suppress(GraphError):  # a small graph has fewer nodes
            return (links, ranking_candidates(graph, chosen, number, seed)) if len(links) else None
    return None


def figures(score: Callable[[Tensor], Tensor], given: Examples) -> Row:
    """AUC, MRR and Hits@10 of all links and of new links, and the seconds of scoring all pairs once."""
    lists = [part for part in (given.ranked, given.new_ranked) if part is not None]
    parts = [given.pairs]
    for links, others in lists:
        parts += [links, candidate_pairs(links, others)]
    begin = time.perf_counter()
    scores = score(torch.cat(parts)).double().cpu()
    seconds = time.perf_counter() - begin
    if scores.isnan().any():
        raise ArithmeticError("some scores are not numbers")
    own, *rest = torch.split(scores, [len(part) for part in parts])
    either = given.new | ~given.labels
    found = {"auc": auc(own, given.labels), "new_auc": auc(own[either], given.labels[either])}
    for name, part in (("", given.ranked), ("new_", given.new_ranked)):
        if part is not None:
            positive, negative, rest = rest[0], rest[1].view_as(part[1]), rest[2:]
            rank = ranks(positive, negative)
            found |= {f"{name}mrr": mrr(rank), f"{name}hits": hits(rank, TOP)}
    known = {name: round(value, 6) for name, value in found.items() if value == value}
    return {**known, "score_seconds": round(seconds, 3)}


def make(method: str, seed: int, device: str) -> dysat.LinkModel:
    """A method that has learned nothing yet."""
    if method in (OURS, EMBEDDINGS):
        return dysat.DySAT(embeddings=method == EMBEDDINGS, seed=seed, device=device if method == EMBEDDINGS else "cpu")
    seeded = any(option.name == "seed" for option in MODELS[method].options())
    return MODELS[method](**({"seed": seed} if seeded else {}))


def measure_method(method: str, task: Row, graph: dysat.DynamicGraph, given: Examples) -> Row:
    """Fit a method on the windows before the target and measure it, or say why it cannot run."""
    try:
        begin = time.perf_counter()
        model = make(method, task["seed"], task["device"]).fit(graph[: task["target"]])
        seconds = time.perf_counter() - begin
        score = model.pair_scores
        if method == EMBEDDINGS:  # the product of its embeddings instead of its pair score
            score = super(dysat.DySAT, model).pair_scores  # type: ignore[misc]
        found = figures(score, given)
        if method == OURS:
            curve = reliability(model._probabilities(given.pairs), given.labels)
            found["reliability"] = [{name: part[name] for name in CURVE} for part in curve]
    except Exception as problem:
        return {"problem": f"{type(problem).__name__}: {problem}"}
    return {**found, "fit_seconds": round(seconds, 3)}


def measure(task: Row) -> Row:
    """Measure all methods of a job on one window of a log."""
    keep_freed_memory()
    graph, target = dysat.DynamicGraph.load(task["graph"]), task["target"]
    given = examples(graph, target, task["seed"])
    return {
        "start": write_moment(graph[target].start, graph.clock),
        "nodes": graph.known[target - 1],
        "links": int(given.labels.sum()),
        "new_links": int(given.new.sum()),
        "candidates": None if given.ranked is None else given.ranked[1].shape[1],
        "methods": {method: measure_method(method, task, graph, given) for method in RUNS[task["run"]]},
    }


def half_of(name: str, facts: Mapping[str, Any]) -> str:
    """The half of a log; logs.json decides only for logs that are not in the wide bench."""
    if name in TEST_LOGS | DEVELOPMENT_LOGS:
        return TEST if name in TEST_LOGS else DEVELOPMENT
    return str(facts["half"])


def chosen(graphs: Path, half: str, only: Collection[str] = ()) -> dict[str, Row]:
    """The logs of a half, described by logs.json: domain, width of a window, and half."""
    logs = json.loads((graphs / "logs.json").read_text())
    halves = {name: half_of(name, facts) for name, facts in logs.items()}
    for name in only:
        if name not in logs:
            raise SystemExit(f"{graphs / 'logs.json'}: no log {name!r}")
        if half not in (ALL, halves[name]):
            raise SystemExit(f"{name} is in the {halves[name]} half, not in the {half} half")
    return {
        name: {"domain": facts["domain"], "window": facts["window"], "half": halves[name]}
        for name, facts in logs.items()
        if half in (ALL, halves[name]) and (not only or name in only)
    }


def predicted(graph: dysat.DynamicGraph, windows: int) -> list[int]:
    """The last complete windows with enough links that a method can predict, and enough windows before them."""
    stop = len(graph) - incomplete(graph)
    return [t for t in range(PAST, stop) if num_links(graph, t) >= FEWEST_LINKS][-windows:]


def num_links(graph: dysat.DynamicGraph, target: int) -> int:
    """The number of links of a window between two different nodes known before it."""
    u, v = link_pairs(graph[target], graph.known[target - 1]).T
    return int((u != v).sum())


def jobs(args: argparse.Namespace, logs: Collection[str], done: Collection[tuple[Any, ...]]) -> list[Row]:
    """The jobs that are not done yet, the largest first."""
    found = []
    for name in logs:
        graph = dysat.DynamicGraph.load(args.graphs / name)
        links = np.cumsum([snapshot.num_links for snapshot in graph])
        for target in predicted(graph, args.windows):
            for seed in args.seed:
                for run in RUNS if args.embeddings else ("forecasts",):
                    device = args.device if run == "embeddings" else "cpu"
                    task = {"log": name, "target": target, "seed": seed, "run": run, "device": device}
                    size = int(links[target - 1]) + graph.known[target - 1]
                    if key(task) not in done:
                        found.append({**task, "graph": str(args.graphs / name), "size": size})
    return sorted(found, key=lambda task: -task["size"])


def key(row: Row) -> tuple[Any, ...]:
    """What a stored row is found by."""
    return row["log"], row["target"], row["seed"], row["run"]


def code_digest() -> str:
    """The start of the SHA-256 of the source of dysat."""
    root, digest = Path(dysat.__file__).parent, hashlib.sha256()
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.c")]):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def sweep(args: argparse.Namespace) -> None:
    """Run every job that the file does not have yet, each in one thread."""
    version = {"dysat": dysat.__version__, "method": dysat.DySAT().version, "code": code_digest()}
    record: Row = (
        json.loads(args.out.read_text()) if args.out.exists() else {"version": version, "logs": {}, "rows": []}
    )
    if record["version"] != version:
        raise SystemExit(f"{args.out}: results of other code, {record['version']['code']}; choose another file")
    logs = chosen(args.graphs, args.half, args.log)
    record = {"command": "benchmarks/forecasting_wide.py", **record, "logs": {**record["logs"], **logs}}
    waiting = jobs(args, logs, {key(row) for row in record["rows"]})
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # of the worker processes
    begin, machine = time.monotonic(), hardware()
    with worker_pool(args.processes, "windows") as pool:
        running = {pool.submit(measure, task): task for task in waiting}
        for number, future in enumerate(as_completed(running), 1):
            task = running[future]
            about = {name: task[name] for name in ("log", "target", "seed", "run", "device")}
            row = {**about, **future.result(), "hardware": machine, "date": datetime.now(UTC).date().isoformat()}
            record["rows"].append(row)
            write(record, args.out)
            print(f"{time.monotonic() - begin:.0f} s, {number} of {len(waiting)}:", *key(row), flush=True)


def write(record: Row, out: Path) -> None:
    """Replace the file at once."""
    temporary = out.with_name(out.name + ".new")
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    temporary.replace(out)


class Against(NamedTuple):
    """The default model against one opponent over logs; differences in points."""

    wins: int
    ties: int
    losses: int
    difference: float | None
    p: float | None  # two-sided Wilcoxon signed-rank test, Holm correction


class Comparison(NamedTuple):
    """All methods over logs, in one figure."""

    logs: int
    mean: float | None  # of the default model over its logs, in points
    ranks: dict[str, float]  # mean rank, 1 is best
    against: dict[str, Against]
    friedman: float | None  # p-value
    critical: float | None  # Nemenyi's critical difference of mean ranks


def log_values(rows: Sequence[Row], methods: Sequence[str], figure: str) -> Values:
    """The mean of a figure over the windows of a log, in points.

    A method that lacks one of the windows that another method has is missing. A log without any figure is left out.
    """
    found: Values = {}
    for log in dict.fromkeys(row["log"] for row in rows):
        cells = [row["methods"] for row in rows if row["log"] == log]
        cells = [cell for cell in cells if any(figure in cell.get(method, {}) for method in methods)]
        if cells:
            found[log] = {
                method: 100 * fmean(cell[method][figure] for cell in cells)
                for method in methods
                if all(figure in cell.get(method, {}) for cell in cells)
            }
    return found


def reliability_gaps(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """The reliability gap of each log over the pairs of all its windows, in points, and what chance alone would give.

    Of n pairs with probability p, the fraction that is linked differs from p by √(2 p (1 − p) / (π n)) on average.
    """
    found = []
    for log in dict.fromkeys(row["log"] for row in rows):
        own = [row["methods"].get(OURS, {}).get("reliability") for row in rows if row["log"] == log]
        curves = [[{"from": 0.0, "to": 1.0, **part} for part in curve] for curve in own if curve is not None]
        if curves and (gap := mean_gap(curve := pooled(curves))) is not None:
            parts = [(part["pairs"], part["mean_score"]) for part in curve if part["pairs"]]
            chance = sum(sqrt(2 * n * p * (1 - p) / pi) for n, p in parts) / sum(n for n, _ in parts)
            found.append((100 * gap, 100 * chance))
    return found


def compare(values: Values, methods: Sequence[str]) -> Comparison:
    """Compare the first method with all others."""
    from scipy.stats import friedmanchisquare

    table = np.array([[values[log].get(method, -np.inf) for method in methods] for log in values])  # [L, M]
    table = table.reshape(-1, len(methods))
    places, own = mean_ranks(table), [v[methods[0]] for v in values.values() if methods[0] in v]
    found = {method: against(values, methods[0], method) for method in methods[1:]}
    known = [method for method in found if found[method].p is not None]
    corrected = dict(zip(known, holm([found[method].p or 0.0 for method in known]), strict=True))
    enough = len(table) > 1 and len(methods) > 2 and bool((table != table[:, :1]).any())
    return Comparison(
        logs=len(table),
        mean=fmean(own) if own else None,
        ranks=dict(zip(methods, places.tolist(), strict=True)),
        against={method: one._replace(p=corrected.get(method)) for method, one in found.items()},
        friedman=float(friedmanchisquare(*table.T).pvalue) if enough else None,
        critical=critical_difference(len(methods), len(table)) if enough else None,
    )


def against(values: Values, ours: str, other: str) -> Against:
    """Compare two methods over the logs that both have; a log that only one of them has is a win or a loss."""
    differences = [v[ours] - v[other] for v in values.values() if ours in v and other in v]
    alone, behind = (
        sum(mine in v and its not in v for v in values.values()) for mine, its in ((ours, other), (other, ours))
    )
    return Against(
        wins=sum(d > TIE for d in differences) + alone,
        ties=sum(abs(d) <= TIE for d in differences),
        losses=sum(d < -TIE for d in differences) + behind,
        difference=fmean(differences) if differences else None,
        p=signed_rank(differences),
    )


def mean_ranks(table: Any) -> Any:
    """Mean rank of each column over the rows, 1 for the highest value; ties share their mean rank.  # [L, M] → [M]"""
    from scipy.stats import rankdata

    return rankdata(-table, axis=1).mean(0) if len(table) else np.full(table.shape[1], np.nan)


def signed_rank(differences: Sequence[float]) -> float | None:
    """The two-sided p-value of Wilcoxon's signed-rank test, without differences of 0; None without any difference."""
    from scipy.stats import wilcoxon

    rounded = [d for d in np.round(differences, 9) if d]  # figures are stored with fewer decimals
    return float(wilcoxon(rounded).pvalue) if rounded else 1.0 if differences else None


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction of p-values, in the given order."""
    corrected, largest = list(p), 0.0
    for number, at in enumerate(np.argsort(p, kind="stable").tolist()):
        largest = max(largest, min(1.0, (len(p) - number) * p[at]))
        corrected[at] = largest
    return corrected


def critical_difference(methods: int, logs: int) -> float:
    """Nemenyi's critical difference of mean ranks, q √(M (M + 1) / 6 L) with q of the studentized range / √2."""
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - LEVEL, methods, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * logs)))


def markdown(records: Sequence[Row]) -> str:
    """All tables of result files."""
    logs = {name: facts for record in records for name, facts in record["logs"].items()}
    latest = {key(row): row for record in records for row in record["rows"]}  # a later file replaces rows of others
    rows = sorted(latest.values(), key=lambda row: (list(logs).index(row["log"]), row["target"], row["seed"]))
    measured = {row["log"] for row in rows}
    present = [half for half in (DEVELOPMENT, TEST) if any(logs[name]["half"] == half for name in measured)]
    lines = [*about(records, rows)]
    for half in [*present, ALL] if len(present) > 1 else present:
        mine = [row for row in rows if half in (ALL, logs[row["log"]]["half"])]
        lines += ["", f"### {half.capitalize()}: {len({row['log'] for row in mine})} logs", "", *half_tables(mine)]
    return "\n".join([*lines, "", "### Logs", "", *log_table(rows, logs), *problems(rows)])


def about(records: Sequence[Row], rows: Sequence[Row]) -> Iterator[str]:
    """Where and when the figures were measured."""
    machines = dict.fromkeys(
        f"{row['run']} on {row['hardware']['cpu']}, {row['hardware']['cores']} cores"
        + ("" if row["device"] == "cpu" else f", {row['hardware']['gpu']}")
        for row in rows
    )
    dates, seeds = (sorted({row[name] for row in rows}) for name in ("date", "seed"))
    versions = dict.fromkeys(f"{record['version']['dysat']}, code {record['version']['code']}" for record in records)
    yield f"dysat {'; '.join(versions)}. {'; '.join(machines)}. Dates: {', '.join(dates)}. Seeds: {seeds}."


def half_tables(rows: Sequence[Row]) -> Iterator[str]:
    """One row per opponent, the tests, and the reliability gap."""
    forecasts = [row for row in rows if row["run"] == "forecasts"]
    methods = [OURS, *dict.fromkeys(m for row in forecasts for m in row["methods"] if m != OURS)]
    found = {name: compare(log_values(forecasts, methods, figure), methods) for figure, name in FIGURES.items()}
    columns = [f"{name}: {what}" for name in found for what in ("won, tied, lost", "difference", "p", "rank")]
    yield f"| | {' | '.join(columns)} | fit, s | scoring, s |"
    yield "|---" + "|---:" * (len(columns) + 2) + "|"
    for method in methods:
        cells = [cell for comparison in found.values() for cell in opponent_cells(comparison, method)]
        times = [mean_of(forecasts, method, name) for name in ("fit_seconds", "score_seconds")]
        yield f"| {method} | {' | '.join([*cells, *(number(value, '.2f') for value in times)])} |"
    yield ""
    yield f"A difference of at most {TIE} points is a tie. A log on which only one of two methods runs is won by it."
    yield "p is the two-sided Wilcoxon signed-rank test over logs with Holm's correction. Missing methods have the"
    yield f"worst rank. The critical difference of mean ranks is Nemenyi's, at the level {LEVEL}."
    yield ""
    for name, comparison in found.items():
        mean, friedman = number(comparison.mean, ".2f"), number(comparison.friedman, ".2g")
        tests = f"Friedman test p = {friedman}, critical difference {number(comparison.critical, '.2f')}"
        yield f"- {name}: mean of {OURS} {mean}, {comparison.logs} logs, {tests}."
    gaps = reliability_gaps(forecasts)
    if gaps:
        points, chance = (fmean(column) for column in zip(*gaps, strict=True))
        largest = max(gap for gap, _ in gaps)
        found_gap = f"mean {points:.2f} points, largest {largest:.2f}, {len(gaps)} logs"
        yield f"- Reliability gap: {found_gap}; {chance:.2f} by chance alone."
    yield from embedding_lines([row for row in rows if row["run"] == "embeddings"])


def opponent_cells(comparison: Comparison, method: str) -> list[str]:
    """The cells of one method in one figure."""
    rank = number(comparison.ranks[method], ".2f")
    if method not in comparison.against:
        return ["", "", "", rank]
    one = comparison.against[method]
    return [f"{one.wins}, {one.ties}, {one.losses}", number(one.difference, "+.2f"), number(one.p, ".2g"), rank]


def embedding_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Means over logs of the product of the embeddings, and their standard deviation over seeds."""
    for figure, name in FIGURES.items():
        means = []
        for seed in sorted({row["seed"] for row in rows}):
            values = log_values([row for row in rows if row["seed"] == seed], [EMBEDDINGS], figure)
            known = [own[EMBEDDINGS] for own in values.values() if EMBEDDINGS in own]
            means += [fmean(known)] if known else []
        if means:
            spread = f", SD over {len(means)} seeds {stdev(means):.2f}" if len(means) > 1 else ""
            yield f"- Product of the embeddings, {name}: mean {fmean(means):.2f}{spread}."


def log_table(rows: Sequence[Row], logs: Mapping[str, Row]) -> Iterator[str]:
    """One row per log: the default model and the opponent that is best on it, chosen in hindsight."""
    rows = [row for row in rows if row["run"] == "forecasts"]
    methods = [OURS, *dict.fromkeys(m for row in rows for m in row["methods"] if m != OURS)]
    found = {figure: log_values(rows, methods, figure) for figure in BEHIND}
    names = [f"{FIGURES[figure]} | best opponent | difference" for figure in BEHIND]
    yield f"| log | half | domain | window | nodes | links | {' | '.join(names)} | behind |"
    yield "|---|---|---|---|---:|---:" + "|---:|---|---:" * len(BEHIND) + "|---|"
    for log in dict.fromkeys(row["log"] for row in rows):
        mine, cells, behind = [row for row in rows if row["log"] == log], list[str](), list[str]()
        for figure, limit in BEHIND.items():
            own, best, difference = best_opponent(found[figure].get(log, {}))
            cells += [number(own, ".2f"), best, number(difference, "+.2f")]
            behind += [FIGURES[figure]] if difference is not None and difference < -limit else []
        nodes, links = max(row["nodes"] for row in mine), fmean(row["links"] for row in mine)
        facts = [log, *(logs[log][name] for name in ("half", "domain", "window")), f"{nodes:,}", f"{links:,.0f}"]
        yield f"| {' | '.join([*facts, *cells])} | {', '.join(behind)} |"
    limits = " or ".join(f"{limit} points of {FIGURES[figure]}" for figure, limit in BEHIND.items())
    yield ""
    yield f"Links: mean of the predicted windows. Behind: more than {limits} below the best opponent."


def best_opponent(values: Mapping[str, float]) -> tuple[float | None, str, float | None]:
    """The value of the default model, the best opponent and its value, and the difference."""
    own, others = values.get(OURS), {method: value for method, value in values.items() if method != OURS}
    if not others:
        return own, "–", None
    best = max(others, key=lambda method: others[method])
    return own, f"{best} {others[best]:.2f}", None if own is None else own - others[best]


def problems(rows: Sequence[Row]) -> Iterator[str]:
    """Why methods could not run."""
    found = [
        f"- {row['log']}, window {row['target']}, {method}: {cell['problem']}"
        for row in rows
        for method, cell in row["methods"].items()
        if "problem" in cell
    ]
    yield from ["", "### Methods that could not run", "", *found] if found else []


def mean_of(rows: Sequence[Row], method: str, name: str) -> float | None:
    """The mean over all windows of a number that a method has."""
    known = [row["methods"][method][name] for row in rows if name in row["methods"].get(method, {})]
    return fmean(known) if known else None


def number(value: float | None, form: str) -> str:
    """A number as text, or a dash."""
    return "–" if value is None or value != value else format(value, form)


def main() -> None:
    """Run, or print the tables of existing files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--graphs", type=Path, help="folder that benchmarks/wide_logs.py wrote")
    parser.add_argument("--half", choices=(DEVELOPMENT, TEST, ALL))
    parser.add_argument("--log", nargs="+", default=[], help="some logs of this half; default: all of them")
    parser.add_argument("--windows", type=int, default=4, help="windows to predict, the last ones")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--embeddings", action="store_true", help="also fit the default model with embeddings")
    parser.add_argument("--device", default="cpu", help="of the model with embeddings")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.show:
        print(markdown([json.loads(file.read_text()) for file in args.show]))
    elif args.graphs and args.half and args.out:
        sweep(args)
    else:
        parser.error("expected --graphs, --half and --out, or --show")


if __name__ == "__main__":
    main()
