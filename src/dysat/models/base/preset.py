"""Presets: files of parameters, and which method each belongs to."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from dysat.errors import ModelError

PAPER = "sankar2019"  # what it calls, for each of its datasets, the row of a table


class Presets(Mapping[str, dict[str, Any]]):
    """The presets of a method by name, each with `about` and `parameters`; a file is read when it is asked for.

    `<method>_<name>.toml` is called `<name>`. `sankar2019_<variant>_<dataset>.toml`, a row of the paper's tables on a
    dataset, belongs to the method that the variant is, or begins with: `sankar2019_graphsage-gat_uci.toml` is
    graphsage's `sankar2019_gat_uci`. Those have `published` too, the figures of that row.
    """

    def __init__(self, method: str, methods: Iterable[str]) -> None:
        """`methods`: all there are, for a variant belongs to the one with the longest name that fits."""
        known, found = [method, *methods], {}
        for file in resources.files("dysat.models").joinpath("presets").iterdir():
            owner, name = owned(file.name.removesuffix(".toml"), known)
            if owner == method:
                found[name] = file
        # Those for any dataset come first, then the paper's methods, then variants of them.
        self._files: dict[str, Traversable] = dict(sorted(found.items(), key=lambda it: (it[0].count("_"), it[0])))

    def __getitem__(self, name: str) -> dict[str, Any]:
        return tomllib.loads(self._files[name].read_text(encoding="utf-8"))

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files


def owned(stem: str, methods: Collection[str]) -> tuple[str | None, str]:
    """The method that a file belongs to by its name, and what the preset is called there."""
    first, _, rest = stem.partition("_")
    if first != PAPER:
        return (first if first in methods else None), rest
    variant, _, dataset = rest.partition("_")
    fitting = [method for method in methods if f"{variant}-".startswith(f"{method}-")]
    owner = max(fitting, key=len, default=None)
    kind = variant.removeprefix(owner or "").removeprefix("-")
    return owner, "_".join(filter(None, (PAPER, kind, dataset)))


def read_preset(file: Path) -> dict[str, Any]:
    """A preset from a file of the user's."""
    try:
        found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ModelError(f"{file}: not a preset: {problem}") from None
    if not isinstance(found.get("parameters"), dict):
        raise ModelError(f"{file}: not a preset: it has no table [parameters]")
    return found
