"""What must hold after every case: a single clear line of error, or a result that is valid in itself."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from typing import Any

import torch

import dysat

FORMATTING = frozenset("\u200d\ufeff\u00ad")  # format characters that change nothing around them


class BrokenRuleError(Exception):
    """A result that is not valid, or output that no terminal or program should get."""


def check_graph(graph: dysat.DynamicGraph) -> None:
    """Raise unless all arrays of a graph are in range, in order and finite."""
    known = 0
    for step, snapshot in enumerate(graph):
        rows, offsets, neighbours = (getattr(snapshot, name) for name in ("rows", "offsets", "neighbours"))
        _require(snapshot.start < snapshot.stop, f"snapshot {step} stops before it starts")
        _require(known <= snapshot.num_nodes <= graph.num_nodes, f"snapshot {step} knows {snapshot.num_nodes} nodes")
        known = snapshot.num_nodes
        for name, ids in (("rows", rows), ("offsets", offsets), ("neighbours", neighbours)):
            _require(ids.dtype == torch.int64 and ids.dim() == 1, f"{name} are {ids.dtype}, {ids.dim()} dimensions")
        _require(len(offsets) == len(rows) + 1 and int(offsets[0]) == 0, "offsets do not fit the rows")
        _require(int(offsets[-1]) == len(neighbours), "offsets do not fit the neighbours")
        _require(bool((offsets[1:] > offsets[:-1]).all()), "a row is empty or ends before it starts")
        for name, ids in (("row", rows), ("neighbour", neighbours)):
            inside = bool(((ids >= 0) & (ids < snapshot.num_nodes)).all())
            _require(inside, f"a {name} of snapshot {step} is no known node")
        _require(bool((rows[1:] > rows[:-1]).all()), f"the rows of snapshot {step} are not in order")
        for name, numbers in (("weights", snapshot.weights), ("sent", snapshot.sent)):
            if numbers is not None:
                fits = numbers.dtype == torch.float64 and len(numbers) == len(neighbours)
                _require(fits and bool(torch.isfinite(numbers).all()), f"{name} of snapshot {step} are not finite")
                _require(bool((numbers >= 0).all()), f"{name} of snapshot {step} are negative")
    _require(known == graph.num_nodes, "the last snapshot does not know all nodes")
    if graph.kinds is not None:
        _require(len(graph.kinds) == graph.num_nodes, "kinds do not fit the nodes")


def check_links(links: dysat.Forecasts) -> None:
    """Raise unless all scores are probabilities."""
    for link in links:
        _require(math.isfinite(link.score) and 0 <= link.score <= 1, f"a score of {link.score}")


def check_vectors(vectors: torch.Tensor) -> None:
    _require(bool(torch.isfinite(vectors).all()), "an embedding is not finite")


def check_output(code: int, out: str, err: str, *, as_json: bool) -> None:
    """Raise unless a command printed a result, or ended with one line that says what is wrong."""
    for name, text in (("output", out), ("error", err)):
        strange = next((c for c in text if c not in "\n" and is_unprintable(c)), None)
        _require(strange is None, f"the {name} has the raw character {strange!a}")
        _require("Traceback (most recent" not in text and "panicked at" not in text, f"a traceback on the {name}")
    if code != 0:
        lines = err.strip().split("\n")
        _require(code in (2, 130), f"exit code {code}")
        _require(lines[-1].startswith("dysat: ") and len(lines[-1]) > 12, "no line that says what is wrong")
        _require(sum(line.startswith("dysat: ") for line in lines) == 1, "more than one line that says what is wrong")
        _require("internal error" not in err, "an internal error")
    elif as_json:
        for document in _documents(out):
            json.loads(document, parse_constant=_not_json)


def _documents(out: str) -> list[str]:
    """One JSON value, or one on each line."""
    return out.splitlines() if re.match(r"\{.*\}\n\{", out) else [out]


def _not_json(constant: str) -> Any:
    raise BrokenRuleError(f"{constant} is not JSON")


def is_unprintable(character: str) -> bool:
    """Whether a character controls the terminal or hides what is shown."""
    category = unicodedata.category(character)
    return category in ("Cc", "Cs", "Zl", "Zp") or (category == "Cf" and character not in FORMATTING)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BrokenRuleError(otherwise)
