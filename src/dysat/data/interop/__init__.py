"""Graphs and events to and from NetworkX, networkx-temporal, PyG, SciPy and pandas.

Where a format states its nodes (NetworkX, PyG) a node is known from the first snapshot that states it, with links
or without. Where it states links alone (SciPy, pandas) a node is known from its first link, and one that never
has a link is not part of the graph. Nodes are numbered by the snapshot in which they become known, and within it
in the order of the format. Labels that are pairs (kind, label) give the nodes their kinds, in every format.
Weights must be finite and not negative; a link of weight 0 is none.
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
