"""The choice of an engine: which options go together, and clear errors before any work."""

from __future__ import annotations

import importlib.util
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from dysat.errors import ModelError
from dysat.system import extras
from dysat.system.extras import MissingPackageError
from dysat.system.parallel.cluster import MODE, cluster
from dysat.system.parallel.engine import LOCAL, Engine
from dysat.system.parallel.ray_tasks import LostError, RayTasks, _slots

Cli = Callable[..., tuple[int, str, str]]
COMMANDS = [("evaluate", "uci", "--model", "edge-memory"), ("tune", "uci"), ("reproduce", "table2")]


def node(cpus: float, gpus: float = 0.0, alive: bool = True) -> dict[str, object]:
    return {"Alive": alive, "Resources": {"CPU": cpus, "GPU": gpus}}


def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_the_default_is_the_local_pool() -> None:
    assert LOCAL == Engine() == Engine("local") and not LOCAL.is_ray and Engine("ray").is_ray


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("rya",), "no engine 'rya'; there are local, ray; did you mean 'ray'"),
        (("local", "auto"), "address='auto' needs engine='ray'"),
        (("local", None, 2), "job_cpus=2 needs engine='ray'"),
        (("local", None, None, 0.5), "job_gpus=0.5 needs engine='ray'"),
        (("ray", " "), "address='' is empty"),
        (("ray", None, 0), "job_cpus=0 must be at least 1"),
        (("ray", None, None, 1.5), "job_gpus=1.5 must be above 0 and at most 1"),
    ],
)
def test_a_wrong_choice_is_one_line(given: tuple[object, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Engine(*given)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_refuse_options_without_effect(command: tuple[str, ...], cli: Cli, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "out")
    assert cli(*command, *out, "--address", "auto")[::2] == (2, "dysat: --address auto needs --engine ray\n")
    code, _, problem = cli(*command, *out, "--engine", "ray", "--processes", "2")
    assert code == 2 and problem.startswith("dysat: --processes 2 has no effect with --engine ray")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    command: tuple[str, ...], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda package: package != "ray")
    with pytest.raises(MissingPackageError):
        Engine("ray")
    code, _, problem = cli(*command, "-o", tmp_path / "out", "--engine", "ray")
    assert (code, problem) == (2, "dysat: --engine ray needs ray; install it with: pip install 'dysat[cluster]'\n")


def test_an_address_without_a_cluster_is_one_line(cli: Cli, tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{unused_port()}"
    with pytest.raises(ModelError, match=f"no Ray cluster at {nowhere}: Connection refused"), cluster(nowhere):
        pass
    words = ("evaluate", "uci", "--model", "edge-memory", "--first", 12, "-o", tmp_path / "out", "--engine", "ray")
    code, _, problem = cli(*words, "--address", nowhere)
    assert code == 2 and problem.splitlines()[-1] == f"dysat: no Ray cluster at {nowhere}: Connection refused"
    code, _, problem = cli(*words, "--address", "nonsense")
    assert code == 2 and "no Ray cluster at nonsense: " in problem.splitlines()[-1]


def test_a_token_that_comes_too_late_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray reads it when it is imported."""
    monkeypatch.delenv(MODE, raising=False)
    module = SimpleNamespace(is_initialized=lambda: False, __spec__=importlib.util.find_spec("ray"))
    monkeypatch.setitem(sys.modules, "ray", module)
    with pytest.raises(ModelError, match=r"Ray was imported without a token; set RAY_AUTH_MODE=token and "), cluster():
        pass


def test_a_lost_connection_is_an_error_and_not_a_closed_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A BrokenPipeError would end the command with exit code 0, as if the reader of its output had gone."""

    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    node = {"Alive": True, "Resources": {"CPU": 1.0}}
    context = SimpleNamespace(gcs_address=f"127.0.0.1:{unused_port()}")
    remote = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: "task"))
    ray = SimpleNamespace(
        get_runtime_context=lambda: context, nodes=lambda: [node], remote=lambda _: remote, wait=gone, get=gone,
        exceptions=SimpleNamespace(TaskCancelledError=KeyError, RayTaskError=KeyError, RayError=KeyError),
    )  # fmt: skip
    monkeypatch.setattr("dysat.system.parallel.ray_tasks.PATIENCE", 0.0)
    tasks = RayTasks(ray, 1, 0.0)
    with pytest.raises(LostError, match="the connection to the Ray cluster is lost: Broken pipe"):
        tasks.call(print)
    with pytest.raises(LostError, match="Broken pipe"):
        tasks._result("task")


def test_slots_are_the_tasks_that_fit_on_the_nodes() -> None:
    assert _slots([node(4), node(3), node(8, alive=False)], cpus=2, gpus=0) == 3
    assert _slots([node(16, 2), node(16)], cpus=1, gpus=0.25) == 8
    with pytest.raises(ModelError, match="no node of the Ray cluster has 4 cores, which each job needs"):
        _slots([node(2), node(3)], cpus=4, gpus=0)
    with pytest.raises(ModelError, match=r"no node of the Ray cluster has 1 core and 0\.5 of a GPU"):
        _slots([node(2)], cpus=1, gpus=0.5)
