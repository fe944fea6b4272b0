"""The console in a real browser on a real Kubernetes: a job on chosen nodes, a fault, its healing, a replacement."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from nodeheal.contract.vocabulary import SchedulerKind
from sandbox.client import Sandbox
from sandbox.demo import deploy_for, let_people_answer
from sandbox.kubernetes_story import CLUSTER, pytorch_job, why_missing
from sandbox.stories import CAREFUL, fallen
from tests.support import browser as browsers
from tests.support.browser import PATIENCE, PHONE, barriers, browser, console_of, listed, open_path, person_at
from tests.support.until import until

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(bool(why_missing()), reason=why_missing()),
    pytest.mark.skipif(bool(browsers.why_missing()), reason=browsers.why_missing()),
]
POOL, JOB = "demo", "llama-8b"
CHECKS = ("dcgm_counters", "kubernetes_node")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("console"), boot_seconds=1.5) as sandbox:
        deploy_for(SchedulerKind.KUBERNETES, sandbox)
        let_people_answer(sandbox)
        for pool, count in ((POOL, 3), (CAREFUL, 2)):
            sandbox.add_kubernetes(CLUSTER, pool, count, checks=CHECKS)
        until(lambda: len(listed(sandbox)) == 5, "every node on record")
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


def test_a_job_is_created_on_chosen_nodes_and_seen_to_run(page: Page, cloud: Sandbox) -> None:
    directory = cloud.directory / "shared" / JOB
    directory.mkdir(parents=True, exist_ok=True)
    open_path(page, f"/submit?pool={POOL}")
    page.get_by_role("link", name="Write its manifest").click()
    script = replace(fallen(), pool=POOL, job=JOB, steps=4_000, step_seconds=0.06)
    page.get_by_label("Its manifest").fill(str(yaml.safe_dump(pytorch_job(script, directory))))
    boxes = page.locator("#nodes input[type=checkbox]")
    expect(boxes).to_have_count(3)
    boxes.nth(0).check()
    boxes.nth(2).check()
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_text(f"PyTorchJob default/{JOB}. Nothing was created.")).to_be_visible()
    assert barriers(page) == []

    page.get_by_role("button", name="Create the job").click()

    expect(page.get_by_role("row").filter(has_text=f"default/{JOB}")).to_contain_text("running", timeout=2 * PATIENCE)
    until(lambda: list(directory.glob("step-*")), "checkpoint")


def test_a_fault_of_its_node_is_injected_and_healed_in_the_browser(page: Page) -> None:
    open_path(page, f"/fleet?pool={POOL}")
    page.locator(".cells a").first.click()
    expect(page.get_by_text("takes pods")).to_be_visible()
    page.get_by_role("link", name="Drill").click()
    page.get_by_label("Why").fill("a drill on Kubernetes")
    page.get_by_role("button", name="Inject Xid 79").click()
    incident = page.locator("dd a[href^='/incidents/']").first
    incident.click()

    expect(page.locator(".lead .chip")).to_have_text("recovered", timeout=2 * PATIENCE)


def test_a_replacement_is_approved_and_the_incident_exported(page: Page) -> None:
    open_path(page, f"/fleet?pool={CAREFUL}")
    page.locator(".cells a").first.click()
    page.get_by_role("link", name="Drill").click()
    page.get_by_label("Xid").fill("64")
    page.get_by_role("button", name="Preview").click()
    page.get_by_label("Why").fill("a drill that asks for another machine")
    page.get_by_role("button", name="Inject Xid 64").click()
    open_path(page, "/")
    page.set_viewport_size(PHONE)
    page.get_by_role("link", name="Look, then approve or refuse").click()
    expect(page.locator("#answer")).to_contain_text("replaced")
    page.get_by_label("Why").fill("looks right")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".lead .chip")).to_have_text("recovered", timeout=2 * PATIENCE)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export as JSON").click()
    record = json.loads(Path(download.value.path()).read_text("utf-8"))
    assert record["ending"] == "RECOVERED"
    assert "Replace" in page.locator(".path").inner_text()
