"""Blocks compared with loops over snapshots, and patterns compared with lists of entries."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import dysat
from dysat.data.csr import Snapshot
from dysat.errors import GraphError
from dysat.sampling.blocks import PIECE, Block, Pattern, whole_block

Links = Sequence[Mapping[tuple[int, int], float]]


def random_links(num_steps: int, num_nodes: int, num_links: int) -> tuple[Links, list[int]]:
    """Random links with some self-loops; a third of the snapshots are empty, and the number of known nodes grows."""
    rng = np.random.default_rng(0)
    links, known = [], []
    for t in range(num_steps):
        known.append(min(num_nodes, 2 + t * num_nodes // num_steps * 2))
        pairs = rng.integers(0, known[-1], (num_links * (t % 3 > 0), 2)).tolist()
        links.append({(min(p), max(p)): float(w) for p, w in zip(pairs, rng.uniform(0.1, 5, len(pairs)), strict=True)})
    return links, known


# For each graph: the links of each snapshot with weights, and the numbers of known nodes.
GRAPHS: dict[str, tuple[Links, list[int]]] = {
    "growing": (
        [
            {(0, 1): 1.0, (1, 2): 2.0},
            {(3, 0): 3.0, (3, 3): 2.0, (3, 4): 0.1, (0, 1): 0.5},
            {},
            {(5, 5): 7.0, (0, 1): 2.0, (1, 4): 1e9, (0, 4): 4.0},
        ],
        [3, 5, 5, 7],  # node 6 never has a link
    ),
    "no known nodes at first": ([{}, {(0, 1): 1.0}], [0, 2]),
    "one snapshot": ([{(0, 2): 1.5, (1, 1): 2.0}], [3]),
    "one node": ([{(0, 0): 2.0}, {}], [1, 1]),
    "no links": ([{}, {}], [1, 2]),
    "many snapshots": random_links(40, 12, 6),
}
each_graph = pytest.mark.parametrize("name", GRAPHS)


def build(links: Links, known: list[int]) -> dysat.DynamicGraph:
    snapshots = []
    for t, (pairs, size) in enumerate(zip(links, known, strict=True)):
        u, v = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in range(2))
        weights = np.array(list(pairs.values()), dtype=np.float64)
        snapshots.append(Snapshot.from_links(u, v, weights, num_nodes=size, start=t, stop=t + 1))
    return dysat.DynamicGraph(np.arange(known[-1]), tuple(snapshots), clock="step")


def expected_rows(
    name: str, *, normalized: bool = False, self_loops: bool = False, every_step: bool = False
) -> dict[tuple[int, int], dict[int, float]]:
    """The rows in order: (step, node) → neighbour → weight."""
    rows: dict[tuple[int, int], dict[int, float]] = {}
    for t, (pairs, size) in enumerate(zip(*GRAPHS[name], strict=True)):
        a: dict[int, dict[int, float]] = {v: {} for v in range(size)}
        for (u, v), weight in pairs.items():
            a[u][v] = a[v][u] = weight
        if not every_step:
            a = {v: row for v, row in a.items() if row}
        if self_loops:
            for v, row in a.items():
                row[v] = row.get(v, 0.0) + 1.0
        if normalized:
            degree = {v: math.fsum(row.values()) for v, row in a.items()}
            a = {v: {u: w / math.sqrt(degree[v]) / math.sqrt(degree[u]) for u, w in r.items()} for v, r in a.items()}
        rows |= {(t, v): row for v, row in a.items()}
    return rows


def found_rows(block: Block) -> dict[tuple[int, int], dict[int, float]]:
    """The same, read from a block; checks that entries stay within their snapshot and do not repeat."""
    places = list(zip(block.step.tolist(), block.node.tolist(), strict=True))
    rows: dict[tuple[int, int], dict[int, float]] = {}
    offsets, senders, weights = block.links.offsets.tolist(), block.links.senders.tolist(), block.weights.tolist()
    for i, place in enumerate(places):
        entries = range(offsets[i], offsets[i + 1])
        assert block.links.receivers[offsets[i] : offsets[i + 1]].tolist() == [i] * len(entries)
        assert all(places[senders[e]][0] == place[0] for e in entries)
        rows[place] = {places[senders[e]][1]: weights[e] for e in entries}
        assert len(rows[place]) == len(entries)
    assert offsets[0] == 0 and offsets[-1] == len(senders) == len(weights)
    return rows


@each_graph
@pytest.mark.parametrize(  # every two of the four options in all combinations
    ("normalized", "self_loops", "every_step", "dtype"),
    [
        (False, False, False, torch.float32),
        (False, True, True, torch.float64),
        (True, False, True, torch.float32),
        (True, True, False, torch.float32),
        (True, False, False, torch.float64),
    ],
)
def test_rows_entries_and_weights(
    name: str, normalized: bool, self_loops: bool, every_step: bool, dtype: torch.dtype
) -> None:
    block = whole_block(
        build(*GRAPHS[name]),
        link_weights="normalized" if normalized else "raw",
        self_loops=self_loops,
        every_step=every_step,
        dtype=dtype,
    )
    expected = expected_rows(name, normalized=normalized, self_loops=self_loops, every_step=every_step)
    found = found_rows(block)
    assert block.weights.dtype == dtype
    assert list(found) == list(expected)
    assert [set(row) for row in found.values()] == [set(row) for row in expected.values()]
    numbers = torch.tensor([w for v, row in found.items() for _, w in sorted(row.items())], dtype=torch.float64)
    wanted = torch.tensor([w for v, row in expected.items() for _, w in sorted(row.items())], dtype=torch.float64)
    assert_close(numbers, wanted, rtol=1e-6 if dtype == torch.float32 else 1e-14, atol=0)

    assert block.num_active == len(expected) == block.links.num_receivers == block.links.num_senders
    assert block.known == tuple(GRAPHS[name][1])
    steps = [step for step, _ in expected]
    assert block.steps.tolist() == [sum(s < t for s in steps) for t in range(len(block.known) + 1)]
    assert listed(block.nodes) == list(enumerate(v for _, v in expected))
    assert block.nodes.num_senders == block.num_nodes
    others = [len([u for u in row if u != v]) for (_, v), row in expected.items()]
    assert block.degrees.tolist() == others


@each_graph
@pytest.mark.parametrize(
    ("lonely", "unknown", "every_step"),
    [(True, "masked", False), (True, "zero", True), (False, "masked", True), (False, "zero", False)],
)
def test_the_row_of_every_node_at_every_step(name: str, lonely: bool, unknown: str, every_step: bool) -> None:
    links, known = GRAPHS[name]
    block = whole_block(build(links, known), lonely=lonely, unknown=unknown, every_step=every_step)
    number = {place: i for i, place in enumerate(expected_rows(name, every_step=every_step))}
    num_active, num_nodes = len(number), known[-1]
    nothing, row_of = num_active + num_nodes, block.row_of.tolist()
    for v, t in itertools.product(range(num_nodes), range(len(links))):
        if (t, v) in number:
            row = number[t, v]
        elif v < known[t]:
            row = num_active + v if lonely else nothing
        else:
            row = -1 if unknown == "masked" else nothing
        assert row_of[v][t] == row
    assert (block.num_nodes, block.num_steps) == (num_nodes, len(links)) == tuple(block.row_of.shape)


@each_graph
@pytest.mark.parametrize(("lonely", "unknown"), [(False, "masked"), (True, "zero")])
def test_histories(name: str, lonely: bool, unknown: str) -> None:
    links, known = GRAPHS[name]
    block = whole_block(build(links, known), lonely=lonely, unknown=unknown)
    row_of = block.row_of.tolist()
    asked = list(itertools.product(range(known[-1]), range(len(links))))[:: 1 + len(links) // 20]
    asked = asked[::-1] + asked[:1]  # not in order, and one of them twice
    nodes, steps = torch.tensor(asked).T
    past, at = block.histories(nodes, steps)
    entries = []
    for i, (v, t) in enumerate(asked):
        entries += [(i, row_of[v][s], s) for s in range(t) if v < known[s] or unknown == "zero"]
        own = row_of[v][t] if row_of[v][t] >= 0 else block.num_active + block.num_nodes  # not known yet: the zero row
        entries.append((i, own, t))
    assert list(zip(past.receivers.tolist(), past.senders.tolist(), at.tolist(), strict=True)) == entries
    counts = Counter(i for i, _, _ in entries)
    assert past.offsets.diff().tolist() == [counts[i] for i in range(len(asked))] and past.offsets[0] == 0
    assert past.num_senders == block.num_active + block.num_nodes + 1


def test_histories_of_no_queries() -> None:
    block = whole_block(build(*GRAPHS["growing"]))
    none = torch.zeros(0, dtype=torch.int64)
    past, at = block.histories(none, none)
    assert past.offsets.tolist() == [0] and past.num_entries == len(at) == 0


def test_self_loops_add_to_those_of_the_data() -> None:
    graph = build(*GRAPHS["one node"])
    assert whole_block(graph).weights.tolist() == [2.0]
    assert whole_block(graph, self_loops=True).weights.tolist() == [3.0]
    assert whole_block(graph, self_loops=True, link_weights="normalized").weights.tolist() == [1.0]


def test_links_of_weight_zero_keep_a_normalized_weight_of_zero() -> None:
    block = whole_block(build([{(0, 1): 0.0, (1, 2): 1.0}], [3]), link_weights="normalized")
    assert block.weights.tolist() == [0.0, 0.0, 1.0, 1.0]


def test_weights_too_large_for_float32_are_refused() -> None:
    assert bool(whole_block(build([{(0, 1): 1e29}], [2])).weights.isfinite().all())
    with pytest.raises(GraphError, match="weight 1e\\+39"):
        whole_block(build([{(0, 1): 1e39}], [2]))


# Entries (receiver, sender) in order of receiver; receivers 1 and 4 and sender 2 have none.
ENTRIES = [(0, 3), (0, 0), (0, 1), (2, 0), (3, 4), (3, 3), (3, 1), (3, 0)]
PATTERNS = {"several": (ENTRIES, 5, 6), "no entries": ([], 3, 2), "no rows": ([], 0, 0), "one entry": ([(0, 0)], 1, 1)}
each_pattern = pytest.mark.parametrize("name", PATTERNS)


def pattern(name: str) -> Pattern:
    entries, num_receivers, num_senders = PATTERNS[name]
    counts = torch.tensor([sum(r == i for r, _ in entries) for i in range(num_receivers)], dtype=torch.int64)
    return Pattern.from_counts(counts, torch.tensor([s for _, s in entries], dtype=torch.int64), num_senders)


def listed(pattern: Pattern) -> list[tuple[int, int]]:
    return list(zip(pattern.receivers.tolist(), pattern.senders.tolist(), strict=True))


@each_pattern
def test_from_counts(name: str) -> None:
    entries, num_receivers, num_senders = PATTERNS[name]
    made = pattern(name)
    assert listed(made) == entries
    assert made.offsets.tolist() == [sum(r < i for r, _ in entries) for i in range(num_receivers + 1)]
    assert (made.num_receivers, made.num_senders, made.num_entries) == (num_receivers, num_senders, len(entries))


@each_pattern
def test_by_sender_and_transposed(name: str) -> None:
    entries, num_receivers, num_senders = PATTERNS[name]
    made = pattern(name)
    order = sorted(range(len(entries)), key=lambda e: (entries[e][1], entries[e][0]))
    assert made.by_sender.tolist() == order
    turned = made.transposed
    assert listed(turned) == [(entries[e][1], entries[e][0]) for e in order]
    assert turned.offsets.tolist() == [sum(s < i for _, s in entries) for i in range(num_senders + 1)]
    assert (turned.num_receivers, turned.num_senders) == (num_senders, num_receivers)


@each_pattern
@pytest.mark.parametrize("num_heads", [1, 3])
def test_expanded_has_a_receiver_for_every_head(name: str, num_heads: int) -> None:
    entries, num_receivers, _ = PATTERNS[name]
    made = pattern(name)
    expected, starts = [], []
    for receiver, head in itertools.product(range(num_receivers), range(num_heads)):
        starts.append(len(expected))
        for e, (r, s) in enumerate(entries):
            if r == receiver:
                expected.append((e * num_heads + head, s * num_heads + head))
    for _ in range(2):  # the second time from the cache
        place, senders, begin = made.expanded(num_heads)
        assert list(zip(place.tolist(), senders.tolist(), strict=True)) == expected
        assert begin.tolist() == starts


def test_lookup_has_one_entry_per_receiver() -> None:
    made = Pattern.lookup(torch.tensor([3, 0, 3]), 5)
    assert listed(made) == [(0, 3), (1, 0), (2, 3)]
    assert made.offsets.tolist() == [0, 1, 2, 3] and made.num_senders == 5


@pytest.mark.parametrize("counts", [[], [0, 0], [3, 0, PIECE, PIECE + 1, 1, 5 * PIECE, 0], [1] * 5, [700]])
def test_pieces_hold_at_most_32_entries(counts: list[int]) -> None:
    """A receiver without entries has one empty piece."""
    made = Pattern.from_counts(torch.tensor(counts, dtype=torch.int64), torch.zeros(sum(counts), dtype=torch.int64), 1)
    expected = []
    for receiver, count in enumerate(counts):
        start = sum(counts[:receiver])
        firsts = list(range(start, start + count, PIECE)) or [start]
        expected += [(receiver, first, len(firsts) > 1) for first in firsts]
    found = made.pieces
    columns = (found.receivers.tolist(), found.firsts.tolist(), found.shared.tolist())
    assert list(zip(*columns, strict=True)) == expected
    assert found.long.tolist() == [receiver for receiver, count in enumerate(counts) if count > PIECE]


def test_part_selects_receivers_with_their_entries_and_senders() -> None:
    receivers, senders = zip(*ENTRIES, strict=True)
    counts = torch.bincount(torch.tensor(receivers), minlength=5)
    whole = Pattern.from_counts(counts, torch.tensor(senders), 6)
    part = whole.part(torch.tensor([0, 1, 3]))
    assert [ENTRIES[e] for e in part.entries.tolist()] == [entry for entry in ENTRIES if entry[0] in (0, 1, 3)]
    assert part.senders.tolist() == [0, 1, 3, 4]
    named = part.receivers[part.pattern.receivers], part.senders[part.pattern.senders]
    assert list(zip(*(n.tolist() for n in named), strict=True)) == [ENTRIES[e] for e in part.entries.tolist()]
    assert part.pattern.num_senders == 4
