"""Temporal attention, Eq. (2) and Eq. (4), against a loop over steps and heads, and against PyTorch's attention."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from graphs import Vector, add, cuda, feedforward_loop, randomized, seeded, temporal_loop
from torch import Tensor
from torch.func import functional_call
from torch.testing import assert_close

from dysat.nn.temporal import MAX_DISTANCE, FeedForward, History, TemporalAttention
from dysat.sampling.blocks import Pattern

gradcheck = partial(torch.autograd.gradcheck, fast_mode=True)
T, WIDTH = 5, 4
# The row of each node at each step. Node 1 has the same row in four steps, node 2 starts at step 2, node 3 has one
# step, nodes 4 and 5 share a row.
ROWS: list[dict[int, int]] = [
    {0: 4, 1: 0, 2: 7, 3: 1, 4: 2},
    {0: 3, 1: 3, 2: 5, 3: 3, 4: 3},
    {2: 6, 3: 8, 4: 6},
    {4: 9},
    {0: 10, 1: 10},
    {0: 10, 3: 2},
]
NUM_ROWS = 12  # row 11 belongs to no node
X = torch.randn(NUM_ROWS, WIDTH, generator=seeded(1), dtype=torch.float64)
POSITIONS = torch.randn(T, WIDTH, generator=seeded(2), dtype=torch.float64)
QUERIES = [(v, i) for v, rows in enumerate(ROWS) for i in rows]


with_and_without_positions = pytest.mark.parametrize("positions", [POSITIONS, None], ids=["positions", "no positions"])


def history_of(queries: list[tuple[int, int]], rows: list[dict[int, int]] = ROWS, num_rows: int = NUM_ROWS) -> History:
    """For each (node, step): the node's rows up to the step."""
    entries = [(q, rows[v][j], j) for q, (v, i) in enumerate(queries) for j in sorted(rows[v]) if j <= i]
    receivers, senders, steps = torch.tensor(entries).T
    offsets = torch.tensor([sum(q < r for q, _, _ in entries) for r in range(len(queries) + 1)])
    own = Pattern.lookup(torch.tensor([rows[v][i] for v, i in queries]), num_rows)
    at = torch.tensor([i for _, i in queries])
    return History(own, at, Pattern(receivers, senders, offsets, num_rows), steps, T)


def make(size: int = WIDTH, heads: int = 2, **options: Any) -> TemporalAttention:
    return randomized(TemporalAttention(WIDTH, size, heads, generator=seeded(), **options), seed=3)


def by_loop(
    layer: TemporalAttention, x: Tensor, positions: Tensor | None
) -> tuple[dict[tuple[int, int], Vector], dict[tuple[int, int, int], Vector]]:
    """(node, step) → output; (node, step, attended step) → β."""
    outputs, betas = {}, {}
    for v, rows in enumerate(ROWS):
        inputs = {i: x[row].tolist() for i, row in rows.items()}
        if positions is not None:
            inputs = {i: add(vector, positions[i].tolist()) for i, vector in inputs.items()}
        z, beta = temporal_loop(layer, inputs, T)
        outputs |= {(v, i): z[i] for i in z}
        betas |= {(v, i, j): heads for (i, j), heads in beta.items()}
    return outputs, betas


@with_and_without_positions
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])  # written out with torch; in one call to native.c
@pytest.mark.parametrize(
    ("size", "heads", "residual", "scale"),
    [
        (4, 2, False, "features"),
        (4, 1, True, "steps"),
        (4, 4, True, "features"),
        (6, 3, False, "steps"),
        (2, 1, False, "features"),
    ],
)
def test_equals_the_loop(
    size: int, heads: int, residual: bool, scale: str, dtype: torch.dtype, positions: Tensor | None
) -> None:
    layer = make(size, heads, scale=scale, residual=residual).to(dtype)
    x, positions = X.to(dtype), None if positions is None else positions.to(dtype)
    tolerance = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    outputs, betas = by_loop(layer, x.double(), None if positions is None else positions.double())
    queries = QUERIES[::-1] + QUERIES[3:5]  # in any order, two of them twice
    history = history_of(queries)
    z = layer(x, positions, history)
    assert_close(z.double(), torch.tensor([outputs[q] for q in queries], dtype=torch.float64), **tolerance)

    beta = layer.attention(x, positions, history)
    past = zip(history.past.receivers.tolist(), history.past_steps.tolist(), strict=True)
    expected = torch.tensor([betas[*queries[q], j] for q, j in past], dtype=torch.float64)
    assert_close(beta.double(), expected, **tolerance)


@pytest.mark.parametrize("heads", [1, 2])
def test_equals_multi_head_attention_of_pytorch(heads: int) -> None:
    layer = make(WIDTH, heads)
    nodes = 3
    rows = [{i: v * T + i for i in range(T)} for v in range(nodes)]
    x = torch.randn(nodes * T, WIDTH, generator=seeded(4), dtype=torch.float64)
    queries = [(v, i) for v in range(nodes) for i in range(T)]
    history = history_of(queries, rows, nodes * T)
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


@pytest.mark.parametrize("residual", [False, True])
def test_a_row_shared_by_steps_equals_a_row_per_step(residual: bool) -> None:
    layer = make(residual=residual)
    shared = layer(X, POSITIONS, history_of(QUERIES))
    places = [rows[i] for rows in ROWS for i in rows]
    number = iter(range(len(places)))
    own = [{i: next(number) for i in rows} for rows in ROWS]
    assert_close(layer(X[places], POSITIONS, history_of(QUERIES, own, len(places))), shared, rtol=1e-12, atol=1e-12)


def test_only_positions_distinguish_steps() -> None:
    """Without positions, a node with the same row at all steps has the same output at all steps."""
    layer = make()
    history = history_of([(4, 0), (4, 1)])
    plain, placed = layer(X, None, history), layer(X, POSITIONS, history)
    assert_close(plain[0], plain[1])
    assert float((placed[0] - placed[1]).abs().max().detach()) > 0.1


@pytest.mark.parametrize("residual", [False, True])
@with_and_without_positions
def test_gradients(positions: Tensor | None, residual: bool) -> None:
    layer = make(residual=residual)
    history = history_of(QUERIES[::2])
    names, parameters = zip(*layer.named_parameters(), strict=True)
    starts = [X, *parameters, *([] if positions is None else [positions])]

    def forward(x: Tensor, *values: Tensor) -> Tensor:
        own = values[3] if positions is not None else None
        return functional_call(layer, dict(zip(names, values, strict=False)), (x, own, history))

    assert gradcheck(forward, [start.detach().clone().requires_grad_() for start in starts])


def test_huge_inputs_stay_finite() -> None:
    layer = make()
    x = (X * 1e6).requires_grad_()
    z = layer(x, POSITIONS, history_of(QUERIES))
    z.sum().backward()
    assert bool(z.isfinite().all()) and bool(x.grad.isfinite().all())


class TestDropout:
    @with_and_without_positions
    def test_applies_to_beta_only(self, positions: Tensor | None) -> None:
        """A node with one step attends to itself with β = 1, which is dropped or doubled per head."""
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
        assert torch.equal(make(rate=0.9)(X, POSITIONS, history_of(QUERIES)), make()(X, POSITIONS, history_of(QUERIES)))


class TestTimes:
    """Logits with a learned weight for the distance between two steps."""

    @pytest.mark.parametrize(
        ("times", "heads", "residual"),
        [
            ([0, 1, 2, 3, 4], 1, True),
            ([0, 1, 1, 4, 9], 2, False),
            ([5, 5, 5, 5, 5], 1, False),
            ([-3, 0, 70, 71, 200], 2, True),
        ],
    )
    def test_equals_the_loop(self, times: list[int], heads: int, residual: bool) -> None:
        layer = make(4, heads, residual=residual, times=torch.tensor(times))
        assert layer.distance.shape == (min(MAX_DISTANCE, times[-1] - times[0]) + 1, heads)
        outputs, betas = by_loop(layer, X, None)
        history = history_of(QUERIES)
        expected = torch.tensor([outputs[q] for q in QUERIES], dtype=torch.float64)
        assert_close(layer(X, None, history), expected, rtol=1e-12, atol=1e-12)
        places = zip(history.past.receivers.tolist(), history.past_steps.tolist(), strict=True)
        weights = torch.tensor([betas[*QUERIES[q], j] for q, j in places], dtype=torch.float64)
        assert_close(layer.attention(X, None, history), weights, rtol=1e-12, atol=1e-12)

    def test_only_distances_matter(self) -> None:
        here, later, wider = (
            make(times=torch.tensor(times)) for times in ([0, 1, 3, 4, 6], [9, 10, 12, 13, 15], [0, 2, 3, 4, 6])
        )
        history = history_of(QUERIES)
        assert torch.equal(here(X, None, history), later(X, None, history))
        assert not torch.equal(here(X, None, history), wider(X, None, history))

    def test_steps_beyond_the_largest_distance_share_its_weight(self) -> None:
        times = torch.tensor([0, 1, 2, 3, MAX_DISTANCE + 4])
        history = history_of([(0, 4)])  # 68, 67, 66, 65 and 0 away
        layer, same = make(times=times), make(times=torch.tensor([3, 3, 3, 3, MAX_DISTANCE + 3]))
        assert len(layer.distance) == len(same.distance) == MAX_DISTANCE + 1
        assert torch.equal(layer.attention(X, None, history), same.attention(X, None, history))

    def test_initial_slopes(self) -> None:
        """From 1 to 1/256, for any number of heads; steps of the same time have equal weight."""
        layer = TemporalAttention(WIDTH, 9, 9, times=torch.arange(T), generator=seeded())
        slopes = [2.0**-k for k in range(9)]
        assert_close(layer.distance.detach(), torch.tensor([[-d * slope for slope in slopes] for d in range(T)]))
        two = TemporalAttention(WIDTH, 4, 2, times=torch.arange(T), generator=seeded())
        assert_close(two.distance[1].detach(), torch.tensor([-1.0, -1 / 256]))
        one = TemporalAttention(WIDTH, 4, 1, times=torch.arange(1), generator=seeded())
        assert one.distance.tolist() == [[0.0]]

    def test_gradients(self) -> None:
        layer = make(times=torch.tensor([0, 1, 1, 3, 4]))
        history = history_of(QUERIES)
        names, parameters = zip(*layer.named_parameters(), strict=True)
        assert "distance" in names

        def forward(*values: Tensor) -> Tensor:
            return functional_call(layer, dict(zip(names, values, strict=True)), (X, None, history))

        assert gradcheck(forward, [p.detach().clone().requires_grad_() for p in parameters])

    @cuda
    def test_equal_on_cuda(self) -> None:
        layer = make(times=torch.tensor([0, 1, 1, 3, 90]))
        history = history_of(QUERIES)
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
