"""Time an epoch while another program uses the same cores, with passive and with active OpenMP waiting.

    python benchmarks/busy.py [--out results/busy.json]

Runs twelve epochs of the default model on UCI in a fresh process, alone and next to one busy program: with the OpenMP
wait policy that dysat sets (PASSIVE: threads sleep), and with the usual one (ACTIVE: threads spin, then sleep).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

FIT = """
import dysat
model = dysat.DySAT(device="cpu", epochs=12).fit(dysat.load_dataset("uci")[:12])
print([epoch.seconds for epoch in model.epochs_[1:]])
"""


def seconds(passive: bool, busy: bool) -> float:
    """Seconds of the median epoch."""
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    if not passive:
        environment |= {"OMP_WAIT_POLICY": "", "GOMP_SPINCOUNT": "300000"}  # the default of libgomp
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
    try:
        done = subprocess.run([sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, check=True)
    finally:
        if other is not None:
            other.kill()
    return round(median(json.loads(done.stdout)), 3)


def main() -> None:
    """Measure the four cases three times and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    from dysat.system.hardware import hardware

    found: dict[str, list[float]] = {}
    for _ in range(3):
        for busy in (False, True):
            for passive in (True, False):
                name = f"{'asleep' if passive else 'awake'}, {'beside another' if busy else 'alone'}"
                found.setdefault(name, []).append(seconds(passive, busy))
                print(name, found[name][-1], flush=True)
    about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "seed": 0}
    result = {"command": "benchmarks/busy.py", **about, "seconds": found}
    print(json.dumps({name: median(values) for name, values in found.items()}, indent=1))
    if args.out is not None:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
