"""Several processes train one model: the same forecast, the same in distribution, and the same after a restart."""

from __future__ import annotations

import os
import signal
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from several_ranks import free_port, together, torchrun
from small import SMALL, two_blocks

import dysat
from dysat.data.graph import DynamicGraph
from dysat.models import attention
from dysat.models import dysat as dysat_module
from dysat.system.parallel import ranks as ranks_module
from dysat.system.parallel.ranks import Ranks
from dysat.training import Progress

# Every rank trains, stops, resumes, and embeds; the first writes what it has found.
TRAIN = """
import sys
from copy import deepcopy
import torch, dysat
from small import two_blocks
from dysat.models import attention
from dysat.system.parallel.ranks import joined
from dysat.training import Settings, minimize

attention.MOST_ROWS = {"cpu": 0}
attention.NODES_AT_ONCE = 7
graph, small = two_blocks(24, 4), SMALL


def models():
    yield "default", lambda: dysat.DySAT(epochs=6, **small)
    paper = {k: v for k, v in small.items() if k != "spectrum"} | {"walk_length": 5, "batch_size": 5, "epochs": 4}
    yield "program", lambda: dysat.DySAT.from_preset("program", **paper)
    yield "text", lambda: dysat.DySAT.from_preset("text", **paper)
    yield "incsat", lambda: dysat.IncSAT(**paper)


found = {}
with joined() as here:
    # Of the last of three batches, with one item, the second rank has none.
    p, items = torch.nn.Parameter(torch.zeros(())), torch.arange(5)
    done = minimize(
        lambda batch, generator: (p - batch[batch >= 0]).square().mean(),
        {"p": p}, items, Settings(epochs=200, batch_size=2, learning_rate=0.05), generator=torch.Generator(),
    )
    assert abs(float(p.detach()) - 2) < 0.5 and done.history[-1].loss < 4, (p, done.history[-1])
    for name, model in models():
        whole, kept = model().fit(graph), []
        model().fit(graph, stop=lambda: len(kept) == 3, keep=lambda now: kept.append(deepcopy(now)), keep_every=0)
        resumed = model().fit(graph, progress=kept[-1])
        assert torch.equal(resumed.embed(), whole.embed()), name
        losses = [epoch.loss for epoch in whole.epochs_]
        for _, theirs in here.gathered(None, {"e": whole.embed()}):
            assert torch.equal(theirs["e"], whole.embed()), name
        assert [facts for facts, _ in here.gathered(losses)] == [losses] * here.size
        if name == "default":
            found = {f"score/{n}": t for n, t in whole.pair_score_.tensors().items()}
            found["likeliest"], found["chances"] = whole.top_pairs(9)
            found["partners"], found["of_each"] = whole.top_pairs(3, torch.arange(24))
            found |= {f"kept/{n}": t for n, t in kept[0].tensors.items()}
    if here.first:
        from safetensors.torch import save_file
        save_file({n: t.contiguous() for n, t in found.items()}, sys.argv[0] + ".found")
print(f"rank {here.rank} is content\\n", end="", flush=True)
"""


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """What two ranks have found."""
    from safetensors.torch import load_file

    folder = tmp_path_factory.mktemp("two")
    out = together(TRAIN.replace("SMALL", repr(SMALL)), folder)
    assert "rank 0 is content" in out and "rank 1 is content" in out
    return load_file(folder / "script.py.found")


def test_the_forecast_of_two_ranks_is_that_of_one(by_two: dict[str, torch.Tensor]) -> None:
    model = dysat.DySAT(embeddings=False, device="cpu").fit(two_blocks(24, 4))
    assert model.pair_score_ is not None
    for name, tensor in model.pair_score_.tensors().items():
        assert torch.equal(tensor, by_two[f"score/{name}"]), name
    for names, found in (
        (("likeliest", "chances"), model.top_pairs(9)),
        (("partners", "of_each"), model.top_pairs(3, torch.arange(24))),
    ):
        assert all(torch.equal(by_two[name], tensor) for name, tensor in zip(names, found, strict=True)), names


def test_a_checkpoint_of_two_ranks_is_continued_by_two_only(
    by_two: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "MOST_ROWS", {"cpu": 0})
    tensors = {name.removeprefix("kept/"): t for name, t in by_two.items() if name.startswith("kept/")}
    states = [name for name in tensors if name.startswith("generator")]
    assert sorted(states) == ["generator", "generator/1"] and not torch.equal(*(tensors[name] for name in states))
    one = list[Progress]()
    dysat.DySAT(epochs=1, **SMALL).fit(two_blocks(24, 4), keep=lambda now: one.append(deepcopy(now)))
    progress = Progress(one[0].history, tensors)
    with pytest.raises(dysat.ModelError, match=r"^this training started with 2 processes; continue it with as many$"):
        dysat.DySAT(epochs=6, **SMALL).fit(two_blocks(24, 4), progress=progress)


@pytest.mark.slow
def test_gradients_of_shares_are_on_average_those_of_a_whole_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over many draws of halves equals that of whole steps, within four standard errors."""
    monkeypatch.setattr(attention, "MOST_ROWS", {"cpu": 0})
    monkeypatch.setattr(dysat_module, "PAIRS_AT_ONCE", 16)
    graph = two_blocks(24, 4)
    model = dysat.DySAT(epochs=1, **SMALL).fit(graph)
    ahead = model._ahead(torch.device("cpu"))
    assert ahead is not None
    generator = torch.Generator().manual_seed(0)

    def gradients(size: int, draws: int) -> torch.Tensor:
        monkeypatch.setattr(ranks_module, "_current", ranks_module.ContextVar("r", default=Ranks(0, size)))
        rows = []
        for _ in range(draws):
            parameters = list(model._parameters().values())
            parts = torch.autograd.grad(ahead(generator), parameters, allow_unused=True)
            zeros = [torch.zeros_like(p) for p in parameters]
            rows.append(torch.cat([(z if g is None else g).reshape(-1) for g, z in zip(parts, zeros, strict=True)]))
        return torch.stack(rows)

    whole, halves = gradients(1, 120), gradients(2, 240)
    error = (whole.var(0) / len(whole) + halves.var(0) / len(halves)).sqrt()
    used = error > 0
    assert used.sum() > 100
    distance = ((whole.mean(0) - halves.mean(0))[used] / error[used]).abs()
    assert distance.square().mean() < 1.5 and distance.max() < 5  # a standard normal number has a mean square of 1
    assert (
        1.2 < float((halves.var(0)[used] / whole.var(0)[used]).median()) < 3
    )  # half as many pairs, twice the variance


SHARED_GPU = """
import torch, dysat
from small import two_blocks
from dysat.models import attention
from dysat.system.parallel.ranks import joined

attention.MOST_ROWS = {"cuda": 0}
with joined() as here:
    for model in (
        dysat.DySAT(epochs=30, **SMALL),
        dysat.DySAT.from_preset("program", epochs=4, walk_length=5, batch_size=5, device="cuda"),
        dysat.IncSAT(epochs=4, walk_length=5, batch_size=5, device="cuda"),
    ):
        e = model.fit(two_blocks(24, 4)).embed()
        losses = [epoch.loss for epoch in model.epochs_]
        assert e.is_cuda and e.isfinite().all() and losses[-1] < losses[0], losses
        assert [facts for facts, _ in here.gathered(losses)] == [losses] * here.size
        for _, theirs in here.gathered(None, dict(model.network_.named_parameters())):
            assert all(torch.equal(theirs[name], p.cpu()) for name, p in model.network_.named_parameters())
print(f"rank {here.rank} is content\\n", end="", flush=True)
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_two_ranks_share_a_gpu(tmp_path: Path) -> None:
    out = together(SHARED_GPU.replace("SMALL", repr(SMALL | {"device": "cuda"})), tmp_path)
    assert "rank 0 is content" in out and "rank 1 is content" in out


@pytest.mark.slow
def test_torchrun_with_one_process_writes_what_a_plain_command_writes(tmp_path: Path) -> None:
    two_blocks(24, 4).save(tmp_path / "graph")
    command = ("-m", "dysat", "fit", tmp_path / "graph", "--epochs", "2", "-o")
    process = torchrun(*command, tmp_path / "by-torchrun", ranks=1, port=free_port())
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    run = dysat.Run.start(tmp_path / "plain", DynamicGraph.load(tmp_path / "graph"), dysat.DySAT(epochs=2))
    assert run.train()
    for name in ("model.safetensors", "embeddings.parquet"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "by-torchrun" / name).read_bytes(), name


@pytest.mark.slow
def test_a_killed_rank_is_started_again_and_reaches_the_same_result(tmp_path: Path) -> None:
    """`torchrun --max-restarts` starts all ranks again, which continue from the last checkpoint."""
    two_blocks(60, 6).save(tmp_path / "graph")
    file = tmp_path / "fit.py"
    # Checkpoints after every epoch, which take a moment, so that there is time to kill.
    file.write_text(
        "import os, sys, time\nfrom dysat.runs import run\nfrom dysat.models import attention\n"
        "from dysat.cli import main\n"
        "attention.MOST_ROWS = {'cpu': 0}\nrun.Run.train.__kwdefaults__['keep_every'] = 0.0\n"
        "print('rank', os.environ['RANK'], 'is', os.getpid(), flush=True)\n"
        "before = run.Checkpoints.write\n"
        "def write(*given):\n    before(*given)\n    print('kept', flush=True)\n    time.sleep(0.1)\n"
        "run.Checkpoints.write = write\nmain()\n"
    )
    command = ("fit", tmp_path / "graph", "--no-backtest", "--epochs", "40", "--device", "cpu", "-o")
    for name in ("whole", "killed"):
        with torchrun(file, *command, tmp_path / name, port=free_port(), more=("--max-restarts", "2")) as process:
            lines, ids = list[str](), list[int]()
            for line in process.stdout or ():
                lines.append(line)
                if line.startswith("rank 1 is"):
                    ids.append(int(line.split()[-1]))
                if name == "killed" and lines.count("kept\n") == 5 and len(ids) == 1 and line == "kept\n":
                    os.kill(ids[0], signal.SIGKILL)
        assert process.returncode == 0, "".join(lines)
        assert len(ids) == (1 if name == "whole" else 2)
    for result in ("model.safetensors", "embeddings.parquet"):
        assert (tmp_path / "whole" / result).read_bytes() == (tmp_path / "killed" / result).read_bytes(), result


@pytest.mark.slow
def test_another_graph_on_another_rank_is_refused(tmp_path: Path) -> None:
    for rank, nodes in enumerate((24, 26)):
        two_blocks(nodes, 4).save(tmp_path / f"graph{rank}")
    file = tmp_path / "fit.py"
    file.write_text(
        "import os, sys\nfrom dysat.cli import main\n"
        f"graph, run = {str(tmp_path / 'graph')!r} + os.environ['RANK'], {str(tmp_path / 'run')!r}\n"
        "sys.argv = ['dysat', 'fit', graph, '-o', run]\nmain()\n"
    )
    process = torchrun(file, port=free_port())
    out, _ = process.communicate(timeout=300)
    assert process.returncode and "dysat: rank 1 sees another graph than rank 0: nodes 26 instead of 24" in out, out


@pytest.mark.slow
def test_a_log_is_refused_by_several_ranks(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("src,dst,time\na,b,2024-01-01\nb,c,2024-01-09\n")
    process = torchrun("-m", "dysat", "fit", log, "--every", "1w", "-o", tmp_path / "run", port=free_port())
    out, _ = process.communicate(timeout=300)
    assert process.returncode and "several processes need a graph folder, which dysat snapshots makes of a log" in out
    assert not (tmp_path / "run").exists()
