"""Hyperparameter search on validation links."""
