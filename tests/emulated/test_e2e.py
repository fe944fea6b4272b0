"""`make e2e` once through, where nothing costs anything: the script that a person with an account runs."""

from collections.abc import Iterator

import pytest

from sandbox.client import Sandbox
from sandbox.deployment import ASSET_BUCKET
from stacks import e2e

pytestmark = pytest.mark.emulated


@pytest.fixture
def cloud(tmp_path: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("e2e"), boot_seconds=0.5) as sandbox:
        sandbox.client("s3").create_bucket(Bucket=ASSET_BUCKET)
        yield sandbox


def outputs(cloud: Sandbox) -> dict[str, str]:
    stacks = cloud.client("cloudformation").describe_stacks()["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for stack in stacks for output in stack.get("Outputs", [])}


def test_it_deploys_drills_watches_and_leaves_nothing_that_acts(
    cloud: Sandbox, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CDK_VALIDATION", "false")

    def person(question: str) -> str:
        if "Type" in question:
            return "000000000000 us-east-1"
        cloud.outputs = outputs(cloud)  # the role of nodes is there now
        return cloud.add_node("e2e").node_id

    ended = e2e.main(["--context", "stage=sandbox", "--look-every", "0.5", "--settle", "0"], person)

    said = capfd.readouterr().out
    assert ended == 0, said[-3_000:]
    assert "injected on" in said
    assert "e2e: the node was healed" in said
    assert cloud.client("stepfunctions").list_state_machines()["stateMachines"] == []
