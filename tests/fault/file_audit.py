"""Watch which files a case touches: an audit hook that notes every access outside the folders it may use."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch

import dysat
from dysat.system.compiled import _cache_folder

# Events of Python with the positions of their paths. Compiled libraries that open files themselves raise none.
PATHS = {
    **dict.fromkeys(("open", "os.listdir", "os.scandir", "os.mkdir", "os.rmdir", "os.remove", "os.truncate"), (0,)),
    **dict.fromkeys(("os.chmod", "os.chown", "os.utime", "os.setxattr", "shutil.rmtree"), (0,)),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink", "shutil.copyfile", "shutil.move"), (0, 1)),
}
FORBIDDEN = (
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "pickle.find_class"),
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"),
)
ALWAYS = ("/dev/null", "/proc/self/clear_refs")  # the latter resets the peak of memory
LINK_ITSELF = ("os.rename", "os.remove", "os.link", "os.symlink", "os.rmdir")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
DEVICES = ("/dev/null", "/dev/urandom", "/proc", "/sys/devices", "/sys/fs", "/usr/share/zoneinfo", "/etc/localtime")


class FileAudit:
    """Notes accesses outside the allowed folders while it is `active`."""

    def __init__(self, case: Path, originals: Path) -> None:
        self.active = False
        self.found: list[str] = []
        self.writable = (os.path.realpath(case),)
        libraries = (
            *(path for path in sysconfig.get_paths().values() if path),
            *site.getsitepackages(),
            *(path for path in sys.path if path),  # imports list them
            *(sys.prefix, sys.base_prefix, os.fspath(_cache_folder())),
            *(str(Path(file).parent) for file in (dysat.__file__, torch.__file__, __file__) if file),
        )
        self.readable = (*self.writable, os.path.realpath(originals), *map(os.path.realpath, libraries), *DEVICES)
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event in FORBIDDEN:
            self.found.append(f"{event} {args[:1]}")
        elif event in PATHS:
            writes = event not in ("open", "os.listdir", "os.scandir")
            if event == "open" and isinstance(args[2], int):
                writes = bool(args[2] & WRITING)
            for place in PATHS[event]:
                self._check(event, args[place], writes)

    def _check(self, event: str, path: Any, writes: bool) -> None:
        if path is None or isinstance(path, int):
            return
        self.active = False  # what follows raises events too
        try:
            name = os.path.abspath(os.fsdecode(path))
            # Reading follows links; removing and renaming act on a link itself; writing must not leave the folder.
            real = os.path.realpath(name)
            if event in LINK_ITSELF:
                real = os.path.join(os.path.realpath(Path(name).parent), Path(name).name)
            places = (real,) if writes else (real, name)
            allowed = self.writable if writes else self.readable
            inside = any(place == root or place.startswith(f"{root}/") for root in allowed for place in places)
            if not inside and name not in ALWAYS:
                self.found.append(f"{event} {'writes' if writes else 'reads'} {os.fsdecode(path)}")
        except (ValueError, OSError):
            pass  # not a path, so nothing was opened
        finally:
            self.active = True
