"""A small disk that can be filled up and emptied: a tmpfs of limited size, where the user may mount one."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

SIZE = 64 * 2**20  # bytes


class SmallDisk:
    """A folder on a file system of its own; a plain folder that is never full if it cannot be mounted."""

    def __init__(self, folder: Path, size: int = SIZE) -> None:
        self.folder, self.size, self.limited, self.full = folder, size, False, False

    def __enter__(self) -> SmallDisk:
        self.folder.mkdir()
        mount = shutil.which("mount")
        if mount is not None:
            options = ["-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", str(self.folder)]
            self.limited = subprocess.run([mount, *options], capture_output=True).returncode == 0
        return self

    def __exit__(self, *problem: object) -> None:
        if self.limited:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def __str__(self) -> str:
        if self.limited:
            return f"a disk of {self.size / 2**20:.0f} MiB that fills up and empties"
        return "no full disk, since mounting a small one is not permitted"

    def fill(self, left: int) -> None:
        """Leave only this many bytes free."""
        free = shutil.disk_usage(self.folder).free
        with suppress(OSError), open(self.folder / "filler", "wb") as out:  # it may be full already
            for start in range(0, max(free - left, 0), 2**20):
                out.write(bytes(min(2**20, free - left - start)))
                out.flush()
        self.full = True

    def empty(self) -> None:
        (self.folder / "filler").unlink(missing_ok=True)
        self.full = False
