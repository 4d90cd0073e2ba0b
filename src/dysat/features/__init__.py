"""Features of nodes and pairs of nodes, computed from past snapshots."""
