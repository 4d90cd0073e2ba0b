"""The command that says how well models predict, beside honest opponents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand

from dysat.cli.app import StoppedError, app
from dysat.cli.data import find_graph
from dysat.cli.learn import PRESET, Device
from dysat.cli.options import DataDir, EventOptions, Json, option, takes
from dysat.cli.show import new_console, new_table, print_json, telling
from dysat.cli.watching import counting
from dysat.data.datasets import DATASETS
from dysat.errors import ModelError
from dysat.evaluation.probe import Means
from dysat.evaluation.protocols import NewEnds, Protocol
from dysat.experiments.evaluate.evaluate import evaluate
from dysat.experiments.evaluate.outcome import PROBES, Evaluation, Figures, per_cent, spread
from dysat.experiments.evaluate.request import Contender, Probe
from dysat.models import MODELS
from dysat.system.process import keep_freed_memory
from dysat.system.storage import replace_file

OUT = Path("evaluation")


class WithModelOptions(TyperCommand):
    """Takes the options of all models by name too: `--aggregator lstm` is `--set aggregator=lstm`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {name for parameter in self.params for name in parameter.opts}
        names: dict[str, bool] = {}  # and whether all models have it as yes or no
        for field in (field for model in MODELS.values() for field in model.options()):
            name = f"--{field.name.replace('_', '-')}"
            names[name] = names.get(name, True) and field.kind is bool
        return super().parse_args(ctx, list(_as_settings(args, {n: b for n, b in names.items() if n not in own})))


@app.command(name="evaluate", cls=WithModelOptions)
@takes(events=EventOptions)
def evaluate_command(
    source: Annotated[
        str, typer.Argument(help="A log of events, a graph folder, or the name of a dataset.", show_default=False)
    ],
    models: Annotated[
        list[str] | None,
        option(
            "Model to evaluate, or [bold]model:preset[/bold]; may be given several times [dim](default: dysat)[/dim].",
            "--model",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, option("Option of the models that have it: epochs=50, or [bold]--epochs 50[/bold].", "--set")
    ] = None,
    protocol: Annotated[Protocol, option("What is predicted; multi-step: the last six snapshots.")] = "single-step",
    negatives: Annotated[
        str, option("What links are told from, parted by commas: uniform, historical, inductive, degree-matched.")
    ] = "uniform",
    probe: Annotated[
        Probe,
        option(
            "Train the probe on the predicted snapshot, as the paper does, or on the one before, leak-free; "
            "[bold]score[/bold]: no probe, the model's own scores as they are."
        ),
    ] = "present",
    first: Annotated[int | None, option("First snapshot to predict.")] = None,
    last: Annotated[int | None, option("Last snapshot to predict.")] = None,
    repeats: Annotated[int, option("Random divisions into training and test examples.")] = 10,
    candidates: Annotated[int, option("Other nodes for each link, for MRR and Hits@10; 0 leaves them out.")] = 0,
    typed: Annotated[bool, option("Bipartite data: a negative is of two kinds, as a link is.", "--typed")] = False,
    new_ends: Annotated[NewEnds, option("With new-nodes: whether both ends of a link must be new, or one.")] = "both",
    count_self_loops: Annotated[
        bool, option("Count links of a node with itself among those to predict.", "--count-self-loops")
    ] = False,
    seed: Annotated[int, option("Of the examples and their divisions.")] = 0,
    out: Annotated[
        Path, option("Folder that keeps finished steps; the same command goes on with it.", "--out", "-o")
    ] = OUT,
    processes: Annotated[int | None, option("Processes [dim](default: one for each core; 1 on CUDA)[/dim].")] = None,
    device: Device = "auto",
    everyone: Annotated[bool, option("Show every opponent, not only the best.", "--all")] = False,
    markdown: Annotated[Path | None, option("Write the table to this Markdown file.")] = None,
    plot: Annotated[Path | None, option("Draw AUC per step to this file (.png, .svg, .pdf).")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
    *,
    events: EventOptions,
) -> None:
    """Say how well models predict links, step by step, and the best heuristic beside them.

    A model is fitted anew on the snapshots up to every step.
    The best heuristic is always shown: whoever does not beat it is not worth its time.

    Examples:
      [bold]dysat evaluate uci --model edge-memory --negatives uniform,historical[/bold]
      [bold]dysat evaluate uci --model graphsage --aggregator lstm[/bold]
      [bold]dysat evaluate uci --model dysat:sankar2019_uci[/bold]
      [bold]dysat evaluate mail.csv --every 30d --model dysat --set epochs=50 --plot steps.png[/bold]
    """
    given = dict(setting_of(text) for text in set_ or [])
    contenders = [contender_of(name, given) for name in models or ["dysat"]]
    for name in given:
        if not any(name in contender.options for contender in contenders):
            raise ModelError(f"{name}: none of the models has that option")
    with telling() as doing:
        graph, _ = find_graph(source, events, data_dir, doing)
    if source in DATASETS and first is None and last is None and protocol != "multi-step":
        predicted = DATASETS[source].predicted
        first, last = predicted[0], predicted[-1]
    request: dict[str, Any] = {
        "protocol": protocol,
        "negatives": tuple(kind.strip() for kind in negatives.split(",") if kind.strip()) or ("uniform",),
        "probe": probe,
        "first": first,
        "last": last,
        "repeats": repeats,
        "seed": seed,
        "self_loops": "keep" if count_self_loops else "drop",
        "typed": typed,
        "new_ends": new_ends,
        "candidates": candidates,
    }
    if processes is not None and processes < 1:
        raise ModelError(f"--processes {processes} must be at least 1")
    keep_freed_memory()
    try:
        with counting("evaluating") as told:
            found = evaluate(contenders, graph, out, device=device, processes=processes, on_progress=told, **request)
    except KeyboardInterrupt:
        raise StoppedError(f"stopped; finished steps are kept in {out}, the same command goes on") from None
    if as_json:
        print_json(found.facts())
    else:
        _show(found, source, out, everyone)
    if markdown is not None:
        with replace_file(markdown, ModelError) as beside:
            beside.write_text(found.markdown(everyone=everyone) + "\n", encoding="utf-8")
    if plot is not None:
        _draw(found, plot, everyone)


def _show(found: Evaluation, source: str, out: Path, everyone: bool) -> None:
    console = new_console()
    ranked = found.about["request"]["candidates"] > 0
    table = new_table(
        "model", "negatives", "probe", ">steps", ">macro-AUC", "", ">micro", ">AP",
        *([">MRR", ">Hits@10"] if ranked else []),
    )  # fmt: skip
    for model, negatives, probe, means in found.rows(found.figures if everyone else None):
        name = f"[dim]{model.name}[/dim]" if model.opponent else f"[bold]{escape(model.name)}[/bold]"
        table.add_row(name, negatives, PROBES[probe], str(len(means.targets)), *_cells(means), *_ranked(model, ranked))
    console.print(table)
    for line in _notes(found, source, out):
        console.print(f"[dim]{escape(line)}[/dim]", highlight=False, soft_wrap=True)
    for line in verdict(found):
        console.print(line, highlight=False, soft_wrap=True)


def verdict(found: Evaluation) -> Iterator[str]:
    """Whether each model beats the best heuristic."""
    for model in found.asked():
        best = found.best_opponent(model)
        gap = 100 * found.gap(model, best) if best else nan
        if best and not isnan(gap):
            word = "beats" if gap > 0 else "does not beat"
            figure = f"{gap:+.2f} points of macro-AUC on the same steps"
            yield f"{model.name} {word} the best heuristic, {best.name}: {figure}"


def _notes(found: Evaluation, source: str, out: Path) -> Iterator[str]:
    request = found.about["request"]
    yield (
        f"{source}, {request['protocol']}, mean ± deviation over {request['repeats']} divisions, in per cent; "
        f"AP: average precision; all figures are in {out}/results.json"
    )
    probes = {probe for model in found.shown() for probe in model.probes()}
    if "score" in probes:
        yield "own score: no probe; a model learns for all its epochs, and no label of the predicted snapshot is used"
    if probes & {"present", "past"}:
        yield "probe on t+1: trained on a fifth of the labels it predicts, as in the paper; on t: on those before"
    for kind, targets in found.asked()[0].lacking.items():
        yield f"too few {kind} negatives for snapshots {', '.join(map(str, targets))}"
    for snapshot, why in found.left_out.items():
        yield f"snapshot {snapshot} is left out: {why}"
    for model in found.shown():
        for step, why in model.problems.items():
            yield f"{model.name}, snapshots up to {step}: {why}"


def _cells(means: Means) -> list[str]:
    return [
        per_cent(means.macro_auc),
        spread(means.macro_auc_sd),
        per_cent(means.micro_auc),
        per_cent(means.macro_average_precision),
    ]


def _ranked(model: Figures, ranked: bool) -> list[str]:
    values = model.ranking().values() if ranked else []
    return ["–" if value is None else f"{value:.3f}" for value in values]


def contender_of(text: str, given: dict[str, str]) -> Contender:
    """A model, or model:preset, with those of the given options that it has."""
    method, _, preset = text.partition(":")
    if method not in MODELS:
        return Contender(method)  # which says what there is
    names = {option.name for option in MODELS[method].options()}
    options = {name: value for name, value in given.items() if name in names}
    presets = MODELS[method].presets()
    chosen = preset or (PRESET if PRESET in presets else None)
    return Contender(method, chosen, options)


def _as_settings(args: Sequence[str], names: Mapping[str, bool]) -> Iterator[str]:
    """`--name value` and `--name=value` as `--set name=value`; `--name` and `--no-name` where it is yes or no."""
    words = list(args)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        other = f"--{name.removeprefix('--no-')}"
        if name not in names:
            yield f"--set={other[2:]}=false" if names.get(other) and name.startswith("--no-") else word
            continue
        if not equals:
            follows = bool(words) and (words[0] in ("true", "false") if names[name] else not words[0].startswith("--"))
            if not (follows or names[name]):
                raise ModelError(f"{name} needs a value")
            value = words.pop(0) if follows else "true"
        yield f"--set={name[2:]}={value}"


def setting_of(text: str) -> tuple[str, str]:
    """A name and a value from name=value."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ModelError(f"--set {text}: expected name=value")
    return name.strip().replace("-", "_"), value.strip()


def _draw(found: Evaluation, file: Path, everyone: bool) -> None:
    try:
        found.plot(file, everyone=everyone)
    except (OSError, ValueError) as problem:
        raise ModelError(f"--plot {file}: {problem}") from None
