"""Progress of training, live on a terminal and as lines elsewhere; and Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dysat.cli.show import new_console
from dysat.runs.run import Watch
from dysat.training import Epoch

QUIET = 5.0  # seconds between progress lines when the output is not a terminal
STAGES = {"backtest": "backtest", "heuristics": "comparing with heuristics", "final": "training"}


@contextmanager
def watching(stopping: str = "stopping after this epoch") -> Iterator[Watch]:
    """Show progress, live on a terminal and as lines elsewhere; Ctrl-C stops after the current epoch."""
    console = new_console(stderr=True)

    def note(text: str) -> None:
        console.print(f"[dim]{escape(text)}[/dim]", highlight=False, soft_wrap=True)

    with _on_ctrl_c(console, f"{stopping}; Ctrl-C again stops at once") as stop:
        watch = Watch(on_note=note, stop=stop)
        if not console.is_terminal:
            yield _plain(watch, lambda text: typer.echo(text, err=True))
            return
        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
        ]
        with Progress(*columns, console=console, transient=True) as progress:
            yield _live(watch, progress)


def _live(watch: Watch, progress: Progress) -> Watch:
    tasks: list[Any] = []

    def on_stage(stage: str, epochs: int) -> None:
        tasks.append(
            progress.add_task(STAGES.get(stage, stage), total=epochs or None, state="preparing" if epochs else "")
        )

    def on_epoch(epoch: Epoch) -> None:
        progress.update(tasks[-1], completed=epoch.number, state=_state(epoch))

    return replace(watch, on_stage=on_stage, on_epoch=on_epoch)


def _plain(watch: Watch, say: Callable[[str], None]) -> Watch:
    now: dict[str, Any] = {"stage": "", "epochs": 0, "printed": 0.0, "seconds": []}

    def on_stage(stage: str, epochs: int) -> None:
        now.update(stage=STAGES.get(stage, stage), epochs=epochs, printed=time.monotonic(), seconds=[])

    def on_epoch(epoch: Epoch) -> None:
        now["seconds"].append(epoch.seconds)
        if time.monotonic() - now["printed"] < QUIET and epoch.number < now["epochs"]:
            return
        now["printed"] = time.monotonic()
        left = (now["epochs"] - epoch.number) * sum(now["seconds"]) / len(now["seconds"])
        say(f"{now['stage']}: epoch {epoch.number} of {now['epochs']}, {_state(epoch)}, {left:.0f} s left")

    return replace(watch, on_stage=on_stage, on_epoch=on_epoch)


def _state(epoch: Epoch) -> str:
    score = "" if epoch.score is None else f", validation AUC {epoch.score:.4f} (kept: epoch {epoch.best})"
    return f"loss {epoch.loss:.4g}{score}"


@contextmanager
def _on_ctrl_c(console: Console, message: str) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; a second press stops at once."""
    pressed: list[bool] = []

    def handle(number: int, frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(True)
        # The signal may interrupt a write to the same stream, whose buffer cannot be entered twice.
        try:
            if console.is_terminal:
                console.print(message)
                return
        except RuntimeError:
            pass
        os.write(sys.stderr.fileno(), f"{message}\n".encode())

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def counting(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show how many jobs are done, live on a terminal and as lines elsewhere."""
    console = new_console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total, what: typer.echo(f"{done} of {total}: {what}", err=True) if what else None
        return
    columns = [TextColumn(title), BarColumn(), TextColumn("{task.fields[state]}"), TimeRemainingColumn()]
    with Progress(*columns, console=console, transient=True) as progress:
        task: Any = progress.add_task("", total=None, state="")
        yield lambda done, total, what: progress.update(
            task, completed=done, total=total, state=f"{done}/{total} {what}"
        )
