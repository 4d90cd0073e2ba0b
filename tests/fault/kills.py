"""Run the tests that kill, fill and damage, and store how many there are and how they ended.

python tests/fault/kills.py [--record]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

from record import record_fault

ROOT = Path(__file__).resolve().parents[2]
# Arguments of pytest for each fault.
GROUPS = {
    "killed-fits": ["tests/runs/test_resume.py", "-k", "killed"],
    "killed-updates": ["tests/runs/test_update.py", "-k", "killed"],
    "killed-feeds": ["tests/runs/test_feed.py", "-k", "killed"],
    "full-disks": ["tests/runs", "tests/system", "-k", "full_disk or no_space or failed_write"],
    "damaged-files": [
        *("tests/data/test_fuzz.py", "tests/system/test_tensors.py", "tests/system/test_journal.py"),
        *("-k", "damaged or wrong_byte or flipped or truncated or exchanged"),
    ],
}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="store the figures in results/faults.json")
    chosen, failures = parser.parse_args(), 0
    for name, words in GROUPS.items():
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "not slow", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        last = (done.stdout.strip().splitlines() or [""])[-1]
        counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed)", last)}
        sys.stdout.write(f"{name}: {last}\n")
        failures += done.returncode != 0
        if chosen.record and counts:
            outcomes = {"passed": counts.get("passed", 0), "failed": counts.get("failed", 0)}
            record_fault(name, sum(outcomes.values()), outcomes, seed=0, seconds=time.monotonic() - began)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
