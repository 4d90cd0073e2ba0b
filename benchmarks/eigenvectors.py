"""How many vectors eigenvectors of a large graph are searched among, and where the search begins.

    python benchmarks/eigenvectors.py                     # ten minutes on two cores; writes results/eigenvectors.json
    python benchmarks/eigenvectors.py --events 10000000   # ten more; adds rows

Spectral coordinates: 32 eigenvectors of every step, from random vectors or from those of the step before. The residual
is |A X − X Λ| relative to |Λ|; the captured part is Σ |λ| relative to that of 480 vectors that begin with random ones.

Pair score: its AUC and MRR on the last snapshot, if it is learned with 64 eigenvectors from spans of several sizes, on
made-up logs of other seeds than those of results/large_scores.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import large_scores
import numpy as np

import dysat
from dysat.experiments.scale import SIZES, made_graph
from dysat.features import eigenvectors
from dysat.features.eigenvectors import BASIS, CONTINUED_BASIS, LARGE_BASIS, lanczos
from dysat.features.link_memory import decayed_links_by_step
from dysat.features.matrix import times
from dysat.features.spectrum import DECAY
from dysat.models.forecast.examples import forget_histories
from dysat.system.hardware import hardware

OUT = Path(__file__).resolve().parents[1] / "results" / "eigenvectors.json"
COORDINATES, REFERENCE = 32, 15  # eigenvectors of a step, and vectors per eigenvector that these are compared with
WAYS = {f"random, {BASIS * COORDINATES} vectors": (BASIS, False)}
WAYS |= {f"random, {CONTINUED_BASIS * COORDINATES} vectors": (CONTINUED_BASIS, False)}
WAYS |= {f"from the step before, {CONTINUED_BASIS * COORDINATES} vectors": (BASIS, True)}
SPANS = (2, 3, LARGE_BASIS, 5, 7)  # vectors per eigenvector of the pair score
SEEDS = (1, 2)  # of the logs of the pair score
LINKS = 60_000  # that are ranked, at most


def coordinates(graph: dysat.DynamicGraph) -> Iterator[dict[str, Any]]:
    """Yield how well each way does on average over the steps from the second, and its seconds."""
    before, found = dict[str, Any](), {way: list[tuple[float, float, float]]() for way in WAYS}
    for step, links in enumerate(decayed_links_by_step(graph.snapshots, DECAY)):
        matrix = links.matrix()
        matrix = replace(matrix, data=np.log1p(matrix.data))
        eigenvectors.BASIS = REFERENCE
        whole = np.abs(lanczos(matrix, COORDINATES, which="BE")[0]).sum()
        for way, (eigenvectors.BASIS, continued) in WAYS.items():
            similar = before.get(way) if continued else None
            begin = time.perf_counter()
            values, before[way] = lanczos(matrix, COORDINATES, which="BE", similar=similar)
            seconds = time.perf_counter() - begin
            images = np.stack([times(matrix, column) for column in before[way].T.astype(np.float64)], axis=1)
            residual = np.linalg.norm(images - before[way] * values) / np.linalg.norm(values)
            if step:
                found[way].append((float(np.abs(values).sum() / whole), float(residual), seconds))
    eigenvectors.BASIS = BASIS
    for way, rows in found.items():
        captured, residual, seconds = np.mean(rows, axis=0).tolist()
        yield {"way": way, "captured": captured, "residual": residual, "seconds": seconds}


def scores(graph: dysat.DynamicGraph) -> Iterator[dict[str, Any]]:
    """Yield AUC and MRR of the pair score with each size of the span."""
    large_scores.MAX_LINKS = LINKS
    for eigenvectors.LARGE_BASIS in SPANS:
        forget_histories()
        yield {"span": eigenvectors.LARGE_BASIS, **large_scores.measure(dysat.DySAT(embeddings=False), graph)}
    eigenvectors.LARGE_BASIS = LARGE_BASIS


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, choices=[1_000_000, 10_000_000], default=1_000_000)
    events = parser.parse_args().events
    rows = json.loads(OUT.read_text())["rows"] if OUT.exists() else []
    rows = [row for row in rows if row["events"] != events]
    for seed in (0, *SEEDS):
        if events > 1_000_000 and seed == SEEDS[-1]:
            continue
        graph = made_graph(SIZES[events], events, seed)
        for row in coordinates(graph) if seed == 0 else scores(graph):
            rows.append({"events": events, "seed": seed, **row, "date": datetime.now(UTC).date().isoformat()})
            print(json.dumps(rows[-1]), flush=True)
    rows.sort(key=lambda row: (row["events"], row["seed"]))
    OUT.write_text(json.dumps({"hardware": hardware(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
