"""All methods: DySAT, IncSAT, the baselines of the paper, heuristics and pair models."""

from dysat.models.base.link_model import MODELS, LinkModel
from dysat.models.baselines.autoencoder import GATAutoencoder, GCNAutoencoder
from dysat.models.baselines.dynaernn import DynAERNN
from dysat.models.baselines.dynamic_triad import DynamicTriad
from dysat.models.baselines.dyngem import DynGEM
from dysat.models.baselines.graphsage import GraphSAGE
from dysat.models.baselines.node2vec import Node2Vec
from dysat.models.dysat import DySAT
from dysat.models.heuristics.pair_models import PairBoosting, PairLogistic
from dysat.models.heuristics.scores import (
    AdamicAdar,
    CommonNeighbours,
    DegreeProduct,
    DegreeSum,
    EdgeBank,
    EdgeMemory,
    LastSnapshot,
    ResourceAllocation,
)
from dysat.models.heuristics.svd import TruncatedSVD
from dysat.models.incsat import IncSAT

_METHODS: tuple[type[LinkModel], ...] = (
    DySAT,
    IncSAT,
    LastSnapshot,
    EdgeBank,
    EdgeMemory,
    DegreeProduct,
    DegreeSum,
    CommonNeighbours,
    AdamicAdar,
    ResourceAllocation,
    TruncatedSVD,
    Node2Vec,
    PairLogistic,
    PairBoosting,
    GCNAutoencoder,
    GATAutoencoder,
    DynAERNN,
    GraphSAGE,
    DynamicTriad,
    DynGEM,
)
MODELS.update({model.method: model for model in _METHODS})

# The heuristics that a learned model is compared with, in the order in which they are tried.
OPPONENTS = (
    *("last-snapshot", "edgebank", "edge-memory", "degree-product", "degree-sum", "common-neighbours", "adamic-adar"),
    *("resource-allocation", "svd", "pair-logistic", "pair-boosting"),
)

__all__ = [
    "MODELS",
    "OPPONENTS",
    "AdamicAdar",
    "CommonNeighbours",
    "DegreeProduct",
    "DegreeSum",
    "DySAT",
    "DynAERNN",
    "DynGEM",
    "DynamicTriad",
    "EdgeBank",
    "EdgeMemory",
    "GATAutoencoder",
    "GCNAutoencoder",
    "GraphSAGE",
    "IncSAT",
    "LastSnapshot",
    "LinkModel",
    "Node2Vec",
    "PairBoosting",
    "PairLogistic",
    "ResourceAllocation",
    "TruncatedSVD",
]
