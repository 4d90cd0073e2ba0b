"""Make a page from random data, to look at and to measure: python web/sample.py --nodes 20000 --out page.html."""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import sys
import types
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

SOURCE = Path(__file__).parents[1] / "src" / "dysat"
NONE, UNKNOWN, NEAREST, REASONS = 0xFFFFFFFF, -32768, 8, 5
MEASURES = ("auc", "mrr", "hits_at_10", "new_mrr")

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "=HYPERLINK(\"http://example.com\",\"click\")",
    "+1-555-0100",
    "'=1+1",
    "@SUM(A1:A9)",
    "javascript:alert(1)",
    "\" onclick=\"alert(1)",
    "{{data}} {{title}} ${1+1} </script>",
    "x" * 10_000,
    "long words " * 900,
    "مرحبا بالعالم",
    "שלום עולם",
    "雪の結晶",
    "👩‍🔬 Zoë O’Brien, PhD",
    "",
    "a,b;c\\td",
    "Z̷̡̛̪̺͖a̵͕͠l̶̹͝g̸̱̀o̷͈̚",
    "__proto__",
    "constructor",
    r"evil\u202egpj.exe",
)  # fmt: skip
RAW = {"a,b;c\\td": "a,b;c\td", r"evil\u202egpj.exe": "evil\u202egpj.exe"}
FIRST = ("Ada", "Ben", "Chloé", "David", "Elif", "Femi", "Grace", "Hiro", "Inês", "Jonas", "Kofi", "Lena", "Mei")
LAST = ("Abbott", "Berg", "Castillo", "Dubois", "Eze", "Fischer", "Garcia", "Haddad", "Ivanova", "Jansen", "Kim")


def main() -> None:
    """Write the page, and its facts and arrays beside it for tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1899)
    parser.add_argument("--steps", type=int, default=13)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bare", action="store_true", help="leave out everything that may be missing")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    facts, arrays = sample(options.nodes, options.steps, options.rows, options.seed, bare=options.bare)
    options.out.write_text(pack().html_page(facts["title"], facts, arrays), encoding="utf-8")
    options.out.with_suffix(".json").write_text(json.dumps(facts), encoding="utf-8")
    np.savez(options.out.with_suffix(".npz"), **arrays)


def pack() -> Any:
    """Return `dysat.report.pack` without loading the rest of dysat, which needs torch."""
    package = types.ModuleType("dysat")
    package.__path__ = [str(SOURCE)]
    sys.modules["dysat"] = package
    return importlib.import_module("dysat.report.pack")


def sample(nodes: int, steps: int, rows: int, seed: int, *, bare: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return random facts and arrays."""
    random = np.random.default_rng(seed)
    groups = min(9, max(2, nodes // 50))
    group = np.sort(random.choice(groups, nodes, p=(weights := 0.78 ** np.arange(groups)) / weights.sum()))
    activity = random.pareto(1.6, nodes) + 0.15
    windows = steps + 2
    first_seen = np.minimum(random.geometric(0.28, nodes) - 1, windows - 1).astype(np.uint16)
    position = positions(random, group, groups, first_seen, steps)
    links = [links_of(random, group, groups, activity, first_seen <= t + 2) for t in range(steps)]
    u, v = (np.concatenate([pair[i] for pair in links]).astype(np.uint32) for i in (0, 1))
    start = np.cumsum([0, *(len(pair[0]) for pair in links)]).astype(np.uint32)
    degree = np.stack([np.bincount(a, minlength=nodes) + np.bincount(b, minlength=nodes) for a, b in links])
    pair, known, scores, rank = forecasts(random, group, activity, u, v, rows, nodes)
    phrases = reasons_in_words()
    share = np.sort(random.dirichlet(np.ones(7), len(pair))[:, :REASONS], axis=1)[:, ::-1]
    share = share * np.where(random.random(share.shape) < 0.22, -1, 1)
    labels = label_all(random, nodes)
    dates = [datetime.date(2004, 4, 15) + datetime.timedelta(days=14 * i) for i in range(windows + 2)]
    arrays: dict[str, Any] = {
        "node_id": (np.arange(nodes, dtype=np.uint32) * 3 + 7),
        "first_seen": first_seen,
        "degree": degree.astype(np.uint32),
        "link_start": start,
        "link_u": u,
        "link_v": v,
        "row_pair": pair.astype(np.uint32),
        "row_rank": rank.astype(np.uint32),
        "row_score": scores.astype(np.float64),
        "row_known": known.astype(np.uint8),
        "row_phrase": random.integers(0, len(phrases), (len(pair), REASONS)).astype(np.uint32),
        "row_share": share.astype(np.float32),
    }
    arrays["row_phrase"][::17, 3:] = NONE
    if not bare:
        arrays |= optional(random, position, group, first_seen, steps, nodes)
    return facts_of(random, arrays, labels, phrases, dates, groups, steps, nodes, bare=bare), arrays


def positions(random: Any, group: Any, groups: int, first_seen: Any, steps: int) -> Any:
    """Return the map: groups that drift, and nodes that drift within them."""
    angle = 2 * np.pi * np.arange(groups) / groups
    centre = np.stack([np.cos(angle), np.sin(angle)], 1) * random.uniform(0.35, 0.75, (groups, 1))
    spread = random.uniform(0.06, 0.16, groups)
    at = centre[group] + random.normal(0, 1, (len(group), 2)) * spread[group][:, None]
    drift = random.normal(0, 0.02, (groups, 2))
    result = np.full((steps, len(group), 2), UNKNOWN, dtype=np.int16)
    for t in range(steps):
        at = at + drift[group] + random.normal(0, 0.012, at.shape) - 0.02 * (at - centre[group])
        seen = first_seen <= t + 2
        result[t, seen] = np.clip(at[seen] * 24000, -32767, 32767).astype(np.int16)
    return result


def links_of(random: Any, group: Any, groups: int, activity: Any, seen: Any) -> tuple[Any, Any]:
    """Return the links of one window, most of them within groups."""
    weight = activity * seen * (random.random(len(group)) < 0.5)
    many = max(20, int(len(group) * 0.7))
    u = random.choice(len(group), many, p=weight / weight.sum())
    v = random.choice(len(group), many, p=weight / weight.sum())
    for g in range(groups):
        inside = np.flatnonzero((group[u] == g) & (random.random(many) < 0.8))
        candidates = np.flatnonzero((group == g) & (weight > 0))
        if len(inside) and len(candidates):
            chance = weight[candidates] / weight[candidates].sum()
            v[inside] = random.choice(candidates, len(inside), p=chance)
    pairs = np.unique(np.stack([u, v], 1)[u != v], axis=0)
    return pairs[:, 0], pairs[:, 1]


def forecasts(random: Any, group: Any, activity: Any, u: Any, v: Any, rows: int, nodes: int) -> Any:
    """Return pairs with scores: half of them linked before, then one pair for each of the first nodes."""
    old = np.unique(np.stack([u, v], 1), axis=0)
    old = old[random.permutation(len(old))[: rows // 2]]
    chance = activity / activity.sum()
    new = np.stack([random.choice(nodes, 4 * rows, p=chance) for _ in range(2)], 1)
    new = np.unique(new[(new[:, 0] != new[:, 1]) & (group[new[:, 0]] == group[new[:, 1]])], axis=0)
    new = new[random.permutation(len(new))[: rows - len(old)]]
    pair = np.concatenate([old, new])
    known = np.arange(len(pair)) < len(old)
    score = np.where(known, random.beta(5, 1.6, len(pair)), random.beta(2, 4, len(pair)))
    order = np.argsort(-score)
    single = np.stack([np.arange(min(nodes, 3000)), np.roll(np.arange(min(nodes, 3000)), 1)], 1)
    rank = np.concatenate([np.arange(1, len(pair) + 1), np.zeros(len(single), dtype=int)])
    return (
        np.concatenate([pair[order], single]),
        np.concatenate([known[order], np.zeros(len(single), dtype=bool)]),
        np.concatenate([score[order], random.beta(1, 6, len(single))]),
        rank,
    )


def reasons_in_words() -> list[str]:
    """Return phrases as a run gives them."""
    shared = [f"{count} shared partners in the last {windows} windows" for count in range(2, 30) for windows in (3, 5)]
    return [
        *shared,
        "linked in the last window",
        "linked in 7 of 13 windows",
        "both were active in the last window",
        "the embeddings are similar (0.87)",
        "the nodes are of different kinds",
        "no link between them for 6 windows",
        "one of the nodes is new",
        "the reason contains <b>markup</b> & quotes \"'",
    ]


def label_all(random: Any, nodes: int) -> list[str]:
    """Return labels, some of them hostile."""
    names = random.integers(0, (len(FIRST), len(LAST)), (nodes, 2))
    labels = [f"{FIRST[a]} {LAST[b]} {i}" for i, (a, b) in enumerate(names)]
    for i, label in zip(random.permutation(nodes), HOSTILE, strict=False):
        labels[i] = label
    return labels


def optional(random: Any, position: Any, group: Any, first_seen: Any, steps: int, nodes: int) -> dict[str, Any]:
    """Return the arrays that may be missing."""
    nearest = random.integers(0, nodes, (nodes, NEAREST)).astype(np.uint32)
    nearest[::29, 5:] = NONE
    similarity = -np.sort(-random.uniform(0.4, 0.99, (nodes, NEAREST)), axis=1)
    with_attention = np.flatnonzero(random.random(nodes) < 0.9)
    weights = [random.dirichlet(np.linspace(1, 3, i + 1), len(with_attention)) for i in range(steps)]
    place = random.integers(0, 12, nodes).astype(np.float32)
    place[random.random(nodes) < 0.06] = np.nan
    years = random.normal(2001, 6, nodes).astype(np.float32)
    years[random.random(nodes) < 0.1] = np.nan
    return {
        "node_kind": random.choice(3, nodes, p=[0.6, 0.3, 0.1]).astype(np.uint8),
        "attribute_0": place,
        "attribute_1": years,
        "community": group.astype(np.uint8),
        "position": position,
        "nearest": nearest,
        "similarity": similarity.astype(np.float32),
        "attention_node": with_attention.astype(np.uint32),
        "attention": np.round(np.concatenate(weights, axis=1) * 255).astype(np.uint8),
    }


def facts_of(random: Any, arrays: Any, labels: Any, phrases: Any, dates: Any, groups: int, steps: int, nodes: int,
             *, bare: bool) -> dict[str, Any]:  # fmt: skip
    """Return the facts."""
    windows = [window(arrays, dates, i, steps) for i in range(steps + 2)]
    weights = [1 / (i + 1) + 0.05 * np.sin(np.arange(i + 1)) for i in range(steps)]
    attention = [[*(row / row.sum()).tolist(), *[None] * (steps - len(row))] for row in weights]
    return {
        "format": 1,
        "title": "uci-messages <run> & co",
        "made_by": "dysat 0.3.0",
        "method": "IncSAT",
        "verdict": "Over 6 unseen windows, IncSAT ranks true links above the best heuristic (repeat links) in all 6.",
        "learned_from": [
            ["Events", "59,835"],
            ["Nodes", f"{nodes:,}"],
            ["Windows", f"{steps + 2} of 14 days"],
            ["Time", f"{dates[0]} – {dates[steps + 2]}"],
            ["Training", "4 min 12 s on 2 cores"],
        ],
        "notes": [
            "The last window is shorter than the others: it has 9 of 14 days.",
            "38 % of all links in the last window are between nodes that were never linked before.",
        ],
        "missing": ["The map is missing: the method has no embeddings.", "There is no temporal attention: the method "
                    "has none."] if bare else ["Forecasts of single nodes are limited to the 3,000 most active nodes."],
        "directed": not bare,
        "windows": windows,
        "next": {"label": str(dates[steps + 2]), "start": str(dates[steps + 2]), "end": str(dates[steps + 3])},
        "first_step": 2,
        "num_nodes": nodes,
        "kinds": None if bare else ["student", "lecturer <b>", "administration and technical staff"],
        "attributes": [] if bare else [
            {"name": "Faculty", "categories": [f"Faculty of {name}" for name in (
                "Arts", "Law", "Medicine", "Physics", "Chemistry", "History", "Economics", "Music", "Informatics",
                "Mathematics", "Biology", "Philosophy")]},
            {"name": "Year of birth", "categories": None},
        ],
        "labels": labels,
        "raw_labels": {str(i): RAW[label] for i, label in enumerate(labels) if label in RAW},
        "communities": 0 if bare else groups,
        "backtest": None if bare else backtest(random, steps),
        "score_note": "A score is a calibrated probability, for a balanced mix of links and non-links.",
        "phrases": phrases,
        "mean_attention": None if bare else attention,
    }  # fmt: skip


def window(arrays: Any, dates: Any, i: int, steps: int) -> dict[str, Any]:
    """Return the facts of one window."""
    t = min(max(i - 2, 0), steps - 1)
    links = int(arrays["link_start"][t + 1] - arrays["link_start"][t])
    recurring, between = int(links * 0.08 * min(i, 5)), int(links * 0.35)
    return {
        "label": str(dates[i]),
        "start": str(dates[i]),
        "end": str(dates[i + 1]),
        "known": int((arrays["first_seen"] <= i).sum()),
        "active": int((arrays["degree"][t] > 0).sum()),
        "links": links,
        "recurring": recurring,
        "between_known": between,
        "with_new": links - recurring - between,
    }


def backtest(random: Any, steps: int) -> dict[str, Any]:
    """Return the figures of six windows."""
    tested = []
    for i in range(6):
        base = 0.88 + 0.02 * random.standard_normal()
        tested.append({
            "step": steps - 4 + i,
            "links": int(random.integers(600, 1400)),
            "auc": base + 0.05,
            "average_precision": base + 0.03,
            "mrr": 0.31 + 0.02 * random.standard_normal(),
            "hits_at_10": 0.62 + 0.02 * random.standard_normal(),
            "new_mrr": 0.12 + 0.02 * random.standard_normal() if i != 2 else None,  # too few new links
            "candidates": 100 if i else 50,
            "ranked": 200,
            "ranked_new": 80 if i != 2 else 3,
            "heuristics": [
                {"name": "repeat links", "auc": base, "mrr": 0.24 + 0.02 * random.standard_normal(), "hits_at_10": 0.48,
                 "new_mrr": 0.02},
                {"name": "common neighbours", "auc": base - 0.09, "mrr": 0.11, "hits_at_10": 0.4, "new_mrr": 0.09},
                {"name": "preferential attachment", "auc": base - 0.14, "mrr": None, "hits_at_10": None,
                 "new_mrr": None},
            ],
        })  # fmt: skip
    edges = np.linspace(0, 1, 11)

    def bins(bend: float) -> list[dict[str, Any]]:
        return [
            {"from": a, "to": b, "pairs": int(5000 * (1.05 - a) ** 3), "mean_score": (a + b) / 2,
             "linked": min(1.0, ((a + b) / 2) ** bend) if b < 0.95 or bend < 1.2 else None}
            for a, b in zip(edges.tolist(), edges.tolist()[1:], strict=False)
        ]  # fmt: skip

    return {
        "windows": tested,
        "best": dict.fromkeys(MEASURES, "repeat links") | {"new_mrr": "common neighbours"},
        "mean": {name: fmean(entry[name] for entry in tested if entry[name] is not None) for name in MEASURES},
        "precision": [
            {"k": "10", "all": 0.9, "new": 0.4, "windows": {"all": [0.9] * 6, "new": [0.4] * 6}},
            {"k": "100", "all": 0.71, "new": 0.22, "windows": {"all": [0.71] * 6, "new": [0.22] * 6}},
            {"k": "1,000", "all": 0.38, "new": None, "windows": {"all": [0.38] * 6}},
        ],
        "reliability": [
            {"name": "all", "bins": bins(1.1)},
            {"name": "new", "bins": bins(1.5)},
            {"name": "known", "bins": bins(0.85)},
        ],
    }


if __name__ == "__main__":
    main()
