"""The loss, Eq. (5), against a loop over snapshots, nodes, contexts and negatives; and the examples it takes."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from graphs import MEETINGS, dot, on_each_device, seeded
from torch import Tensor
from torch.testing import assert_close

from dysat.nn.walk_objective import Examples, WalkSampler, walk_loss
from dysat.sampling.blocks import whole_block
from dysat.sampling.negatives import Negatives
from dysat.sampling.walks import Contexts, random_walks

gradcheck = partial(torch.autograd.gradcheck, nondet_tol=1e-12)  # on CUDA the order of sums varies
NUM_ROWS, WIDTH, NUM_STEPS = 11, 3, 4
E = torch.randn(NUM_ROWS, WIDTH, generator=seeded(1), dtype=torch.float64)
STEPS = [0, 0, 1, 3, 3, 3, 0]  # none in step 2
NUM_CONTEXTS, NUM_NEGATIVES = 3, 2
each_sharing = pytest.mark.parametrize("sharing", ["per-positive", "shared"])
each_reduction = pytest.mark.parametrize("reduction", ["sum", "mean"])


def rows(*shape: int, seed: int) -> Tensor:
    return torch.randint(NUM_ROWS, shape, generator=seeded(seed))


def make_examples(sharing: str, dtype: torch.dtype = torch.float64) -> Examples:
    """K negatives per context, or per step if they are shared."""
    count = (NUM_STEPS, NUM_NEGATIVES) if sharing == "shared" else (len(STEPS), NUM_CONTEXTS * NUM_NEGATIVES)
    return Examples(
        rows(len(STEPS), seed=2),
        torch.tensor(STEPS),
        torch.ones(len(STEPS), dtype=dtype),
        rows(len(STEPS), NUM_CONTEXTS, seed=3),
        rows(*count, seed=4),
        NUM_STEPS,
    )


def moved(examples: Examples, device: str) -> Examples:
    names = ("rows", "steps", "weights", "contexts", "negatives")
    return replace(examples, **{name: getattr(examples, name).to(device) for name in names})


def minus_log_sigmoid(score: float) -> float:
    return math.log1p(math.exp(-abs(score))) + max(-score, 0.0)


def loss_loop(e: Tensor, examples: Examples, negative_weight: float, sharing: str, reduction: str) -> float:
    vectors = e.tolist()
    total = 0.0
    for t in range(examples.num_steps):
        positive, negative = [], []  # one term per (node, context); one per negative of such a pair
        for m, v in enumerate(examples.rows.tolist()):
            if examples.steps[m] != t or examples.weights[m] == 0:
                continue
            for c, u in enumerate(examples.contexts[m].tolist()):
                positive.append(minus_log_sigmoid(dot(vectors[u], vectors[v])))
                if sharing == "shared":
                    drawn = examples.negatives[t].tolist()
                else:
                    drawn = examples.negatives[m, c * NUM_NEGATIVES : (c + 1) * NUM_NEGATIVES].tolist()
                # −log(1 − σ(s)) = −log σ(−s)
                negative += [minus_log_sigmoid(-dot(vectors[n], vectors[v])) for n in drawn]
        if reduction == "sum":
            total += math.fsum(positive) + negative_weight * math.fsum(negative)
        elif positive:
            total += math.fsum(positive) / len(positive) + negative_weight * math.fsum(negative) / len(negative)
    return total


@pytest.mark.usefixtures("each_path")
@on_each_device
@each_sharing
@each_reduction
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_loop(dtype: torch.dtype, reduction: str, sharing: str, device: str) -> None:
    examples, e = moved(make_examples(sharing, dtype), device), E.to(device, dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for negative_weight in (0.0, 0.01, 3.0):
        loss = walk_loss(e, examples, negative_weight=negative_weight, sharing=sharing, reduction=reduction)
        assert loss.shape == () and loss.dtype == dtype
        expected = loss_loop(e, examples, negative_weight, sharing, reduction)
        assert_close(float(loss), expected, rtol=tolerance, atol=0)


@each_sharing
@each_reduction
def test_examples_of_weight_zero_change_nothing(reduction: str, sharing: str) -> None:
    few, extra = make_examples(sharing), 4
    more = replace(
        few,
        rows=torch.cat([few.rows, rows(extra, seed=5)]),
        steps=torch.cat([few.steps, torch.tensor([0, 1, 2, 3])]),
        weights=torch.cat([few.weights, torch.zeros(extra, dtype=torch.float64)]),
        contexts=torch.cat([few.contexts, rows(extra, NUM_CONTEXTS, seed=6)]),
    )
    if sharing == "per-positive":
        more = replace(more, negatives=torch.cat([few.negatives, rows(extra, few.negatives.shape[1], seed=7)]))
    losses, gradients = [], []
    for examples in (few, more):
        e = E.clone().requires_grad_()
        loss = walk_loss(e, examples, negative_weight=0.7, sharing=sharing, reduction=reduction)
        loss.backward()
        losses.append(loss.detach())
        gradients.append(e.grad)
    assert_close(losses[1], losses[0], rtol=1e-14, atol=0)
    assert_close(gradients[1], gradients[0], rtol=1e-13, atol=1e-14)
    assert_close(float(losses[1]), loss_loop(E, more, 0.7, sharing, reduction), rtol=1e-12, atol=0)


@on_each_device
@each_sharing
@each_reduction
def test_gradients(reduction: str, sharing: str, device: str) -> None:
    examples = moved(make_examples(sharing), device)
    e = E.to(device, copy=True).requires_grad_()
    assert gradcheck(lambda e: walk_loss(e, examples, negative_weight=0.3, sharing=sharing, reduction=reduction), e)


@each_sharing
@each_reduction
def test_large_scores_stay_finite(reduction: str, sharing: str) -> None:
    e = (1e3 * E.float()).requires_grad_()
    loss = walk_loss(
        e, make_examples(sharing, torch.float32), negative_weight=1.0, sharing=sharing, reduction=reduction
    )
    loss.backward()
    assert_close(float(loss.detach()), loss_loop(e, make_examples(sharing), 1.0, sharing, reduction), rtol=1e-5, atol=0)
    assert bool(e.grad.isfinite().all())


@cache
def make_sampler(sharing: str = "shared") -> WalkSampler:
    block = whole_block(MEETINGS.graph(), dtype=torch.float64)
    links = block.links
    starts = torch.arange(block.num_active).repeat_interleave(4)
    walks = random_walks(links.offsets, links.senders, block.weights, starts, 6, generator=seeded(2))
    contexts = Contexts.from_walks(walks, block.num_active, 2)
    negatives = Negatives.by_degree(block.degrees, block.steps)
    return WalkSampler(block, contexts, negatives, NUM_CONTEXTS, NUM_NEGATIVES, sharing)


def contexts_of(sampler: WalkSampler) -> dict[int, set[int]]:
    """Row → other rows at most two steps away on a walk."""
    contexts: dict[int, set[int]] = {row: set() for row in range(sampler.block.num_active)}
    for walk in sampler.contexts.walks.tolist():
        for i, j in itertools.product(range(len(walk)), repeat=2):
            if abs(i - j) <= 2 and walk[i] != walk[j]:
                contexts[walk[i]].add(walk[j])
    return contexts


def expected_rows(batch: list[int]) -> list[tuple[int, int] | None]:
    """(node, step) of each place of [B, T], None where the node is linked to no other node."""
    linked = [{node for pair in step if pair[0] != pair[1] for node in pair} for step in MEETINGS.links]
    return [(v, t) if v in linked[t] else None for v in batch for t in range(MEETINGS.num_steps)]


BATCHES = {
    "all nodes": list(range(7)),
    "two nodes": [4, 1],
    "with padding": [3, -1, 0, -1],
    "a self-loop, an isolated node, a linked node": [5, 6, 2],
}


@pytest.mark.parametrize("batch", BATCHES)
class TestDraw:
    def test_rows_of_a_fixed_shape(self, batch: str) -> None:
        sampler, nodes = make_sampler(), BATCHES[batch]
        drawn = sampler.draw(torch.tensor(nodes), seeded(3), fixed_shape=True)
        expected = expected_rows(nodes)
        assert drawn.rows.shape == drawn.steps.shape == drawn.weights.shape == (len(nodes) * MEETINGS.num_steps,)
        assert drawn.weights.tolist() == [float(place is not None) for place in expected]
        for row, step, place in zip(drawn.rows.tolist(), drawn.steps.tolist(), expected, strict=True):
            assert 0 <= row < sampler.block.num_active
            if place is not None:
                assert (int(sampler.block.node[row]), int(sampler.block.step[row])) == place
                assert step == place[1]

    def test_rows_with_a_context(self, batch: str) -> None:
        sampler, nodes = make_sampler(), BATCHES[batch]
        drawn = sampler.draw(torch.tensor(nodes), seeded(3))
        places = zip(sampler.block.node[drawn.rows].tolist(), drawn.steps.tolist(), strict=True)
        assert list(places) == [place for place in expected_rows(nodes) if place is not None]
        assert torch.equal(sampler.block.step[drawn.rows], drawn.steps)
        assert drawn.weights.tolist() == [1.0] * len(drawn.rows)

    @each_sharing
    @pytest.mark.parametrize("fixed_shape", [False, True])
    def test_contexts_and_negatives(self, batch: str, fixed_shape: bool, sharing: str) -> None:
        sampler = make_sampler(sharing)
        block, contexts = sampler.block, contexts_of(sampler)
        drawn = sampler.draw(torch.tensor(BATCHES[batch]), seeded(4), fixed_shape=fixed_shape)
        assert drawn.num_steps == MEETINGS.num_steps
        assert drawn.contexts.shape == (len(drawn.rows), NUM_CONTEXTS)
        groups = MEETINGS.num_steps if sharing == "shared" else len(drawn.rows)
        assert drawn.negatives.shape == (groups, NUM_NEGATIVES * (1 if sharing == "shared" else NUM_CONTEXTS))
        for rows in (drawn.contexts, drawn.negatives):  # valid rows, even where the weight is 0
            assert int(rows.min()) >= 0 and int(rows.max()) < block.num_active
        for m in drawn.weights.nonzero()[:, 0].tolist():
            assert set(drawn.contexts[m].tolist()) <= contexts[int(drawn.rows[m])]
            assert bool((block.step[drawn.contexts[m]] == drawn.steps[m]).all())
            negatives = drawn.negatives[drawn.steps[m] if sharing == "shared" else m]
            assert bool((block.step[negatives] == drawn.steps[m]).all())
            assert bool((block.degrees[negatives] > 0).all())


@each_sharing
def test_draws_depend_only_on_the_generator(sharing: str) -> None:
    sampler, before = make_sampler(sharing), torch.get_rng_state()
    nodes = torch.arange(7)
    first, again, other = (sampler.draw(nodes, seeded(seed)) for seed in (5, 5, 6))
    assert torch.equal(first.contexts, again.contexts) and torch.equal(first.negatives, again.negatives)
    assert not torch.equal(first.contexts, other.contexts) and not torch.equal(first.negatives, other.negatives)
    assert torch.equal(before, torch.get_rng_state())


@each_sharing
@pytest.mark.parametrize("fixed_shape", [True, False])
@pytest.mark.parametrize("batch", [[-1, -1], [5, 6], [6, -1]])
def test_a_batch_without_contexts_has_zero_loss(batch: list[int], fixed_shape: bool, sharing: str) -> None:
    sampler = make_sampler(sharing)
    examples = sampler.draw(torch.tensor(batch), seeded(7), fixed_shape=fixed_shape)
    for reduction in ("sum", "mean"):
        e = torch.randn(sampler.block.num_active, WIDTH, generator=seeded(8), dtype=torch.float64).requires_grad_()
        loss = walk_loss(e, examples, negative_weight=1.0, sharing=sharing, reduction=reduction)
        loss.backward()
        assert float(loss.detach()) == 0.0
        assert torch.equal(e.grad, torch.zeros_like(e))
