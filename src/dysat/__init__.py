"""Link forecasts and node embeddings for graphs that change over time."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Threads that spin while they wait hold a core that another thread may need: next to another program a fit
# was many times slower. torch reads this once, when it is loaded; a value that is already set is kept
# (docs/performance.md).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# On Linux, torch then asks for pages of 2 MB instead of 4 KB for large tensors, and fresh memory costs less. torch
# reads this once, when it allocates its first tensor; a value that is already set is kept.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

from dysat.data.csr import Snapshot
from dysat.data.datasets import DATASETS, load_dataset
from dysat.data.events import Events, read_events
from dysat.data.graph import DynamicGraph
from dysat.data.nodes import NodeTable, read_nodes
from dysat.data.on_disk import cut_on_disk
from dysat.data.snapshots import build_snapshots
from dysat.errors import DatasetError, DysatError, EventsError, GraphError, ModelError, SnapshotsError
from dysat.models import MODELS
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.forecasts import Forecast, Forecasts
from dysat.models.base.link_model import LinkModel
from dysat.models.dysat import DySAT
from dysat.models.forecast.why import Reason, Why
from dysat.models.incsat import IncSAT

if TYPE_CHECKING:
    from dysat.runs.run import Run

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
    "Forecasts",
    "GraphError",
    "IncSAT",
    "LinkModel",
    "ModelError",
    "NodeTable",
    "Reason",
    "Run",
    "Snapshot",
    "SnapshotsError",
    "Why",
    "build_snapshots",
    "cut_on_disk",
    "evaluate",
    "load_dataset",
    "read_events",
    "read_nodes",
    "tune",
]


# Names from rooms above this one, imported when they are first used.
_LATER = {
    "Run": "dysat.runs.run",
    "evaluate": "dysat.experiments.evaluate.evaluate",
    "tune": "dysat.experiments.tune.tune",
}


def __getattr__(name: str) -> Any:
    """Import a name of `_LATER` on first use."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'dysat' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__version__", "data", "models"])
