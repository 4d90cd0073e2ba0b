"""A run folder from a stranger may have links in place of files; nothing is written where they lead."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from run_folders import quick
from weekly import contents, copy, fitted, take_in, weeks, write_log

from dysat.errors import ModelError
from dysat.runs.run import Run
from dysat.system.locks import lock_folder

__all__ = ["quick"]
LINKED = ("stream", "stream/snapshots.bin", "stream/summary.bin", "metrics.json", "model.safetensors", ".lock")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted(tmp_path_factory.mktemp("base"), weeks(0, 3)).folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with files that are none of dysat's business."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / ".profile").write_text("mine\n")
    (folder / "diary").write_text("mine too\n")
    return folder


@pytest.mark.parametrize("name", LINKED)
def test_an_update_writes_through_no_link(base: Path, home: Path, tmp_path: Path, name: str) -> None:
    run, before = copy(base, tmp_path / "run"), contents(home)
    place = run / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(home if name == "stream" else home / "diary")
    for _ in range(2):
        with pytest.raises(ModelError, match=f"{name}: a link out of the run folder"):
            take_in(run, write_log(tmp_path / "next.csv", weeks(3, 5)))
    assert contents(home) == before


def test_a_resumed_training_writes_through_no_link(base: Path, home: Path, tmp_path: Path) -> None:
    run, before = copy(base, tmp_path / "run"), contents(home)
    (run / "metrics.json").unlink()  # so that it is not finished
    (run / "checkpoint.safetensors").symlink_to(home / "diary")
    with pytest.raises(ModelError, match=r"checkpoint.safetensors: a link out of the run folder"):
        Run.open(run).train()
    assert contents(home) == before


def test_links_inside_the_folder_and_to_the_folder_are_fine(base: Path, tmp_path: Path) -> None:
    run = copy(base, tmp_path / "real")
    (run / "latest.json").symlink_to("metrics.json")
    (tmp_path / "run").symlink_to(run)
    take_in(tmp_path / "run", write_log(tmp_path / "next.csv", weeks(3, 5)))
    assert len(Run.open(run).graph()) == 5


def test_a_link_to_nowhere_and_a_loop_are_refused(tmp_path: Path) -> None:
    for target in (tmp_path / "nowhere", Path("a")):
        folder = tmp_path / f"of-{target.name}"
        folder.mkdir()
        (folder / "a").symlink_to(target)
        with pytest.raises(ModelError, match="a link out of the run folder"), lock_folder(folder, ModelError):
            pass
        assert [file.name for file in folder.iterdir()] == ["a"]
