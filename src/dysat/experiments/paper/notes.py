"""How the figures of a table were measured: with what, when, on which snapshots, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dysat.data.datasets import DATASETS as FILES
from dysat.experiments.paper.catalogue import BOOSTING, DATASETS
from dysat.experiments.paper.lineup import BEST, NAMES, targets
from dysat.experiments.paper.records import Record

LESS_PATIENT = 10  # epochs without a better one, in the preset of DySAT (program) for UCI
Everything = Mapping[str, Mapping[str, Record]]  # by dataset and row


def how_measured(
    datasets: Sequence[str], rows: Sequence[str], groups: Sequence[Sequence[str]], found: Everything
) -> Iterator[str]:
    """All that a reader must know beside the figures."""
    best = "the best of ours" if len(groups) == 1 else "the best of ours in each group"
    best += " among the paper's nine methods" if BEST in rows else ""
    yield f"AUC in per cent: ours ± standard deviation (the paper's ± its own, difference); bold: {best}"
    yield f"ours is the deviation{_divisions(found)} of the examples, not of training anew with another seed"
    if "enron" in datasets or "enron-loops" in datasets:
        yield (
            "Enron: the paper counts links of a node with itself, which can never be negatives; its figures are to be "
            "held against ours with self-loops counted"
        )
    chosen = [f"{DATASETS[name]}: {found[name][BEST].row}" for name in datasets if BEST in found[name]]
    if chosen:
        yield f"best heuristic by validation AUC, of those that learn from no transition: {'; '.join(chosen)}"
    for name in datasets:
        yield from _missing(name, rows, found[name])
        yield from _fewer_steps(name, found[name])
    yield from _chosen_by_test(found)
    seeds = {r.about.get("request", {}).get("seed") for records in found.values() for r in records.values()}
    if seeds - {0, None}:
        yield "presets were chosen with seed 0, whose validation links are test links of other seeds"
    yield from where_measured(record.about for records in found.values() for record in records.values())


def _divisions(found: Everything) -> str:
    repeats = {r.about.get("request", {}).get("repeats") for records in found.values() for r in records.values()}
    known = sorted(number for number in repeats if number is not None)
    return f" over {' or '.join(map(str, known))} divisions" if known else ""


def _missing(dataset: str, rows: Sequence[str], found: Mapping[str, Record]) -> Iterator[str]:
    missing = [NAMES[slug] for slug in rows if slug not in found]
    if not found:
        yield f"{DATASETS[dataset]}: nothing was measured"
    elif missing:
        yield f"{DATASETS[dataset]}: not measured: {', '.join(missing)}"


def _fewer_steps(dataset: str, found: Mapping[str, Record]) -> Iterator[str]:
    """Rows that have not all snapshots the paper predicts, those with the same ones together; then why."""
    paper = frozenset(FILES[dataset.removesuffix("-loops")].predicted)
    together: dict[frozenset[int], list[str]] = {}
    reasons: dict[tuple[str, str], list[str]] = {}
    for slug, record in found.items():
        if targets(record) != paper:
            together.setdefault(targets(record), []).append(NAMES[slug])
        for target, why in record.left_out.items():
            reasons.setdefault((target, why), []).append(NAMES[slug])
    for measured, names in together.items():
        which = _ranges(measured)
        of = f"{len(measured)} of the {len(paper)} predicted snapshots ({which})"
        yield f"{DATASETS[dataset]}: {of}: {_who(names, found)}"
    for (target, why), names in reasons.items():
        yield f"{DATASETS[dataset]}, snapshot {target} left out: {why} ({_who(names, found)})"


def _chosen_by_test(found: Everything) -> Iterator[str]:
    """What flatters a row: settings that were not chosen on validation alone."""
    uci = found.get("uci", {})
    patient = [NAMES[s] for s, r in uci.items() if r.method == "dysat" and r.options.get("patience") == LESS_PATIENT]
    if patient:
        why = f"a patience of {LESS_PATIENT} was tried because longer ones had done worse on test"
        yield f"UCI: {why} (docs/settings.md): {_who(patient, uci)}"
    if any(BOOSTING in records for records in found.values()):
        yield "gradient boosting: its settings were chosen on test figures of these datasets (docs/evaluation.md)"


def _ranges(numbers: Iterable[int]) -> str:
    """`1, 4–7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _who(names: Sequence[str], found: Mapping[str, Record]) -> str:
    return "all rows" if len(names) == len(found) > 1 else ", ".join(names)


def where_measured(abouts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each machine, with the days and the seeds."""
    machines: dict[str, tuple[set[str], set[str]]] = {}
    for about in abouts:
        machine = machine_name(about)
        days, seeds = machines.setdefault(machine, (set(), set()))
        days |= {str(about["date"])[:10]} if "date" in about else set()
        seed = about.get("request", about).get("seed")
        seeds |= {str(seed)} if seed is not None else set()
    for machine, (days, seeds) in machines.items():
        when = " to ".join(dict.fromkeys([min(days), max(days)])) if days else ""
        parts = [part for part in (when, machine and f"on {machine}") if part]
        said = " ".join(["measured", *parts]) if parts else ""
        seeded = f"seed {', '.join(sorted(seeds))}" if seeds else ""
        if said or seeded:
            yield "; ".join(part for part in (said, seeded) if part)


def machine_name(about: Mapping[str, Any]) -> str:
    """The part of a machine that did the work, and the version of torch."""
    hardware = about.get("hardware") or {}
    if isinstance(hardware, str):
        return hardware
    cpu = f"{hardware['cpu']}, {hardware.get('cores', '?')} cores" if hardware.get("cpu") else ""
    gpu = str(hardware.get("gpu") or "") if about.get("device") != "cpu" else ""
    version = f"torch {hardware['torch']}" if hardware.get("torch") else ""
    return ", ".join(part for part in (gpu or cpu, version) if part)
