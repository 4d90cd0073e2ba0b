"""The pair score of the default model."""
