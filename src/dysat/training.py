"""The training loop: batches, optimiser steps, best epoch, early stopping, resuming. It knows nothing of models."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from dysat.errors import ModelError, reporting_damage
from dysat.nn.adam import Adam, clip_gradients, gradient, has_only_rows, in_use, rows_of, set_rows
from dysat.system.parallel.ranks import alone, ranks
from dysat.system.progress import report
from dysat.system.tensors import check_finite, check_tensors

Loss = Callable[[Tensor, torch.Generator], Tensor]
MOMENTS = ("exp_avg", "exp_avg_sq")  # of Adam
MIN_COOL_DOWN = 0.05  # fraction of the learning rate that cooling down never goes below


@dataclass(frozen=True)
class Epoch:
    """The results of an epoch. `score` is the validation score, higher is better; None without validation."""

    number: int  # from 1
    loss: float  # mean over its batches
    score: float | None
    best: int  # the best epoch so far
    seconds: float


@dataclass
class Progress:
    """Everything needed to resume training with the same result as without the interruption."""

    history: list[Epoch] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    finished: bool = False

    @property
    def epoch(self) -> int:
        return self.history[-1].number if self.history else 0

    @property
    def best(self) -> Epoch | None:
        return self.history[self.history[-1].best - 1] if self.history else None

    def facts(self) -> dict[str, Any]:
        """Everything except the tensors, as plain values."""
        return {"history": [asdict(epoch) for epoch in self.history], "finished": self.finished}

    @classmethod
    def restore(cls, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Progress:
        """The inverse: rebuild from `facts()` and `tensors`."""
        history = [Epoch(**epoch) for epoch in facts["history"]]
        for number, epoch in enumerate(history, 1):
            figures = (epoch.loss, epoch.seconds, *(epoch.score,) * (epoch.score is not None))
            counts = type(epoch.best) is int and epoch.number == number and 1 <= epoch.best <= number
            if not counts or not all(type(figure) in (int, float) for figure in figures):
                raise ModelError(f"the checkpoint: damaged: epoch {number} of its history is {epoch}")
        return cls(history, dict(tensors), bool(facts["finished"]))


class Callbacks(TypedDict, total=False):
    """Arguments of `minimize` and of every `fit` to watch, stop, checkpoint and resume training."""

    on_epoch: Callable[[Epoch], None] | None
    stop: Callable[[], bool] | None
    progress: Progress | None
    keep: Callable[[Progress], None] | None
    keep_every: float


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of `minimize`: Adam on batches of items."""

    epochs: int
    batch_size: int
    learning_rate: float
    l2: float = 0.0  # adds ½ · l2 · Σ p² to the loss, for the penalised parameters p
    clip_norm: float | None = None  # maximum norm of all gradients together
    patience: int | None = None  # stop after this many epochs without a better score
    keep_best: bool = True  # end with the parameters of the best score, not of the last epoch
    cool_down: float = 0.0  # fraction of the epochs, at the end, in which the learning rate falls linearly
    tf32: bool = True  # on CUDA, matrix products with a 10-bit mantissa
    capture: bool = True  # on CUDA, record a step as a CUDA graph and replay it


def minimize(
    loss: Loss,
    parameters: Mapping[str, nn.Parameter],
    items: Tensor,
    settings: Settings,
    *,
    generator: torch.Generator,
    penalized: frozenset[str] = frozenset(),
    validate: Callable[[], float] | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    stop: Callable[[], bool] | None = None,
    progress: Progress | None = None,
    keep: Callable[[Progress], None] | None = None,
    keep_every: float = 30.0,
) -> Progress:
    """Minimise the mean of `loss` over batches of items, in place.

    `loss(batch, generator)` receives `batch_size` items in random order; the last batch is padded with −1. `validate`
    returns a score after each epoch. Training ends with the parameters of the epoch with the highest score, or of the
    last epoch without `validate` or `keep_best`.

    `keep` receives the state to resume from, at most every `keep_every` seconds and at the end. Passing it as
    `progress`, with the same settings, gives the same result as training without interruption. `stop` is called after
    each epoch; training stops if it returns true.

    Several `ranks` train together: each draws its share of every batch with a generator of its own, and gradients are
    averaged. All get the scores and the decisions of the first.
    """
    progress = progress or Progress()
    if progress.history and not progress.tensors:
        raise ModelError("training cannot be resumed: it has ended, or no checkpoint of it was kept")
    optimizer = Adam(list(parameters.values()), settings.learning_rate, varies=settings.cool_down > 0)
    stepper = _Stepper(loss, parameters, optimizer, settings, generator, penalized)
    order = _of_this_rank(generator)
    best = _restore_state(progress, parameters, optimizer, generator)
    _start_equal(parameters)
    kept = time.monotonic()
    while not _done(progress, settings) and len(items):
        begin = time.monotonic()
        optimizer.set_rate(_rate(settings, progress.epoch))
        mean = _epoch(stepper, items, settings.batch_size, order(progress.epoch))
        score = None if validate is None else _of_first(validate)
        number = progress.epoch + 1
        better = not settings.keep_best or _better(score, progress.best)
        if better:
            needed = validate is not None and settings.keep_best
            best = {name: p.detach().clone() for name, p in parameters.items()} if needed else {}
        top = number if better or progress.best is None else progress.best.number
        progress.history.append(Epoch(number, mean, score, top, time.monotonic() - begin))
        if on_epoch is not None:
            on_epoch(progress.history[-1])
        else:
            report("training: epoch", number, settings.epochs)
        progress.finished = _done(progress, settings)
        due = ranks().first and time.monotonic() - kept >= keep_every
        stopping, due = ranks().any(stop is not None and stop(), due)
        if keep is not None and (stopping or progress.finished or due):
            progress.tensors = _state(parameters, optimizer, generator, best)
            keep(progress)
            kept = time.monotonic()
        if stopping:
            break
    with torch.no_grad():
        for name, value in best.items():
            parameters[name].copy_(value)
    progress.finished = _done(progress, settings) or not len(items)
    progress.tensors = {}
    return progress


def _of_this_rank(generator: torch.Generator) -> Callable[[int], torch.Generator]:
    """Let every rank draw other examples; return the generator of the order of batches in an epoch, the same for all.

    With one rank it is the generator that is given.
    """
    seed, rank = generator.initial_seed(), ranks().rank
    if ranks().size == 1:
        return lambda epoch: generator
    generator.manual_seed(derived_seed(seed, 0, rank))
    return lambda epoch: torch.Generator(generator.device).manual_seed(derived_seed(seed, 1, epoch))


def derived_seed(*numbers: int) -> int:
    """A seed that depends on all of these numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _start_equal(parameters: Mapping[str, nn.Parameter]) -> None:
    """Give every rank the parameters of the first: another processor may have rounded the initial ones differently."""
    if ranks().size == 1:
        return
    _, first = ranks().from_first(None, {name: p.detach() for name, p in parameters.items()})
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(first[name])


def _of_first(validate: Callable[[], float]) -> float:
    """The score that the first rank finds; the others wait for it."""
    score = None
    if ranks().first:
        with alone():
            score = validate()
    return float(ranks().from_first(score)[0])


def _done(progress: Progress, settings: Settings) -> bool:
    if progress.epoch >= settings.epochs:
        return True
    best = progress.best
    waited = 0 if best is None else progress.epoch - best.number
    return settings.patience is not None and waited >= settings.patience


def _rate(settings: Settings, done: int) -> float:
    """The learning rate after `done` epochs."""
    left = (settings.epochs - done) / max(settings.cool_down * settings.epochs, 1.0)
    return settings.learning_rate * (min(1.0, max(MIN_COOL_DOWN, left)) if settings.cool_down else 1.0)


def _better(score: float | None, best: Epoch | None) -> bool:
    if score is None or best is None or best.score is None:
        return True
    return score > best.score or (math.isnan(best.score) and not math.isnan(score))


def _epoch(stepper: _Stepper, items: Tensor, batch_size: int, generator: torch.Generator) -> float:
    """Make one pass over all items; returns the mean loss of its batches."""
    order = items[torch.randperm(len(items), generator=generator, device=generator.device)]
    batches = -(-len(order) // batch_size)
    padded = order.new_full((batches * batch_size,), -1)
    padded[: len(order)] = order
    total = torch.zeros((), device=items.device)
    for batch in padded.view(batches, batch_size):
        # A batch too small to be divided only stands for a step, whose examples each rank draws.
        total += stepper(batch[ranks().rank :: ranks().size] if batch_size >= ranks().size else batch)
    return float(total) / batches


class _Stepper:
    """One optimiser step on one batch; on CUDA it is recorded once and replayed, which saves launching the kernels."""

    def __init__(
        self,
        loss: Loss,
        parameters: Mapping[str, nn.Parameter],
        optimizer: Adam,
        settings: Settings,
        generator: torch.Generator,
        penalized: frozenset[str],
    ) -> None:
        self.loss, self.optimizer, self.settings, self.generator = loss, optimizer, settings, generator
        self.parameters = list(parameters.values())
        self.penalized = [p for name, p in parameters.items() if name in penalized]
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, batch: Tensor) -> Tensor:
        if batch.device.type != "cuda" or not self.settings.capture or ranks().size > 1:
            return self.step(batch)
        if self.graph is None:
            with _matmul_precision("high" if self.settings.tf32 else "highest"):
                self.record(batch)
        self.batch.copy_(batch)
        self.graph.replay()  # type: ignore[union-attr]
        return self.value

    def step(self, batch: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        if ranks().size > 1 and bool((batch < 0).all()):  # the last batch has fewer items than there are ranks
            value = torch.zeros((), device=batch.device)
        else:
            loss = self.loss(batch, self.generator)
            loss.backward()  # type: ignore[no-untyped-call]
            value = loss.detach()
        if ranks().size > 1:
            value = _average(self.parameters, value)
        if self.settings.l2 and self.penalized:
            grads = [gradient(p) for p in self.penalized]
            torch._foreach_add_(grads, [in_use(p) for p in self.penalized], alpha=self.settings.l2)
        if self.settings.clip_norm is not None:
            clip_gradients(self.parameters, self.settings.clip_norm)
        self.optimizer.step()
        return value

    def record(self, batch: Tensor) -> None:
        """Run a few warm-up steps, record one, and restore the state from before."""
        self.batch = batch.clone()
        values = [p.detach().clone() for p in self.parameters]
        state = {p: {k: v.clone() for k, v in s.items()} for p, s in self.optimizer.state.items()}
        random = self.generator.get_state()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step(self.batch)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph):
            self.value = self.step(self.batch)
        with torch.no_grad():
            for p, value in zip(self.parameters, values, strict=True):
                p.copy_(value)
                for key, moment in self.optimizer.state.get(p, {}).items():
                    moment.copy_(state[p][key]) if p in state else moment.zero_()
        self.generator.set_state(random)
        self.graph = graph


def _average(parameters: list[nn.Parameter], loss: Tensor) -> Tensor:
    """Replace gradients by their means over all ranks, and return the mean of the loss."""
    value = loss.clone()
    ranks().average_([value, *(gradient(p) for p in parameters if not has_only_rows(p))])
    for p in parameters:
        if has_only_rows(p):
            parts = [each for _, each in ranks().gathered(None, {"rows": rows_of(p), "values": gradient(p)})]
            rows, values = (torch.cat([part[name] for part in parts]).to(p.device) for name in ("rows", "values"))
            set_rows(p, rows, values / ranks().size)
    return value


@contextmanager
def _matmul_precision(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _state(
    parameters: Mapping[str, nn.Parameter],
    optimizer: Adam,
    generator: torch.Generator,
    best: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Parameters, Adam's moments, the random state and the best parameters, by name."""
    tensors = {"generator": generator.get_state()}
    for rank, (_, theirs) in enumerate(ranks().gathered(None, tensors)[1:], 1):
        tensors[f"generator/{rank}"] = theirs["generator"]
    for name, p in parameters.items():
        tensors[f"now/{name}"] = p.detach().clone()
        tensors |= {f"adam/{key}/{name}": value.clone() for key, value in optimizer.state.get(p, {}).items()}
    return tensors | {f"best/{name}": value for name, value in best.items()}


def _restore_state(
    progress: Progress,
    parameters: Mapping[str, nn.Parameter],
    optimizer: Adam,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Restore the state that `_state` returned; returns the best parameters."""
    if not progress.tensors:
        return {}
    best = {}
    _check_state(progress.tensors, parameters)
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(progress.tensors[f"now/{name}"])
            moments = {
                key: progress.tensors[f"adam/{key}/{name}"]
                for key in ("step", *MOMENTS)
                if f"adam/{key}/{name}" in progress.tensors
            }
            if moments:
                optimizer.state[p] = {key: value.to(p.device).clone() for key, value in moments.items()}
            if f"best/{name}" in progress.tensors:
                best[name] = progress.tensors[f"best/{name}"].to(p.device)
    try:
        own = "generator" if ranks().first else f"generator/{ranks().rank}"
        generator.set_state(progress.tensors[own].cpu())
    except (RuntimeError, TypeError):
        there = "the CPU" if generator.device.type != "cpu" else "a GPU"
        raise ModelError(f"this training started on {there} and can only be resumed there") from None
    return best


def _check_state(tensors: Mapping[str, Tensor], parameters: Mapping[str, nn.Parameter]) -> None:
    """Raise unless the tensors of a checkpoint have the names, types and shapes of these parameters."""
    expected: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
    states = [name for name in tensors if name == "generator" or name.startswith("generator/")]
    if "generator" in tensors and len(states) != ranks().size:
        raise ModelError(f"this training started with {_processes(len(states))}; continue it with as many")
    for name, p in parameters.items():
        trained = any(f"adam/{key}/{name}" in tensors for key in ("step", *MOMENTS))
        names = [f"now/{name}", *(f"adam/{key}/{name}" for key in MOMENTS if trained)]
        names += [f"best/{name}"] * any(key.startswith("best/") for key in tensors)
        expected |= dict.fromkeys(names, (p.dtype, tuple(p.shape)))
        expected |= dict.fromkeys([f"adam/step/{name}"] * trained, (torch.float32, ()))
    with reporting_damage("the checkpoint", ModelError):
        shape = tuple(tensors["generator"].shape)
        names = ["generator", *(f"generator/{rank}" for rank in range(1, ranks().size))]
        check_tensors(tensors, {**expected, **dict.fromkeys(names, (torch.uint8, shape))}, ModelError)
        check_finite(tensors, ModelError)
        for name, tensor in tensors.items():
            if name.startswith(("adam/step/", "adam/exp_avg_sq/")) and tensor.numel() and tensor.min() < 0:
                raise ModelError(f"{name} is negative")


def _processes(number: int) -> str:
    return f"{number} processes" if number > 1 else "one process"
