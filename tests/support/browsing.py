"""Open a page in a real browser, without a window and without network."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SOFTWARE = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox")  # WebGL without a GPU
PATIENCE = 20_000  # milliseconds


@cache
def browser_file() -> str | None:
    """The browser to test with: $DYSAT_BROWSER, an installed Chromium or Chrome, or the one of Playwright."""
    given = os.environ.get("DYSAT_BROWSER")
    found = given or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and find_spec("playwright") is not None:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            installed = playwright.chromium.executable_path
        found = installed if Path(installed).exists() else None
    return found


def need_a_browser() -> str:
    """Skip the test where there is no browser; make test-browser installs what it can."""
    if find_spec("playwright") is None:
        pytest.skip("Playwright is not installed; make test-browser installs it")
    if (file := browser_file()) is None:
        pytest.skip("no browser found: install Chromium, or set DYSAT_BROWSER; see make test-browser")
    return file


@dataclass
class Seen:
    """What happened while a page was open."""

    problems: list[str] = field(default_factory=list)  # errors of the console and of scripts, and dialogs
    requests: list[str] = field(default_factory=list)  # everything that was loaded but the page itself


@contextmanager
def browsing(**options: Any) -> Iterator[Any]:
    """A browser context that accepts downloads."""
    file = need_a_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=file, args=list(SOFTWARE))
        try:
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
            context.set_default_timeout(PATIENCE)
            yield context
        finally:
            browser.close()


def opened(context: Any, file: Path, fragment: str = "") -> tuple[Any, Seen]:
    """Open a page and wait until it shows its content."""
    page, seen = context.new_page(), Seen()
    own = file.absolute().as_uri()

    def dialog(found: Any) -> None:
        seen.problems.append(f"dialog: {found.message}")
        found.dismiss()

    page.on(
        "console", lambda message: seen.problems.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda problem: seen.problems.append(str(problem)))
    page.on("dialog", dialog)
    page.on("request", lambda request: None if request.url.split("#")[0] == own else seen.requests.append(request.url))
    page.goto(own + fragment)
    page.evaluate("dysatPage.ready")
    return page, seen


def wait_until(page: Any, condition: str) -> None:
    """Wait until an expression is true; Playwright's own function would evaluate texts, which the page forbids."""
    end = time.monotonic() + PATIENCE / 1_000
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"not true after {PATIENCE / 1_000:.0f} s: {condition}"
        page.wait_for_timeout(50)


def hook(name: str) -> str:
    """The selector of an element with this name."""
    return f'[data-test="{name}"]'


def table_of(page: Any, name: str) -> list[list[Any]]:
    """The numbers of a chart, from the table below it: numbers in full precision, and texts."""
    details = page.locator(f"{hook(name)} details.numbers").first
    if details.get_attribute("open") is None:
        details.locator("summary").click()
    details.locator("tbody tr").first.wait_for()
    cells = "row => [...row.cells].map(cell => cell.dataset.value ?? cell.textContent)"
    rows = details.locator("tbody tr").evaluate_all(f"rows => rows.map({cells})")
    return [[_number(cell) for cell in row] for row in rows]


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
