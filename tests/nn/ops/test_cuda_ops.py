"""The Triton kernels against the reference versions, on CUDA."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from dysat.nn.ops.reference import reference_entry_logits, reference_pair_dot, reference_softmax, reference_weighted_sum
from dysat.sampling.blocks import PIECE, Pattern

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
shapes = pytest.mark.parametrize(("heads", "width"), [(16, 16), (16, 8), (8, 16), (1, 128), (4, 2), (2, 1)])


def pattern(*, mean: int = 4, hub: int = 10 * PIECE + 3) -> Pattern:
    """A pattern with empty receivers and a hub of several pieces."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 2 * mean, (300,), generator=generator)
    counts[3], counts[5] = 0, hub
    senders = torch.randint(0, 200, (int(counts.sum()),), generator=generator)
    return Pattern.from_counts(counts.cuda(), senders.cuda(), 200)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(1), device="cuda")


@shapes
@pytest.mark.parametrize("mean", [1, 2, 9], ids="mean-{}".format)
def test_weighted_sum(heads: int, width: int, mean: int) -> None:
    from dysat.nn.ops import cuda

    entries = pattern(mean=mean)
    alpha, x, y = random(entries.num_entries, heads), random(200, heads, width), random(300, heads, width)
    close = {"atol": 1e-3, "rtol": 1e-4}
    assert_close(cuda.weighted_sum(alpha, x, entries, None), reference_weighted_sum(alpha, x, entries), **close)
    backwards = reference_weighted_sum(alpha[entries.by_sender], y, entries.transposed)
    assert_close(cuda.weighted_sum(alpha, y, entries.transposed, entries.by_sender), backwards, **close)


@shapes
def test_pair_dot(heads: int, width: int) -> None:
    from dysat.nn.ops import cuda

    entries = pattern()
    x, y = random(300, heads, width), random(200, heads, width)
    assert_close(cuda.pair_dot(x, y, entries), reference_pair_dot(x, y, entries), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("heads", [1, 2, 8, 16])
def test_softmax_and_its_gradient(heads: int) -> None:
    from dysat.nn.ops import cuda

    entries = pattern()
    logits, grad = random(entries.num_entries, heads) * 30, random(entries.num_entries, heads)
    for over, order in ((entries, None), (entries.transposed, entries.by_sender)):
        at = torch.arange(len(logits), device="cuda") if order is None else order
        alpha = cuda.softmax(logits, over, order)
        assert_close(alpha[at], reference_softmax(logits[at], over))
        weighted = (alpha * grad)[at]
        mean = torch.zeros(over.num_receivers, heads, device="cuda").index_add_(0, over.receivers, weighted)
        expected = weighted - alpha[at] * mean[over.receivers]
        assert_close(cuda.softmax_backward(alpha, grad, over, order)[at], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("heads", [1, 8, 16])
def test_entry_logits_and_their_gradient(heads: int) -> None:
    from dysat.nn.ops import cuda

    entries = pattern()
    both = random(300, 2 * heads)
    sender, receiver, weights = both[:200, :heads], both[:, heads:], random(entries.num_entries).abs()
    logits = cuda.entry_logits(sender, receiver, weights, 0.2, entries)
    assert_close(logits, reference_entry_logits(sender, receiver, weights, 0.2, entries))
    grad = random(entries.num_entries, heads)
    inner = torch.where(logits > 0, grad, 0.2 * grad) * weights[:, None]
    assert_close(cuda.entry_logits_backward(grad, logits, weights, 0.2), inner)
    expected = torch.zeros(300, heads, device="cuda").index_add_(0, entries.receivers, inner)
    assert_close(cuda.segment_sum(inner, entries, None), expected, atol=1e-4, rtol=1e-4)
    expected = torch.zeros(200, heads, device="cuda").index_add_(0, entries.senders, inner)
    assert_close(cuda.segment_sum(inner, entries.transposed, entries.by_sender), expected, atol=1e-4, rtol=1e-4)
