"""What comes in: events, the snapshots cut from them, and the graph they make."""
