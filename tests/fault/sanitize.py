"""Run everything that calls native.c with the AddressSanitizer and the UndefinedBehaviorSanitizer; `make sanitize`.

native.c is compiled with both sanitizers, and the tests of its callers run in a Python that has preloaded them, with
every array in memory that they watch (guarded.py), so an access beyond its end ends the process with a report. Then
come random edge cases of every function, and graph folders with random hostile content and matching checksums, which
are either refused or used by a model. Any report, failed test or other exception makes the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
TESTS = (
    *("tests/system/test_compiled.py", "tests/nn/ops", "tests/nn/test_trees.py", "tests/nn/test_dropout.py"),
    *("tests/nn/test_structural.py", "tests/nn/test_temporal.py", "tests/sampling", "tests/features"),
    *("tests/models/forecast/test_boosting.py", "tests/models/forecast/test_candidates.py"),
    *("tests/models/test_dysat_forecast_edges.py", "tests/data/test_hostile_graphs.py"),
)
REPORTS = ("AddressSanitizer", "runtime error:")
HEADS, WIDTHS = (1, 2, 3, 8, 16, 256), (1, 3, 4, 5, 8, 16, 17)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the callers of native.c under sanitizers.")
    parser.add_argument("--cases", type=int, default=200, help="random cases of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", action="store_true", help="only run the cases, in this process")
    parser.add_argument("--canary", action="store_true", help="only access memory out of bounds, in this process")
    options = parser.parse_args()
    if options.corpus:
        return corpus(options.cases, options.seed)
    if options.canary:
        return canary()
    with tempfile.TemporaryDirectory() as folder:
        environment = sanitized(Path(folder))
        if not watched([sys.executable, __file__, "--canary"], environment, show=False):
            sys.exit("an access out of bounds was not reported: the sanitizers do not work here")
        own = [sys.executable, __file__, "--corpus", "--cases", str(options.cases), "--seed", str(options.seed)]
        tests = [sys.executable, "-m", "pytest", "-p", "guarded", "-q", "-x", "-n", "0", "-m", "not slow", *TESTS]
        return max(watched(command, environment) for command in (own, tests))


def sanitized(folder: Path) -> dict[str, str]:
    """An environment in which dysat compiles native.c with sanitizers, and Python has loaded them."""
    compiler = os.environ.get("CC", "gcc")
    found = [
        subprocess.run([*shlex.split(compiler), f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        for name in ("libasan.so", "libubsan.so")
    ]
    libraries = [done.stdout.strip() for done in found]
    if not all(Path(library).is_absolute() for library in libraries):
        sys.exit(f"{compiler} has no AddressSanitizer here: install its libasan and libubsan")
    return {
        **os.environ,
        "CC": f"{compiler} {SANITIZE}",
        "XDG_CACHE_HOME": str(folder),  # its library is compiled again, and does not replace the usual one
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("src", "tests/support", "tests/fault")),
        "OMP_NUM_THREADS": "2",
    }  # fmt: skip


def watched(command: list[str], environment: dict[str, str], *, show: bool = True) -> int:
    """Run a command and show what it prints; 1 if it fails or a sanitizer reports anything."""
    lines = []
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            lines.append(line)
            if show:
                sys.stdout.write(line)
                sys.stdout.flush()
    reported = any(word in line for line in lines for word in REPORTS)
    if not show:
        return int(reported)
    sys.stdout.write("sanitizers: a report\n" if reported else "")
    return 1 if reported or process.returncode else 0


def canary() -> int:
    """Follow an index beyond the end of an array, which must be reported."""
    import guarded  # noqa: F401
    import torch

    from dysat.nn.ops import cpu
    from dysat.sampling.blocks import Pattern

    beyond = Pattern.from_counts(torch.tensor([1]), torch.tensor([5]), 6)
    cpu.weighted_sum(torch.ones(1, 1), torch.ones(5, 1, 3), beyond, None)
    return 0


# ---- cases ----


def corpus(cases: int, seed: int) -> int:
    """Run random cases of all kinds; an exception ends it."""
    import guarded  # noqa: F401
    import numpy as np

    from dysat.system.compiled import native

    if native() is None:
        sys.exit("native.c was not compiled")
    rng = np.random.default_rng(seed)
    for case in range(cases):
        for kind in (patterns, histories, contexts, trees, ranks, paths):
            kind(rng)
        if case % 4 == 0:
            graph_folders(rng)
    sys.stdout.write(f"sanitizers: {cases} cases of each function, {-(-cases // 4)} hostile graph folders\n")
    return 0


def random_pattern(rng: Any, receivers: int, senders: int) -> Any:
    """A pattern with empty receivers, short ones and a long one."""
    import torch

    from dysat.sampling.blocks import Pattern

    counts = rng.choice([0, 0, 1, 2, 5], receivers) if senders else rng.integers(0, 1, receivers)
    if senders and receivers and rng.random() < 0.3:
        counts[rng.integers(receivers)] = rng.integers(100, 3000)
    entries = torch.from_numpy(rng.integers(0, max(1, senders), int(counts.sum())))
    return Pattern.from_counts(torch.from_numpy(counts.astype("int64")), entries, senders)


def patterns(rng: Any) -> None:
    """All operations over the entries of a pattern, with and without an order, and what surrounds them."""
    import torch

    from dysat.nn.ops import cpu
    from dysat.nn.ops.reference import reference_pair_dot, reference_weighted_sum

    heads, width = int(rng.choice(HEADS)), int(rng.choice(WIDTHS))
    pattern = random_pattern(rng, int(rng.integers(0, 40)), int(rng.integers(0, 30)))
    entries, receivers, senders = pattern.num_entries, pattern.num_receivers, pattern.num_senders
    alpha, x = torch.randn(entries, heads), torch.randn(senders, heads, width)
    y, order = torch.randn(receivers, heads, width), pattern.by_sender
    found = cpu.weighted_sum(alpha, x, pattern, None, first=y if rng.random() < 0.5 else None, elu=True)
    if found.isnan().any():
        raise ValueError("NaN from finite numbers")
    expected = reference_weighted_sum(alpha.double(), x.double(), pattern)
    torch.testing.assert_close(cpu.weighted_sum(alpha, x, pattern, None).double(), expected, rtol=1e-3, atol=1e-3)
    cpu.weighted_sum(alpha, y, pattern.transposed, order)
    expected = reference_pair_dot(y.double(), x.double(), pattern)
    torch.testing.assert_close(cpu.pair_dot(y, x, pattern).double(), expected, rtol=1e-3, atol=1e-3)
    for own, by in ((pattern, None), (pattern.transposed, order)):
        beta = cpu.softmax(alpha, own, by)
        cpu.softmax_backward(beta, alpha, own, by)
        cpu.segment_sum(alpha, own, by)
    wide = torch.randn(max(senders, receivers), 2 * heads)  # rows that are not contiguous
    logits = cpu.entry_logits(wide[:senders, :heads], wide[:receivers, heads:], torch.rand(entries), 0.2, pattern)
    cpu.entry_logits_backward(alpha, logits, torch.rand(entries), 0.2)
    a = torch.randn(int(rng.integers(1, 4)), heads, width)
    grad = cpu.head_dots(y, a).view(receivers, len(a), heads)
    cpu.head_dots_backward(grad, y, a, y if rng.random() < 0.5 else None)
    flat = torch.randn(int(rng.integers(0, 100)))
    cpu.elu_backward(flat, cpu.dropout(flat, int(rng.integers(-(2**63), 2**63 - 1)), int(rng.integers(0, 65536)), 2.0))


def histories(rng: Any) -> None:
    """Attention over histories and its gradients, with and without positions and dropout."""
    import torch

    from dysat.nn.ops import cpu
    from dysat.nn.ops.history import History
    from dysat.sampling.blocks import Pattern

    heads, width, steps = int(rng.choice(HEADS[:5])), int(rng.choice(WIDTHS)), int(rng.integers(1, 6))
    past = random_pattern(rng, int(rng.integers(0, 20)), int(rng.integers(0, 30)))
    at = torch.from_numpy(rng.integers(0, steps, past.num_entries))
    own = Pattern.lookup(torch.zeros(past.num_receivers, dtype=torch.int64), past.num_senders)
    history = History(own, torch.zeros(past.num_receivers, dtype=torch.int64), past, at, steps)
    q = torch.randn(past.num_receivers, heads, width)
    kv = torch.randn(past.num_senders + steps * int(rng.integers(0, 2)), 2 * heads * width)
    keep = torch.rand(past.num_entries, heads) if rng.random() < 0.5 else None
    z, beta = cpu.history_attention(q, kv, history, keep)
    if z.isnan().any():
        raise ValueError("NaN from finite numbers")
    cpu.history_attention_backward(torch.randn_like(z), z, q, kv, history, keep, beta)


def contexts(rng: Any) -> None:
    """Contexts in random walks, some of which never leave their node."""
    import torch

    from dysat.sampling.walks import Contexts

    rows, length = int(rng.integers(1, 12)), int(rng.integers(1, 9))
    walks = torch.from_numpy(rng.integers(0, rows, (int(rng.integers(0, 15)), length)))
    walks[: len(walks) // 3] = walks[: len(walks) // 3, :1]
    found = Contexts.from_walks(walks, rows, int(rng.integers(0, 12)))
    batch = torch.from_numpy(rng.integers(0, rows, int(rng.integers(0, 9))))
    drawn = found.draw(batch, int(rng.integers(1, 5)), generator=torch.Generator().manual_seed(0))
    if drawn.numel() and not -1 <= int(drawn.min()) <= int(drawn.max()) < rows:
        raise ValueError(f"a context outside the {rows} rows")


def trees(rng: Any) -> None:
    """Trees grown on few rows, constant columns and both classes, and what they predict."""
    import numpy as np

    from dysat.models.forecast.boosting import boosted_trees

    size = int(rng.integers(2, 200))
    x = rng.normal(size=(size, int(rng.integers(1, 6)))).round(int(rng.integers(0, 3)))
    y = rng.random(size) < 0.5
    y[:2] = True, False
    grown = boosted_trees(x, y, rounds=int(rng.integers(0, 4)), depth=int(rng.integers(1, 5)), seed=0)
    for rows in (x, x[:0], x[:1], np.full_like(x, np.nan), np.full_like(x, np.inf)):
        if not np.isfinite(grown.sum(rows)).all():
            raise ValueError("a prediction that is not finite")


def ranks(rng: Any) -> None:
    """Fractional ranks of values, also NaN and infinite ones, among any number of sorted ones."""
    import numpy as np

    from dysat.features.rounding import fractional_ranks, narrow

    columns = int(rng.integers(1, 5))
    ordered = np.sort(narrow(rng.normal(size=(int(rng.integers(0, 20)), columns))), axis=0)
    values = rng.normal(size=(int(rng.integers(0, 20)), columns))
    values[rng.random(values.shape) < 0.2] = rng.choice([np.nan, np.inf, -np.inf])
    found = fractional_ranks(values, ordered)
    if not ((found >= 0) & (found <= 1)).all():
        raise ValueError("a rank outside 0 … 1")


def paths(rng: Any) -> None:
    """Features of pairs, among them three-step paths, in small random graphs."""
    import numpy as np

    from dysat.features.pair_history import pair_history

    graph = random_graph(rng)
    pairs = np.sort(rng.integers(0, graph.num_nodes, (int(rng.integers(0, 12)), 2)), axis=1)
    columns, _ = pair_history(graph.snapshots, True).features(pairs)
    if not np.isfinite(columns).all():
        raise ValueError("a feature that is not finite")


def random_graph(rng: Any) -> Any:
    """Up to four snapshots over up to a dozen nodes, some without links."""
    from small import make_graph

    size = int(rng.integers(2, 12))
    links = [rng.integers(0, size, (int(rng.choice([0, 1, 4, 30])), 2)).tolist() for _ in range(rng.integers(1, 5))]
    return make_graph([size] * len(links), links)


def graph_folders(rng: Any) -> None:
    """A graph folder with one hostile number: it is refused, or a model learns from it and scores by finite numbers."""
    import numpy as np
    from hostile import edit_graph
    from small import FORECASTING, meetings

    import dysat
    from dysat.data import stored
    from dysat.errors import DysatError

    def edit(manifest: dict[str, Any], arrays: dict[str, Any]) -> None:
        array = arrays[str(rng.choice(["rows", "offsets", "neighbours", "weights"]))]
        numbers = [-7, -1, 0, 1, 5, 7, 8, 9, 10**9, 2**31, 2**62, -(2**63)]
        array[rng.integers(len(array))] = rng.choice(numbers)

    before = stored.SAMPLED
    stored.SAMPLED = int(rng.choice([1, before]))  # 1: as in a large graph, of which only some links are looked up
    try:
        with tempfile.TemporaryDirectory() as folder:
            meetings().save(Path(folder) / "graph")
            edit_graph(Path(folder) / "graph", edit)
            graph = dysat.DynamicGraph.load(Path(folder) / "graph")
            model = dysat.DySAT(**FORECASTING | {"epochs": 1}).fit(graph)
            if not np.isfinite([link.score for link in model.top_links(5)]).all():
                raise ValueError("a score that is not finite")
    except DysatError:
        pass
    finally:
        stored.SAMPLED = before


if __name__ == "__main__":
    sys.exit(main())
