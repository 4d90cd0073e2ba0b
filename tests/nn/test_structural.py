"""Structural attention, Eq. (1), against a loop over nodes, neighbours and heads, and against PyG's graph attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphs import MEETINGS, ONE_NODE, Plain, Vector, one_hot, randomized, seeded, structural_loop
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.testing import assert_close

from dysat.nn.structural import StructuralAttention
from dysat.sampling.blocks import Block, Pattern, whole_block

pytestmark = pytest.mark.usefixtures("each_path")

N, F_IN = MEETINGS.num_nodes, 3
FEATURES = torch.randn(N, F_IN, generator=seeded(1), dtype=torch.float64)
INPUTS = {"identity": (N, 0), "features": (0, F_IN), "both": (N, F_IN)}
WEIGHTS = {"raw": {}, "normalized": {"link_weights": "normalized", "self_loops": True}}
both_sides = pytest.mark.parametrize("side", ["receiver", "sender"])


def make(
    size: int = 8, heads: int = 2, num_nodes: int = N, in_features: int = 0, **options: Any
) -> StructuralAttention:
    layer = StructuralAttention(
        size, heads, num_nodes=num_nodes, in_features=in_features, generator=seeded(), **options
    )
    return randomized(layer, seed=2)


def block_of(plain: Plain, weights: str = "raw", **options: Any) -> Block:
    return whole_block(plain.graph(), dtype=torch.float64, **WEIGHTS[weights], **options)


def looked_up(layer: StructuralAttention, nodes: Tensor) -> Pattern:
    one_each = torch.arange(len(nodes) + 1)
    return Pattern(one_each[:-1], nodes, one_each, len(layer.table))


def given(layer: StructuralAttention, nodes: Tensor) -> tuple[Pattern | None, Tensor | None]:
    """What the layer takes of these nodes: ids, attributes, or both."""
    ids = None if layer.table is None else looked_up(layer, nodes)
    return ids, (None if layer.weight is None else FEATURES[nodes])


def vectors(layer: StructuralAttention, plain: Plain, t: int) -> dict[int, Vector]:
    """The same for the loop: one-hot and attributes in one vector."""
    found = {}
    for v in range(plain.known[t]):
        found[v] = one_hot(v, len(layer.table)) if layer.table is not None else []
        found[v] += FEATURES[v].tolist() if layer.weight is not None else []
    return found


def by_loop(layers: list[StructuralAttention], plain: Plain, weights: str) -> dict[tuple[int, int], Vector]:
    """(node, step) → output, for all known nodes."""
    found = {}
    for t in range(plain.num_steps):
        x, loops = vectors(layers[0], plain, t), weights == "normalized"
        for layer in layers:
            x = structural_loop(layer, x, plain.adjacency(t, normalized=loops, self_loops=loops))
        found |= {(v, t): z for v, z in x.items()}
    return found


def at_rows(values: dict[tuple[int, int], Vector], block: Block) -> Tensor:
    places = zip(block.node.tolist(), block.step.tolist(), strict=True)
    return torch.tensor([values[place] for place in places], dtype=torch.float64)


@both_sides
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("size", "heads", "bias"), [(8, 2, True), (6, 6, False), (3, 1, True), (6, 2, False)])
class TestAgainstTheLoop:
    def test_rows(
        self, side: str, inputs: str, weights: str, residual: bool, size: int, heads: int, bias: bool
    ) -> None:
        layer = make(size, heads, *INPUTS[inputs], normalize=side, residual=residual, bias=bias)
        block = block_of(MEETINGS, weights)
        z = layer(*given(layer, block.node), block.links, block.weights)
        assert_close(z, at_rows(by_loop([layer], MEETINGS, weights), block), rtol=1e-12, atol=1e-12)

    def test_nodes_alone(
        self, side: str, inputs: str, weights: str, residual: bool, size: int, heads: int, bias: bool
    ) -> None:
        layer = make(size, heads, *INPUTS[inputs], normalize=side, residual=residual, bias=bias)
        empty = 2  # a snapshot without links
        values = by_loop([layer], MEETINGS, weights)
        nodes = torch.arange(MEETINGS.known[empty])
        z = layer.isolated(*given(layer, nodes), linked=weights == "normalized")
        expected = torch.tensor([values[v, empty] for v in nodes.tolist()], dtype=torch.float64)
        assert_close(z, expected, rtol=1e-12, atol=1e-12)


@both_sides
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("residual", [False, True])
def test_two_layers(side: str, weights: str, residual: bool) -> None:
    """The second layer sees neighbours of neighbours, itself among them, and nothing of other snapshots."""
    options = {"normalize": side, "residual": residual, "bias": True}
    first, second = make(8, 4, N, F_IN, **options), make(6, 2, 0, 8, **options)
    block = block_of(MEETINGS, weights)
    x = first(*given(first, block.node), block.links, block.weights)
    z = second(None, x, block.links, block.weights)
    assert_close(z, at_rows(by_loop([first, second], MEETINGS, weights), block), rtol=1e-12, atol=1e-12)


@both_sides
def test_what_alpha_adds_up_to(side: str) -> None:
    layer, block = make(normalize=side), block_of(MEETINGS)
    h = layer.table[block.node].view(block.num_active, layer.num_heads, -1)
    scores = [torch.einsum("ahf,hf->ah", h, half) for half in (layer.sender, layer.receiver)]
    alpha = layer.attention(*scores, block.links, block.weights)
    ends = block.links.receivers if side == "receiver" else block.links.senders
    for row in range(block.num_active):
        assert_close(alpha[ends == row].sum(0), torch.ones(layer.num_heads, dtype=torch.float64))


@pytest.mark.parametrize("heads", [1, 4])
def test_equals_graph_attention_of_pyg(heads: int) -> None:
    """Snapshot by snapshot, with links of weight 1; the ELU is ours."""
    pyg = pytest.importorskip("torch_geometric.nn")
    unit = Plain([dict.fromkeys(links, 1.0) for links in MEETINGS.links], MEETINGS.known)
    layer, block = make(8, heads, 0, F_IN), block_of(unit)
    z = layer(None, FEATURES[block.node], block.links, block.weights)
    theirs = pyg.GATConv(F_IN, 8 // heads, heads, negative_slope=0.2, add_self_loops=False, bias=False).double()
    with torch.no_grad():
        theirs.lin.weight.copy_(layer.weight.T)
        theirs.att_src.copy_(layer.sender)
        theirs.att_dst.copy_(layer.receiver)
    for t, links in enumerate(unit.links):
        pairs = {(u, v) for u, v in links} | {(v, u) for u, v in links}
        edges = torch.tensor(sorted(pairs), dtype=torch.int64).view(-1, 2).T
        expected = torch.nn.functional.elu(theirs(FEATURES[: unit.known[t]], edges))
        here = block.step == t
        assert sorted(block.node[here].tolist()) == sorted({v for pair in pairs for v in pair})
        assert_close(z[here], expected[block.node[here]])


@both_sides
@pytest.mark.parametrize("inputs", INPUTS)
def test_gradients(side: str, inputs: str) -> None:
    layer = make(4, 2, *INPUTS[inputs], normalize=side, residual=True, bias=True)
    block = block_of(MEETINGS, "normalized")
    nodes, x = given(layer, block.node)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    starts = [p.detach().clone().requires_grad_() for p in parameters]
    starts += [] if x is None else [x.clone().requires_grad_()]

    def forward(*values: Tensor) -> Tensor:
        own = values[len(names)] if x is not None else None
        return functional_call(layer, dict(zip(names, values, strict=False)), (nodes, own, block.links, block.weights))

    assert gradcheck(forward, starts)


def test_a_self_loop_only() -> None:
    """α = 1, whatever the weight and the side."""
    for side in ("receiver", "sender"):
        layer, block = make(num_nodes=1, normalize=side), block_of(ONE_NODE)
        z = layer(looked_up(layer, block.node), None, block.links, block.weights)
        assert_close(z, torch.nn.functional.elu(layer.table))


@both_sides
def test_rows_without_entries_are_like_nodes_alone(side: str) -> None:
    layer = make(in_features=F_IN, normalize=side, residual=True, bias=True)
    block = block_of(MEETINGS, every_step=True)
    z = layer(*given(layer, block.node), block.links, block.weights)
    none = block.links.offsets.diff() == 0
    assert int(none.sum()) == 0 + 1 + 5 + 3 + 2  # by snapshot
    assert_close(z[none], layer.isolated(*given(layer, block.node[none]), linked=False))


@both_sides
def test_huge_weights_stay_finite(side: str) -> None:
    huge = Plain([{(0, 1): 1e9, (1, 2): 1e-9, (2, 2): 1e9, (0, 2): 1.0}], [3])
    layer, block = make(num_nodes=3, normalize=side), block_of(huge)
    z = layer(looked_up(layer, block.node), None, block.links, block.weights)
    assert_close(z, at_rows(by_loop([layer], huge, "raw"), block), rtol=1e-9, atol=1e-9)
    z.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in layer.parameters())


def test_no_rows() -> None:
    layer, block = make(), block_of(Plain([{}], [1]))
    assert layer(looked_up(layer, block.node), None, block.links, block.weights).shape == (0, 8)


LONERS = Plain([{(v, v): 1.0 for v in range(3000)}], [3000])


def share_of_zeros(z: Tensor) -> float:
    return float((z == 0).double().mean())


class TestDropout:
    def test_of_the_one_hot_input_and_of_alpha(self) -> None:
        """Of a node with a self-loop alone: 0 unless both its 1 and its α are kept, which are then doubled."""
        layer, block = make(8, 4, 3000, rate=0.5), block_of(LONERS)
        z = layer(looked_up(layer, block.node), None, block.links, block.weights, generator=seeded(5))
        assert abs(share_of_zeros(z) - 0.75) < 0.02
        kept = z != 0
        assert_close(z[kept], torch.nn.functional.elu(4 * layer.table)[kept])
        inputs_kept = (z.view(3000, 4, 2) != 0).any(2).any(1).double().mean()  # the 1 is shared by all heads
        assert abs(float(inputs_kept) - 0.5 * (1 - 0.5**4)) < 0.04

    def test_of_attributes(self) -> None:
        layer, block = make(1, 1, 0, 1, rate=0.5), block_of(LONERS)
        x = torch.ones(3000, 1, dtype=torch.float64)
        z = layer(None, x, block.links, block.weights, generator=seeded(6))
        assert abs(share_of_zeros(z) - 0.75) < 0.04
        whole = torch.nn.functional.elu(4 * layer.weight).expand_as(z)
        assert_close(z[z != 0], whole[z != 0])

    def test_none_without_a_generator(self) -> None:
        layer, block = make(rate=0.9), block_of(MEETINGS)
        z = layer(looked_up(layer, block.node), None, block.links, block.weights)
        assert_close(z, at_rows(by_loop([layer], MEETINGS, "raw"), block))

    def test_a_node_alone_and_linked_to_itself_drops_alpha_too(self) -> None:
        layer = make(8, 4, 3000, rate=0.5)
        z = layer.isolated(looked_up(layer, torch.arange(3000)), None, linked=True, generator=seeded(7))
        assert abs(share_of_zeros(z) - 0.75) < 0.02
