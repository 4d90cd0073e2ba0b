"""Write TOML, which the standard library only reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dysat.system.text.printable import with_escapes


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
    # JSON strings, numbers and booleans are valid TOML. Half a surrogate pair, of a name that is not UTF-8, is not.
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")
    return with_escapes(text, lambda char: f"\\U{ord(char):08x}")
