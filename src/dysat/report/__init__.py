"""The page of a run: what it shows (`content`), and how it becomes one file."""
