"""Structural attention, Eq. (1) and Eq. (3), against a loop over nodes, neighbours and heads, and against PyG."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from graphs import MEETINGS, ONE_NODE, Plain, Vector, one_hot, randomized, seeded, structural_loop
from torch import Tensor
from torch.func import functional_call
from torch.testing import assert_close

from dysat.nn.structural import StructuralAttention
from dysat.sampling.blocks import Block, Pattern, whole_block

gradcheck = partial(torch.autograd.gradcheck, fast_mode=True)
N, F_IN = MEETINGS.num_nodes, 3
FEATURES = torch.randn(N, F_IN, generator=seeded(1), dtype=torch.float64)
INPUTS = {"identity": (N, 0), "features": (0, F_IN), "both": (N, F_IN)}
WEIGHTS = {"raw": {}, "normalized": {"link_weights": "normalized", "self_loops": True}}
# (inputs, residual, weights, size, heads, bias): every kind of input with and without a residual, every size twice.
OPTIONS = [
    ("identity", False, "raw", 8, 2, True),
    ("identity", True, "normalized", 6, 6, False),
    ("features", False, "normalized", 3, 1, True),
    ("features", True, "raw", 6, 2, False),
    ("both", False, "raw", 6, 6, False),
    ("both", True, "normalized", 8, 2, True),
    ("both", True, "raw", 3, 1, True),
    ("identity", False, "normalized", 6, 2, False),
]
each_option = pytest.mark.parametrize(("inputs", "residual", "weights", "size", "heads", "bias"), OPTIONS)
both_sides = pytest.mark.parametrize("side", ["receiver", "sender"])
# In float64 the operations are torch's, in float32 those of native.c.
both_dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


def make(
    size: int = 8, heads: int = 2, num_nodes: int = N, in_features: int = 0, **options: Any
) -> StructuralAttention:
    layer = StructuralAttention(
        size, heads, num_nodes=num_nodes, in_features=in_features, generator=seeded(), **options
    )
    return randomized(layer, seed=2)


def block_of(plain: Plain, weights: str = "raw", dtype: torch.dtype = torch.float64, **options: Any) -> Block:
    return whole_block(plain.graph(), dtype=dtype, **WEIGHTS[weights], **options)


def lookup(layer: StructuralAttention, nodes: Tensor) -> Pattern:
    return Pattern.lookup(nodes, len(layer.table))


def inputs_of(layer: StructuralAttention, nodes: Tensor) -> tuple[Pattern | None, Tensor | None]:
    """The layer's input for these nodes: identities, attributes, or both."""
    ids = None if layer.table is None else lookup(layer, nodes)
    return ids, (None if layer.weight is None else FEATURES[nodes].to(layer.weight.dtype))


def vectors(layer: StructuralAttention, plain: Plain, t: int) -> dict[int, Vector]:
    """The same input for the loop: one-hot identity and attributes in one vector."""
    x = {}
    for v in range(plain.known[t]):
        x[v] = one_hot(v, len(layer.table)) if layer.table is not None else []
        x[v] += FEATURES[v].to(layer.sender.dtype).tolist() if layer.weight is not None else []
    return x


def by_loop(layers: list[StructuralAttention], plain: Plain, weights: str) -> dict[tuple[int, int], Vector]:
    """(node, step) → output, for all known nodes."""
    outputs = {}
    for t in range(plain.num_steps):
        x, loops = vectors(layers[0], plain, t), weights == "normalized"
        for layer in layers:
            x = structural_loop(layer, x, plain.adjacency(t, normalized=loops, self_loops=loops))
        outputs |= {(v, t): z for v, z in x.items()}
    return outputs


def at_rows(values: dict[tuple[int, int], Vector], block: Block) -> Tensor:
    places = zip(block.node.tolist(), block.step.tolist(), strict=True)
    return torch.tensor([values[place] for place in places], dtype=torch.float64)


def close(actual: Tensor, expected: Tensor) -> None:
    tolerance = 1e-12 if actual.dtype == torch.float64 else 1e-5
    assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


@both_dtypes
@both_sides
@each_option
def test_equals_the_loop(
    dtype: torch.dtype, side: str, inputs: str, residual: bool, weights: str, size: int, heads: int, bias: bool
) -> None:
    layer = make(size, heads, *INPUTS[inputs], normalize=side, residual=residual, bias=bias).to(dtype)
    block = block_of(MEETINGS, weights, dtype)
    expected = at_rows(by_loop([layer], MEETINGS, weights), block)
    close(layer(*inputs_of(layer, block.node), block.links, block.weights), expected)


@each_option
def test_isolated_nodes_equal_the_loop(
    inputs: str, residual: bool, weights: str, size: int, heads: int, bias: bool
) -> None:
    layer = make(size, heads, *INPUTS[inputs], residual=residual, bias=bias)
    empty = 2  # a snapshot without links
    values = by_loop([layer], MEETINGS, weights)
    nodes = torch.arange(MEETINGS.known[empty])
    z = layer.isolated(*inputs_of(layer, nodes), linked=weights == "normalized")
    close(z, torch.tensor([values[v, empty] for v in nodes.tolist()], dtype=torch.float64))


@both_dtypes
@both_sides
@pytest.mark.parametrize(("weights", "residual"), [("raw", False), ("normalized", True)])
def test_two_layers_equal_the_loop(dtype: torch.dtype, side: str, weights: str, residual: bool) -> None:
    """The second layer reaches neighbours of neighbours, the node itself among them, in the same snapshot only."""
    options = {"normalize": side, "residual": residual, "bias": True}
    first, second = make(8, 4, N, F_IN, **options).to(dtype), make(6, 2, 0, 8, **options).to(dtype)
    block = block_of(MEETINGS, weights, dtype)
    x = first(*inputs_of(first, block.node), block.links, block.weights)
    z = second(None, x, block.links, block.weights)
    close(z, at_rows(by_loop([first, second], MEETINGS, weights), block))


@both_dtypes
@both_sides
@pytest.mark.parametrize("residual", [False, True])
def test_a_part_of_the_receivers_equals_the_whole(dtype: torch.dtype, side: str, residual: bool) -> None:
    """Output and gradients, for a layer on features (which skips other senders) and one on identities."""
    rows = torch.tensor([0, 2, 5])
    for num_nodes, in_features in ((0, F_IN), (N, 0)):
        layer = make(8, 2, num_nodes, in_features, normalize=side, residual=residual, bias=True).to(dtype)
        block = block_of(MEETINGS, dtype=dtype)
        nodes, x = inputs_of(layer, block.node)
        learned = [*layer.parameters(), *([] if x is None else [x.requires_grad_()])]
        whole = layer(nodes, x, block.links, block.weights)[rows]
        part = layer(nodes, x, block.links, block.weights, part=block.links.part(rows))
        close(part, whole.double())
        weights = torch.randn(whole.shape, generator=seeded(3)).to(dtype)
        gradients = [torch.autograd.grad((z * weights).sum(), learned) for z in (part, whole)]
        for actual, expected in zip(*gradients, strict=True):
            close(actual, expected.double())


@both_sides
def test_alpha_sums_to_one(side: str) -> None:
    layer, block = make(normalize=side), block_of(MEETINGS)
    h = layer.table[block.node].view(block.num_active, layer.num_heads, -1)
    scores = [torch.einsum("ahf,hf->ah", h, half) for half in (layer.sender, layer.receiver)]
    alpha = layer.attention(*scores, block.links, block.weights)
    ends = block.links.receivers if side == "receiver" else block.links.senders
    sums = torch.zeros(block.num_active, layer.num_heads, dtype=torch.float64).index_add(0, ends, alpha)
    assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("heads", [1, 4])
def test_equals_graph_attention_of_pyg(heads: int) -> None:
    """Snapshot by snapshot, with links of weight 1; ELU is applied to PyG's output."""
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
    nodes, x = inputs_of(layer, block.node)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    starts = [p.detach().clone().requires_grad_() for p in parameters]
    starts += [] if x is None else [x.clone().requires_grad_()]

    def forward(*values: Tensor) -> Tensor:
        own = values[len(names)] if x is not None else None
        return functional_call(layer, dict(zip(names, values, strict=False)), (nodes, own, block.links, block.weights))

    assert gradcheck(forward, starts)


def test_a_single_self_loop_has_alpha_one() -> None:
    for side in ("receiver", "sender"):
        layer, block = make(num_nodes=1, normalize=side), block_of(ONE_NODE)
        z = layer(lookup(layer, block.node), None, block.links, block.weights)
        assert_close(z, torch.nn.functional.elu(layer.table))


@both_sides
def test_rows_without_links_equal_isolated_nodes(side: str) -> None:
    layer = make(in_features=F_IN, normalize=side, residual=True, bias=True)
    block = block_of(MEETINGS, every_step=True)
    z = layer(*inputs_of(layer, block.node), block.links, block.weights)
    empty = block.links.offsets.diff() == 0
    assert int(empty.sum()) == 0 + 1 + 5 + 3 + 2  # by snapshot
    assert_close(z[empty], layer.isolated(*inputs_of(layer, block.node[empty]), linked=False))


@both_sides
def test_huge_weights_stay_finite(side: str) -> None:
    huge = Plain([{(0, 1): 1e9, (1, 2): 1e-9, (2, 2): 1e9, (0, 2): 1.0}], [3])
    layer, block = make(num_nodes=3, normalize=side), block_of(huge)
    z = layer(lookup(layer, block.node), None, block.links, block.weights)
    assert_close(z, at_rows(by_loop([layer], huge, "raw"), block), rtol=1e-9, atol=1e-9)
    z.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in layer.parameters())


def test_no_rows() -> None:
    layer, block = make(), block_of(Plain([{}], [1]))
    assert layer(lookup(layer, block.node), None, block.links, block.weights).shape == (0, 8)


SELF_LOOPS = Plain([{(v, v): 1.0 for v in range(3000)}], [3000])


def zero_fraction(z: Tensor) -> float:
    return float((z == 0).double().mean())


class TestDropout:
    def test_one_hot_input_and_alpha(self) -> None:
        """With only a self-loop, z is 0 unless both the input and α are kept; each is then doubled."""
        layer, block = make(8, 4, 3000, rate=0.5), block_of(SELF_LOOPS)
        z = layer(lookup(layer, block.node), None, block.links, block.weights, generator=seeded(5))
        assert abs(zero_fraction(z) - 0.75) < 0.02
        kept = z != 0
        assert_close(z[kept], torch.nn.functional.elu(4 * layer.table)[kept])
        inputs_kept = (z.view(3000, 4, 2) != 0).any(2).any(1).double().mean()  # all heads share the input
        assert abs(float(inputs_kept) - 0.5 * (1 - 0.5**4)) < 0.04

    def test_attributes(self) -> None:
        layer, block = make(1, 1, 0, 1, rate=0.5), block_of(SELF_LOOPS)
        x = torch.ones(3000, 1, dtype=torch.float64)
        z = layer(None, x, block.links, block.weights, generator=seeded(6))
        assert abs(zero_fraction(z) - 0.75) < 0.04
        whole = torch.nn.functional.elu(4 * layer.weight).expand_as(z)
        assert_close(z[z != 0], whole[z != 0])

    def test_none_without_a_generator(self) -> None:
        layer, block = make(rate=0.9), block_of(MEETINGS)
        z = layer(lookup(layer, block.node), None, block.links, block.weights)
        assert_close(z, at_rows(by_loop([layer], MEETINGS, "raw"), block))

    def test_alpha_of_isolated_nodes_with_a_self_loop(self) -> None:
        layer = make(8, 4, 3000, rate=0.5)
        z = layer.isolated(lookup(layer, torch.arange(3000)), None, linked=True, generator=seeded(7))
        assert abs(zero_fraction(z) - 0.75) < 0.02
