"""Summaries of a table in sentences; macro-AUC in per cent, on the snapshots that both rows have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dysat.data.datasets import DATASETS as FILES
from dysat.experiments.paper.catalogue import ABLATIONS, BASELINES, DATASETS, DYSAT, Published
from dysat.experiments.paper.cells import signed
from dysat.experiments.paper.lineup import BEST, NAMES, side_by_side, targets
from dysat.experiments.paper.records import Record

Found = Mapping[str, Record]  # by row, of one dataset
Known = Mapping[str, Published]  # by row, the values of the paper
CLOSE = 1.0  # points


def standing(dataset: str, found: Found, known: Known) -> Iterator[str]:
    """Compare DySAT with its published value, the baselines and the best heuristic."""
    for slug in (slug for slug in DYSAT if slug in found):
        parts = [_own(dataset, slug, found, known), *_among(slug, found, list(BASELINES), "baselines")]
        yield f"{'; '.join([*parts, _against_heuristic(slug, found)])}."


def ablation(dataset: str, found: Found, known: Known) -> Iterator[str]:
    """Compare DySAT with and without each block, and with the paper."""
    for slug in (slug for slug in DYSAT if slug in found):
        parts = [_own(dataset, slug, found, known)]
        wins = []
        for part, row in ABLATIONS.items():
            pair = side_by_side(found[slug], found[part]) if row.preset == slug and part in found else None
            if pair is None:
                continue
            gap = signed(pair[1] - pair[0], 1)
            if slug in known and part in known:
                gap += f", published {signed(known[part].macro - known[slug].macro, 1)}"
            parts.append(f"{str(row.published).lower()} attention {pair[1]:.1f} ({gap})")
            wins.append(pair[0] > pair[1])
        if wins:
            parts.append("both blocks help" if len(wins) == 2 and all(wins) else _not_both(wins))
            yield f"{'; '.join(parts)}."


def increments(dataset: str, found: Found, known: Known) -> Iterator[str]:
    """Compare IncSAT with DySAT and with the other incremental method."""
    if "incsat" in found:
        others = [*DYSAT, "dyngem"]
        yield f"{'; '.join([_own(dataset, 'incsat', found, known), *_each('incsat', found, others)])}."


def _own(dataset: str, slug: str, found: Found, known: Known) -> str:
    own = round(100 * found[slug].macro, 2)
    predicted, measured = len(FILES[dataset.removesuffix("-loops")].predicted), len(found[slug].steps)
    fewer = f" on {measured} of the {predicted} snapshots" if measured < predicted else ""
    text = f"{DATASETS[dataset]}: {NAMES[slug]} {100 * found[slug].macro:.1f}{fewer}"
    if slug not in known:
        return text
    apart = own - known[slug].macro
    near = f"within {CLOSE:g} point" if abs(apart) <= CLOSE else f"{abs(apart):.1f} points {_word(apart)}"
    loops = " with self-loops counted" if dataset == "enron" else ""
    return f"{text}, published {known[slug].macro:.1f}{loops} ({near})"


def _among(slug: str, found: Found, others: Sequence[str], what: str) -> Iterator[str]:
    """Yield how many of the others the row is above, and the names of those it is not above."""
    sides = {other: _sides(slug, other, found) for other in others}
    known = {other: pair for other, pair in sides.items() if pair is not None}
    above = [other for other, (own, theirs) in known.items() if own > theirs]
    below = [_named(slug, other, found) for other, (own, theirs) in known.items() if own < theirs]
    level = [_named(slug, other, found) for other, (own, theirs) in known.items() if own == theirs]
    missing = [NAMES[other] for other in others if other not in known]
    if len(missing) == len(others):
        yield f"no {what} measured"
        return
    count = f"all {len(others)}" if len(above) == len(others) else f"{len(above)} of the {len(others)}"
    yield f"above {count} {what}"
    for word, names in (("level with", level), ("below", below)):
        if names:
            yield f"{word} {', '.join(names)}"
    if missing:
        yield f"not measured: {', '.join(missing)}"


def _each(slug: str, found: Found, others: Sequence[str]) -> Iterator[str]:
    for other in others:
        pair = _sides(slug, other, found)
        if pair is not None:
            yield f"{_word(pair[0] - pair[1])} {_named(slug, other, found)}"


def _against_heuristic(slug: str, found: Found) -> str:
    pair = _sides(slug, BEST, found)
    if pair is None:
        return "no heuristic measured"
    return f"{_word(pair[0] - pair[1])} the best heuristic, {_named(slug, BEST, found)}"


def _named(slug: str, other: str, found: Found) -> str:
    """Return name and value; if the snapshots of the two differ, both values on those they share."""
    own, theirs = side_by_side(found[slug], found[other]) or (0.0, 0.0)
    name = found[other].row if other == BEST else NAMES[other]
    shared = targets(found[slug]) & targets(found[other])
    if targets(found[slug]) == targets(found[other]):
        return f"{name} ({theirs:.1f})"
    return f"{name} ({theirs:.1f} against {own:.1f} on the {len(shared)} snapshots they share)"


def _sides(slug: str, other: str, found: Found) -> tuple[float, float] | None:
    return side_by_side(found[slug], found[other]) if other in found else None


def _word(gap: float) -> str:
    return "above" if gap > 0 else "below" if gap < 0 else "level with"


def _not_both(wins: Sequence[bool]) -> str:
    if len(wins) < 2:
        return "the other block was not removed"
    return "only one block helps" if any(wins) else "neither block helps"
