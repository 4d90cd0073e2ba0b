"""The whole network against loops over snapshots, neighbours and steps; no embedding knows of a later snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from graphs import MEETINGS, ONE_NODE, Plain, Vector, cuda, network_loop, randomized, seeded
from torch import Tensor
from torch.testing import assert_close

from dysat.nn.network import AttentionNetwork, Inputs
from dysat.sampling.blocks import Block, whole_block

# What the two presets of DySAT choose (the sizes are ours), and one of its own with everything that neither has.
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
    """A network, and what it takes, in float64."""

    net: AttentionNetwork
    block: Block
    inputs: Inputs
    plain: Plain
    looped: dict[str, Any]

    def embed(self, asked: list[tuple[int, int]]) -> Tensor:
        nodes, steps = torch.tensor(asked).T
        return self.net(self.block, self.inputs, self.net.plan(self.block, nodes, steps)).detach()

    def by_loop(self) -> tuple[list[tuple[int, int]], Tensor, dict[tuple[int, int], dict[int, Vector]]]:
        """Every (node, step) that has an embedding, the embeddings, and β of the last layer."""
        found, betas = network_loop(self.net, self.plain, **self.looped)
        return list(found), torch.tensor(list(found.values()), dtype=torch.float64), betas


def build(
    plain: Plain,
    setting: str,
    *,
    structural: tuple[tuple[int, int], ...] = TWO,
    temporal: tuple[tuple[int, int], ...] = ((2, 6),),
    identity: bool = True,
    features: list[list[Vector]] | None = None,
    per_step: bool = False,
    **changes: Any,
) -> Case:
    """`features[t][v]`; those of the last step count for all steps unless `per_step`."""
    chosen = {**SETTINGS[setting], **changes}
    weights, self_loops, unknown = (chosen.pop(name) for name in ("link_weights", "self_loops", "unknown"))
    block = whole_block(
        plain.graph(),
        link_weights=weights,
        self_loops=self_loops,
        lonely=self_loops or chosen["residual"] or not structural,
        unknown=unknown,
        every_step=per_step,
        dtype=torch.float64,
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
    randomized(net, seed=1)
    looped = {"normalized": weights == "normalized", "self_loops": self_loops, "unknown": unknown}
    looped |= {"identity": identity, "features": features}
    return Case(net, block, Inputs(values, per_row=per_step), plain, looped)


def tight(found: Tensor, expected: Tensor) -> None:
    assert_close(found, expected, rtol=1e-10, atol=1e-11)


@each_setting
class TestAgainstTheLoop:
    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_temporal_layers(self, setting: str, depth: int) -> None:
        case = build(MEETINGS, setting, temporal=((2, 6), (3, 6), (1, 6))[:depth])
        asked, expected, betas = case.by_loop()
        tight(case.embed(asked), expected)

        nodes, steps = torch.tensor(asked).T
        plan = case.net.plan(case.block, nodes, steps)
        found = case.net.attention(case.net.rows(case.block, case.inputs, plan), plan).detach()
        past = zip(plan.last.past.receivers.tolist(), plan.last.past_steps.tolist(), strict=True)
        tight(found, torch.tensor([betas[asked[q]][j] for q, j in past], dtype=torch.float64))
        assert len(found) == sum(len(seen) for seen in betas.values())

    @pytest.mark.parametrize("depth", [1, 2])
    def test_no_structural_layers(self, setting: str, depth: int) -> None:
        case = build(MEETINGS, setting, structural=(), temporal=((2, 6), (3, 6))[:depth])
        asked, expected, _ = case.by_loop()
        tight(case.embed(asked), expected)

    @pytest.mark.parametrize("depth", [1, 2])
    def test_no_temporal_layers(self, setting: str, depth: int) -> None:
        case = build(MEETINGS, setting, structural=TWO[:depth], temporal=())
        asked, expected, _ = case.by_loop()
        tight(case.embed(asked), expected)

    @pytest.mark.parametrize("structural", [TWO, ()], ids=["structural", "none"])
    @pytest.mark.parametrize("identity", [True, False])
    @pytest.mark.parametrize("per_step", [True, False])
    def test_features(
        self, setting: str, per_step: bool, identity: bool, structural: tuple[tuple[int, int], ...]
    ) -> None:
        values = torch.randn(MEETINGS.num_steps, MEETINGS.num_nodes, 2, generator=seeded(3), dtype=torch.float64)
        features = [values[t, :known].tolist() for t, known in enumerate(MEETINGS.known)]
        case = build(MEETINGS, setting, structural=structural, identity=identity, features=features, per_step=per_step)
        asked, expected, _ = case.by_loop()
        tight(case.embed(asked), expected)

    @pytest.mark.parametrize("depth", [0, 1, 2])
    @pytest.mark.parametrize(
        "plain",
        [ONE_NODE, Plain(MEETINGS.links[1:2], [5]), Plain([{}, {(0, 1): 2.0}], [0, 2])],
        ids=["one node", "one snapshot", "nobody known at first"],
    )
    def test_small_graphs(self, setting: str, plain: Plain, depth: int) -> None:
        case = build(plain, setting, temporal=((2, 6), (3, 6))[:depth])
        asked, expected, _ = case.by_loop()
        tight(case.embed(asked), expected)

    def test_long_histories(self, setting: str) -> None:
        """200 snapshots, of which a node has links in few."""
        links = [{(t % 2, t % 3): 1.0 + t % 5} if t % 4 else {} for t in range(200)]
        plain = Plain(links, [3] * 200)
        case = build(plain, setting, structural=((2, 4),), temporal=((2, 4),))
        asked, expected, _ = case.by_loop()
        tight(case.embed(asked[::37]), expected[::37])


LATER = {
    "other links, the same nodes": {(0, 1): 9.0, (2, 3): 4.0, (2, 4): 1.0, (4, 4): 0.5},
    "a new weight": {**MEETINGS.links[4], (0, 2): 100.0},
    "fewer links": {(0, 1): 1.0},
    "no links": {},
    "all links": {(u, v): 1.0 for u in range(7) for v in range(u + 1)},
}


@each_setting
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("change", LATER)
def test_no_embedding_knows_of_a_later_snapshot(change: str, depth: int, setting: str) -> None:
    temporal = ((2, 6), (3, 6))[:depth]
    before = build(MEETINGS, setting, temporal=temporal)
    after = build(Plain([*MEETINGS.links[:4], LATER[change]], MEETINGS.known), setting, temporal=temporal)
    for t in range(4):
        asked = [(v, t) for v in range(MEETINGS.known[t])]
        assert torch.equal(before.embed(asked), after.embed(asked))
    last = [(v, 4) for v in range(7)]
    assert not torch.allclose(before.embed(last), after.embed(last))


@each_setting
@pytest.mark.parametrize("few", [1, 3])
def test_training_on_few_queries_leaves_out_rows_but_changes_nothing(few: int, setting: str) -> None:
    """With a generator (and no dropout) the last structural layer computes the rows that are needed, and no others."""
    case = build(MEETINGS, setting)
    asked = [(v, 2) for v in range(few)]
    nodes, steps = torch.tensor(asked).T
    plan = case.net.plan(case.block, nodes, steps)
    assert len(plan.active) < 0.65 * case.block.num_active
    whole = case.net(case.block, case.inputs, plan)
    some = case.net(case.block, case.inputs, plan, generator=seeded(1))
    assert_close(some, whole)
    weights = torch.randn(whole.shape, generator=seeded(2), dtype=torch.float64)
    parameters = [p for p in case.net.parameters() if p.requires_grad]
    grads = [torch.autograd.grad((out * weights).sum(), parameters, allow_unused=True) for out in (some, whole)]
    for of_some, of_whole in zip(*grads, strict=True):
        assert_close(of_some, of_whole)


@each_setting
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_few_queries_give_what_all_give(depth: int, setting: str) -> None:
    case = build(MEETINGS, setting, temporal=((2, 6), (3, 6), (1, 6))[:depth])
    asked = [(v, t) for t, known in enumerate(MEETINGS.known) for v in range(known)]
    whole = case.embed(asked)
    for query, expected in zip(asked, whole, strict=True):
        tight(case.embed([query])[0], expected)
    order = torch.randperm(len(asked), generator=seeded(4)).tolist()
    tight(case.embed([asked[i] for i in order]), whole[order])
    some = [*order[:5], order[0]]  # one of them twice
    tight(case.embed([asked[i] for i in some]), whole[some])


@pytest.mark.parametrize(("setting", "matters"), [("text", False), ("program", True), ("mixed", True)])
def test_who_a_node_is_that_never_has_a_link(setting: str, matters: bool) -> None:
    """Nothing of it goes in but the positions, unless it is linked to itself or has a residual."""
    case = build(MEETINGS, setting)
    lonely, others = [(6, 3), (6, 4)], [(v, 4) for v in range(6)]
    before, rest = case.embed(lonely), case.embed(others)
    first = case.net.structural[0]
    with torch.no_grad():
        for table in [first.table] + ([first.residual["table"]] if "table" in first.residual else []):
            table[6] += 1
    assert torch.equal(case.embed(lonely), before) is not matters
    assert torch.equal(case.embed(others), rest)


@each_setting
def test_huge_weights_stay_finite(setting: str) -> None:
    links = [{pair: weight * 1e9 for pair, weight in step.items()} for step in MEETINGS.links[:-1]]
    case = build(Plain([*links, {(0, 1): 1e9, (0, 2): 1e-9, (1, 2): 1.0}], MEETINGS.known), setting)
    asked, expected, _ = case.by_loop()
    assert_close(case.embed(asked), expected, rtol=1e-6, atol=1e-6)
    nodes, steps = torch.tensor(asked).T
    case.net(case.block, case.inputs, case.net.plan(case.block, nodes, steps)).sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in case.net.parameters())


@cuda
@each_setting
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_same_on_cuda(depth: int, setting: str) -> None:
    case = build(MEETINGS, setting, temporal=((2, 6), (3, 6))[:depth])
    asked = [(v, t) for t, known in enumerate(MEETINGS.known) for v in range(known)]
    here = case.embed(asked)
    weights = {"link_weights": SETTINGS[setting]["link_weights"], "self_loops": SETTINGS[setting]["self_loops"]}
    lonely = weights["self_loops"] or SETTINGS[setting]["residual"]
    unknown = SETTINGS[setting]["unknown"]
    graph = MEETINGS.graph().to("cuda")
    block = whole_block(graph, lonely=lonely, unknown=unknown, dtype=torch.float64, **weights)
    nodes, steps = torch.tensor(asked, device="cuda").T
    net = case.net.to("cuda")
    tight(net(block, Inputs(), net.plan(block, nodes, steps)).detach().cpu(), here)


@each_setting
def test_no_links_at_all(setting: str) -> None:
    case = build(Plain([{}, {}], [2, 3]), setting)
    asked, expected, _ = case.by_loop()
    tight(case.embed(asked), expected)


@pytest.mark.parametrize("depth", [1, 2])
def test_no_queries(depth: int) -> None:
    """As embed(0) asks of a graph in which nobody is known at step 0."""
    case = build(MEETINGS, "text", temporal=((2, 6), (3, 6))[:depth])
    none = torch.zeros(0, dtype=torch.int64)
    assert case.net(case.block, case.inputs, case.net.plan(case.block, none, none)).shape == (0, 6)


@pytest.mark.parametrize("options", [{"residual": True}, {"temporal": ()}], ids=["residual", "no temporal layers"])
def test_a_query_before_its_node_is_known_does_not_depend_on_other_queries(options: dict[str, Any]) -> None:
    case = build(MEETINGS, "text", **options)
    assert_close(case.embed([(0, 0), (6, 0)])[1], case.embed([(1, 0), (6, 0)])[1])
