"""Checkpoints of a training: the newest, and the previous one in case the newest is damaged."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from dysat.errors import ModelError, reporting_damage
from dysat.runs.backtest import summary
from dysat.system.tensors import check_finite, read_tensors, write_tensors
from dysat.training import Progress

CHECKPOINTS = ("checkpoint.safetensors", "checkpoint-before.safetensors")
CHECKPOINT_VERSION = 1


class Saved(NamedTuple):
    """The content of a checkpoint."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints in a folder; `identity` describes the training they belong to."""

    folder: Path
    identity: str

    def files(self) -> list[Path]:
        """The existing files, newest first."""
        return [file for name in CHECKPOINTS if (file := self.folder / name).exists()]

    def write(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write a new checkpoint; the newest so far becomes the previous one."""
        newest, previous = (self.folder / name for name in CHECKPOINTS)
        if newest.exists():
            os.replace(newest, previous)  # noqa: PTH105
        content = {"run": self.identity, **facts}
        try:
            write_tensors(newest, "checkpoint", CHECKPOINT_VERSION, content, tensors, error=ModelError)
        except ModelError as problem:
            kept = "the previous checkpoint is kept, " if previous.exists() else ""
            raise ModelError(f"{problem}; {kept}dysat fit --resume {self.folder} continues") from None

    def last(self, on_note: Callable[[str], None]) -> Saved | None:
        """The newest checkpoint that is intact and of this training; each one skipped is reported."""
        for file in self.files():
            try:
                facts, tensors = read_tensors(file, "checkpoint", CHECKPOINT_VERSION, error=ModelError)
                with reporting_damage(file, ModelError):
                    check_finite(tensors, ModelError)
                    _check_facts(facts)
            except ModelError as problem:
                on_note(f"{problem}; skipped")
                continue
            if facts.get("run") == self.identity:
                return Saved(facts, tensors)
            on_note(f"{file}: the checkpoint of another run; skipped")
        return None

    def remove(self) -> None:
        for file in self.files():
            file.unlink(missing_ok=True)


def _check_facts(facts: Mapping[str, Any]) -> None:
    """Raise unless the facts have the types that a run reads back."""
    kinds: dict[str, type] = {"stage": str, "windows": list, "earlier": list, "progress": dict, "window": int}
    wrong = [name for name, kind in kinds.items() if not isinstance(facts.get(name, kind()), kind)]
    seconds, backtest = facts.get("seconds", 0.0), facts.get("backtest")
    if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
        wrong.append("seconds")
    if backtest is not None and not _is_backtest(backtest):
        wrong.append("backtest")
    if wrong or "stage" not in facts:
        raise ModelError(f"its {(wrong or ['stage'])[0]} cannot be read")
    for name in ("windows", "earlier"):
        if not all(isinstance(each, dict) for each in facts.get(name, [])):
            raise ModelError(f"its {name} cannot be read")
    if facts.get("windows"):
        summary(facts["windows"], None)  # what the run makes of them
    if "progress" in facts:
        Progress.restore(facts["progress"], {})


def _is_backtest(backtest: object) -> bool:
    """Whether it has the number of epochs that the final training takes from it."""
    if not isinstance(backtest, dict):
        return False
    best = backtest.get("best_epoch", 0 if backtest.get("validation_auc") is None else None)
    return type(best) is int and best >= 0
