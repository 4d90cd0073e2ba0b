"""What the C library does with memory that was freed."""

from __future__ import annotations

import ctypes
import sys


def keep_freed_memory() -> None:
    """Let the C library keep what a step frees for the next one, where that can be asked for (glibc).

    Fresh memory is dear: the system must clear it page by page. It holds for the whole process, so a program asks for
    it, not the library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-4, 0)  # M_MMAP_MAX: no allocation has pages of its own, however large
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: free memory at the end stays
