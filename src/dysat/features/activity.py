"""How active nodes are: degrees, weights and times, from the snapshots so far."""

from __future__ import annotations

import torch
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph

# Weight of a snapshot relative to the one after it: half-lives of 0, 0.6, 1.4 and 6.6 steps, and no decay.
DECAYS = (0.0, 0.3, 0.6, 0.9, 1.0)
COLUMNS = 3 + 2 * len(DECAYS)  # without those of kinds


def activity(graph: DynamicGraph) -> tuple[Tensor, ...]:
    """Return features of the nodes known at each step, from the snapshots up to it alone.  # each [known, F]

    The columns are 1; ½ log(1 + x) for x the number and the weight of a node's links, summed over the snapshots so far
    with each of `DECAYS`; the same for x the steps since it was last linked and since it is known, both counted from 1;
    and, if nodes have kinds, a one-hot column for each kind. A self-loop counts once.
    """
    num_nodes, device = graph.num_nodes, graph.device
    decays = torch.tensor(DECAYS, dtype=torch.float64, device=device)[:, None]
    links, weights = torch.zeros(2, len(DECAYS), num_nodes, dtype=torch.float64, device=device)
    last = torch.full((num_nodes,), -1.0, dtype=torch.float64, device=device)
    first_seen = torch.bucketize(
        torch.arange(num_nodes, device=device), torch.tensor(graph.known, device=device), right=True
    ).double()
    kinds = None if graph.kinds is None else torch.as_tensor(graph.kinds.tolist(), device=device)
    steps = []
    for step, snapshot in enumerate(graph):
        degree, weight = _degrees_and_weights(snapshot, num_nodes)
        links = links * decays + degree
        weights = weights * decays + weight
        last = torch.where(degree > 0, float(step), last)
        age = step - first_seen + 1
        since = torch.where(last >= 0, step - last + 1, age + 1)
        known = graph.known[step]
        columns = torch.cat([links, weights, torch.stack([since, age])])[:, :known]
        table = torch.cat([columns.new_ones(1, known), 0.5 * columns.log1p()]).T
        if kinds is not None:
            table = torch.cat([table, torch.nn.functional.one_hot(kinds[:known], len(graph.kind_names))], 1)
        steps.append(table.to(torch.get_default_dtype()).contiguous())
    return tuple(steps)


def _degrees_and_weights(snapshot: Snapshot, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return the number of links of each node in a snapshot, and their total weight.  # [N] each"""
    rows, _, weights = snapshot.entries()
    zeros = torch.zeros(2, num_nodes, dtype=torch.float64, device=weights.device)
    degree = zeros[0].index_add_(0, rows, torch.ones_like(weights))
    return degree, zeros[1].index_add_(0, rows, weights.clamp(min=0))
