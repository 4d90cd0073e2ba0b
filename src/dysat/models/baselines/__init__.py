"""The baselines of the DySAT paper, one method per file, each with its own network."""
