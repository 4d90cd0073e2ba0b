"""The functions of native.c against the plain versions, on one thread and on several."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from graphs import seeded
from torch import Tensor
from torch.testing import assert_close

import dysat
from dysat.nn.dropout import _mix, _random_bits
from dysat.nn.ops import cpu, sparse
from dysat.nn.ops.history import History
from dysat.nn.ops.reference import (
    reference_entry_logits,
    reference_head_dots,
    reference_pair_dot,
    reference_softmax,
    reference_weighted_sum,
)
from dysat.sampling.blocks import Pattern
from dysat.sampling.walks import Contexts


@pytest.fixture(autouse=True)
def needs_a_compiler() -> None:
    if not cpu.is_available():
        pytest.skip("no C compiler")


SHAPES = [(16, 16), (16, 8), (8, 16), (1, 128), (4, 32), (3, 5), (2, 1), (1, 1), (7, 16), (40, 3)]
shapes = pytest.mark.parametrize(("heads", "width"), SHAPES)
PATTERNS = {
    "some": (300, 200, 5, 40),
    "a hub": (50, 3000, 3, 5000),
    "one receiver": (1, 9000, 0, 9000),
    "no entries": (7, 5, 0, 0),
    "nobody": (0, 0, 0, 0),
}
patterns = pytest.mark.parametrize("name", PATTERNS)


def pattern(name: str) -> Pattern:
    """Some receivers without entries, one (the last but one, or the first) with many."""
    receivers, senders, mean, hub = PATTERNS[name]
    here = seeded(1)
    counts = torch.randint(0, 2 * mean + 1, (receivers,), generator=here)
    if receivers:
        counts[0] = 0
        counts[max(0, receivers - 2)] = hub
    return Pattern.from_counts(counts, torch.randint(0, max(senders, 1), (int(counts.sum()),), generator=here), senders)


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=seeded(seed))


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_threads(function: Callable[[], Tensor | tuple[Tensor, ...]]) -> list[Tensor]:
    """What it gives, the same bits on 1, 2 and 5 threads."""
    found = []
    for number in (1, 2, 5):
        with threads(number):
            result = function()
        found.append([result] if isinstance(result, Tensor) else list(result))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
    return found[0]


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Relative to the largest: sums of thousands lose digits of the small ones."""
    assert found.shape == expected.shape and found.dtype == torch.float32
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    assert_close(found.double(), expected.double(), rtol=tolerance, atol=tolerance * max(1.0, largest))


@patterns
@shapes
def test_weighted_sum(name: str, heads: int, width: int) -> None:
    entries = pattern(name)
    alpha, x = random(entries.num_entries, heads), random(entries.num_senders, heads, width)
    y = random(entries.num_receivers, heads, width)
    expected = reference_weighted_sum(alpha.double(), x.double(), entries)
    (found,) = on_threads(lambda: cpu.weighted_sum(alpha, x, entries, None))
    close(found, expected)
    (found,) = on_threads(lambda: cpu.weighted_sum(alpha, x, entries, None, elu=True))
    close(found, torch.nn.functional.elu(expected))
    across, order = entries.transposed, entries.by_sender
    sums = reference_weighted_sum(alpha[order].double(), y.double(), across)
    (found,) = on_threads(lambda: cpu.weighted_sum(alpha, y, across, order))
    close(found, sums)
    (found,) = on_threads(lambda: cpu.weighted_sum(alpha, y, across, order, first=x))
    close(found, x + sums)


@patterns
@shapes
def test_pair_dot(name: str, heads: int, width: int) -> None:
    entries = pattern(name)
    x, y = random(entries.num_receivers, heads, width), random(entries.num_senders, heads, width, seed=2)
    (found,) = on_threads(lambda: cpu.pair_dot(x, y, entries))
    close(found, reference_pair_dot(x.double(), y.double(), entries))


@shapes
@pytest.mark.parametrize("rows", [0, 1, 700, 9000])
def test_head_dots_and_their_gradient(rows: int, heads: int, width: int) -> None:
    x, a = random(rows, heads, width), random(2, heads, width, seed=2)
    (found,) = on_threads(lambda: cpu.head_dots(x, a))
    close(found, reference_head_dots(x.double(), a.double()))
    grad, exact = random(rows, 2 * heads, seed=3), [t.double().requires_grad_() for t in (x, a)]
    expected = torch.autograd.grad(reference_head_dots(*exact), exact, grad.double())
    for mine, theirs in zip(on_threads(lambda: cpu.head_dots_backward(grad, x, a)), expected, strict=True):
        close(mine, theirs)
    close(cpu.head_dots_backward(grad, x, a, x)[0], x + expected[0])


@patterns
@pytest.mark.parametrize("heads", [1, 3, 8, 16, 40])
def test_softmax_and_its_gradient(name: str, heads: int) -> None:
    entries = pattern(name)
    logits, grad = random(entries.num_entries, heads) * 30, random(entries.num_entries, heads, seed=2)
    for over, order in ((entries, None), (entries.transposed, entries.by_sender)):
        at = torch.arange(len(logits)) if order is None else order
        (alpha,) = on_threads(lambda over=over, order=order: cpu.softmax(logits, over, order))
        close(alpha[at], reference_softmax(logits[at].double(), over))
        weighted = (alpha * grad)[at].double()
        mean = weighted.new_zeros(over.num_receivers, heads).index_add_(0, over.receivers, weighted)
        (found,) = on_threads(lambda a=alpha, over=over, order=order: cpu.softmax_backward(a, grad, over, order))
        close(found[at], weighted - alpha[at].double() * mean[over.receivers])


@patterns
@pytest.mark.parametrize("heads", [1, 3, 8, 16])
def test_entry_logits_and_their_gradient(name: str, heads: int) -> None:
    entries = pattern(name)
    size = max(entries.num_senders, entries.num_receivers)
    sender, receiver = torch.split(random(size, 2 * heads), heads, 1)  # rows a stride apart
    sender, receiver = sender[: entries.num_senders], receiver[: entries.num_receivers]
    weights = random(entries.num_entries).abs()
    (logits,) = on_threads(lambda: cpu.entry_logits(sender, receiver, weights, 0.2, entries))
    close(logits, reference_entry_logits(sender.double(), receiver.double(), weights.double(), 0.2, entries))
    grad = random(entries.num_entries, heads, seed=2)
    (inner,) = on_threads(lambda: cpu.entry_logits_backward(grad, logits, weights, 0.2))
    close(inner, torch.where(logits > 0, grad, 0.2 * grad) * weights[:, None])
    (found,) = on_threads(lambda: cpu.segment_sum(inner, entries, None))
    close(found, torch.zeros_like(found).index_add_(0, entries.receivers, inner))
    (found,) = on_threads(lambda: cpu.segment_sum(inner, entries.transposed, entries.by_sender))
    close(found, torch.zeros_like(found).index_add_(0, entries.senders, inner))


@pytest.mark.parametrize("used", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("what", ["head_dots", "look_up_with_input"])
def test_gradients_of_what_comes_beside(what: str, used: tuple[bool, bool]) -> None:
    """In float64 autograd adds them."""
    rows = Pattern.lookup(torch.tensor([3, 0, 3, 5]), 6)
    found = []
    for dtype in (torch.float32, torch.float64):
        x, a = random(6, 4, 2).to(dtype).requires_grad_(), random(2, 4, 2, seed=2).to(dtype).requires_grad_()
        results = sparse.head_dots(x, a) if what == "head_dots" else sparse.look_up_with_input(x.flatten(1), rows)
        total = sum((r * random(*r.shape, seed=3)).sum() for r, u in zip(results, used, strict=True) if u)
        grads = torch.autograd.grad(total, [x, a], allow_unused=True)
        found.append([g.double() for g in grads if g is not None])
    assert_close(*found, rtol=1e-5, atol=1e-5)


def test_the_exponential() -> None:
    """Two entries with logits 0 and −x: their quotient is e^−x, to the last digits, down to 0 and no further."""
    x = torch.cat([torch.linspace(0, 100, 5001), torch.tensor([1e4, 1e9, 3e38, math.inf])])
    logits = torch.stack([torch.zeros_like(x), -x], 1).flatten()[:, None]
    entries = Pattern.from_counts(torch.full((len(x),), 2), torch.zeros(2 * len(x), dtype=torch.int64), 1)
    alpha = cpu.softmax(logits, entries, None).view(-1, 2).double()
    expected = torch.exp(-x.double())
    expected[x > 86.6] = 0
    assert_close(alpha[:, 1] / alpha[:, 0], expected, rtol=4e-7, atol=0)


def test_what_is_no_number_stays_none() -> None:
    entries = pattern("some")
    logits = random(entries.num_entries, 4)
    logits[7, 2] = math.nan
    row = entries.receivers[7]
    found = cpu.softmax(logits, entries, None)
    same = (entries.receivers == row)[:, None] & (torch.arange(4) == 2)
    assert found[same].isnan().all() and found[~same].isfinite().all()


@pytest.mark.parametrize(("heads", "width"), [(16, 8), (3, 5)])
@pytest.mark.parametrize("stepped", [True, False])
@pytest.mark.parametrize("kept", [True, False])
def test_history_attention_on_threads(heads: int, width: int, stepped: bool, kept: bool) -> None:
    """test_history.py has what it gives."""
    counts = torch.randint(0, 13, (700,), generator=seeded(2))
    past = Pattern.from_counts(counts, torch.randint(0, 400, (int(counts.sum()),), generator=seeded(3)), 400)
    at = torch.arange(past.num_entries) - past.offsets[past.receivers]
    history = History(past, counts, past, at, 12)
    q, kv = random(700, heads, width), random(400 + 12 * stepped, 2 * heads * width, seed=2)
    keep = (random(past.num_entries, heads, seed=4) > 0).float() * 2 if kept else None
    z, beta = on_threads(lambda: cpu.history_attention(q, kv, history, keep))
    grad = random(700, heads, width, seed=5)
    on_threads(lambda: cpu.history_attention_backward(grad, z, q, kv, history, keep, beta))


@patterns
def test_patterns_from_the_other_side(name: str, request: pytest.FixtureRequest) -> None:
    mine = pattern(name)
    order, across = mine.by_sender, mine.transposed
    request.getfixturevalue("without_native")
    theirs = pattern(name)
    assert torch.equal(order, theirs.by_sender)
    for field in ("receivers", "senders", "offsets", "num_senders"):
        assert_close(getattr(across, field), getattr(theirs.transposed, field))


@pytest.mark.parametrize(("length", "window"), [(20, 10), (1, 3), (5, 1), (7, 100)])
def test_contexts_are_those_that_torch_draws(length: int, window: int, request: pytest.FixtureRequest) -> None:
    walks = torch.randint(0, 30, (200, length), generator=seeded(1)) // 2 * 2  # odd rows have none
    contexts, rows = Contexts.from_walks(walks, 30, window), torch.arange(30).repeat(3)
    (found,) = on_threads(lambda: contexts.draw(rows, 10, generator=seeded(2)))
    request.getfixturevalue("without_native")
    assert torch.equal(found, contexts.draw(rows, 10, generator=seeded(2)))


class TestDropout:
    @pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1000, (1 << 18) + 5])
    def test_numpy_has_the_same_bits(self, size: int) -> None:
        key, dropped = (1 << 63) + 12345, 20000
        (found,) = on_threads(lambda: cpu.dropout(torch.ones(size), key, dropped, 2.0))
        assert torch.equal(found, torch.from_numpy(2.0 * (_random_bits(0, size, key) >= dropped)).float())

    def test_bits_are_fair_and_independent(self) -> None:
        """Each of the 16, each pair of them, and bits of neighbours, of other rows, and of the next keys."""
        n, key = 1 << 17, 987654321987654321
        bits = np.unpackbits(_random_bits(0, n, _mix(key)).view(np.uint8), bitorder="little").reshape(n, 16)
        signs = 2.0 * bits - 1  # [n, 16]
        bound = 5.5 * math.sqrt(n)
        assert np.abs(signs.sum(0)).max() < bound
        assert np.abs(signs.T @ signs - n * np.eye(16)).max() < bound
        for shift in (1, 2, 15, 16, 17, 32, 128, 256, 4096):
            assert np.abs(signs[shift:].T @ signs[:-shift]).max() < bound
        for other in (0, key + 1, key - 1, key ^ (1 << 32), key ^ (1 << 61), key + (1 << 40)):
            theirs = np.unpackbits(_random_bits(0, n, _mix(other)).view(np.uint8), bitorder="little").reshape(n, 16)
            for shift in (0, 1, 16, 32):
                assert np.abs(signs[shift:].T @ (2.0 * theirs - 1)[: n - shift]).max() < bound


def test_a_model_learns_the_same_without(request: pytest.FixtureRequest) -> None:
    """All that is random comes from one generator, so training differs by rounding alone."""
    graph = dysat.load_dataset("uci")[:4]
    choices = {"epochs": 2, "walks_per_node": 2, "walk_length": 8, "batch_size": 300}

    def losses() -> list[float]:
        found = []
        for preset in ("text", "program"):
            model = dysat.DySAT.from_preset(preset, **choices, device="cpu").fit(graph)
            found += [epoch.loss for epoch in model.epochs_] + [float(model.embed().square().mean())]
        return found

    with_native = losses()
    request.getfixturevalue("without_native")
    assert_close(with_native, losses(), rtol=1e-3, atol=0)
