"""The console in a real browser, on a living cloud: a job, a fault, its healing, an approval and an export."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from playwright.sync_api import Browser, Page, Response, ViewportSize, expect

from nodeheal.api.client import Client
from nodeheal.console.app import CELLS
from nodeheal.contract.vocabulary import NodeState
from sandbox.client import Sandbox, free_port
from sandbox.demo import add_pool_that_asks
from sandbox.stories import CAREFUL
from tests.support.acts import MemoryControlPlane
from tests.support.browser import (
    DESK,
    PATIENCE,
    PHONE,
    barriers,
    browser,
    console_of,
    listed,
    open_path,
    person_at,
    picture,
    why_missing,
)
from tests.support.builders import ACT, memory_ports, node
from tests.support.console import served
from tests.support.until import until

pytestmark = [pytest.mark.emulated, pytest.mark.skipif(bool(why_missing()), reason=why_missing())]
POOL, JOB = "demo", "llama-8b"
TABLET = ViewportSize(width=1_024, height=800)


@pytest.fixture(scope="module")
def cloud() -> Iterator[Sandbox]:
    # Its path stands in the docs' pictures.
    with (
        TemporaryDirectory(prefix="nodeheal-", ignore_cleanup_errors=True) as directory,
        Sandbox(Path(directory), boot_seconds=1.0) as sandbox,
    ):
        sandbox.deploy()
        for _ in range(3):
            sandbox.add_node(POOL, checks=("dcgm_counters",))
        add_pool_that_asks(sandbox)
        until(lambda: [node["pool"] for node in listed(sandbox)].count(CAREFUL) == 2, "every node on record")
        yield sandbox


@pytest.fixture(scope="module")
def address(cloud: Sandbox) -> Iterator[str]:
    with console_of(cloud) as printed:
        yield printed


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    with person_at(chromium, address) as page:
        yield page


def test_nodes_are_chosen_and_a_job_is_submitted_and_followed(page: Page, cloud: Sandbox) -> None:
    directory = cloud.directory / "shared" / JOB
    directory.mkdir(parents=True, exist_ok=True)
    page.get_by_role("link", name="Submit").click()
    page.get_by_label("name *").fill(JOB)
    page.get_by_label("pool *").select_option(POOL)
    page.get_by_label("nodes *").fill("2")
    page.get_by_label("image").fill("numpy-trainer:latest")
    command = ["python", "train.py", "--steps=4000", "--step-seconds=0.05", "--checkpoint-every=50"]
    page.get_by_label("command").fill("\n".join([*command, f"--directory={directory}"]))
    page.get_by_label("checkpoints directory").fill(str(directory))
    page.get_by_label("steps").fill("4000")
    expect(page.locator("#nodes input[type=checkbox]")).to_have_count(3)
    chosen = [page.locator("#nodes input[type=checkbox]").nth(index) for index in (0, 2)]
    for box in chosen:
        box.check()
    expect(page.locator("#plan h2")).to_have_text("It would be placed now")
    expect(page.locator("#yaml")).to_have_value(re.compile(r"only_nodes:(\n- \S+){2}"))
    text = page.locator("#yaml").input_value()
    page.locator("#yaml").fill(
        f"{text}mounts: [{{source: {directory}, target: {directory}}}]\nmaster_port: {free_port()}\n"
    )
    expect(page.locator("#plan")).not_to_contain_text("no mount lets")
    expect(page.locator("#plan h2")).to_have_text("It would be placed now")
    picture(page, "submit")

    page.get_by_role("button", name="Submit").click()

    expect(page.locator(".lead .chip")).to_have_text("running", timeout=PATIENCE)
    assert barriers(page) == []


def test_a_fault_is_injected_and_its_healing_is_followed_without_a_reload(page: Page, cloud: Sandbox) -> None:
    until(lambda: list((cloud.directory / "shared" / JOB).glob("step-*")), "checkpoint")
    open_path(page, f"/jobs/{JOB}")
    page.locator("details.run table a").first.click()
    expect(page.get_by_text("ACTIVE, its ECS agent connected")).to_be_visible()
    page.get_by_role("link", name="Drill").click()
    page.get_by_label("Why").fill("a drill in the browser")
    page.get_by_role("button", name="Inject Xid 79").click()
    incident = page.locator("dd a[href^='/incidents/']").first
    expect(incident).to_be_visible(timeout=PATIENCE)
    incident.click()
    page.evaluate("globalThis.opened = true")

    expect(page.locator(".lead .chip")).to_have_text("recovered", timeout=2 * PATIENCE)

    assert page.evaluate("globalThis.opened")  # the same document: it has followed by itself
    assert page.locator(".path li").count() >= 5
    assert barriers(page) == []
    picture(page, "incident")
    open_path(page, f"/jobs/{JOB}")
    expect(page.locator("details.run")).to_have_count(2)
    expect(page.get_by_text("run 2 is under way")).to_be_visible()
    picture(page, "job")
    open_path(page, "/fleet?by=state")
    picture(page, "fleet")


def test_a_repair_is_approved_on_a_phone_with_both_answers_above_the_fold(page: Page) -> None:
    open_path(page, f"/fleet?pool={CAREFUL}")
    page.locator(".cells a").first.click()
    page.get_by_role("link", name="Drill").click()
    page.get_by_label("Why").fill("a drill that asks")
    page.get_by_role("button", name="Inject").click()
    open_path(page, "/")
    expect(page.get_by_role("link", name="Look, then approve or refuse")).to_be_visible()
    picture(page, "now")
    page.set_viewport_size(PHONE)
    page.get_by_role("link", name="Look, then approve or refuse").click(timeout=PATIENCE)
    for name in ("Approve", "Refuse"):
        box = page.get_by_role("button", name=name).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= PHONE["height"], name
    picture(page, "answer", PHONE)
    page.get_by_label("Why").fill("looks right")

    page.get_by_role("button", name="Approve").click()

    expect(page.locator(".did")).to_contain_text("Approve")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0, timeout=PATIENCE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    with page.expect_download() as download:
        page.get_by_role("link", name="Export as JSON").click()
    record = json.loads(Path(download.value.path()).read_text("utf-8"))
    assert any("looks right" in answer for answer in record["told"]["answers"])


def test_a_policy_is_replayed_applied_and_rolled_back(page: Page) -> None:
    open_path(page, "/policy")
    editor = page.get_by_label("The document")
    before = json.loads(editor.input_value())
    editor.fill(json.dumps({**before, "diagnostics_level": 3}, indent=2))
    expect(page.get_by_role("cell", name="diagnostics_level")).to_be_visible()
    page.get_by_role("button", name="Replay the last 30 days").click()
    expect(page.locator("#replay h2")).to_be_visible(timeout=PATIENCE)
    assert barriers(page) == []
    picture(page, "policy")
    page.get_by_label("Why").fill("deeper")

    page.get_by_role("button", name="Apply").click()

    expect(page.locator(".did")).to_contain_text("Applied.", timeout=PATIENCE)
    assert json.loads(editor.input_value())["diagnostics_level"] == 3
    page.get_by_role("link", name="Roll back").first.click()
    page.get_by_label("Why").fill("not so deep")
    page.get_by_role("button", name="Roll back").click()
    expect(page.locator(".did")).to_contain_text("Applied.", timeout=PATIENCE)
    assert json.loads(editor.input_value()) == before


def test_the_doctor_looks_at_the_account_and_comes_to_an_end(page: Page) -> None:
    open_path(page, "/doctor")
    expect(page.locator("#findings li, #findings article").first).to_be_visible(timeout=PATIENCE)
    expect(page.locator("#findings progress")).to_have_count(0, timeout=PATIENCE)
    assert barriers(page) == []
    picture(page, "doctor")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "path", ["/", "/incidents", "/fleet", "/jobs", "/submit", "/policy", "/doctor", f"/pools/{POOL}", "/nothing"]
)
def test_nobody_is_shut_out_and_nothing_leaves_the_screen(
    chromium: Browser, address: str, path: str, scheme: str
) -> None:
    context = chromium.new_context(viewport=PHONE, color_scheme="dark" if scheme == "dark" else "light")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    for size in (PHONE, TABLET, DESK):
        page.set_viewport_size(size)
        open_path(page, path)
        assert barriers(page) == [], size
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], size
    context.close()


def test_the_first_view_is_small(chromium: Browser, address: str) -> None:
    context = chromium.new_context()
    page, sizes = context.new_page(), list[int]()

    def count(answer: Response) -> None:
        if answer.ok:
            sizes.append(len(answer.body()))

    page.on("response", count)
    page.goto(address)
    page.wait_for_timeout(500)
    assert 0 < sum(sizes) < 200 * 1024  # not compressed
    context.close()


def test_a_large_fleet_is_drawn_and_a_node_of_it_is_opened_by_hand_and_by_key(chromium: Browser) -> None:
    ports = memory_ports()
    for number in range(CELLS + 1):
        ports.nodes.save(
            replace(node(f"mi-{number:017x}"), state=NodeState.QUARANTINED if number else NodeState.HEALTHY)
        )
    with served(Client(ports, lambda: ACT, MemoryControlPlane(ports, ACT))) as console:
        page = chromium.new_page(viewport=DESK)
        page.goto(f"http://{console.host}/enter?key={console.session.key}&next=/fleet")
        expect(page.locator("#grid-says")).to_have_text(f"{CELLS + 1:,} nodes")
        assert barriers(page) == []
        page.locator("#grid").hover(position={"x": 25, "y": 37})
        expect(page.locator("#grid-says")).to_have_text(f"mi-{1:017x}: QUARANTINED")
        # The fleet is read anew, and the node stays chosen.
        page.wait_for_event("response", lambda answer: "/fleet/cells" in answer.url)
        page.wait_for_timeout(300)
        page.locator("#grid").press("ArrowRight")
        page.locator("#grid").press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(f"mi-{2:017x}")
        page.go_back()
        expect(page.locator("#grid-says")).to_have_text(f"{CELLS + 1:,} nodes")
        page.locator("#grid").click(position={"x": 8, "y": 37})
        expect(page.get_by_role("heading", level=1)).to_have_text(f"mi-{0:017x}")
        open_path(page, "/fleet?group=FREE")
        expect(page.locator(".cells a")).to_have_count(1)
        page.close()
