"""Rows computed from their neighbourhoods alone, against the computation of all rows; and what a cap on them draws."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from graphs import MEETINGS, Plain, seeded
from test_network import Case, build, each_setting, tight
from torch import Tensor
from torch.testing import assert_close

from dysat.sampling.blocks import Block, whole_block
from dysat.sampling.nearby import Nearby, nearby

# One hub linked with everybody, and a chain among the others.
HUB = 0
WHEEL = Plain(
    known=(41,), links=[{(HUB, v): 1.0 + v % 3 for v in range(1, 41)} | {(v, v + 1): 2.0 for v in range(1, 40)}]
)


def features(plain: Plain) -> list[list[list[float]]]:
    return [
        torch.randn(known, 3, generator=seeded(t), dtype=torch.float64).tolist() for t, known in enumerate(plain.known)
    ]


def embedded(case: Case, queries: list[tuple[int, int]], fan_out: int | None) -> Tensor:
    nodes, steps = torch.tensor(queries).T
    plan = case.net.plan(case.block, nodes, steps)
    return case.net(case.block, case.inputs, plan, fan_out=fan_out)


@each_setting
@pytest.mark.parametrize("structural", [(), ((3, 6),), ((2, 8), (3, 6))], ids=["no layer", "one", "two"])
@pytest.mark.parametrize(("identity", "per_step"), [(True, False), (False, True), (True, True)])
def test_results_and_gradients_are_those_of_all_rows(
    setting: str, structural: tuple[tuple[int, int], ...], identity: bool, per_step: bool
) -> None:
    chosen = {"structural": structural, "identity": identity, "per_step": per_step}
    case = build(MEETINGS, setting, features=features(MEETINGS), **chosen)
    queries = [(v, t) for t, known in enumerate(MEETINGS.known) for v in range(0, known, 2)]
    found, expected = (embedded(case, queries, fan_out) for fan_out in (1000, None))
    tight(found.detach(), expected.detach())
    parameters = list(case.net.parameters())
    weights = torch.randn(found.shape, generator=seeded(2), dtype=torch.float64)
    grads = [torch.autograd.grad((out * weights).sum(), parameters, allow_unused=True) for out in (found, expected)]
    for actual, other in zip(*grads, strict=True):
        assert (actual is None) == (other is None)
        if actual is not None and other is not None:
            tight(actual, other)


def wheel(self_loops: bool = True) -> Block:
    return whole_block(WHEEL.graph(), self_loops=self_loops, dtype=torch.float64)


def test_a_row_needs_its_senders_and_with_a_softmax_over_receivers_also_theirs() -> None:
    block = wheel(self_loops=False)
    row = torch.tensor([20])  # linked with the hub, 19 and 21
    own = nearby(block, row, "receiver", 1000, None)
    assert own.rows.tolist() == [HUB, 19, 20, 21] and own.links.num_entries == 3
    theirs = nearby(block, row, "sender", 1000, None)
    assert theirs.rows.tolist() == list(range(41))  # the hub sends to all
    assert theirs.links.num_entries == 40 + 3 + 3
    assert theirs.part.senders.tolist() == [HUB, 19, 21]


@pytest.mark.parametrize("side", ["receiver", "sender"])
def test_the_cap_bounds_what_is_computed(side: str) -> None:
    block, rows = wheel(), torch.tensor([HUB, 7, 8, 30])
    near = nearby(block, rows, side, 5, seeded(1))  # type: ignore[arg-type]
    counts = near.part.pattern.offsets.diff()
    assert counts.max() <= 5 and counts[1:].tolist() == [4, 4, 4]  # the hub, two neighbours and itself
    assert near.links.num_entries <= 5 * (len(near.part.senders) + len(rows))
    assert nearby(block, rows, side, 5, None).shift is None  # type: ignore[arg-type]


def estimates(number: int, fan_out: int) -> list[Nearby]:
    block, generator = wheel(), seeded(3)
    return [nearby(block, torch.tensor([HUB, 7]), "sender", fan_out, generator) for _ in range(number)]


def test_drawn_sums_are_right_on_average() -> None:
    """The sum over a row's entries, and the sum in the softmax of each sender, for any values of the entries."""
    block = wheel()
    value = torch.rand(block.links.num_entries, generator=seeded(5), dtype=torch.float64)
    entry_of = torch.full((41, 41), -1)
    entry_of[block.links.receivers, block.links.senders] = torch.arange(block.links.num_entries)
    summed, totals = torch.zeros(2, dtype=torch.float64), torch.zeros(41, dtype=torch.float64)
    seen = torch.zeros(41)
    draws = estimates(1500, 6)
    for near in draws:
        receivers, senders = near.rows[near.links.receivers], near.rows[near.links.senders]
        entries = entry_of[receivers, senders]
        assert len(entries.unique()) == len(entries) and entries.min() >= 0
        scale = torch.ones(near.part.pattern.num_entries) if near.scale is None else near.scale
        summed.index_add_(0, near.part.pattern.receivers, value[entries[near.part.entries]] * scale)
        assert near.shift is not None
        totals.index_add_(0, senders, value[entries] * near.shift.exp())
        seen[near.rows[near.part.senders]] += 1
    rows = [(block.links.receivers == v) for v in (HUB, 7)]
    assert_close(summed / len(draws), torch.stack([value[row].sum() for row in rows]), rtol=0.03, atol=0)
    for sender in (HUB, 6, 7, 8):  # other senders count only if they are drawn
        assert seen[sender] > 300
        mine = block.links.senders == sender
        assert_close(totals[sender] / seen[sender], value[mine].sum(), rtol=0.03, atol=0)


def test_only_the_generator_changes_what_is_drawn() -> None:
    one, two = (estimates(1, 6)[0] for _ in range(2))
    assert torch.equal(one.rows, two.rows) and torch.equal(one.part.entries, two.part.entries)
    draws = estimates(5, 6)
    assert any(not torch.equal(a.rows, b.rows) for a, b in product(draws, draws))
