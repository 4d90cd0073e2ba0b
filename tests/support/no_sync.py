"""Files are not forced to the disk if conftest.py asks for it: that may take longer than everything else.

A killed process loses nothing by it, only a machine without power would. `make test-all` keeps it.
"""

from __future__ import annotations

import os

WISH = "DYSAT_TESTS_DO_NOT_SYNC"  # a variable, because processes of tests inherit it

if os.environ.get(WISH):
    os.fsync = lambda _: None
