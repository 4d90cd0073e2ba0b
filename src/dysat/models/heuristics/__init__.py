"""Opponents that need no training in epochs."""
