"""The options that several commands share, and library errors in the words of the command line."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from dysat.data.reading.files import Format
from dysat.data.reading.limits import Limits
from dysat.data.reading.times import TimeUnit
from dysat.data.reading.weights import NegativeWeights
from dysat.errors import ModelError, nearest
from dysat.experiments.evaluate.request import Contender
from dysat.models import MODELS
from dysat.system.parallel.engine import Engine, EngineName
from dysat.system.parallel.ranks import joined

# Arguments of the library that are options of their own on the command line.
FLAGS = (
    *("src", "dst", "time", "weight", "kinds", "pair_separator", "every", "count", "boundaries", "start", "stop"),
    *("self_loops", "time_format", "time_unit", "timezone", "format", "header", "separator", "encoding", "data_dir"),
    *("split_dst", "normalise_labels", "negative_weights", "until", "trials", "space", "epochs", "seed", "device"),
    *("directed", "limit", "engine", "address", "job_cpus", "job_gpus"),
)
# Options of models; those without a flag of their own are set with --set.
MODEL_OPTIONS = tuple(dict.fromkeys(option.name for model in MODELS.values() for option in model.options()))
SETTINGS = tuple(name for name in MODEL_OPTIONS if name not in FLAGS)


def as_options(text: str) -> str:
    """Rewrite the library's `every='1w'` as `--every 1w`, and `walk_length=3` as `--set walk_length=3`."""

    def rewrite(match: re.Match[str]) -> str:
        if match["point"]:
            return "--decimal-comma" if match["point"] == "," else "--decimal-point"
        name = match["name"]
        if match["bare"] in ("True", "False") and name not in SETTINGS:
            return "no " * (match["bare"] == "False") + f"--{name.replace('_', '-')}"
        value = match["quoted"] or match["bare"] or re.sub(r"[\s,']+", ",", match["tuple"] or "").strip(",")
        if name in SETTINGS:
            return f"--set {name}={value}"
        return f"--{name.replace('_', '-')} {shlex.quote(value) if re.search(r'[ ;|]', value) else value}".rstrip()

    values = r"'(?P<quoted>[^']*)'|\((?P<tuple>[\d, ]*|'[^'()]+', '[^'()]+')\)|(?P<bare>[\w:.-]*\w)"
    names = "|".join((*FLAGS, *SETTINGS))
    text = text.replace("embeddings=False", "--forecast-only")
    text = re.sub(r"limits=\{'(\w+)': (\d+)\}", lambda m: f"--limit {m[1].replace('_', '-')}={m[2]}", text)
    named = rf"(?P<name>{names})=(?:(?:{values})(?![/\\]))?(?![\w/\\])"
    return re.sub(rf"(?<![\w/\\.-])(?:{named}|decimal='(?P<point>[.,])')", rewrite, text)


def option(help: str, *names: str, panel: str | None = None, metavar: str | None = None, hidden: bool = False) -> Any:
    """A command-line option with its help and the panel it is listed in; a help with "(default:" shows no other."""
    shown = "(default:" not in help
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, hidden=hidden, show_default=shown)


def _column(help: str, *names: str) -> Any:
    return option(help, *names, panel="Columns", metavar="NAME")


def _window(help: str, *names: str, metavar: str | None = None) -> Any:
    return option(help, *names, panel="Windows", metavar=metavar)


def _file(help: str, *names: str, metavar: str | None = None) -> Any:
    return option(help, *names, panel="File", metavar=metavar)


def _model(help: str, *names: str, metavar: str | None = None) -> Any:
    return option(help, *names, panel="Model", metavar=metavar)


Json = Annotated[bool, option("Print JSON instead of a table.", "--json")]
RawLabels = Annotated[
    bool, option("CSV: write labels that look like formulas unchanged, without an apostrophe.", "--raw-labels")
]
DataDir = Annotated[
    Path | None,
    option("Folder of the paper's datasets [dim](default: $DYSAT_DATA or ~/.cache/dysat)[/dim].", metavar="FOLDER"),
]
Source = Annotated[
    str,
    typer.Argument(
        help="Log of events, graph or run folder, or name of a dataset.", show_default=False, metavar="SOURCE"
    ),
]

# Options of every command with a model.
Preset = Annotated[str | None, _model("Preset, or preset file (.toml).", metavar="PRESET")]
Settings = Annotated[
    list[str] | None,
    _model("Option of the model; repeatable.", "--set",
           metavar="NAME=VALUE"),
]  # fmt: skip
Device = Annotated[str, _model("Device: cpu, cuda, cuda:1; auto takes CUDA if available.", metavar="NAME")]

# Options of every command with many jobs.
EngineOption = Annotated[EngineName, option("Work on this machine, or on a Ray cluster.", "--engine", panel="Cluster")]
Address = Annotated[
    str | None,
    option("Ray cluster: auto, HOST:PORT [dim](default: start one on this machine)[/dim].", "--address",
           panel="Cluster", metavar="ADDRESS"),
]  # fmt: skip
JobCpus = Annotated[int | None, option("Cores per job on Ray [dim](default: 1)[/dim].", "--job-cpus", panel="Cluster")]
JobGpus = Annotated[
    float | None,
    option(
        "Fraction of a GPU per job on Ray [dim](default: 1; reproduce: 0.125)[/dim].", "--job-gpus", panel="Cluster"
    ),
]


def check_engine(
    engine: EngineName,
    address: str | None,
    job_cpus: int | None = None,
    job_gpus: float | None = None,
    processes: int | None = None,
) -> None:
    """Raise before any work if options of the engine do not go together, or Ray is not installed."""
    Engine(engine, address, job_cpus, job_gpus)
    if engine == "ray" and processes is not None:
        raise ModelError(f"--processes {processes} has no effect with --engine ray; the cluster determines the number")


# Options of every command that reads a log of events.
EventsFiles = Annotated[
    list[Path],
    typer.Argument(
        help="Log of interactions: CSV, TSV, blank-separated, KONECT, SNAP, JSON, Excel or Parquet (or a folder of "
        "parts); text may be compressed with gzip or zstd. Several files, Parquet or CSV, need --engine ray.",
        show_default=False,
        metavar="FILE...",
    ),
]
Src = Annotated[str | None, _column("Source column: name, or number from 1.")]
Dst = Annotated[str | None, _column("Destination column.")]
Time = Annotated[str | None, _column("Time column.")]
Weight = Annotated[str | None, _column("Weight column to sum [dim](default: 1 per event)[/dim].")]
Kinds = Annotated[
    str | None,
    option("Bipartite data: names of the sides, as user,item.", panel="Columns", metavar="A,B"),
]
PairSeparator = Annotated[
    str | None,
    option("Both nodes are in the column --src, separated by this text.", panel="Columns", metavar="TEXT"),
]
SplitDst = Annotated[
    str | None,
    option("Several destinations in a cell, separated by this text: one event each.", panel="Columns", metavar="TEXT"),
]
NormaliseLabels = Annotated[
    bool,
    option("Ignore case and extra blanks in labels; 'Name <address>' is the address.", "--normalise-labels",
           panel="Columns"),
]  # fmt: skip
Negative = Annotated[
    NegativeWeights, option("Negative weights: refuse, make positive, drop, set to 0.", panel="Columns")
]
Directed = Annotated[bool, option("Keep who sent a link, from source to destination.", "--directed", panel="Columns")]
EveryText = Annotated[str | None, _window("Width: 12h, 10d, 1w; calendar 1mo, 1q, 1y; or steps.", metavar="WIDTH")]
Count = Annotated[int | None, _window("Number of equal-width windows.", metavar="N")]
Boundaries = Annotated[
    str | None,
    _window("Window edges, comma-separated: 2024-01-01,2024-02-01,2024-03-01.", metavar="DATES"),
]
Start = Annotated[str | None, _window("Ignore events before this date (UTC).", metavar="DATE")]
Stop = Annotated[str | None, _window("Ignore events on or after this date.", metavar="DATE")]
SelfLoops = Annotated[Literal["keep", "drop"], _window("Events from a node to itself.")]
TimeFormat = Annotated[
    str | None, _file("strptime pattern of the times: '%d.%m.%Y %H:%M'. ISO 8601 needs none.", metavar="PATTERN")
]
Unit = Annotated[
    TimeUnit | None,
    _file("Unit of numeric times since 1970 [dim](default: detected)[/dim]; step: numbers of snapshots."),
]
Timezone = Annotated[str, _file("Time zone of times without one.", metavar="ZONE")]
FileFormat = Annotated[Format | None, _file("File format [dim](default: detected)[/dim].")]
Header = Annotated[
    bool | None,
    _file("Whether the first line names the columns [dim](default: detected)[/dim].", "--header/--no-header"),
]
Separator = Annotated[str | None, _file("Column separator [dim](default: detected)[/dim].", metavar="TEXT")]
Encoding = Annotated[
    str | None, _file("Encoding of the text: cp1252, utf-16 [dim](default: detected)[/dim].", metavar="NAME")
]
DecimalComma = Annotated[
    bool | None,
    _file("Decimal mark of the weights [dim](default: detected)[/dim].", "--decimal-comma/--decimal-point"),
]
SkipBadRows = Annotated[bool, _file("Skip rows that cannot be read, and count them.", "--skip-bad-rows")]
Limit = Annotated[
    list[str] | None,
    _file("Larger limit: columns, label-length, line-length (bytes), memory (GB); repeatable.", metavar="NAME=NUMBER"),
]
Nodes = Annotated[
    list[str] | None,
    option(
        "Table with attributes of nodes, or KIND=FILE in bipartite data; repeatable.",
        panel="Attributes of nodes",
        metavar="FILE",
    ),
]
NodeId = Annotated[
    list[str] | None,
    option("Its column of labels [dim](default: a usual name)[/dim].", panel="Attributes of nodes", metavar="NAME"),
]
NodeTime = Annotated[
    list[str] | None,
    option("Its time column: from when the values of a row hold.", panel="Attributes of nodes", metavar="NAME"),
]
NodeColumns = Annotated[
    list[str] | None,
    option(
        "Attributes to use, comma-separated [dim](default: all usable)[/dim]; age,team:category.",
        panel="Attributes of nodes",
        metavar="NAMES",
    ),
]
NODE_OPTIONS = ("nodes", "node_id", "node_time", "node_columns")
# Left out of `fit --help`, which fits a screen; `snapshots --help` shows them all.
RARE = (
    *("pair_separator", "boundaries", "self_loops", "time_format", "time_unit", "timezone", "format", "header"),
    *("separator", "skip_bad_rows", "split_dst", "normalise_labels", "negative_weights", "encoding", "decimal_comma"),
    *("directed", "limit", *NODE_OPTIONS),
)
# Options that an update may give again with other values.
ANY_FORMAT = ("format", "header", "separator", "encoding", "decimal_comma", "split_dst", "skip_bad_rows", "limit")


@dataclass(frozen=True, kw_only=True)
class EventOptions:
    """Columns, windows and file options: how a log of events becomes a graph."""

    src: Src = None
    dst: Dst = None
    time: Time = None
    weight: Weight = None
    kinds: Kinds = None
    pair_separator: PairSeparator = None
    split_dst: SplitDst = None
    normalise_labels: NormaliseLabels = False
    negative_weights: Negative = "error"
    directed: Directed = False
    every: EveryText = None
    count: Count = None
    boundaries: Boundaries = None
    start: Start = None
    stop: Stop = None
    self_loops: SelfLoops = "drop"
    time_format: TimeFormat = None
    time_unit: Unit = None
    timezone: Timezone = "UTC"
    format: FileFormat = None
    header: Header = None
    separator: Separator = None
    encoding: Encoding = None
    decimal_comma: DecimalComma = None
    skip_bad_rows: SkipBadRows = False
    limit: Limit = None
    nodes: Nodes = None
    node_id: NodeId = None
    node_time: NodeTime = None
    node_columns: NodeColumns = None

    def given(self) -> list[str]:
        """The options that differ from their defaults."""
        return [field.name for field in fields(self) if getattr(self, field.name) != field.default]

    def reading(self) -> dict[str, Any]:
        """The arguments of `dysat.read_events`."""
        return {
            "src": self.src,
            "dst": self.dst,
            "time": self.time,
            "weight": self.weight,
            "format": self.format,
            "header": self.header,
            "separator": self.separator.replace("\\t", "\t") if self.separator else None,
            "encoding": self.encoding,
            "decimal": None if self.decimal_comma is None else "," if self.decimal_comma else ".",
            "time_format": self.time_format,
            "time_unit": self.time_unit,
            "timezone": self.timezone,
            "kinds": tuple(kind.strip() for kind in self.kinds.split(",")) if self.kinds else None,
            "pair_separator": self.pair_separator,
            "split_dst": self.split_dst,
            "normalise_labels": self.normalise_labels,
            "negative_weights": self.negative_weights,
            "bad_rows": "skip" if self.skip_bad_rows else "raise",
            "limits": Limits.parse(self.limit or ()),
        }

    def edges(self) -> list[str] | None:
        """The boundaries as a list."""
        return None if self.boundaries is None else self.boundaries.split(",")

    def record(self, columns: Mapping[str, str]) -> dict[str, Any]:
        """What a run stores so that an update reads the next log the same way: given options and detected columns."""
        return {**{name: getattr(self, name) for name in self.given()}, **columns, "self_loops": self.self_loops}

    def like(self, made: Mapping[str, Any] | None, run: str) -> EventOptions:
        """The options a run was made with, completed by those given now; contradictions are refused."""
        given = {name: getattr(self, name) for name in self.given()}
        for name in NODE_OPTIONS:
            if name in given:
                raise ModelError(
                    f"--{name.replace('_', '-')}: an update adds no attributes; those of new nodes are missing until "
                    "the model is fitted again with dysat fit"
                )
        for name in ("start", "stop"):
            if name in given:
                raise ModelError(f"{name}={given[name]!r}: an update starts where the run ends; until= limits it")
        if made is None:  # made from a dataset or a graph folder
            return self
        check_events(made, run)
        windows = {name: made[name] for name in ("every", "count", "boundaries") if name in made}
        for name, value in given.items():
            if name == "boundaries" and "boundaries" in windows:
                continue  # the next edges
            if name in ANY_FORMAT:
                continue  # the next log may have another format
            before = made.get(name, next(field.default for field in fields(self) if field.name == name))
            if value != before:
                if name in ("every", "count", "boundaries"):
                    was = ", ".join(f"{name}={value!r}" for name, value in windows.items())
                else:
                    was = f"{name}={before!r}" if before else f"no {name}="
                raise ModelError(f"{name}={value!r}, but {run} was made with {was}")
        kept = {key: value for key, value in made.items() if key not in ("start", "stop", "boundaries", *NODE_OPTIONS)}
        return replace(self, **{**kept, **given})


def check_events(made: Mapping[str, Any], run: str) -> None:
    """Raise if the values under [events] of a run's config.toml are not options of events, or not of their type."""
    hints = get_type_hints(EventOptions)
    for name, value in made.items():
        if name not in hints:
            raise ModelError(f"{run}: config.toml: [events] has no key {name!r}{nearest(name, hints)}")
        kinds = get_args(hints[name]) if get_origin(hints[name]) in (UnionType, Union) else [hints[name]]
        if not any(_fits(value, kind) for kind in kinds):
            raise ModelError(f"{run}: config.toml: [events] {name} cannot be {value!r}")


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is list:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def by_all_ranks(command: Callable[..., None]) -> Callable[..., None]:
    """Run a command in all processes that torchrun has started; they work together, and the first prints."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        with joined():
            command(*args, **options)

    return run


def takes(events: type[EventOptions], hide: Collection[str] = ()) -> Callable[[Any], Any]:
    """Give a command all options of events, which it receives as `events=`; `hide` leaves some out of its help."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(command).parameters.items()
            if name != "events"
        ]
        shared = _event_parameters(events, hide)

        @wraps(command)
        def run(**given: Any) -> None:
            chosen = events(**{p.name: given.pop(p.name) for p in shared})
            command(**given, events=chosen)

        run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*own, *shared)}
        del run.__wrapped__
        return run

    return decorate


def _event_parameters(events: type[EventOptions], hide: Collection[str]) -> list[inspect.Parameter]:
    hints = get_type_hints(events, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=_hidden(hints[field.name]) if field.name in hide else hints[field.name],
        )
        for field in fields(events)
    ]


def _hidden(hint: Any) -> Any:
    """The same option, left out of the help."""
    kind, shown = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
    hidden = copy(shown)
    hidden.hidden = True
    return Annotated[kind, hidden]


def chosen_model(
    text: str, preset: str | None, settings: Sequence[str] | Mapping[str, Any] | None, *, ignore: bool = False
) -> Contender:
    """The model that --model, --preset and --set describe; `text` is a name or name:preset.

    A bare name is the method with its default options. `ignore` drops settings that the method does not have or use,
    for several models that share them.
    """
    method, _, named = text.partition(":")
    if preset is not None and named:
        raise ModelError(f"--model {text} names a preset already; leave out --preset {preset}")
    if method not in MODELS:
        return Contender(method)  # which raises and lists the methods
    MODELS[method].check_packages()
    given = dict(settings) if isinstance(settings, Mapping) else dict(map(parse_setting, settings or ()))
    if ignore:
        own = {option.name for option in MODELS[method].options()}
        given = {name: value for name, value in given.items() if name in own}
    found = Contender(method, preset or named or None, given)
    idle = found.build().without_effect(given)
    if ignore:
        return replace(found, options={name: value for name, value in given.items() if name not in idle})
    for name, why in idle.items():
        raise ModelError(f"{name}={given[name]} has no effect with {why}")
    return found


def parse_setting(text: str) -> tuple[str, str]:
    """The name and the value of `name=value`."""
    name, equals, value = text.partition("=")
    if not (name.strip() and equals):
        raise ModelError(f"--set {text}: expected name=value")
    return name.strip().replace("-", "_"), value.strip()
