"""Every pair feature belongs to a fact, and changes only with what the fact is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from by_time import mornings_and_evenings
from directed import directed_graph, random_arcs
from event_times import with_times
from small import meetings, two_blocks
from test_pair_attributes import NAMES, all_pairs, features

from dysat.data.graph import DynamicGraph
from dysat.features import facts as f
from dysat.features.pair_attributes import attribute_facts, with_attributes
from dysat.features.pair_history import PairHistory

GRAPHS = {
    "meetings": meetings(),
    "blocks": two_blocks(),
    "by-time": mornings_and_evenings(),
    "directed": directed_graph([14] * 4, random_arcs(14, 30, 4)),
    "single": meetings()[:1],
    "timed": with_times(meetings()),
}
Change = Callable[[Any], Any]


def add(name: str, rows: Any = slice(None)) -> Change:
    """Change an array of a history, or of a part of it."""

    def change(holder: Any) -> None:
        array = np.array(getattr(holder, name))
        array[rows] += np.arange(1, 1 + array[rows].size).reshape(array[rows].shape)
        setattr(holder, name, array)

    return change


def add_sums(name: str, rows: Any = slice(None)) -> Change:
    """Change an array, or some arrays, of the extended sums."""

    def change(history: PairHistory) -> None:
        values = getattr(history.extended, name)
        some = range(len(values))[rows]
        changed = [np.array(value) + (1 + k) * (k in some) for k, value in enumerate(values)]
        vars(history)["extended"] = history.extended._replace(**{name: changed})

    return change


def add_node_values(fact: str) -> Change:
    def change(history: PairHistory) -> None:
        sums = history.extended
        rows = np.array([each == fact for each in sums.node_facts])
        vars(history)["extended"] = sums._replace(node_values=sums.node_values + 2 * rows[:, None])

    return change


def of_links(name: str) -> Change:
    def change(history: PairHistory) -> None:
        values = getattr(history.extended, name)
        vars(history)["extended"] = history.extended._replace(**{name: values + np.arange(1, 1 + len(values))})

    return change


def change_spectra(history: PairHistory) -> None:
    vars(history)["spectra"] = tuple((values, vectors + 1) for values, vectors in history.spectra)
    vars(history)["norms"] = [norms + 1 for norms in history.norms]


def of_direction(change: Change) -> Change:
    return lambda history: change(history.direction)


CHANGES: dict[str, tuple[Change, set[str]]] = {
    "degrees": (add("degrees"), {f.ACTIVITY}),
    "strengths": (add("strengths"), {f.ACTIVITY, f.SHARES}),
    "first seen": (add("first_seen"), {f.TIME_KNOWN}),
    "last active": (add("last_active"), {f.LAST_ACTIVE}),
    "weights": (add("weights"), {f.PAST_LINKS, f.SHARES, f.COMMON_NEIGHBOURS, f.LONGER_PATHS}),
    "last link": (add("last_link"), {f.LAST_CONTACT, f.PAST_LINKS}),  # the mean gap is a fact of past links
    "number of links": (of_links("num_links"), {f.PAST_LINKS, f.LAST_CONTACT}),
    "first link": (of_links("first_link"), {f.PAST_LINKS, f.LAST_CONTACT}),
    "spectra": (change_spectra, {f.POSITION}),
    "paths": (add_sums("normalized", slice(2)), {f.COMMON_NEIGHBOURS, f.LONGER_PATHS}),
    "paths at a time": (add_sums("normalized", slice(2, None)), {f.RHYTHM}),
    "links at a time": (add_sums("same_time"), {f.RHYTHM}),
    **{fact: (add_node_values(fact), {fact}) for fact in (f.ACTIVITY, f.REGULARITY, f.PARTNERS, f.AROUND, f.RHYTHM)},
}
DIRECTED: dict[str, tuple[Change, set[str]]] = {
    "arcs": (of_direction(add("counts")), {f.SENT, f.RECEIVED}),
    "last arc": (of_direction(add("last_arc")), {f.SENT, f.RECEIVED}),
    "received": (of_direction(add("received", slice(2))), {f.SENDER, f.RECEIVER}),
    "fractions": (of_direction(add("node_values", slice(3))), {f.ROLES}),
    "degrees": (of_direction(add("node_values", slice(3, 5))), {f.SENDER, f.RECEIVER}),
    "answers": (of_direction(add("node_values", slice(5, None))), {f.ANSWERS}),
}


def of_times(name: str) -> Change:
    def change(history: PairHistory) -> None:
        assert history.times is not None
        values = getattr(history.times, name)
        vars(history)["times"] = history.times._replace(**{name: values + 1})

    return change


TIMED: dict[str, tuple[Change, set[str]]] = {
    "ages": (of_times("ages"), {f.LAST_CONTACT}),
    "ages of nodes": (of_times("node_ages"), {f.LAST_ACTIVE}),
    "weights by age": (of_times("weights"), {f.PAST_LINKS, f.COMMON_NEIGHBOURS}),
    "strengths by age": (of_times("strengths"), {f.ACTIVITY}),
}


def changed_facts(graph: DynamicGraph, change: Change) -> set[str]:
    history = PairHistory(graph.snapshots, True)
    history.prepare()
    pairs = all_pairs(graph.num_nodes)
    before = history.features(pairs)[0]
    change(history)
    del history._longer_paths  # made from what has changed
    after = history.features(pairs)[0]
    return {fact for fact, differs in zip(history.column_facts, (before != after).any(0), strict=True) if differs}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("three_step", [True, False])
def test_every_feature_has_a_fact(name: str, three_step: bool) -> None:
    history = PairHistory(GRAPHS[name].snapshots, three_step)
    history.prepare()
    columns = history.features(all_pairs(GRAPHS[name].num_nodes))[0]
    assert len(history.column_facts) == columns.shape[1]
    assert (f.LONGER_PATHS in history.column_facts) == three_step
    assert (f.SENT in history.column_facts) == (name == "directed")


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_reaches_only_the_features_of_its_facts(name: str) -> None:
    change, expected = CHANGES[name]
    assert changed_facts(GRAPHS["by-time"], change) == expected


@pytest.mark.parametrize("name", DIRECTED)
def test_a_change_of_direction_reaches_only_the_features_of_its_facts(name: str) -> None:
    change, expected = DIRECTED[name]
    assert changed_facts(GRAPHS["directed"], change) == expected


@pytest.mark.parametrize("name", TIMED)
def test_a_change_of_times_reaches_only_the_features_of_its_facts(name: str) -> None:
    change, expected = TIMED[name]
    assert changed_facts(GRAPHS["timed"], change) == expected


def attribute_columns(graph: DynamicGraph) -> np.ndarray:
    pairs = all_pairs(graph.num_nodes)
    return with_attributes(np.empty((len(pairs), 0)), graph, len(graph) - 1, pairs)


@pytest.mark.parametrize(("column", "name"), [(0, "team"), (3, "age"), (4, "age"), (5, "size")])
def test_an_attribute_changes_its_own_features(column: int, name: str) -> None:
    graph, values = meetings().with_kinds([0, 1] * 4, ["user", "item"]), features()
    values[:, column] = 1 - values[:, column]
    one, two = (graph.with_features(x, names=NAMES) for x in (features(), values))
    found = attribute_facts(one, 4)
    assert found == attribute_facts(two, 4)
    differs = (attribute_columns(one) != attribute_columns(two)).any(0)
    changed = {fact for fact, differ in zip(found, differs, strict=True) if differ}
    assert changed == {f"attribute {name}", f.COMBINATION}
    assert found[0] == f.KINDS and set(found[1:]) == {
        "attribute team",
        "attribute age",
        "attribute size",
        f.COMBINATION,
    }


def test_unnamed_attributes_and_none() -> None:
    unnamed = meetings().with_features(np.random.default_rng(0).normal(size=(8, 3)))
    assert set(attribute_facts(unnamed, 4)) == {f.KINDS, f.ATTRIBUTES}
    assert attribute_facts(meetings(), 4) == (f.KINDS,)
    for graph in (unnamed, meetings()):
        assert len(attribute_facts(graph, 4)) == attribute_columns(graph).shape[1]
