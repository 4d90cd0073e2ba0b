"""Where independent jobs run: in processes of this machine (`pool`), or as tasks of a Ray cluster (`ray_tasks`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dysat.errors import ModelError, listed, nearest
from dysat.system.extras import require

EngineName = Literal["local", "ray"]


@dataclass(frozen=True)
class Engine:
    """The choice of an engine.

    Parameters:
        name: `local` for processes of this machine, `ray` for a Ray cluster.
        address: address of the Ray cluster, such as "auto" or "10.0.0.5:6379"; None starts one on this machine.
        job_cpus: number of cores of each job on Ray, and of threads it uses; None for 1.
        job_gpus: fraction of a GPU that each job on Ray reserves if it trains on CUDA; None for the default of the
            command.
    """

    name: EngineName = "local"
    address: str | None = None
    job_cpus: int | None = None
    job_gpus: float | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(EngineName):
            names = get_args(EngineName)
            raise ModelError(f"no engine {self.name!r}; there are {listed(names)}{nearest(self.name, names)}")
        for option in ("address", "job_cpus", "job_gpus"):
            if self.name != "ray" and getattr(self, option) is not None:
                raise ModelError(f"{option}={getattr(self, option)!r} needs engine='ray'")
        if self.address is not None and not self.address.strip():
            raise ModelError("address='' is empty; a Ray cluster has an address such as auto or 10.0.0.5:6379")
        if self.job_cpus is not None and self.job_cpus < 1:
            raise ModelError(f"job_cpus={self.job_cpus} must be at least 1")
        if self.job_gpus is not None and not 0 < self.job_gpus <= 1:
            raise ModelError(f"job_gpus={self.job_gpus} must be above 0 and at most 1")
        if self.name == "ray":
            require("ray", "--engine ray")

    @property
    def is_ray(self) -> bool:
        return self.name == "ray"


LOCAL = Engine()
