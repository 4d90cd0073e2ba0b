"""Read metrics.json and check that it has the form that `fit` writes: anybody may have edited it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dysat.errors import ModelError, listed

METRICS = "metrics.json"
LONGEST = 100_000_000  # bytes
DEEPEST = 20  # levels of nesting; `fit` writes eight
LARGEST = 2**63  # of whole numbers
NUMBER, WHOLE, TEXT, FLAG = "a number", "a whole number of at least 0", "a text", "true or false"


class Maybe(NamedTuple):
    """A value that may be null."""

    form: Any


class Each(NamedTuple):
    """An object with any keys, whose values have one form."""

    form: Any


class OneOf(NamedTuple):
    """One of a few values."""

    values: tuple[Any, ...]


# The form of a value is one of the words above, an object of keys (a key with a question mark may be missing), a list
# with the form of its items, or one of these classes.
FIGURE = Maybe(NUMBER)
CURVE = [{"from": NUMBER, "to": NUMBER, "pairs": WHOLE, "mean_score": FIGURE, "linked": FIGURE}]
RANKING = {"mrr?": FIGURE, "hits_at_10?": FIGURE, "new_mrr?": FIGURE}  # not in version 0.1.0
CAME_TRUE = {"all": Each(WHOLE), "new": Each(WHOLE)}
STRONGEST = {"name": TEXT, "auc": NUMBER}
WINDOW = {
    "step": WHOLE,
    "links": WHOLE,
    "auc": FIGURE,
    "average_precision": FIGURE,
    **RANKING,
    "candidates?": Maybe(WHOLE),
    "ranked?": WHOLE,
    "ranked_new?": WHOLE,
    "precision?": CAME_TRUE,
    "heuristics": Each({"auc": FIGURE, "error?": FIGURE, "mrr_error?": FIGURE, **RANKING}),
}
COMPARED = {
    "heuristic": TEXT,
    "difference": NUMBER,
    "spread": FIGURE,
    "verdict": OneOf(("beats", "behind", "tie")),
}
FORECAST = {
    "auc": FIGURE,
    "reliability?": Maybe(CURVE),
    "reliability_new?": Maybe(CURVE),
    "reliability_known?": Maybe(CURVE),
    "heuristic?": Maybe({"name": TEXT, "auc": FIGURE}),
}
PROBE = {  # of the newest window; the only figures of version 0.1.0
    "step": WHOLE,
    "auc": FIGURE,
    "auc_sd": FIGURE,
    "average_precision": FIGURE,
    "average_precision_sd": FIGURE,
    "best_epoch": WHOLE,
    "epochs": WHOLE,
    "links": WHOLE,
    "repeats": WHOLE,
    "heuristic?": Maybe(STRONGEST),
    "forecast?": Maybe(FORECAST),
}
BACKTEST = {
    "windows": [WINDOW],
    "mean": Each(FIGURE),
    "sd": Each(FIGURE),
    "reliable": FLAG,
    "comparison": Maybe({**COMPARED, "auc": NUMBER, "auc_sd": FIGURE}),
    "mrr_comparison?": Maybe({**COMPARED, "mrr": NUMBER, "mrr_sd": FIGURE}),
    "heuristics?": Each(Each(FIGURE)),
    "precision": Each(Each(NUMBER)),
    "left_out": Maybe({"step": WHOLE, "covered": NUMBER}),
    "forecast?": FORECAST,
}
FIT = {
    "backtest": Maybe({}),
    "epochs": WHOLE,
    "loss": FIGURE,
    "seconds": NUMBER,
    "device": TEXT,
    "nodes": WHOLE,
    "snapshots": WHOLE,
    "notes?": [TEXT],
    "directed?": FLAG,
}


def read_metrics(folder: Path) -> dict[str, Any]:
    """The content of metrics.json; raise if it is not what `fit` writes."""
    file = folder / METRICS
    try:
        if file.stat().st_size > LONGEST:
            raise ModelError(f"{file}: damaged: {file.stat().st_size:,} bytes")
        facts = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise ModelError(f"{file}: cannot be read: {problem}") from None
    for problem_text in _problems(facts):
        raise ModelError(f"{file}: damaged: {problem_text}")
    return dict(facts)


def _problems(facts: Any) -> Iterator[str]:
    """What is wrong with the content; nothing if it can be used."""
    if _too_deep(facts):
        yield f"nested more than {DEEPEST} levels deep"
        return
    yield from _mismatches(facts, FIT, "")
    backtest = facts["backtest"]
    if backtest is None:
        return
    if "windows" not in backtest:  # of version 0.1.0
        yield from _mismatches(backtest, PROBE, "backtest.")
        yield from _empty_bins(backtest)
        return
    form = {**{f"{key.rstrip('?')}?": value for key, value in PROBE.items()}, **BACKTEST}
    yield from _mismatches(backtest, form, "backtest.")
    yield from _contradictions(backtest)


def _contradictions(backtest: Mapping[str, Any]) -> Iterator[str]:
    windows = backtest["windows"]
    if not windows:
        yield "backtest.windows is empty"
    for rival in (backtest["comparison"], backtest.get("mrr_comparison")):
        if rival is not None and any(rival["heuristic"] not in window["heuristics"] for window in windows):
            yield f"backtest.windows lack the heuristic {rival['heuristic']!r}"
    needed = [key for key in PROBE if not key.endswith("?")]
    if backtest.get("auc") is not None and (missing := [key for key in needed if key not in backtest]):
        yield f"backtest has no {missing[0]}"
    for name in ("mean", "sd"):
        if "auc" not in backtest[name]:
            yield f"backtest.{name} has no auc"
    precision = backtest["precision"]
    if precision and set(precision) != {"all", "new"}:
        yield "backtest.precision must have the keys all and new"
    yield from _empty_bins(backtest)


def _empty_bins(backtest: Mapping[str, Any]) -> Iterator[str]:
    """Bins of a reliability curve that have pairs but no figures."""
    forecast = backtest.get("forecast") or {}
    for name in ("reliability", "reliability_new", "reliability_known"):
        for part in forecast.get(name) or []:
            if part["pairs"] and (part["mean_score"] is None or part["linked"] is None):
                yield f"backtest.forecast.{name} has a bin with pairs but without figures"


def _mismatches(value: Any, form: Any, at: str) -> Iterator[str]:
    """Where a value does not have a form, one text for each place."""
    name = at.rstrip(".") or "the file"
    if isinstance(form, Maybe):
        if value is not None:
            yield from _mismatches(value, form.form, at)
    elif isinstance(form, OneOf):
        if value not in form.values:
            yield f"{name} is not one of {listed(form.values)}"
    elif isinstance(form, str):
        if not _is(value, form):
            yield f"{name} is not {form}"
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield f"{name} is not a list"
            return
        for number, item in enumerate(value):
            yield from _mismatches(item, form[0], f"{at.rstrip('.')}[{number}].")
    elif not isinstance(value, dict):
        yield f"{name} is not an object"
    elif isinstance(form, Each):
        for key, item in value.items():
            yield from _mismatches(item, form.form, f"{at}{key}.")
    else:
        for key, part in form.items():
            plain = key.rstrip("?")
            if plain in value:
                yield from _mismatches(value[plain], part, f"{at}{plain}.")
            elif plain == key:
                yield f"{name} has no {key}"


def _is(value: Any, kind: str) -> bool:
    if kind == TEXT:
        return isinstance(value, str)
    if kind == FLAG or isinstance(value, bool):
        return kind == FLAG and isinstance(value, bool)
    if isinstance(value, float):
        return kind == NUMBER
    return isinstance(value, int) and abs(value) < LARGEST and (kind == NUMBER or value >= 0)


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for part in level
            if isinstance(part, dict | list)
            for item in (part.values() if isinstance(part, dict) else part)
        ]
        if not level:
            return False
    return True
