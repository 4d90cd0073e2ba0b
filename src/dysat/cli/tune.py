"""The command tune: choose the options of a model on validation links."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dysat.cli.app import StoppedError, app
from dysat.cli.data import find_graph
from dysat.cli.options import (
    RARE,
    Address,
    DataDir,
    Device,
    EngineOption,
    EventOptions,
    JobCpus,
    JobGpus,
    Json,
    Preset,
    Settings,
    Source,
    check_engine,
    chosen_model,
    option,
    parse_setting,
    takes,
)  # fmt: skip
from dysat.cli.output.show import new_console, new_table, print_json, show_notes, status_line
from dysat.cli.output.terminal import PlainColumn, foreign, say
from dysat.data.datasets import DATASETS
from dysat.errors import ModelError
from dysat.evaluation.protocols import NewEnds, Protocol
from dysat.experiments.evaluate.request import Contender
from dysat.experiments.tune.objective import Objective
from dysat.experiments.tune.outcome import Tuning
from dysat.experiments.tune.preset_file import write_preset
from dysat.experiments.tune.spaces import as_text
from dysat.experiments.tune.study import shown_url
from dysat.experiments.tune.trials import Trial
from dysat.experiments.tune.tune import RESULTS, tune
from dysat.system.extras import require
from dysat.system.parallel.process import keep_freed_memory
from dysat.system.writing import check_new_file, check_place

OUT = Path("tuning")
SHOWN = 20  # trials in the table


@app.command(name="tune")
@takes(events=EventOptions, hide=RARE)
def tune_command(
    source: Source,
    model: Annotated[
        str, option("Method, or method:preset; see dysat models.", "--model", panel="Model", metavar="NAME")
    ] = "dysat",
    preset: Preset = None,
    settings: Settings = None,
    space: Annotated[
        list[str] | None,
        option(
            "Values to try: [bold]l2=1e-5,1e-4[/bold] (choices; separated by | if a value has commas) or "
            "[bold]learning_rate=1e-4..1e-2[/bold] (a range); repeatable "
            "[dim](default: the space of the method)[/dim].",
        ),
    ] = None,
    objective: Annotated[
        Objective, option("What to maximise on validation links: AUC, or the mean reciprocal rank.")
    ] = "auc",
    trials: Annotated[int | None, option("Total number of trials [dim](default: every combination)[/dim].")] = None,
    prune: Annotated[
        bool, option("Stop a trial early if it falls below the median of earlier ones.", "--prune/--no-prune")
    ] = True,
    protocol: Annotated[Protocol, option("Links to predict; multi-step: the last six snapshots.")] = "single-step",
    first: Annotated[int | None, option("First snapshot to predict.")] = None,
    last: Annotated[int | None, option("Last snapshot to predict.")] = None,
    steps: Annotated[
        str | None, option("Predicted snapshots to use, comma-separated: 4,8,12 [dim](default: all)[/dim].")
    ] = None,
    typed: Annotated[bool, option("Bipartite data: sample negatives across the two sides only.", "--typed")] = False,
    new_ends: Annotated[NewEnds, option("With new-nodes: whether both ends of a link must be new, or one.")] = "both",
    count_self_loops: Annotated[bool, option("Predict links from a node to itself too.", "--count-self-loops")] = False,
    seed: Annotated[int, option("Random seed of the examples and of the search.")] = 0,
    out: Annotated[Path, option("Folder for finished trials; the same command resumes.", "--out", "-o")] = OUT,
    storage: Annotated[
        str | None,
        option("Database shared by workers on several machines: postgresql://… [dim](default: a file in --out)[/dim]."),
    ] = None,
    preset_out: Annotated[Path | None, option("Write the best options to this preset file (.toml).")] = None,
    processes: Annotated[
        int | None, option("Number of processes [dim](default: one per core; 1 on CUDA)[/dim].")
    ] = None,
    device: Device = "auto",
    engine: EngineOption = "local",
    address: Address = None,
    job_cpus: JobCpus = None,
    job_gpus: JobGpus = None,
    data_dir: DataDir = None,
    as_json: Json = False,
    *,
    events: EventOptions,
) -> None:
    """Choose the options of a model on validation links; test links are never used.

    Every setting is fitted at every step and scored on the validation examples of an evaluation.
    Finished trials are kept: the same command resumes, and more --trials add to them.

    Examples:
      [bold]dysat tune uci --model dysat --preset-out tuned.toml[/bold]
      [bold]dysat tune uci --model graphsage --set epochs=5 --steps 4,8,12[/bold]
      [bold]dysat tune mail.csv --every 30d --space learning_rate=1e-4..1e-2 --trials 30[/bold]
    Then:
      [bold]dysat evaluate uci --model dysat:tuned.toml[/bold]
    """
    require("optuna", "dysat tune")
    contender = _contender(model, preset, dict(map(parse_setting, settings or [])), space or [])
    check_place(out, ModelError)
    check_engine(engine, address, job_cpus, job_gpus, processes)
    if out.exists() and not out.is_dir():
        raise ModelError(f"--out {out} is a file, not a folder")
    if processes is not None and processes < 1:
        raise ModelError(f"--processes {processes} must be at least 1")
    if preset_out is not None and preset_out.suffix != ".toml":
        raise ModelError(f"--preset-out {preset_out}: a preset file must end in .toml")
    if preset_out is not None and not preset_out.absolute().parent.is_dir():
        raise ModelError(f"--preset-out {preset_out}: no folder {preset_out.parent}")
    if preset_out is not None:
        check_new_file(preset_out, ModelError)
    wanted = _numbers(steps)
    with status_line() as set_status:
        graph, made = find_graph(source, events, data_dir, set_status)
    if made:
        show_notes(graph)
    if source in DATASETS and first is None and last is None and protocol != "multi-step":
        predicted = DATASETS[source].predicted
        first, last = predicted[0], predicted[-1]
    keep_freed_memory()
    try:
        with _progress() as on_progress:
            found = tune(
                contender, graph, out, space=space, objective=objective, trials=trials, steps=wanted, prune=prune,
                storage=storage, device=device, processes=processes, engine=engine, address=address,
                job_cpus=job_cpus, job_gpus=job_gpus, on_progress=on_progress, protocol=protocol, first=first,
                last=last, seed=seed, self_loops="keep" if count_self_loops else "drop", typed=typed,
                new_ends=new_ends,
            )  # fmt: skip
    except KeyboardInterrupt:
        kept = out if storage is None else shown_url(storage)
        raise StoppedError(f"stopped; finished trials are kept in {kept}, the same command resumes") from None
    if preset_out is not None:
        write_preset(found, preset_out, source)
    if as_json:
        return print_json({**found.facts(), "notes": graph.notes})
    return _show(found, [shlex.quote(source), *_reading(events, data_dir)], out, preset_out)


def _contender(text: str, preset: str | None, given: dict[str, str], space: list[str]) -> Contender:
    """Build the model with the options shared by all trials."""
    for name in given:
        if name in {text.partition("=")[0].strip().replace("-", "_") for text in space}:
            raise ModelError(f"{name} is given by --set and by --space; leave one out")
    return chosen_model(text, preset, given)


def _numbers(text: str | None) -> list[int] | None:
    try:
        found = None if text is None else [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        found = []
    if found == []:
        raise ModelError(f"--steps {text}: expected comma-separated snapshots, such as 4,8,12")
    return found


def _show(found: Tuning, read: list[str], out: Path, preset_out: Path | None) -> None:
    console = new_console()
    names = list(found.space)
    table = new_table(
        *(f">{foreign(name)}" for name in names), f">validation {found.objective}", ">steps", ">seconds", ""
    )
    for trial in found.trials[:SHOWN]:
        best = trial is found.trials[0] and trial.state == "done"
        cells = [foreign(_cell(trial.options[name])) if name in trial.options else "–" for name in names]
        figure = "–" if trial.value is None else f"{100 * trial.value:.2f}"
        took = "–" if trial.seconds is None else f"{trial.seconds:.1f}"
        note = foreign(trial.state) if trial.state != "done" else "best" if best else ""
        row = [*cells, figure, str(len(trial.steps)), took, note]
        table.add_row(*(f"[bold]{cell}[/bold]" if best else cell for cell in row))
    console.print(table)
    for line in _notes(found, read[0], out):
        console.print(f"[dim]{foreign(line)}[/dim]", highlight=False, soft_wrap=True)
    given = {name: value for name, value in found.contender.options.items() if name != "device"}
    setting = " ".join(f"--set {name}={as_text(value)}" for name, value in {**given, **found.best.options}.items())
    used = shlex.quote(f"{found.contender.method}:{preset_out}") if preset_out else f"{found.contender.name} {setting}"
    command = " ".join(["dysat evaluate", *read, *_predicting(found.about["request"]), "--model", used])
    console.print(f"now: [bold]{foreign(command)}[/bold]", highlight=False, soft_wrap=True)


def _reading(events: EventOptions, data_dir: Path | None) -> Iterator[str]:
    """The options that make the next command read the source the same way."""
    given = {name: getattr(events, name) for name in events.given()}
    for name, value in {**given, **({"data_dir": data_dir} if data_dir else {})}.items():
        word = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{'' if value else 'no-'}{word}"
        elif isinstance(value, list):
            yield from (f"--{word} {shlex.quote(text)}" for text in value)
        else:
            yield f"--{word} {shlex.quote(str(value))}"


def _predicting(request: dict[str, Any]) -> Iterator[str]:
    """The options of the request that differ from the defaults."""
    if request["protocol"] != "single-step":
        yield f"--protocol {request['protocol']}"
    if request["new_ends"] != "both":
        yield f"--new-ends {request['new_ends']}"
    if request["typed"]:
        yield "--typed"
    if request["self_loops"] == "keep":
        yield "--count-self-loops"
    if request["seed"]:  # another seed would test on validation links
        yield f"--seed {request['seed']}"


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else as_text(value)


def _notes(found: Tuning, source: str, out: Path) -> Iterator[str]:
    if len(found.trials) > SHOWN:
        yield f"{len(found.trials) - SHOWN} more trials are in {out / RESULTS}"
    protocol, number = found.about["request"]["protocol"], len(found.about["predicted"])
    over = f"{number} predicted snapshot{'s' * (number > 1)}"
    yield (
        f"{source}, {protocol}, mean over {over}, in per cent, on validation links only; "
        f"test links were not used; all figures: {out / RESULTS}"
    )
    for snapshot, why in found.left_out.items():
        yield f"snapshot {snapshot} is left out: {why}"
    for problem in dict.fromkeys(trial.problem for trial in found.trials if trial.problem):
        yield f"failed: {problem}"
    if running := found.count("running"):
        yield f"{running} trials are still running in other processes; run the same command again to see them"


@contextmanager
def _progress() -> Iterator[Callable[[Tuning], None]]:
    """Show progress: live on a terminal, one line per trial elsewhere."""
    console = new_console(stderr=True)
    seen: set[int] = set()
    first_call = [True]
    if not console.is_terminal:

        def print_new(now: Tuning) -> None:
            new = [trial for trial in now.trials if trial.state != "running" and trial.number not in seen]
            if first_call and new:
                say(f"{len(new)} of {now.total} were finished before")
                seen.update(trial.number for trial in new)
                new = []
            first_call.clear()
            for trial in sorted(new, key=lambda trial: trial.number):
                seen.add(trial.number)
                say(f"{len(seen)} of {now.total}: {_line(trial)}")

        yield print_new
        return
    columns = [TextColumn("tuning"), BarColumn(), PlainColumn("{task.fields[state]}"), TimeRemainingColumn()]
    with Progress(*columns, console=console, transient=True) as progress:
        task: Any = progress.add_task("", total=None, state="")
        yield lambda now: progress.update(task, total=now.total, completed=_share(now), state=_state(now))


def _line(trial: Trial) -> str:
    setting = ", ".join(f"{name} {_cell(value)}" for name, value in trial.options.items())
    if trial.value is not None:
        return f"{setting}: {100 * trial.value:.2f}"
    return f"{setting}: {trial.problem or trial.state}"


def _share(now: Tuning) -> float:
    """Finished trials, plus the finished fractions of running ones."""
    running = [len(trial.steps) for trial in now.trials if trial.state == "running"]
    return len(now.trials) - len(running) + sum(running) / max(1, len(now.about["predicted"]))


def _state(now: Tuning) -> str:
    finished = len(now.trials) - now.count("running")
    words = [f"{finished}/{now.total}"]
    words += [f"{number} {state}" for state in ("pruned", "failed") if (number := now.count(state))]
    if now.count("done"):
        words.append(f"best {_line(now.best)}")
    return ", ".join(words)
