"""Node embeddings of graphs that change over time, and their next links."""

import os
from importlib import import_module
from typing import Any

# Threads that wait awake hold a core that their own partner may need: beside another program on the same cores a fit
# was many times slower. Read once, when torch is loaded; whoever sets it decides (docs/performance.md).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from dysat.data.csr import Snapshot
from dysat.data.datasets import DATASETS, load_dataset
from dysat.data.events import Events, read_events
from dysat.data.graph import DynamicGraph
from dysat.data.snapshots import build_snapshots
from dysat.errors import DatasetError, DysatError, EventsError, GraphError, ModelError, SnapshotsError
from dysat.models import MODELS
from dysat.models.base import Forecast, LinkModel
from dysat.models.dysat import DySAT
from dysat.models.embedding import EmbeddingModel
from dysat.models.incsat import IncSAT

__version__ = "0.1.0"

__all__ = [
    "DATASETS",
    "MODELS",
    "DatasetError",
    "DySAT",
    "DynamicGraph",
    "DysatError",
    "EmbeddingModel",
    "Events",
    "EventsError",
    "Forecast",
    "GraphError",
    "IncSAT",
    "LinkModel",
    "ModelError",
    "Snapshot",
    "SnapshotsError",
    "build_snapshots",
    "evaluate",
    "load_dataset",
    "read_events",
    "tune",
]


def __getattr__(name: str) -> Any:
    """`dysat.evaluate` and `dysat.tune`, from a room above this one, when they are asked for."""
    if name in ("evaluate", "tune"):
        return getattr(import_module(f"dysat.experiments.{name}"), name)
    raise AttributeError(f"module 'dysat' has no attribute {name!r}")
