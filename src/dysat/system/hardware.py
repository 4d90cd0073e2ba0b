"""The machine a measurement runs on, and the peak memory of this process."""

from __future__ import annotations

import os
import platform
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch


def hardware() -> dict[str, Any]:
    """Describe this machine: CPU, cores, GPU and the versions of Python and torch."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def resident_gib() -> float:
    """Resident memory of this process now, in GiB; its peak where the system does not tell."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() / 2**30 if statm.exists() else peak_gib()


def reset_peak() -> None:
    """Let `peak_gib` count from now on, where the system can do that (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak_gib(device: str | torch.device = "cpu") -> float:
    """Peak memory of this process in GiB: resident memory, or memory allocated by torch on a GPU."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**30
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    for line in lines:  # not rusage, which inherits the peak of the parent process if that is higher
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**20
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def free_memory() -> float:
    """Memory in bytes that this process can still take: of the machine, and of its control group if that is limited."""
    found = [_available()]
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # not Linux, or "max"
            found.append(max(0.0, float(int(Path(limit).read_text()) - int(Path(used).read_text()))))
    with suppress(OSError, ValueError):
        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            found.append(max(0.0, float(most - pages * resource.getpagesize())))
    return min(found)


def _available() -> float:
    """Free memory of the machine in bytes; all of it where the system does not tell how much is free."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(int(line.split()[1]) * 1024)
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (OSError, ValueError, AttributeError):
        return float("inf")
