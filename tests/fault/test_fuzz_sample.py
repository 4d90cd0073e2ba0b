"""A sample of `make fuzz`, the same cases every time; `make fuzz` runs many more."""

from __future__ import annotations

from pathlib import Path

import fuzz
import pytest
from fuzz import fuzz as run_cases
from fuzz import name_of, plan

# The kinds of cases that must pass; `make fuzz` runs all of them.
KINDS = ("log",)
CASES = 300


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_input_gives_a_result_or_one_line(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "FAILURES", tmp_path / "failures")
    tally = run_cases(plan(0, CASES // len(KINDS), kind), workers=2, seconds=600, folder=tmp_path)
    assert tally.cases == CASES // len(KINDS)
    replay = {f"{what} {where}": name_of(cases[0]) for (what, where), cases in tally.defects.items()}
    assert replay == {}  # make fuzz REPLAY=...
    assert set(tally.outcomes[kind]) == {"valid", "refused"}  # the cases are neither harmless nor hopeless
