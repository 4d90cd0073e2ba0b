"""What a page shows of a model: every figure against the model or a slow count."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from page_reading import page_content
from small import FORECASTING, QUICK, make_graph, meetings, two_blocks

import dysat
from dysat.data.summary import link_origins
from dysat.errors import ModelError
from dysat.report import content as module
from dysat.report.page import check_page

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}} ${7*7} {{data}}",
    "=cmd()",
    "\u202egnp.exe",
    "a\x00b\nc",
    "x" * 20_000,
    "\ud800 lone",
]


@pytest.fixture(scope="module")
def model() -> dysat.DySAT:
    return dysat.DySAT(**FORECASTING, seed=0).fit(meetings())


def shown(model: dysat.LinkModel, **given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return page_content(model.view(**given).html)


def test_every_link_has_one_origin() -> None:
    graph = meetings()
    seen, known, found = set[frozenset[int]](), 0, []
    for snapshot in graph:
        links = [frozenset(pair) for pair in zip(*(part.tolist() for part in snapshot.links()[:2]), strict=True)]
        with_new = sum(max(link) >= known for link in links)
        recurring = sum(link in seen for link in links)
        found.append([recurring, len(links) - with_new - recurring, with_new])
        seen, known = seen | set(links), snapshot.num_nodes
    assert link_origins(graph.snapshots).tolist() == found
    assert [sum(row) for row in found] == [snapshot.num_links for snapshot in graph]


def test_nodes_and_links_are_those_of_the_graph(model: dysat.DySAT) -> None:
    facts, arrays = shown(model)
    graph = model.graph_
    assert facts["labels"] == [str(label) for label in graph.nodes.tolist()] and not facts["raw_labels"]
    assert arrays["node_id"].tolist() == list(range(8)) and arrays["first_seen"].tolist() == [0] * 6 + [1, 2]
    starts = arrays["link_start"].tolist()
    for step, (begin, stop) in enumerate(pairwise(starts)):
        u, v, _ = graph[step].links()
        links = set(zip(u.tolist(), v.tolist(), strict=True))
        assert (
            set(zip(arrays["link_u"][begin:stop].tolist(), arrays["link_v"][begin:stop].tolist(), strict=True)) == links
        )
        degrees = [sum(node in link for link in links) for node in range(8)]
        assert arrays["degree"][step].tolist() == degrees
    assert [window["links"] for window in facts["windows"]] == [snapshot.num_links for snapshot in graph]
    assert facts["windows"][1]["recurring"] == link_origins(graph.snapshots)[1, 0]


def test_forecasts_are_those_of_the_model(model: dysat.DySAT) -> None:
    facts, arrays = shown(model)
    best = model.top_links(28)  # all pairs of eight nodes
    ranked = arrays["row_rank"] > 0
    assert arrays["row_pair"][ranked].tolist() == best.ids.tolist()
    np.testing.assert_allclose(arrays["row_score"][ranked], best.scores, rtol=1e-6)
    assert arrays["row_known"][ranked].astype(bool).tolist() == best.known.tolist()
    assert len(np.unique(np.sort(arrays["row_pair"], 1), axis=0)) == len(arrays["row_pair"])  # each pair once
    assert facts["score_note"] and facts["next"]["start"] == facts["windows"][-1]["end"]


def test_reasons_are_words_with_a_share(model: dysat.DySAT) -> None:
    facts, arrays = shown(model)
    assert (arrays["row_phrase"][:, 0] < len(facts["phrases"])).all()
    total = np.abs(arrays["row_share"]).sum(1)
    assert (total > 0).all() and (total <= 1 + 1e-5).all()
    reasons = model.why(model.top_links(1), number=5)[0].reasons
    assert [facts["phrases"][at] for at in arrays["row_phrase"][0] if at != module.NONE] == [
        why.text for why in reasons
    ]
    np.testing.assert_allclose(arrays["row_share"][0][: len(reasons)], [why.share for why in reasons], rtol=1e-5)


def test_attention_and_positions_are_those_of_the_model(model: dysat.DySAT) -> None:
    facts, arrays = shown(model)
    place = {pair: at for at, pair in enumerate((i, j) for i in range(5) for j in range(i + 1))}
    for step in range(5):
        beta = model.attention(step).numpy()
        np.testing.assert_allclose(facts["mean_attention"][step][: step + 1], beta.mean(0), atol=1e-5)
        assert facts["mean_attention"][step][step + 1 :] == [None] * (4 - step)
        columns = [place[step, j] for j in range(step + 1)]
        np.testing.assert_allclose(arrays["attention"][: len(beta), columns] / 255, beta, atol=0.5 / 255 + 1e-6)
    unknown = arrays["position"][:, :, 0] == module.UNKNOWN
    assert unknown.tolist() == [[node >= known for node in range(8)] for known in (6, 7, 8, 8, 8)]
    e = torch.nn.functional.normalize(model.roles(-1).flatten(1), dim=1)
    best = (e @ e.T).fill_diagonal_(-2).max(1).values.numpy()
    np.testing.assert_allclose(arrays["similarity"][:, 0], best, atol=1e-5)


def test_some_nodes_of_a_model_in_parts_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from dysat.models import attention

    monkeypatch.setattr(attention, "MOST_ROWS", {"cpu": 0})
    some = torch.tensor([1, 4, 5])
    for fitted in (dysat.DySAT(**FORECASTING).fit(meetings()), dysat.IncSAT(**QUICK).fit(meetings())):
        torch.testing.assert_close(fitted.roles(-1, nodes=some), fitted.roles(-1)[some])
        torch.testing.assert_close(fitted.attention(-1, nodes=some), fitted.attention(-1)[some])


def test_a_large_graph_shows_the_most_active_nodes_and_those_asked_for(
    model: dysat.DySAT, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 4)
    monkeypatch.setattr(module, "MOST_LINKS", 2)
    monkeypatch.setattr(module, "MOST_STEPS", 3)
    monkeypatch.setattr(module, "CONTACT_NODES", 1)
    facts, arrays = shown(model, nodes=[7])
    links = sum(module._degrees(model.graph_, step).astype(int) for step in range(5))
    others = np.delete(links, 7)
    assert 7 in arrays["node_id"] and len(facts["labels"]) == 4
    assert sorted(links[i] for i in arrays["node_id"] if i != 7) == sorted(others)[-3:]
    assert (facts["first_step"], arrays["degree"].shape, arrays["position"].shape) == (2, (3, 4), (3, 4, 2))
    assert len(arrays["link_u"]) <= 2 and (arrays["row_pair"] < 4).all()
    every = " ".join(facts["missing"])
    for what in ("the last 3 of 5 windows", "4 of 8 nodes", "a sample", "not on the page"):
        assert what in every


def test_what_a_model_lacks_is_said() -> None:
    graph = two_blocks(12, 3)
    facts, arrays = shown(dysat.MODELS["degree-product"]().fit(graph))
    assert "position" not in arrays and facts["mean_attention"] is None and facts["phrases"] == []
    assert any("no embeddings" in line for line in facts["missing"])
    assert any("reasons" in line for line in facts["missing"])
    facts, arrays = shown(dysat.DySAT(embeddings=False).fit(graph))
    assert "position" not in arrays and facts["phrases"]
    with pytest.raises(ModelError, match="fit"):
        dysat.DySAT().view()


@pytest.mark.parametrize("known, links", [([1], [[]]), ([2], [[(0, 1)]]), ([3, 3], [[(0, 1)], [(1, 2)]])])
def test_degenerate_graphs_have_a_page(known: list[int], links: list[list[tuple[int, int]]]) -> None:
    graph = make_graph(known, links)
    try:
        fitted = dysat.DySAT(**FORECASTING).fit(graph)
    except ModelError:
        fitted = dysat.MODELS["degree-product"]().fit(graph)
    facts, arrays = shown(fitted)
    assert len(facts["labels"]) == known[-1] and len(arrays["degree"]) == len(known)


def test_labels_are_data(tmp_path: Path) -> None:
    labels = np.array(HOSTILE, dtype=object)
    fitted = dysat.MODELS["degree-product"]().fit(meetings(labels))
    page = fitted.view(title="</title><script>alert(2)</script>\u202e")
    facts, _ = page_content(page.html)
    for text in ("alert(1)", "alert(2)</script>", "onerror", "=cmd()", "\u202e"):
        assert text not in page.html
    assert facts["raw_labels"]["4"] == HOSTILE[4] and facts["labels"][4] == r"\u202egnp.exe"
    assert facts["labels"][5] == r"a\x00b\nc" and len(facts["labels"][6]) == module.LONGEST
    assert facts["labels"][0] == HOSTILE[0] and "0" not in facts["raw_labels"]
    assert "&lt;script" in page._repr_html_() and page._repr_html_().count("<script") == 0
    about = {"learned_from": [("Source", "a\u202eb")], "notes": ["read \x1b[31m"]}  # names of files and columns
    facts = fitted.page((), "page", about).facts
    assert facts["learned_from"] == [["Source", r"a\u202eb"]] and facts["notes"] == [r"read \x1b[31m"]
    saved = page.save(tmp_path / "page.html")
    assert saved.read_text(encoding="utf-8") == page.html


def test_attributes_and_kinds_are_on_the_page(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    rows = [("0", "red", "1.5"), ("1", "blue", ""), ("2", "red", "3.5"), ("3", "", "2.0")]
    table.write_text("node,team,age\n" + "".join(",".join(row) + "\n" for row in rows))
    graph = meetings().with_attributes(dysat.read_nodes(table))
    facts, arrays = shown(dysat.MODELS["degree-product"]().fit(graph))
    by_name = {entry["name"].split(" ")[0]: number for number, entry in enumerate(facts["attributes"])}
    team, age = (arrays[f"attribute_{by_name[name]}"] for name in ("team", "age"))
    categories = facts["attributes"][by_name["team"]]["categories"]
    assert [None if np.isnan(x) else categories[int(x)] for x in team[:4]] == ["red", "blue", "red", None]
    assert np.isnan(age[[1, 4]]).all() and age[0] < age[3] < age[2]
    kinds = np.array([0] * 4 + [1] * 4, dtype=np.uint8)
    facts, arrays = shown(dysat.MODELS["degree-product"]().fit(meetings().with_kinds(kinds, ["user", "item"])))
    assert facts["kinds"] == ["user", "item"] and arrays["node_kind"].tolist() == kinds.tolist()


def test_only_a_page_is_replaced(tmp_path: Path) -> None:
    for name, content in (("letter.html", "<p>dear"), ("page.txt", None)):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(ModelError, match="page"):
            check_page(tmp_path / name)
    file = dysat.MODELS["degree-product"]().fit(meetings()).view().save(tmp_path / "page.html")
    check_page(file)
    with pytest.raises(ModelError):
        check_page(tmp_path / "no-folder.html" / "page.html" / "\0")
