"""The page of a model: what it shows (`content`), where nodes are on its map (`projection`), and its file (`page`)."""
