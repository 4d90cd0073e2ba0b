"""A field of a model as an option: its type, default and meaning, and how its value is checked or parsed."""

from __future__ import annotations

import math
import types
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from dysat.errors import ModelError

NONE = "none"  # stands for None in a file and on the command line
# Largest values. A size is a dimension of a tensor, and samples are drawn for every node or link, so larger ones need
# more memory than any machine has. Random seeds have ranges of their own.
LARGEST, LARGEST_SIZE, MOST_SAMPLES, MOST_LAYERS = 1_000_000_000, 65_536, 100_000, 100
SIZES = (
    *("structural_heads", "structural_features", "temporal_heads", "temporal_features", "features", "hidden"),
    *("encoder", "recurrent", "heads", "spectrum"),
)
SAMPLES = (
    *("walks_per_node", "walk_length", "window", "contexts", "negatives", "future_negatives", "fan_out", "rounds"),
    "leaves",
)
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


class Option(NamedTuple):
    """One option of a model."""

    name: str
    kind: Any  # the type without None
    optional: bool
    default: Any
    help: str

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed words, if the option is one of a few."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def most(self) -> int | None:
        """The largest whole number that is allowed; None for a random seed."""
        if self.name == "seed":
            return None
        return LARGEST_SIZE if self.name in SIZES else MOST_SAMPLES if self.name in SAMPLES else LARGEST

    def check(self, value: Any) -> None:
        """Raise a ModelError unless a value given in Python fits the option. Nothing is converted."""
        if value is None and self.optional:
            return
        if get_origin(self.kind) is tuple:
            if isinstance(value, str) or not isinstance(value, Sequence) or not all(_is(int, item) for item in value):
                raise ModelError(f"{self.name}={value!r} is not a sequence of whole numbers")
        elif self.choices:
            if value not in self.choices:
                raise ModelError(f"{self.name}={value!r} is not one of {', '.join(self.choices)}")
        elif not _is(self.kind, value):
            raise ModelError(f"{self.name}={value!r} is not {KINDS[self.kind]}")

    def check_finite(self, value: Any) -> None:
        """Raise a ModelError if a number is NaN or infinite."""
        if value is not None and self.kind is float and not math.isfinite(value):
            raise ModelError(f"{self.name}={value} must be a finite number")

    def check_size(self, value: Any) -> None:
        """Raise a ModelError if a value that fits the option is absurdly large."""
        if value is None:
            return
        several = get_origin(self.kind) is tuple
        if several and len(value) > MOST_LAYERS:
            raise ModelError(f"{self.name}: {len(value):,} layers, at most {MOST_LAYERS} are possible")
        numbers = value if several else [value] if self.kind is int else []
        if self.most is not None and any(number > self.most for number in numbers):
            raise ModelError(f"{self.name}={value} must be at most {self.most}")

    def read(self, value: Any) -> Any:
        """Parse a value from a file or the command line; raise a ModelError if it does not fit."""
        if self.optional and (value is None or value == NONE):
            return None
        if get_origin(self.kind) is tuple:
            values = value.split(",") if isinstance(value, str) else value if isinstance(value, Sequence) else [value]
            return tuple(self._convert(int, v) for v in values)
        if self.choices:
            self.check(value)
            return value
        return self._convert(self.kind, value)

    def _convert(self, kind: type, value: Any) -> Any:
        if kind is str and isinstance(value, str):
            return value
        if kind is bool and str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        whole = not isinstance(value, float) or value.is_integer()
        if kind in (int, float) and not isinstance(value, bool) and (kind is float or whole):
            try:
                return kind(value)
            except (TypeError, ValueError, OverflowError):
                pass
        raise ModelError(f"{self.name}={value!r} is not {KINDS[kind]}")

    @classmethod
    def of(cls, name: str, hint: Any, default: Any) -> Option:
        """The option that a field's annotation describes."""
        help = ""
        if get_origin(hint) is Annotated:
            hint, help = get_args(hint)[:2]
        optional = get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)
        if optional:
            hint = next(kind for kind in get_args(hint) if kind is not type(None))
        return cls(name, hint, optional, default, help)


def _is(kind: type, value: Any) -> bool:
    """Whether a value is of a kind; NumPy's numbers count, and bool is no number."""
    if kind is bool:
        return isinstance(value, bool) or type(value).__name__ == "bool"  # numpy.bool
    accepted = {int: Integral, float: Real, str: str}[kind]
    if not isinstance(value, accepted) or isinstance(value, bool):
        return False
    try:
        kind(value)
    except OverflowError:  # an integer beyond all floats
        return False
    return True
