"""Uninstalling, with the command of docs/operations.md: what acts is gone, and no node is touched."""

from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from nodeheal.contract import names
from sandbox.client import Sandbox

pytestmark = pytest.mark.emulated
IDLE = ["sleep", "3600"]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("uninstall") / "cloud", boot_seconds=0.1) as sandbox:
        sandbox.deploy()
        yield sandbox


def ours(cloud: Sandbox) -> dict[str, list[str]]:
    """What of nodeheal is deployed, by kind."""
    found = {
        "functions": [f["FunctionName"] for f in cloud.client("lambda").list_functions(MaxItems=100)["Functions"]],
        "workflows": [m["name"] for m in cloud.client("stepfunctions").list_state_machines()["stateMachines"]],
        "rules": [rule["Name"] for rule in cloud.client("events").list_rules()["Rules"]],
        "buses": [bus["Name"] for bus in cloud.client("events").list_event_buses()["EventBuses"]],
        "topics": [topic["TopicArn"].rpartition(":")[2] for topic in cloud.client("sns").list_topics()["Topics"]],
        "roles": [role["RoleName"] for role in cloud.client("iam").list_roles()["Roles"]],
    }
    return {kind: [name for name in known if name.startswith("nodeheal")] for kind, known in found.items()}


def test_after_uninstalling_nothing_of_nodeheal_acts_and_the_nodes_are_as_they_were(cloud: Sandbox) -> None:
    node = cloud.add_node(agent=IDLE)
    before = ours(cloud)

    cloud.destroy()

    assert all(before[kind] for kind in ("functions", "workflows", "rules", "buses", "topics")), before
    assert not any(ours(cloud).values()), ours(cloud)
    with pytest.raises(ClientError):
        cloud.client("ssm").describe_document(Name=names.REBOOT_DOCUMENT)
    [instance] = cloud.client("ecs").describe_container_instances(
        cluster=cloud.cluster, containerInstances=[node.container_instance_arn]
    )["containerInstances"]
    assert instance["status"] == "ACTIVE"


def test_it_can_be_installed_again(cloud: Sandbox) -> None:
    cloud.deploy()

    assert "nodeheal-recover-node" in ours(cloud)["workflows"]
