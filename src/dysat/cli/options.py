"""The options of the commands: their names, what their help says, and the library's arguments told in their words."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from dysat.data.reading.files import Format
from dysat.data.reading.times import TimeUnit
from dysat.errors import ModelError
from dysat.models import MODELS
from dysat.models.base.link_model import LinkModel
from dysat.models.base.option import NONE, Option

# Arguments of the library that are options here, so that an error can be told in the user's words.
OPTIONS = (
    *("src", "dst", "time", "weight", "kinds", "pair_separator", "every", "count", "boundaries", "start", "stop"),
    *("self_loops", "time_format", "time_unit", "timezone", "format", "header", "separator", "data_dir"),
    *(
        "until",
        "trials",
        "space",
        *dict.fromkeys(option.name for model in MODELS.values() for option in model.options()),
    ),
)


def as_options(text: str) -> str:
    """The library speaks of `every='1w'`, the command line of `--every 1w`."""

    def rewrite(match: re.Match[str]) -> str:
        value = match["quoted"] or match["bare"] or re.sub(r"[\s,]+", ",", match["tuple"] or "").strip(",")
        return f"--{match['name'].replace('_', '-')} {value}".rstrip()

    values = r"'(?P<quoted>[^']*)'|\((?P<tuple>[\d, ]*)\)|(?P<bare>[\w:.-]*\w)"
    names = "|".join(OPTIONS)
    return re.sub(rf"(?<![\w/\\.-])(?P<name>{names})=(?:(?:{values})(?![/\\]))?(?![\w/\\])", rewrite, text)


def option(help: str, *names: str, panel: str | None = None, metavar: str | None = None) -> Any:
    """An option with its help and the panel it is listed in."""
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar)


def _column(help: str, *names: str) -> Any:
    return option(help, *names, panel="Columns")


def _window(help: str, *names: str) -> Any:
    return option(help, *names, panel="Windows")


def _file(help: str, *names: str) -> Any:
    return option(help, *names, panel="File")


Json = Annotated[bool, option("Print JSON instead of a table.", "--json")]
DataDir = Annotated[
    Path | None,
    option("Folder of the datasets that do not come with dysat [dim](default: $DYSAT_DATA, or ~/.cache/dysat)[/dim]."),
]

# What every command that reads a log of events takes.
EventsFile = Annotated[
    Path,
    typer.Argument(
        help="Log of interactions: CSV, TSV, blanks, KONECT, SNAP, JSON lines, Parquet (or a folder of parts); "
        "text also as gzip or zstd.",
        show_default=False,
    ),
]
Src = Annotated[str | None, _column("Column of the one node; by number from 1 where there is no header.")]
Dst = Annotated[str | None, _column("Column of the other node.")]
Time = Annotated[str | None, _column("Column of the time.")]
Weight = Annotated[str | None, _column("Column of weights to add up [dim](default: every event counts 1)[/dim].")]
Kinds = Annotated[
    str | None,
    _column(
        "Bipartite data: names of the two sides, like user,item. Equal labels in the two columns are then "
        "different nodes."
    ),
]
PairSeparator = Annotated[str | None, _column("Both nodes stand in the column --src, parted by this text.")]
EveryText = Annotated[
    str | None, _window("Width of a window: 12h, 10d, 1w; by the calendar 1mo, 1q, 1y; or a number of steps.")
]
Count = Annotated[int | None, _window("So many windows of equal width.")]
Boundaries = Annotated[
    str | None, _window("The edges of the windows, parted by commas: 2024-01-01,2024-02-01,2024-03-01.")
]
Start = Annotated[str | None, _window("Leave out events before this date (UTC).")]
Stop = Annotated[str | None, _window("Leave out events at this date or after.")]
SelfLoops = Annotated[Literal["keep", "drop"], _window("Events of a node with itself.")]
TimeFormat = Annotated[
    str | None, _file("Pattern of the times, as of strptime: '%d.%m.%Y %H:%M'. ISO 8601 needs none.")
]
Unit = Annotated[
    TimeUnit | None,
    _file(
        "Unit of times that are numbers since 1970 [dim](default: recognised)[/dim]; step: they number the snapshots."
    ),
]
Timezone = Annotated[str, _file("Zone of times that do not say theirs.")]
FileFormat = Annotated[Format | None, _file("What the file is [dim](default: recognised)[/dim].")]
Header = Annotated[
    bool | None,
    _file("Whether the first line names the columns [dim](default: recognised)[/dim].", "--header/--no-header"),
]
Separator = Annotated[str | None, _file("What parts the columns [dim](default: recognised)[/dim].")]
SkipBadRows = Annotated[bool, _file("Leave out rows that cannot be read, and say how many.", "--skip-bad-rows")]


@dataclass(frozen=True, kw_only=True)
class EventOptions:
    """Columns, windows and file options: how a log of events becomes a graph."""

    src: Src = None
    dst: Dst = None
    time: Time = None
    weight: Weight = None
    kinds: Kinds = None
    pair_separator: PairSeparator = None
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
    skip_bad_rows: SkipBadRows = False

    def given(self) -> list[str]:
        """The options that are not left as they were."""
        return [field.name for field in fields(self) if getattr(self, field.name) != field.default]

    def edges(self) -> list[str] | None:
        """The boundaries one by one."""
        return None if self.boundaries is None else self.boundaries.split(",")

    def record(self, columns: Mapping[str, str]) -> dict[str, Any]:
        """What a run keeps, so that the next log is read alike: the columns that were taken, and all that was given."""
        return {**{name: getattr(self, name) for name in self.given()}, **columns, "self_loops": self.self_loops}

    def like(self, made: Mapping[str, Any] | None, run: str) -> EventOptions:
        """The options a run was made with, where nothing else is given; what contradicts them is refused."""
        given = {name: getattr(self, name) for name in self.given()}
        for name in ("start", "stop"):
            if name in given:
                raise ModelError(f"{name}={given[name]!r}: an update begins where the run ends; until= says how far")
        if made is None:  # of a dataset or a graph folder, which knows no columns
            return self
        windows = {name: made[name] for name in ("every", "count", "boundaries") if name in made}
        for name, value in given.items():
            if name == "boundaries" and "boundaries" in windows:
                continue  # those that come next
            if name in ("format", "header", "separator", "skip_bad_rows"):
                continue  # the next log may be another kind of file
            before = made.get(name, next(field.default for field in fields(self) if field.name == name))
            if value != before:
                if name in ("every", "count", "boundaries"):
                    was = ", ".join(f"{name}={value!r}" for name, value in windows.items())
                else:
                    was = f"{name}={before!r}" if before is not None else f"no {name}="
                raise ModelError(f"{name}={value!r}, but {run} was made with {was}")
        kept = {key: value for key, value in made.items() if key not in ("start", "stop", "boundaries")}
        return replace(self, **{**kept, **given})


@dataclass(frozen=True)
class ModelOptions:
    """The options of the model that were given on the command line, by name."""

    given: dict[str, Any]


def takes(
    events: type[EventOptions] | None = None, models: Mapping[str, type[LinkModel]] | None = None
) -> Callable[[Any], Any]:
    """Give a command whole groups of options, which it takes as `events=` and `model=`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(command).parameters.items()
            if name not in ("events", "model")
        ]
        of_events = _event_parameters(events) if events else []
        of_models = _model_parameters(models) if models else []

        @wraps(command)
        def run(**given: Any) -> None:
            if events:
                given["events"] = events(**{p.name: given.pop(p.name) for p in of_events})
            if models:
                values = {p.name: given.pop(p.name) for p in of_models}
                given["model"] = ModelOptions({name: value for name, value in values.items() if value is not None})
            command(**given)

        run.__signature__ = inspect.Signature([*own, *of_events, *of_models])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*own, *of_events, *of_models)}
        del run.__wrapped__
        return run

    return decorate


def _event_parameters(events: type[EventOptions]) -> list[inspect.Parameter]:
    hints = get_type_hints(events, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(events)
    ]


def _model_parameters(models: Mapping[str, type[LinkModel]]) -> list[inspect.Parameter]:
    """An option for every field of the models; what is not given is None, and stays as the preset has it.

    The first model's are listed as its own. One that only others have says whose it is.
    """
    first, *_ = models.values()
    own = {field.name for field in first.options()}
    found: dict[str, dict[str, Option]] = {}  # by name and method
    for method, model in sorted(models.items(), key=lambda item: item[1] is not first):
        for field in model.options():
            found.setdefault(field.name, {})[method] = field
    parameters = []
    for name, whose in found.items():
        panel = "Training" if name in TRAINING else "Model" if name in own else OTHERS
        text = next(iter(whose.values())).help if name in own else f"{', '.join(whose)}: {_one_of(whose)}"
        note, annotation = _declare(name, text, list(whose.values()), panel)
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[annotation | None, note]
            )
        )
    return parameters


def _declare(name: str, text: str, fields: list[Option], panel: str) -> tuple[Any, Any]:
    """An option and its type: a text where "none" is a value too, where there are several, or where models differ."""
    kind, names = fields[0].kind, [f"--{name.replace('_', '-')}"]
    choices = dict.fromkeys(word for field in fields for word in _choices(field))
    told = f" ({'|'.join(choices)})" if choices else ""
    if any(field.optional for field in fields):
        kind, told = str, f"{told} (or {NONE})"
    if get_origin(kind) is tuple or any(field.kind != fields[0].kind for field in fields):
        kind = str
    if kind is bool:
        names = [f"{names[0]}/--no-{names[0][2:]}"]
    # Short words for what is given, and choices in the sentence: a terminal has room for the names then.
    metavar = {int: "N", float: "X", bool: None}.get(kind, "…")
    sentence = f"{text}{told}." if panel == OTHERS else _sentence(text + told)
    return option(sentence, *names, panel=panel, metavar=metavar), kind


def _choices(field: Option) -> tuple[str, ...]:
    return get_args(field.kind) if get_origin(field.kind) is Literal else ()


def _one_of(whose: Mapping[str, Option]) -> str:
    """What the option is for, where several methods have one of that name and mean about the same."""
    return min((field.help for field in whose.values()), key=len)


OTHERS = "Other models"
TRAINING = ("l2", "l2_on", "clip_norm", "learning_rate", "batch_size", "epochs", "patience", "seed", "device")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
