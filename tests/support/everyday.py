"""Select which of many similar cases run in the quick suite."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest


def few(quick: Collection[int], count: int) -> list[Any]:
    """Parameters 0 … count - 1; all but the `quick` ones are marked slow, for `make test-all`."""
    return [pytest.param(number, marks=() if number in quick else pytest.mark.slow) for number in range(count)]
