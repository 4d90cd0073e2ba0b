"""Notes below a table: how, when and on which snapshots it was measured, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dysat.data.datasets import DATASETS as FILES
from dysat.experiments.paper.catalogue import BOOSTING, DATASETS
from dysat.experiments.paper.lineup import BEST, NAMES, targets
from dysat.experiments.paper.records import Record

SHORT_PATIENCE = 10  # in the preset of dysat:program for UCI
Records = Mapping[str, Mapping[str, Record]]  # by dataset and row


def how_measured(
    datasets: Sequence[str], rows: Sequence[str], groups: Sequence[Sequence[str]], found: Records
) -> Iterator[str]:
    """Yield the notes of a table."""
    best = "our best value" if len(groups) == 1 else "our best value in each group"
    best += " among the paper's nine methods" if BEST in rows else ""
    yield f"AUC in per cent: our mean ± standard deviation (the paper's, difference); bold: {best}"
    yield f"our standard deviation is over {_splits(found)} of the examples, not over training with different seeds"
    if "enron" in datasets or "enron-loops" in datasets:
        yield (
            "Enron: the paper counts self-loops as links, although negatives are never self-loops; compare its values "
            "with ours that count self-loops"
        )
    chosen = [f"{DATASETS[name]}: {found[name][BEST].row}" for name in datasets if BEST in found[name]]
    if chosen:
        yield f"best heuristic by validation AUC, without those trained on past transitions: {'; '.join(chosen)}"
    for name in datasets:
        yield from _missing(name, rows, found[name])
        yield from _fewer_steps(name, found[name])
    yield from _chosen_by_test(found)
    seeds = {r.about.get("request", {}).get("seed") for records in found.values() for r in records.values()}
    if seeds - {0, None}:
        yield "presets were chosen with seed 0; its validation links are test links for other seeds"
    yield from where_measured(record.about for records in found.values() for record in records.values())


def _splits(found: Records) -> str:
    repeats = {r.about.get("request", {}).get("repeats") for records in found.values() for r in records.values()}
    known = sorted(number for number in repeats if number is not None)
    return f"{' or '.join(map(str, known))} random splits" if known else "random splits"


def _missing(dataset: str, rows: Sequence[str], found: Mapping[str, Record]) -> Iterator[str]:
    missing = [NAMES[slug] for slug in rows if slug not in found]
    if not found:
        yield f"{DATASETS[dataset]}: nothing was measured"
    elif missing:
        yield f"{DATASETS[dataset]}: not measured: {', '.join(missing)}"


def _fewer_steps(dataset: str, found: Mapping[str, Record]) -> Iterator[str]:
    """Yield rows that lack predicted snapshots of the paper, grouped by snapshots, and the reasons."""
    paper = frozenset(FILES[dataset.removesuffix("-loops")].predicted)
    together: dict[frozenset[int], list[str]] = {}
    reasons: dict[tuple[str, str], list[str]] = {}
    for slug, record in found.items():
        if targets(record) != paper:
            together.setdefault(targets(record), []).append(NAMES[slug])
        for target, why in record.left_out.items():
            reasons.setdefault((target, why), []).append(NAMES[slug])
    for measured, names in together.items():
        count = f"{len(measured)} of the {len(paper)} predicted snapshots ({_ranges(measured)})"
        yield f"{DATASETS[dataset]}: {count}: {_join_rows(names, found)}"
    for (target, why), names in reasons.items():
        yield f"{DATASETS[dataset]}, snapshot {target} left out: {why} ({_join_rows(names, found)})"


def _chosen_by_test(found: Records) -> Iterator[str]:
    """Yield rows whose settings were not chosen on validation links alone, which flatters them."""
    uci = found.get("uci", {})
    patient = [NAMES[s] for s, r in uci.items() if r.method == "dysat" and r.options.get("patience") == SHORT_PATIENCE]
    if patient:
        why = f"patience {SHORT_PATIENCE} was tried because longer patience had given worse test results"
        yield f"UCI: {why} (docs/settings.md): {_join_rows(patient, uci)}"
    if any(BOOSTING in records for records in found.values()):
        yield "gradient boosting: its settings were chosen on test results of these datasets (docs/evaluation.md)"


def _ranges(numbers: Iterable[int]) -> str:
    """Format numbers as ranges, like `1, 4–7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _join_rows(names: Sequence[str], found: Mapping[str, Record]) -> str:
    return "all rows" if len(names) == len(found) > 1 else ", ".join(names)


def where_measured(abouts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each machine, with dates and seeds."""
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
    """Return the GPU or CPU that did the work, and the version of torch."""
    hardware = about.get("hardware") or {}
    if isinstance(hardware, str):
        return hardware
    cpu = f"{hardware['cpu']}, {hardware.get('cores', '?')} cores" if hardware.get("cpu") else ""
    gpu = str(hardware.get("gpu") or "") if about.get("device") != "cpu" else ""
    version = f"torch {hardware['torch']}" if hardware.get("torch") else ""
    return ", ".join(part for part in (gpu or cpu, version) if part)
