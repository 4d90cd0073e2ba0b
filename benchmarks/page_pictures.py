"""Take the pictures of the page that the docs show: docs/images/page-*.png.

    python benchmarks/page_pictures.py RUN

RUN is a run folder, made by `dysat fit uci`. It needs Playwright and a browser, as `make test-browser` does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dysat.runs.report import run_page
from dysat.runs.run import Run

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from browsing import browsing, hook, opened  # noqa: E402

SIZE = {"width": 1180, "height": 760}


def main(folder: str) -> None:
    """Choose the most active node of the last windows, and take pictures of the map and of the node."""
    run = Run.open(folder)
    page = run_page(run)
    file = page.save(Path(folder) / "report.html")
    chosen = int(page.content.arrays["degree"][-3:].sum(0).argmax())
    with browsing(viewport=SIZE) as context:
        tab, seen = opened(context, file)
        tab.evaluate(f"dysatPage.select({chosen})")
        tab.click(hook("tab-map"))
        tab.wait_for_timeout(2_000)
        tab.screenshot(path=ROOT / "docs" / "images" / "page-map.png")
    if seen.problems or seen.requests:
        raise SystemExit(f"the page has problems: {seen}")


if __name__ == "__main__":
    main(*sys.argv[1:])
