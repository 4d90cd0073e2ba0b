"""The whole network against loops over snapshots, neighbours and steps; no leakage from later snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from graphs import MEETINGS, ONE_NODE, Plain, Vector, cuda, network_loop, randomized, seeded
from torch import Tensor
from torch.testing import assert_close

from dysat.nn.network import PARTIAL_BELOW, AttentionNetwork, Inputs
from dysat.sampling.blocks import Block, whole_block

# The options of the presets `text` and `program` (with smaller layers), and a third setting with all other options.
TEXT = {
    "normalize": "receiver",
    "link_weights": "raw",
    "self_loops": False,
    "attention_bias": False,
    "scale": "features",
    "residual": False,
    "feedforward": "transformer",
    "unknown": "masked",
}
PROGRAM = {
    "normalize": "sender",
    "link_weights": "normalized",
    "self_loops": True,
    "attention_bias": True,
    "scale": "steps",
    "residual": False,
    "feedforward": "skip",
    "unknown": "zero",
}
MIXED = {
    **PROGRAM,
    "self_loops": False,
    "link_weights": "raw",
    "residual": True,
    "feedforward": "none",
    "scale": "features",
}
SETTINGS = {"text": TEXT, "program": PROGRAM, "mixed": MIXED}
each_setting = pytest.mark.parametrize("setting", SETTINGS)
TWO = ((2, 8), (3, 6))  # (heads, features) of layers


@dataclass(frozen=True)
class Case:
    """A network and its inputs, in float64 unless a test converts them."""

    net: AttentionNetwork
    block: Block
    inputs: Inputs
    plain: Plain
    looped: dict[str, Any]

    def embed(self, queries: list[tuple[int, int]]) -> Tensor:
        nodes, steps = torch.tensor(queries).T
        return self.net(self.block, self.inputs, self.net.plan(self.block, nodes, steps)).detach()

    def by_loop(self) -> tuple[list[tuple[int, int]], Tensor, dict[tuple[int, int], dict[int, Vector]]]:
        """Every (node, step) with an embedding, the embeddings, and β of the last layer."""
        embeddings, betas = network_loop(self.net, self.plain, **self.looped)
        return list(embeddings), torch.tensor(list(embeddings.values()), dtype=torch.float64), betas


def build(
    plain: Plain,
    setting: str,
    *,
    structural: tuple[tuple[int, int], ...] = TWO,
    temporal: tuple[tuple[int, int], ...] = ((2, 6),),
    identity: bool = True,
    features: list[list[Vector]] | None = None,
    per_step: bool = False,
    dtype: torch.dtype = torch.float64,
    **changes: Any,
) -> Case:
    """`features[t][v]` are attributes; unless `per_step`, those of the last step hold for all steps."""
    chosen = {**SETTINGS[setting], **changes}
    weights, self_loops, unknown = (chosen.pop(name) for name in ("link_weights", "self_loops", "unknown"))
    block = whole_block(
        plain.graph(),
        link_weights=weights,
        self_loops=self_loops,
        lonely=self_loops or chosen["residual"] or not structural,
        unknown=unknown,
        every_step=per_step,
        dtype=dtype,
    )
    values = None
    if features is not None:
        rows = [row for step in features for row in step] if per_step else features[-1]
        values = torch.tensor(rows, dtype=torch.float64)
        features = features if per_step else [features[-1]] * plain.num_steps
    net = AttentionNetwork(
        num_nodes=plain.num_nodes if identity else 0,
        num_features=0 if values is None else values.shape[1],
        num_steps=plain.num_steps,
        structural=structural,
        temporal=temporal,
        width=6,
        self_loops=self_loops,
        dropout=(0.0, 0.0),
        generator=seeded(),
        **chosen,
    )
    randomized(net, seed=1).to(dtype)
    looped = {"normalized": weights == "normalized", "self_loops": self_loops, "unknown": unknown}
    looped |= {"identity": identity, "features": features}
    return Case(net, block, Inputs(values, per_row=per_step), plain, looped)


def tight(actual: Tensor, expected: Tensor) -> None:
    assert_close(actual, expected, rtol=1e-10, atol=1e-11)


@each_setting
class TestEqualsTheLoop:
    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_temporal_layers(self, setting: str, depth: int) -> None:
        case = build(MEETINGS, setting, temporal=((2, 6), (3, 6), (1, 6))[:depth])
        queries, expected, betas = case.by_loop()
        tight(case.embed(queries), expected)

        nodes, steps = torch.tensor(queries).T
        plan = case.net.plan(case.block, nodes, steps)
        beta = case.net.attention(case.net.rows(case.block, case.inputs, plan), plan).detach()
        past = zip(plan.last.past.receivers.tolist(), plan.last.past_steps.tolist(), strict=True)
        tight(beta, torch.tensor([betas[queries[q]][j] for q, j in past], dtype=torch.float64))
        assert len(beta) == sum(len(steps) for steps in betas.values())

    @pytest.mark.parametrize("depth", [1, 2])
    def test_no_structural_layers(self, setting: str, depth: int) -> None:
        case = build(MEETINGS, setting, structural=(), temporal=((2, 6), (3, 6))[:depth])
        queries, expected, _ = case.by_loop()
        tight(case.embed(queries), expected)

    @pytest.mark.parametrize("depth", [1, 2])
    def test_no_temporal_layers(self, setting: str, depth: int) -> None:
        case = build(MEETINGS, setting, structural=TWO[:depth], temporal=())
        queries, expected, _ = case.by_loop()
        tight(case.embed(queries), expected)

    @pytest.mark.parametrize(
        ("per_step", "identity", "structural"),
        [(True, True, TWO), (True, False, ()), (False, True, ()), (False, False, TWO)],
    )
    def test_features(
        self, setting: str, per_step: bool, identity: bool, structural: tuple[tuple[int, int], ...]
    ) -> None:
        values = torch.randn(MEETINGS.num_steps, MEETINGS.num_nodes, 2, generator=seeded(3), dtype=torch.float64)
        features = [values[t, :known].tolist() for t, known in enumerate(MEETINGS.known)]
        case = build(MEETINGS, setting, structural=structural, identity=identity, features=features, per_step=per_step)
        queries, expected, _ = case.by_loop()
        tight(case.embed(queries), expected)

    @pytest.mark.parametrize("depth", [0, 1, 2])
    @pytest.mark.parametrize(
        "plain",
        [
            ONE_NODE,
            Plain(MEETINGS.links[1:2], [5]),
            Plain([{}, {(0, 1): 2.0}], [0, 2]),
            Plain([{}, {}], [2, 3]),
        ],
        ids=["one node", "one snapshot", "no known nodes at first", "no links"],
    )
    def test_small_graphs(self, setting: str, plain: Plain, depth: int) -> None:
        case = build(plain, setting, temporal=((2, 6), (3, 6))[:depth])
        queries, expected, _ = case.by_loop()
        tight(case.embed(queries), expected)

    def test_long_histories(self, setting: str) -> None:
        """60 snapshots; every node has links in few of them."""
        links = [{(t % 2, t % 3): 1.0 + t % 5} if t % 4 else {} for t in range(60)]
        case = build(Plain(links, [3] * 60), setting, structural=((2, 4),), temporal=((2, 4),))
        queries, expected, _ = case.by_loop()
        tight(case.embed(queries[::7]), expected[::7])


CHANGES = {
    "other links": {(0, 1): 9.0, (2, 3): 4.0, (2, 4): 1.0, (4, 4): 0.5},
    "a new weight": {**MEETINGS.links[4], (0, 2): 100.0},
    "fewer links": {(0, 1): 1.0},
    "no links": {},
    "all links": {(u, v): 1.0 for u in range(7) for v in range(u + 1)},
}


@each_setting
@pytest.mark.parametrize("depth", [1, 2])
def test_embeddings_do_not_depend_on_later_snapshots(depth: int, setting: str) -> None:
    temporal = ((2, 6), (3, 6))[:depth]
    before = build(MEETINGS, setting, temporal=temporal)
    by_step = [[(v, t) for v in range(known)] for t, known in enumerate(MEETINGS.known)]
    expected = [before.embed(queries) for queries in by_step]
    for name, links in CHANGES.items():
        after = build(Plain([*MEETINGS.links[:4], links], MEETINGS.known), setting, temporal=temporal)
        for t in range(4):
            assert torch.equal(after.embed(by_step[t]), expected[t]), name
        assert float((after.embed(by_step[4]) - expected[4]).abs().max()) > 1e-4, name


@each_setting
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])  # torch's operations, those of native.c
@pytest.mark.parametrize("num_queries", [1, 3])
def test_training_skips_rows_that_no_query_needs(num_queries: int, dtype: torch.dtype, setting: str) -> None:
    """With a generator (and dropout rate 0) the last structural layer computes fewer rows, with the same results."""
    case = build(MEETINGS, setting, dtype=dtype)
    nodes, steps = torch.tensor([(v, 2) for v in range(num_queries)]).T
    plan = case.net.plan(case.block, nodes, steps)
    assert len(plan.active) < PARTIAL_BELOW * case.block.num_active
    whole = case.net(case.block, case.inputs, plan)
    partial = case.net(case.block, case.inputs, plan, generator=seeded(1))
    assert_close(partial, whole)
    weights = torch.randn(whole.shape, generator=seeded(2), dtype=torch.float64).to(dtype)
    parameters = [p for p in case.net.parameters() if p.requires_grad]
    grads = [torch.autograd.grad((out * weights).sum(), parameters, allow_unused=True) for out in (partial, whole)]
    for actual, expected in zip(*grads, strict=True):
        assert (actual is None) == (expected is None)
        if actual is not None:
            assert_close(actual, expected)


@each_setting
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_embeddings_do_not_depend_on_other_queries(depth: int, setting: str) -> None:
    case = build(MEETINGS, setting, temporal=((2, 6), (3, 6), (1, 6))[:depth])
    queries = [(v, t) for t, known in enumerate(MEETINGS.known) for v in range(known)]
    whole = case.embed(queries)
    for i in range(0, len(queries), 3):
        tight(case.embed([queries[i]])[0], whole[i])
    order = torch.randperm(len(queries), generator=seeded(4)).tolist()
    tight(case.embed([queries[i] for i in order]), whole[order])
    few = [*order[:5], order[0]]  # one of them twice
    tight(case.embed([queries[i] for i in few]), whole[few])


@pytest.mark.parametrize(("setting", "matters"), [("text", False), ("program", True), ("mixed", True)])
def test_identity_of_an_isolated_node(setting: str, matters: bool) -> None:
    """Its embedding depends only on the positions, unless it has a self-loop or a residual."""
    case = build(MEETINGS, setting)
    isolated, others = [(6, 3), (6, 4)], [(v, 4) for v in range(6)]
    before, rest = case.embed(isolated), case.embed(others)
    first = case.net.structural[0]
    with torch.no_grad():
        for table in [first.table] + ([first.residual["table"]] if "table" in first.residual else []):
            table[6] += 1
    assert torch.equal(case.embed(isolated), before) is not matters
    assert torch.equal(case.embed(others), rest)


@each_setting
def test_huge_weights_stay_finite(setting: str) -> None:
    links = [{pair: weight * 1e9 for pair, weight in step.items()} for step in MEETINGS.links[:-1]]
    case = build(Plain([*links, {(0, 1): 1e9, (0, 2): 1e-9, (1, 2): 1.0}], MEETINGS.known), setting)
    queries, expected, _ = case.by_loop()
    assert_close(case.embed(queries), expected, rtol=1e-6, atol=1e-6)
    nodes, steps = torch.tensor(queries).T
    case.net(case.block, case.inputs, case.net.plan(case.block, nodes, steps)).sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in case.net.parameters())


@cuda
@each_setting
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_equal_on_cuda(depth: int, setting: str) -> None:
    case = build(MEETINGS, setting, temporal=((2, 6), (3, 6))[:depth])
    queries = [(v, t) for t, known in enumerate(MEETINGS.known) for v in range(known)]
    here = case.embed(queries)
    weights = {"link_weights": SETTINGS[setting]["link_weights"], "self_loops": SETTINGS[setting]["self_loops"]}
    lonely = weights["self_loops"] or SETTINGS[setting]["residual"]
    unknown = SETTINGS[setting]["unknown"]
    graph = MEETINGS.graph().to("cuda")
    block = whole_block(graph, lonely=lonely, unknown=unknown, dtype=torch.float64, **weights)
    nodes, steps = torch.tensor(queries, device="cuda").T
    net = case.net.to("cuda")
    tight(net(block, Inputs(), net.plan(block, nodes, steps)).detach().cpu(), here)


@pytest.mark.parametrize("depth", [1, 2])
def test_no_queries(depth: int) -> None:
    """As for embed(0) of a graph without known nodes at step 0."""
    case = build(MEETINGS, "text", temporal=((2, 6), (3, 6))[:depth])
    none = torch.zeros(0, dtype=torch.int64)
    assert case.net(case.block, case.inputs, case.net.plan(case.block, none, none)).shape == (0, 6)


@pytest.mark.parametrize("options", [{"residual": True}, {"temporal": ()}], ids=["residual", "no temporal layers"])
def test_queries_before_a_node_is_known_do_not_depend_on_other_queries(options: dict[str, Any]) -> None:
    case = build(MEETINGS, "text", **options)
    assert_close(case.embed([(0, 0), (6, 0)])[1], case.embed([(1, 0), (6, 0)])[1])
