"""The command models: which methods there are, and the presets and options of each."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dysat.cli.app import app
from dysat.cli.options import Json
from dysat.cli.output.show import new_console, new_table, print_json
from dysat.cli.output.terminal import foreign
from dysat.errors import ModelError, listed, nearest
from dysat.experiments.tune.spaces import as_text
from dysat.models import MODELS
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import LinkModel
from dysat.models.base.option import NONE, Option
from dysat.system.extras import EXTRAS, is_installed

KINDS = {int: "whole number", float: "number", bool: "true, false", str: "text"}


@app.command()
def models(
    name: Annotated[
        str | None, typer.Argument(help="Method to describe; none lists all.", show_default=False, metavar="NAME")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the methods, or describe one: its presets, and every option with default, allowed values and meaning.

    Examples:
      [bold]dysat models[/bold]
      [bold]dysat models graphsage[/bold]
      [bold]dysat fit mail.csv --every 30d --model graphsage --set aggregator=lstm[/bold]
    """
    if name is None:
        return _list_all(as_json)
    method, _, preset = name.partition(":")
    if method not in MODELS:
        raise ModelError(f"no model {method!r}; there are {listed(MODELS, 30)}{nearest(method, MODELS)}")
    model = MODELS[method]
    values = (model.from_preset(preset) if preset else model()).plain_params()
    return _describe(model, name, values, as_json)


def _list_all(as_json: bool) -> None:
    if as_json:
        return print_json([_facts(model) for model in MODELS.values()])
    console = new_console()
    table = new_table("method", "description", "fit", "presets")
    table.columns[1].no_wrap = False
    for model in MODELS.values():
        presets = [name for name in model.presets() if not name.startswith("sankar2019")]
        fits = "yes" if issubclass(model, EmbeddingModel) else "no"
        table.add_row(f"[bold]{model.method}[/bold]", foreign(summary(model)), fits, ", ".join(presets) or "–")
    console.print(table)
    notes = ["All methods work with dysat evaluate; those marked yes also with dysat fit. Options: dysat models NAME."]
    for model in MODELS.values():
        notes += [_missing(model)] if _missing(model) else []
    for note in dict.fromkeys(notes):
        console.print(f"[dim]{foreign(note)}[/dim]", highlight=False, soft_wrap=True)
    return None


def _describe(model: type[LinkModel], name: str, values: dict[str, Any], as_json: bool) -> None:
    if as_json:
        return print_json({**_facts(model), "values": values})
    console = new_console()
    console.print(f"[bold]{foreign(name)}[/bold]: {foreign(summary(model))}", highlight=False, soft_wrap=True)
    if _missing(model):
        console.print(f"[dim]{foreign(_missing(model))}[/dim]", highlight=False, soft_wrap=True)
    if presets := model.presets():
        table = new_table("preset", "description")
        table.columns[1].no_wrap = False
        for preset in presets:
            table.add_row(foreign(preset), foreign(presets[preset]["about"]))
        console.print(table)
    table = new_table("option", "default" if ":" not in name else "value", "allowed values", "meaning")
    table.columns[2].no_wrap = table.columns[3].no_wrap = False
    for option in model.options():
        table.add_row(
            option.name, foreign(as_text(values[option.name])), foreign(allowed(option)), foreign(option.help)
        )
    console.print(table)
    example = f"dysat {'fit' if issubclass(model, EmbeddingModel) else 'evaluate'} SOURCE --model {name}"
    setting = next((option.name for option in model.options()), None)
    more = f" --set {setting}={as_text(values[setting])}" if setting else ""
    console.print(f"[dim]{foreign(example + more)}[/dim]", highlight=False, soft_wrap=True)
    return None


def summary(model: type[LinkModel]) -> str:
    """What a method is, in one line."""
    return model.about or str(model.__doc__).strip().split("\n\n")[0].replace("\n", " ").rstrip(".")


def allowed(option: Option) -> str:
    """The values that an option takes, in words."""
    words = ", ".join(option.choices) or KINDS.get(option.kind, "whole numbers, comma-separated")
    return f"{words}, or {NONE}" if option.optional else words


def _missing(model: type[LinkModel]) -> str:
    packages = [package for package in model.requires if not is_installed(package)]
    if not packages:
        return ""
    return f"{model.method} needs a package that is not installed: pip install 'dysat[{EXTRAS[packages[0]]}]'"


def _facts(model: type[LinkModel]) -> dict[str, Any]:
    return {
        "name": model.method,
        "about": summary(model),
        "fit": issubclass(model, EmbeddingModel),
        "presets": {name: preset["about"] for name, preset in model.presets().items()},
        "options": [
            {
                "name": option.name,
                "default": option.default,
                "allowed": list(option.choices) or allowed(option),
                "optional": option.optional,
                "about": option.help,
            }
            for option in model.options()
        ],
    }
