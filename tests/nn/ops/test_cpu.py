"""The functions of native.c against the reference versions, on one thread and on several."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from graphs import seeded
from small import two_blocks
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


# native.c has special code for (16, 16), (16, 8) and (8, 16).
SHAPES = [(16, 16), (16, 8), (8, 16), (1, 128), (3, 5), (2, 1), (1, 1), (40, 3)]
shapes = pytest.mark.parametrize(("heads", "width"), SHAPES)
# Number of receivers and senders, mean number of entries, and number of entries of one hub.
PATTERNS = {
    "random": (300, 200, 5, 40),
    "a hub": (50, 3000, 3, 5000),
    "one receiver": (1, 9000, 0, 9000),
    "no entries": (7, 5, 0, 0),
    "empty": (0, 0, 0, 0),
}
patterns = pytest.mark.parametrize("name", PATTERNS)
# Every shape with a random pattern, and every other pattern with a special shape and an ordinary one.
patterns_and_shapes = pytest.mark.parametrize(
    ("name", "heads", "width"),
    [("random", *shape) for shape in SHAPES]
    + [(name, *shape) for name in PATTERNS if name != "random" for shape in ((16, 8), (3, 5))],
)


def pattern(name: str) -> Pattern:
    """A pattern whose first receiver has no entries and whose last but one is a hub."""
    receivers, senders, mean, hub = PATTERNS[name]
    generator = seeded(1)
    counts = torch.randint(0, 2 * mean + 1, (receivers,), generator=generator)
    if receivers:
        counts[0] = 0
        counts[max(0, receivers - 2)] = hub
    return Pattern.from_counts(
        counts, torch.randint(0, max(senders, 1), (int(counts.sum()),), generator=generator), senders
    )


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
    """Call a function on 1, 2 and 5 threads, check that the bits are equal, and return its results."""
    results = []
    for number in (1, 2, 5):
        with threads(number):
            result = function()
        results.append([result] if isinstance(result, Tensor) else list(result))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    return results[0]


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Compare relative to the largest value: sums of thousands of terms lose the digits of small ones."""
    assert actual.shape == expected.shape and actual.dtype == torch.float32
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance * max(1.0, largest))


@patterns_and_shapes
def test_weighted_sum(name: str, heads: int, width: int) -> None:
    entries = pattern(name)
    alpha, x = random(entries.num_entries, heads), random(entries.num_senders, heads, width)
    y = random(entries.num_receivers, heads, width)
    expected = reference_weighted_sum(alpha.double(), x.double(), entries)
    (actual,) = on_threads(lambda: cpu.weighted_sum(alpha, x, entries, None))
    close(actual, expected)
    (actual,) = on_threads(lambda: cpu.weighted_sum(alpha, x, entries, None, elu=True))
    close(actual, torch.nn.functional.elu(expected))
    across, order = entries.transposed, entries.by_sender
    sums = reference_weighted_sum(alpha[order].double(), y.double(), across)
    (actual,) = on_threads(lambda: cpu.weighted_sum(alpha, y, across, order))
    close(actual, sums)
    (actual,) = on_threads(lambda: cpu.weighted_sum(alpha, y, across, order, first=x))
    close(actual, x + sums)


@patterns_and_shapes
def test_pair_dot(name: str, heads: int, width: int) -> None:
    entries = pattern(name)
    x, y = random(entries.num_receivers, heads, width), random(entries.num_senders, heads, width, seed=2)
    (actual,) = on_threads(lambda: cpu.pair_dot(x, y, entries))
    close(actual, reference_pair_dot(x.double(), y.double(), entries))


@shapes
@pytest.mark.parametrize("rows", [0, 1, 3000])
def test_head_dots_and_their_gradient(rows: int, heads: int, width: int) -> None:
    x, a = random(rows, heads, width), random(2, heads, width, seed=2)
    (actual,) = on_threads(lambda: cpu.head_dots(x, a))
    close(actual, reference_head_dots(x.double(), a.double()))
    grad, exact = random(rows, 2 * heads, seed=3), [t.double().requires_grad_() for t in (x, a)]
    expected = torch.autograd.grad(reference_head_dots(*exact), exact, grad.double())
    for actual, reference in zip(on_threads(lambda: cpu.head_dots_backward(grad, x, a)), expected, strict=True):
        close(actual, reference)
    close(cpu.head_dots_backward(grad, x, a, x)[0], x + expected[0])


@patterns
@pytest.mark.parametrize("heads", [1, 3, 16, 40])
def test_softmax_and_its_gradient(name: str, heads: int) -> None:
    entries = pattern(name)
    logits, grad = random(entries.num_entries, heads) * 30, random(entries.num_entries, heads, seed=2)
    for over, order in ((entries, None), (entries.transposed, entries.by_sender)):
        at = torch.arange(len(logits)) if order is None else order
        (alpha,) = on_threads(lambda over=over, order=order: cpu.softmax(logits, over, order))
        close(alpha[at], reference_softmax(logits[at].double(), over))
        weighted = (alpha * grad)[at].double()
        mean = weighted.new_zeros(over.num_receivers, heads).index_add_(0, over.receivers, weighted)
        (actual,) = on_threads(lambda a=alpha, over=over, order=order: cpu.softmax_backward(a, grad, over, order))
        close(actual[at], weighted - alpha[at].double() * mean[over.receivers])


@patterns
@pytest.mark.parametrize("heads", [1, 3, 16])
def test_entry_logits_and_their_gradient(name: str, heads: int) -> None:
    entries = pattern(name)
    size = max(entries.num_senders, entries.num_receivers)
    sender, receiver = torch.split(random(size, 2 * heads), heads, 1)  # not contiguous
    sender, receiver = sender[: entries.num_senders], receiver[: entries.num_receivers]
    weights = random(entries.num_entries).abs()
    (logits,) = on_threads(lambda: cpu.entry_logits(sender, receiver, weights, 0.2, entries))
    close(logits, reference_entry_logits(sender.double(), receiver.double(), weights.double(), 0.2, entries))
    grad = random(entries.num_entries, heads, seed=2)
    (inner,) = on_threads(lambda: cpu.entry_logits_backward(grad, logits, weights, 0.2))
    close(inner, torch.where(logits > 0, grad, 0.2 * grad) * weights[:, None])
    (actual,) = on_threads(lambda: cpu.segment_sum(inner, entries, None))
    close(actual, torch.zeros_like(actual).index_add_(0, entries.receivers, inner))
    (actual,) = on_threads(lambda: cpu.segment_sum(inner, entries.transposed, entries.by_sender))
    close(actual, torch.zeros_like(actual).index_add_(0, entries.senders, inner))


@pytest.mark.parametrize("used", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("operation", ["head_dots", "look_up_with_input"])
def test_gradients_of_operations_that_return_their_input(operation: str, used: tuple[bool, bool]) -> None:
    """The reference is float64, where autograd adds the gradients of both results."""
    rows = Pattern.lookup(torch.tensor([3, 0, 3, 5]), 6)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        x, a = random(6, 4, 2).to(dtype).requires_grad_(), random(2, 4, 2, seed=2).to(dtype).requires_grad_()
        results = sparse.head_dots(x, a) if operation == "head_dots" else sparse.look_up_with_input(x.flatten(1), rows)
        total = sum((r * random(*r.shape, seed=3)).sum() for r, u in zip(results, used, strict=True) if u)
        grads = torch.autograd.grad(total, [x, a], allow_unused=True)
        gradients.append([g.double() for g in grads if g is not None])
    assert_close(*gradients, rtol=1e-5, atol=1e-5)


def test_exponential_of_softmax() -> None:
    """The softmax of logits 0 and −x has the ratio e^−x, accurate to float32 precision and 0 for large x."""
    x = torch.cat([torch.linspace(0, 100, 5001), torch.tensor([1e4, 1e9, 3e38, math.inf])])
    logits = torch.stack([torch.zeros_like(x), -x], 1).flatten()[:, None]
    entries = Pattern.from_counts(torch.full((len(x),), 2), torch.zeros(2 * len(x), dtype=torch.int64), 1)
    alpha = cpu.softmax(logits, entries, None).view(-1, 2).double()
    expected = torch.exp(-x.double())
    expected[x > 86.6] = 0
    assert_close(alpha[:, 1] / alpha[:, 0], expected, rtol=4e-7, atol=0)


def test_nan_affects_only_its_receiver_and_head() -> None:
    entries = pattern("random")
    logits = random(entries.num_entries, 4)
    logits[7, 2] = math.nan
    row = entries.receivers[7]
    alpha = cpu.softmax(logits, entries, None)
    same = (entries.receivers == row)[:, None] & (torch.arange(4) == 2)
    assert alpha[same].isnan().all() and alpha[~same].isfinite().all()


@pytest.mark.parametrize(("heads", "width"), [(16, 8), (3, 5)])
@pytest.mark.parametrize("stepped", [True, False])
@pytest.mark.parametrize("kept", [True, False])
def test_history_attention_is_equal_on_any_number_of_threads(heads: int, width: int, stepped: bool, kept: bool) -> None:
    """test_history.py tests the values."""
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
def test_transposed_patterns_equal_those_of_torch(name: str, request: pytest.FixtureRequest) -> None:
    compiled = pattern(name)
    order, across = compiled.by_sender, compiled.transposed
    request.getfixturevalue("without_native")
    reference = pattern(name)
    assert torch.equal(order, reference.by_sender)
    for field in ("receivers", "senders", "offsets", "num_senders"):
        assert_close(getattr(across, field), getattr(reference.transposed, field))


@pytest.mark.parametrize(("length", "window"), [(20, 10), (1, 3), (5, 1), (7, 100)])
def test_contexts_equal_those_of_torch(length: int, window: int, request: pytest.FixtureRequest) -> None:
    walks = torch.randint(0, 30, (200, length), generator=seeded(1)) // 2 * 2  # odd rows have no context
    contexts, rows = Contexts.from_walks(walks, 30, window), torch.arange(30).repeat(3)
    (actual,) = on_threads(lambda: contexts.draw(rows, 10, generator=seeded(2)))
    request.getfixturevalue("without_native")
    assert torch.equal(actual, contexts.draw(rows, 10, generator=seeded(2)))


class TestDropout:
    @pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1000, (1 << 18) + 5])
    def test_bits_equal_those_of_numpy(self, size: int) -> None:
        key, dropped = (1 << 63) + 12345, 20000
        (actual,) = on_threads(lambda: cpu.dropout(torch.ones(size), key, dropped, 2.0))
        assert torch.equal(actual, torch.from_numpy(2.0 * (_random_bits(0, size, key) >= dropped)).float())

    def test_bits_are_fair_and_independent(self) -> None:
        """Each of the 16 bits, each pair of bits, bits of nearby values, and bits of similar keys."""
        n, key = 1 << 17, 987654321987654321
        bits = np.unpackbits(_random_bits(0, n, _mix(key)).view(np.uint8), bitorder="little").reshape(n, 16)
        signs = 2.0 * bits - 1  # [n, 16]
        bound = 5.5 * math.sqrt(n)
        assert np.abs(signs.sum(0)).max() < bound
        assert np.abs(signs.T @ signs - n * np.eye(16)).max() < bound
        for shift in (1, 2, 15, 16, 17, 32, 128, 256, 4096):
            assert np.abs(signs[shift:].T @ signs[:-shift]).max() < bound
        for other in (0, key + 1, key - 1, key ^ (1 << 32), key ^ (1 << 61), key + (1 << 40)):
            others = np.unpackbits(_random_bits(0, n, _mix(other)).view(np.uint8), bitorder="little").reshape(n, 16)
            for shift in (0, 1, 16, 32):
                assert np.abs(signs[shift:].T @ (2.0 * others - 1)[: n - shift]).max() < bound


@pytest.mark.parametrize("preset", ["text", "program"])
def test_training_without_a_compiler_differs_by_rounding_only(preset: str, request: pytest.FixtureRequest) -> None:
    """All random draws are the same on both paths."""
    options = {"epochs": 2, "walks_per_node": 2, "walk_length": 8, "batch_size": 20, "device": "cpu"}

    def train() -> list[float]:
        model = dysat.DySAT.from_preset(preset, **options).fit(two_blocks(30, 3))
        return [epoch.loss for epoch in model.epochs_] + [float(model.embed().square().mean())]

    compiled = train()
    request.getfixturevalue("without_native")
    assert_close(compiled, train(), rtol=1e-3, atol=0)
