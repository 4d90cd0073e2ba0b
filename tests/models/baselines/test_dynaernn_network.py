"""DynAERNN: windows, recurrent autoencoder and reconstruction error against plain loops."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from graphs import MEETINGS, ONE_NODE, Adjacency, Plain, Vector, add, dot, on_each_device, randomized, seeded
from torch import nn
from torch.testing import assert_close

from dysat.models.baselines.dynaernn import RecurrentAutoencoder, Windows, linear_error

LENGTHS = [1, 2, 9]  # the graph has five steps


def windows_of(plain: Plain, length: int, device: str = "cpu") -> Windows:
    return Windows.of(plain.graph().to(device), length, lambda snapshot: snapshot.weights)


def affine(layer: nn.Linear, x: Vector) -> Vector:
    return add([dot(row, x) for row in layer.weight.tolist()], layer.bias.tolist())


def relu(x: Vector) -> Vector:
    return [max(value, 0.0) for value in x]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def lstm_loop(layer: nn.LSTM, sequence: list[Vector]) -> list[Vector]:
    """i, f, g, o from x and h; c = f c + i g; h = o tanh c."""
    d = layer.hidden_size
    h, c, states = [0.0] * d, [0.0] * d, []
    bias = add(layer.bias_ih_l0.tolist(), layer.bias_hh_l0.tolist())
    for x in sequence:
        gates = [
            dot(w_x, x) + dot(w_h, h) + b
            for w_x, w_h, b in zip(layer.weight_ih_l0.tolist(), layer.weight_hh_l0.tolist(), bias, strict=True)
        ]
        i, f, o = ([sigmoid(value) for value in gates[k * d : (k + 1) * d]] for k in (0, 1, 3))
        g = [math.tanh(value) for value in gates[2 * d : 3 * d]]
        c = [f[k] * c[k] + i[k] * g[k] for k in range(d)]
        h = [o[k] * math.tanh(c[k]) for k in range(d)]
        states.append(h)
    return states


def network_loop(net: RecurrentAutoencoder, plain: Plain, node: int, step: int, length: int) -> Vector:
    """The last state over the rows of a node in its window, from the first step at which it is known."""
    sequence = []
    for t in range(max(0, step - length + 1), step + 1):
        if node < plain.known[t]:
            row = plain.adjacency(t)[node]
            x = [sum(w * net.table[u, k].item() for u, w in row.items()) for k in range(net.table.shape[1])]
            x = relu(add(x, net.bias.tolist()))
            for layer in net.encoder:
                x = relu(affine(layer, x))
            sequence.append(x)
    for layer in net.recurrent:
        sequence = lstm_loop(layer, sequence)
    return sequence[-1]


def dense_row(row: dict[int, float], num_nodes: int) -> Vector:
    return [row.get(u, 0.0) for u in range(num_nodes)]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_window_holds_the_rows_of_its_node_since_it_is_known(length: int) -> None:
    windows = windows_of(MEETINGS, length)
    assert windows.starts.tolist() == [0, 3, 8, 13, 20, 27] and windows.windows.shape[1] == min(length, 5)
    adjacency: list[Adjacency] = [MEETINGS.adjacency(t) for t in range(5)]
    offsets, columns, values = (x.tolist() for x in (windows.rows.offsets, windows.rows.columns, windows.rows.values))
    rows = [dict(zip(columns[i:j], values[i:j], strict=True)) for i, j in pairwise(offsets)]
    assert rows[0] == {} and {} not in rows[1:]
    seen = set()
    for t, known in enumerate(MEETINGS.known):
        for v in range(known):
            cell = windows.starts[t].item() + v
            assert rows[windows.row_of[cell]] == adjacency[t][v]
            window = windows.windows[windows.window_of[cell]].tolist()
            steps = [k for k in range(max(0, t - length + 1), t + 1) if v < MEETINGS.known[k]]
            assert [rows[i] for i in window[: len(steps)]] == [adjacency[k][v] for k in steps]
            assert window[len(steps) :] == [-1] * (len(window) - len(steps))
            seen.add(tuple(window))
    assert len(seen) == len(windows.windows)  # every window is stored once


def test_a_target_is_the_row_of_the_next_step() -> None:
    windows = windows_of(MEETINGS, 2)
    cells = [(v, t) for t in range(4) for v in range(MEETINGS.known[t])]
    wanted = [windows.row_of[windows.starts[t + 1] + v].item() for v, t in cells]
    assert windows.targets().tolist() == wanted and len(set(wanted)) > 5


def test_without_a_next_step_a_target_is_its_own_row() -> None:
    one = Plain(MEETINGS.links[1:2], MEETINGS.known[1:2])
    for plain in (one, Plain([{}, one.links[0]], [0, 5])):  # no node is known before the last step
        windows = windows_of(plain, 3)
        assert torch.equal(windows.targets(), windows.row_of) and windows.row_of.tolist() == [1, 2, 0, 3, 4]
    assert windows_of(ONE_NODE, 3).targets().tolist() == [1]


@pytest.mark.parametrize(("encoder", "recurrent"), [((3,), (2,)), ((4, 3), (3, 2))])
@pytest.mark.parametrize("length", LENGTHS)
def test_the_last_state_matches_the_equations(
    length: int, encoder: tuple[int, ...], recurrent: tuple[int, ...]
) -> None:
    net = RecurrentAutoencoder(7, encoder, recurrent, generator=seeded())
    randomized(net)
    windows = windows_of(MEETINGS, length)
    states = net(_double(windows).rows, windows.windows)
    for t, known in enumerate(MEETINGS.known):
        for v in range(known):
            wanted = network_loop(net, MEETINGS, v, t, length)
            found = states[windows.window_of[windows.starts[t] + v]]
            assert_close(found, torch.tensor(wanted, dtype=torch.float64))


@on_each_device
@pytest.mark.parametrize("beta", [0.1, 1.0, 5.0])
def test_the_error_matches_dense_rows(beta: float, device: str) -> None:
    net = RecurrentAutoencoder(7, (4, 3), (3, 2), generator=seeded())
    randomized(net).to(device)
    windows = _double(windows_of(MEETINGS, 2, device))
    e = torch.randn(len(windows.row_of), 2, generator=seeded(1), dtype=torch.float64).to(device)
    errors = linear_error(windows.rows.take(windows.row_of), net.decode(e), net.output, beta)
    wanted = []
    cells = ((t, v) for t, known in enumerate(MEETINGS.known) for v in range(known))
    for vector, (t, v) in zip(e.tolist(), cells, strict=True):
        for layer in net.decoder:
            vector = relu(affine(layer, vector))
        made, row = affine(net.output, vector), dense_row(MEETINGS.adjacency(t)[v], 7)
        wanted.append(sum(((beta if y else 1.0) * (x - y)) ** 2 for x, y in zip(made, row, strict=True)))
    assert_close(errors.cpu(), torch.tensor(wanted, dtype=torch.float64))


def test_the_error_and_its_gradients_match_squared_error() -> None:
    windows = _double(windows_of(MEETINGS, 2))
    rows = windows.rows.take(windows.row_of[5:15])
    output = nn.Linear(3, 7, dtype=torch.float64, device="meta").to_empty(device="cpu")
    randomized(output)
    x = torch.randn(10, 3, generator=seeded(1), dtype=torch.float64, requires_grad=True)
    given = (x, output.weight, output.bias)
    fast, slow = linear_error(rows, x, output, 3.0), rows.squared_error(output(x), 3.0)
    assert_close(fast, slow)
    assert_close(*(torch.autograd.grad(errors.square().sum(), given) for errors in (fast, slow)))


def _double(windows: Windows) -> Windows:
    object.__setattr__(windows.rows, "values", windows.rows.values.double())
    return windows
