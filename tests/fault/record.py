"""Store what the fault scripts measured in results/faults.json."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dysat.system.hardware import hardware

FILE = Path(__file__).resolve().parents[2] / "results" / "faults.json"


def record_fault(name: str, trials: int, outcomes: dict[str, Any], *, seed: int, seconds: float) -> None:
    """Replace the entry of one fault."""
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
