"""Write beside a target and move into place; remove what killed processes left; say why a write failed.

A file or folder is first written in a folder `.dysat-XXXXXXXX` beside its target:

    .lock    held by the process that writes
    new      the new file or folder, with the suffix of the target
    old/     the folder that is being replaced, under its own name, for a moment

A killed process leaves such a folder behind. Its lock is free then, so the next write in the same place removes it, and
puts a folder back that had been moved to `old` without a new one in its place. Folders whose lock is held are in use.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from filelock import FileLock

from dysat.errors import DysatError
from dysat.system.locks import LOCK_FILE, try_lock

PREFIX = ".dysat-"
LEFT_BEHIND = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")  # the random part is tempfile's
NEW, OLD = "new", "old"
FULL = (errno.ENOSPC, errno.EDQUOT)
ATTEMPTS = 3
LONGEST_NAME = 255  # bytes, where the file system does not say


@contextmanager
def writing_beside(target: Path) -> Iterator[Path]:
    """Create a locked folder beside a target and give the path `new` in it; remove the folder in the end."""
    sweep_once(target.parent)
    folder, lock = _locked_folder(target.parent)
    try:
        yield folder / f"{NEW}{target.suffix}"
    finally:
        if lock is not None:
            lock.release()
        if not (folder / OLD).exists():  # it holds a folder that could not be put back
            shutil.rmtree(folder, ignore_errors=True)


def swap_in(new: Path, target: Path) -> None:
    """Rename a folder in `writing_beside` to its target; a folder that is there already is replaced."""
    if not os.path.lexists(target):
        new.rename(target)
        return
    old = new.parent / OLD
    old.mkdir()
    target.rename(old / target.name)
    try:
        new.rename(target)
    except OSError:
        (old / target.name).rename(target)  # if this fails too, the next write beside it puts it back
        old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


def sweep(parent: Path) -> list[str]:
    """Remove the folders that killed processes left in a folder; return their names."""
    try:
        with os.scandir(parent) as entries:
            found = [entry for entry in entries if LEFT_BEHIND.fullmatch(entry.name) and _is_ours(entry)]
    except OSError:
        return []
    return [entry.name for entry in found if _remove_if_free(parent, Path(entry.path))]


@cache
def sweep_once(parent: Path) -> None:
    """`sweep` a folder for the first time in this process."""
    sweep(parent)


def check_place(path: Path, error: type[DysatError], *, any_bytes: bool = False) -> None:
    """Raise before any work if a file or folder of this name cannot be created; an existing one is no error.

    With `any_bytes`, the name need not be UTF-8. Polars can only write files whose path is.
    """
    target, text = Path(os.path.abspath(str(path).replace("\0", "?"))), str(path)
    problem = None
    above = next(folder for folder in target.parents if os.path.lexists(folder) or folder == folder.parent)
    if "\0" in text:
        problem = "the name contains a NUL character"
    elif not any_bytes and not _is_utf8(text):
        problem = "the name is not valid UTF-8; choose another name"
    elif any(len(os.fsencode(part)) > _longest_name(above) for part in target.parts):
        problem = "the name is too long"
    elif not os.path.isdir(above):  # noqa: PTH112
        problem = f"{above} is not a folder"
    elif not os.access(above, os.W_OK | os.X_OK):
        problem = f"no permission to write in {above}"
    if problem is not None:
        raise error(f"{path}: cannot be written: {problem}")


def check_new_file(file: Path, error: type[DysatError]) -> None:
    """Raise before any work if a file cannot be written; an existing one would be replaced."""
    check_place(file, error)
    if os.path.isdir(file):  # noqa: PTH112
        raise error(f"{file}: cannot be written: it is a folder")
    if not os.path.isdir(file.absolute().parent):  # noqa: PTH112
        raise error(f"{file}: cannot be written: there is no folder {file.absolute().parent}")


def write_problem(path: Path, problem: OSError, needed: int | None) -> str:
    """The message for a failed write; on a full disk it says how many bytes are needed, if known, and how many free."""
    try:
        free = shutil.disk_usage(_existing(path)).free
    except OSError:
        free = None
    short = free is not None and needed is not None and needed > free
    if problem.errno not in FULL and (problem.errno is not None or not short):  # NumPy and Polars give no number
        return f"{path}: cannot be written: {problem.strerror or problem}"
    sizes = [f"{size_text(n)} {word}" for n, word in ((needed, "needed"), (free, "free")) if n is not None]
    shown = f" ({', '.join(sizes)})" if sizes else ""
    reason = os.strerror(problem.errno or errno.ENOSPC)
    return f"{path}: cannot be written: {reason}{shown}"


def size_text(number: int) -> str:
    """A number of bytes for a message.

    Example:
        >>> size_text(3952), size_text(2_500_000)
        ('3,952 bytes', '2.5 MB')
    """
    if number < 10_000:
        return f"{number:,} byte{'s' * (number != 1)}"
    value, unit = next((number / 10**p, u) for p, u in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")) if number >= 10**p)
    return f"{value:.1f} {unit}"


def _locked_folder(parent: Path) -> tuple[Path, FileLock | None]:
    """A new folder and its lock; None if the file system has no locks, so that no other process removes the folder."""
    for _ in range(ATTEMPTS):
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = try_lock(folder)
        if lock is not None and (folder / LOCK_FILE).exists():
            return folder, lock
        # Another process took it for a leftover, in the moment before it was locked.
        if lock is not None:
            lock.release()
        shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)), None


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Whether this user made the folder: a lock in a folder of somebody else could be a link to any file."""
    if not entry.is_dir(follow_symlinks=False):
        return False
    return not hasattr(os, "getuid") or entry.stat(follow_symlinks=False).st_uid == os.getuid()


def _remove_if_free(parent: Path, folder: Path) -> bool:
    try:
        locked = stat.S_ISREG((folder / LOCK_FILE).lstat().st_mode)
    except OSError:
        locked = False
    if not locked:
        with suppress(OSError):
            folder.rmdir()  # killed before it was locked; a folder with anything in it is not ours
            return True
        return False
    lock = try_lock(folder)
    if lock is None:
        return False
    try:
        for old in (folder / OLD).iterdir() if (folder / OLD).is_dir() else ():
            if not os.path.lexists(parent / old.name):
                old.rename(parent / old.name)
    except OSError:
        return False
    finally:
        lock.release()
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _longest_name(folder: Path) -> int:
    try:
        return int(os.pathconf(folder, "PC_NAME_MAX"))
    except (OSError, ValueError, AttributeError):  # also Windows, which has no such call
        return LONGEST_NAME
