"""Where a training stands, on disk: the newest checkpoint and the one before, for when the newest is no good."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from dysat.errors import ModelError
from dysat.system.tensors import read_tensors, write_tensors

CHECKPOINTS = ("checkpoint.safetensors", "checkpoint-before.safetensors")
CHECKPOINT_VERSION = 1


@dataclass(frozen=True)
class Checkpoints:
    """Those in a folder that were made for one and the same training, which `identity` tells from others."""

    folder: Path
    identity: str

    def files(self) -> list[Path]:
        """Those there are, the newest first."""
        return [file for name in CHECKPOINTS if (file := self.folder / name).exists()]

    def write(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """A new one; the newest becomes the one before."""
        newest, before = (self.folder / name for name in CHECKPOINTS)
        if newest.exists():
            os.replace(newest, before)  # noqa: PTH105
        content = {"run": self.identity, **facts}
        try:
            write_tensors(newest, "checkpoint", CHECKPOINT_VERSION, content, tensors, error=ModelError)
        except ModelError as problem:
            kept = "the checkpoint before is kept, " if before.exists() else ""
            raise ModelError(f"{problem}; {kept}dysat fit --resume {self.folder} goes on") from None

    def last(self, on_note: Callable[[str], None]) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The newest that is whole and of this training; what is not is said and passed over."""
        for file in self.files():
            try:
                facts, tensors = read_tensors(file, "checkpoint", CHECKPOINT_VERSION, error=ModelError)
            except ModelError as problem:
                on_note(f"{problem}; passed over")
                continue
            if facts.get("run") == self.identity:
                return facts, tensors
            on_note(f"{file}: the checkpoint of another run; passed over")
        return None

    def remove(self) -> None:
        """There is no more to go on with."""
        for file in self.files():
            file.unlink(missing_ok=True)
