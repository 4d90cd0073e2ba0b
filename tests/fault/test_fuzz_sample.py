"""A sample of `make fuzz`, the same cases every time; `make fuzz` runs many more."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import fuzz
import pytest
from fuzz import fuzz as run_cases
from fuzz import name_of, plan

KINDS = ("log", "graph", "run", "command")
CASES = 64


def test_hostile_input_gives_a_result_or_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "FAILURES", tmp_path / "failures")
    cases = chain.from_iterable(plan(0, CASES // len(KINDS), kind) for kind in KINDS)
    tally = run_cases(cases, workers=2, seconds=600, folder=tmp_path)
    assert tally.cases == CASES // len(KINDS) * len(KINDS)
    replay = {f"{what} {where}": name_of(found[0]) for (what, where), found in tally.defects.items()}
    assert replay == {}  # make fuzz REPLAY=...
    for kind in KINDS:  # the cases are neither harmless nor hopeless
        assert set(tally.outcomes[kind]) == {"valid", "refused"}
