"""Models in a directed graph: ordered forecasts, two roles, files; models that ignore direction still work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from directed import directed_graph, payments
from run_folders import quick
from small import FORECASTING, QUICK
from torch.testing import assert_close

from dysat import MODELS, DySAT, ModelError
from dysat.evaluation.probe import auc, evaluate_probe
from dysat.evaluation.protocols import link_split
from dysat.models.base.embedding import EmbeddingModel
from dysat.runs.run import Run

__all__ = ["quick"]

PAYMENTS = payments()
SMALL: dict[str, Any] = {**FORECASTING, "epochs": 3}


def forecaster(**changes: Any) -> DySAT:
    return DySAT.from_preset("text", **{**SMALL, **changes})


@pytest.fixture(scope="module")
def model() -> DySAT:
    sizes = {
        f"{block}_{what}": (n,) for block in ("structural", "temporal") for what, n in (("heads", 4), ("features", 32))
    }
    return DySAT(**sizes, epochs=40, device="cpu").fit(PAYMENTS[:-1])  # type: ignore[arg-type]


def one_way(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Payments of a step that were not answered, followed by their reversed pairs; and which are payments."""
    u, v, _ = PAYMENTS[step].arcs()
    known = PAYMENTS.known[step - 1]
    arcs = {(a, b) for a, b in zip(u.tolist(), v.tolist(), strict=True) if max(a, b) < known and a != b}
    pairs = torch.tensor([pair for pair in sorted(arcs) if pair[::-1] not in arcs])
    return torch.cat([pairs, pairs.flip(1)]), torch.arange(2 * len(pairs)) < len(pairs)


def test_forecasts_go_from_company_to_person(model: DySAT) -> None:
    links = model.top_links(50)
    assert len({(link.u, link.v) for link in links}) == len(links)
    assert sum(str(link.u).startswith("company") for link in links) >= 45
    ends = torch.cat([torch.stack(snapshot.arcs()[:2], 1) for snapshot in model.graph_])
    past = {(u, v) for u, v in model.graph_.nodes[ends.numpy()].tolist()}
    assert all(link.known == ((link.u, link.v) in past) for link in links)
    new = model.top_links(50, known="exclude")
    assert not any((link.u, link.v) in past for link in new)
    sent = model.top_links(99, node="company 3")
    assert {link.u for link in sent} == {"company 3"} and len(sent) == model.graph_.num_nodes - 1


def test_both_roles_predict_who_sends(model: DySAT) -> None:
    pairs, labels = one_way(5)
    source, target = model.embed(), model.embed(role="target")
    weights, bias = model.scorer_
    products = (source[pairs[:, 0]] * target[pairs[:, 1]]) @ weights + bias
    assert auc(products, labels) > 0.75  # 0.5 with one role
    x = super(DySAT, model).embed()
    assert model.score_ is not None
    assert_close(products, model.score_(x[pairs[:, 0]], x[pairs[:, 1]]).detach(), rtol=1e-3, atol=1e-3)
    assert_close(model.roles(), torch.stack([source, target], 1))
    with pytest.raises(ModelError, match="role='both' is neither 'source' nor 'target'"):
        model.embed(role="both")  # type: ignore[arg-type]


def test_a_probe_reads_the_source_of_u_and_the_target_of_v(model: DySAT) -> None:
    split = link_split(PAYMENTS, 4, repeats=2)
    found = evaluate_probe(model.roles(), split)
    source, target = model.embed(), model.embed(role="target")
    products = source[split.pairs[:, 0]] * target[split.pairs[:, 1]]
    as_one = torch.cat([products, torch.ones_like(products)])  # each pair as a node, paired with ones
    rows = torch.arange(len(products))
    same = evaluate_probe(as_one, replace(split, pairs=torch.stack([rows, rows + len(rows)], 1)))
    assert found.aucs == same.aucs


def test_embeddings_alone_rank_ordered_pairs() -> None:
    model = forecaster(pair_score=False).fit(PAYMENTS[:3])
    nodes = torch.arange(PAYMENTS.known[2])
    pairs = torch.cartesian_prod(nodes, nodes)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    scores = model.pair_scores(pairs)
    best = model.top_links(len(pairs))
    assert len(best) == len(pairs)
    labels = model.graph_.nodes[pairs[scores.argmax()].numpy()].tolist()
    assert [best[0].u, best[0].v] == labels


@pytest.mark.parametrize("pair_score", [True, False])
def test_files_keep_both_roles(tmp_path: Path, pair_score: bool) -> None:
    model = forecaster(pair_score=pair_score).fit(PAYMENTS[:3])
    model.save(tmp_path / "model")
    loaded = DySAT.load(tmp_path / "model", device="cpu")
    for role in ("source", "target"):
        assert_close(loaded.embed(role=role), model.embed(role=role), rtol=0, atol=0)  # type: ignore[arg-type]
    assert loaded.top_links(9) == model.top_links(9)


def test_a_run_exports_both_roles(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", PAYMENTS[:4], forecaster(device="cpu"))
    assert run.train()
    table = pl.read_parquet(run.folder / "embeddings.parquet").filter(pl.col("step") == 3)
    assert table.columns == ["node", "step", "embedding", "target_embedding"]
    fitted = run.model("cpu")
    for name, role in (("embedding", "source"), ("target_embedding", "target")):
        assert_close(torch.tensor(table[name].to_numpy()), fitted.embed(role=role), rtol=0, atol=0)  # type: ignore[call-arg]
    assert run.metrics()["directed"] is True


def test_without_direction_both_roles_are_the_same() -> None:
    past = PAYMENTS[:3]
    plain = replace(past, snapshots=tuple(replace(snapshot, sent=None) for snapshot in past))
    model = forecaster().fit(plain)
    assert model.roles().dim() == 2 and torch.equal(model.embed(role="target"), model.embed())
    assert "score/target" not in model._state() and "axes_target" not in model._state()


@pytest.mark.parametrize("method", sorted(MODELS))
def test_every_method_works_on_a_directed_graph(method: str) -> None:
    kind = MODELS[method]
    try:
        kind.check_packages()
    except Exception as problem:
        pytest.skip(str(problem))
    names = {option.name for option in kind.options()}
    small = {"epochs": 1, "device": "cpu", "rounds": 5, "walks_per_node": 1}
    model = kind(**{name: value for name, value in small.items() if name in names})
    graph = PAYMENTS[:3]
    model.fit(graph)
    pairs = torch.tensor([[0, 1], [1, 0], [2, 5], [5, 2], [7, 3], [3, 7]])
    scores = model.pair_scores(pairs).view(-1, 2)
    if not model.uses_direction:
        assert torch.equal(scores[:, 0], scores[:, 1])
    links = model.top_links(10**6)
    assert len(links) > graph.num_nodes and len({(link.u, link.v) for link in links}) == len(links)
    if isinstance(model, EmbeddingModel) and model.method != "dysat":
        assert model.roles().dim() == 2


@pytest.mark.parametrize("method", ["last-snapshot", "edgebank", "edge-memory", "degree-product", "degree-sum"])
def test_heuristics_follow_the_arcs(method: str) -> None:
    graph = directed_graph([4, 4], [{(0, 1): 3}, {(0, 1): 2, (2, 1): 1, (3, 0): 1}])
    model = MODELS[method]().fit(graph)
    there, back = model.pair_scores(torch.tensor([[0, 1], [1, 0]])).tolist()
    assert there > back and model.uses_direction
    if method == "degree-product":
        sent, received = np.log1p([3.5, 0, 1, 1]), np.log1p([1, 4.5, 0, 0])
        found = model.pair_scores(torch.cartesian_prod(torch.arange(4), torch.arange(4))).view(4, 4)
        assert_close(found, torch.from_numpy(np.outer(sent, received)))


def test_the_paper_ignores_direction() -> None:
    model = DySAT.from_preset("text", **QUICK).fit(PAYMENTS[:3])
    assert not model.uses_direction and DySAT().uses_direction
    assert model.roles().dim() == 2
