"""Store what the fault scripts measured in results/faults.json, and show it as a table in docs/reliability.md.

    python tests/fault/record.py

writes the table again from the stored figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from dysat.system.hardware import hardware

ROOT = Path(__file__).resolve().parents[2]
FILE, PAGE = ROOT / "results" / "faults.json", ROOT / "docs" / "reliability.md"
MARK, KILLS = "<!-- faults -->", "python tests/fault/kills.py"


class Fault(NamedTuple):
    """A row of the table: what is done, how its outcome reads, and the command that repeats it."""

    what: str
    outcome: Callable[[dict[str, Any]], str]
    command: str


def _fuzzed(counts: dict[str, Any]) -> str:
    return (
        f"{counts.get('refused', 0):,} refused with one line, {counts.get('valid', 0):,} with a valid result, "
        f"{counts.get('broken', 0):,} broke a rule"
    )


def difference(mib: float) -> str:
    """Say how much more or less memory, as in "2.8 MiB less"."""
    return f"{abs(mib):.1f} MiB {'less' if mib < 0 else 'more'}"


def _soaked(counts: dict[str, Any]) -> str:
    faults = ("kills", "full disks", "written slowly", "renamed late", "arrived twice", "clock jumps")
    listed = ", ".join(f"{counts.get(name, 0):,} {name}" for name in faults)
    if "held_mib" in counts:
        memory = f"after {counts['lived']:,} windows a process needed {difference(counts['held_mib'])} than a new one"
    else:
        memory = f"memory {counts['mib_per_minute']:+.1f} MiB per minute, also because the graph grows"
    return (
        f"{listed}; all {counts['events']:,} events counted once, compared {counts.get('comparisons', 0):,} times with "
        f"the whole log; {memory}"
    )


def _passed(counts: dict[str, Any]) -> str:
    return f"{counts['passed']:,} passed" + (f", {counts['failed']:,} failed" if counts.get("failed") else "")


FAULTS = {
    "fuzz-graph": Fault("hostile graph folders, checksums recomputed", _fuzzed, "make fuzz"),
    "fuzz-run": Fault("hostile run folders, checksums recomputed", _fuzzed, "make fuzz"),
    "fuzz-log": Fault("hostile event files and node tables", _fuzzed, "make fuzz"),
    "fuzz-command": Fault("hostile command lines", _fuzzed, "make fuzz"),
    "soak": Fault("`update --follow` under kills, partial files, clock jumps and a full disk", _soaked, "make soak"),
    "killed-fits": Fault("a fit killed and resumed reaches the same tensors", _passed, KILLS),
    "killed-updates": Fault("a killed update is complete or not there at all", _passed, KILLS),
    "killed-feeds": Fault("`update --follow` killed at every write counts each file once", _passed, KILLS),
    "full-disks": Fault("a full disk leaves the old state intact", _passed, KILLS),
    "damaged-files": Fault("damaged files are recognised or harmless", _passed, KILLS),
}


def record_fault(name: str, trials: int, outcomes: dict[str, Any], *, seed: int, seconds: float) -> None:
    """Replace the entry of one fault, and write the table again."""
    found: dict[str, Any] = json.loads(FILE.read_text()) if FILE.is_file() else {}
    found[name] = {
        "trials": trials,
        "outcomes": outcomes,
        "seed": seed,
        "seconds": round(seconds, 1),
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": hardware(),
    }
    FILE.write_text(json.dumps(dict(sorted(found.items())), indent=2, ensure_ascii=False) + "\n")
    if PAGE.is_file():
        PAGE.write_text(with_table(PAGE.read_text()))


def table() -> str:
    """The table of all recorded faults, and the machines they were measured on."""
    found = json.loads(FILE.read_text())
    lines = ["| fault | trials | outcome | command | seed | seconds |", "|---|---:|---|---|---:|---:|"]
    for name, fault in FAULTS.items():
        if name in found:
            entry = found[name]
            cells = (fault.what, f"{entry['trials']:,}", fault.outcome(entry["outcomes"]), f"`{fault.command}`")
            lines.append(f"| {' | '.join(cells)} | {entry['seed']} | {entry['seconds']:,.0f} |")
    facts = [entry for name, entry in found.items() if name in FAULTS]
    machines = sorted({f"{entry['hardware']['cores']} cores of {entry['hardware']['cpu']}" for entry in facts})
    dates = sorted({str(entry["date"]) for entry in facts})
    return "\n".join([*lines, "", f"({', '.join(dates)}; {'; '.join(machines)})"])


def with_table(page: str) -> str:
    """A page with the newest table between its two marks."""
    return re.sub(f"{MARK}.*{MARK}", lambda _: f"{MARK}\n\n{table()}\n\n{MARK}", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
