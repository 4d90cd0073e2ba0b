"""Processes that work together: what they exchange, and that one process is as before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from several_ranks import together

from dysat.errors import ModelError
from dysat.system.parallel.ranks import Ranks, alone, joined, ranks, was_restarted

EXCHANGE = """
import torch
from dysat.errors import ModelError
from dysat.system.parallel.ranks import alone, joined, ranks

with joined() as here:
    assert here.size == 3 and ranks() is here and here.first == (here.rank == 0)
    assert list(here.share(range(7))) == list(range(here.rank, 7, 3))

    grads = [torch.full((2, 2), float(here.rank)), torch.tensor(6.0 * here.rank)]
    here.average_(grads)
    assert torch.equal(grads[0], torch.ones(2, 2)) and grads[1] == 6

    own = torch.zeros(7, dtype=torch.float64)
    own[here.rank :: 3] = 0.1 + here.rank
    assert torch.equal(here.merged(own)[here.rank :: 3], own[here.rank :: 3]) and (here.merged(own) > 0).all()
    flags = torch.zeros(3, dtype=torch.bool)
    flags[here.rank] = here.rank != 1
    assert here.merged(flags).tolist() == [True, False, True]
    assert here.any(False, here.rank == 2) == [False, True]

    sent = {"x": torch.arange(here.rank), "facts": torch.tensor(True)}  # of other sizes, and an awkward name
    found = here.gathered({"rank": here.rank, "text": "é"}, sent)
    assert [facts["rank"] for facts, _ in found] == [0, 1, 2] and found[1][0]["text"] == "é"
    assert [part["x"].tolist() for _, part in found] == [[], [0], [0, 1]] and found[2][1]["facts"].dtype == torch.bool
    facts, tensors = here.from_first([here.rank, None], {"x": torch.tensor([1.5 + here.rank])})
    assert facts == [0, None] and tensors["x"].tolist() == [1.5]
    assert here.from_first() == (None, {})

    with alone():
        assert ranks().size == 1 and ranks().first and ranks().from_first(here.rank) == (here.rank, {})
    here.same("graph", {"nodes": 5})
    try:
        here.same("graph", {"nodes": 5, "links": 7 + (here.rank == 2)})
    except ModelError as problem:
        assert str(problem) == "rank 2 sees another graph than rank 0: links 8 instead of 7", problem
    else:
        raise AssertionError("not refused")
print(f"rank {here.rank} is content\\n", end="", flush=True)
"""


@pytest.mark.slow
def test_three_ranks_exchange_values_and_tensors(tmp_path: Path) -> None:
    out = together(EXCHANGE, tmp_path, ranks=3)
    assert all(f"rank {rank} is content" in out for rank in range(3))


def test_one_process_gets_back_what_it_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    for environment in ({}, {"RANK": "0", "WORLD_SIZE": "1"}):
        monkeypatch.setattr(os, "environ", environment)
        with joined() as here:
            assert here == ranks() == Ranks(0, 1) and not was_restarted()
            x = torch.rand(3)
            assert here.merged(x) is x and here.gathered(1, {"x": x}) == [(1, {"x": x})]
            assert here.from_first("a", {"x": x}) == ("a", {"x": x}) and here.any(True, False) == [True, False]
            y = x.clone()
            here.average_([y])
            here.same("graph", {"nodes": 1})
            assert torch.equal(x, y) and list(here.share([1, 2, 3])) == [1, 2, 3]


FAILING = """
from dysat.errors import ModelError
from dysat.system.parallel.ranks import joined
import sys
try:
    with joined() as here:
        if here.rank == 1:
            sys.exit(0)
        here.gathered()
except ModelError as problem:
    print("told:", problem)
"""


@pytest.mark.slow
def test_a_rank_that_ends_is_reported_by_the_others(tmp_path: Path) -> None:
    assert "told: another process of this training has ended" in together(FAILING, tmp_path)


def test_work_alone_ends_with_its_block() -> None:
    with pytest.raises(ModelError), alone():
        raise ModelError("x")
    assert ranks() == Ranks()
