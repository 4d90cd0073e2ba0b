"""Find the memory map behind an array."""

from __future__ import annotations

from typing import Any

import numpy as np


def memory_map(array: Any) -> np.memmap[Any, Any]:
    """The memory map that an array is a view of; fails if it is a copy."""
    while not isinstance(array, np.memmap):
        array = array.base
        assert array is not None, "not a view of a memory map"
    return array
