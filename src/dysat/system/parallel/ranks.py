"""Processes that train one model together, as torchrun starts them, and what they tell each other.

Outside `joined` there is one rank, which gets back what it gives. Inside, all ranks make the same calls in the same
order; `alone` is for what one of them does by itself. Tensors and plain values travel as safetensors and JSON, so
nothing that arrives is unpickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from dysat.errors import ModelError

Item = TypeVar("Item")
FACTS = "facts"
PATIENCE = timedelta(days=2)  # that a rank waits for the others; torchrun ends all if one is lost
RESTARTS = "TORCHELASTIC_RESTART_COUNT"


@dataclass(frozen=True)
class Ranks:
    """This process among those that work together."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """Every size-th item, from this rank on."""
        return items[self.rank :: self.size]

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their means over all ranks."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        _distributed().all_reduce(flat)
        flat /= self.size
        for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def merged(self, tensor: Tensor) -> Tensor:
        """A tensor of which every rank has filled its share and left the rest at zero."""
        if self.size == 1:
            return tensor
        filled = tensor.clone() if tensor.dtype != torch.bool else tensor.to(torch.uint8)
        _distributed().all_reduce(filled)
        return filled.to(tensor.dtype)

    def any(self, *flags: bool) -> list[bool]:
        """For each flag, whether it is set on any rank."""
        if self.size == 1:
            return list(flags)
        values = torch.tensor(flags, dtype=torch.int32)
        _distributed().all_reduce(values)
        return [bool(value) for value in values]

    def gathered(self, facts: Any = None, tensors: Mapping[str, Tensor] | None = None) -> list[tuple[Any, Any]]:
        """The plain values and the named tensors of every rank, in order; tensors arrive on the CPU."""
        if self.size == 1:
            return [(facts, dict(tensors or {}))]
        own = _packed(facts, tensors or {})
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        _distributed().all_gather(sizes, torch.tensor([len(own)]))
        most = max(map(int, sizes))
        parts = [torch.empty(most, dtype=torch.uint8) for _ in range(self.size)]
        _distributed().all_gather(parts, torch.cat([own, own.new_zeros(most - len(own))]))
        return [_unpacked(part[: int(size)]) for part, size in zip(parts, sizes, strict=True)]

    def from_first(self, facts: Any = None, tensors: Mapping[str, Tensor] | None = None) -> tuple[Any, Any]:
        """The plain values and the named tensors of the first rank."""
        return self.sent_by(0, facts, tensors)

    def sent_by(self, rank: int, facts: Any = None, tensors: Mapping[str, Tensor] | None = None) -> tuple[Any, Any]:
        """The plain values and the named tensors of one rank, on all ranks; the rank itself gets back its own."""
        if self.rank == rank:
            if self.size > 1:
                own = _packed(facts, tensors or {})
                _distributed().broadcast(torch.tensor([len(own)]), rank)
                _distributed().broadcast(own, rank)
            return facts, dict(tensors or {})
        size = torch.zeros(1, dtype=torch.int64)
        _distributed().broadcast(size, rank)
        data = torch.empty(int(size), dtype=torch.uint8)
        _distributed().broadcast(data, rank)
        return _unpacked(data)

    def same(self, what: str, facts: Mapping[str, Any]) -> None:
        """Raise on every rank unless all of them have the same facts."""
        everywhere = [found for found, _ in self.gathered(dict(facts))]
        for rank, found in enumerate(everywhere):
            for name, value in found.items():
                if value != everywhere[0][name]:
                    theirs = f"{name} {value} instead of {everywhere[0][name]}"
                    raise ModelError(f"rank {rank} sees another {what} than rank 0: {theirs}")


_current: ContextVar[Ranks] = ContextVar("ranks", default=Ranks())  # noqa: B039 - it cannot be changed


def ranks() -> Ranks:
    """The ranks of the present work."""
    return _current.get()


@contextmanager
def joined() -> Iterator[Ranks]:
    """Work with the other processes that torchrun or Ray has started; without them, alone."""
    size = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if size < 2:
        yield ranks()
        return
    here, local = (
        int(os.environ.get(name, fallback)) for name, fallback in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1"))
    )
    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(here % gpus)
    # NCCL needs a GPU for every rank; Gloo also works for ranks that share one.
    backend = "cpu:gloo,cuda:nccl" if gpus >= local else "gloo"
    before, ours = _current.get(), not _distributed().is_initialized()  # Ray connects the processes it has started
    try:
        if ours:
            # torchrun keeps what the processes before a restart have written, such as addresses that nobody listens on.
            store, rank, _ = next(_distributed().rendezvous("env://", timeout=PATIENCE))
            fresh = _distributed().PrefixStore(f"restart {os.environ.get(RESTARTS, '0')}", store)
            _distributed().init_process_group(backend, store=fresh, rank=rank, world_size=size, timeout=PATIENCE)
        _current.set(Ranks(_distributed().get_rank(), size))
        yield ranks()
    except RuntimeError as problem:
        if isinstance(problem, _distributed().DistError) or "gloo" in str(problem).lower():
            raise ModelError("another process of this training has ended; its own message says why") from problem
        raise
    finally:
        _current.set(before)
        if ours and _distributed().is_initialized():
            _distributed().destroy_process_group()


@contextmanager
def alone() -> Iterator[None]:
    """Do something that the other ranks do not do."""
    before = _current.set(Ranks())
    try:
        yield
    finally:
        _current.reset(before)


def was_restarted() -> bool:
    """Whether torchrun has started this process again after a failure."""
    return os.environ.get(RESTARTS, "0") != "0"


def _distributed() -> Any:
    import torch.distributed

    return torch.distributed


def _packed(facts: Any, tensors: Mapping[str, Tensor]) -> Tensor:
    from safetensors.torch import save

    text = torch.tensor(np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8))
    data = save({f"/{name}": value.detach().cpu().contiguous() for name, value in tensors.items()} | {FACTS: text})
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _unpacked(data: Tensor) -> tuple[Any, dict[str, Tensor]]:
    from safetensors.torch import load

    found = load(data.numpy().tobytes())
    facts = json.loads(found.pop(FACTS).numpy().tobytes())
    return facts, {name[1:]: value for name, value in found.items()}
