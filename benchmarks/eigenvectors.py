"""Eigenvectors of a snapshot that start from those of the snapshot before, or from random vectors as in the library.

    python benchmarks/eigenvectors.py --graph FOLDER …   # a minute on one core; writes results/eigenvectors.json

Both search among few vectors: all past links of a graph, as they are and scaled by degree, 64 eigenvalues of largest
size. The residual is |A X − X Λ| relative to |Λ|; the captured part is Σ |λ| relative to that of a random start with
320 vectors, which is what the library does.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import dysat
from dysat.experiments.scale import made_graph
from dysat.features.eigenvectors import BLOCK, scaled_by_degree
from dysat.features.matrix import SparseMatrix, times
from dysat.features.pair_history import PairHistory
from dysat.system.hardware import hardware

OUT = Path(__file__).resolve().parents[1] / "results" / "eigenvectors.json"
WANTED, LIBRARY = 64, "random, 320 vectors"
WAYS = (
    (LIBRARY, 320, False),
    ("random, 192 vectors", 192, False),
    ("from the step before, 192 vectors", 192, True),
)


def search(matrix: SparseMatrix, size: int, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return Ritz values and vectors of a block Krylov space.  # [N, k] → [64], [N, 64]

    With eigenvectors from before, it begins with these and then the directions in which they are furthest off.
    """

    def product(x: Tensor) -> Tensor:
        return torch.from_numpy(np.stack([times(matrix, column) for column in x.T.numpy()], axis=1)).float()

    blocks = list[Tensor]()
    fresh = torch.from_numpy(np.random.default_rng(0).standard_normal((matrix.shape[0], BLOCK), dtype=np.float32))
    if before is not None:
        new = before.new_zeros(matrix.shape[0] - len(before), before.shape[1])
        known = torch.linalg.qr(torch.cat([before, new]))[0]
        off = product(known)
        off -= known @ (known.mT @ off)
        directions, sizes, _ = torch.linalg.svd(off, full_matrices=False)
        blocks, fresh = [known], directions[:, :BLOCK] * sizes[:BLOCK]
    while sum(block.shape[1] for block in blocks) < size:
        for block in blocks * 2:
            fresh = fresh - block @ (block.mT @ fresh)
        blocks.append(torch.linalg.qr(fresh)[0])
        fresh = product(blocks[-1])
    basis = torch.cat(blocks, 1)
    small = (basis.mT @ product(basis)).double()
    values, mixture = torch.linalg.eigh((small + small.mT) / 2)
    chosen = values.abs().argsort(descending=True)[:WANTED]
    return values[chosen], basis @ mixture[:, chosen].float()


def matrices(graph: dysat.DynamicGraph, step: int) -> tuple[SparseMatrix, SparseMatrix]:
    """Return all links up to a step, as they are and scaled by degree."""
    history = PairHistory(graph.snapshots[: step + 1], three_step=False)
    plain = history.symmetric(history.weights[-1])
    return plain, scaled_by_degree(plain)


def measured(graph: dysat.DynamicGraph) -> Iterator[dict[str, Any]]:
    """Yield how well each way does at the last step but one, for both matrices."""
    step = len(graph) - 2
    for kind, now, before in zip(
        ("as they are", "scaled by degree"), matrices(graph, step), matrices(graph, step - 1), strict=True
    ):
        earlier, whole = search(before, 320, None)[1], 0.0
        for way, size, continued in WAYS:
            values, vectors = search(now, size, earlier if continued else None)
            columns = vectors.double().T.numpy()
            images = np.stack([times(now, column) for column in columns])
            captured = float(values.abs().sum())
            whole = captured if way == LIBRARY else whole
            residual = np.linalg.norm(images - values.numpy()[:, None] * columns) / np.linalg.norm(values.numpy())
            yield {"links": kind, "way": way, "captured": captured / whole, "residual": float(residual)}


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", nargs="*", default=[], type=Path, help="graph folders beside the made-up log")
    args = parser.parse_args()
    torch.set_num_threads(1)
    graphs = {"made-up log of 107,000 events": made_graph(21_700, 107_000)}
    graphs |= {folder.name: dysat.DynamicGraph.load(folder) for folder in args.graph}
    rows = []
    for name, graph in graphs.items():
        for row in measured(graph):
            rows.append({"graph": name, "nodes": graph.num_nodes, **row})
            figures = f"{row['captured']:.3f} {row['residual']:.4f}"
            print(f"{name:30} {row['links']:16} {row['way']:33} {figures}", flush=True)
    about = {"command": "python benchmarks/eigenvectors.py --graph ml-10m yelp", "hardware": hardware(), "seed": 0}
    about["date"] = datetime.now(UTC).date().isoformat()
    OUT.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
