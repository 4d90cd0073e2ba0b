"""Presets: files of parameters, each for one method."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from dysat.errors import ModelError

PAPER = "sankar2019"  # prefix of presets for the rows of the paper's tables


class Presets(Mapping[str, dict[str, Any]]):
    """The presets of a method by name, each with `about` and `parameters`; files are read on access.

    `<method>_<name>.toml` is the preset `<name>`. `sankar2019_<variant>_<dataset>.toml` is a row of the paper's tables
    on a dataset. It belongs to the method whose name the variant is or starts with: `sankar2019_graphsage-gat_uci.toml`
    is `sankar2019_gat_uci` of graphsage. It also has `published`, the figures of that row.
    """

    def __init__(self, method: str, methods: Iterable[str]) -> None:
        """`methods`: all method names; a variant belongs to the longest one that fits."""
        self._files = _files(method, tuple(methods))

    def __getitem__(self, name: str) -> dict[str, Any]:
        return tomllib.loads(self._files[name].read_text(encoding="utf-8"))

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files


@cache
def _files(method: str, methods: tuple[str, ...]) -> dict[str, Traversable]:
    """The files of a method's presets by name: general ones first, then those of the paper, then its variants."""
    known, found = [method, *methods], {}
    for file in resources.files("dysat.models").joinpath("presets").iterdir():
        owner, name = owned(file.name.removesuffix(".toml"), known)
        if owner == method:
            found[name] = file
    return dict(sorted(found.items(), key=lambda it: (it[0].count("_"), it[0])))


def owned(stem: str, methods: Collection[str]) -> tuple[str | None, str]:
    """The method a preset file belongs to, and the name of the preset."""
    first, _, rest = stem.partition("_")
    if first != PAPER:
        return (first if first in methods else None), rest
    variant, _, dataset = rest.partition("_")
    fitting = [method for method in methods if f"{variant}-".startswith(f"{method}-")]
    owner = max(fitting, key=len, default=None)
    kind = variant.removeprefix(owner or "").removeprefix("-")
    return owner, "_".join(filter(None, (PAPER, kind, dataset)))


def read_preset(file: Path) -> dict[str, Any]:
    """Read a user's preset file."""
    try:
        found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ModelError(f"{file}: not a preset: {problem}") from None
    if not isinstance(found.get("parameters"), dict):
        raise ModelError(f"{file}: not a preset: it has no table [parameters]")
    return found
