"""The training loop compared with explicit loops, and resumed training compared with uninterrupted training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from dysat import training
from dysat.errors import ModelError
from dysat.system.tensors import read_tensors, write_tensors
from dysat.training import Epoch, Progress, Settings, minimize

ITEMS = torch.arange(10)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Line:
    """Learns y = 2x − 1 as w · x + b, with noise on x, so that the random state matters."""

    def __init__(self) -> None:
        self.parameters = {"w": nn.Parameter(torch.zeros(1)), "b": nn.Parameter(torch.zeros(()))}
        self.batches: list[list[int]] = []

    def loss(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        self.batches.append(batch.tolist())
        x = batch[batch >= 0] / 10
        noisy = x + 0.01 * torch.rand(len(x), generator=generator)
        return (self.parameters["w"] * noisy + self.parameters["b"] - (2 * x - 1)).square().mean()

    def values(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.parameters.items()}

    def fit(self, seed: int = 0, **options: Any) -> Progress:
        names = {field.name for field in dataclasses.fields(Settings)}
        chosen = {name: options.pop(name) for name in list(options) if name in names}
        settings = Settings(**{"epochs": 5, "batch_size": 4, "learning_rate": 0.05, **chosen})
        return minimize(self.loss, self.parameters, ITEMS, settings, generator=seeded(seed), **options)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def timeless(history: list[Epoch]) -> str:
    """The history without seconds, as text, in which NaN equals itself."""
    return repr([dataclasses.replace(epoch, seconds=0.0) for epoch in history])


def scores(*values: float) -> Callable[[], float]:
    given: Iterator[float] = iter(values)
    return lambda: next(given)


def test_reaches_the_minimum() -> None:
    p = nn.Parameter(torch.tensor([5.0, -3.0]))
    target = torch.tensor([1.0, 2.0])
    settings = Settings(epochs=300, batch_size=1, learning_rate=0.1)
    done = minimize(lambda batch, _: (p - target).square().sum(), {"p": p}, ITEMS[:1], settings, generator=seeded())
    assert_close(p.detach(), target, atol=1e-3, rtol=0)
    assert done.finished and done.epoch == 300 and done.history[-1].loss < 1e-6


@pytest.mark.parametrize("batch_size", [1, 4, 5, 64])
def test_every_item_occurs_once_per_epoch_and_padding_follows(batch_size: int) -> None:
    line = Line()
    line.fit(epochs=3, batch_size=batch_size)
    per_epoch = math.ceil(10 / batch_size)
    assert len(line.batches) == 3 * per_epoch and {len(batch) for batch in line.batches} == {batch_size}
    orders = []
    for epoch in range(3):
        flat = [item for batch in line.batches[epoch * per_epoch : (epoch + 1) * per_epoch] for item in batch]
        assert sorted(flat[:10]) == list(range(10)) and set(flat[10:]) <= {-1}
        orders.append(flat[:10])
    assert orders[0] != orders[1] != orders[2]


def test_the_loss_is_the_mean_over_batches() -> None:
    w = nn.Parameter(torch.ones(()))
    settings = Settings(epochs=1, batch_size=4, learning_rate=0.0)
    done = minimize(lambda batch, _: w * (batch >= 0).sum(), {"w": w}, ITEMS, settings, generator=seeded())
    assert done.history[0].loss == pytest.approx((4 + 4 + 2) / 3)


def explicit_adam(l2: float, clip: float | None, penalized: set[str], epochs: int) -> dict[str, Tensor]:
    """The same steps with torch.optim.Adam and the penalty as a term of the loss."""
    line, generator = Line(), seeded()
    optimizer = torch.optim.Adam(line.parameters.values(), lr=0.05)
    for _ in range(epochs):
        order = ITEMS[torch.randperm(len(ITEMS), generator=generator)]
        optimizer.zero_grad()
        penalty = sum(0.5 * l2 * p.square().sum() for name, p in line.parameters.items() if name in penalized)
        (line.loss(order, generator) + penalty).backward()
        if clip is not None:
            grads = [p.grad for p in line.parameters.values() if p.grad is not None]
            norm = torch.sqrt(sum(g.square().sum() for g in grads))
            for g in grads:
                g.mul_(torch.clamp(clip / norm, max=1.0))
        optimizer.step()
    return line.values()


@pytest.mark.parametrize(
    ("l2", "clip", "penalized"),
    [(0.0, None, {"w", "b"}), (0.3, None, {"w"}), (0.3, 0.05, {"w", "b"}), (0.3, 100.0, {"w"}), (0.3, 0.05, set())],
)
def test_l2_and_clipping_equal_an_explicit_loop(l2: float, clip: float | None, penalized: set[str]) -> None:
    line = Line()
    line.fit(epochs=20, batch_size=10, l2=l2, clip_norm=clip, penalized=frozenset(penalized))
    assert_close(line.values(), explicit_adam(l2, clip, penalized, 20), atol=1e-5, rtol=1e-4)


def test_the_penalty_is_clipped_and_reaches_parameters_without_a_gradient() -> None:
    p, aside = nn.Parameter(torch.tensor([3.0])), nn.Parameter(torch.tensor([4.0]))
    settings = Settings(epochs=1, batch_size=1, learning_rate=0.0, l2=1.0, clip_norm=0.5)
    both = {"p": p, "aside": aside}
    minimize(
        lambda batch, _: 0 * p.sum(), both, ITEMS[:1], settings, generator=seeded(), penalized=frozenset({"p", "aside"})
    )
    assert_close(torch.cat([p.grad, aside.grad]), torch.tensor([0.3, 0.4]))  # 3, 4 with norm 5 → 0.5


@pytest.mark.parametrize("given", [{}, {"stop": lambda: False}])
def test_without_validation_training_ends_with_the_last_epoch(given: dict[str, Any]) -> None:
    line, seen = Line(), []
    done = line.fit(on_epoch=lambda _: seen.append(line.values()), **given)
    assert same(line.values(), seen[-1]) and not same(seen[-1], seen[-2])
    assert [(epoch.score, epoch.best) for epoch in done.history] == [(None, k) for k in range(1, 6)]


NAN = math.nan


@pytest.mark.parametrize(
    ("given", "best"),
    [
        ((0.1, 0.5, 0.3, 0.2, 0.4), [1, 2, 2, 2, 2]),
        ((0.5, 0.5, 0.5, 0.5, 0.5), [1, 1, 1, 1, 1]),  # the first of equal scores
        ((NAN, 0.1, NAN, 0.05, NAN), [1, 2, 2, 2, 2]),
        ((0.1, NAN, NAN, 0.2, NAN), [1, 1, 1, 4, 4]),
        ((-math.inf, NAN, -5.0, NAN, NAN), [1, 1, 3, 3, 3]),
        ((0.1, 0.2, 0.3, 0.4, 0.5), [1, 2, 3, 4, 5]),
    ],
)
def test_with_validation_training_ends_with_the_best_epoch(given: tuple[float, ...], best: list[int]) -> None:
    line, seen = Line(), []
    done = line.fit(validate=scores(*given), on_epoch=lambda _: seen.append(line.values()))
    assert [epoch.best for epoch in done.history] == best
    assert repr([epoch.score for epoch in done.history]) == repr(list(given))
    assert same(line.values(), seen[best[-1] - 1])
    assert done.best is not None and done.best.number == best[-1]


@pytest.mark.parametrize(
    ("patience", "given", "ran"),
    [
        (1, (0.1, 0.4, 0.3), 3),
        (2, (0.1, 0.4, 0.3, 0.2), 4),
        (2, (0.1, 0.4, 0.3, 0.5, 0.5, NAN), 6),  # an equal score is no improvement
        (3, (0.1, 0.4, 0.3, 0.2, 0.5, 0.1, 0.1), 7),  # patience ends after the last epoch
        (None, (0.4, 0.3, 0.2, 0.1, 0.0, 0.0, 0.0), 7),
    ],
)
def test_patience_stops_training(patience: int | None, given: tuple[float, ...], ran: int) -> None:
    line, seen = Line(), []
    done = line.fit(epochs=7, patience=patience, validate=scores(*given), on_epoch=lambda _: seen.append(line.values()))
    assert len(done.history) == ran and done.finished
    assert done.best is not None and done.best.score == max(given)
    assert same(line.values(), seen[done.best.number - 1])


def test_patience_has_no_effect_without_validation() -> None:
    assert len(Line().fit(patience=1).history) == 5


def test_stop_is_called_after_each_epoch() -> None:
    line, asked = Line(), []
    done = line.fit(stop=lambda: asked.append(len(line.batches)) or len(asked) == 2)
    assert asked == [3, 6] and done.epoch == 2 and not done.finished and done.tensors == {}
    assert Line().fit(epochs=1, stop=lambda: True).finished  # stopped at the last epoch


@pytest.mark.parametrize(("epochs", "items"), [(0, ITEMS), (5, ITEMS[:0]), (0, ITEMS[:0])])
def test_without_epochs_or_items_nothing_happens(epochs: int, items: Tensor) -> None:
    line = Line()
    before, generator = line.values(), seeded()
    state = generator.get_state()
    calls: list[str] = []
    done = minimize(
        line.loss,
        line.parameters,
        items,
        Settings(epochs=epochs, batch_size=4, learning_rate=0.1, l2=1.0),
        generator=generator,
        penalized=frozenset({"w"}),
        validate=lambda: calls.append("validate") or 0.0,
        on_epoch=lambda _: calls.append("epoch"),
        stop=lambda: calls.append("stop") or False,
    )
    assert done.finished and done.history == [] and done.best is None and done.epoch == 0
    assert same(line.values(), before) and not calls and not line.batches
    assert torch.equal(generator.get_state(), state)


def test_the_seed_determines_the_result_and_global_generators_are_unchanged() -> None:
    before = torch.get_rng_state(), repr(np.random.get_state())  # noqa: NPY002
    one, two, other = Line(), Line(), Line()
    history = one.fit(), two.fit()
    other.fit(seed=1)
    assert same(one.values(), two.values()) and one.batches == two.batches
    assert timeless(history[0].history) == timeless(history[1].history)
    assert one.batches != other.batches and not same(one.values(), other.values())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert repr(np.random.get_state()) == before[1]  # noqa: NPY002


def validation(line: Line) -> Callable[[], float]:
    """Best at w = 0.5, on the way to w = 2."""
    return lambda: -abs(float(line.parameters["w"].detach()) - 0.5)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "penalised": {"l2": 0.1, "clip_norm": 0.5, "penalized": frozenset({"w"})},
    "validated": {"validated": True},
    "patient": {"validated": True, "patience": 2},
    "cooling": {"cool_down": 0.5},
}


def run(line: Line, *, validated: bool = False, **options: Any) -> Progress:
    return line.fit(epochs=8, validate=validation(line) if validated else None, **options)


def through_memory(progress: Progress, folder: Path) -> Progress:
    return Progress.restore(progress.facts(), {name: tensor.clone() for name, tensor in progress.tensors.items()})


def through_a_file(progress: Progress, folder: Path) -> Progress:
    file = folder / "checkpoint"
    write_tensors(file, "checkpoint", 1, {"progress": progress.facts()}, progress.tensors, error=ModelError)
    facts, tensors = read_tensors(file, "checkpoint", 1, error=ModelError)
    return Progress.restore(facts["progress"], tensors)


@pytest.mark.parametrize("kind", KINDS)
def test_resume_reaches_the_same_result(kind: str, tmp_path: Path) -> None:
    through = through_a_file if kind in ("plain", "validated") else through_memory
    whole = Line()
    expected = run(whole, **KINDS[kind])
    for k in (1, 3, expected.epoch - 1, expected.epoch):
        line, kept = Line(), []
        stopped = run(
            line,
            stop=lambda line=line, k=k: len(line.batches) == 3 * k,
            keep=lambda p, kept=kept: kept.append(through(p, tmp_path)),
            **KINDS[kind],
        )
        assert stopped.epoch == k and len(kept) == 1 and stopped.tensors == {}
        assert stopped.finished == kept[0].finished == (k == expected.epoch)
        other = Line()
        done = run(other, seed=99, progress=kept[0], **KINDS[kind])  # the random state comes from the checkpoint
        assert same(other.values(), whole.values())
        assert timeless(done.history) == timeless(expected.history) and done.finished
        assert line.batches + other.batches == whole.batches
    if KINDS[kind].get("validated"):
        assert expected.best is not None and 1 < expected.best.number < expected.epoch
    if "patience" in KINDS[kind]:
        assert expected.epoch < 8


def test_finished_training_resumes_with_more_epochs() -> None:
    whole, line, kept = Line(), Line(), []
    whole.fit(epochs=6)
    line.fit(epochs=2, keep=lambda p: kept.append(through_memory(p, Path())))
    assert kept[0].finished
    done = line.fit(epochs=6, progress=kept[0])
    assert same(line.values(), whole.values()) and done.epoch == 6


def test_checkpoints_are_kept_at_intervals_and_change_nothing() -> None:
    without = Line()
    without.fit()
    for every, times in ((0.0, [1, 2, 3, 4, 5]), (1e9, [5])):
        line, kept = Line(), []
        line.fit(keep=lambda p, kept=kept: kept.append(p.epoch), keep_every=every)
        assert kept == times and same(line.values(), without.values())


def test_resuming_on_another_kind_of_device_is_an_error() -> None:
    """The generator of a GPU has a state of 16 bytes, which stands for one here."""
    kept: list[Progress] = []
    Line().fit(stop=lambda: True, keep=lambda p: kept.append(through_memory(p, Path())))
    tensors = {**kept[-1].tensors, "generator": torch.zeros(16, dtype=torch.uint8)}
    with pytest.raises(ModelError, match="started on a GPU and can only be resumed there"):
        Line().fit(progress=dataclasses.replace(kept[-1], tensors=tensors))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("cool_down", "expected"),
    [
        (0.0, [1, 1, 1, 1, 1, 1, 1, 1]),
        (0.5, [1, 1, 1, 1, 1, 3 / 4, 2 / 4, 1 / 4]),
        (1.0, [8 / 8, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        (0.01, [1, 1, 1, 1, 1, 1, 1, 1]),  # less than an epoch
    ],
)
def test_the_learning_rate_falls_linearly_in_the_last_epochs(
    cool_down: float, expected: list[float], device: str
) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    p = nn.Parameter(torch.zeros(1, device=device))
    seen = [0.0]
    settings = Settings(epochs=8, batch_size=10, learning_rate=0.1, cool_down=cool_down)
    minimize(  # a constant gradient of 1: each step is as long as the learning rate
        lambda batch, _: p.sum(),
        {"p": p},
        ITEMS.to(device),
        settings,
        generator=torch.Generator(device).manual_seed(0),
        on_epoch=lambda _: seen.append(-float(p.detach())),
    )
    steps = [after - before for before, after in pairwise(seen)]
    assert steps == pytest.approx([0.1 * rate for rate in expected], rel=1e-4)


def test_the_learning_rate_never_falls_below_a_twentieth() -> None:
    settings = Settings(epochs=1000, batch_size=1, learning_rate=0.1, cool_down=0.5)
    rates = [training._rate(settings, done) for done in range(1000)]
    assert rates[:501] == [0.1] * 501 and rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0.005) == min(rates)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_parameter_without_a_gradient_does_not_change_on_cuda() -> None:
    parameters = {name: nn.Parameter(torch.ones(2, device="cuda")) for name in ("used", "idle")}
    settings = Settings(epochs=2, batch_size=10, learning_rate=0.1)
    generator = torch.Generator("cuda").manual_seed(0)
    loss = lambda batch, _: (parameters["used"] * batch.sum()).square().sum()  # noqa: E731
    minimize(loss, parameters, ITEMS.cuda(), settings, generator=generator)
    assert parameters["idle"].tolist() == [1.0, 1.0] and parameters["used"][0] < 1


def test_training_without_a_checkpoint_cannot_be_resumed() -> None:
    done = Line().fit()
    with pytest.raises(ModelError, match="training cannot be resumed: it has ended, or no checkpoint of it was kept"):
        Line().fit(progress=done)
