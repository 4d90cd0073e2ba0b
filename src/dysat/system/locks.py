"""A lock on a folder, so that only one process at a time writes to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dysat.errors import DysatError

# A file of its own: some versions of filelock empty the file they lock. It stays after the release, since deleting it
# would let two processes each lock a file of that name.
LOCK_FILE = ".lock"


@contextmanager
def lock_folder(folder: Path, error: type[DysatError], *, wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of a folder; the operating system releases it when the process ends, however it ends.

    If another process holds it, raise at once, or call `wait` and retry until the lock is free or `wait` raises.
    """
    if not folder.is_dir():  # filelock would create it
        raise error(f"{folder}: no such folder")
    _check_links(folder, error)
    lock = FileLock(folder / LOCK_FILE, thread_local=False)
    while not _acquire(lock, folder, error):
        if wait is None:
            raise error(f"{folder}: another process is at work on it; try again when it has ended")
        wait()
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, folder: Path, error: type[DysatError]) -> bool:
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    except (OSError, NotImplementedError) as problem:  # the latter: the file system has no locks
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise error(f"{folder}: cannot be written: {reason or problem}") from problem
    return True


def try_lock(folder: Path) -> FileLock | None:
    """Lock a folder if no other process has; None if it is locked, or cannot be."""
    lock = FileLock(folder / LOCK_FILE, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except (Timeout, OSError, NotImplementedError):
        return None
    return lock


def _check_links(folder: Path, error: type[DysatError]) -> None:
    """Raise if a link in the folder leads out of it, since a writer would change or remove what it leads to."""
    inside = os.path.realpath(folder) + os.sep
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink() and not (os.path.exists(path) and os.path.realpath(path).startswith(inside)):
                raise error(f"{path}: a link out of the run folder, where nothing is written; put the file itself here")
