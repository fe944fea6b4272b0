"""Measures the console in Chromium on loopback: its first view, and how evenly large fleets scroll.

The fleets are records in memory: what AWS takes to read them is not in these figures.
"""

import gzip
import statistics
from dataclasses import replace
from functools import partial
from typing import Any

from playwright.sync_api import Browser, Page, Response

from nodeheal.api.client import Client
from tests.support.acts import MemoryControlPlane
from tests.support.browser import browser
from tests.support.builders import ACT, memory_ports, node
from tests.support.console import ServedConsole, served

SIZES = (10_000, 100_000)
TURNS = 7
NODES_OF_A_RACK = 16
FIRST_VIEW_NODES = 8
# Scrolls for three seconds as a hand does, and returns the milliseconds between each two frames.
SCROLL = """() => new Promise((done) => {
  const times = [], end = performance.now() + 3000, span = document.body.scrollHeight - innerHeight;
  let down = true;
  const frame = (now) => {
    times.push(now);
    if (scrollY >= span - 1) down = false;
    if (scrollY <= 0) down = true;
    scrollBy(0, down ? 120 : -120);
    if (now < end) requestAnimationFrame(frame);
    else done(times.slice(1).map((time, index) => time - times[index]));
  };
  requestAnimationFrame(frame);
})"""


def measure_console() -> dict[str, float]:
    """Return the first view's size and time, and for each fleet how long it takes to come and its longest frame."""
    with browser() as chromium:
        measured = _first_view(chromium)
        for size in SIZES:
            measured |= _drawn(chromium, size)
    return measured


def _client(size: int) -> Client:
    ports = memory_ports()
    for number in range(size):
        rack = f"rack-{number // NODES_OF_A_RACK:05d}"
        ports.nodes.save(replace(node(f"mi-{number:017x}"), pool=f"pool-{number % 4}", rack=rack))
    return Client(ports, lambda: ACT, MemoryControlPlane(ports, ACT))


def _entered(chromium: Browser, console: ServedConsole) -> Page:
    page = chromium.new_context(viewport={"width": 1_600, "height": 1_000}).new_page()
    page.set_default_timeout(120_000)
    page.goto(f"http://{console.host}/enter?key={console.session.key}&next=/jobs")
    return page


def _first_view(chromium: Browser) -> dict[str, float]:
    """Each turn is a browser that has nothing of the console yet."""
    seconds = []
    with served(_client(FIRST_VIEW_NODES)) as console:
        for _ in range(TURNS):
            page, answers = chromium.new_context().new_page(), list[Response]()
            page.on("response", partial(list.append, answers))
            page.goto(f"http://{console.host}/enter?key={console.session.key}")
            page.wait_for_load_state("load")
            timing: dict[str, Any] = page.evaluate("performance.getEntriesByType('navigation')[0].toJSON()")
            seconds.append(timing["loadEventEnd"] / 1_000)
            size = sum(len(gzip.compress(answer.body())) for answer in list(answers) if answer.ok)
            page.context.close()
    return {
        "first_view_ms": round(1_000 * statistics.median(seconds)),
        "first_view_kib": round(size / 1_024, 1),
    }


def _drawn(chromium: Browser, size: int) -> dict[str, float]:
    with served(_client(size)) as console:
        page = _entered(chromium, console)
        page.goto(f"http://{console.host}/fleet?by=rack")
        page.wait_for_selector("#grid:not([aria-busy])")
        seconds = page.evaluate("performance.now()") / 1_000
        frames = sorted(page.evaluate(SCROLL))
        page.context.close()
    return {
        f"fleet_of_{size}_s": round(seconds, 2),
        f"frame_of_{size}_p50_ms": round(statistics.median(frames), 1),
        f"longest_frame_of_{size}_ms": round(frames[-1], 1),
    }
