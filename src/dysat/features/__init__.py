"""What the past says about a node or a pair."""
