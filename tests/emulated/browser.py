"""Debian's Chromium, driven by Playwright, which downloads no browser of its own."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from stacks.settings import REPOSITORY

AXE = REPOSITORY / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = REPOSITORY / "build" / "console"
PICTURE = ViewportSize(width=1_280, height=800)
# No word to anybody but the console.
QUIETLY = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def why_missing() -> str:
    """Why no browser can be driven here; empty: it can."""
    if shutil.which("chromium") is None:
        return "there is no Chromium here: make chromium"
    return "" if AXE.exists() else f"{AXE.name} is not installed: npm ci"


@contextmanager
def browser() -> Iterator[Browser]:
    """Run it."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIETLY))
        try:
            yield running
        finally:
            running.close()


def barriers(page: Page) -> list[str]:
    """What axe finds on this page that shuts somebody out: the rule, and where."""
    page.evaluate(AXE.read_text("utf-8"))
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{rule['id']}: {json.dumps([node['target'] for node in rule['nodes']][:3])}" for rule in found["violations"]
    ]


def picture(page: Page, name: str, size: ViewportSize = PICTURE) -> None:
    """Take a picture of a window of this size into build/console; `make console-pictures` puts it into the docs."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    before = page.viewport_size
    page.set_viewport_size(size)
    page.screenshot(path=PICTURES / f"console-{name}.png", caret="initial")
    if before is not None:
        page.set_viewport_size(before)
