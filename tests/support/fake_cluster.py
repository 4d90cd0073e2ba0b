"""A Ray cluster of fake nodes on this machine, in a process of its own, and commands that run on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

SECRET = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(32)}
SOURCE = str(Path(__file__).resolve().parents[2] / "src")
SETTINGS = {
    **SECRET, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "PYTHONPATH": SOURCE
}  # fmt: skip
COMMAND = [sys.executable, "-c", "from dysat.cli import main; main()"]


class FakeCluster:
    """A head node that runs no jobs, and nodes with one core each that do."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = self.ask("address")

    def ask(self, order: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(f"{order}: "):
                return line.partition(": ")[2].strip()
        raise AssertionError(f"no answer to {order!r}")

    def remove_node(self) -> None:
        """Kill the last of the nodes that run jobs."""
        self.ask("remove")

    def lose_head(self) -> None:
        """Kill the head node."""
        self.ask("behead")


@contextmanager
def fake_cluster(nodes: int = 1) -> Iterator[FakeCluster]:
    process = subprocess.Popen(
        [sys.executable, __file__, str(nodes)], env={**os.environ, **SETTINGS}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield FakeCluster(process)
    finally:
        process.communicate(timeout=60)


def dysat_command(*words: object, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    """Start a command in a new process; its output and errors are read by the caller."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *map(str, words)], cwd=cwd, env={**os.environ, **SETTINGS}, **pipes, **options)


def _serve(number: int) -> None:
    from ray.cluster_utils import Cluster

    first = {"num_cpus": 0, "include_dashboard": False, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args=first)
    nodes = [cluster.add_node(num_cpus=1) for _ in range(number)]
    for order in sys.stdin:
        if order.strip() == "remove":
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        elif order.strip() == "behead":
            cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)
        print(f"{order.strip()}: {cluster.address}", flush=True)  # noqa: T201
    for node in cluster.list_all_nodes():
        node.kill_all_processes(check_alive=False, allow_graceful=False)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
