"""Start a script in several processes that work together, as torchrun does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--rdzv-backend", "c10d")


def torchrun(*command: str | Path, ranks: int = 2, port: int, more: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start `torchrun … command`, with one thread per rank and files of this project's tests to import."""
    address = ("--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
    return subprocess.Popen(
        [*TORCHRUN, *address, *more, *map(str, command)],
        env={**environment, "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def free_port() -> int:
    """A port on which nobody listens."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def together(script: str, folder: Path, *, ranks: int = 2) -> str:
    """Run a script in several ranks and return what they print; raise if one fails."""
    file = folder / "script.py"
    file.write_text(script)
    process = torchrun(file, ranks=ranks, port=free_port())
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    return out
