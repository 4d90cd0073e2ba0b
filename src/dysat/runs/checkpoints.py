"""Checkpoints of a training: the newest, and the previous one in case the newest is damaged."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from dysat.errors import ModelError
from dysat.system.tensors import read_tensors, write_tensors

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
