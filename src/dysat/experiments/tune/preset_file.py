"""Tuned options as a preset: the file it began with, comments and all, and how each value was chosen."""

from __future__ import annotations

import os
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from dysat.errors import ModelError
from dysat.experiments.evaluate.request import Contender
from dysat.experiments.tune.tune import Tuning
from dysat.models import MODELS
from dysat.models.base.option import NONE
from dysat.system.storage import replace_file
from dysat.system.toml import as_toml

COMMENT = 36  # the column in which presets have their comments


def write_preset(found: Tuning, file: str | os.PathLike[str], name: str) -> None:
    """Write the best options to a file that `from_preset` reads; `name` says of which data they are."""
    path = Path(file)
    if path.suffix != ".toml":
        raise ModelError(f"{path}: the name of a preset's file ends in .toml")
    with replace_file(path, ModelError) as beside:
        beside.write_text(preset_text(found, name), encoding="utf-8")


def preset_text(found: Tuning, name: str) -> str:
    """The preset that was tuned with the best values in place of its own; whatever it lacks comes at the end."""
    contender, options = found.contender, found.options
    reasons = {key: "given" for key in contender.options if key != "device"}
    reasons |= {key: f"chosen on validation links out of {found.space[key]}" for key in found.best.options}
    told = f"{contender.name}, tuned on validation links of {name}"
    lines = _base_text(contender).splitlines()
    for key, why in {"about": "", **reasons}.items():
        line = _line(key, told if key == "about" else options[key], why)
        at = next((i for i, old in enumerate(lines) if re.match(rf"{key}\s*=", old)), len(lines))
        lines[at : at + 1] = [line]
    text = "\n".join(lines) + "\n"
    if _says(text, contender.method, options):
        return text
    return as_toml({"about": told, "parameters": {key: _plain(value) for key, value in options.items()}})


def _says(text: str, method: str, options: dict[str, Any]) -> bool:
    """Whether a preset gives these options: one of the user's may be laid out in ways that lines do not show."""
    try:
        values = MODELS[method].with_options(tomllib.loads(text)["parameters"]).values()
    except (ValueError, KeyError, ModelError):
        return False
    return {key: value for key, value in values.items() if key != "device"} == options


def _base_text(contender: Contender) -> str:
    """The text of the preset that was begun with, or that of an empty one."""
    name = contender.preset
    if name is None:
        return 'about = ""\n\n[parameters]\n'
    if name.endswith(".toml"):
        return Path(name).read_text(encoding="utf-8")
    file = resources.files("dysat.models").joinpath("presets", f"{contender.method}_{name}.toml")
    return file.read_text(encoding="utf-8")


def _line(key: str, value: Any, why: str) -> str:
    text = as_toml({key: _plain(value)}).strip()
    return f"{text:<{COMMENT - 1}} # {why}" if why else text


def _plain(value: Any) -> Any:
    """As a file can hold it."""
    return NONE if value is None else value
