"""Write TOML, which the standard library only reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dysat.system.printable import with_escapes


def as_toml(config: Mapping[str, Any]) -> str:
    """Format plain values and one level of tables; None is left out."""
    lines = [
        f"{key} = {_value(value)}" for key, value in config.items() if not isinstance(value, dict) and value is not None
    ]
    for key, table in config.items():
        if isinstance(table, dict):
            lines += ["", f"[{key}]", *(f"{name} = {_value(v)}" for name, v in table.items() if v is not None)]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    # JSON strings, numbers and booleans are valid TOML, but its escapes of surrogates are not.
    return with_escapes(json.dumps(value, ensure_ascii=False), _escaped)


def _escaped(char: str) -> str:
    return char if "\ud800" <= char <= "\udfff" else f"\\U{ord(char):08x}"
