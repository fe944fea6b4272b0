"""The console's page for jobs of Kubernetes: what it offers, and that nothing that was typed is lost."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from nodeheal.api.client import Client
from nodeheal.contract.vocabulary import SchedulerKind
from tests.support.acts import MemoryControlPlane
from tests.support.builders import ACT, memory_ports, node
from tests.support.console import ServedConsole, served

NODE = "i-0a1b2c3d4e5f60718"
PATH = "/pools/eks/manifest"


@pytest.fixture
def console() -> Iterator[ServedConsole]:
    ports = memory_ports()
    ports.nodes.save(replace(node(NODE, scheduler=SchedulerKind.KUBERNETES, cluster="training"), pool="eks"))
    ports.nodes.save(replace(node(), pool="ecs"))
    with served(Client(ports, lambda: ACT, MemoryControlPlane(ports, ACT))) as console:
        console.enter()
        yield console


def test_the_submit_page_leads_to_the_manifest_where_the_pool_is_on_kubernetes(console: ServedConsole) -> None:
    assert f'href="{PATH}"' in console.get("/submit?pool=eks").text
    assert PATH not in console.get("/submit?pool=ecs").text


def test_nodes_of_the_pool_are_offered_and_a_chosen_one_stays_chosen(console: ServedConsole) -> None:
    assert "checked" not in console.get(PATH).text
    answer = console.post(PATH, {"document": "kind: Pod\n", "nodes": NODE, "cluster": "training"})
    assert f'value="{NODE}" checked' in answer.text


@pytest.mark.parametrize("text", ["kind: Pod\n", "a: [\n", "metadata: {name: x}\n"])
def test_what_is_no_job_is_refused_and_not_lost(console: ServedConsole, text: str) -> None:
    answer = console.post(PATH, {"document": text, "do": "create"})
    assert answer.status == 400
    assert text in answer.text.replace("\r", "")


def test_a_job_goes_to_no_other_cluster_than_the_page_has_shown(console: ServedConsole) -> None:
    manifest = "{apiVersion: batch/v1, kind: Job, metadata: {name: tiny}}"
    answer = console.post(PATH, {"document": manifest, "cluster": "other", "do": "create"})
    assert answer.status == 400
    assert "nodes are in training now" in answer.text


def test_a_pool_without_kubernetes_has_no_such_page(console: ServedConsole) -> None:
    assert console.get("/pools/ecs/manifest").status == 400
