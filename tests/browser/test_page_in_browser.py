"""The page of a run in a real browser: every view shows the numbers of the run, and every control works."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import Seen, browsing, hook, opened, table_of, wait_until
from page_reading import page_content

import dysat
from dysat.runs.report import run_page
from dysat.runs.run import Run
from dysat.system.text.csv_text import csv_field

WEEKS, PEOPLE = 6, 40
OLD = Path(__file__).resolve().parents[1] / "fixtures" / "old_runs" / "dysat-forecast"  # of version 0.1.0
LAST_COLUMN = {"auc": "average_precision", "mrr": "ranked", "hits_at_10": "ranked", "new_mrr": "ranked_new"}
Opened = tuple[Any, Seen]
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "{{constructor.constructor('window.hacked = 1')()}}",
    "javascript:window.hacked=1",
    "</script><script>window.hacked = 1</script>",
    "url(https://example.invalid/x.png)",
    "=cmd()",
    "@SUM(1,2)",
    "a\x1b[31mred\x07",
    "\u202egnp.exe",
    "x" * 10_000,
    "'; DROP TABLE nodes; --",
]


def make_log(folder: Path) -> tuple[Path, Path]:
    """A log of weekly messages in three teams, with hostile names among the people, and their attributes."""
    rng = np.random.default_rng(0)
    names = [*HOSTILE, *(f"p{i}" for i in range(PEOPLE - len(HOSTILE)))]
    rows = [("from", "to", "sent")]
    for week in range(WEEKS):
        for _ in range(120):
            u = int(rng.integers(PEOPLE - 4 * (week < 2)))
            v = int((u + 3 * rng.integers(1, 6)) % (PEOPLE - 4 * (week < 2)))
            rows.append((names[u], names[v], f"2024-01-{7 * week // 2 + 1:02}T00:00:0{week}"))
    people = [("node", "team", "age"), *((name, f"<b>team {i % 3}</b>", str(20 + i)) for i, name in enumerate(names))]
    for file, table in (("log.csv", rows), ("people.csv", people)):
        with (folder / file).open("w", newline="", encoding="utf-8") as out:
            csv.writer(out).writerows(table)
    return folder / "log.csv", folder / "people.csv"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("page")
    log, people = make_log(folder)
    events = dysat.read_events(log, src="from", dst="to", time="sent")
    graph = dysat.build_snapshots(events, count=WEEKS).with_attributes(dysat.read_nodes(people))
    model = dysat.DySAT(epochs=3, device="cpu")
    started = Run.start(folder / "<b>run & co</b>", graph, model, backtest=2)
    assert started.train()
    run_page(started).save(started.folder / "report.html")
    return started


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    with browsing() as found:
        yield found


@pytest.fixture
def page(run: Run, context: Any) -> Iterator[Opened]:
    """The page of the run; nothing may go wrong or be requested while a test uses it."""
    found, seen = opened(context, run.folder / "report.html")
    yield found, seen
    assert seen.problems == [] and seen.requests == []
    assert found.evaluate("window.hacked") is None
    found.close()


def go_to(page: Any, view: str) -> Any:
    page.click(hook(f"tab-{view}"))
    page.wait_for_selector(f"#view-{view}:visible")
    return page


def facts_of(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    return page_content((run.folder / "report.html").read_text(encoding="utf-8"))


def test_overview_shows_the_numbers_of_metrics_json(page: Opened, run: Run) -> None:
    tab, _ = page
    metrics = json.loads((run.folder / "metrics.json").read_text())
    windows = metrics["backtest"]["windows"]
    names = list(windows[0]["heuristics"])
    tiles = tab.locator(f"{hook('tiles')} dd[data-value]").evaluate_all("all => all.map(e => Number(e.dataset.value))")
    for place, measure in enumerate(("auc", "mrr", "hits_at_10", "new_mrr")):
        if measure != "auc":
            tab.click(hook(f"measure-{measure}"))
        *rows, mean = table_of(tab, f"chart-{measure}")
        for shown, window in zip(rows, windows, strict=True):
            wanted = [window["links"], window[measure], *(window["heuristics"][name][measure] for name in names)]
            assert shown[1 : 2 + len(names) + 1] == wanted
        assert [row[-1] for row in rows] == [window[LAST_COLUMN[measure]] for window in windows]
        means = metrics["backtest"]["heuristics"]
        wanted = [metrics["backtest"]["mean"][measure], *(means[name][measure] for name in names)]
        assert mean[0] == "Mean" and mean[2 : 2 + len(wanted)] == pytest.approx(wanted)
        assert tiles[place] == metrics["backtest"]["mean"][measure]
    precision = [row for row in table_of(tab, "chart-precision") if row[1] == "top 10"]
    hits = [[window["precision"][name]["10"] / 10 for name in ("all", "new")] for window in windows]
    assert [row[2:] for row in precision[:-1]] == hits and precision[-1][2:] == pytest.approx(np.mean(hits, 0))
    counts = [[row[3], row[7], row[8]] for row in table_of(tab, "chart-links")]
    assert counts == [[s.num_links, s.num_active, s.num_nodes] for s in run.graph()]
    curve = [part for part in metrics["backtest"]["forecast"]["reliability"] if part["pairs"]]
    shown = [row for row in table_of(tab, "chart-reliability") if row[0] == "All pairs"]
    assert [row[3:] for row in shown] == [[part["pairs"], part["mean_score"], part["linked"]] for part in curve]
    assert metrics["backtest"]["comparison"]["heuristic"] in tab.inner_text(hook("verdict"))
    assert tab.inner_text("h1") == run.folder.name and tab.locator("h1 b").count() == 0


def test_forecasts_sort_filter_search_and_export(page: Opened, run: Run, tmp_path: Path) -> None:
    tab, _ = page
    go_to(tab, "forecast")
    best = run.forecasts(1_000)
    rows = tab.locator('tr[data-test="row"]')
    scores = [float(s) for s in rows.locator("td.score").evaluate_all("all => all.map(e => e.dataset.value)")]
    np.testing.assert_allclose(scores, best.scores[: len(scores)], rtol=1e-6)
    assert len(scores) >= 50
    tab.click(hook("sort-score"))
    tab.click(hook("sort-score"))
    low = rows.locator("td.score").evaluate_all("all => all.map(e => Number(e.dataset.value))")
    assert low in (sorted(low), sorted(low, reverse=True))
    tab.select_option(hook("filter-pairs"), "new")
    tab.fill(hook("filter-search"), "P2")
    with tab.expect_download() as download:
        tab.click(hook("export"))
    text = Path(download.value.path()).read_text(encoding="utf-8-sig")
    exported = list(csv.DictReader(io.StringIO(text)))
    wanted = {
        frozenset(csv_field(str(label), raw=False).strip('"').replace('""', '"') for label in (link.u, link.v))
        for link in best
        if not link.known and ("p2" in str(link.u).lower() or "p2" in str(link.v).lower())
    }
    columns = list(exported[0])
    assert {frozenset((row[columns[1]], row[columns[2]])) for row in exported} == wanted and wanted
    tab.fill(hook("filter-search"), "=cmd")
    with tab.expect_download() as download:
        tab.click(hook("export"))
    text = Path(download.value.path()).read_text(encoding="utf-8-sig")
    assert "'=cmd()" in text and ",=cmd()" not in text and "\n=cmd()" not in text


def test_a_forecast_says_why(page: Opened, run: Run) -> None:
    tab, _ = page
    go_to(tab, "forecast")
    tab.locator('tr[data-test="row"]').first.click()
    shown = tab.locator(hook("why")).first
    reasons = run.model_at_hand().why(run.forecasts(1), number=5)[0].reasons
    text = shown.inner_text()
    assert all(reason.text in text for reason in reasons)
    shares = [float(s) for s in shown.locator(".share").evaluate_all("all => all.map(e => e.dataset.value)")]
    np.testing.assert_allclose(shares, [reason.share for reason in reasons], rtol=1e-5)


@pytest.mark.slow
def test_the_map_moves_with_time_and_lists_what_is_drawn_around(page: Opened, run: Run) -> None:
    tab, _ = page
    go_to(tab, "map")
    facts, arrays = facts_of(run)
    wait_until(tab, "dysatPage.points().length > 0")
    pictures = list[bytes]()
    for step in (0, WEEKS - 1):
        tab.locator(hook("slider")).fill(str(step))
        tab.wait_for_timeout(1_500)  # nodes move to their places
        known = int((arrays["position"][step, :, 0] != -32768).sum())
        assert len(tab.evaluate("dysatPage.points()")) == known
        pictures.append(tab.locator(hook("stage")).screenshot())
    assert pictures[0] != pictures[1] and min(map(len, pictures)) > 5_000
    assert len(set(arrays["position"][0, :30, 0])) > 10
    box = tab.locator(hook("map")).bounding_box()
    tab.click(hook("lasso"))
    corners = [(0.01, 0.01), (0.99, 0.01), (0.99, 0.99), (0.01, 0.99), (0.01, 0.02)]
    tab.mouse.move(box["x"] + 0.01 * box["width"], box["y"] + 0.01 * box["height"])
    tab.mouse.down()
    for x, y in corners:
        tab.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=5)
    tab.mouse.up()
    members = tab.locator(hook("members"))
    assert str(PEOPLE) in members.inner_text()
    with tab.expect_download() as download:
        tab.click(hook("export-lasso"))
    text = Path(download.value.path()).read_text(encoding="utf-8-sig")
    assert len(list(csv.reader(io.StringIO(text, newline="")))) == PEOPLE + 1
    tab.locator(hook("slider")).fill("0")
    tab.click(hook("play"))
    wait_until(tab, "dysatPage.state.step > 0")
    for value in tab.locator(f"{hook('colour')} option").evaluate_all("all => all.map(option => option.value)"):
        tab.select_option(hook("colour"), value)
    assert facts["attributes"][0]["name"] in tab.locator(hook("colour")).inner_text()


def test_a_chosen_node_is_chosen_everywhere_and_kept_in_the_address(page: Opened, run: Run, context: Any) -> None:
    tab, _ = page
    facts, arrays = facts_of(run)
    node = facts["labels"].index("p5")
    tab.evaluate(f"dysatPage.select({node})")
    go_to(tab, "node")
    assert tab.inner_text(hook("node-label")) == "p5"
    degrees = [row[1] for row in table_of(tab, "chart-degree")]
    assert degrees == arrays["degree"][:, node].tolist()
    similar = tab.locator(f"{hook('nearest')} .number").evaluate_all("all => all.map(e => Number(e.dataset.value))")
    np.testing.assert_allclose(similar, arrays["similarity"][node][: len(similar)], rtol=1e-5)
    tab.wait_for_timeout(600)
    fragment = "#" + tab.url.partition("#")[2]
    assert f"node={arrays['node_id'][node]}" in fragment and "view=node" in fragment
    again, seen = opened(context, run.folder / "report.html", fragment)
    assert again.inner_text(hook("node-label")) == "p5" and not seen.problems
    again.goto((run.folder / "report.html").absolute().as_uri() + "#view=nothing&node=999999&step=-1&colour=%")
    again.evaluate("dysatPage.ready")
    assert again.is_visible("#view-overview") and not seen.problems
    again.close()


def test_attention_is_that_of_the_model(page: Opened, run: Run) -> None:
    tab, _ = page
    tab.evaluate(f"dysatPage.select({facts_of(run)[0]['labels'].index('p5')})")
    go_to(tab, "attention")
    facts, _ = facts_of(run)
    values = [v for row in facts["mean_attention"] for v in row if v is not None]
    shown = [v for row in table_of(tab, "chart-attention") for v in row[1:] if isinstance(v, float)]
    np.testing.assert_allclose(sorted(shown), sorted(values), rtol=1e-6)


def test_hostile_labels_are_text(page: Opened, run: Run) -> None:
    tab, _ = page
    facts, _ = facts_of(run)
    named = [facts["raw_labels"].get(str(i), shown) for i, shown in enumerate(facts["labels"])]
    for view in ("node", "map", "forecast"):
        go_to(tab, view)
        for node in map(named.index, HOSTILE):
            tab.evaluate(f"dysatPage.select({node})")
            if view == "node":
                assert tab.inner_text(hook("node-label")).startswith(facts["labels"][node][:60])
    for view in ("overview", "attention"):
        go_to(tab, view)
    assert tab.locator("img, iframe, object, embed, link[href], base, form").count() == 0
    assert tab.locator("script").count() == 2  # the data and the page's own
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_nothing_runs_without_the_hash_of_the_policy(page: Opened) -> None:
    tab, seen = page
    failed = dict[str, str]()
    tab.on("requestfailed", lambda request: failed.update({request.url: request.failure}))
    tab.evaluate(
        """() => {
        const script = document.createElement("script");
        script.textContent = "window.hacked = 1";
        document.body.append(script);
        const image = document.createElement("img");
        image.setAttribute("onerror", "window.hacked = 1");
        image.src = "https://example.invalid/x.png";
        document.body.append(image);
        setTimeout("window.hacked = 1", 0);
        return fetch("https://example.invalid/").catch(() => null);
    }"""
    )
    tab.wait_for_timeout(300)
    assert tab.evaluate("window.hacked") is None
    assert len(seen.problems) >= 4 and all("Content Security Policy" in text for text in seen.problems)
    assert seen.requests and {failed.get(url) for url in seen.requests} == {"csp"}
    seen.problems.clear()
    seen.requests.clear()


def test_the_keyboard_is_enough(page: Opened) -> None:
    tab, _ = page
    tab.focus(hook("tab-overview"))
    for view in ("forecast", "map", "node", "attention"):
        tab.keyboard.press("ArrowRight")
        tab.wait_for_selector(f"#view-{view}:visible")
    tab.click(hook("theme"))
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"


@pytest.mark.parametrize("width", [360, pytest.param(1900, marks=pytest.mark.slow)])
def test_no_view_is_wider_than_the_screen(run: Run, context: Any, width: int) -> None:
    tab, seen = opened(context, run.folder / "report.html")
    tab.set_viewport_size({"width": width, "height": 800})
    for view in ("overview", "forecast", "map", "node", "attention"):
        go_to(tab, view)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, view
    assert seen.problems == []
    tab.close()


@pytest.mark.slow
def test_what_a_run_lacks_is_said(context: Any, tmp_path: Path) -> None:
    graph = dysat.load_dataset("uci")[:1]
    page = dysat.DySAT(embeddings=False).fit(graph).view(title="bare")
    tab, seen = opened(context, page.save(tmp_path / "bare.html"))
    assert tab.is_visible(hook("no-backtest"))
    for view in ("map", "attention"):
        go_to(tab, view)
        assert "no embeddings" in tab.inner_text(f"#view-{view}")
    assert seen.problems == [] and seen.requests == []


def test_a_run_without_ranking_has_no_place_for_it(context: Any, tmp_path: Path) -> None:
    tab, seen = opened(context, run_page(Run.open(OLD), quick=True).save(tmp_path / "old.html"))
    names = tab.locator(f"{hook('tiles')} dt").all_inner_texts()
    assert names == ["AUC", "Tested on"] and tab.locator('[data-test^="measure-"]').count() == 0
    charts = tab.locator("#view-overview figure").evaluate_all("all => all.map(e => e.dataset.test)")
    assert charts == ["chart-auc", "chart-reliability", "chart-links"]
    assert [len(row) for row in table_of(tab, "chart-auc")] == [4]  # window, links, model, heuristic
    assert not any(word in tab.inner_text("#view-overview") for word in ("NaN", "undefined", "null"))
    assert seen.problems == []
    tab.close()


def test_the_page_works_in_the_frame_of_a_notebook(run: Run, context: Any, tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><body>{run_page(run)._repr_html_()}</body>", encoding="utf-8")
    tab, problems = context.new_page(), list[str]()
    tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda problem: problems.append(str(problem)))
    tab.goto(notebook.as_uri())
    frame = tab.frame_locator("iframe")
    for view in ("forecast", "map", "node"):
        frame.locator(hook(f"tab-{view}")).click()
        frame.locator(f"#view-{view}").wait_for()
    assert problems == []
    tab.close()


def test_the_command_writes_the_page(run: Run, tmp_path: Path, cli: Any) -> None:
    code, out, problem = cli("view", run.folder, "-o", tmp_path / "page.html", "--json")
    assert code == 0, problem
    facts = json.loads(out)
    assert facts["bytes"] == (tmp_path / "page.html").stat().st_size < 3_000_000


@pytest.mark.slow
def test_twenty_thousand_nodes_fit_in_eight_megabytes_and_half_a_gigabyte(context: Any, tmp_path: Path) -> None:
    """The seconds until it is ready are printed: a limit would test the machine."""
    nodes, steps = 20_000, 13
    rng = np.random.default_rng(0)
    u = rng.integers(0, nodes, 100_000)
    v = (u + rng.integers(1, 40, 100_000)) % nodes
    events = dysat.read_events((u, v, np.sort(rng.integers(0, steps, 100_000))), time_unit="step")
    graph = dysat.build_snapshots(events, every=1)
    model = dysat.DySAT(epochs=1, device="cpu", structural_features=(32,), temporal_features=(32,)).fit(graph)
    file = model.view(title="large").save(tmp_path / "large.html")
    assert file.stat().st_size < 8_000_000
    tab, seen = opened(context, file)
    taken = tab.evaluate("performance.now()")
    go_to(tab, "map")
    wait_until(tab, "dysatPage.points().length > 19000")
    session = context.new_cdp_session(tab)
    session.send("HeapProfiler.collectGarbage")
    used = tab.evaluate("performance.memory.usedJSHeapSize")
    assert used < 500e6 and seen.problems == [] and seen.requests == []
    print(f"{file.stat().st_size / 1e6:.1f} MB, ready after {taken / 1000:.1f} s, {used / 1e6:.0f} MB")  # noqa: T201
    tab.close()
