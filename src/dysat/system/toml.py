"""Plain values as TOML, which Python reads but does not write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def as_toml(config: Mapping[str, Any]) -> str:
    """Plain values, then tables of plain values; None is left out."""
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
    # JSON's strings, numbers and truth values are TOML's; only DEL must be escaped there.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
