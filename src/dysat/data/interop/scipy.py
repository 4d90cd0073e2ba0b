"""Convert to and from SciPy: one sparse matrix per snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dysat.data.graph import DynamicGraph
from dysat.data.interop.assemble import assemble, given_labels
from dysat.data.reading.labels import Labels
from dysat.data.windows import Clock
from dysat.errors import GraphError

if TYPE_CHECKING:
    import scipy.sparse as sp


def to_scipy(graph: DynamicGraph) -> list[sp.csr_array[np.float64]]:
    """Return one symmetric matrix [N, N] per snapshot, in node order; a self-loop is one entry on the diagonal.

    In a directed graph, entry [u, v] is the weight that u sent to v.
    """
    from scipy.sparse import coo_array

    matrices = []
    for snapshot in graph:
        entries = snapshot.arcs() if graph.directed else snapshot.entries()
        receivers, neighbours, weights = (part.cpu().numpy() for part in entries)
        matrices.append(coo_array((weights, (receivers, neighbours)), shape=(graph.num_nodes,) * 2).tocsr())
    return matrices


def from_scipy(
    matrices: Sequence[Any],
    labels: Sequence[Any] | Labels | None = None,
    *,
    boundaries: Sequence[int] | None = None,
    clock: Clock = "step",
    directed: bool = False,
) -> DynamicGraph:
    """Read one snapshot per square matrix, sparse or dense; later ones may be larger.

    If all are symmetric, an entry is the weight of its link; otherwise the weight is `a[i, j] + a[j, i]` in all.

    Parameters:
        labels: labels of the rows; by default their numbers.
        boundaries, clock: the T + 1 window edges, as in a `DynamicGraph`; by default the steps 0, 1, ….
        directed: keep direction; `a[i, j]` is then the weight that i sent to j.
    """
    from scipy.sparse import coo_array

    parts, size = [], 0
    for step, matrix in enumerate(matrices):
        entries = coo_array(matrix)
        if entries.ndim != 2 or entries.shape[0] != entries.shape[1] or entries.shape[0] < size:
            raise GraphError(f"matrix {step} has shape {entries.shape}, expected a square of at least {size} rows")
        if entries.dtype.kind not in "biuf":
            raise GraphError(f"matrix {step} holds {entries.dtype}, not real numbers")
        size = entries.shape[0]
        row, column = entries.coords
        parts.append((row.astype(np.int64), column.astype(np.int64), entries.data, None))
    edges = range(len(parts) + 1) if boundaries is None else boundaries
    frame = (list(edges), clock, ())
    return assemble(parts, given_labels(labels, size), frame, both_ways=True, directed=directed)
