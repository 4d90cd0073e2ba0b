"""Make timestamped links with published models of temporal networks, for benchmarks/wide_logs.py.

Each function implements the formulas of the paper named in its docstring, with a fixed seed. Where a model has no
clock, one round is one day.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import numpy as np
import polars as pl
from wide_readers import Row, table

BEGIN = datetime(2020, 1, 1)
Links = list[tuple[int, int, float]]  # source, target, time in days


def activity_driven(rng: np.random.Generator, people: int = 500, days: int = 30) -> Links:
    """Activity-driven network with memory (Karsai, Perra and Vespignani 2014, Scientific Reports 4).

    A person is active with a probability drawn from a power law. With n earlier contacts, the next one is new with
    probability 1 / (n + 1), and otherwise one of the earlier ones.
    """
    low, exponent = 1e-3, -2.8
    power = exponent + 1
    activity = (low**power + rng.random(people) * (1 - low**power)) ** (1 / power)
    contacts: list[list[int]] = [[] for _ in range(people)]
    links: Links = []
    rounds = 480  # per day
    for step in range(days * rounds):
        for u in np.flatnonzero(rng.random(people) < activity):
            known = contacts[u]
            if rng.random() < 1 / (len(known) + 1):
                v = int((u + rng.integers(1, people)) % people)
            else:
                v = int(rng.choice(known))
            for a, b in ((int(u), v), (v, int(u))):
                if b not in contacts[a]:
                    contacts[a].append(b)
            links.append((int(u), v, step / rounds))
    return links


def moving_blocks(rng: np.random.Generator, people: int = 600, days: int = 24) -> Links:
    """Stochastic block model with persistent links and groups (Barucca and others 2018, JSTAT 123407).

    Every day a person stays in the group with probability 0.95 and moves to a random one otherwise. A pair keeps its
    state of the day before with probability 0.5 and is drawn again otherwise.
    """
    groups, inside, outside = 8, 0.06, 0.002
    group = rng.integers(0, groups, people)
    u, v = np.triu_indices(people, 1)
    state = np.zeros(len(u), dtype=bool)
    links: Links = []
    for day in range(days):
        group = np.where(rng.random(people) < 0.95, group, rng.integers(0, groups, people))
        drawn = rng.random(len(u)) < np.where(group[u] == group[v], inside, outside)
        state = np.where((rng.random(len(u)) < 0.5) & (day > 0), state, drawn)
        links += [(int(a), int(b), day + rng.random()) for a, b in zip(u[state], v[state], strict=True)]
    return links


def ageing_attachment(rng: np.random.Generator, nodes: int = 1500, days: int = 30) -> Links:
    """Growing network with ageing and links between old nodes (Dorogovtsev and Mendes 2000, Physical Review E 62).

    A new node links to two old ones, chosen by degree × age^-0.5. With it come three links between old nodes, with both
    ends chosen in this way (Dorogovtsev and Mendes 2000, Europhysics Letters 52).
    """
    degree = np.zeros(nodes)
    degree[:5] = 1
    links: Links = []
    for new in range(5, nodes):
        weight = degree[:new] * (new - np.arange(new)) ** -0.5
        ends = rng.choice(new, size=8, p=weight / weight.sum())
        pairs = [(new, ends[0]), (new, ends[1]), *ends[2:].reshape(3, 2)]
        for a, b in pairs:
            if a != b:
                degree[a] += 1
                degree[b] += 1
                links.append((int(a), int(b), days * new / nodes))
    return links


def hawkes_blocks(rng: np.random.Generator, people: int = 300, days: int = 30) -> Links:
    """Mutually exciting Hawkes processes between groups (Blundell, Heller and Beck 2012, NIPS).

    Messages from u to v start at a rate that depends on the two groups and on both activities. Each message leads to
    0.45 replies and 0.25 repetitions on average, after exponential delays of 12 hours on average.
    """
    groups, reply, repeat, delay = 6, 0.45, 0.25, 0.5
    group, activity = rng.integers(0, groups, people), rng.pareto(1.8, people) + 0.2
    rate = np.outer(activity, activity) * np.where(group[:, None] == group, 1.0, 0.05)
    np.fill_diagonal(rate, 0)
    starts = rng.poisson(rate * (60.0 / rate.sum()) * days)
    waiting: Links = []
    for u, v in zip(*np.nonzero(starts), strict=True):
        waiting += [(int(u), int(v), float(at)) for at in rng.random(starts[u, v]) * days]
    links: Links = []
    while waiting:
        u, v, at = waiting.pop()
        links.append((u, v, at))
        for a, b, mean in ((v, u, reply), (u, v, repeat)):
            later = at + rng.exponential(delay, rng.poisson(mean))
            waiting += [(a, b, float(t)) for t in later if t < days]
    return sorted(links, key=lambda link: link[2])


def fading_papers(rng: np.random.Generator, readers: int = 300, papers: int = 900, days: int = 24) -> Links:
    """Readers choose papers by fitness, fame and age (Wang, Song and Barabási 2013, Science 342).

    A paper with c citations is chosen in proportion to fitness × (c + 3) × the log-normal density of its age.
    Nodes from `readers` on are papers.
    """
    fitness = rng.exponential(1.0, papers)
    peak, width = rng.normal(1.2, 0.3, papers), 0.8
    born = np.sort(rng.uniform(-6, days - 1, papers))
    eager = rng.pareto(1.5, readers) + 0.2
    citations = np.zeros(papers)
    links: Links = []
    for at in np.sort(rng.random(250 * days)) * days:
        old = np.flatnonzero(born < at)
        age = np.log(at - born[old] + 1e-9)
        density = np.exp(-((age - peak[old]) ** 2) / (2 * width**2) - age)
        weight = fitness[old] * (citations[old] + 3) * density
        paper = int(rng.choice(old, p=weight / weight.sum()))
        citations[paper] += 1
        links.append((int(rng.choice(readers, p=eager / eager.sum())), readers + paper, float(at)))
    return links


def daily_contacts(rng: np.random.Generator, people: int = 192, days: int = 12) -> Links:
    """Conversations of pairs with reinforcement (Zhao and others 2011, Physical Review E 83), from 8 to 18 o'clock.

    The longer a person has been alone or in a conversation, the less likely is a change: 0.7 / (1 + waited ticks / 20).
    Four of five partners are classmates, in classes of 24, as observed in schools (Stehlé and others 2011, PLoS ONE 6).
    """
    partner, since = np.full(people, -1), np.zeros(people)
    links: Links = []
    for day in range(days):
        for k in range(10 * 30):  # ticks of two minutes
            tick, at = day * 300 + k, day + (8 + k / 30) / 24
            for u in rng.permutation(people):
                if rng.random() >= 0.7 / (1 + (tick - since[u]) / 20):
                    continue
                v = partner[u]
                if v >= 0:
                    partner[[u, v]] = -1
                else:
                    free = np.flatnonzero((partner < 0) & (np.arange(people) != u))
                    near = free[free // 24 == u // 24]
                    free = near if len(near) and rng.random() < 0.8 else free
                    if not len(free):
                        continue
                    weight = 1 / (1 + (tick - since[free]) / 20)
                    v = int(rng.choice(free, p=weight / weight.sum()))
                    partner[u], partner[v] = v, u
                since[[u, v]] = tick
            links += [(int(u), int(v), at) for u, v in enumerate(partner) if u < v]
        partner[:] = -1
    return links


GENERATORS: dict[str, Callable[[np.random.Generator], Links]] = {
    "activity-driven": activity_driven,
    "moving-blocks": moving_blocks,
    "ageing-attachment": ageing_attachment,
    "hawkes-blocks": hawkes_blocks,
    "fading-papers": fading_papers,
    "daily-contacts": daily_contacts,
}


def generate(name: str, seed: int = 0) -> pl.DataFrame:
    """The links of a model as a table."""
    links = GENERATORS[name](np.random.default_rng(seed))
    rows: list[Row] = [(f"n{u}", f"n{v}", BEGIN + timedelta(days=at)) for u, v, at in links]
    return table(rows)
