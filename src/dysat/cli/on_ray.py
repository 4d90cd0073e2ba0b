"""Train on the workers of a Ray cluster: each runs the same command as one rank of several."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from dysat.errors import DysatError, ModelError
from dysat.system.cluster import cluster
from dysat.system.ranks import RESTARTS
from dysat.system.superseded import CONFIG

FAILURES = 3  # lost workers after which training ends; until then it continues from the last checkpoint


def train_on_ray(given: dict[str, Any], run: Path, *, address: str | None, workers: int, gpus: float) -> None:
    """Run `fit` with these options on workers that train together, and write the run folder.

    All machines must see the same files. A lost worker is replaced, and training continues from the last checkpoint.
    """
    with cluster(address, show=True, cpus=max(workers, os.cpu_count() or 1)), tempfile.TemporaryDirectory() as place:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        trainer = TorchTrainer(
            _work,
            train_loop_config={"given": given, "run": str(run)},
            scaling_config=ScalingConfig(
                num_workers=workers,
                use_gpu=gpus > 0,
                resources_per_worker={"CPU": 1, **({"GPU": gpus} if gpus else {})},
            ),
            torch_config=TorchConfig(backend="nccl" if gpus >= 1 else "gloo"),
            run_config=RunConfig(storage_path=place, failure_config=FailureConfig(max_failures=FAILURES)),
        )
        try:
            trainer.fit()
        except Exception as problem:
            raise ModelError(_reason(problem)) from problem


def _work(config: dict[str, Any]) -> None:
    """Train as one of the workers; if the run has begun, this one continues it."""
    from dysat.cli.learn import _fit

    os.environ[RESTARTS] = "1" if Path(config["run"], CONFIG).exists() else "0"
    _fit(**config["given"])


def _reason(problem: BaseException) -> str:
    """One line on why training failed: what a worker said, if it was a plain error of ours."""
    causes = [*getattr(problem, "worker_failures", {}).values(), problem]
    for cause in causes:
        found: BaseException | None = cause
        while found is not None:
            if isinstance(found, DysatError) or isinstance(getattr(found, "cause", None), DysatError):
                return str(getattr(found, "cause", None) or found)
            found = found.__cause__
    return f"training on Ray failed: {type(problem).__name__}: {str(problem).strip().splitlines()[-1][:300]}"
