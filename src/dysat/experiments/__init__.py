"""Evaluation, tuning, benchmarks, and the reproduction of the paper."""
