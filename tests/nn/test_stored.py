"""Stored histories give the same embeddings as the graphs themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import MEETINGS
from torch.testing import assert_close

from dysat.nn.network import AttentionNetwork, Inputs
from dysat.nn.stored import look_back
from dysat.sampling.blocks import whole_block

LAYERS = {1: ((2, 8),), 2: ((2, 8), (4, 12))}


@pytest.mark.parametrize("unknown", ["masked", "zero"])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_embeddings_equal_those_of_the_whole_graph(unknown: str, self_loops: bool, layers: int) -> None:
    """At every step, with its snapshot as a block (`live`) and with its rows stored too."""
    graph = MEETINGS.graph()
    options = {"self_loops": self_loops, "lonely": self_loops, "unknown": unknown}
    network = AttentionNetwork(
        num_nodes=graph.num_nodes, num_features=0, num_steps=len(graph), structural=((2, 8),), temporal=LAYERS[layers],
        width=8, normalize="receiver", self_loops=self_loops, attention_bias=True, scale="steps", residual=False,
        feedforward="skip", dropout=(0.0, 0.0), generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    with torch.no_grad():
        network.position.copy_(torch.arange(5.0)[:, None].sin() + network.position)  # type: ignore[union-attr]
        block = whole_block(graph, **options)  # type: ignore[arg-type]
        summary: list[np.ndarray] = []  # type: ignore[type-arg]
        for last in range(len(graph)):
            current = whole_block(graph[last : last + 1], **options)  # type: ignore[arg-type]
            plan = look_back(torch.arange(graph.known[last]), [], current, 1, unknown, 1).plan  # type: ignore[arg-type]
            summary.append(network.rows(current, Inputs(), plan)[plan.last.rows.senders].numpy())
            nodes = torch.tensor([0, 2, 3, 5, 6])
            nodes = nodes[nodes < graph.known[last]]
            expected = network(block, Inputs(), network.plan(block, nodes, torch.full_like(nodes, last)))
            for live in (False, True):
                stored = summary[:last] if live else summary
                known = [len(rows) for rows in stored]
                look = look_back(nodes, known, current if live else None, len(graph), unknown, layers)  # type: ignore[arg-type]
                past = look.stored(stored) if stored else torch.empty(0, 8)
                rows = network.rows(current, Inputs(), look.plan) if live else torch.zeros(int(look.plan.zero), 8)
                assert_close(network.attend(torch.cat([rows, past]), look.plan), expected, atol=1e-6, rtol=1e-5)


def test_only_rows_of_the_queried_nodes_are_read() -> None:
    """Memory grows with the histories of a batch, not with the graph."""

    class Counted(np.ndarray):  # type: ignore[type-arg]
        read = 0

        def __getitem__(self, index):  # type: ignore[no-untyped-def]
            Counted.read += len(index)
            return np.asarray(self)[index]

    summary = [np.full((known, 3), known, dtype=np.float32).view(Counted) for known in (4, 1000, 1000)]
    look = look_back(torch.tensor([2, 7, 900]), [4, 1000, 1000], None, 3, "masked", 1)
    rows = look.stored(summary)
    assert rows[:, 0].tolist() == [4] + [1000] * 6 and Counted.read == 7
