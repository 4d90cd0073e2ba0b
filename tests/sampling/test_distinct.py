"""Distinct numbers: sorted or marked, with the same result."""

from __future__ import annotations

import pytest
import torch
from graphs import seeded

from dysat.sampling import distinct
from dysat.sampling.distinct import Distinct


@pytest.mark.parametrize("few", [0.0, 2.0], ids=["marked", "sorted"])
@pytest.mark.parametrize("number", [0, 1, 60])
def test_numbers_places_and_members(few: float, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct, "FEW", few)
    given = torch.randint(0, 40, (number,), generator=seeded())
    found = Distinct.of(given, 40)
    assert (found.marked is None) == (few > 1)
    assert found.numbers.tolist() == sorted(set(given.tolist()))
    assert torch.equal(found.numbers[found.places(given)], given)
    assert found.has(torch.arange(40)).tolist() == [n in given.tolist() for n in range(40)]


def test_many_numbers_are_marked_and_few_are_sorted() -> None:
    assert Distinct.of(torch.arange(10), 160).place is not None
    assert Distinct.of(torch.arange(9), 160).place is None
