"""The tables and figures of the DySAT paper."""
