"""One method, one file, with its own network."""
