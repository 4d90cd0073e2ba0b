"""The operations on sparse patterns against loops over entries, and their gradients."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from graphs import on_each_device, seeded, softmax
from torch import Tensor
from torch.testing import assert_close

from dysat.nn.ops import reference
from dysat.nn.ops.reference import (
    bag_weighted_sum,
    chunked_pair_dot,
    reference_entry_logits,
    reference_pair_dot,
    reference_softmax,
    reference_weighted_sum,
    segment_softmax_cpu,
)
from dysat.nn.ops.sparse import entry_logits, look_up, pair_dot, segment_softmax, sender_softmax, weighted_sum
from dysat.sampling.blocks import Pattern

Entries = list[tuple[int, int]]
gradcheck = partial(torch.autograd.gradcheck, nondet_tol=1e-12)  # on CUDA the order of sums varies
HEADS, WIDTH = 3, 4
each_shape = pytest.mark.parametrize("shape", [(2, 4), (3, 1)])  # (heads, width); CUDA kernels need powers of two


def random_entries(num_entries: int, num_receivers: int, num_senders: int) -> Entries:
    pairs = [torch.randint(n, (num_entries,), generator=seeded(n)).tolist() for n in (num_receivers, num_senders)]
    return sorted(zip(*pairs, strict=True))


# Entries (receiver, sender) in order of receiver, number of receivers, number of senders. Some have no entries.
PATTERNS: dict[str, tuple[Entries, int, int]] = {
    "mixed": ([(1, 3), (1, 0), (1, 1), (2, 0), (4, 4), (4, 3), (4, 1), (4, 0)], 6, 7),
    "one each": ([(0, 1), (1, 2), (2, 0)], 3, 3),
    "a pair twice": ([(0, 0), (0, 0), (0, 1)], 1, 2),
    "no entries": ([], 3, 2),
    "many": (random_entries(300, 40, 30), 40, 30),
    "a hub": (sorted([(2, u) for u in range(150)] + [(v, 7) for v in range(4, 90)]), 91, 150),
}
each_pattern = pytest.mark.parametrize("name", PATTERNS)
# In float64 the operations are torch's, in float32 those of native.c or Triton.
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def make(entries: Entries, num_receivers: int, num_senders: int, device: str = "cpu") -> Pattern:
    receivers, senders = (torch.tensor([pair[i] for pair in entries], dtype=torch.int64) for i in range(2))
    offsets = torch.tensor([sum(r < i for r, _ in entries) for i in range(num_receivers + 1)])
    return Pattern(receivers.to(device), senders.to(device), offsets.to(device), num_senders)


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0, device: str = "cpu") -> Tensor:
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64).to(device, dtype)


def softmax_loop(logits: Tensor, entries: Entries, *, side: int) -> Tensor:
    """Softmax over the entries with the same receiver (side 0) or sender (side 1)."""
    alpha = torch.zeros(logits.shape, dtype=torch.float64)
    values = logits.tolist()
    for h in range(logits.shape[1]):
        for same in {pair[side] for pair in entries}:
            group = {e: values[e][h] for e, pair in enumerate(entries) if pair[side] == same}
            for e, share in softmax(group).items():
                alpha[e, h] = share
    return alpha


def sum_loop(alpha: Tensor, x: Tensor, entries: Entries, num_receivers: int) -> Tensor:
    heads, width = x.shape[1:]
    shares, vectors = alpha.tolist(), x.tolist()
    z = [[[0.0] * width for _ in range(heads)] for _ in range(num_receivers)]
    for e, (v, u) in enumerate(entries):
        for h in range(heads):
            for f in range(width):
                z[v][h][f] += shares[e][h] * vectors[u][h][f]
    return torch.tensor(z, dtype=torch.float64).view(num_receivers, heads, width)


def dot_loop(x: Tensor, y: Tensor, entries: Entries) -> Tensor:
    left, right = x.tolist(), y.tolist()
    out = torch.zeros(len(entries), x.shape[1], dtype=torch.float64)
    for e, (v, u) in enumerate(entries):
        for h in range(x.shape[1]):
            out[e, h] = math.fsum(a * b for a, b in zip(left[v][h], right[u][h], strict=True))
    return out


def logits_loop(sender: Tensor, receiver: Tensor, weights: Tensor, entries: Entries) -> Tensor:
    """LeakyReLU(w (s_u + r_v)) with slope 0.2."""
    out = torch.zeros(len(entries), sender.shape[1], dtype=torch.float64)
    for e, (v, u) in enumerate(entries):
        for h in range(sender.shape[1]):
            inner = float(weights[e]) * (float(sender[u, h]) + float(receiver[v, h]))
            out[e, h] = max(inner, 0.2 * inner)
    return out


def close(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert actual.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert_close(actual.double().cpu(), expected, rtol=tolerance, atol=tolerance)


@on_each_device
@each_pattern
@each_dtype
@each_shape
class TestEqualsLoops:
    def test_softmax(self, name: str, shape: tuple[int, int], dtype: torch.dtype, device: str) -> None:
        entries = PATTERNS[name][0]
        pattern, logits = make(*PATTERNS[name], device), 3 * random(len(entries), shape[0], dtype=dtype, device=device)
        expected = softmax_loop(logits, entries, side=0)
        for version in [segment_softmax, reference_softmax] + [segment_softmax_cpu] * (device == "cpu"):
            close(version(logits, pattern), expected, dtype)
        close(sender_softmax(logits, pattern), softmax_loop(logits, entries, side=1), dtype)

    def test_weighted_sum(self, name: str, shape: tuple[int, int], dtype: torch.dtype, device: str) -> None:
        entries, num_receivers, num_senders = PATTERNS[name]
        alpha = random(len(entries), shape[0], dtype=dtype, device=device)
        x = random(num_senders, *shape, dtype=dtype, seed=1, device=device)
        expected = sum_loop(alpha, x, entries, num_receivers)
        for version in [weighted_sum, reference_weighted_sum] + [bag_weighted_sum] * (device == "cpu"):
            close(version(alpha, x, make(*PATTERNS[name], device)), expected, dtype)

    def test_pair_dot(self, name: str, shape: tuple[int, int], dtype: torch.dtype, device: str) -> None:
        entries, num_receivers, num_senders = PATTERNS[name]
        x = random(num_receivers, *shape, dtype=dtype, device=device)
        y = random(num_senders, *shape, dtype=dtype, seed=1, device=device)
        expected = dot_loop(x, y, entries)
        for version in [pair_dot, reference_pair_dot] + [chunked_pair_dot] * (device == "cpu"):
            close(version(x, y, make(*PATTERNS[name], device)), expected, dtype)

    def test_entry_logits(self, name: str, shape: tuple[int, int], dtype: torch.dtype, device: str) -> None:
        entries, num_receivers, num_senders = PATTERNS[name]
        sender = random(num_senders, shape[0], dtype=dtype, device=device)
        receiver = random(num_receivers, shape[0], dtype=dtype, seed=1, device=device)
        weights = random(len(entries), dtype=dtype, seed=2, device=device).abs()
        expected = logits_loop(sender, receiver, weights, entries)
        for version in (entry_logits, reference_entry_logits):
            close(version(sender, receiver, weights, 0.2, make(*PATTERNS[name], device)), expected, dtype)


@on_each_device
@each_dtype
@pytest.mark.parametrize("rows", [[3, 0, 3, 5], [], [2] * 150])
def test_look_up(rows: list[int], dtype: torch.dtype, device: str) -> None:
    pattern = make(list(enumerate(rows)), len(rows), 6, device)
    x, scale = random(6, 4, dtype=dtype, device=device), random(len(rows), 1, dtype=dtype, seed=1, device=device)
    expected = torch.tensor([x[row].tolist() for row in rows], dtype=torch.float64).view(-1, 4)
    close(look_up(x, pattern), expected, dtype)
    close(look_up(x, pattern, scale), expected * scale.double().cpu(), dtype)


@on_each_device
@each_dtype
def test_softmax_of_huge_logits(dtype: torch.dtype, device: str) -> None:
    entries = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0)]
    pattern = make(entries, 4, 3, device)
    logits = torch.tensor([[1e9, -1e9], [-1e9, -1e9], [1e9, 0.0], [1e9, -1e9], [0.0, 1.0], [-1e9, 1e9]], dtype=dtype)
    e = 1 / (1 + math.e)
    by_receiver = [[1.0, 0.5], [0.0, 0.5], [0.5, e], [0.5, 0.0], [0.0, 1 - e], [1.0, 1.0]]
    by_sender = [[0.5, 0.0], [0.0, 0.5], [0.5, 0.0], [1.0, 0.5], [1.0, 1.0], [0.0, 1.0]]
    for version in [segment_softmax, reference_softmax] + [segment_softmax_cpu] * (device == "cpu"):
        close(version(logits.to(device), pattern), torch.tensor(by_receiver, dtype=torch.float64), dtype)
    close(sender_softmax(logits.to(device), pattern), torch.tensor(by_sender, dtype=torch.float64), dtype)


@on_each_device
def test_empty_pattern(device: str) -> None:
    pattern, alpha = make([], 0, 0, device), random(0, HEADS, device=device)
    assert segment_softmax(alpha, pattern).shape == sender_softmax(alpha, pattern).shape == (0, HEADS)
    assert weighted_sum(alpha, random(0, HEADS, WIDTH, device=device), pattern).shape == (0, HEADS, WIDTH)


def test_pair_dot_and_gradients_of_an_empty_pattern() -> None:
    pattern, alpha, x = make([], 0, 0), random(0, HEADS), random(0, HEADS, WIDTH)
    assert pair_dot(x, x, pattern).shape == (0, HEADS)
    weighted_sum(alpha.requires_grad_(), x, pattern).sum().backward()
    assert alpha.grad.shape == (0, HEADS)


@each_dtype
def test_more_entries_than_a_chunk(dtype: torch.dtype) -> None:
    entries = random_entries(2 * reference.CHUNK + 7, 50, 60)
    receivers, senders = torch.tensor(entries).T
    counts = torch.bincount(receivers, minlength=50)
    pattern = Pattern(receivers, senders, torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]), 60)
    x, y = random(50, 2, 3, dtype=dtype), random(60, 2, 3, dtype=dtype, seed=1)
    dots = dot_loop(x, y, entries)
    close(chunked_pair_dot(x, y, pattern), dots, dtype)
    close(reference_pair_dot(x, y, pattern), dots, dtype)
    assert_close(bag_weighted_sum(dots.to(dtype), y, pattern), reference_weighted_sum(dots.to(dtype), y, pattern))


@pytest.mark.parametrize("chunk", [1, 3, 8, 100])  # the pattern has 8 entries
def test_chunks_of_any_size(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "CHUNK", chunk)
    entries, num_receivers, num_senders = PATTERNS["mixed"]
    x, y = random(num_receivers, HEADS, WIDTH), random(num_senders, HEADS, WIDTH, seed=1)
    close(chunked_pair_dot(x, y, make(*PATTERNS["mixed"])), dot_loop(x, y, entries), torch.float64)


def test_inputs_that_are_not_contiguous() -> None:
    entries, num_receivers, num_senders = PATTERNS["mixed"]
    x = random(WIDTH, HEADS, num_receivers).transpose(0, 2)
    y = random(WIDTH, HEADS, num_senders, seed=1).transpose(0, 2)
    alpha = random(HEADS, len(entries), seed=2).T
    pattern = make(*PATTERNS["mixed"])
    close(pair_dot(x, y, pattern), dot_loop(x, y, entries), torch.float64)
    close(weighted_sum(alpha, y, pattern), sum_loop(alpha, y, entries, num_receivers), torch.float64)
    close(segment_softmax(alpha, pattern), softmax_loop(alpha, entries, side=0), torch.float64)


@on_each_device
@pytest.mark.parametrize("name", [name for name in PATTERNS if name not in ("many", "a hub")])
class TestGradients:
    def test_softmax(self, name: str, device: str) -> None:
        pattern, logits = make(*PATTERNS[name], device), random(len(PATTERNS[name][0]), 2, device=device)
        assert gradcheck(lambda z: segment_softmax(z, pattern), logits.requires_grad_())
        assert gradcheck(lambda z: sender_softmax(z, pattern), logits)

    def test_weighted_sum(self, name: str, device: str) -> None:
        entries, _, num_senders = PATTERNS[name]
        pattern = make(*PATTERNS[name], device)
        alpha, x = random(len(entries), 2, device=device), random(num_senders, 2, 4, seed=1, device=device)
        assert gradcheck(lambda a: weighted_sum(a, x, pattern), alpha.clone().requires_grad_())
        assert gradcheck(lambda z: weighted_sum(alpha, z, pattern), x.clone().requires_grad_())
        both = alpha.requires_grad_(), x.requires_grad_()
        assert gradcheck(lambda a, z: weighted_sum(a, z, pattern), both)

    def test_pair_dot(self, name: str, device: str) -> None:
        _, num_receivers, num_senders = PATTERNS[name]
        pattern = make(*PATTERNS[name], device)
        x, y = random(num_receivers, 2, 4, device=device), random(num_senders, 2, 4, seed=1, device=device)
        assert gradcheck(lambda a: pair_dot(a, y, pattern), x.clone().requires_grad_())
        assert gradcheck(lambda b: pair_dot(x, b, pattern), y.clone().requires_grad_())
        assert gradcheck(lambda a, b: pair_dot(a, b, pattern), (x.requires_grad_(), y.requires_grad_()))


@on_each_device
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("rows", [[3, 0, 3, 5], []])
def test_gradient_of_look_up(rows: list[int], scaled: bool, device: str) -> None:
    """With respect to x; the gradients of a row that is looked up twice are added."""
    pattern = make(list(enumerate(rows)), len(rows), 6, device)
    scale = random(len(rows), 1, seed=1, device=device) if scaled else None
    assert gradcheck(lambda x: look_up(x, pattern, scale), random(6, 4, device=device).requires_grad_())


OPERATIONS = {
    "segment_softmax": lambda alpha, x, y, pattern: segment_softmax(alpha, pattern),
    "sender_softmax": lambda alpha, x, y, pattern: sender_softmax(alpha, pattern),
    "weighted_sum": lambda alpha, x, y, pattern: weighted_sum(alpha, y, pattern),
    "weighted_sum with ELU": lambda alpha, x, y, pattern: weighted_sum(alpha, y, pattern, elu=True),
    "pair_dot": lambda alpha, x, y, pattern: pair_dot(x, y, pattern),
    "entry_logits": lambda alpha, x, y, pattern: entry_logits(
        y[:, 0], x[:, 0], alpha[:, 0].detach().abs(), 0.2, pattern
    ),
}


@on_each_device
@pytest.mark.parametrize("name", ["mixed", "many", "a hub", "no entries"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_float32_gradients_equal_those_in_float64(operation: str, name: str, device: str) -> None:
    """In float32 the gradients are computed by native.c or Triton, in float64 by torch."""
    entries, num_receivers, num_senders = PATTERNS[name]
    pattern, gradients = make(*PATTERNS[name], device), []
    for dtype in (torch.float32, torch.float64):
        alpha = random(len(entries), 2, dtype=dtype, device=device).requires_grad_()
        x = random(num_receivers, 2, 4, dtype=dtype, seed=1, device=device).requires_grad_()
        y = random(num_senders, 2, 4, dtype=dtype, seed=2, device=device).requires_grad_()
        result = OPERATIONS[operation](alpha, x, y, pattern)
        weights = random(*result.shape, dtype=dtype, seed=3, device=device)
        grads = torch.autograd.grad((result * weights).sum(), (alpha, x, y), allow_unused=True)
        gradients.append([g.double() for g in grads if g is not None])
    assert len(gradients[0]) == {"segment_softmax": 1, "sender_softmax": 1}.get(operation, 2)
    assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_operations_do_not_depend_on_the_order_of_nodes() -> None:
    """After renumbering, every entry keeps its values and every receiver its sum."""
    entries, num_receivers, num_senders = PATTERNS["many"]
    to_receiver, to_sender = (torch.randperm(n, generator=seeded(n)) for n in (num_receivers, num_senders))
    renamed = [(int(to_receiver[v]), int(to_sender[u])) for v, u in entries]
    order = sorted(range(len(entries)), key=renamed.__getitem__)
    before, after = make(*PATTERNS["many"]), make([renamed[e] for e in order], num_receivers, num_senders)
    logits, x = random(len(entries), HEADS), random(num_receivers, HEADS, WIDTH)
    y = random(num_senders, HEADS, WIDTH, seed=1)
    new_x, new_y = torch.empty_like(x), torch.empty_like(y)
    new_x[to_receiver], new_y[to_sender] = x, y
    assert_close(segment_softmax(logits[order], after), segment_softmax(logits, before)[order])
    assert_close(sender_softmax(logits[order], after), sender_softmax(logits, before)[order])
    assert_close(pair_dot(new_x, new_y, after), pair_dot(x, y, before)[order])
    assert_close(weighted_sum(logits[order], new_y, after)[to_receiver], weighted_sum(logits, y, before))
