"""Search spaces: the options to tune and their values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_origin

from dysat.errors import ModelError, listed, nearest
from dysat.experiments.evaluate.request import Contender
from dysat.models import MODELS
from dysat.models.base.option import NONE, Option

FIXED = ("device", "seed")  # never tuned
MAX_CHECKED = 1000  # combinations that are checked before the first trial
QUARTERS, POWERS = (0.25, 0.5, 1.0, 2.0, 4.0), (0.01, 0.1, 1.0, 10.0)
ATTENTION = {"learning_rate": (1e-4, 1e-3), "negative_weight": (0.01, 0.1, 1.0)}
ROWS = {"beta": (0.1, 1.0, 2.0, 5.0), "nu1": (1e-6, 1e-4), "nu2": (1e-6, 1e-4)}
# The grids of the paper, from its section on settings and its appendix.
PAPER: dict[str, dict[str, tuple[Any, ...]]] = {
    "dysat": ATTENTION,
    "incsat": ATTENTION,
    "node2vec": {"p": QUARTERS, "q": QUARTERS},
    "graphsage": {"aggregator": ("gcn", "mean-pool", "max-pool", "lstm")},
    "dynamic-triad": {"smoothness": POWERS, "closure": POWERS},
    "dyngem": {"alpha": (1e-6, 1e-5), **ROWS},
    "dynaernn": ROWS,
}
# For DySAT without the random-walk loss, such as the default model: the paper's grid tunes negative_weight, which has
# no effect there. Each option has its default, one lower and one higher value; no test result was used to choose them.
FORECAST = {
    "learning_rate": (2e-3, 5e-3, 1e-2),
    "l2": (1e-5, 1e-4, 1e-3),
    "future_weight": (0.03, 0.1, 0.3),
}


@dataclass(frozen=True)
class Choices:
    """An option and the values to try."""

    name: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{{{', '.join(map(as_text, self.values))}}}"


@dataclass(frozen=True)
class Range:
    """An option and the inclusive bounds of its values; `log` for a logarithmic scale."""

    name: str
    low: float
    high: float
    log: bool
    whole: bool

    def __str__(self) -> str:
        return f"{as_text(self.low)} … {as_text(self.high)}"


Dimension = Choices | Range
Given = Mapping[str, Any] | Sequence[str]


def search_space(contender: Contender, given: Given | None = None) -> tuple[Dimension, ...]:
    """Return the given space, checked against the model, or `default_space`.

    A space is a list of texts, or a mapping from names to such texts or to lists of values. `learning_rate=1e-4..1e-2`
    is a range, `negative_weight=0.01,0.1,1` a list of choices, separated by | if the values contain commas.
    """
    method = contender.method
    given = given or default_space(contender)
    wanted = given if isinstance(given, Mapping) else _named(given)
    options = {option.name: option for option in MODELS[method].options()}
    space = []
    for name, values in wanted.items():
        if name not in options:
            hint = nearest(name, options) or f"; there are {listed(options, 50)}"
            raise ModelError(f"{method} has no option {name!r}{hint}")
        if name in FIXED:
            raise ModelError(f"{name} is not tuned: it does not describe the model")
        space.append(_dimension(options[name], values))
    _check_values(contender, space)
    return tuple(space)


def default_space(contender: Contender) -> Mapping[str, Sequence[Any]]:
    """Return the paper's grid of the method; for DySAT without the random-walk loss, the space `FORECAST`."""
    method = contender.method
    if method == "dysat" and getattr(contender.build(), "walk_weight", 1.0) == 0:
        return FORECAST
    if method not in PAPER:
        names = [option.name for option in MODELS[method].options() if option.name not in FIXED]
        hint = f"say with space= which of its options to try: {listed(names)}" if names else "it has no options"
        raise ModelError(f"the paper tuned nothing of {method}; {hint}")
    return PAPER[method]


def combinations(space: Sequence[Dimension]) -> list[dict[str, Any]] | None:
    """Return every combination of choices, or None if the space has a range."""
    choices = [dimension.values for dimension in space if isinstance(dimension, Choices)]
    if len(choices) < len(space):
        return None
    names = [dimension.name for dimension in space]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*choices)]


def settings_to_check(space: Sequence[Dimension]) -> list[dict[str, Any]]:
    """Return combinations of all choices and of both ends of each range, at most `MAX_CHECKED`."""
    ends = [d if isinstance(d, Choices) else Choices(d.name, (d.low, d.high)) for d in space]
    return (combinations(ends) or [])[:MAX_CHECKED]


def with_setting(contender: Contender, setting: Mapping[str, Any]) -> Contender:
    """Return the contender with some options changed."""
    return Contender(contender.method, contender.preset, {**contender.options, **setting}, contender.opponent)


def as_text(value: Any) -> str:
    """Format a value as the command line accepts it."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ",".join(map(as_text, value))
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


def _named(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in [texts] if isinstance(texts, str) else texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not (name and equals and values.strip()):
            raise ModelError(f"{text!r} is not a space; expected name=1,2,3 or name=0.1..1")
        if name in found:
            raise ModelError(f"two spaces for {name}: {found[name]} and {values}")
        found[name] = values
    return found


def _dimension(option: Option, values: Any) -> Dimension:
    if isinstance(values, str) and ".." in values and option.kind in (int, float):
        return _range(option, *values.split("..", 1))
    several = get_origin(option.kind) is tuple  # a value that contains commas
    if isinstance(values, str):
        parts = values.split("|" if "|" in values or several else ",")
        values = [part.strip() for part in parts if part.strip()]
    elif not isinstance(values, list | tuple):
        values = [values]
    found = tuple(dict.fromkeys(option.read(value) for value in values))
    if not found:
        raise ModelError(f"no value to try for {option.name}")
    return Choices(option.name, found)


def _range(option: Option, first: str, last: str) -> Range:
    low, high = (option.read(end.strip()) for end in (first, last))
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        raise ModelError(f"{option.name}={first}..{last}: the bounds of a range must be finite numbers")
    if low >= high:
        raise ModelError(f"{option.name}={first}..{last}: the second bound must be the higher one")
    return Range(option.name, low, high, log=low > 0 and high / low >= 10, whole=option.kind is int)


def _check_values(contender: Contender, space: Sequence[Dimension]) -> None:
    """Check that the model accepts every choice and every bound in some combination with the others."""
    refused: dict[tuple[str, Any], ModelError] = {}
    accepted: set[tuple[str, Any]] = set()
    for setting in settings_to_check(space):
        try:
            with_setting(contender, setting)
            accepted.update(setting.items())
        except ModelError as problem:
            refused.update(dict.fromkeys((item for item in setting.items() if item not in refused), problem))
    for item, why in refused.items():
        if item not in accepted:
            raise why
