"""Debian's Chromium, driven by Playwright, which downloads no browser of its own."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize, expect, sync_playwright

from sandbox.client import Sandbox, free_port
from stacks.settings import REPOSITORY

AXE = REPOSITORY / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = REPOSITORY / "build" / "console"
NODEHEAL = Path(sys.executable).with_name("nodeheal")
PATIENCE = 120_000  # milliseconds; only what hangs comes to it
PHONE = ViewportSize(width=390, height=844)
DESK = ViewportSize(width=1_600, height=1_000)
expect.set_options(timeout=PATIENCE)
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


def listed(sandbox: Sandbox) -> list[dict[str, str]]:
    """The nodes on record, as `nodeheal nodes list` says."""
    command = [str(NODEHEAL), "nodes", "list", "--json"]
    done = subprocess.run(command, env=sandbox.environment(), capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


@contextmanager
def console_of(sandbox: Sandbox) -> Iterator[str]:
    """Run `nodeheal console` on this cloud; yields the address that it prints."""
    command = [str(NODEHEAL), "console", "--port", str(free_port())]
    with subprocess.Popen(command, env=sandbox.environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
        finally:
            process.terminate()


@contextmanager
def person_at(chromium: Browser, address: str) -> Iterator[Page]:
    """A page of a person who has just opened the printed address; no script of it may fail."""
    context = chromium.new_context(viewport=DESK, accept_downloads=True)
    page, errors = context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))

    def read(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            errors.append(message.text)

    page.on("console", read)
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    yield page
    context.close()
    assert errors == []


def open_path(page: Page, path: str) -> None:
    """Go to another page of the console."""
    page.goto(re.sub(r"(//[^/]+).*", rf"\1{path}", page.url))


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
