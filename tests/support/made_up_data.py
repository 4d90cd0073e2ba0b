"""Made-up data for the commands of the docs: a mail log, and small graphs in place of the paper's datasets."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from small_study import make_graph

from dysat.data.datasets import DATASETS
from dysat.data.graph import DynamicGraph


def write_mails(folder: Path) -> None:
    """Half a year of mails among a dozen people, the month after it in new-mail.csv, and the next in incoming/."""
    rng, start = random.Random(0), datetime(2024, 1, 1)
    people = ["ann", "bob", "cy", "dee", *(f"p{i}" for i in range(8))]
    mails = [("ann", "bob", start, 3)]
    for day in range(245):
        for minute in sorted(rng.sample(range(1, 1440), 2)):
            sender = min(int(rng.expovariate(0.25)), len(people) - 1)
            receiver = (sender + 1 + min(int(rng.expovariate(0.5)), 6)) % len(people)
            moment = start + timedelta(days=day, minutes=minute)
            mails.append((people[sender], people[receiver], moment, rng.randrange(1, 9)))
    (folder / "incoming").mkdir()
    for name, first, end in (("mail.csv", 0, 180), ("new-mail.csv", 180, 210), ("incoming/mail.csv", 210, 245)):
        rows = (
            f"{u}@x.org,{v}@x.org,{moment:%Y-%m-%dT%H:%M:%SZ},{size}\n"
            for u, v, moment, size in mails
            if first <= (moment - start).days < end
        )
        (folder / name).write_text("from,to,sent,size\n" + "".join(rows))


def write_graphs(folder: Path) -> None:
    """One graph folder per dataset of the paper, with as many snapshots and a few dozen nodes."""
    for seed, dataset in enumerate(DATASETS.values()):
        make_graph(dataset.num_snapshots, seed).save(folder / dataset.name)


def replace_datasets(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the names of the paper's datasets stand for these graphs; they are found, hashed and loaded as usual."""
    monkeypatch.setenv("DYSAT_DATA", str(folder))
    for name, dataset in DATASETS.items():
        manifest = folder / name / "graph.json"
        digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
        small = replace(dataset, file=manifest.name, sha256=digest, build=_load, bundled=False)
        monkeypatch.setitem(DATASETS, name, small)


def _load(manifest: Path) -> DynamicGraph:
    return DynamicGraph.load(manifest.parent)
