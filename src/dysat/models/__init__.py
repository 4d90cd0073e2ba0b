"""One method, one file."""

from dysat.models.autoencoder import GATAutoencoder, GCNAutoencoder
from dysat.models.base import LinkModel
from dysat.models.dynaernn import DynAERNN
from dysat.models.dynamic_triad import DynamicTriad
from dysat.models.dyngem import DynGEM
from dysat.models.dysat import DySAT
from dysat.models.graphsage import GraphSAGE
from dysat.models.heuristics import (
    AdamicAdar,
    CommonNeighbours,
    DegreeProduct,
    DegreeSum,
    EdgeBank,
    EdgeMemory,
    LastSnapshot,
    ResourceAllocation,
)
from dysat.models.incsat import IncSAT
from dysat.models.node2vec import Node2Vec
from dysat.models.pairs import PairBoosting, PairLogistic
from dysat.models.svd import TruncatedSVD

MODELS: dict[str, type[LinkModel]] = {
    model.method: model
    for model in (
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
}

# What a model that learns must beat, in the order in which they are tried.
OPPONENTS = (
    *("last-snapshot", "edgebank", "edge-memory", "degree-product", "degree-sum", "common-neighbours", "adamic-adar"),
    *("resource-allocation", "svd", "pair-logistic", "pair-boosting"),
)
