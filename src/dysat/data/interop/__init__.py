"""Convert graphs and events to and from NetworkX, networkx-temporal, PyG, SciPy and pandas.

If a format lists its nodes (NetworkX, PyG), a node is known from the first snapshot that lists it, with or without
links. If it has links only (SciPy, pandas), a node is known from its first link, and a node without links is not part
of the graph. Nodes are numbered by the snapshot in which they become known, then by their order in the format. Labels
that are pairs (kind, label) give the nodes their kinds, in every format. Weights must be finite and not negative;
links of weight 0 are left out.
"""

from dysat.data.interop.networkx import from_networkx, from_networkx_temporal, to_networkx, to_networkx_temporal
from dysat.data.interop.pandas import events_to_pandas, from_pandas, to_pandas
from dysat.data.interop.pyg import from_pyg, from_temporal_data, to_pyg, to_temporal_data
from dysat.data.interop.scipy import from_scipy, to_scipy

__all__ = [
    "events_to_pandas",
    "from_networkx",
    "from_networkx_temporal",
    "from_pandas",
    "from_pyg",
    "from_scipy",
    "from_temporal_data",
    "to_networkx",
    "to_networkx_temporal",
    "to_pandas",
    "to_pyg",
    "to_scipy",
    "to_temporal_data",
]
