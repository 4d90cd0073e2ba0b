"""Independent tasks on a Ray cluster: a function and its arguments in, its result out, run again if a node is lost.

Machines of a cluster need not share a disk. Input files travel through Ray's object store (`RayTasks.share`), and tasks
return the content of the files they write, which the caller stores. Ray pickles arguments and results between its own
processes; nothing is unpickled from a file.
"""

from __future__ import annotations

import atexit
import hashlib
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event, Lock
from typing import Any

import numpy as np

from dysat.errors import DysatError, ModelError
from dysat.system.parallel.cluster import cluster, first_sentence
from dysat.system.parallel.engine import Engine
from dysat.system.parallel.pool import THREAD_VARIABLES
from dysat.system.writing import sweep, writing_beside

RETRIES = 4  # times a task is run again after its node or process was lost
HEAD_LOST = "the head node of the Ray cluster is lost"
POLL = 0.2  # seconds between looks at the tasks
PATIENCE = 10.0  # seconds without the head node; Ray itself would end this process after 60
NOT_IMPORTED = "The remote function failed to import on the worker"  # the beginning of Ray's message


class LostError(Exception):
    """The cluster cannot finish a task. No DysatError: the task itself may be fine."""


class StoppedError(Exception):
    """The tasks were cancelled."""


@dataclass(frozen=True)
class SharedFolder:
    """The files of a folder in Ray's object store, for tasks on any machine."""

    name: str
    key: str  # hash of the files
    files: Mapping[str, Any]  # references to their content, by name

    def here(self) -> Path:
        """Return the folder on this machine; it is written once per process, and alone in its parent folder."""
        import ray

        folder = _folder_of_process() / self.key / self.name
        if not folder.exists():
            incomplete = folder.with_name(f"{self.name}.incomplete")
            incomplete.mkdir(parents=True, exist_ok=True)
            for name, content in self.files.items():
                (incomplete / name).write_bytes(ray.get(content).data)
            incomplete.rename(folder)
        return folder


@cache
def _folder_of_process() -> Path:
    """A temporary folder of this process; if the process is killed, a later one of this machine removes it."""
    place = ExitStack()
    new = place.enter_context(writing_beside(Path(tempfile.gettempdir()) / "task"))
    atexit.register(place.close)
    new.mkdir()
    return new


@contextmanager
def ray_tasks(engine: Engine, *, device: str, gpus: float, kept: str) -> Iterator[RayTasks]:
    """Connect to a cluster, or start one; cancel what is running on any error, and turn a loss into one line.

    `gpus` is the fraction of a GPU of each task on CUDA unless the engine says otherwise; `kept` names what stays
    finished after an error.
    """
    wanted = (engine.job_gpus or gpus) if device.startswith("cuda") else 0.0
    try:
        with cluster(engine.address) as ray, _without_messages():
            tasks = RayTasks(ray, engine.job_cpus or 1, wanted)
            try:
                yield tasks
            except LostError as problem:
                raise ModelError(f"{problem}; finished {kept} are kept, the same command continues") from None
            finally:
                tasks.cancel()
    finally:
        sweep(Path(tempfile.gettempdir()))  # folders of processes of this machine, which Ray kills


class RayTasks:
    """Runs tasks on a cluster; a task gets its cores for itself, and as many threads.

    Attributes:
        slots: number of tasks that the cluster can run at the same time now.
    """

    def __init__(self, ray: Any, cpus: int, gpus: float) -> None:
        self._ray, self._options = ray, _options(cpus, gpus)
        self._remote: dict[Callable[..., Any], Any] = {}
        self._running: set[Any] = set()
        self._lock, self._cancelled = Lock(), Event()
        self._head = _Head(ray)
        self.slots = _slots(ray.nodes(), cpus, gpus)

    def share(self, folder: Path) -> SharedFolder:
        """Put the files of a folder into the object store."""
        digest, files = hashlib.sha256(), {}
        for file in sorted(folder.iterdir()):
            content = np.fromfile(file, dtype=np.uint8)
            digest.update(f"{file.name} {len(content)} ".encode())
            digest.update(content.data)
            files[file.name] = self._ray.put(content)
        return SharedFolder(folder.name, digest.hexdigest()[:32], files)

    def run(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Run a function with each tuple of arguments; yield the index of a tuple and the result as they finish."""
        waiting = {self._submit(function, arguments): number for number, arguments in enumerate(tasks)}
        while waiting:
            for task in self._finished(list(waiting)):
                yield waiting.pop(task), self._result(task)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function on the cluster and wait for its result; several threads may do so."""
        task = self._submit(function, arguments)
        while not self._finished([task]):
            pass
        return self._result(task)

    def cancel(self) -> None:
        """Stop all tasks; threads that wait for one get a StoppedError."""
        self._cancelled.set()
        with self._lock:
            running = list(self._running)
        for task in running if self._head.is_up() else ():
            with suppress(Exception):
                self._ray.cancel(task, force=True)

    def _submit(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        with self._lock:
            if self._cancelled.is_set():
                raise StoppedError
            if function not in self._remote:
                self._remote[function] = self._ray.remote(function).options(**self._options)
            try:
                task = self._remote[function].remote(*arguments)
            except OSError as problem:
                raise self._head.lost(problem) from None
            self._running.add(task)
        return task

    def _finished(self, tasks: list[Any]) -> list[Any]:
        """Wait a moment for tasks; with a timeout, so that Ctrl-C and the loss of the head node are noticed."""
        try:
            done, _ = self._ray.wait(tasks, num_returns=1, timeout=POLL)
        except OSError as problem:
            raise self._head.lost(problem) from None
        if self._cancelled.is_set():
            raise StoppedError
        if not done:
            self._head.check()
        return list(done)

    def _result(self, task: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(task)
        except errors.TaskCancelledError:
            raise StoppedError from None
        except errors.RayTaskError as problem:
            cause = getattr(problem, "cause", None)
            if isinstance(cause, DysatError):
                raise cause from None
            if isinstance(cause, RuntimeError) and NOT_IMPORTED in str(cause):
                raise LostError("a node of the Ray cluster cannot import dysat; install it on all nodes") from None
            if isinstance(cause, Exception) and not isinstance(cause, errors.RayError):
                raise cause from problem
            raise LostError(f"a job failed on Ray: {first_sentence(problem)}") from None
        except errors.RayError as problem:
            raise LostError(f"a job failed on Ray {1 + RETRIES} times: {first_sentence(problem)}") from None
        except OSError as problem:
            raise self._head.lost(problem) from None
        finally:
            with self._lock:
                self._running.discard(task)


@dataclass
class _Head:
    """Watches the head node by connecting to its port: Ray's own calls block while it is down."""

    ray: Any
    _address: tuple[str, int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        host, _, port = str(self.ray.get_runtime_context().gcs_address).rpartition(":")
        self._address = (host.strip("[]"), int(port)) if port.isdecimal() else None
        self._seen = self._tried = time.monotonic()
        if not self._answers():  # a firewall, or a connection through a proxy: leave it to Ray
            self._address = None

    def check(self) -> None:
        """Raise if the head node has not answered for a while; it is asked once a second at most."""
        now = time.monotonic()
        if now - self._tried >= 1:
            self._tried = now
            if self._answers():
                self._seen = now
            elif now - self._seen > PATIENCE:
                raise LostError(HEAD_LOST)

    def lost(self, problem: OSError) -> LostError:
        """What to raise if Ray cannot reach its own process on this machine, which ends with the head node."""
        end = time.monotonic() + PATIENCE
        while self._answers() and time.monotonic() < end:
            time.sleep(POLL)
        if self._answers():
            return LostError(f"the connection to the Ray cluster is lost: {problem.strerror or problem}")
        return LostError(HEAD_LOST)

    def is_up(self) -> bool:
        return self._answers()

    def _answers(self) -> bool:
        if self._address is None:
            return True
        try:
            socket.create_connection(self._address, timeout=1).close()
        except OSError:
            return False
        return True


def _options(cpus: int, gpus: float) -> dict[str, Any]:
    """Options of a Ray task; the limits of threads are set before its process loads any library."""
    threads = dict.fromkeys(THREAD_VARIABLES, str(cpus))
    return {
        "num_cpus": cpus,
        "num_gpus": gpus,
        "max_retries": RETRIES,
        "retry_exceptions": False,  # an error of the task itself would come again
        "runtime_env": {"env_vars": threads},
    }


def _slots(nodes: Sequence[Mapping[str, Any]], cpus: int, gpus: float) -> int:
    """The number of tasks that fit on all nodes; raise if none fits on any node, or Ray would wait forever."""
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    slots = 0
    for each in resources:
        by_gpu = each.get("GPU", 0.0) / gpus if gpus else float("inf")
        slots += int(min(each.get("CPU", 0.0) // cpus, by_gpu))
    if not slots:
        need = f"{cpus} core{'s' * (cpus > 1)}" + (f" and {gpus:g} of a GPU" if gpus else "")
        raise ModelError(f"no node of the Ray cluster has {need}, which each job needs")
    return slots


@contextmanager
def _without_messages() -> Iterator[None]:
    """Silence Ray, which prints lost nodes to the standard output, where a command may print JSON."""
    from ray._private import worker

    before = getattr(worker, "print_to_stdstream", None)
    if before is None:
        yield
        return
    worker.print_to_stdstream = lambda *given, **options: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before
