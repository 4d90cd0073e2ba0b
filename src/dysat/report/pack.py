"""Facts and arrays as one text inside an HTML page.

The text is base64 of a zlib stream of

    length of the JSON in bytes, 4 bytes, little-endian
    JSON: the facts, with "arrays": {name: {"type": …, "shape": […], "at": offset in bytes after the padding}}
    padding up to a multiple of 8 bytes
    the arrays, little-endian, each padded to a multiple of 8 bytes

`web/src/format.ts` reads it and lists all facts and arrays.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysat.system.text.printable import printable

TEMPLATE = "page.html"
TITLE, DATA = "{{title}}", "{{data}}"  # places in the template
TYPES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "i16": np.int16, "f32": np.float32, "f64": np.float64}
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
LEVEL = 6  # of compression; 9 saves 1 % and takes three times as long
ALIGNED = 8


def html_page(title: str, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the page as HTML."""
    template = files("dysat.report").joinpath(TEMPLATE).read_text(encoding="utf-8")
    before, between = template.split(TITLE, 1)
    between, after = between.split(DATA, 1)
    return "".join((before, escape(printable(title)), between, packed(facts, arrays), after))


def packed(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return facts and arrays as one text of letters, digits, "+", "/" and "="."""
    entries, parts, at = dict[str, Any](), list[bytes](), 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        entries[name] = {"type": NAMES[array.dtype], "shape": list(array.shape), "at": at}
        parts.append(_padded(data))
        at += len(parts[-1])
    text = json.dumps({**facts, "arrays": entries}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate of a label cannot be written as UTF-8; `printable` has replaced it in what is shown.
    body = text.encode("utf-8", errors="surrogatepass").decode("utf-8", errors="replace").encode()
    head = _padded(len(body).to_bytes(4, "little") + body)
    return base64.b64encode(zlib.compress(b"".join([head, *parts]), LEVEL)).decode("ascii")


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNED)
