"""Temporal attention, Eq. (2), against a loop over steps and heads, and against PyTorch's multi-head attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphs import Vector, add, cuda, feedforward_loop, randomized, seeded, temporal_loop
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.testing import assert_close

from dysat.nn.temporal import MAX_DISTANCE, FeedForward, History, TemporalAttention
from dysat.sampling.blocks import Pattern

pytestmark = pytest.mark.usefixtures("each_path")

T, WIDTH = 5, 4
# The row that each node has at each step. Node 1 has the same row in four steps, node 2 begins at step 2, node 3 has
# one step, node 4 the same row as node 5 has.
ROWS: list[dict[int, int]] = [
    {0: 4, 1: 0, 2: 7, 3: 1, 4: 2},
    {0: 3, 1: 3, 2: 5, 3: 3, 4: 3},
    {2: 6, 3: 8, 4: 6},
    {4: 9},
    {0: 10, 1: 10},
    {0: 10, 3: 2},
]
NUM_ROWS = 12  # row 11 is nobody's
X = torch.randn(NUM_ROWS, WIDTH, generator=seeded(1), dtype=torch.float64)
POSITIONS = torch.randn(T, WIDTH, generator=seeded(2), dtype=torch.float64)
ASKED = [(v, i) for v, rows in enumerate(ROWS) for i in rows]


def one_each(rows: list[int], num_rows: int) -> Pattern:
    """A pattern by which receiver q looks up row rows[q]."""
    offsets = torch.arange(len(rows) + 1)
    return Pattern(offsets[:-1], torch.tensor(rows), offsets, num_rows)


def look_back(asked: list[tuple[int, int]], rows: list[dict[int, int]] = ROWS, num_rows: int = NUM_ROWS) -> History:
    """For each (node, step): that node's rows up to the step."""
    entries = [(q, rows[v][j], j) for q, (v, i) in enumerate(asked) for j in sorted(rows[v]) if j <= i]
    receivers, senders, steps = torch.tensor(entries).T
    offsets = torch.tensor([sum(q < r for q, _, _ in entries) for r in range(len(asked) + 1)])
    own = one_each([rows[v][i] for v, i in asked], num_rows)
    at = torch.tensor([i for _, i in asked])
    return History(own, at, Pattern(receivers, senders, offsets, num_rows), steps, T)


def make(size: int = WIDTH, heads: int = 2, **options: Any) -> TemporalAttention:
    return randomized(TemporalAttention(WIDTH, size, heads, generator=seeded(), **options), seed=3)


def by_loop(
    layer: TemporalAttention, x: Tensor, positions: Tensor | None
) -> tuple[dict[tuple[int, int], Vector], dict[tuple[int, int, int], Vector]]:
    """(node, step) → output; (node, step, step looked at) → β."""
    outputs, betas = {}, {}
    for v, rows in enumerate(ROWS):
        inputs = {i: x[row].tolist() for i, row in rows.items()}
        if positions is not None:
            inputs = {i: add(vector, positions[i].tolist()) for i, vector in inputs.items()}
        z, beta = temporal_loop(layer, inputs, T)
        outputs |= {(v, i): z[i] for i in z}
        betas |= {(v, i, j): heads for (i, j), heads in beta.items()}
    return outputs, betas


@pytest.mark.parametrize("positions", [POSITIONS, None], ids=["positions", "no positions"])
@pytest.mark.parametrize("scale", ["features", "steps"])
@pytest.mark.parametrize(
    ("size", "heads", "residual"), [(4, 2, False), (4, 1, True), (4, 4, True), (6, 3, False), (2, 1, False)]
)
def test_against_the_loop(size: int, heads: int, residual: bool, scale: str, positions: Tensor | None) -> None:
    layer = make(size, heads, scale=scale, residual=residual)
    outputs, betas = by_loop(layer, X, positions)
    asked = ASKED[::-1] + ASKED[3:5]  # any order, some twice
    history = look_back(asked)
    z = layer(X, positions, history)
    assert_close(z, torch.tensor([outputs[q] for q in asked], dtype=torch.float64), rtol=1e-12, atol=1e-12)

    beta = layer.attention(X, positions, history)
    places = [(*asked[q], j) for q, j in zip(history.past.receivers.tolist(), history.past_steps.tolist(), strict=True)]
    assert_close(beta, torch.tensor([betas[p] for p in places], dtype=torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("heads", [1, 2])
def test_equals_multi_head_attention_of_pytorch(heads: int) -> None:
    layer = make(WIDTH, heads)
    nodes = 3
    rows = [{i: v * T + i for i in range(T)} for v in range(nodes)]
    x = torch.randn(nodes * T, WIDTH, generator=seeded(4), dtype=torch.float64)
    asked = [(v, i) for v in range(nodes) for i in range(T)]
    history = look_back(asked, rows, nodes * T)
    z = layer(x, POSITIONS, history)

    theirs = torch.nn.MultiheadAttention(WIDTH, heads, bias=False, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([layer.query.T, layer.key.T, layer.value.T]))
        theirs.out_proj.weight.copy_(torch.eye(WIDTH))
    sequences = x.view(nodes, T, WIDTH) + POSITIONS
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    expected, weights = theirs(sequences, sequences, sequences, attn_mask=later, average_attn_weights=False)
    assert_close(z.view(nodes, T, WIDTH), expected)

    beta = layer.attention(x, POSITIONS, history)
    q, j = history.past.receivers, history.past_steps
    assert_close(beta, weights[q // T, :, q % T, j])


@pytest.mark.parametrize("scale", ["features", "steps"])
@pytest.mark.parametrize("residual", [False, True])
def test_a_row_for_many_steps_is_like_a_row_for_each(residual: bool, scale: str) -> None:
    layer = make(residual=residual, scale=scale)
    shared = layer(X, POSITIONS, look_back(ASKED))
    places = [rows[i] for rows in ROWS for i in rows]
    number = iter(range(len(places)))
    own = [{i: next(number) for i in rows} for rows in ROWS]
    assert_close(layer(X[places], POSITIONS, look_back(ASKED, own, len(places))), shared, rtol=1e-12, atol=1e-12)


def test_steps_matter_through_positions_only() -> None:
    """Without positions a node that is the same at all steps is told the same at all steps; with them it is not."""
    layer = make()
    history = look_back([(4, 0), (4, 1)])
    plain, placed = layer(X, None, history), layer(X, POSITIONS, history)
    assert_close(plain[0], plain[1])
    assert float((placed[0] - placed[1]).abs().max().detach()) > 0.1


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("positions", [POSITIONS, None], ids=["positions", "no positions"])
def test_gradients(positions: Tensor | None, residual: bool) -> None:
    layer = make(residual=residual)
    history = look_back(ASKED[::2])
    names, parameters = zip(*layer.named_parameters(), strict=True)
    starts = [X, *parameters, *([] if positions is None else [positions])]

    def forward(x: Tensor, *values: Tensor) -> Tensor:
        own = values[3] if positions is not None else None
        return functional_call(layer, dict(zip(names, values, strict=False)), (x, own, history))

    assert gradcheck(forward, [start.detach().clone().requires_grad_() for start in starts])


def test_huge_inputs_stay_finite() -> None:
    layer = make()
    x = (X * 1e6).requires_grad_()
    z = layer(x, POSITIONS, look_back(ASKED))
    z.sum().backward()
    assert bool(z.isfinite().all()) and bool(x.grad.isfinite().all())


class TestDropout:
    @pytest.mark.parametrize("positions", [POSITIONS, None], ids=["positions", "no positions"])
    def test_falls_on_beta_alone(self, positions: Tensor | None) -> None:
        """A node with one step looks at itself with β = 1, dropped for each head or doubled."""
        n = 4000
        layer = make(4, 2, rate=0.5)
        rows = torch.arange(n)
        past = Pattern(rows, rows, torch.arange(n + 1), n)
        history = History(past, torch.full((n,), 1), past, torch.full((n,), 1), T)
        x = torch.randn(n, WIDTH, generator=seeded(5), dtype=torch.float64)
        z = layer(x, positions, history, generator=seeded(6)).view(n, 2, 2)
        whole = ((x if positions is None else x + positions[1]) @ layer.value).view(n, 2, 2)
        kept = (z != 0).any(2)
        assert abs(float(kept.double().mean()) - 0.5) < 0.03
        assert_close(z, 2 * whole * kept[..., None])

    def test_none_without_a_generator(self) -> None:
        assert torch.equal(make(rate=0.9)(X, POSITIONS, look_back(ASKED)), make()(X, POSITIONS, look_back(ASKED)))


class TestTimes:
    """Logits that know how far apart two steps are."""

    @pytest.mark.parametrize("times", [[0, 1, 2, 3, 4], [0, 1, 1, 4, 9], [5, 5, 5, 5, 5], [-3, 0, 70, 71, 200]])
    @pytest.mark.parametrize(("heads", "residual"), [(1, True), (2, False)])
    def test_against_the_loop(self, times: list[int], heads: int, residual: bool) -> None:
        layer = make(4, heads, residual=residual, times=torch.tensor(times))
        assert layer.distance.shape == (min(MAX_DISTANCE, times[-1] - times[0]) + 1, heads)
        outputs, betas = by_loop(layer, X, None)
        history = look_back(ASKED)
        expected = torch.tensor([outputs[q] for q in ASKED], dtype=torch.float64)
        assert_close(layer(X, None, history), expected, rtol=1e-12, atol=1e-12)
        places = zip(history.past.receivers.tolist(), history.past_steps.tolist(), strict=True)
        weights = torch.tensor([betas[*ASKED[q], j] for q, j in places], dtype=torch.float64)
        assert_close(layer.attention(X, None, history), weights, rtol=1e-12, atol=1e-12)

    def test_only_distances_matter(self) -> None:
        here, later, wider = (
            make(times=torch.tensor(times)) for times in ([0, 1, 3, 4, 6], [9, 10, 12, 13, 15], [0, 2, 3, 4, 6])
        )
        history = look_back(ASKED)
        assert torch.equal(here(X, None, history), later(X, None, history))
        assert not torch.equal(here(X, None, history), wider(X, None, history))

    def test_beyond_the_farthest_all_is_as_far(self) -> None:
        times = torch.tensor([0, 1, 2, 3, MAX_DISTANCE + 4])
        history = look_back([(0, 4)])  # 68, 67, 66, 65 and 0 away
        layer, same = make(times=times), make(times=torch.tensor([3, 3, 3, 3, MAX_DISTANCE + 3]))
        assert len(layer.distance) == len(same.distance) == MAX_DISTANCE + 1
        assert torch.equal(layer.attention(X, None, history), same.attention(X, None, history))

    def test_first_slopes(self) -> None:
        """From 1 to 1/256, whatever the number of heads; and no preference among steps of the same time."""
        layer = TemporalAttention(WIDTH, 9, 9, times=torch.arange(T), generator=seeded())
        slopes = [2.0**-k for k in range(9)]
        assert_close(layer.distance.detach(), torch.tensor([[-d * slope for slope in slopes] for d in range(T)]))
        two = TemporalAttention(WIDTH, 4, 2, times=torch.arange(T), generator=seeded())
        assert_close(two.distance[1].detach(), torch.tensor([-1.0, -1 / 256]))
        one = TemporalAttention(WIDTH, 4, 1, times=torch.arange(1), generator=seeded())
        assert one.distance.tolist() == [[0.0]]

    def test_gradients(self) -> None:
        layer = make(times=torch.tensor([0, 1, 1, 3, 4]))
        history = look_back(ASKED)
        names, parameters = zip(*layer.named_parameters(), strict=True)
        assert "distance" in names

        def forward(*values: Tensor) -> Tensor:
            return functional_call(layer, dict(zip(names, values, strict=True)), (X, None, history))

        assert gradcheck(forward, [p.detach().clone().requires_grad_() for p in parameters])

    @cuda
    def test_the_same_on_cuda(self) -> None:
        layer = make(times=torch.tensor([0, 1, 1, 3, 90]))
        history = look_back(ASKED)
        here = layer(X, None, history)

        def moved(pattern: Pattern) -> Pattern:
            parts = (part.cuda() for part in (pattern.receivers, pattern.senders, pattern.offsets))
            return Pattern(*parts, pattern.num_senders)

        there = History(moved(history.rows), history.steps.cuda(), moved(history.past), history.past_steps.cuda(), T)
        assert_close(layer.cuda()(X.cuda(), None, there).cpu(), here)


@pytest.mark.parametrize("kind", ["transformer", "skip"])
def test_feed_forward(kind: str) -> None:
    layer = randomized(FeedForward(WIDTH, kind, generator=seeded()), seed=7)
    x = torch.randn(6, WIDTH, generator=seeded(8), dtype=torch.float64)
    expected = torch.tensor([feedforward_loop(layer, row) for row in x.tolist()], dtype=torch.float64)
    assert_close(layer(x), expected, rtol=1e-13, atol=1e-13)
    assert len(list(layer.parameters())) == {"transformer": 4, "skip": 2}[kind]
