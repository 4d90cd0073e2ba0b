"""Write the tables of docs/evaluation.md from the results.json files of `dysat evaluate`.

(run the commands of docs/evaluation.md)
cp evaluation/results.json results/evaluation_uci.json
python benchmarks/evaluation.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MARK = "<!-- figures -->"
DATASETS = ("enron", "uci", "yelp", "ml-10m")
PROBES = {"present": ", probe on t+1", "past": ", probe on t", "none": ""}
# The same heuristics in a prototype, with one sample of negatives.
PROTOTYPE = {
    "edgebank": (81.4, 71.4, 49.8, 68.3),
    "edge-memory": (85.4, 92.9, 75.0, 95.2),
    "degree-product": (74.0, 90.8, 75.2, 94.9),
    "degree-sum": (73.3, 90.7, 76.5, 96.9),
    "common-neighbours": (83.4, 72.1, 45.2, 48.7),
    "svd, probe on t+1": (87.4, 89.0, 80.8, 83.3),
    "pair-boosting": (90.1, 94.4, 93.2, 98.8),
}


def rows(results: dict[str, Any], negatives: str) -> dict[str, float]:
    """Macro-AUC of every model and probe, in percent."""
    return {
        model["name"] + PROBES[means["probe"]]: 100 * means["macro_auc"]
        for model in results["models"]
        for means in model["means"]
        if means["negatives"] == negatives
    }


def table(results: dict[str, dict[str, Any]], negatives: str) -> list[str]:
    """A table for one negative sampler: the best of each dataset in bold, figures of the prototype in brackets."""
    found = {name: rows(result, negatives) for name, result in results.items()}
    models = dict.fromkeys(model for of in found.values() for model in of)
    lines = [f"| {negatives} | Enron | UCI | Yelp | ML-10M |", "|---|---:|---:|---:|---:|"]
    for model in models:
        cells = []
        for number, name in enumerate(DATASETS):
            value = found[name].get(model)
            cell = "–" if value is None else f"{value:.1f}"
            cell = f"**{cell}**" if value is not None and value == max(found[name].values()) else cell
            known = PROTOTYPE.get(model) if negatives == "uniform" else None
            cells.append(cell + (f" ({known[number]:.1f})" if known else ""))
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return [*lines, ""]


def main() -> None:
    """Write the generated block of docs/evaluation.md."""
    results = {name: json.loads((ROOT / "results" / f"evaluation_{name}.json").read_text()) for name in DATASETS}
    about = results["uci"]
    lines = [
        f"Measured {about['date'][:10]} on one {about['hardware']['gpu']} and 8 processes of a machine with "
        f"{about['hardware']['cores']} cores, torch {about['hardware']['torch']}, seed {about['request']['seed']}; "
        f"{about['request']['protocol']}, {about['request']['repeats']} random splits, no self-loops; macro-AUC in "
        "percent. `results/evaluation_*.json` contain every step, repeat and option.",
        "",
    ]
    for negatives in about["request"]["negatives"]:
        lines += table(results, negatives)
    page = ROOT / "docs" / "evaluation.md"
    before, _, rest = page.read_text().partition(MARK)
    page.write_text(f"{before}{MARK}\n\n" + "\n".join(lines) + f"\n{MARK}{rest.partition(MARK)[2]}")


if __name__ == "__main__":
    main()
