"""Compare projections of embeddings over time for the map of a run, and communities with Louvain's.

    python benchmarks/projection.py GRAPH… [--methods map,joint-pca] [--seed 0] [--limit 240] [--out FILE]

GRAPH is `uci` or a folder of `dysat snapshots`; the default model is fitted to it. Every projection runs in its own
process, after a small one that compiles what needs compiling, and at most --limit seconds. Libraries that are not
installed are skipped: umap-learn, pacmap, openTSNE. Measured over all steps, in samples of 500 nodes:

    kept 10, kept 30   fraction of the 10 nearest nodes by cosine that are among the 10 or 30 nearest on the map
    trust              trustworthiness of the 10 nearest on the map (scikit-learn's definition)
    agreement          rank correlation of how far a node moves on the map and how far its direction moves, per step
    move, median       mean and median move per step, relative to the root mean square radius of the map
    rerun              mean distance to the map of another seed, aligned by rotation and scale, relative to the same
    MB                 peak memory of the process, with its libraries and the embeddings
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLE, NEAREST = 500, 10
RERUN_SECONDS = 60  # slower projections run once
Arrays = list[NDArray[Any]]


def unit(e: NDArray[Any]) -> NDArray[Any]:
    """Rows of length 1."""
    scaled: NDArray[Any] = e / np.maximum(np.linalg.norm(e, axis=1, keepdims=True), 1e-12)
    return scaled


def the_map(rows: Arrays, seed: int) -> Arrays:
    """The map of dysat."""
    from dysat.report.projection import positions

    return [at[: len(e)].astype(float) for at, e in zip(positions(rows, seed), rows, strict=True)]


def joint_pca(rows: Arrays, seed: int) -> Arrays:
    """Two principal axes of all steps together."""
    mean = np.concatenate(rows).mean(0)
    axes = np.linalg.eigh(sum((e - mean).T @ (e - mean) for e in rows))[1][:, -2:]
    return [(e - mean) @ axes for e in rows]


def aligned_tsne(rows: Arrays, seed: int) -> Arrays:
    """A t-SNE per step, rotated towards that of the step after it."""
    from sklearn.manifold import TSNE

    found: Arrays = []
    for e in reversed(rows):
        y = TSNE(metric="cosine", init="pca", random_state=seed, n_jobs=2).fit_transform(e)
        if found:
            later = found[-1][: len(y)]
            left, _, right = np.linalg.svd((y - y.mean(0)).T @ (later - later.mean(0)))
            y = (y - y.mean(0)) @ left @ right + later.mean(0)
        found.append(y)
    return found[::-1]


def tsne_transform(rows: Arrays, seed: int) -> Arrays:
    """openTSNE of the last step; earlier ones by `transform`."""
    from openTSNE import TSNE

    last = TSNE(metric="cosine", random_state=seed, n_jobs=2).fit(rows[-1])
    return [*(np.asarray(last.transform(e)) for e in rows[:-1]), np.asarray(last)]


def umap_transform(rows: Arrays, seed: int) -> Arrays:
    """UMAP of the last step; earlier ones by `transform`."""
    from umap import UMAP

    last = UMAP(metric="cosine", random_state=seed, n_jobs=1).fit(rows[-1])
    return [*(last.transform(e) for e in rows[:-1]), last.embedding_]


def aligned_umap(rows: Arrays, seed: int) -> Arrays:
    """AlignedUMAP of all steps."""
    from umap import AlignedUMAP

    same = [{i: i for i in range(len(e))} for e in rows[:-1]]
    found: Arrays = list(AlignedUMAP(metric="cosine", random_state=seed).fit(rows, relations=same).embeddings_)
    return found


def pacmap_transform(rows: Arrays, seed: int) -> Arrays:
    """PaCMAP of the last step; earlier ones by `transform`."""
    from pacmap import PaCMAP

    model = PaCMAP(random_state=seed, save_tree=True)
    last = model.fit_transform(rows[-1].copy(), init="pca")
    return [*(model.transform(e.copy(), basis=rows[-1].copy()) for e in rows[:-1]), last]


METHODS: dict[str, tuple[str, Callable[[Arrays, int], Arrays]]] = {
    "map": ("dysat", the_map),
    "joint-pca": ("numpy", joint_pca),
    "tsne-aligned": ("sklearn", aligned_tsne),
    "tsne-transform": ("openTSNE", tsne_transform),
    "umap-transform": ("umap", umap_transform),
    "umap-aligned": ("umap", aligned_umap),
    "pacmap-transform": ("pacmap", pacmap_transform),
}


def peak() -> float:
    """Peak memory of this process in MB."""
    status = Path("/proc/self/status").read_text()  # `ru_maxrss` would include the process that started this one
    return float(status.split("VmHWM:")[1].split()[0]) / 1024


def project(method: str, source: Path, seed: int, out: Path) -> None:
    """Run one method and store its positions, seconds and memory."""
    stored = np.load(source)
    rows = [unit(stored[name]).astype(np.float32) for name in sorted(stored.files)]
    run = METHODS[method][1]
    run([e[:200] for e in rows[-2:]], seed)
    begin = time.perf_counter()
    found = run(rows, seed)
    facts = {"seconds": time.perf_counter() - begin, "MB": peak()}
    np.savez(out, facts=json.dumps(facts), **{f"step{i:04d}": y for i, y in enumerate(found)})


def in_a_process(method: str, source: Path, seed: int, limit: float) -> tuple[dict[str, Any], Arrays] | None:
    """The same in another process; None if it takes too long or fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "positions.npz"
        command = [sys.executable, __file__, "--project", method, str(source), str(seed), str(out)]
        try:
            done = subprocess.run(command, timeout=limit, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        except subprocess.TimeoutExpired:
            print(f"  {method}: not finished after {limit:g} s", flush=True)
            return None
        if done.returncode:
            print(f"  {method}: {done.stderr.strip().splitlines()[-1]}", flush=True)
            return None
        stored = np.load(out)
        return json.loads(str(stored["facts"])), [stored[name] for name in sorted(stored.files) if name != "facts"]


def quality(rows: Arrays, places: Arrays) -> dict[str, float]:
    """Neighbours kept and trustworthiness, means over all steps."""
    rng, found = np.random.default_rng(0), []
    for e, y in zip(rows, places, strict=True):
        n, k = len(e), NEAREST
        sample = np.sort(rng.choice(n, min(n, SAMPLE), replace=False))
        own = np.arange(len(sample)), sample
        similar = e[sample] @ e.T
        similar[own] = -9
        apart = np.square(y[sample, None, 0] - y[:, 0]) + np.square(y[sample, None, 1] - y[:, 1])
        apart[own] = np.inf
        on_map = np.argsort(apart, axis=1)[:, :30]
        rank = np.argsort(np.argsort(-similar, axis=1), axis=1)  # 0 is the most similar
        ranks = np.take_along_axis(rank, on_map, 1)
        too_far = np.maximum(ranks[:, :k] + 1 - k, 0).sum()
        trust = 1 - 2 / (len(sample) * k * (2 * n - 3 * k - 1)) * too_far
        found.append(((ranks[:, :k] < k).sum(1).mean() / k, (ranks < k).sum(1).mean() / k, trust))
    return dict(zip(("kept 10", "kept 30", "trust"), np.mean(found, axis=0).tolist(), strict=True))


def movement(rows: Arrays, places: Arrays, again: Arrays | None) -> dict[str, float]:
    """How far nodes move, and whether those that change move."""
    from scipy.stats import spearmanr

    centred = np.concatenate(places) - np.concatenate(places).mean(0)
    radius = float(np.sqrt(np.square(centred).sum(1).mean()))
    steps = range(len(rows) - 1)
    moves = np.concatenate([np.linalg.norm(places[t + 1][: len(rows[t])] - places[t], axis=1) for t in steps]) / radius
    changes = np.concatenate([np.linalg.norm(rows[t + 1][: len(rows[t])] - rows[t], axis=1) for t in steps])
    found = {"agreement": float(spearmanr(moves, changes)[0]), "move": moves.mean(), "median": np.median(moves)}
    if again is not None:
        other = np.concatenate(again) - np.concatenate(again).mean(0)
        left, sizes, right = np.linalg.svd(other.T @ centred)
        other = other @ left @ right * sizes.sum() / np.square(other).sum()
        found["rerun"] = np.linalg.norm(other - centred, axis=1).mean() / radius
    return {name: float(value) for name, value in found.items()}


def community_facts(graph: Any, seed: int) -> list[dict[str, Any]]:
    """Modularity and seconds of our communities and, if networkx is installed, of Louvain's."""
    from dysat.features.link_memory import decayed_links
    from dysat.report.projection import communities, modularity

    matrix, rows = decayed_links(graph.snapshots, 1.0, weighted=False).matrix(), []

    def add(name: str, groups: NDArray[Any], begin: float) -> None:
        seconds = round(time.perf_counter() - begin, 2)
        value = round(float(modularity(matrix, groups)), 3)
        rows.append({"method": name, "groups": int(groups.max()) + 1, "modularity": value, "seconds": seconds})
        print(f"  {rows[-1]}", flush=True)

    begin = time.perf_counter()
    add("communities", communities(graph.snapshots, seed=seed), begin)
    if find_spec("networkx") is None:
        return rows
    import networkx as nx

    whole, begin = nx.from_scipy_sparse_array(matrix), time.perf_counter()
    groups = np.zeros(matrix.shape[0], dtype=int)
    for number, members in enumerate(nx.community.louvain_communities(whole, seed=seed)):
        groups[list(members)] = number
    add("networkx Louvain", groups, begin)
    largest = np.argsort(np.argsort(-np.bincount(groups), kind="stable"), kind="stable")[groups]
    add("networkx Louvain, all but 7 as one", np.minimum(largest, 7), begin)
    return rows


def measure(name: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure all methods on one graph."""
    import dysat

    graph = dysat.load_dataset(name) if name == "uci" else dysat.DynamicGraph.load(name)
    model, source = dysat.DySAT(seed=args.seed).fit(graph), folder / "embeddings.npz"
    rows = [unit(model.embed(step).cpu().numpy()) for step in range(len(graph))]
    np.savez(source, **{f"step{i:04d}": e for i, e in enumerate(rows)})
    print(f"{Path(name).name}: {len(rows[-1]):,} nodes, {len(rows)} steps", flush=True)
    results = []
    for method in args.methods.split(","):
        if find_spec(METHODS[method][0]) is None:
            print(f"  {method}: {METHODS[method][0]} is not installed", flush=True)
            continue
        if (found := in_a_process(method, source, args.seed, args.limit)) is None:
            results.append({"method": method, "finished": False, "limit": args.limit})
            continue
        facts, places = found
        again = None
        if facts["seconds"] < RERUN_SECONDS and (other := in_a_process(method, source, args.seed + 1, args.limit)):
            again = other[1]
            facts["seconds"] = min(facts["seconds"], other[0]["seconds"])  # others use the machine too
        facts = {**quality(rows, places), **movement(rows, places, again), **facts}
        results.append({"method": method, **{key: round(value, 3) for key, value in facts.items()}})
        print(f"  {results[-1]}", flush=True)
    return {
        "graph": Path(name).name,
        "nodes": len(rows[-1]),
        "steps": len(rows),
        "projections": results,
        "communities": community_facts(graph, args.seed),
    }


def main() -> None:
    """Measure, print, and append to a file."""
    if sys.argv[1:2] == ["--project"]:
        method, source, seed, out = sys.argv[2:]
        project(method, Path(source), int(seed), Path(out))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    from dysat.system.hardware import hardware

    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(name, args, Path(folder)) for name in args.graphs]
    names = " ".join(Path(name).name for name in args.graphs)
    command = f"benchmarks/projection.py {names} --methods {args.methods} --limit {args.limit:g}"
    found = {"command": command, "seed": args.seed, "date": datetime.now(UTC).date().isoformat()}
    found |= {"hardware": hardware(), "graphs": rows}
    if args.out is not None:
        runs = json.loads(args.out.read_text())["runs"] if args.out.exists() else []
        args.out.write_text(json.dumps({"runs": [*runs, found]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
