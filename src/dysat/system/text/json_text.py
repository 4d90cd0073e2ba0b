"""JSON as other programs and terminals can read it: no NaN, no Infinity, and hidden characters as escapes."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from dysat.system.text.printable import with_escapes


def json_text(value: Any, *, indent: int | None = None, ascii: bool = False) -> str:
    r"""Return a value as strict JSON: what is not finite is null, and characters with a hidden effect are escapes.

    Escapes are decoded by every reader of JSON, so no label changes. `ascii` escapes everything beyond ASCII.

    Example:
        >>> print(json_text({"label": "雪 \u202e", "auc": float("nan")}))
        {"label": "雪 \u202e", "auc": null}
    """
    try:
        text = json.dumps(value, indent=indent, ensure_ascii=ascii, allow_nan=False)
    except ValueError:
        text = json.dumps(finite(value), indent=indent, ensure_ascii=ascii, allow_nan=False)
    if text.isascii() and "\x7f" not in text:
        return text
    return "\n".join(with_escapes(line, _escaped) for line in text.split("\n"))


def finite(value: Any) -> Any:
    """Replace numbers that are not finite by None; JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _escaped(char: str) -> str:
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]  # json leaves DEL as it is
