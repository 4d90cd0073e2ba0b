"""Read what a page contains, as its script does."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

TYPES = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "i16": "<i2", "f32": "<f4", "f64": "<f8"}


def page_content(html: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Facts and arrays of a page."""
    found = re.search(r'<script [^>]*id="data"[^>]*>([A-Za-z0-9+/=\s]*)</script>', html)
    assert found is not None
    data = zlib.decompress(base64.b64decode(found[1]))
    length = int.from_bytes(data[:4], "little")
    facts = json.loads(data[4 : 4 + length])
    begin = -(-(4 + length) // 8) * 8
    arrays = {}
    for name, entry in facts["arrays"].items():
        number = int(np.prod(entry["shape"]))
        array = np.frombuffer(data, TYPES[entry["type"]], number, begin + entry["at"])
        arrays[name] = array.reshape(entry["shape"])
    return facts, arrays
