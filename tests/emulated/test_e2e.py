"""`make e2e` once through, where nothing costs anything: the script that a person with an account runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeheal.contract import names
from sandbox.client import Sandbox
from sandbox.deployment import ASSET_BUCKET
from tools import e2e
from tools.leftovers import ECS_AGENT_POLICY, Leftovers

pytestmark = pytest.mark.emulated

ACCOUNT, REGION = "000000000000", "us-east-1"
PROFILE = "e2e-nodes"


@pytest.fixture
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("e2e"), boot_seconds=0.5) as sandbox:
        sandbox.client("s3").create_bucket(Bucket=ASSET_BUCKET)
        yield sandbox


def outputs(cloud: Sandbox) -> dict[str, str]:
    stacks = cloud.client("cloudformation").describe_stacks()["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for stack in stacks for output in stack.get("Outputs", [])}


def attach_by_hand(cloud: Sandbox) -> None:
    """What the pages have a person do with the role of the nodes."""
    iam, role = cloud.client("iam"), names.NODE_ROLE.format(region=REGION)
    iam.attach_role_policy(RoleName=role, PolicyArn=f"arn:aws:iam::aws:policy/service-role/{ECS_AGENT_POLICY}")
    iam.create_instance_profile(InstanceProfileName=PROFILE)
    iam.add_role_to_instance_profile(InstanceProfileName=PROFILE, RoleName=role)


def test_it_deploys_drills_replaces_and_takes_everything_away_that_it_made(
    cloud: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CDK_VALIDATION", "false")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    earlier = cloud.client("appconfig").create_application(Name=names.POLICY_APPLICATION)["Id"]
    machines: list[str] = []

    def person(question: str) -> str:
        if "Type" in question:
            return f"{ACCOUNT} {REGION}"
        cloud.outputs = outputs(cloud)  # the role of nodes is there now, and the API of acts
        monkeypatch.setenv(names.ACTS_URL_VARIABLE, cloud.environment()[names.ACTS_URL_VARIABLE])
        if "EC2" not in question:
            attach_by_hand(cloud)
            return cloud.add_node("e2e").node_id
        cloud.client("s3").put_object(Bucket=cloud.outputs["EvidenceBucketName"], Key="a/b", Body=b"saved")
        machines.append(cloud.add_machine(cloud.add_template("e2e")))
        return machines[0]

    ended = e2e.main(["--ec2", "--context", "stage=sandbox", "--look-every", "0.5", "--settle", "0"], person)

    said = capfd.readouterr().out
    left = Leftovers(cloud.client, ACCOUNT, REGION)
    assert ended == 0, said[-3_000:]
    assert "injected on" in said
    assert "e2e: the node was healed" in said
    assert cloud.client("stepfunctions").list_state_machines()["stateMachines"] == []
    assert left.history() == [f"AppConfig application {earlier}"]
    assert cloud.client("iam").get_instance_profile(InstanceProfileName=PROFILE)["InstanceProfile"]["Roles"] == []
    assert f"left: AppConfig application {earlier}" in said
    assert f"EC2 instance {machines[0]}" not in said
    assert list(tmp_path.iterdir()) == []
