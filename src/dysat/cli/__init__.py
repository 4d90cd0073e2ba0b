"""The command line: parse, call, print. The only place that prints."""

from dysat.cli import bench, data, evaluate, learn, reproduce, tune, update
from dysat.cli.app import app, main

__all__ = ["app", "bench", "data", "evaluate", "learn", "main", "reproduce", "tune", "update"]
