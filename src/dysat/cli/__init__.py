"""The command line: parse, call, print. The only place that prints."""

from dysat.cli import bench, data, learn
from dysat.cli.app import app, main

__all__ = ["app", "bench", "data", "learn", "main"]
