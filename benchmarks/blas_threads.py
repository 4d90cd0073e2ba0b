"""Time eigenvectors with one BLAS thread per core, and with one per 2,000 nodes (`dysat.system.parallel.process`).

    python benchmarks/blas_threads.py [--out results/blas_threads.json]

Computes 64 leading eigenvectors of random graphs with eight links per node; both variants alternate, median of five.
The result is appended to the --out file.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

SIZES, REPEATS = (500, 2_000, 8_000, 20_000), 5


def seconds(matrix: Any) -> float:
    """Seconds of one call."""
    from dysat.features.eigenvectors import lanczos

    begin = time.perf_counter()
    lanczos(matrix, 64, tol=1e-2)
    return time.perf_counter() - begin


def measure() -> dict[str, Any]:
    """Measure both variants at every size."""
    import numpy as np
    import scipy.linalg  # noqa: F401
    from scipy.sparse import coo_array, csr_array
    from threadpoolctl import ThreadpoolController

    from dysat.system.hardware import hardware
    from dysat.system.parallel.process import few_blas_threads

    rng, rows = np.random.default_rng(0), []
    for size in SIZES:
        ends = (size * rng.random((2, 8 * size)) ** 2).astype(int)  # some nodes have many links
        half = coo_array((np.ones(8 * size), (ends[0], ends[1])), shape=(size, size)).tocsr()
        matrix, found = csr_array(half + half.T), []
        for _ in range(REPEATS):
            every = seconds(matrix)
            with few_blas_threads(size):
                found.append((every, seconds(matrix)))
        every, few = (round(median(column), 3) for column in zip(*found, strict=True))
        rows.append({"nodes": size, "a thread per core": every, "few threads": few})
    threads = max(each["num_threads"] for each in ThreadpoolController().select(internal_api="openblas").info())
    return {"threads": threads, "date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "rows": rows}


def main() -> None:
    """Measure, print, and append to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = measure()
    print(json.dumps(found, indent=1))
    if args.out is not None:
        runs = json.loads(args.out.read_text())["runs"] if args.out.exists() else []
        text = json.dumps({"command": "benchmarks/blas_threads.py", "runs": [*runs, found]}, indent=1)
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
