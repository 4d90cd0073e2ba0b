"""Time loading a graph folder with and without the checks of its content; each is the best of several, in turns.

    dysat snapshots LOG --every 4w -o graph
    python benchmarks/loading.py graph

Checks and checksums run at the same time, so on two cores the checks cost less than they take.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

from dysat.data import graph as graphs
from dysat.data.graph import DynamicGraph

CHECKS = ("check_manifest", "check_types", "check_snapshots", "check_labels")


def fastest(works: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Shortest times in milliseconds of functions that take turns, so that other processes slow down all alike."""
    times = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            begin = time.perf_counter()
            work()
            times[index] = min(times[index], 1000 * (time.perf_counter() - begin))
    return times


def main() -> None:
    """Print the time of each way to load a folder, with and without checks."""
    parser = argparse.ArgumentParser(description="Time loading a graph folder with and without checks of its content.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    for verify in (True, False):
        for mmap in (True, False):

            def load(verify: bool = verify, mmap: bool = mmap) -> None:
                DynamicGraph.load(options.folder, verify=verify, mmap=mmap)

            def unchecked(load: Callable[[], None] = load) -> None:
                with patch.multiple(graphs, **{name: lambda *_: None for name in CHECKS}):
                    load()

            checked, plain = fastest([load, unchecked], options.rounds)
            print(f"verify={verify!s:5} mmap={mmap!s:5} {checked:8.2f} ms, {plain:8.2f} ms without checks")


if __name__ == "__main__":
    main()
