"""Event logs, the snapshots cut from them, and the graph they form."""
