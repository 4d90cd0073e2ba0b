"""The five tables of the paper: every measured value next to the published one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dysat.experiments.paper.catalogue import ABLATIONS, BASELINES, DATASETS, DYSAT, INCSAT, ROWS, Published
from dysat.experiments.paper.cells import Cell, Table
from dysat.experiments.paper.lineup import BEST, LINEUP, NAMES, check_datasets, find, heuristics
from dysat.experiments.paper.notes import how_measured
from dysat.experiments.paper.records import NothingMeasuredError, Record, Results
from dysat.experiments.paper.verdicts import Found, Known, ablation, increments, standing

# Nodes, links and time steps of the paper's Table 1.
STATISTICS = {
    "enron": (143, 2_347, 10),
    "uci": (1_809, 16_822, 13),
    "yelp": (6_569, 95_361, 12),
    "ml-10m": (20_537, 43_760, 13),
}
NINE = (*BASELINES, *DYSAT)  # the paper's nine methods; DySAT has two rows
Verdict = Callable[[str, Found, Known], Iterator[str]]


def table1(results: Results, datasets: Iterable[str] = DATASETS) -> Table:
    """Make the table of the datasets."""
    rows = []
    for dataset in (name for name in check_datasets(datasets) if name in STATISTICS):
        found = results.facts("datasets", dataset, "counts")
        if found is None:
            continue
        nodes, links, steps = STATISTICS[dataset]
        first, last = found["predicted"]
        counts = {
            "nodes": (found["nodes"], nodes),
            "links, summed over snapshots": (found["links"], links),
            "distinct links": (found["distinct_links"], links),
            "self-loops": (found["self_loops"], None),
            "snapshots": (found["snapshots"], steps),
            "predicted snapshots": (last - first + 1, steps),
        }
        cells = (Cell(dataset, dataset, what, ours, paper=its, count=True) for what, (ours, its) in counts.items())
        rows.append((DATASETS[dataset], tuple(cells)))
    if not rows:
        raise NothingMeasuredError("table1: no dataset was counted")
    columns = tuple(cell.measure for cell in rows[0][1])
    return Table("table1", "Table 1: the datasets", "dataset", columns, tuple(rows), tuple(_statistics_notes(rows)))


def _statistics_notes(rows: Sequence[tuple[str, tuple[Cell, ...]]]) -> Iterator[str]:
    yield "our count (the paper's, difference)"
    yield from _meant(rows, "links", ("links, summed over snapshots", "distinct links"))
    yield from _meant(rows, "time steps", ("snapshots", "predicted snapshots"))
    named = {name for name, _ in rows}
    if "Enron" in named:
        yield (
            "Enron: the paper's links include self-loops; its appendix has 16 snapshots and evaluates the last 11, but "
            "its Table 1 has 10 time steps"
        )
    if "Yelp" in named:
        yield "Yelp: the published file has 16 snapshots, and the last 12 are predicted; the paper has 12"


def _meant(rows: Sequence[tuple[str, tuple[Cell, ...]]], word: str, measures: tuple[str, str]) -> Iterator[str]:
    """Yield which of our two counts agrees with the single count of the paper."""
    by_measure: dict[str, list[str]] = {}
    for name, cells in rows:
        fitting = [cell.measure for cell in cells if cell.measure in measures and cell.difference == 0]
        by_measure.setdefault(" and ".join(fitting) or "neither", []).append(name)
    counts = "; ".join(f"{', '.join(names)}: {measure}" for measure, names in by_measure.items())
    if counts:
        yield f"the paper's “# {word}” agrees with: {counts}"


def table2(results: Results, datasets: Iterable[str] = DATASETS) -> Table:
    """Make the table of single-step link prediction."""
    title = "Table 2: single-step link prediction"
    return _table("table2", title, results, "single-step", "single_step", datasets, LINEUP, [NINE], standing)


def table3(results: Results, datasets: Iterable[str] = DATASETS) -> Table:
    """Make the table of DySAT without one of its blocks."""
    groups = [
        [whole, *(slug for slug, row in ABLATIONS.items() if row.preset == row_.preset)]
        for whole, row_ in DYSAT.items()
    ]
    rows = [slug for group in groups for slug in group]
    title = "Table 3: DySAT without one of its blocks"
    return _table("table3", title, results, "single-step", "ablation", datasets, rows, groups, ablation)


def table4(results: Results, datasets: Iterable[str] = DATASETS) -> Table:
    """Make the table of links that were absent from the snapshot before."""
    title = "Table 4: new links"
    return _table("table4", title, results, "new-links", "new_link", datasets, LINEUP, [NINE], standing)


def table5(results: Results, datasets: Iterable[str] = DATASETS) -> Table:
    """Make the table of IncSAT, which takes in each snapshot once."""
    rows = [*DYSAT, "dyngem", *INCSAT]
    title = "Table 5: IncSAT"
    return _table("table5", title, results, "single-step", "incsat", datasets, rows, [rows], increments)


TABLES = {"table1": table1, "table2": table2, "table3": table3, "table4": table4, "table5": table5}


def _table(
    name: str,
    title: str,
    results: Results,
    study: str,
    published: str,
    datasets: Iterable[str],
    rows: Sequence[str],
    groups: Sequence[Sequence[str]],
    verdict: Verdict,
) -> Table:
    """Make a table of macro- and micro-AUC of the rows on every dataset; our best value of each group is marked."""
    asked = check_datasets(datasets)
    found: dict[str, dict[str, Record]] = {}
    known: dict[str, dict[str, Published]] = {}
    for dataset in asked:
        records = {slug: find(results, study, dataset, slug) for slug in rows}
        figures = {slug: ROWS[slug].figures(published, dataset) for slug in rows if slug != BEST}
        found[dataset] = {slug: record for slug, record in records.items() if record is not None}
        known[dataset] = {slug: its for slug, its in figures.items() if its is not None}
    columns = [
        _best([_cell(dataset, slug, measure, found, known) for slug in rows], groups)
        for dataset in asked
        for measure in ("macro-AUC", "micro-AUC")
    ]
    titles = [f"{DATASETS[dataset]}, {measure}" for dataset in asked for measure in ("macro", "micro")]
    lines = zip((NAMES[slug] for slug in rows), zip(*columns, strict=True), strict=True)
    return Table(
        name=name,
        title=title,
        corner="method",
        columns=tuple(titles),
        rows=tuple(lines),
        notes=(
            *(_heuristics(results, study, asked) if BEST in rows else ()),
            *how_measured(asked, rows, groups, found),
        ),
        verdicts=tuple(line for dataset in asked for line in verdict(dataset, found[dataset], known[dataset])),
    )


def _heuristics(results: Results, study: str, datasets: Iterable[str]) -> Iterator[str]:
    """Yield the values of all heuristics, since only the best one has a row."""
    for dataset in datasets:
        highest_first = sorted(heuristics(results, study, dataset), key=lambda record: -record.macro)
        known = [f"{record.row} {100 * record.macro:.2f}" for record in highest_first]
        if known:
            yield f"{DATASETS[dataset]}, macro-AUC of all heuristics: {', '.join(known)}"


def _cell(
    dataset: str,
    slug: str,
    measure: str,
    found: Mapping[str, Mapping[str, Record]],
    known: Mapping[str, Mapping[str, Published]],
) -> Cell:
    record, its = found[dataset].get(slug), known[dataset].get(slug)
    cell = Cell(dataset, slug, measure)
    macro = measure == "macro-AUC"
    if its is not None:
        paper, paper_sd = (its.macro, its.macro_std) if macro else (its.micro, its.micro_std)
        cell = replace(cell, paper=paper, paper_sd=paper_sd)
    if record is None:
        return cell
    ours, ours_sd = (record.macro, record.macro_sd) if macro else (record.micro, record.micro_sd)
    return replace(
        cell,
        ours=100 * ours,
        ours_sd=None if ours_sd is None else 100 * ours_sd,
        steps=len(record.steps),
        left_out=record.left_out,
        method=record.row if slug == BEST else "",
    )


def _best(column: Sequence[Cell], groups: Sequence[Sequence[str]]) -> list[Cell]:
    """Return the cells with our highest value of each group marked, as printed."""
    tops: dict[str, float] = {}
    for group in groups:
        ours = [cell.ours for cell in column if cell.row in group and cell.ours is not None]
        tops |= {slug: round(max(ours), 2) for slug in group if ours}
    return [replace(cell, best=cell.ours is not None and round(cell.ours, 2) == tops.get(cell.row)) for cell in column]
