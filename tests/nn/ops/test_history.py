"""The kernels of history attention against the formula and against the layer written out in torch."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec

import pytest
import torch
from graphs import seeded
from torch import Tensor
from torch.testing import assert_close

from dysat.nn.ops import cpu
from dysat.nn.ops.history import History
from dysat.nn.ops.sparse import has_history_kernels, history_attention
from dysat.nn.temporal import TemporalAttention
from dysat.sampling.blocks import PIECE, Pattern

DEVICE = "cpu"
kernels = pytest.mark.usefixtures("device_with_kernels")
# Every shape over 12 steps, and two shapes over a single step and over many steps.
shapes_and_steps = pytest.mark.parametrize(
    ("heads", "width", "num_steps"),
    [(16, 8, 12), (8, 16, 12), (1, 128, 12), (4, 32, 12), (2, 1, 12), (16, 8, 1), (8, 16, 200)],
)
stepped = pytest.mark.parametrize("stepped", [True, False], ids=["positions", "no positions"])


@pytest.fixture(params=["cpu", "cuda"])
def device_with_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "cuda" and (not torch.cuda.is_available() or find_spec("triton") is None):
        pytest.skip("no CUDA device, or no Triton for it")
    if request.param == "cpu" and not cpu.is_available():
        pytest.skip("no C compiler")
    monkeypatch.setattr(sys.modules[__name__], "DEVICE", request.param)


def make_history(num_steps: int) -> History:
    return _history(num_steps, DEVICE)


@cache
def _history(num_steps: int, device: str) -> History:
    """Random queries, some of them twice: every second node has one row for most steps, every fifth a row of zeros.

    Some rows belong to no node. Some steps before a query's own are masked.
    """
    generator, nodes = seeded(num_steps), 150 if num_steps < 100 else 30
    own = torch.arange(nodes * num_steps).view(nodes, num_steps)
    zero = nodes * num_steps + 3
    shared = torch.rand(nodes, num_steps, generator=generator) < 0.7
    row_of = torch.where(shared & (torch.arange(nodes) % 2 == 0)[:, None], own[:, :1], own)
    row_of = torch.where(shared & (torch.arange(nodes) % 5 == 0)[:, None], zero, row_of)
    masked = torch.rand(nodes, num_steps, generator=generator) < 0.2
    queries = torch.randint(0, nodes * num_steps, (2 * nodes,), generator=generator)
    entries = [
        (q, int(row_of[v, j]), j)
        for q, (v, i) in enumerate((n // num_steps, n % num_steps) for n in queries.tolist())
        for j in range(i + 1)
        if j == i or not masked[v, j]
    ]
    receivers, senders, at = torch.tensor(entries, device=device).T.contiguous()
    past = Pattern.from_counts(torch.bincount(receivers, minlength=len(queries)), senders, zero + 1)
    last = past.offsets[1:] - 1
    return History(Pattern.lookup(senders[last], zero + 1), at[last], past, at, num_steps)


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=seeded(seed)).to(DEVICE)


def by_formula(q: Tensor, kv: Tensor, history: History, keep: Tensor | None) -> Tensor:
    """Σ_j β_ij keep_ij (v_j + v_t), with all P entries in one array."""
    past, heads, width = history.past, *q.shape[1:]
    both = kv[past.senders]
    if len(kv) > past.num_senders:
        both = both + kv[past.num_senders + history.past_steps]
    k, v = both.view(past.num_entries, 2, heads, width).unbind(1)
    logits = (q[past.receivers] * k).sum(-1)  # [P, H]
    sums = logits.new_zeros(len(q), heads)
    top = sums.scatter_reduce(0, past.receivers[:, None].expand_as(logits), logits.detach(), "amax", include_self=False)
    weights = (logits - top[past.receivers]).exp()
    beta = weights / sums.index_add(0, past.receivers, weights)[past.receivers]
    beta = beta if keep is None else beta * keep
    return torch.zeros_like(q).index_add(0, past.receivers, beta[..., None] * v)


def gradients(result: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Gradients of a sum with different weights for all values."""
    weights = random(*result.shape, seed=2).to(result.dtype)
    return list(torch.autograd.grad((result * weights).sum(), inputs))


@kernels
@shapes_and_steps
@stepped
@pytest.mark.parametrize("kept", [True, False], ids=["dropout", "no dropout"])
def test_equals_the_formula(heads: int, width: int, num_steps: int, stepped: bool, kept: bool) -> None:
    history = make_history(num_steps)
    past = history.past
    q = random(past.num_receivers, heads, width) / width**0.5
    kv = random(past.num_senders + stepped * num_steps, 2 * heads * width, seed=3)
    keep = (random(past.num_entries, heads, seed=4) > -0.5) / 0.7 if kept else None
    ours, exact = [q.requires_grad_(), kv.requires_grad_()], [t.detach().double().requires_grad_() for t in (q, kv)]
    z = history_attention(*ours, history, keep)
    expected = by_formula(*exact, history, None if keep is None else keep.double())
    assert_close(z.double(), expected, atol=1e-5, rtol=1e-5)
    for actual, reference in zip(gradients(z, ours), gradients(expected, exact), strict=True):
        assert_close(actual.double(), reference, atol=3e-4, rtol=1e-4)  # sums of hundreds of terms


@kernels
@pytest.mark.parametrize(("heads", "residual", "scale"), [(16, False, "features"), (8, True, "steps")])
@stepped
def test_the_layer_equals_the_layer_in_float64(heads: int, residual: bool, scale: str, stepped: bool) -> None:
    """In float64 the layer uses no kernels."""
    history = make_history(12)
    layer = TemporalAttention(
        64, 128 if not residual else 64, heads, scale=scale, residual=residual, generator=seeded()
    )
    layer.to(DEVICE)
    given = [random(history.past.num_senders, 64), *([random(12, 64, seed=3)] if stepped else [])]
    results = []
    for dtype in (torch.float32, torch.float64):
        inputs = [t.to(dtype).requires_grad_() for t in given]
        layer.to(dtype)
        assert has_history_kernels(inputs[0], layer.num_heads, 8) is (dtype == torch.float32)
        z = layer(inputs[0], inputs[1] if stepped else None, history)
        results.append([t.double() for t in (z, *gradients(z, [*inputs, *layer.parameters()]))])
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected, atol=1e-4, rtol=1e-4)


@kernels
def test_dropout_applies_to_beta_only() -> None:
    """A node with one step attends to itself with β = 1, which is dropped or doubled per head."""
    n, rows = 4000, torch.arange(4000, device=DEVICE)
    layer = TemporalAttention(8, 8, 2, rate=0.5, generator=seeded()).to(DEVICE)
    past, at = Pattern.lookup(rows, n), torch.ones_like(rows)
    x, positions = random(n, 8), random(3, 8, seed=3)
    z = layer(x, positions, History(past, at, past, at, 3), generator=seeded(6, DEVICE)).view(n, 2, 4)
    kept = (z != 0).any(2)
    assert abs(float(kept.double().mean()) - 0.5) < 0.03
    whole = ((x + positions[1]) @ layer.value).view(n, 2, 4)
    assert_close(z, 2 * whole * kept[..., None], atol=1e-5, rtol=1e-5)


@kernels
def test_with_one_step_queries_and_keys_have_no_gradient() -> None:
    """Exactly 0: Adam would turn even a rounding error into full steps."""
    history = make_history(1)
    q = random(history.past.num_receivers, 4, 8).requires_grad_()
    kv = random(history.past.num_senders + 1, 64, seed=3).requires_grad_()
    keep = (random(history.past.num_entries, 4, seed=4) > -0.5) / 0.7
    d_q, d_kv = gradients(history_attention(q, kv, history, keep), [q, kv])
    assert not d_q.any() and not d_kv[:, :32].any() and d_kv[:, 32:].any()


@kernels
def test_huge_logits_stay_finite() -> None:
    history = make_history(12)
    q = (random(history.past.num_receivers, 4, 8) * 1e6).requires_grad_()
    kv = random(history.past.num_senders + 12, 64, seed=3).requires_grad_()
    z = history_attention(q, kv, history, None)
    assert all(bool(t.isfinite().all()) for t in (z, *gradients(z, [q, kv])))


@kernels
@stepped
def test_no_queries(stepped: bool) -> None:
    none = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    past = Pattern.lookup(none, 5)
    x, positions = random(5, 8).requires_grad_(), random(3, 8).requires_grad_()
    layer = TemporalAttention(8, 8, 2, rate=0.5, generator=seeded()).to(DEVICE)
    z = layer(x, positions if stepped else None, History(past, none, past, none, 3), generator=seeded(0, DEVICE))
    assert z.shape == (0, 8)
    z.sum().backward()
    assert not x.grad.any()


class TestHistory:
    @pytest.mark.parametrize("num_steps", [1, 12, 200])
    def test_transposed_with_steps_lists_the_entries_of_each_row_and_step(self, num_steps: int) -> None:
        history = _history(num_steps, "cpu")
        past = history.past
        across, entries = history.transposed_with_steps
        assert across.num_receivers == past.num_senders + num_steps and across.num_senders == past.num_receivers
        assert int(across.offsets.diff().max()) > PIECE  # several pieces add to one row
        expected: dict[int, list[int]] = {}
        for j, (row, step) in enumerate(zip(past.senders.tolist(), history.past_steps.tolist(), strict=True)):
            expected.setdefault(row, []).append(j)
            expected.setdefault(past.num_senders + step, []).append(j)
        for at in range(across.num_receivers):
            part = slice(int(across.offsets[at]), int(across.offsets[at + 1]))
            assert entries[part].tolist() == expected.get(at, [])
            assert across.receivers[part].eq(at).all()
        assert torch.equal(across.senders, past.receivers[entries])

    def test_row_plus_step_adds_a_row_and_a_position(self) -> None:
        history = _history(12, "cpu")
        pattern, ones = history.row_plus_step
        x = torch.randn(history.past.num_senders + 12, 4, generator=seeded())
        sums = torch.zeros(pattern.num_receivers, 4).index_add_(0, pattern.receivers, ones * x[pattern.senders])
        assert_close(sums, x[history.rows.senders] + x[history.past.num_senders + history.steps])
