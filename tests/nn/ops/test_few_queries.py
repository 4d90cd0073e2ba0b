"""Attention of few queries to many rows: the kernels against the formula, and the layer against its other path."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from graphs import seeded
from torch import Tensor
from torch.testing import assert_close

from dysat.nn import temporal
from dysat.nn.ops import cpu
from dysat.nn.ops.history import History
from dysat.nn.ops.sparse import few_queries
from dysat.nn.temporal import TemporalAttention
from dysat.sampling.blocks import Pattern

pytestmark = pytest.mark.skipif(not cpu.is_available(), reason="no C compiler")
KINDS = 5


def past_of(counts: list[int], rows: int, seed: int = 0) -> Pattern:
    """Queries with these numbers of entries; a row can be in the past of several."""
    senders = torch.randint(0, rows, (sum(counts),), generator=seeded(seed))
    return Pattern.from_counts(torch.tensor(counts), senders, rows)


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=seeded(seed))


def inputs(past: Pattern, heads: int, width: int, depth: int) -> list[Tensor]:
    """q, x, W_k, W_v and biases."""
    return [
        random(past.num_receivers, heads, width),
        random(past.num_senders, depth, seed=2),
        random(depth, heads * width, seed=3) / depth**0.5,
        random(depth, heads * width, seed=4) / depth**0.5,
        random(KINDS, heads, seed=5),
    ]


def by_formula(
    q: Tensor, x: Tensor, key: Tensor, value: Tensor, bias: Tensor, kind: Tensor, past: Pattern, keep: Tensor | None
) -> Tensor:
    """Σ_j β_ij keep_ij (x_j W_v), query by query."""
    k, v = ((x @ weight).view(len(x), *q.shape[1:]) for weight in (key, value))
    found = []
    for at, (first, stop) in enumerate(zip(past.offsets[:-1].tolist(), past.offsets[1:].tolist(), strict=True)):
        rows = past.senders[first:stop]
        beta = torch.softmax((q[at] * k[rows]).sum(-1) + bias[kind[first:stop]], 0)  # [n, H]
        beta = beta if keep is None else beta * keep[first:stop]
        found.append((beta[..., None] * v[rows]).sum(0))
    return torch.stack(found)


def gradients(result: Tensor, given: list[Tensor]) -> list[Tensor]:
    """Gradients of a sum with different weights for all values."""
    weights = random(*result.shape, seed=6).to(result.dtype)
    return list(torch.autograd.grad((result * weights).sum(), given))


def parts_of(past: Pattern, heads: int, kept: bool) -> tuple[Tensor, Tensor | None]:
    kind = torch.randint(0, KINDS, (past.num_entries,), generator=seeded(7))
    return kind, (random(past.num_entries, heads, seed=8) > -0.5) / 0.7 if kept else None


@pytest.mark.parametrize(("heads", "width", "depth"), [(16, 8, 128), (4, 3, 7), (1, 1, 1), (2, 33, 20), (16, 8, 130)])
@pytest.mark.parametrize("kept", [True, False], ids=["dropout", "no dropout"])
def test_equals_the_formula(heads: int, width: int, depth: int, kept: bool) -> None:
    past = past_of([1, 12, 4, 7, 1, 3, 60, 2, 5], rows=50)
    kind, keep = parts_of(past, heads, kept)
    ours = [part.requires_grad_() for part in inputs(past, heads, width, depth)]
    exact = [part.detach().double().requires_grad_() for part in ours]
    z = few_queries(ours[0], ours[1], (ours[2], ours[3], ours[4]), kind, past, keep)
    expected = by_formula(*exact, kind, past, None if keep is None else keep.double())
    assert_close(z.double(), expected, atol=1e-5, rtol=1e-5)
    for actual, reference in zip(gradients(z, ours), gradients(expected, exact), strict=True):
        assert actual.any()
        assert_close(actual.double(), reference, atol=2e-4, rtol=1e-4)


@pytest.fixture
def any_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("any_threads")
def test_the_same_bits_on_any_number_of_threads() -> None:
    past = past_of([13] * 300, rows=4_000)
    kind, keep = parts_of(past, 16, kept=True)
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        q, x, *weights = (part.requires_grad_() for part in inputs(past, 16, 8, 128))
        z = few_queries(q, x, (weights[0], weights[1], weights[2]), kind, past, keep)
        results.append([z, *gradients(z, [q, x, *weights])])
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert torch.equal(one, two)


def test_a_single_entry_gives_queries_and_keys_no_gradient() -> None:
    """Exactly 0: Adam would turn even a rounding error into full steps."""
    past = past_of([1] * 40, rows=60)
    kind, keep = parts_of(past, 4, kept=True)
    q, x, key, value, bias = (part.requires_grad_() for part in inputs(past, 4, 8, 32))
    d_q, d_key, d_bias, d_value = gradients(
        few_queries(q, x, (key, value, bias), kind, past, keep), [q, key, bias, value]
    )
    assert not d_q.any() and not d_key.any() and not d_bias.any() and d_value.any()


def test_huge_logits_stay_finite() -> None:
    past = past_of([5] * 20, rows=90)
    kind, _ = parts_of(past, 4, kept=False)
    q, x, key, value, bias = inputs(past, 4, 8, 32)
    q = (q * 1e6).requires_grad_()
    z = few_queries(q, x, (key, value, bias), kind, past, None)
    assert z.isfinite().all() and gradients(z, [q])[0].isfinite().all()


def layer_and_history(rows: int, rate: float = 0.0) -> tuple[TemporalAttention, Tensor, History]:
    """Queries at step 9 with ten rows of their own each."""
    queries = rows // 10
    layer = TemporalAttention(128, 128, 16, rate=rate, residual=True, times=torch.arange(10), generator=seeded())
    past = Pattern.from_counts(torch.full((queries,), 10), torch.arange(10 * queries), rows)
    steps = torch.arange(10).repeat(queries)
    own = Pattern.lookup(past.senders[past.offsets[1:] - 1], rows)
    return layer, random(rows, 128), History(own, torch.full((queries,), 9), past, steps, 10)


def test_a_layer_with_few_queries_equals_the_layer_that_projects_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, given, history = layer_and_history(400)
    results, calls = [], []
    count = temporal.few_queries
    monkeypatch.setattr(temporal, "few_queries", lambda *args: calls.append(1) or count(*args))
    for fewer in (temporal.FEWER, torch.inf):
        monkeypatch.setattr(temporal, "FEWER", fewer)
        x = given.clone().requires_grad_()
        z = layer(x, None, history, generator=seeded(3))
        results.append([z, *gradients(z, [x, *layer.parameters()])])
    assert len(calls) == 1
    for one, two in zip(*results, strict=True):
        assert_close(one, two, atol=2e-4, rtol=1e-4)


def test_only_training_projects_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the same row has the same embedding in every graph."""
    layer, x, history = layer_and_history(400)
    monkeypatch.setattr(temporal, "few_queries", None)  # a call fails
    assert layer(x, None, history).shape == (40, 128)
    with pytest.raises(TypeError):
        layer(x, None, history, generator=seeded(3))


@torch.no_grad()
def test_dropout_changes_single_results_but_not_their_mean() -> None:
    layer, x, history = layer_and_history(4_000, rate=0.5)
    own = x[history.rows.senders]  # the residual, which is never dropped
    whole = layer(x, None, history) - own
    some = [layer(x, None, history, generator=seeded(seed)) - own for seed in range(20)]
    slope = float((torch.stack(some).mean(0) * whole).sum() / whole.square().sum())
    assert not torch.equal(some[0], some[1]) and not torch.equal(some[0], whole)
    assert slope == pytest.approx(1, abs=0.02)
