"""A field of a model as an option: what it may be, what it is for, and how its value is read."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from dysat.errors import ModelError

NONE = "none"  # in a file or on a command line, where there is no None


class Option(NamedTuple):
    """One field of a model: what it may be and what it is for."""

    name: str
    kind: Any  # the type without None
    optional: bool
    default: Any
    help: str

    def read(self, value: Any) -> Any:
        """A value from a file or the command line as this option takes it, or a ModelError."""
        if self.optional and (value is None or value == NONE):
            return None
        if get_origin(self.kind) is tuple:
            values = value.split(",") if isinstance(value, str) else value if isinstance(value, Sequence) else [value]
            return tuple(self._one(int, v) for v in values)
        if get_origin(self.kind) is Literal:
            if value not in get_args(self.kind):
                raise ModelError(f"{self.name}={value!r} is not one of {', '.join(get_args(self.kind))}")
            return value
        return self._one(self.kind, value)

    def _one(self, kind: type, value: Any) -> Any:
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
        what = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]
        raise ModelError(f"{self.name}={value!r} is not {what}")

    @classmethod
    def of(cls, name: str, hint: Any, default: Any) -> Option:
        """What the annotation of a field says."""
        help = ""
        if get_origin(hint) is Annotated:
            hint, help = get_args(hint)[:2]
        optional = get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)
        if optional:
            hint = next(kind for kind in get_args(hint) if kind is not type(None))
        return cls(name, hint, optional, default, help)
