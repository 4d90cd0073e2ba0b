"""Progress of training, live on a terminal and as lines elsewhere; and Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Lock, Thread, current_thread, main_thread
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dysat.cli.output.show import epochs_text, new_console, status_line
from dysat.cli.output.terminal import PlainColumn, foreign, say
from dysat.runs.run import Watch
from dysat.system.parallel.ranks import ranks
from dysat.system.progress import listening
from dysat.training import Epoch

QUIET = 5.0  # seconds between progress lines when the output is not a terminal
REPEAT = 30.0  # seconds after which a line is repeated while one piece of work goes on
TICK = 1.0  # seconds between looks at the clock
STAGES = {
    "backtest": "backtest",
    "heuristics": "comparing with heuristics",
    "final": "training",
    "writing": "writing the run",
}


@contextmanager
def watching(stopping: str = "stopping after this epoch") -> Iterator[Watch]:
    """Show progress, live on a terminal and as lines elsewhere; Ctrl-C stops after the current epoch."""
    console = new_console(stderr=True)

    def note(text: str) -> None:
        console.print(f"[dim]{foreign(text)}[/dim]", highlight=False, soft_wrap=True)

    with _on_ctrl_c(console, f"{stopping}; Ctrl-C again stops at once") as stop:
        watch = Watch(on_note=note, stop=stop)
        if not ranks().first:
            yield watch
            return
        if not console.is_terminal:
            with _lines() as lines, listening(lines.on_report):
                yield replace(watch, on_stage=lines.on_stage, on_epoch=lines.on_epoch)
            return
        columns = [
            PlainColumn("{task.description}"),
            BarColumn(),
            PlainColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            PlainColumn("{task.fields[left]}"),
        ]
        with Progress(*columns, console=console, transient=True) as progress:
            bars = _Bars(progress)
            with listening(bars.on_report):
                yield replace(watch, on_stage=bars.on_stage, on_epoch=bars.on_epoch)


@contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """Show work without epochs: its present piece on a terminal, and lines elsewhere if it takes long."""
    console = new_console(stderr=True)
    if not ranks().first:
        yield lambda text: None
        return
    if not console.is_terminal:
        with _lines() as lines, listening(lines.on_report):
            yield lines.set_text
        return
    with status_line() as set_status, listening(lambda *report: set_status(_piece(*report))):
        yield set_status


class _Bars:
    """One progress bar per stage."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.tasks, self.epochs = progress, list[Any](), 0

    def on_stage(self, stage: str, epochs: int) -> None:
        if self.tasks:
            self.progress.stop_task(self.tasks[-1])
        self.epochs, self.left = epochs, _TimeLeft(epochs)
        name = STAGES.get(stage, stage)
        self.tasks.append(self.progress.add_task(name, total=epochs or None, state="preparing" * bool(epochs), left=""))

    def on_epoch(self, epoch: Epoch) -> None:
        left = self.left(epoch)
        shown = f"{left:.0f} s left" if epoch.number < self.epochs else ""
        self.progress.update(self.tasks[-1], completed=epoch.number, state=_state(epoch), left=shown)

    def on_report(self, what: str, done: int, total: int) -> None:
        if not self.tasks:
            return
        self.progress.update(self.tasks[-1], state=_piece(what, done, total))
        if not self.epochs:
            self.progress.update(self.tasks[-1], completed=done, total=total or None)


class _Lines:
    """Progress as lines: a new state at most every QUIET seconds, the same one again after REPEAT seconds."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.lock = say, Lock()
        self.stage, self.text, self.said, self.epochs = "", "", "", 0
        self.printed = self.began = time.monotonic()

    def on_stage(self, stage: str, epochs: int) -> None:
        self.stage, self.epochs, self.left = STAGES.get(stage, stage), epochs, _TimeLeft(epochs)
        self.set_text(self.stage)

    def on_epoch(self, epoch: Epoch) -> None:
        left, text = self.left(epoch), f"{self.stage}: epoch {epoch.number} of {self.epochs}, {_state(epoch)}"
        if epoch.number == self.epochs:
            self._print(f"{text}, {epochs_text(self.left.number)} in {self.left.spent:.1f} s")
            self.set_text(f"{self.stage}: after the last epoch")
        elif time.monotonic() - self.printed >= QUIET:
            self._print(f"{text}, {left:.0f} s of training left")

    def on_report(self, what: str, done: int, total: int) -> None:
        self.set_text(": ".join(filter(None, (self.stage, _piece(what, done, total)))))

    def set_text(self, text: str) -> None:
        """Say what is being done now; it is printed when it has taken a while."""
        with self.lock:
            self.text, self.began = text, time.monotonic()

    def look(self) -> None:
        """Print what is being done if nothing was printed for a while."""
        now = time.monotonic()
        with self.lock:
            text, seconds, silent = self.text, now - self.began, now - self.printed
        if text and silent >= (REPEAT if text == self.said else QUIET):
            self.said = text
            self._print(f"{text} ({seconds:.0f} s so far)" if seconds >= QUIET else text)

    def _print(self, line: str) -> None:
        self.say(line)
        self.printed = time.monotonic()


@contextmanager
def _lines() -> Iterator[_Lines]:
    """Lines on the error stream, printed even while a long piece of work reports nothing."""
    lines, over = _Lines(say), Event()

    def look() -> None:
        while not over.wait(TICK):
            lines.look()

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield lines
    finally:
        over.set()
        thread.join()


class _TimeLeft:
    """Seconds that the remaining epochs of a stage will take, by the mean of those that this process ran."""

    def __init__(self, epochs: int) -> None:
        self.epochs, self.number, self.spent = epochs, 0, 0.0

    def __call__(self, epoch: Epoch) -> float:
        self.number, self.spent = self.number + 1, self.spent + epoch.seconds
        return (self.epochs - epoch.number) * self.spent / self.number


def _piece(what: str, done: int = 0, total: int = 0) -> str:
    return f"{what} {min(done + 1, total)} of {total}" if total else what


def _state(epoch: Epoch) -> str:
    score = "" if epoch.score is None else f", validation AUC {epoch.score:.4f} (kept: epoch {epoch.best})"
    return f"loss {epoch.loss:.4g}{score}"


@contextmanager
def _on_ctrl_c(console: Console, message: str) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; a second press stops at once."""
    if current_thread() is not main_thread():  # as on Ray; only the main thread gets signals
        yield lambda: False
        return
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
        yield lambda done, total, what: say(f"{done} of {total}: {what}") if what else None
        return
    columns = [TextColumn(title), BarColumn(), PlainColumn("{task.fields[state]}"), TimeRemainingColumn()]
    with Progress(*columns, console=console, transient=True) as progress:
        task: Any = progress.add_task("", total=None, state="")
        yield lambda done, total, what: progress.update(
            task, completed=done, total=total, state=f"{done}/{total} {what}"
        )
