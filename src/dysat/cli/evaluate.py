"""The command evaluate: how well models predict, compared with heuristics."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan, nan
from pathlib import Path
from typing import Annotated, Any

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
    Settings,
    Source,
    check_engine,
    chosen_model,
    option,
    parse_setting,
    takes,
)  # fmt: skip
from dysat.cli.output.show import new_console, new_table, print_json, show_notes, status_line
from dysat.cli.output.terminal import foreign
from dysat.cli.output.watching import counting
from dysat.data.datasets import DATASETS
from dysat.errors import ModelError
from dysat.evaluation.probe import Means
from dysat.evaluation.protocols import NewEnds, Protocol
from dysat.experiments.evaluate.evaluate import evaluate
from dysat.experiments.evaluate.outcome import PROBES, RANKING, Evaluation, Figures, fraction, per_cent, spread
from dysat.experiments.evaluate.request import Contender, Probe
from dysat.models import MODELS
from dysat.runs.run import Run
from dysat.system.extras import require
from dysat.system.parallel.process import keep_freed_memory
from dysat.system.storage import replace_file
from dysat.system.writing import check_new_file, check_place

OUT = Path("evaluation")


@app.command(name="evaluate")
@takes(events=EventOptions, hide=RARE)
def evaluate_command(
    source: Source,
    models: Annotated[
        list[str] | None,
        option(
            "Method, or method:preset; repeatable [dim](default: dysat, or the model of the run)[/dim].",
            "--model",
            panel="Model",
            metavar="NAME",
        ),
    ] = None,
    settings: Settings = None,
    protocol: Annotated[Protocol, option("Links to predict; multi-step: the last six snapshots.")] = "single-step",
    negatives: Annotated[
        str, option("Negative samplers, comma-separated: uniform, historical, inductive, degree-matched, reversed.")
    ] = "uniform",
    probe: Annotated[
        Probe,
        option(
            "Train the probe on the predicted snapshot, as in the paper, or on the one before, without data leakage; "
            "[bold]score[/bold]: no probe, the model's own scores."
        ),
    ] = "present",
    first: Annotated[int | None, option("First snapshot to predict.")] = None,
    last: Annotated[int | None, option("Last snapshot to predict.")] = None,
    repeats: Annotated[int, option("Number of random train/test splits.")] = 10,
    candidates: Annotated[
        int | None,
        option(
            "Other nodes that each link is ranked among, for MRR, Hits@10 and precision; 0 skips them "
            "[dim](default: 100, fewer in a small graph)[/dim]."
        ),
    ] = None,
    typed: Annotated[bool, option("Bipartite data: sample negatives across the two sides only.", "--typed")] = False,
    new_ends: Annotated[NewEnds, option("With new-nodes: whether both ends of a link must be new, or one.")] = "both",
    count_self_loops: Annotated[bool, option("Predict links from a node to itself too.", "--count-self-loops")] = False,
    seed: Annotated[int, option("Random seed of the examples and their splits.")] = 0,
    out: Annotated[Path, option("Folder for finished steps; the same command resumes.", "--out", "-o")] = OUT,
    processes: Annotated[
        int | None, option("Number of processes [dim](default: one per core; 1 on CUDA)[/dim].")
    ] = None,
    device: Device = "auto",
    engine: EngineOption = "local",
    address: Address = None,
    job_cpus: JobCpus = None,
    job_gpus: JobGpus = None,
    everyone: Annotated[bool, option("Show every heuristic, not only the best.", "--all")] = False,
    markdown: Annotated[Path | None, option("Write the table to this Markdown file.")] = None,
    plot: Annotated[Path | None, option("Draw AUC per step to this file (.png, .svg, .pdf).")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
    *,
    events: EventOptions,
) -> None:
    """Report how well models predict links, step by step, compared with the best heuristic.

    Every model is fitted again on the snapshots up to each step. SOURCE may also be a run folder: its newest graph.
    The best heuristic is always shown: a model that does not beat it is not worth its cost.

    Examples:
      [bold]dysat evaluate uci --model edge-memory --negatives uniform,historical[/bold]
      [bold]dysat evaluate uci --model graphsage --set aggregator=lstm[/bold]
      [bold]dysat evaluate uci --model dysat --model dysat:program[/bold]
      [bold]dysat evaluate mail.csv --every 30d --set epochs=50 --plot steps.png[/bold]
    """
    check_place(out, ModelError)
    check_engine(engine, address, job_cpus, job_gpus, processes)
    for file in (plot, markdown):
        if file is not None:
            check_new_file(file, ModelError)
    given = dict(map(parse_setting, settings or []))
    run = Run.find(source) if models is None else None
    if run is not None:
        contenders = [_model_of(run, given)]
    else:
        contenders = [chosen_model(name, None, given, ignore=True) for name in models or ["dysat"]]
    if plot is not None:
        require("matplotlib", "--plot")
    for name in given:
        if run is None and not any(name in contender.options for contender in contenders):
            raise ModelError(f"--set {name}: none of the models uses that option; see dysat models NAME")
    with status_line() as set_status:
        graph, made = find_graph(source, events, data_dir, set_status)
    if made:
        show_notes(graph)
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
    }
    if processes is not None and processes < 1:
        raise ModelError(f"--processes {processes} must be at least 1")
    keep_freed_memory()
    try:
        with counting("evaluating") as on_progress:
            found = evaluate(
                contenders, graph, out, candidates=candidates, device=device, processes=processes, engine=engine,
                address=address, job_cpus=job_cpus, job_gpus=job_gpus, on_progress=on_progress, **request,
            )  # fmt: skip
    except KeyboardInterrupt:
        raise StoppedError(f"stopped; finished steps are kept in {out}, the same command resumes") from None
    if as_json:
        print_json({**found.facts(), "notes": graph.notes})
    else:
        _show(found, source, out, everyone)
    if markdown is not None:
        with replace_file(markdown, ModelError) as temporary:
            temporary.write_text(found.markdown(everyone=everyone) + "\n", encoding="utf-8")
    if plot is not None:
        _draw(found, plot, everyone)


def _model_of(run: Run, given: dict[str, str]) -> Contender:
    """The method of a run with its options, some of them changed."""
    method = run.config["method"]
    own = {name: value for name, value in run.new_model().plain_params().items() if name != "device"}
    chosen_model(method, None, given)  # refuses options that the method does not have
    return Contender.of(MODELS[method].with_options({**own, **given}))


def _show(found: Evaluation, source: str, out: Path, everyone: bool) -> None:
    console = new_console()
    table = new_table("model", "negatives", "probe", ">steps", ">macro-AUC", "", ">micro", ">AP")
    for model, negatives, probe, means in found.rows(found.figures if everyone else None):
        table.add_row(_name(model), negatives, PROBES[probe], str(len(means.targets)), *_cells(means))
    console.print(table)
    ranked = list(found.ranking_rows(everyone=everyone))
    if ranked:
        table = new_table("ranking", ">steps", *(f">{title}" for title in RANKING.values()))
        for model, steps, values in ranked:
            table.add_row(_name(model), str(steps), *map(fraction, values.values()))
        console.print(table)
    for line in _notes(found, source, out):
        console.print(f"[dim]{foreign(line)}[/dim]", highlight=False, soft_wrap=True)
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
            yield foreign(f"{model.name} {word} the best heuristic, {best.name}: {figure}")
        best = found.best_ranking(model)
        gap = found.mrr_gap(model, best) if best else nan
        if best and not isnan(gap):
            word = "beats" if gap > 0 else "does not beat"
            figure = f"{gap:+.3f} of MRR on the same steps"
            yield foreign(f"{model.name} {word} the best heuristic in ranking, {best.name}: {figure}")


def _notes(found: Evaluation, source: str, out: Path) -> Iterator[str]:
    request = found.about["request"]
    yield (
        f"{source}, {request['protocol']}, mean ± standard deviation over {request['repeats']} splits, in per cent; "
        f"AP: average precision; all figures: {out}/results.json"
    )
    probes = {probe for model in found.shown() for probe in model.probes()}
    if "score" in probes:
        yield "own score: no probe; models train for all epochs, and no label of the predicted snapshot is used"
    if probes & {"present", "past"}:
        yield "probe on t+1: trained on a fifth of the predicted labels, as in the paper; on t: on the snapshot before"
    if number := request["candidates"]:
        yield (
            f"ranking by own scores, no probe: each link among {number} other nodes of its first end; "
            "P@k: fraction of links among the k highest-scored of these pairs; new: pairs never linked before"
        )
    yield from _direction(found)
    for kind, targets in found.asked()[0].lacking.items():
        yield f"too few {kind} negatives for snapshots {', '.join(map(str, targets))}"
    for snapshot, why in found.left_out.items():
        yield f"snapshot {snapshot} is left out: {why}"
    for model in found.shown():
        for step, why in model.problems.items():
            yield f"{model.name}, snapshots up to {step}: {why}"


def _direction(found: Evaluation) -> Iterator[str]:
    """One line if the graph is directed: what is predicted, and which models ignore it."""
    if not found.about["graph"].get("directed", False):
        return
    ignore = [m.name for m in found.asked() if not MODELS[m.method].with_options(m.options).uses_direction]
    unused = f"; direction is not used by {', '.join(ignore)}: pairs are scored alike in both directions"
    yield "directed: links are predicted from sender to receiver" + unused * bool(ignore)


def _cells(means: Means) -> list[str]:
    return [
        per_cent(means.macro_auc),
        spread(means.macro_auc_sd),
        per_cent(means.micro_auc),
        per_cent(means.macro_average_precision),
    ]


def _name(model: Figures) -> str:
    return f"[dim]{foreign(model.name)}[/dim]" if model.opponent else f"[bold]{foreign(model.name)}[/bold]"


def _draw(found: Evaluation, file: Path, everyone: bool) -> None:
    try:
        found.plot(file, everyone=everyone)
    except (OSError, ValueError) as problem:
        raise ModelError(f"--plot {file}: {problem}") from None
