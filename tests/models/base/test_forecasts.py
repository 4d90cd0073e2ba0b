"""Forecasts: a sequence of links and a table, the links of each node, and scores by label."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from run_folders import quick, small_graph
from small import make_graph, meetings

from dysat import MODELS, DynamicGraph, DySAT, Forecast, Forecasts, GraphError, ModelError
from dysat.features.pair_history import history_of, pair_history
from dysat.models.base import best_pairs
from dysat.models.forecast import candidates
from dysat.system import extras
from dysat.system.extras import MissingPackageError

__all__ = ["quick"]

NAMES = np.array(["ann", "bob", "cy", "<b>dan</b>", "eve", "fay", "gus", "hal"], dtype=object)
QUICK: dict[str, Any] = {
    "epochs": 1,
    "structural_heads": (2,),
    "structural_features": (8,),
    "temporal_heads": (2,),
    "temporal_features": (8,),
}


def films() -> DynamicGraph:
    """Users and films with the same labels."""
    links = [[(0, 1), (2, 3), (4, 5)], [(0, 3), (2, 1), (4, 1)], [(0, 5), (2, 3), (4, 3)]]
    graph = make_graph([6, 6, 6], links, nodes=np.array(["a", "a", "b", "c", "d", "e"], dtype=object))
    return graph.with_kinds([0, 1] * 3, ["user", "film"])


@pytest.fixture(scope="module", params=["pair score", "embeddings", "heuristic", "kinds"])
def model(request: pytest.FixtureRequest) -> Any:
    if request.param == "heuristic":
        return MODELS["common-neighbours"]().fit(meetings(NAMES))
    graph = films() if request.param == "kinds" else meetings(NAMES)
    return DySAT(**QUICK, pair_score=request.param != "embeddings").fit(graph)


@pytest.mark.parametrize("known", ["include", "exclude"])
@pytest.mark.parametrize("k", [1, 3, 99])
def test_links_of_each_node_are_those_of_one_node(model: Any, k: int, known: Any) -> None:
    graph, found = model.graph_, model.top_links(k, each=True, known=known)
    assert found.by_node and len(found) > 0
    for id_, label in enumerate(graph.nodes):
        kind = None if graph.kinds is None else graph.kind_names[graph.kinds[id_]]
        own = found[int(np.searchsorted(found.ids[:, 0], id_)) : int(np.searchsorted(found.ids[:, 0], id_, "right"))]
        one = model.top_links(k, node=label, kind=kind, known=known)
        assert [(u, v, known) for u, v, _, known in own] == [(u, v, known) for u, v, _, known in one]
        np.testing.assert_allclose(own.scores, one.scores, atol=1e-6)  # sums of a block and of a row differ by rounding
        assert own.ranks.tolist() == list(range(1, len(own) + 1))
        assert own.scores.tolist() == sorted(own.scores.tolist(), reverse=True)


def test_scores_are_those_of_score_links(model: Any) -> None:
    for found in (model.top_links(99), model.top_links(99, each=True)):
        expected = model.score_links(found.ids, ids=True).double().numpy()
        np.testing.assert_allclose(found.scores, expected, atol=1e-6)


def test_links_of_each_node_of_a_larger_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates instead of all pairs, a few nodes at a time: the links found have the scores of all pairs."""
    model = DySAT(**QUICK).fit(meetings(NAMES))
    whole = model.top_links(99, each=True)
    monkeypatch.setattr(candidates, "ALL_PARTNERS_PAIRS", 0)
    monkeypatch.setattr(candidates, "NODES_AT_ONCE", 3)
    done: list[float] = []
    assert model.top_links(99, each=True, on_progress=done.append) == whole
    assert done == sorted(done) and done[-1] == 1.0
    few = model.top_links(2, each=True)
    assert few == [link for link, rank in zip(whole, whole.ranks, strict=True) if rank <= 2]


def test_equal_scores_are_ordered_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["common-neighbours"]().fit(make_graph([6], [[(0, 1)]]))
    monkeypatch.setattr(best_pairs, "BLOCK", 1)
    assert [tuple(link)[:2] for link in model.top_links(2, each=True)][:4] == [(0, 1), (0, 2), (1, 0), (1, 2)]


def test_several_nodes_in_the_order_asked_for() -> None:
    model = DySAT(**QUICK).fit(meetings(NAMES))
    found = model.top_links(2, node=["fay", "ann", "fay"])
    assert [link.u for link in found] == ["fay", "fay", "ann", "ann"] and found.ranks.tolist() == [1, 2, 1, 2]
    assert found[:2] == model.top_links(2, node="fay") == model.top_links(2, node=["fay"])
    assert len(model.top_links(2, node=[])) == 0
    with pytest.raises(GraphError, match=r"^no node 'an'; did you mean 'ann'\?$"):
        model.top_links(2, node=["fay", "an"])
    with pytest.raises(ModelError, match=r"^each=True ranks the links of every node: give no node$"):
        model.top_links(2, node="fay", each=True)


def test_each_node_of_a_kind() -> None:
    model = DySAT(**QUICK).fit(films())
    found = model.top_links(2, each=True, kind="film")
    assert found.kinds is not None and found.kinds.tolist() == [["film", "user"]] * 6
    with pytest.raises(ModelError, match=r"^no kind 'movie'; there are user, film$"):
        model.top_links(2, each=True, kind="movie")


def test_sequence() -> None:
    found = DySAT(**QUICK).fit(meetings(NAMES)).top_links(5)
    links = list(found)
    assert isinstance(found, Forecasts) and len(found) == 5 and all(isinstance(link, Forecast) for link in links)
    assert found[0] == links[0] and found[-1] == links[-1] and found[np.int64(2)] == links[2]
    assert isinstance(found[1:3], Forecasts) and list(found[1:3]) == links[1:3] and found[::-1] == links[::-1]
    assert found == links and found != links[:4] and found != found[::-1] and (found == 3) is False
    assert links[2] in found and found.index(links[2]) == 2
    assert type(links[0].score) is float and type(links[0].known) is bool
    with pytest.raises(IndexError, match="link 5 of 5 forecasts"):
        found[5]
    with pytest.raises(ValueError, match="read-only"):
        found.scores[0] = 1.0


def test_iteration_makes_few_tuples_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from dysat.models.base import forecasts

    found = DySAT(**QUICK).fit(meetings(NAMES)).top_links(3, each=True)
    expected = list(found)
    monkeypatch.setattr(forecasts, "AT_ONCE", 2)
    assert list(found) == expected


def test_tables() -> None:
    found = DySAT(**QUICK).fit(films()).top_links(3, node="b")
    columns = ["node", "partner", "node_kind", "partner_kind", "score", "known", "rank", "window_start", "window_end"]
    table, frame = found.to_polars(), found.to_pandas()
    assert table.columns == list(frame.columns) == columns
    assert table["node"].to_list() == frame["node"].to_list() == ["b"] * 3 and table["node_kind"].unique()[0] == "user"
    assert table["score"].to_list() == frame["score"].to_list() == [link.score for link in found]
    assert table["known"].dtype == pl.Boolean and frame["known"].dtype == bool
    assert table["rank"].to_list() == [1, 2, 3]
    if found.graph.clock == "utc":
        assert table["window_end"][0] == frame["window_end"][0] == found.window[1]
    plain = DySAT(**QUICK).fit(meetings()).top_links(2)
    assert plain.to_polars().columns[:3] == ["u", "v", "score"] and plain.kinds is None
    assert isinstance(plain.to_pandas(), pd.DataFrame)
    assert len(plain[:0].to_polars()) == len(plain[:0].to_pandas()) == 0


def test_pandas_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    found = DySAT(**QUICK).fit(meetings()).top_links(2)
    monkeypatch.setattr(extras, "is_installed", lambda package: False)
    with pytest.raises(MissingPackageError, match=r"^to_pandas\(\) needs pandas; install it with: pip install"):
        found.to_pandas()


def test_window_after_the_last() -> None:
    import dysat

    times = [f"2024-{month:02}-10" for month in (1, 2, 3, 4)]
    events = dysat.read_events((["a", "b", "a", "c"], ["b", "c", "c", "b"], times))
    months = MODELS["common-neighbours"]().fit(dysat.build_snapshots(events, every="1mo"))
    assert months.top_links(1).window == (datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 6, 1, tzinfo=UTC))
    texts = months.top_links(1).columns(texts=True)
    assert texts["window_start"].tolist() == ["2024-05-01T00:00:00Z"]
    assert months.top_links(1).to_polars()["window_end"][0] == datetime(2024, 6, 1, tzinfo=UTC)
    days = MODELS["common-neighbours"]().fit(dysat.build_snapshots(events, every="10d"))
    start, end = days.top_links(1).window
    assert start == datetime(2024, 4, 19, tzinfo=UTC) and end == datetime(2024, 4, 29, tzinfo=UTC)


def test_text_and_html() -> None:
    model = DySAT(**QUICK).fit(meetings(NAMES))
    found = model.top_links(99)
    text, html = repr(found), found._repr_html_()
    assert text.splitlines()[0].startswith(f"{len(found)} likely links in ")
    assert text.splitlines()[1].split() == ["u", "v", "score", "known", "rank"]
    assert len(text.splitlines()) == 13 and text.endswith("more; to_polars() and to_pandas() have all")
    assert "<b>dan</b>" in repr(model.top_links(99, node="<b>dan</b>"))
    html = model.top_links(99, node="<b>dan</b>")._repr_html_()
    assert "<b>" not in html and "&lt;b&gt;dan&lt;/b&gt;" in html and html.count("<tr>") == 8


def test_score_links_takes_labels() -> None:
    model = DySAT(**QUICK).fit(meetings(NAMES))
    expected = model.score_links([[0, 1], [5, 2]], ids=True)
    for pairs in ([("ann", "bob"), ("fay", "cy")], np.array([["ann", "bob"], ["fay", "cy"]], dtype=object)):
        assert torch.equal(model.score_links(pairs), expected)
    assert model.score_links([]).shape == (0,)
    numbered = DySAT(**QUICK).fit(meetings(np.arange(8) * 100))
    assert torch.equal(numbered.score_links([(0, 700)]), numbered.score_links([[0, 7]], ids=True))
    assert torch.equal(numbered.score_links(torch.tensor([[0, 700]])), numbered.score_links([[0, 7]], ids=True))


@pytest.mark.parametrize("pairs", ["ab", ["ab", "cd"], [("ann",)], [("ann", "bob", "cy")], 3, [3, 4]], ids=str)
def test_what_is_no_pair_of_labels_is_refused(pairs: Any) -> None:
    model = MODELS["common-neighbours"]().fit(meetings(NAMES))
    with pytest.raises(ModelError, match=r"^pairs must be labels, two in a row, .*; ids=True takes node ids$"):
        model.score_links(pairs)


def test_unknown_labels_are_named() -> None:
    model = MODELS["common-neighbours"]().fit(meetings(NAMES))
    with pytest.raises(GraphError, match=r"^no node 'an'; did you mean 'ann'\?$"):
        model.score_links([("bob", "an")])


def test_labels_of_two_kinds_are_read_in_the_order_of_the_kinds() -> None:
    graph = films()  # "a" is user 0 and film 1; "b" is a user, "c" a film
    pairs = [("a", "a"), ("a", "c"), ("c", "a"), ("b", "a"), ("a", "b"), ("b", "c")]
    assert graph.pair_ids(pairs).tolist() == [[0, 1], [0, 3], [3, 0], [2, 1], [1, 2], [2, 3]]


def test_a_prepared_model_computes_no_history_again() -> None:
    model = DySAT(embeddings=False).fit(small_graph())
    pair_history.cache_clear()
    assert model.prepare() is model
    before = pair_history.cache_info().misses
    history = history_of(model.graph_, len(model.graph_) - 1, True)
    assert {"spectra", "extended", "uniform_features"} <= vars(history).keys()
    model.top_links(3)
    model.top_links(2, each=True)
    assert pair_history.cache_info().misses == before
