"""Which of many moments, alike to look at, are tried every day."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest


def few(quick: Collection[int], count: int) -> list[Any]:
    """Parameters 0 … count - 1, of which only some are for every day: `make test-all` has the others too."""
    return [pytest.param(number, marks=() if number in quick else pytest.mark.slow) for number in range(count)]
