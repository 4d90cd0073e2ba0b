"""Examples of the protocols: the right pairs, and nothing from the future."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch

import dysat
from dysat.evaluation.protocols import (
    PROTOCOLS,
    LinkSplit,
    Protocol,
    TooFewLinksError,
    check_links,
    link_split,
    multi_step_targets,
    predictable_steps,
    single_step,
)

Links = list[tuple[int, int]]


def make_graph(known: list[int], links: list[Links]) -> dysat.DynamicGraph:
    snapshots = []
    for step, (number, pairs) in enumerate(zip(known, links, strict=True)):
        u, v = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        snapshots.append(dysat.Snapshot.from_links(u, v, None, num_nodes=number, start=step, stop=step + 1))
    return dysat.DynamicGraph(nodes=np.arange(known[-1]), snapshots=tuple(snapshots), clock="step")


@pytest.fixture
def tiny() -> dysat.DynamicGraph:
    """Six nodes known at step 0; afterwards links among them, to two new ones, and a self-loop."""
    later: Links = [(0, 1), (2, 1), (3, 3), (4, 6), (6, 7), (5, 0)]
    return make_graph([6, 8, 8], [[(0, 1), (2, 3), (4, 5)], later, [(0, 7), (6, 7)]])


@pytest.fixture(scope="module")
def uci() -> dysat.DynamicGraph:
    return dysat.load_dataset("uci")


def tuples(split: LinkSplit, label: bool) -> Links:
    return [tuple(pair) for pair in split.pairs[split.labels == label].tolist()]


def same(one: LinkSplit, other: LinkSplit) -> bool:
    fields = ("pairs", "labels", "validation", "train", "test")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in fields)


def test_positives_are_the_next_links_of_known_nodes(tiny: dysat.DynamicGraph) -> None:
    split = single_step(tiny, 0)
    assert sorted(tuples(split, True)) == [(0, 1), (0, 5), (1, 2)]
    assert split.step == 0 and split.num_repeats == 10 and split.pairs.dtype == torch.int64
    assert split.labels.dtype == split.train.dtype == torch.bool
    kept = single_step(tiny, 0, self_loops="keep")
    assert sorted(tuples(kept, True)) == [(0, 1), (0, 5), (1, 2), (3, 3)]
    assert len(tuples(kept, False)) == 4 and all(u < v for u, v in tuples(kept, False))


def test_negatives_are_uniform(tiny: dysat.DynamicGraph) -> None:
    counts = dict.fromkeys(set(combinations(range(6), 2)) - {(0, 1), (0, 5), (1, 2)}, 0)
    for seed in range(400):
        for pair in tuples(single_step(tiny, 0, seed=seed, repeats=1), False):
            counts[pair] += 1  # a KeyError means a pair that must not be drawn
    expected = 400 * 3 / len(counts)  # 100, standard deviation 9
    assert max(abs(count - expected) for count in counts.values()) < 43


def test_dense_snapshot_uses_all_unlinked_pairs() -> None:
    links = [pair for pair in combinations(range(8), 2) if pair not in ((0, 1), (3, 7))]
    split = single_step(make_graph([8, 8], [links, links]), 0)
    assert len(tuples(split, True)) == 26 and sorted(tuples(split, False)) == [(0, 1), (3, 7)]
    complete = list(combinations(range(4), 2))
    assert single_step(make_graph([4, 4], [complete, complete]), 0).labels.all()


@pytest.mark.parametrize("step", [0, 5, 11])
def test_examples_of_uci(uci: dysat.DynamicGraph, step: int) -> None:
    split = single_step(uci, step)
    u, v, _ = uci[step + 1].links()
    links = set(zip(u.tolist(), v.tolist(), strict=True))
    assert set(tuples(split, True)) == {(a, b) for a, b in links if b < uci.known[step]}
    assert len(tuples(split, True)) == len(tuples(split, False)) == len(split.labels) // 2
    assert not links & set(tuples(split, False))
    assert len({tuple(pair) for pair in split.pairs.tolist()}) == len(split.pairs)
    assert (split.pairs[:, 0] < split.pairs[:, 1]).all()
    assert split.pairs.min() >= 0 and split.pairs.max() < uci[: step + 1].num_nodes


def test_every_example_is_in_exactly_one_part(uci: dysat.DynamicGraph) -> None:
    split = single_step(uci, 3)
    parts = split.validation.int() + split.train.int() + split.test.int()
    assert (parts == 1).all()
    for label in (True, False):
        here = split.labels == label
        total = int(here.sum())
        assert int((split.validation & here).sum()) == pytest.approx(0.2 * total, abs=1)
        torch.testing.assert_close((split.train & here).sum(1), torch.full((10,), round(0.2 * total)), atol=1, rtol=0)
        torch.testing.assert_close((split.test & here).sum(1), torch.full((10,), round(0.6 * total)), atol=2, rtol=0)
    assert len({tuple(mask.nonzero().flatten().tolist()) for mask in split.train}) == 10


def test_three_examples_are_enough_for_every_part() -> None:
    for number in range(1, 12):
        split = single_step(make_graph([40, 40], [[(0, 1)], [(k, k + 1) for k in range(number)]]), 0)
        for label in (True, False):
            here = split.labels == label
            assert (split.validation & here).any()
            assert (split.train & here).any(1).all() == (number >= 2)
            assert (split.test & here).any(1).all() == (number >= 3)


def test_seed_and_step_determine_examples(uci: dysat.DynamicGraph) -> None:
    assert same(single_step(uci, 5), single_step(uci, 5))
    other = single_step(uci, 5, seed=1)
    assert set(tuples(other, False)) != set(tuples(single_step(uci, 5), False))
    assert not torch.equal(other.validation, single_step(uci, 5).validation)
    three = single_step(uci, 5, repeats=3)  # the first three of ten
    assert torch.equal(three.train, single_step(uci, 5).train[:3])
    twice = make_graph([6, 6, 6], [[(0, 1), (2, 3), (4, 5)]] * 3)
    assert set(tuples(single_step(twice, 0), False)) != set(tuples(single_step(twice, 1), False))


def test_later_snapshots_do_not_matter(uci: dysat.DynamicGraph) -> None:
    split = single_step(uci, 4)
    assert same(split, single_step(uci[:6], 4))
    other = dataclasses.replace(
        uci[:7], snapshots=(*uci[:6], dataclasses.replace(uci[9], num_nodes=uci.known[6], start=uci[6].start))
    )
    assert same(split, single_step(other, 4))


def test_impossible_steps_raise(tiny: dysat.DynamicGraph) -> None:
    for step in (-1, 2, 9):
        with pytest.raises(dysat.DysatError, match=f"^step {step}: a graph with 3 snapshots"):
            single_step(tiny, step)
    strangers = make_graph([2, 4], [[(0, 1)], [(1, 2), (2, 3), (0, 0)]])
    with pytest.raises(dysat.DysatError, match=r"^step 0: snapshot 1 has no link between two nodes known at step 0$"):
        single_step(strangers, 0)
    assert tuples(single_step(strangers, 0, self_loops="keep"), True) == [(0, 0)]
    with pytest.raises(dysat.DysatError, match="self_loops='no'"):
        single_step(tiny, 0, self_loops="no")  # type: ignore[arg-type]
    with pytest.raises(dysat.DysatError, match="repeats=0"):
        single_step(tiny, 0, repeats=0)


def test_torch_random_state_is_untouched(tiny: dysat.DynamicGraph) -> None:
    state = torch.get_rng_state()
    single_step(tiny, 0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.fixture(scope="module")
def growing() -> dysat.DynamicGraph:
    """Nodes 0–5, from step 1 on 6–11, then 12; every snapshot has old and new links, nodes and self-loops."""
    first: Links = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    second: Links = [(0, 1), (2, 3), (6, 7), (8, 9), (10, 11), (0, 6)]
    third: Links = [(0, 1), (0, 2), (2, 3), (6, 7), (6, 8), (7, 9), (9, 11), (10, 10), (1, 6), (5, 11), (12, 6), (3, 3)]
    return make_graph([6, 12, 13, 13], [first, second, third, [(0, 1), (1, 12), (2, 6), (3, 7), (5, 8)]])


def bipartite(seed: int = 0, users: int = 30, items: int = 12, links: int = 60) -> dysat.DynamicGraph:
    """Ids of users and items are mixed, so that neither side is a range."""
    rng = np.random.default_rng(seed)
    kinds = rng.permutation(np.repeat([0, 1], [users, items]))
    sides = [np.flatnonzero(kinds == kind) for kind in (0, 1)]
    drawn = [list(zip(*(rng.choice(side, links).tolist() for side in sides), strict=True)) for _ in range(4)]
    return make_graph([users + items] * 4, drawn).with_kinds(kinds, ("user", "item"))


def test_single_step_is_the_default_protocol(uci: dysat.DynamicGraph) -> None:
    assert PROTOCOLS == ("single-step", "new-links", "multi-step", "new-nodes")
    assert same(single_step(uci, 6, seed=3, self_loops="keep"), link_split(uci, 6, seed=3, self_loops="keep"))
    split = link_split(uci, 6)
    assert (split.step, split.target, split.lowest, split.typed, split.negatives) == (6, 7, (0, 0), False, "uniform")
    assert split.missing == 0


def test_examples_of_seed_0_are_stable(uci: dysat.DynamicGraph) -> None:
    """Published results use seed 0; another stream of random numbers would change them."""
    split = single_step(uci, 6)
    digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part in (split.pairs, split.train, split.validation)))
    assert digest.hexdigest()[:16] == "90293a85e82f00f0"


def test_new_links_are_absent_from_the_last_snapshot_seen(growing: dysat.DynamicGraph, uci: dysat.DynamicGraph) -> None:
    split = link_split(growing, 1, protocol="new-links")
    # (1, 2) is only in snapshot 0. (12, 6) has an unknown node.
    assert sorted(tuples(split, True)) == [(0, 2), (1, 6), (5, 11), (6, 8), (7, 9), (9, 11)]
    kept = link_split(growing, 1, protocol="new-links", self_loops="keep")
    assert sorted(set(tuples(kept, True)) - set(tuples(split, True))) == [(3, 3), (10, 10)]
    now, then = (set(zip(*(p.tolist() for p in uci[t].links()[:2]), strict=True)) for t in (7, 6))
    split = link_split(uci, 6, protocol="new-links")
    assert set(tuples(split, True)) == {(u, v) for u, v in now - then if v < uci.known[6]}
    assert now & then and not set(tuples(split, False)) & now  # a repeated link is not a negative
    assert len(tuples(split, False)) == len(tuples(split, True))


def test_new_nodes_at_both_ends_or_one_end(growing: dysat.DynamicGraph) -> None:
    both = link_split(growing, 1, protocol="new-nodes")
    assert sorted(tuples(both, True)) == [(6, 7), (6, 8), (7, 9), (9, 11)] and both.lowest == (6, 6)
    assert all(6 <= u < v < 12 for u, v in tuples(both, False)) and len(tuples(both, False)) == 4
    one = link_split(growing, 1, protocol="new-nodes", new_ends="one")
    assert sorted(tuples(one, True)) == [(1, 6), (5, 11), (6, 7), (6, 8), (7, 9), (9, 11)] and one.lowest == (0, 6)
    assert all(u < v and 6 <= v < 12 for u, v in tuples(one, False)) and len(tuples(one, False)) == 6
    free = {(u, v) for v in range(6, 12) for u in range(v)} - set(tuples(one, True))
    drawn = [tuples(link_split(growing, 1, protocol="new-nodes", new_ends="one", seed=s), False) for s in range(60)]
    assert {pair for pairs in drawn for pair in pairs} == free  # old and new first ends
    everyone = link_split(growing, 0, protocol="new-nodes", fewest=0)  # at step 0 all nodes are new
    assert same(everyone, single_step(growing, 0))


def test_multi_step_predicts_the_last_six(uci: dysat.DynamicGraph) -> None:
    assert multi_step_targets(uci) == [(6, target) for target in range(7, 13)]
    assert multi_step_targets(uci, ahead=1) == [(11, 12)]
    splits = [link_split(uci, 6, protocol="multi-step", target=target) for target in range(7, 13)]
    assert same(splits[0], single_step(uci, 6))
    for target, split in enumerate(splits, 7):
        links = set(zip(*(p.tolist() for p in uci[target].links()[:2]), strict=True))
        assert (split.step, split.target) == (6, target)
        assert set(tuples(split, True)) == {(u, v) for u, v in links if v < uci.known[6]}  # known at the step
        assert not set(tuples(split, False)) & links and split.pairs.max() < uci.known[6]
    alike = make_graph([30] * 4, [[(k, k + 1) for k in range(20)]] * 4)
    drawn = [tuples(link_split(alike, 0, protocol="multi-step", target=target), False) for target in (1, 2, 3)]
    assert drawn[0] != drawn[1] != drawn[2]  # every target has its own negatives
    with pytest.raises(dysat.DysatError, match=r"^multi-step: predicting the last 6 snapshots takes more than the 6"):
        multi_step_targets(uci[:6])
    with pytest.raises(dysat.DysatError, match=r"^ahead=0"):
        multi_step_targets(uci, 0)


def test_predictable_steps(uci: dysat.DynamicGraph) -> None:
    for protocol in ("single-step", "new-links", "new-nodes"):
        assert predictable_steps(uci, protocol) == [(t - 1, t) for t in range(1, 13)]  # type: ignore[arg-type]
    assert predictable_steps(uci, "single-step", 5, 6) == [(4, 5), (5, 6)]
    assert predictable_steps(uci, "single-step", last=1) == [(0, 1)]
    assert predictable_steps(uci, "multi-step") == multi_step_targets(uci)
    assert predictable_steps(uci, "multi-step", first=11) == [(6, 11), (6, 12)]
    for first, last, named in ((0, None, 0), (None, 13, 13), (-1, 5, -1)):
        with pytest.raises(dysat.DysatError, match=rf"^snapshot {named} cannot be .*; choose from 1 to 12, of 13"):
            predictable_steps(uci, "single-step", first, last)
    with pytest.raises(dysat.DysatError, match=r"^snapshot 6 cannot be .*choose from 7 to 12"):
        predictable_steps(uci, "multi-step", 6)
    with pytest.raises(dysat.DysatError, match=r"^the first snapshot to predict, 7, comes after the last, 3$"):
        predictable_steps(uci, "single-step", 7, 3)
    with pytest.raises(dysat.DysatError, match=r"^a graph with one snapshot has none to predict$"):
        predictable_steps(uci[:1])


@pytest.mark.parametrize("protocol", ["single-step", "new-links", "multi-step"])
def test_typed_negatives_join_a_user_and_an_item(protocol: Protocol) -> None:
    graph = bipartite()
    split = link_split(graph, 1, protocol=protocol, typed=True)
    kinds = torch.tensor(graph.kinds.tolist())[split.pairs]
    assert (kinds[:, 0] != kinds[:, 1]).all() and (split.pairs[:, 0] < split.pairs[:, 1]).all()
    assert split.labels.sum() * 2 == len(split.labels) == len(split.pairs.unique(dim=0)) and split.typed
    untyped = link_split(graph, 1, protocol=protocol)
    assert set(tuples(untyped, True)) == set(tuples(split, True))
    kinds = torch.tensor(graph.kinds.tolist())[untyped.pairs]
    assert (kinds[:, 0] == kinds[:, 1]).any()


def test_typed_negatives_join_the_same_kinds_as_positives() -> None:
    """Users link to items and items to tags, but no user links to a tag: such a negative would be too easy."""
    kinds = np.array([0, 1, 2] * 10)
    links = [(3 * i, 3 * j + 1) for i in range(10) for j in range(2)] + [(3 * i + 1, 3 * i + 2) for i in range(10)]
    graph = make_graph([30, 30], [links, links]).with_kinds(kinds, ("user", "item", "tag"))
    split = link_split(graph, 0, typed=True)
    for label in (True, False):
        joined = [tuple(sorted(kinds[list(pair)].tolist())) for pair in tuples(split, label)]
        assert (joined.count((0, 1)), joined.count((1, 2)), len(joined)) == (20, 10, 30)


def test_typed_new_nodes() -> None:
    rng = np.random.default_rng(0)
    kinds = np.array([0, 1] * 20)
    old = [(2 * i, 2 * i + 1) for i in range(10)]
    new = [(2 * i, 2 * i + 1) for i in range(10, 20)]
    later = [(2 * int(i), 2 * int(j) + 1) for i, j in rng.integers(0, 20, (80, 2))]
    graph = make_graph([20, 40, 40], [old, old + new, later]).with_kinds(kinds, ("user", "item"))
    for ends, lowest in (("both", 20), ("one", 0)):
        split = link_split(graph, 1, protocol="new-nodes", typed=True, new_ends=ends)  # type: ignore[arg-type]
        for pair in tuples(split, False):
            assert lowest <= pair[0] < pair[1] and pair[1] >= 20 and sum(pair) % 2 == 1
        assert split.labels.sum() * 2 == len(split.labels)


def test_too_few_links_raise() -> None:
    for number in range(1, 5):
        graph = make_graph([40, 40], [[(0, 1)], [(k, k + 1) for k in range(number)]])
        if number >= 3:
            assert len(link_split(graph, 0).labels) == 2 * number
            continue
        with pytest.raises(TooFewLinksError, match=rf"^step 0: too few examples in snapshot 1 .*: links {number}, "):
            link_split(graph, 0)
    dense = [pair for pair in combinations(range(8), 2) if pair not in ((0, 1), (3, 7))]
    with pytest.raises(TooFewLinksError, match=r"links 26, pairs without 2, needed 3 of each$"):
        link_split(make_graph([8, 8], [dense, dense]), 0)
    assert single_step(make_graph([8, 8], [dense, dense]), 0).missing == 15
    same_links = make_graph([4, 4], [[(0, 1), (2, 3)]] * 2)
    with pytest.raises(
        TooFewLinksError, match=r"^step 0: snapshot 1 has no new link between two nodes known at step 0$"
    ):
        link_split(same_links, 0, protocol="new-links")
    old = make_graph([2, 4, 4], [[(0, 1)], [(2, 3)], [(0, 1), (1, 2)]])
    with pytest.raises(TooFewLinksError, match=r"has no link between nodes that first appear at step 1$"):
        link_split(old, 1, protocol="new-nodes")


# Users, items and links of bipartite graphs; the last two have fewer unlinked pairs than links.
DENSE = ((30, 12, 60), (5, 4, 60), (4, 3, 12))


def refusal(call: Callable[..., object], *args: Any, **options: Any) -> str:
    try:
        call(*args, **options)
    except TooFewLinksError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("typed", [False, True])
def test_counting_agrees_with_drawing(typed: bool, growing: dysat.DynamicGraph) -> None:
    """`check_links` raises exactly when `link_split` does, with the same message."""
    graphs = [bipartite(seed, users, items, links) for seed, (users, items, links) in enumerate(DENSE)]
    # Four new nodes, and links of nearly all pairs of a user and an item.
    few, most = ([(u, v) for u, v in combinations(range(10), 2) if (u + v) % 2][i:] for i in (20, 3))
    graphs.append(make_graph([6, 10, 10, 10], [[(0, 1)], few, most, most]).with_kinds([0, 1] * 5, ("user", "item")))
    graphs += [] if typed else [growing]
    raised = 0
    for graph, protocol, ends, loops, fewest in product(
        graphs, PROTOCOLS, ("both", "one"), ("drop",) if typed else ("drop", "keep"), (3, 40)
    ):
        for step, target in ((0, 1), (1, 2), (1, 3) if protocol == "multi-step" else (2, 3)):
            how = {"protocol": protocol, "new_ends": ends, "self_loops": loops, "typed": typed, "fewest": fewest}
            counted, drawn = (refusal(call, graph, step, target=target, **how) for call in (check_links, link_split))
            assert counted == drawn
            raised += bool(counted)
    assert raised > 10


def test_invalid_arguments_raise(growing: dysat.DynamicGraph) -> None:
    message = (
        "^no protocol 'newlinks'; there are single-step, new-links, multi-step, new-nodes; did you mean 'new-links'"
    )
    with pytest.raises(dysat.DysatError, match=message):
        link_split(growing, 0, protocol="newlinks")  # type: ignore[arg-type]
    with pytest.raises(dysat.DysatError, match=message):
        predictable_steps(growing, "newlinks")  # type: ignore[arg-type]
    for target in (0, 1, 4, -1):
        with pytest.raises(dysat.DysatError, match=rf"^step 1: snapshot {target} is not one of those after it, 2 to"):
            link_split(growing, 1, protocol="multi-step", target=target)
    with pytest.raises(dysat.DysatError, match=r"^step 0: new-links predicts snapshot 1, not 2; multi-step can$"):
        link_split(growing, 0, protocol="new-links", target=2)
    with pytest.raises(dysat.DysatError, match=r"^typed pairs need kinds of nodes, and the graph has none$"):
        link_split(growing, 0, typed=True)
    friends = growing.with_kinds(np.zeros(13, dtype=int), ("user", "item"))
    with pytest.raises(
        dysat.DysatError, match=r"^typed pairs join different kinds, but two of kind 'user' are linked$"
    ):
        link_split(friends, 0, typed=True)
    with pytest.raises(dysat.DysatError, match=r"^new_ends='two'"):
        link_split(growing, 0, new_ends="two")  # type: ignore[arg-type]
    with pytest.raises(dysat.DysatError, match=r"^seed=-1"):
        link_split(growing, 0, seed=-1)
