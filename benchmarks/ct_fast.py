"""The models of DyGLib for whole batches on a device: its weights, settings and equations, without loops over nodes.

DyGLib's modules hold the weights; the functions here compute the same embeddings from them (tests compare both). All
inputs stay on the device, so that a training step is one CUDA graph. Features of nodes and events are zero here, and
terms that only multiply them are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from ct_events import Ids, Times
from ct_plan import Neighbours
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, dropout, gelu, linear, relu

EAGER = 3  # steps of a shape before it is captured as a CUDA graph


class Ends(NamedTuple):
    """Nodes at times, with the rows of their earlier events in a `History`.  # [B] each"""

    node: Tensor
    start: Tensor
    stop: Tensor
    time: Tensor


def pack(neighbours: Neighbours, u: Ids, v: Ids, times: Times) -> Ids:
    """Sources and destinations at times, as one array to send to a device.  # [B], … → [7, B]"""
    rows = [part for node in (u + 1, v + 1) for part in (node, *neighbours.spans(node, times))]
    return np.stack([*rows, times.view(np.int64)])


def unpack(packed: Tensor) -> tuple[Ends, Ends]:
    """Sources and destinations of a packed array."""
    time = packed[6].view(torch.float64)
    return Ends(*packed[:3], time), Ends(*packed[3:6], time)


def joined(first: Ends, second: Ends) -> Ends:
    """Ends one after the other."""
    return Ends(*(torch.cat(parts) for parts in zip(first, second, strict=True)))


class History:
    """The events of all nodes on a device, by node and time, with the rows of `Neighbours`.

    There is room for a given number of events, so that shapes and places stay when events are added.
    """

    def __init__(self, num_events: int, drawn: bool, device: str) -> None:
        self.others = torch.zeros(2 * num_events, dtype=torch.int64, device=device)
        self.times = torch.zeros(2 * num_events, dtype=torch.float64, device=device)
        # Sums of weights to draw from; those of rows without events are infinite.
        self.total = torch.zeros(2 * num_events + 1, dtype=torch.float64, device=device) if drawn else None

    def fill(self, neighbours: Neighbours) -> None:
        """Replace all events."""
        number = len(neighbours.others)
        self.others[:number] = torch.from_numpy(neighbours.others)
        self.times[:number] = torch.from_numpy(neighbours.times)
        if self.total is not None and neighbours.total is not None:
            self.total[: number + 1] = torch.from_numpy(neighbours.total)
            self.total[number + 1 :] = torch.inf

    def read(self, rows: Tensor, valid: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Neighbours and time since their events; 0 and the time itself if not valid.  # [B, K], [B, K]"""
        rows = torch.where(valid, rows, 0)
        ages = time[:, None] - torch.where(valid, self.times[rows], 0.0)
        return torch.where(valid, self.others[rows], 0), ages.float()

    def recent(self, ends: Ends, number: int) -> tuple[Tensor, Tensor]:
        """The last neighbours, padded at the front.  # [B, K], [B, K]"""
        rows = ends.stop[:, None] - number + torch.arange(number, device=ends.stop.device)
        return self.read(rows, rows >= ends.start[:, None], ends.time)

    def drawn(self, ends: Ends, number: int) -> tuple[Tensor, Tensor]:
        """Neighbours drawn with DyGLib's probabilities, if not all are to be recent.  # [B, K], [B, K]"""
        if self.total is None:
            return self.recent(ends, number)
        start, stop = ends.start[:, None], ends.stop[:, None]
        low, high = self.total[start], self.total[stop]
        uniform = torch.rand(len(start), number, dtype=torch.float64, device=start.device)
        rows = torch.searchsorted(self.total, low + uniform * (high - low), right=True) - 1
        rows = torch.minimum(torch.maximum(rows, start), stop - 1)
        return self.read(rows, (start < stop).expand_as(rows), ends.time)

    def sequences(self, ends: Ends, length: int, longest: int) -> tuple[Tensor, Tensor]:
        """Each node and its last neighbours, padded at the end to a length.  # [B, L], [B, L]"""
        start = torch.maximum(ends.start, ends.stop - (longest - 1))
        rows = start[:, None] + torch.arange(length - 1, device=start.device)
        ids, ages = self.read(rows, rows < ends.stop[:, None], ends.time)
        zero = torch.zeros_like(ages[:, :1])
        return torch.cat([ends.node[:, None], ids], 1), torch.cat([zero, ages], 1)


def encoded(encoder: Any, ages: Tensor) -> Tensor:
    """DyGLib's time encoding.  # [B, K] → [B, K, d]"""
    return torch.cos(encoder.w(ages[..., None]))


def lengths(packed: Ids, first: Ids, patch: int, longest: int) -> list[tuple[int, int]]:
    """DyGFormer's lengths of both sequences, for batches that begin at given columns of a packed array."""
    found = []
    for start, stop in ((packed[1], packed[2]), (packed[4], packed[5])):
        most = np.minimum(np.maximum.reduceat(stop - start, first), longest - 1) + 1
        found.append((-(-most // patch) * patch).tolist())
    return list(zip(*found, strict=True))


def times_in(ids: Tensor, other: Tensor) -> Tensor:
    """How often each id occurs in another sequence, 0 for padding.  # [B, S], [B, D] → [B, S]"""
    found = (ids[:, :, None] == other[:, None, :]).sum(2, dtype=torch.float32)
    return found * (ids != 0)


def attended(attention: nn.MultiheadAttention, x: Tensor) -> Tensor:
    """Self-attention.  # [B, K, d] → [B, K, d]"""
    heads = linear(x, attention.in_proj_weight, attention.in_proj_bias).unflatten(-1, (3, attention.num_heads, -1))
    query, key, value = heads.permute(2, 0, 3, 1, 4)  # [B, H, K, d / H]
    weights = (query @ key.transpose(2, 3) * query.shape[3] ** -0.5).softmax(3)
    found: Tensor = attention.out_proj(
        (dropout(weights, attention.dropout, attention.training) @ value).transpose(1, 2).flatten(2)
    )
    return found


def dygformer(model: Any, history: History, source: Ends, target: Ends, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Embeddings of both ends, from sequences of given lengths.  # [B, d], [B, d]"""
    patch, longest = model.patch_size, model.max_input_sequence_length
    sides = [history.sequences(ends, n, longest) for ends, n in zip((source, target), size, strict=True)]
    ids, ages = (torch.cat(parts, 1) for parts in zip(*sides, strict=True))  # [B, S + D]
    first, _, second = model.neighbor_co_occurrence_encoder.neighbor_co_occurrence_encode_layer
    hidden = sum(relu(first(times_in(ids, side)[..., None])) for side, _ in sides)  # the second layer is linear
    together = linear(hidden, second.weight, 2 * second.bias)
    since = encoded(model.time_encoder, ages) * (ids != 0)[..., None]
    layer, number = model.projection_layer, ids.shape[1] // patch
    time, common = (
        layer[name](part.reshape(len(ids), number, -1))
        for name, part in (("time", since), ("neighbor_co_occurrence", together))
    )
    node, event = (layer[name].bias.expand_as(time) for name in ("node", "edge"))
    x = torch.cat([node, event, time, common], 2)  # [B, P, 4 d]
    for part in model.transformers:
        x = x + part.dropout(attended(part.multi_head_attention, part.norm_layers[0](x)))
        y = part.dropout(gelu(part.linear_layers[0](part.norm_layers[1](x))))
        x = x + part.dropout(part.linear_layers[1](y))
    cut = size[0] // patch
    return model.output_layer(x[:, :cut].mean(1)), model.output_layer(x[:, cut:].mean(1))


def graphmixer(model: Any, history: History, ends: Ends) -> Tensor:
    """Embeddings of nodes.  # [B, d]"""
    ids, ages = history.recent(ends, model.num_tokens)
    since = encoded(model.time_encoder, ages) * (ids != 0)[..., None]
    layer = model.projection_layer
    x = linear(since, layer.weight[:, -since.shape[2] :], layer.bias)  # after the features of events
    for mixer in model.mlp_mixers:
        x = mixer(x)
    x = x.mean(1)
    return linear(x, model.output_layer.weight[:, : x.shape[1]], model.output_layer.bias)  # before those of nodes


def last_outputs(lstm: nn.LSTM, first: Tensor, second: Tensor, long: Tensor, columns: slice | Tensor) -> Tensor:
    """Outputs of a bidirectional LSTM at the end of walks of one or two steps; `long` are those of two.

    The first step is the same for all walks of a node. Inputs have the given columns only, all others are zero.
    # [B, 1, d], [B, K, d], [B, K, 1] → [B, K, 2 h]
    """
    found = []
    for name in ("", "_reverse"):
        kept = [getattr(lstm, f"{part}_l0{name}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        weight, again, bias = kept[0][:, columns], kept[1], kept[2] + kept[3]
        hidden, state = _cell(linear(first, weight, bias), None)
        gates = linear(second, weight, bias)
        if name:  # backwards, the last step comes first
            output, _ = _cell(gates, None)
        else:
            output, _ = _cell(gates + linear(hidden, again), state)
        found.append(torch.where(long, output, hidden))
    return torch.cat(found, 2)


def _cell(gates: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Output and state of an LSTM cell."""
    enter, keep, new, out = gates.chunk(4, -1)
    found = enter.sigmoid() * new.tanh()
    if state is not None:
        found = found + keep.sigmoid() * state
    return out.sigmoid() * found.tanh(), found


def cawn(model: Any, history: History, source: Ends, target: Ends, number: int) -> tuple[Tensor, Tensor]:
    """Embeddings of both ends, from walks of one step.  # [B, d], [B, d]"""
    sides = [(ends.node[:, None], *history.drawn(ends, number)) for ends in (source, target)]
    nodes, ids, ages = (torch.cat(parts) for parts in zip(*sides, strict=True))  # both ends below each other
    steps = [[part.repeat(2, 1) for part in side[:2]] for side in sides]  # of the walks of both ends, beside each end

    def positions(of: Tensor) -> Tensor:
        """The encoded frequencies of nodes at both steps of the walks of both ends.  # [2 B, K] → [2 B, K, d]"""
        found = [torch.stack([times_in(of, step) / step.shape[1] for step in side], 2) for side in steps]
        places: Tensor = model.position_encoder.position_encode_layer(torch.stack(found, 2)).sum(2)
        return places

    places = positions(nodes), positions(ids)
    times = [encoded(model.time_encoder, part) for part in (torch.zeros_like(ages[:, :1]), ages)]
    walks, long = model.walk_encoder, (ids != 0)[..., None]
    raw, since, place = model.node_feat_dim, model.time_feat_dim, places[0].shape[2]
    width = walks.feature_encoder.bilstm_encoder.input_size
    # Inputs are features of nodes, times, features of events, positions.
    columns = torch.cat(
        [torch.arange(a, b, device=ids.device) for a, b in ((raw, raw + since), (width - place, width))]
    )
    whole = [torch.cat(parts, 2) for parts in zip(times, places, strict=True)]
    x = torch.cat(
        [
            last_outputs(walks.feature_encoder.bilstm_encoder, *whole, long, columns),
            last_outputs(walks.position_encoder.bilstm_encoder, *places, long, slice(None)),
        ],
        2,
    )
    x = walks.projection_layers[0](x)  # [2 B, K, d]
    part = walks.transformer_encoder
    x = part.norm_layers[0](x + part.dropout(attended(part.multi_head_attention, x)))
    y = part.linear_layers[1](part.dropout(relu(part.linear_layers[0](x))))
    x = part.norm_layers[1](x + part.dropout(y))
    first, second = walks.projection_layers[1](x.mean(1)).chunk(2)
    return first, second


class Memory:
    """TGN's memory of nodes and the last message that each of them has received since its memory was updated."""

    def __init__(self, model: Any) -> None:
        bank = model.memory_bank
        self.model, self.memory, self.updated = model, bank.node_memories.data, bank.node_last_updated_times.data
        self.message = self.memory.new_zeros(len(self.memory), model.message_dim)
        self.sent, self.waiting = torch.zeros_like(self.updated), torch.zeros_like(self.updated, dtype=torch.bool)

    def clear(self) -> None:
        for part in (self.memory, self.updated, self.message, self.sent, self.waiting):
            part.zero_()

    def now(self) -> Tensor:
        """Memories with the messages that wait.  # [N + 1, d]"""
        # Copies, because the gradient needs them after `remember` has changed the originals.
        message, memory, waiting = (part.clone() for part in (self.message, self.memory, self.waiting))
        return torch.where(waiting[:, None], self.model.memory_updater.memory_updater(message, memory), memory)

    def embeddings(self, now: Tensor, history: History, ends: Ends, number: int) -> Tensor:
        """Embeddings of nodes by attention to their last neighbours.  # [B, d]"""
        module = self.model.embedding_module
        layer, merge = module.temporal_conv_layers[0], module.merge_layers[0]
        ids, ages = history.recent(ends, number)
        own, others = now[ends.node], now[ids]  # [B, d], [B, K, d]
        query = torch.cat([own, encoded(module.time_encoder, torch.zeros_like(ages[:, 0]))], 1)
        known = torch.cat([others, encoded(module.time_encoder, ages)], 2)
        raw = own.shape[1]

        def heads(projection: nn.Linear, x: Tensor) -> Tensor:
            weight = projection.weight
            if x.dim() == 3:  # without the features of events
                weight = torch.cat([weight[:, :raw], weight[:, raw + module.edge_feat_dim :]], 1)
            return linear(x, weight).unflatten(-1, (layer.num_heads, layer.head_dim))

        scores = torch.einsum("bhd,bkhd->bhk", heads(layer.query_projection, query), heads(layer.key_projection, known))
        scores = (scores * layer.scaling_factor).masked_fill((ids == 0)[:, None], -1e10)
        weights = layer.dropout(scores.softmax(2))
        found = torch.einsum("bhk,bkhd->bhd", weights, heads(layer.value_projection, known)).flatten(1)
        found = layer.layer_norm(layer.dropout(layer.residual_fc(found)) + query)
        embedded: Tensor = merge(found, own)
        return embedded

    @torch.no_grad()
    def remember(self, now: Tensor, source: Ends, target: Ends) -> None:
        """Update the memory of the nodes of events with their waiting messages, and send them new ones."""
        nodes, times = torch.cat([source.node, target.node]), source.time.float().repeat(2)
        order = torch.arange(len(nodes), device=nodes.device)
        last = torch.full_like(self.sent, -1, dtype=torch.int64).scatter_reduce_(0, nodes, order, "amax")
        here = last >= 0
        self.memory.copy_(torch.where(here[:, None], now, self.memory))
        self.updated.copy_(torch.where(here, self.sent, self.updated))  # 0 before the first message
        partners = torch.cat([target.node, source.node])
        since = encoded(self.model.time_encoder, times - self.updated[nodes])
        parts = [self.memory[nodes], self.memory[partners], since]
        width = sum(part.shape[1] for part in parts)
        chosen = last.clamp(min=0)
        new = torch.cat(parts, 1)[chosen]  # the last message of each node
        self.message[:, :width] = torch.where(here[:, None], new, self.message[:, :width])
        self.sent.copy_(torch.where(here, times[chosen], self.sent))
        self.waiting |= here


class Steps:
    """Training and scoring steps of a model. On a GPU, they are captured as CUDA graphs, and the usual one is compiled.

    A step reads a packed batch (`pack`): half events and half negatives if it is asked for, or events alone that are
    only remembered.
    """

    def __init__(self, score: Callable[..., Tensor], model: nn.Module, rate: float, device: str, usual: Any) -> None:
        self.score, self.model, self.cuda, self.usual = score, model, device.startswith("cuda"), usual
        if self.cuda:
            torch._dynamo.reset()
            torch._dynamo.config.allow_rnn = True  # CAWN's LSTM holds weights and is not called
            self.compiled = torch.compile(score, fullgraph=True, dynamic=False)
        learned = [weight for weight in model.parameters() if weight.requires_grad]  # the memory is not
        fast = {"fused": True, "capturable": True} if self.cuda else {}
        self.optimizer = torch.optim.Adam(learned, lr=rate, **fast)  # type: ignore[arg-type]
        self.seen: dict[Any, int] = {}
        self.graphs: dict[Any, tuple[Any, Tensor, Tensor]] = {}

    def restart(self) -> None:
        """Let the optimizer begin again."""
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def __call__(self, packed: Tensor, train: bool, **options: Any) -> Tensor:
        """Scores of a batch, after which the model has learned from it if it is a training batch.  # [7, B] → [B]"""
        key = (packed.shape[1], train, *options.values())
        if key in self.graphs:
            graph, given, found = self.graphs[key]
            given.copy_(packed)
            graph.replay()
            return found.clone()
        seen = self.seen[key] = self.seen.get(key, 0) + 1
        score = self.compiled if self.cuda and seen > EAGER and key == self.usual else self.score
        if not self.cuda or seen <= 2 * EAGER:
            return self._step(score, packed, train, options)
        self.optimizer.zero_grad(set_to_none=True)
        given, graph = packed.clone(), torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values()))[0].pool() if self.graphs else None
        with torch.cuda.graph(graph, pool=pool, stream=torch.cuda.current_stream()):
            found = self._step(score, given, train, options)
        self.graphs[key] = graph, given, found
        graph.replay()
        return found.clone()

    def _step(self, score: Callable[..., Tensor], packed: Tensor, train: bool, options: dict[str, Any]) -> Tensor:
        self.model.train(train)
        with torch.set_grad_enabled(train):
            found = score(*unpack(packed), **options)
        if train:
            half = len(found) // 2
            targets = torch.cat([torch.ones_like(found[:half]), torch.zeros_like(found[half:])])
            self.optimizer.zero_grad(set_to_none=True)
            binary_cross_entropy_with_logits(found, targets).backward()
            self.optimizer.step()
        return found.detach()
