"""What the page of a model shows, as facts and arrays (`web/src/format.ts` lists them).

A page has a limit, so of a large graph it shows the nodes that were asked for, those of the likeliest links and the
most active ones, and of a long one the last windows. `missing` says on the page what was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import dysat.data.attributes as attributes
from dysat.data.continuation import next_window
from dysat.data.graph import DynamicGraph
from dysat.data.summary import link_origins
from dysat.data.windows import write_edges
from dysat.report.projection import communities, nearest, positions
from dysat.system.progress import report
from dysat.system.text.printable import printable

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]
Why = Callable[[Ids, int], tuple[list[list[str]], NDArray[np.float32]]]  # reasons of pairs [B, 2], and their shares
NONE, UNKNOWN = 0xFFFFFFFF, -32768  # no node and no phrase; no position
MOST_NODES = 20_000
QUICK_NODES = 5_000  # on the page that a fit leaves, because a map of more takes many seconds
MOST_STEPS = 60
MOST_POSITIONS = 300_000  # nodes · steps
MOST_LINKS = 300_000
MOST_ATTENTION = 4_000  # nodes with a table of temporal attention
LIKELIEST = 1_000  # forecasts of all pairs
CONTACT_NODES = 500  # the most active nodes, each with a list of likely contacts
QUICK_CONTACT_NODES = 50  # the same on the page that a fit leaves: each takes a few hundredths of a second
CONTACTS = 5
REASONS = 5
NEIGHBOURS = 8
LONGEST = 10_000  # characters of a label


class Forecasting(Protocol):
    """The part of `Forecasts` that a page shows."""

    @property
    def ids(self) -> Ids: ...
    @property
    def scores(self) -> NDArray[np.float64]: ...
    @property
    def known(self) -> NDArray[np.bool_]: ...


class Viewed(Protocol):
    """The part of a fitted model that a page shows. Models without embeddings lack `roles`, and some `attention`."""

    graph_: DynamicGraph

    def ranked_links(self, k: int, asked: Ids | None = None) -> Any: ...


@dataclass
class Content:
    """Facts and arrays of a page; `missing` says what is not on it and why."""

    facts: dict[str, Any]
    arrays: Arrays
    missing: list[str] = field(default_factory=list)


def content(
    model: Viewed,
    *,
    asked: Ids | Sequence[int] = (),
    why: Why | None = None,
    best: Forecasting | None = None,
    quick: bool = False,
) -> Content:
    """Return what a page shows of a fitted model; `asked` are ids of nodes that must be on it.

    `best` are the `LIKELIEST` links, if they are at hand. A quick page has fewer nodes, and likely contacts of fewer.
    """
    graph = model.graph_
    missing = list[str]()
    first = _first_step(graph, missing)
    if best is None:
        report("page: forecasts")
        best = model.ranked_links(LIKELIEST)
    nodes = _chosen(graph, len(graph) - first, asked, best.ids, quick, missing)
    report("page: links")
    facts, arrays = _graph_facts(graph, first), _node_arrays(graph, nodes, first, missing)
    facts |= _attributes(graph, nodes, arrays)
    arrays["community"] = communities(graph.snapshots)[nodes]
    facts["communities"] = int(arrays["community"].max(initial=0)) + 1 if len(nodes) else 0
    facts["mean_attention"] = _embedded(model, nodes, first, arrays, missing)
    most = QUICK_CONTACT_NODES if quick else CONTACT_NODES
    active = np.argsort(-arrays["degree"].sum(0, dtype=np.int64), kind="stable")[:most]
    chosen = np.unique([*nodes[active], *asked]).astype(np.int64)
    facts["phrases"] = _forecasts(model, nodes, best, chosen, why, arrays, missing)
    if len(chosen) < len(nodes):
        more = f"; dysat view ranks {CONTACT_NODES:,}" * (quick and len(nodes) > most)
        missing.append(f"Likely contacts of single nodes were ranked for the {len(chosen):,} most active ones{more}.")
    shown = [printable(label)[:LONGEST] for label in graph.nodes[nodes].tolist()]
    facts["labels"] = shown
    real = map(str, graph.nodes[nodes].tolist())
    facts["raw_labels"] = {str(i): raw for i, (raw, safe) in enumerate(zip(real, shown, strict=True)) if raw != safe}
    return Content(facts, arrays, missing)


def graph_rows(graph: DynamicGraph) -> Iterator[tuple[str, str]]:
    """What a model has learned from, as rows of a table."""
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in graph.kind_counts.items())
    yield "Nodes", f"{graph.num_nodes:,}{f' ({kinds})' * bool(kinds)}"
    links = sum(snapshot.num_links for snapshot in graph)
    direction = "directed" if graph.directed else "undirected"
    yield "Links", f"{links:,} ({graph.num_distinct_links:,} distinct pairs), {direction}"
    yield "Windows", f"{len(graph):,}"
    if graph.report is not None:
        yield "Events", f"{graph.report.used:,} of {graph.report.events:,} used"
    if found := attributes.describe_features(graph.features, graph.feature_names):
        yield "Attributes", ", ".join(found)


def _first_step(graph: DynamicGraph, missing: list[str]) -> int:
    if len(graph) <= MOST_STEPS:
        return 0
    missing.append(f"The page shows the last {MOST_STEPS} of {len(graph):,} windows.")
    return len(graph) - MOST_STEPS


def _chosen(
    graph: DynamicGraph, steps: int, asked: Ids | Sequence[int], likeliest: Ids, quick: bool, missing: list[str]
) -> Ids:
    """The nodes of the page, in the order of the graph: those asked for, those of forecasts, and the most active."""
    whole = min(MOST_NODES, MOST_POSITIONS // steps)
    most = min(whole, QUICK_NODES) if quick else whole
    if graph.num_nodes <= most:
        return np.arange(graph.num_nodes)
    links = np.zeros(graph.num_nodes, dtype=np.int64)
    for step in range(len(graph)):
        links += _degrees(graph, step)
    links[likeliest.ravel()] += 1 << 40
    links[list(asked)] += 1 << 41
    nodes = np.sort(np.argsort(-links, kind="stable")[:most])
    also = f"{len(set(asked)):,} asked for, and " * bool(len(asked)) or "and "
    more = f"dysat view shows {min(whole, graph.num_nodes):,}, and " * (most < whole)
    missing.append(
        f"The page shows {most:,} of {graph.num_nodes:,} nodes: those of the likeliest links, {also}the most active. "
        f"{more}dysat view --node LABEL adds a node."
    )
    return nodes


def _degrees(graph: DynamicGraph, step: int) -> NDArray[np.uint32]:
    """Links of each node in a snapshot.  # [N]"""
    snapshot = graph[step]
    found = np.zeros(graph.num_nodes, dtype=np.uint32)
    found[snapshot.rows.cpu().numpy()] = snapshot.offsets.diff().cpu().numpy()
    return found


def _graph_facts(graph: DynamicGraph, first: int) -> dict[str, Any]:
    stop = next_window(graph.boundaries, graph.clock)[1]
    edges = write_edges([*graph.boundaries, stop], graph.clock)
    days = [edge.split(" ")[0] for edge in edges]
    labels = days if len(set(days)) == len(edges) else edges  # without the time, if windows are longer than a day
    origins = link_origins(graph.snapshots)
    windows = [
        {
            "label": labels[step],
            "start": since,
            "end": until,
            "known": graph.known[step],
            "active": graph[step].num_active,
            "links": graph[step].num_links,
            **dict(zip(("recurring", "between_known", "with_new"), origins[step].tolist(), strict=True)),
        }
        for step, (since, until) in enumerate(pairwise(edges[:-1]))
    ]
    return {
        "learned_from": list(graph_rows(graph)),
        "notes": list(graph.notes),
        "directed": graph.directed,
        "windows": windows,
        "next": {"label": labels[-2], "start": edges[-2], "end": edges[-1]},
        "first_step": first,
        "num_nodes": graph.num_nodes,
        "kinds": None if graph.kinds is None else list(map(printable, graph.kind_names)),
    }


def _node_arrays(graph: DynamicGraph, nodes: Ids, first: int, missing: list[str]) -> Arrays:
    place = np.full(graph.num_nodes, NONE, dtype=np.uint32)
    place[nodes] = np.arange(len(nodes), dtype=np.uint32)
    arrays: Arrays = {
        "node_id": nodes.astype(np.uint32),
        "first_seen": np.searchsorted(graph.known, nodes, side="right").astype(np.uint16),
        "degree": np.stack([_degrees(graph, step)[nodes] for step in range(first, len(graph))]),
    }
    if graph.kinds is not None:
        arrays["node_kind"] = np.asarray(graph.kinds)[nodes].astype(np.uint8)
    pairs = list[NDArray[np.uint32]]()
    for step in range(first, len(graph)):
        u, v, _ = graph[step].pairs()
        ends = place[torch.stack([u, v], 1).cpu().numpy()]
        pairs.append(ends[(ends != NONE).all(1)])
    if (every := sum(map(len, pairs))) > MOST_LINKS:
        rng = np.random.default_rng(0)
        pairs = [part[np.sort(rng.choice(len(part), len(part) * MOST_LINKS // every, replace=False))] for part in pairs]
        missing.append(
            f"Partners of single nodes are a sample: {sum(map(len, pairs)):,} of {every:,} links of these nodes."
        )
    arrays["link_start"] = np.cumsum([0, *map(len, pairs)], dtype=np.uint32)
    arrays["link_u"], arrays["link_v"] = (np.concatenate(pairs)[:, side] for side in (0, 1))
    return arrays


def _attributes(graph: DynamicGraph, nodes: Ids, arrays: Arrays) -> dict[str, Any]:
    """The attributes of the nodes at the last step; numbers are in standard deviations from the mean."""
    found = list[dict[str, Any]]()
    features = graph.features if graph.features is None or isinstance(graph.features, Tensor) else graph.features[-1]
    if features is None or not graph.feature_names:
        return {"attributes": found}
    rows = features.cpu()[torch.from_numpy(nodes)]
    for group in attributes.groups(graph.feature_names):
        known = group.known(rows).numpy()
        if group.is_category:
            columns = list(group.columns)
            values = rows[:, columns].argmax(1).double().numpy()
            categories = [printable(graph.feature_names[c].partition("=")[2]) for c in columns]
        else:
            values, categories = rows[:, group.columns[0]].double().numpy(), None
        name = printable(group.name) if categories else f"{printable(group.name)} (standard deviations from the mean)"
        arrays[f"attribute_{len(found)}"] = np.where(known, values, np.nan).astype(np.float32)
        found.append({"name": name, "categories": categories})
    return {"attributes": found}


def _embedded(model: Any, nodes: Ids, first: int, arrays: Arrays, missing: list[str]) -> list[list[Any]] | None:
    """Add the map, the nearest nodes and temporal attention; return the mean attention."""
    if not getattr(model, "has_embeddings", False):
        missing.append("No map, nearest nodes or attention: the model has no embeddings.")
        return None
    graph, steps = model.graph_, [step for step in model.steps_at_hand() if step >= first]
    report("page: embeddings")
    found, attended = _trajectories(model, nodes, steps, missing)
    report("page: map")
    place = np.full((len(graph) - first, len(nodes), 2), UNKNOWN, dtype=np.int16)
    place[len(place) - len(steps) :] = positions(found)
    arrays["position"] = place
    arrays["nearest"], arrays["similarity"] = nearest(found[-1], NEIGHBOURS)
    return None if attended is None else _attention(attended, len(nodes), steps, first, len(graph), arrays, missing)


def _trajectories(
    model: Any, nodes: Ids, steps: Sequence[int], missing: list[str]
) -> tuple[list[Floats], list[Floats] | None]:
    """The embeddings of these nodes at each step, and their temporal attention if there is any.  # each [known, …]"""
    if hasattr(model, "trajectories"):
        found, attended = model.trajectories(torch.from_numpy(nodes), steps)
    else:
        known = [torch.from_numpy(nodes[nodes < model.graph_.known[step]]) for step in steps]
        found = [model.roles(step, nodes=part) for step, part in zip(steps, known, strict=True)]
        attended = []
        if hasattr(model, "attention") and getattr(model, "blocks", "both") != "structural":
            attended = [model.attention(step, nodes=part) for step, part in zip(steps, known, strict=True)]
    if not attended:
        missing.append(f"No temporal attention: {model.method} does not have it with these options.")
    embeddings = [part.flatten(1).float().cpu().numpy() for part in found]
    return embeddings, [part.float().cpu().numpy() for part in attended] or None


def _attention(
    attended: Sequence[Floats],
    number: int,
    steps: Sequence[int],
    first: int,
    last: int,
    arrays: Arrays,
    missing: list[str],
) -> list[list[Any]]:
    """Add the temporal attention of the most active nodes; return the mean over all nodes of the page.  # [s][s]"""
    size = last - first
    chosen = np.sort(np.argsort(-arrays["degree"].sum(0, dtype=np.int64), kind="stable")[:MOST_ATTENTION])
    tables = np.zeros((len(chosen), size, size), dtype=np.uint8)
    mean: list[list[Any]] = [[None] * size for _ in range(size)]
    for step, beta in zip(steps, attended, strict=True):
        begin = max(0, step + 1 - first - beta.shape[1])  # the model may know fewer steps than the page, or more
        beta = beta[:, beta.shape[1] - (step + 1 - first - begin) :]
        there = chosen[chosen < len(beta)]
        tables[: len(there), step - first, begin : step + 1 - first] = np.rint(255 * beta[there])
        if len(beta):
            mean[step - first][begin : step + 1 - first] = np.round(beta.mean(0, dtype=np.float64), 5).tolist()
    if len(chosen) < number:
        missing.append(f"Temporal attention of single nodes is there for the {len(chosen):,} most active ones.")
    arrays["attention_node"] = chosen.astype(np.uint32)
    arrays["attention"] = tables[:, *np.tril_indices(size)]
    return mean


def _forecasts(
    model: Viewed,
    nodes: Ids,
    best: Forecasting,
    chosen: Ids,
    why: Why | None,
    arrays: Arrays,
    missing: list[str],
) -> list[str]:
    """Add the likeliest links of all nodes, and those of each chosen node; return the reasons in words."""
    graph = model.graph_
    place = np.full(graph.num_nodes, NONE, dtype=np.uint32)
    place[nodes] = np.arange(len(nodes), dtype=np.uint32)
    parts, ranks = [best], [np.arange(1, len(best.ids) + 1)]
    if len(chosen) and len(graph.nodes) > 1:
        report("page: likely contacts")
        parts.append(model.ranked_links(CONTACTS, chosen))
        ranks.append(np.zeros(len(parts[1].ids), dtype=np.int64))
    names = ("ids", "scores", "known")
    ids, scores, known = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
    ends = ids if graph.directed else np.sort(ids, axis=1)
    once = np.sort(np.unique(ends @ [graph.num_nodes, 1], return_index=True)[1])
    once = once[(place[ids[once]] != NONE).all(1)]
    if (away := int((place[best.ids] == NONE).any(1).sum())) > 0:
        missing.append(f"{away:,} of the {len(best.ids):,} likeliest links have a node that is not on the page.")
    ids = ids[once]
    arrays["row_pair"] = place[ids]
    arrays["row_rank"] = np.concatenate(ranks)[once].astype(np.uint32)
    arrays["row_score"], arrays["row_known"] = scores[once].astype(np.float64), known[once].astype(np.uint8)
    phrase = np.full((len(ids), REASONS), NONE, dtype=np.uint32)
    share = np.zeros((len(ids), REASONS), dtype=np.float32)
    phrases = dict[str, int]()
    if why is None:
        missing.append("No reasons for forecasts: only the forecast score of dysat has them.")
    else:
        report("page: reasons")
        texts, shares = why(ids, REASONS)
        for row, reasons in enumerate(texts):
            for column, text in enumerate(filter(None, reasons)):
                phrase[row, column] = phrases.setdefault(text, len(phrases))
        share[:, : shares.shape[1]] = shares
    arrays["row_phrase"], arrays["row_share"] = phrase, share
    return list(phrases)
