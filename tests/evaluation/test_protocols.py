"""Which pairs are examples: the right ones, no others, and nothing of the future."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pytest
import torch

import dysat
from dysat.evaluation.protocols import LinkSplit, single_step

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
    fields = [f.name for f in dataclasses.fields(LinkSplit) if f.name != "step"]
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in fields)


def test_positives_are_next_links_of_known_nodes(tiny: dysat.DynamicGraph) -> None:
    split = single_step(tiny, 0)
    assert sorted(tuples(split, True)) == [(0, 1), (0, 5), (1, 2)]
    assert split.step == 0 and split.num_repeats == 10 and split.pairs.dtype == torch.int64
    assert split.labels.dtype == split.train.dtype == torch.bool
    kept = single_step(tiny, 0, self_loops="keep")
    assert sorted(tuples(kept, True)) == [(0, 1), (0, 5), (1, 2), (3, 3)]
    assert len(tuples(kept, False)) == 4 and all(u < v for u, v in tuples(kept, False))


def test_every_unlinked_pair_is_as_likely(tiny: dysat.DynamicGraph) -> None:
    counts = dict.fromkeys(set(combinations(range(6), 2)) - {(0, 1), (0, 5), (1, 2)}, 0)
    for seed in range(800):
        for pair in tuples(single_step(tiny, 0, seed=seed, repeats=1), False):
            counts[pair] += 1  # a KeyError is a pair that may not be drawn
    expected = 800 * 3 / len(counts)  # 200, standard deviation 12
    assert max(abs(count - expected) for count in counts.values()) < 60


def test_a_dense_snapshot_gives_all_the_negatives_there_are() -> None:
    links = [pair for pair in combinations(range(8), 2) if pair not in ((0, 1), (3, 7))]
    split = single_step(make_graph([8, 8], [links, links]), 0)
    assert len(tuples(split, True)) == 26 and sorted(tuples(split, False)) == [(0, 1), (3, 7)]
    complete = list(combinations(range(4), 2))
    assert single_step(make_graph([4, 4], [complete, complete]), 0).labels.all()


@pytest.mark.parametrize("step", range(12))
def test_uci(uci: dysat.DynamicGraph, step: int) -> None:
    split = single_step(uci, step)
    u, v, _ = uci[step + 1].links()
    links = set(zip(u.tolist(), v.tolist(), strict=True))
    assert set(tuples(split, True)) == {(a, b) for a, b in links if b < uci.known[step]}
    assert len(tuples(split, True)) == len(tuples(split, False)) == len(split.labels) // 2
    assert not links & set(tuples(split, False))
    assert len({tuple(pair) for pair in split.pairs.tolist()}) == len(split.pairs)
    assert (split.pairs[:, 0] < split.pairs[:, 1]).all()
    assert split.pairs.min() >= 0 and split.pairs.max() < uci[: step + 1].num_nodes


def test_every_example_is_in_one_part(uci: dysat.DynamicGraph) -> None:
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


@pytest.mark.parametrize("number", range(1, 30))
def test_no_class_is_missing_from_three_examples_on(number: int) -> None:
    split = single_step(make_graph([40, 40], [[(0, 1)], [(k, k + 1) for k in range(number)]]), 0)
    for label in (True, False):
        here = split.labels == label
        assert (split.validation & here).any()
        assert (split.train & here).any(1).all() == (number >= 2)
        assert (split.test & here).any(1).all() == (number >= 3)


def test_the_seed_and_the_step_decide(uci: dysat.DynamicGraph) -> None:
    assert same(single_step(uci, 5), single_step(uci, 5))
    other = single_step(uci, 5, seed=1)
    assert set(tuples(other, False)) != set(tuples(single_step(uci, 5), False))
    assert not torch.equal(other.validation, single_step(uci, 5).validation)
    three = single_step(uci, 5, repeats=3)  # are the first three of ten
    assert torch.equal(three.train, single_step(uci, 5).train[:3])
    twice = make_graph([6, 6, 6], [[(0, 1), (2, 3), (4, 5)]] * 3)
    assert set(tuples(single_step(twice, 0), False)) != set(tuples(single_step(twice, 1), False))


def test_nothing_after_the_predicted_snapshot_matters(uci: dysat.DynamicGraph) -> None:
    split = single_step(uci, 4)
    assert same(split, single_step(uci[:6], 4))
    other = dataclasses.replace(
        uci[:7], snapshots=(*uci[:6], dataclasses.replace(uci[9], num_nodes=uci.known[6], start=uci[6].start))
    )
    assert same(split, single_step(other, 4))


def test_what_cannot_be_predicted_is_said(tiny: dysat.DynamicGraph) -> None:
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
