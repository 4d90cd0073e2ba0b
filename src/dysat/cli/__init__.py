"""The command line: parse, call, print. No other part of the package prints."""

from dysat.cli import bench, data, evaluate, forecast, learn, models, reproduce, seal, tune, update, view
from dysat.cli.app import app, main

__all__ = [
    "app",
    "bench",
    "data",
    "evaluate",
    "forecast",
    "learn",
    "main",
    "models",
    "reproduce",
    "seal",
    "tune",
    "update",
    "view",
]
