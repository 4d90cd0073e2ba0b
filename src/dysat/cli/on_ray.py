"""Train on the workers of a Ray cluster: each is one of several ranks."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunningError
from typing import Any

from dysat.errors import DysatError, ModelError
from dysat.runs.run import Run, Watch
from dysat.system.parallel.cluster import cluster, first_sentence
from dysat.system.parallel.ranks import joined
from dysat.system.progress import listening, report

FAILURES = 3  # lost workers after which training ends; until then it continues from the last checkpoint
LOOK = 0.5  # seconds between looks at what the workers report


def train_on_ray(run: Run, watch: Watch, device: str | None, *, address: str | None, workers: int, gpus: float) -> bool:
    """Train a run on workers that work together; return whether training reached its end.

    All machines must see the run folder under the same path. If a worker is lost, all start again from the last
    checkpoint.
    """
    cores = max(workers, os.cpu_count() or 1)
    with cluster(address, cpus=cores) as ray, tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(1) as pool:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        mailbox = ray.remote(num_cpus=0)(_Mailbox).remote()
        resources = {"CPU": 1, **({"GPU": gpus} if gpus else {})}
        trainer = TorchTrainer(
            _work,
            train_loop_config={"run": str(run.folder), "device": device, "mailbox": mailbox},
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpus > 0, resources_per_worker=resources),
            torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if gpus >= 1 else "gloo"),
            run_config=RunConfig(storage_path=place, failure_config=FailureConfig(max_failures=FAILURES)),
        )
        _watch(pool.submit(trainer.fit), ray, mailbox, watch)
    return run.finished


def _watch(training: Future[Any], ray: Any, mailbox: Any, watch: Watch) -> None:
    """Show what the workers report until training ends, and pass on Ctrl-C."""
    told = False
    while True:
        try:
            training.result(timeout=LOOK)
            return
        except StillRunningError:
            pass
        except Exception as problem:
            raise ModelError(_reason(problem)) from problem
        try:
            if watch.stop() and not told:
                told = True
                ray.get(mailbox.ask_to_stop.remote())
            letters = ray.get(mailbox.take.remote())
        except (OSError, ray.exceptions.RayError) as problem:
            raise ModelError(_reason(problem)) from problem
        for name, values in letters:
            report(*values) if name == "report" else getattr(watch, name)(*values)


class _Mailbox:
    """What the first worker reports, until it is taken, and whether it should stop."""

    def __init__(self) -> None:
        self.letters, self.stopping = list[tuple[str, tuple[Any, ...]]](), False

    def put(self, name: str, *values: Any) -> None:
        self.letters.append((name, values))

    def take(self) -> list[tuple[str, tuple[Any, ...]]]:
        taken, self.letters = self.letters, []
        return taken

    def ask_to_stop(self) -> None:
        self.stopping = True

    def should_stop(self) -> bool:
        return self.stopping


def _work(config: dict[str, Any]) -> None:
    """Train as one of the workers."""
    import ray
    from ray.train import get_context

    mailbox, first = config["mailbox"], get_context().get_world_rank() == 0

    def send(name: str, *values: Any) -> None:
        if first:
            mailbox.put.remote(name, *values)

    watch = Watch(
        on_stage=lambda *values: send("on_stage", *values),
        on_epoch=lambda *values: send("on_epoch", *values),
        on_note=lambda *values: send("on_note", *values),
        stop=lambda: first and ray.get(mailbox.should_stop.remote()),
    )
    with joined(), listening(lambda *values: send("report", *values)):
        run = Run.open(config["run"])
        Run.shared(run if first else None, run.first_graph()).train(watch, device=config["device"])


def _reason(problem: BaseException) -> str:
    """One line on why training failed: what a worker said, if it was a plain error of ours."""
    for cause in (*getattr(problem, "worker_failures", {}).values(), problem):
        found: BaseException | None = cause
        while found is not None:
            for each in (found, getattr(found, "cause", None)):
                if isinstance(each, DysatError):
                    return str(each)
            found = found.__cause__
    return f"training on Ray failed: {type(problem).__name__}: {first_sentence(problem)}"
