"""What a run folder has of a trained model: its weights, its embeddings, and what is known of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dysat.data.storage import write_beside
from dysat.errors import ModelError
from dysat.models.embedding import EmbeddingModel
from dysat.training import Epoch, Progress

METRICS, HISTORY, EMBEDDINGS = "metrics.json", "history.csv", "embeddings.parquet"


def write_results(
    folder: Path,
    model: EmbeddingModel,
    backtest: dict[str, Any] | None,
    history: list[dict[str, Any]],
    done: Progress,
) -> None:
    """The model, its embeddings, and what is known of it; each file whole or not at all."""
    history = history + [{"stage": "final", **asdict(epoch)} for epoch in done.history]
    model.save_weights(folder)
    write_embeddings(model, folder / EMBEDDINGS)
    table = io.StringIO()
    writer = csv.DictWriter(table, ["stage", *(Epoch.__dataclass_fields__)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    write_text(folder / HISTORY, table.getvalue())
    metrics = {
        "backtest": backtest,
        "epochs": len(done.history),
        "loss": done.history[-1].loss if done.history else None,
        "seconds": round(sum(row["seconds"] for row in history), 3),
        "device": str(model.embed().device),
        "nodes": model.graph_.num_nodes,
        "snapshots": len(model.graph_),
    }
    write_text(folder / METRICS, json.dumps(metrics, indent=2) + "\n")


def write_embeddings(model: EmbeddingModel, file: Path, steps: Iterable[int] | None = None) -> int:
    """Label, (kind,) step and embedding of every known node at some steps, as Parquet or CSV; how many rows.

    Without `steps`, at all of them for which nothing must be learned anew.
    """
    from dysat.data.tables import write_table

    parts = [model.table(step) for step in (model.steps_at_hand() if steps is None else steps)]
    return write_table(parts, file)


def write_text(file: Path, text: str) -> None:
    """A text file, whole or not at all."""
    with write_beside(file, ModelError) as beside:
        beside.write_text(text, encoding="utf-8", newline="")
