"""Step-by-step evaluation of models."""
