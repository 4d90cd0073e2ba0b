"""Write tuned options as a preset: the original file with its comments, and how each value was chosen."""

from __future__ import annotations

import os
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from dysat.errors import ModelError
from dysat.experiments.evaluate.request import Contender
from dysat.experiments.tune.outcome import Tuning
from dysat.models import MODELS
from dysat.models.base.option import NONE
from dysat.system.storage import replace_file
from dysat.system.text.toml import as_toml

COMMENT = 36  # column of comments in preset files


def write_preset(tuning: Tuning, file: str | os.PathLike[str], name: str) -> None:
    """Write the best options to a file for `from_preset`; `name` is the name of the data."""
    path = Path(file)
    if path.suffix != ".toml":
        raise ModelError(f"{path}: the name of a preset file must end in .toml")
    with replace_file(path, ModelError) as beside:
        beside.write_text(preset_text(tuning, name), encoding="utf-8")


def preset_text(tuning: Tuning, name: str) -> str:
    """Return the text of the tuned preset with the best values in place of its own; new options come at the end."""
    contender, options = tuning.contender, tuning.options
    reasons = {key: "given" for key in contender.options if key != "device"}
    reasons |= {key: f"chosen on validation links out of {tuning.space[key]}" for key in tuning.best.options}
    by = "" if tuning.objective == "AUC" else f" by {tuning.objective}"
    summary = f"{contender.name}, tuned{by} on validation links of {name}"
    lines = _base_text(contender).splitlines()
    for key, why in {"about": "", **reasons}.items():
        line = _line(key, summary if key == "about" else options[key], why)
        at = next((i for i, old in enumerate(lines) if re.match(rf"{key}\s*=", old)), len(lines))
        lines[at : at + 1] = [line]
    text = "\n".join(lines) + "\n"
    if _gives(text, contender.method, options):
        return text
    return as_toml({"about": summary, "parameters": {key: _plain(value) for key, value in options.items()}})


def _gives(text: str, method: str, options: dict[str, Any]) -> bool:
    """Return whether a preset gives these options: editing by line fails for some layouts of a user's file."""
    try:
        values = MODELS[method].with_options(tomllib.loads(text)["parameters"]).plain_params()
    except (ValueError, KeyError, ModelError):
        return False
    return {key: value for key, value in values.items() if key != "device"} == options


def _base_text(contender: Contender) -> str:
    """Return the text of the original preset, or of an empty one."""
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
    """Return the value as TOML can store it."""
    return NONE if value is None else value
