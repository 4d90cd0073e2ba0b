"""A Ray cluster to work on: the one at an address, or one of our own on this machine, which ends with the work."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from dysat.errors import ModelError
from dysat.system.extras import require

LOOPBACK = "127.0.0.1"
CONNECTING = 5.0  # seconds until an address counts as unreachable
MODE, TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
# Without it, Ray takes the address of a network card even if it is told to use the loopback address.
LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@contextmanager
def cluster(address: str | None = None, *, cpus: int | None = None) -> Iterator[Any]:
    """Connect to Ray and return its module; a connection that this process already has is used and kept.

    Whoever can reach a Ray cluster can run any program on it. A cluster of our own therefore listens on the loopback
    address alone and asks for a token, which only this process and its workers know.

    Parameters:
        address: the cluster to connect to, such as "auto" or "10.0.0.5:6379"; None starts one on this machine.
        cpus: number of cores of a cluster of our own; None for all of this machine.
    """
    require("ray", "--engine ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    if address is None:
        _use_a_token()
        os.environ.update(LOOPBACK_ONLY)
    import ray

    if ray.is_initialized():
        yield ray
        return
    if address is not None:
        _check_reachable(address)
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        if address is None:
            ray.init("local", num_cpus=cpus, include_dashboard=False, _node_ip_address=LOOPBACK, **quiet)
        else:
            ray.init(address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as problem:
        where = "on this machine" if address is None else f"at {address}"
        raise ModelError(f"no Ray cluster {where}: {first_sentence(problem)}") from problem
    try:
        yield ray
    finally:
        with suppress(OSError):  # the head node may be lost
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise if nothing answers at HOST:PORT; Ray would try for two minutes and then end this process."""
    from ray._private import services

    found = address
    if address == "auto":  # the environment, or a file that the last `ray start` of this machine wrote
        found = services.canonicalize_bootstrap_address(address) or ""
    host, _, port = found.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        return  # Ray has a message for it
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECTING).close()
    except (OSError, OverflowError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise ModelError(f"no Ray cluster at {address}: {reason}") from problem


def _use_a_token() -> None:
    """Set Ray's token mode, with a new token unless there is one; raise if it was turned off."""
    mode = os.environ.get(MODE, "token").lower()
    if mode != "token":
        raise ModelError(f"{MODE}={mode}: a Ray cluster is only started with {MODE}=token; whoever reaches one owns it")
    if "ray" in sys.modules and os.environ.get(MODE) is None and not sys.modules["ray"].is_initialized():
        wanted = f"set {MODE}=token and {TOKEN} before, or call ray.init first"
        raise ModelError(f"Ray was imported without a token; {wanted}")
    os.environ[MODE] = "token"
    if not os.environ.get("RAY_AUTH_TOKEN_PATH"):
        os.environ.setdefault(TOKEN, secrets.token_hex(32))


def first_sentence(problem: object) -> str:
    """What a message of Ray says first; pages of advice may follow."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return lines[0].partition(". ")[0].rstrip(".:") if lines else type(problem).__name__
