"""The key of a result: the graph, the model's options, the request, and the version of the code that computed it.

Versions are declared, not derived from source files, so results survive moves and rewrites. Raise `version` of a method
when its output changes, and `MEASUREMENT` when a split, the probe or a metric does: a test compares the output of every
method with stored values and fails until the version is raised.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from dysat.data.graph import DynamicGraph
from dysat.experiments.evaluate.request import Contender, Request

MEASUREMENT = 1  # version of splits, probe and metrics
ATTRIBUTES = 1  # version of how models use node features; part of a key only if the graph has some


def method_version(contender: Contender) -> str:
    """The versions a result depends on: that of the method with these options, and that of the measurement."""
    return f"v{contender.build().version}.{MEASUREMENT}"


def content_key(graph: DynamicGraph, contender: Contender, request: Request) -> str:
    """A key of everything a result depends on, except the machine: graph, options, request, versions.

    Times of events are part of it only for models that use them, so results of other models stay valid.
    """
    seen = graph.fingerprint if contender.build().uses_times else graph.fingerprint_without_times
    content = [seen, contender.key, asdict(request), method_version(contender)]
    content += [f"attributes v{ATTRIBUTES}"] * (graph.features is not None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
