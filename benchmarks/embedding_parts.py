"""Which parts of the network and which objectives improve the embeddings, or the score together with them?

    python benchmarks/embedding_parts.py --graphs GRAPHS --prepared FILES --out results/embedding_parts.json
    python benchmarks/embedding_parts.py --show results/embedding_parts.json

GRAPHS comes from benchmarks/wide_logs.py; only logs of the development half are opened unless --log names others. For
each of the last windows of a log, as in benchmarks/forecasting_wide.py, the pair score is learned once. Then every
variant of the default model learns from the windows before. --prepare computes only what all variants share (the pair
score and what it says of pairs) and stores it in FILES, so that a second command, on a machine with a GPU, can train.

Figures are AUC, MRR and MRR of new links of the product of the embeddings, and of score + 0.25 · product, where the
product has the standard deviation of the score. Variants marked * learn what the pair score misses; their figures are
those of score + product as it is. Finished windows are stored in the --out file and not computed again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice, product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, ClassVar, NamedTuple, cast
from unittest.mock import patch

import torch
from forecasting_wide import DEVELOPMENT, FIGURES, Examples, chosen, examples, figures, predicted, write
from torch import Tensor, nn
from torch.nn import functional

import dysat
from dysat.data.graph import DynamicGraph
from dysat.evaluation.ranking import candidate_pairs
from dysat.models import dysat as default
from dysat.models.forecast.pair_score import PairScore
from dysat.nn.future_objective import Ahead, Cells, Drawn, ProductScore, Transitions
from dysat.nn.network import AttentionNetwork, Inputs
from dysat.nn.temporal import FeedForward
from dysat.sampling.blocks import Block
from dysat.system.hardware import hardware
from dysat.system.parallel.pool import THREAD_VARIABLES, worker_pool
from dysat.system.parallel.process import keep_freed_memory

Row = dict[str, Any]
SHARE = 0.25  # of the product in the score
OTHERS = 32  # nodes that the contrastive objective ranks a link among
LINKS = 4096  # links in a step of it
HEADS, WIDTH = 16, 128  # of attention over events
HALF_LIVES = (0.05, 0.2, 0.8, 3.0, 12.0)  # in windows, of the ages of events
MISSED = 2  # transitions with links from which variants learn what the pair score misses
FEWEST = 20  # links of such a transition
AT_ONCE = 5  # variants of a job


class Ready(NamedTuple):
    """What all variants of a window share.

    Shapes: scores [B] of the examples; expected [S] of the taught pairs; missed [M, 2], steps, labels, offsets [M]:
    pairs of past transitions and their scores by a pair score that had not seen these transitions.
    """

    scores: Tensor
    expected: Tensor
    missed: Tensor
    steps: Tensor
    labels: Tensor
    offsets: Tensor


def asked(given: Examples) -> Tensor:
    """All pairs that `figures` asks for.  # [B, 2]"""
    parts = [given.pairs]
    for links, others in (part for part in (given.ranked, given.new_ranked) if part is not None):
        parts += [links, candidate_pairs(links, others)]
    return torch.cat(parts)


def prepare(graph: DynamicGraph, given: Examples) -> Ready:
    """Learn the pair score of a graph and one of its earlier past, and score pairs."""
    model = dysat.DySAT(device="cpu")
    model.graph_ = graph
    model.pair_score_ = model._learn_pair_score()
    scores, expected = model.pair_scores(asked(given)).float(), model._expected(model._taught_pairs()).float()
    return Ready(scores, expected, *missed_pairs(graph))


def missed_pairs(graph: DynamicGraph) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Links and other pairs of the last transitions, their steps, labels and scores."""
    cells = Cells.of(graph.known, 0, torch.device("cpu"))
    sizes = Transitions.of(graph, cells, 1, 0.0).links[1].tolist()
    large = [step for step, size in enumerate(sizes) if size >= FEWEST]
    first = max(2, large[-MISSED]) if len(large) >= MISSED else len(graph) - 2
    cells = Cells.of(graph.known, first, torch.device("cpu"))
    links, others, counts = Transitions.of(graph, cells, 4, 0.0).draw(torch.Generator().manual_seed(0))
    pairs = torch.cat([links, others[counts]])  # of cells
    labels = torch.arange(len(pairs)) < len(links)
    steps, pairs = cells.steps[pairs[:, 0]], cells.nodes[pairs]
    score, offsets = PairScore.learn(graph[: first + 1], transitions=3, seed=0), torch.zeros(len(pairs))
    for step in range(first, len(graph) - 1) if score is not None else ():
        offsets[steps == step] = score.log_odds(graph, step, pairs[steps == step]).float()
    return pairs, steps, labels, offsets


@dataclass(eq=False)
class Shared:
    """A window: its graph, examples, what is ready, and the inputs and taught pairs on a device."""

    graph: DynamicGraph
    given: Examples
    ready: Ready
    inputs: Tensor
    taught: Tensor


class Variant(dysat.DySAT):
    """The default model with a pair score, inputs and taught pairs that are shared by all variants."""

    shared: Shared

    def _learn_pair_score(self, on_trees: Callable[[], object] = lambda: None) -> PairScore | None:
        return cast(PairScore, object())  # only whether there is one matters

    @contextmanager
    def _getting_ready(self, device: torch.device) -> Iterator[Callable[[], None]]:
        yield lambda: None

    def _inputs(self, graph: DynamicGraph) -> Inputs:
        return Inputs(self.shared.inputs[-sum(graph.known) :], per_row=True)

    def _taught(self, cells: Cells, last: int) -> tuple[Tensor, Tensor]:
        return cells.at(self.shared.taught, last), self.shared.ready.expected.to(self.shared.taught.device)


class InputsOnly(Variant):
    """Without attention: embeddings are a linear function of the inputs."""

    def _network(self, num_nodes: int, num_steps: int, generator: torch.Generator) -> AttentionNetwork:
        network = super()._network(num_nodes, num_steps, generator)
        network.temporal, network.feedforward = nn.ModuleList(), None
        return network


class Contrastive(Variant):
    """Ranks each link (u, v) of the next snapshot among pairs (u, w), by the softmax of their scores."""

    logistic: ClassVar[bool] = False  # whether the logistic loss of the same pairs is added

    def _ahead(self, device: torch.device) -> Callable[[torch.Generator], Tensor] | None:
        kinds = None if self.graph_.kinds is None else torch.from_numpy(self.graph_.kinds.astype("int64")).to(device)
        with patch.object(default, "Ahead", partial(RankedAhead, kinds=kinds, logistic=self.logistic)):
            return super()._ahead(device)


class ContrastiveLogistic(Contrastive):
    """The same, added to the logistic loss."""

    logistic = True


@dataclass(frozen=True, eq=False)
class RankedAhead(Ahead):
    """`Ahead` with the cross-entropy of each link among `OTHERS` pairs of the same node.

    Half of the other nodes are uniform, half are ends of links of the same transition. Nodes of another kind than v do
    not count.
    """

    kinds: Tensor | None
    logistic: bool

    def draw(self, generator: torch.Generator, most: int | None = None) -> Drawn:
        drawn, links = super().draw(generator, most), self.links
        if links is None:
            return drawn
        device, random = links.pairs.device, partial(torch.rand, generator=generator, dtype=torch.float64)
        some = min(LINKS, len(links.pairs))
        rows = (random(some, device=device) * len(links.pairs)).long()
        ends = links.pairs[rows]
        if not links.directed:
            ends = torch.where(random(some, 1, device=device) < 0.5, ends, ends.flip(1))
        transition = links.transition[rows][:, None]  # [M, 1]
        number = random(2, some, OTHERS // 2, device=device)
        uniform = links.cells[0, transition] + (number[0] * links.cells[1, transition]).long()
        linked = links.pairs[links.links[0, transition] + (number[1] * links.links[1, transition]).long()]
        side = torch.ones_like(number[1]) if links.directed else (random(*number[1].shape, device=device) < 0.5)
        others = torch.cat([uniform, linked.gather(2, side.long()[..., None])[..., 0]], 1)  # [M, K]
        u = ends[:, :1].expand_as(others)
        low, high = (u, others) if links.directed else (torch.minimum(u, others), torch.maximum(u, others))
        keys = low * links.num_cells + high
        at = torch.searchsorted(links.keys, keys).clamp(max=len(links.keys) - 1)
        counts = (links.keys[at] != keys) & (u != others)
        if self.kinds is not None:
            kinds = self.kinds[self.cells.nodes]
            counts &= kinds[others] == kinds[ends[:, 1:]]
        return Drawn((ends, torch.stack([u, others], 2).flatten(0, 1), counts.flatten()), drawn.taught)

    def loss(self, score: ProductScore, x: Tensor, drawn: Drawn) -> Tensor:
        value = super().loss(score, x, drawn if self.logistic else Drawn(None, drawn.taught))
        if drawn.links is None:
            return value
        links, others, counts = drawn.links
        own = of_pairs(score, x, links)[:, None]  # [M, 1]
        rest = of_pairs(score, x, others).masked_fill(~counts, -math.inf).view(len(own), -1)
        ranked = torch.cat([own, rest], 1).log_softmax(1)[:, 0]
        return value - self.weights[0] * ranked.mean()


def of_pairs(score: ProductScore, x: Tensor, pairs: Tensor) -> Tensor:
    """The scores of pairs of rows.  # [C, d], [B, 2] → [B]"""
    found: Tensor = score(x.index_select(0, pairs[:, 0]), x.index_select(0, pairs[:, 1]))
    return found


class EventPlan(NamedTuple):
    """Queries and their latest events; rows are numbered among `active`, those of the block that are needed.

    Shapes: active [S]; own [Q]; neighbours, valid [Q, K]; times [Q, K, F]
    """

    active: Tensor
    own: Tensor
    neighbours: Tensor
    valid: Tensor
    times: Tensor


class EventNetwork(nn.Module):
    """Attention of a node over its latest events, whatever their snapshots, and over itself.

    A token is the neighbour's input at the query's step, the age of the event in windows (from the last event of the
    link in its window), and its weight.

    Shapes: as `AttentionNetwork`.
    """

    def __init__(
        self, graph: DynamicGraph, num_nodes: int, num_features: int, tokens: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.tokens, self.width = tokens, WIDTH

        def weights(rows: int) -> nn.Parameter:
            return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, WIDTH), generator=generator))

        self.table, self.input = weights(num_nodes), weights(num_features)
        self.query, self.key, self.value = weights(WIDTH), weights(WIDTH), weights(WIDTH)
        self.key_times, self.value_times = weights(len(HALF_LIVES) + 2), weights(len(HALF_LIVES) + 2)
        self.feedforward = FeedForward(WIDTH, "skip", generator=generator)
        for name, values in zip(("receivers", "senders", "moments", "amounts"), events_of(graph), strict=True):
            self.register_buffer(name, values, persistent=False)

    receivers: Tensor
    senders: Tensor
    moments: Tensor
    amounts: Tensor

    def plan(self, block: Block, nodes: Tensor, steps: Tensor) -> EventPlan:
        """The latest events of these (node, step) up to the end of the step.  # each [Q]"""
        span = block.num_steps + 1.0
        keys = self.receivers * span + self.moments  # sorted
        first, stop = (torch.searchsorted(keys, nodes * span + end) for end in (0.0, steps + 1.0))  # [Q]
        at = stop[:, None] - 1 - torch.arange(self.tokens, device=nodes.device)  # [Q, K]
        valid = at >= first[:, None]
        at = at.clamp(min=0)
        age = steps[:, None] + 1.0 - self.moments[at]
        known = torch.tensor(block.known, device=nodes.device)
        starts = known.cumsum(0) - known
        rows = starts[steps][:, None] + torch.where(valid, self.senders[at], 0)  # [Q, K]
        active, index = torch.unique(torch.cat([starts[steps] + nodes, rows.flatten()]), return_inverse=True)
        faded = [torch.exp2(-age / half_life) for half_life in HALF_LIVES]
        times = torch.stack([*faded, age.clamp(min=0).log1p(), self.amounts[at].log1p()], 2)
        own, neighbours = index[: len(nodes)], index[len(nodes) :].view_as(rows)
        return EventPlan(active, own, neighbours, valid, times.to(self.table.dtype))

    def rows(self, block: Block, inputs: Inputs, plan: EventPlan, **_: object) -> Tensor:
        """Inputs of the rows that a plan needs.  # [S, d]"""
        if inputs.values is None:
            raise TypeError("events need inputs of rows")
        return inputs.values[plan.active] @ self.input + self.table[block.node[plan.active]]

    def attend(self, x: Tensor, plan: EventPlan, *, generator: torch.Generator | None = None) -> Tensor:
        """Embeddings of the queries.  # [S, d] → [Q, d]"""
        own, shape = x.index_select(0, plan.own), (*plan.neighbours.shape, HEADS, WIDTH // HEADS)
        q = (own @ self.query).view(len(own), 1, HEADS, -1) * (HEADS / WIDTH) ** 0.5
        key, value = x @ self.key, x @ self.value
        flat = plan.neighbours.flatten()
        k = (key.index_select(0, flat).view(*shape[:2], -1) + plan.times @ self.key_times).view(shape)
        v = (value.index_select(0, flat).view(*shape[:2], -1) + plan.times @ self.value_times).view(shape)
        logits = (q * k).sum(3).masked_fill(~plan.valid[..., None], -math.inf)  # [Q, K, H]
        alone = (q[:, 0] * key.index_select(0, plan.own).view_as(q[:, 0])).sum(2)[:, None]  # [Q, 1, H]
        alpha = torch.cat([alone, logits], 1).softmax(1)
        z = alpha[:, :1, :, None] * value.index_select(0, plan.own).view_as(q)
        z = z.sum(1) + (alpha[:, 1:, :, None] * v).sum(1)  # [Q, H, d / H]
        found: Tensor = self.feedforward(own + z.flatten(1))
        return found

    def forward(self, block: Block, inputs: Inputs, plan: EventPlan, **_: object) -> Tensor:
        return self.attend(self.rows(block, inputs, plan), plan)

    def tables(self) -> list[nn.Parameter]:
        """The parameters with a row for every node."""
        return [self.table]


def events_of(graph: DynamicGraph) -> Iterator[Tensor]:
    """Receivers, senders, moments in windows and weights of all events, by receiver, then moment.  # each [E']"""
    parts = []
    for step, snapshot in enumerate(graph.snapshots):
        receivers, senders, weights = snapshot.entries()
        passed = torch.ones(len(receivers)) if snapshot.latest is None else snapshot.latest
        parts.append((receivers, senders, step + passed.double().clamp(max=1 - 1e-6), weights))
    receivers, senders, moments, weights = (torch.cat(part) for part in zip(*parts, strict=True))
    order = torch.argsort(receivers * (len(graph) + 1.0) + moments)
    return (part[order] for part in (receivers, senders, moments, weights))


class Events(Variant):
    """Attention over the latest events of a node instead of over neighbours and then steps."""

    tokens: ClassVar[int] = 16

    def _network(self, num_nodes: int, num_steps: int, generator: torch.Generator) -> Any:
        graph = self._recent().to("cpu")
        return EventNetwork(graph, num_nodes, self._num_inputs(graph), self.tokens, generator)


class ManyEvents(Events):
    """The same with more events."""

    tokens = 64


class EventsContrastive(Events, Contrastive):
    """Attention over events, learned by ranking."""


class Missed(Variant):
    """Learns what the pair score misses: the logistic loss of score + product on past transitions."""

    def _ahead(self, device: torch.device) -> Callable[[torch.Generator], Tensor] | None:
        ready, known = self.shared.ready, self.graph_.known
        if not len(ready.missed):
            return None
        cells = Cells.of(known, int(ready.steps.min()), device)
        starts = torch.tensor(cells.starts, device=device)
        pairs = ready.missed.to(device) + starts[ready.steps.to(device) - cells.first][:, None]
        sign, offsets = 1 - 2 * ready.labels.to(device).float(), ready.offsets.to(device)
        share = torch.where(sign < 0, 1 / (sign < 0).sum(), 1 / (sign > 0).sum())
        plan = None

        def loss(generator: torch.Generator) -> Tensor:
            nonlocal plan
            plan = plan or self.network_.plan(self.block_, cells.nodes, cells.steps)
            x: Tensor = self.network_(self.block_, self.inputs_, plan, generator=generator)
            return (share * functional.softplus(sign * (offsets + of_pairs(self._score(), x, pairs)))).sum()

        return loss


class MissedInputsOnly(Missed, InputsOnly):
    """The same without attention."""


class MissedEvents(Missed, Events):
    """The same with attention over events."""


ALONE: Row = {"agreement": 0.0, "future_weight": 1.0}  # links of the next snapshot teach, not the pair score
PENALIZED: Row = {**ALONE, "l2": 0.1}  # with less, the score together with it was worse on three logs
FEATURES: Row = {"inputs": "features"}  # no vector per node: what large graphs and unseen nodes get
DEFAULT, FUTURE, UNSEEN, SCORE = "default", "future", "no identity", "score"
SEEDS = {
    DEFAULT: (DEFAULT, "default, seed 1", "default, seed 2"),
    FUTURE: (FUTURE, "future, seed 1"),
    UNSEEN: (UNSEEN, "no identity, seed 1"),
}
VARIANTS: dict[str, tuple[type[Variant], Row]] = {
    DEFAULT: (Variant, {}),
    "default, seed 1": (Variant, {"seed": 1}),
    "default, seed 2": (Variant, {"seed": 2}),
    "without structural block": (Variant, {"blocks": "temporal"}),
    "without temporal block": (Variant, {"blocks": "structural"}),
    "inputs only": (InputsOnly, {"blocks": "temporal"}),
    "history of 1 step": (Variant, {"history": 1}),
    "history of 4 steps": (Variant, {"history": 4}),
    UNSEEN: (Variant, FEATURES),
    "no identity, seed 1": (Variant, {**FEATURES, "seed": 1}),
    "no identity, without structural block": (Variant, {**FEATURES, "blocks": "temporal"}),
    "no identity, without temporal block": (Variant, {**FEATURES, "blocks": "structural"}),
    "no identity, inputs only": (InputsOnly, {**FEATURES, "blocks": "temporal"}),
    "no identity, history of 4 steps": (Variant, {**FEATURES, "history": 4}),
    "contrastive": (Contrastive, {}),
    "contrastive, without structural block": (Contrastive, {"blocks": "temporal"}),
    "16 events": (Events, {}),
    "64 events": (ManyEvents, {}),
    "16 events, contrastive": (EventsContrastive, {}),
    FUTURE: (Variant, ALONE),
    "future, seed 1": (Variant, {**ALONE, "seed": 1}),
    "future, without structural block": (Variant, {**ALONE, "blocks": "temporal"}),
    "future, without temporal block": (Variant, {**ALONE, "blocks": "structural"}),
    "future, inputs only": (InputsOnly, {**ALONE, "blocks": "temporal"}),
    "future, history of 4 steps": (Variant, {**ALONE, "history": 4}),
    "future, 12 transitions": (Variant, {**ALONE, "transitions": 12}),
    "future, contrastive": (Contrastive, ALONE),
    "future, contrastive and logistic": (ContrastiveLogistic, ALONE),
    "future, 16 events": (Events, ALONE),
    "future, 16 events, contrastive": (EventsContrastive, ALONE),
    "missed *": (Missed, PENALIZED),
    "missed, inputs only *": (MissedInputsOnly, {**PENALIZED, "blocks": "temporal"}),
    "missed, 16 events *": (MissedEvents, PENALIZED),
}


def measure(task: Row) -> Row:
    """Measure all variants of a window, or only prepare it."""
    keep_freed_memory()
    graph, target = DynamicGraph.load(task["graph"]), task["target"]
    given, graph = examples(graph, target, 0), graph[:target]
    file = Path(task["prepared"])
    if not file.exists():
        torch.save(prepare(graph, given)._asdict(), file)
    if task["only_prepare"]:
        return {}
    shared = share(graph, given, Ready(**torch.load(file, weights_only=True)), task["device"])
    found = {SCORE: known(figures(lambda pairs: shared.ready.scores, given))}
    return {"variants": found | {name: of_variant(name, shared, task) for name in task["variants"]}}


def share(graph: DynamicGraph, given: Examples, ready: Ready, device: str) -> Shared:
    """Compute inputs and taught pairs once."""
    model = dysat.DySAT(device=device)
    model.graph_ = graph
    inputs = model._inputs(graph.to(device)).values
    if inputs is None:
        raise TypeError("the default model has inputs")
    return Shared(graph, given, ready, inputs.float(), model._taught_pairs().to(device))


def of_variant(name: str, shared: Shared, task: Row) -> Row:
    """The figures of the product and of score and product, and the seconds of training; or why there are none."""
    kind, options = VARIANTS[name]
    model = kind(**{**options, "device": task["device"], "epochs": task["epochs"]})
    model.shared = shared
    try:
        begin = time.perf_counter()
        model.fit(shared.graph)
        seconds = time.perf_counter() - begin
        alone = super(dysat.DySAT, model).pair_scores(asked(shared.given)).double()
    except (dysat.DysatError, RuntimeError) as problem:
        return {"problem": f"{type(problem).__name__}: {problem}"}
    finally:
        torch.cuda.empty_cache()  # of all processes on a GPU
    score, number = shared.ready.scores.double(), len(shared.given.pairs)
    scale = SHARE * score[:number].std() / alone[:number].std().clamp(min=1e-9)
    parts = {"product": alone, "mixed": score + (1.0 if name.endswith("*") else scale) * alone}
    found = {part: known(figures(partial(_same, values), shared.given)) for part, values in parts.items()}
    return {**found, "seconds": round(seconds, 3)}


def _same(values: Tensor, pairs: Tensor) -> Tensor:
    return values


def known(found: Row) -> Row:
    """The figures of the tables."""
    return {figure: found[figure] for figure in FIGURES if figure in found}


def parts_of(names: Iterable[str]) -> Iterator[list[str]]:
    """The names, a few at once."""
    left = iter(names)
    while part := list(islice(left, AT_ONCE)):
        yield part


def jobs(args: argparse.Namespace, done: Sequence[Row]) -> list[Row]:
    """Some variants of a window each, if they are not done yet; those with most rows first."""
    finished, found = {(row["log"], row["target"], name) for row in done for name in row["variants"]}, []
    for log in chosen(args.graphs, args.half, args.log):
        if log in args.without:
            continue
        graph = DynamicGraph.load(args.graphs / log)
        for target in predicted(graph, args.windows + args.skip)[: -args.skip or None]:
            task = {"log": log, "target": target, "graph": str(args.graphs / log), "device": args.device}
            task |= {"prepared": str(args.prepared / f"{log}-{target}.pt"), "only_prepare": args.prepare}
            task |= {"epochs": args.epochs, "rows": sum(graph.known[:target])}
            for number, names in enumerate([[SCORE]] if args.prepare else parts_of(args.variant or VARIANTS)):
                if left := [name for name in names if (log, target, name) not in finished]:
                    found.append({**task, "variants": left, "number": number})
    return sorted(found, key=lambda task: (task["number"], -task["rows"]))


def sweep(args: argparse.Namespace) -> None:
    """Run every job that the file does not have yet, each in one thread."""
    record: Row = json.loads(args.out.read_text()) if args.out.exists() else {"rows": []}
    args.prepared.mkdir(parents=True, exist_ok=True)
    waiting = jobs(args, record["rows"])
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # of the worker processes
    begin, machine = time.monotonic(), hardware()
    with worker_pool(args.processes, "windows") as pool:
        running = {pool.submit(measure, task): task for task in waiting}
        for number, future in enumerate(as_completed(running), 1):
            about = {name: running[future][name] for name in ("log", "target", "device", "epochs")}
            row = {**about, **future.result(), "hardware": machine, "date": datetime.now(UTC).date().isoformat()}
            print(
                f"{time.monotonic() - begin:.0f} s, {number} of {len(waiting)}:", row["log"], row["target"], flush=True
            )
            if not args.prepare:
                record["rows"].append(row)
                write(record, args.out)


def merged(rows: Iterable[Row]) -> list[Row]:
    """One row per window with all its variants."""
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        window = found.setdefault((row["log"], row["target"]), {**row, "variants": {}})
        window["variants"] |= row["variants"]
    return list(found.values())


def show(rows: Sequence[Row]) -> Iterator[str]:
    """One line per variant: means over logs in per cent, and differences with their standard errors over logs.

    Products are compared with the mean of the seeds of the default, or of the first variant without agreement or
    identity; score and product with the score. Each comparison has the windows of the variant.
    """
    logs = sorted({row["log"] for row in rows})
    names = dict.fromkeys(name for row in rows for name in row["variants"] if name != SCORE)
    yield f"{len(logs)} logs, {len(rows)} windows: {', '.join(logs)}."
    means = [
        f"{name} {100 * fmean(log_means(rows, [SCORE], None, figure).values()):.2f}" for figure, name in FIGURES.items()
    ]
    yield f"Score: {', '.join(means)}."
    yield ""
    columns = [f"{part}{name}" for part in ("product: ", "with the score: ") for name in FIGURES.values()]
    yield f"| | logs | {' | '.join(columns)} |"
    yield "|---" + "|---:" * (len(columns) + 1) + "|"
    for name in names:
        own = [row for row in rows if "mixed" in row["variants"].get(name, {})]
        group = FUTURE if name.startswith("missed") else name.split(",")[0]
        seeds = SEEDS.get(group, SEEDS[DEFAULT])
        cells = [f"{len({row['log'] for row in own})}"]
        for figure in FIGURES:
            alone, base = (log_means(own, group, "product", figure) for group in ([name], seeds))
            cells.append(f"{100 * fmean(alone.values()):.2f} ({difference(alone, base)})")
        cells += [
            difference(log_means(own, [name], "mixed", figure), log_means(own, [SCORE], None, figure))
            for figure in FIGURES
        ]
        yield f"| {name} | {' | '.join(cells)} |"
    found = [(row, name, cell) for row in rows for name, cell in row["variants"].items() if "problem" in cell]
    yield from ["", *(f"{row['log']} {row['target']}, {name}: {cell['problem']}" for row, name, cell in found)]


def log_means(rows: Sequence[Row], names: Iterable[str], part: str | None, figure: str) -> dict[str, float]:
    """The mean of a figure over these variants and the windows of each log that have it."""
    found: dict[str, list[float]] = {}
    for row, name in product(rows, names):
        values = row["variants"].get(name, {})
        values = values if part is None else values.get(part, {})
        if figure in values:
            found.setdefault(row["log"], []).append(values[figure])
    return {log: fmean(values) for log, values in found.items()}


def difference(own: Mapping[str, float], other: Mapping[str, float]) -> str:
    """The mean difference over logs ± its standard error, in points."""
    apart = [100 * (own[log] - other[log]) for log in own]
    error = f" ± {stdev(apart) / math.sqrt(len(apart)):.2f}" if len(apart) > 1 else ""
    return f"{fmean(apart):+.2f}{error}"


def main() -> None:
    """Measure, or print what files have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=Path, nargs="+")
    parser.add_argument("--graphs", type=Path, help="folder that benchmarks/wide_logs.py wrote")
    parser.add_argument("--half", default=DEVELOPMENT)
    parser.add_argument("--log", nargs="+", default=[], help="some logs of this half; default: all of them")
    parser.add_argument("--without", nargs="+", default=[], help="logs to leave out")
    parser.add_argument("--variant", nargs="+", choices=list(VARIANTS), metavar="NAME", help="default: all of them")
    parser.add_argument("--windows", type=int, default=2, help="windows to predict, the last ones")
    parser.add_argument("--skip", type=int, default=0, help="last windows to leave out")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--prepared", type=Path, help="folder of the pair scores")
    parser.add_argument("--prepare", action="store_true", help="only compute the pair scores")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/embedding_parts.json"))
    args = parser.parse_args()
    if args.show:
        rows = merged(row for file in args.show for row in json.loads(file.read_text())["rows"])
        print("\n".join(show(rows)))
    elif args.graphs and args.prepared:
        sweep(args)
    else:
        parser.error("expected --graphs and --prepared, or --show")


if __name__ == "__main__":
    main()
