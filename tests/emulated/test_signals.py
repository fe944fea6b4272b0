"""What ECS says about a node reaches the deployed control plane, and the sweep has the rights that it needs."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodeheal.contract import names
from sandbox import processes
from sandbox.client import NodeHandle, Sandbox
from tests.support.foreign import recorded
from tests.support.until import WAIT_SECONDS, until

pytestmark = pytest.mark.emulated

SETTLE_SECONDS = 3.0


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("signals"), boot_seconds=0.5) as sandbox:
        sandbox.deploy()
        yield sandbox


def key_of(node_id: str) -> dict[str, Any]:
    return {"pk": {"S": names.node_pk(node_id)}, "sk": {"S": names.NODE_SK}}


def stored(cloud: Sandbox, node_id: str) -> dict[str, Any]:
    answer = cloud.client("dynamodb").get_item(TableName=names.TABLE, Key=key_of(node_id), ConsistentRead=True)
    return dict(answer.get("Item", {}))


def enrolled(cloud: Sandbox, pool: str) -> NodeHandle:
    """A node that its agent has spoken for."""
    node = cloud.add_node(pool)
    until(lambda: stored(cloud, node.node_id), "node in the table")
    return node


def last_seen(cloud: Sandbox, node: NodeHandle) -> datetime:
    return datetime.fromisoformat(stored(cloud, node.node_id)["last_seen"]["S"])


def silenced(cloud: Sandbox, node: NodeHandle) -> None:
    """The node as if its agent had died an hour ago. What it said as it came up may still be on its way."""
    processes.kill_all(lambda: processes.with_mark(processes.NODE_MARK, str(node.directory)))
    for who in beats_of(cloud, node):
        cloud.client("dynamodb").delete_item(TableName=names.HEARTBEATS_TABLE, Key={names.HEARTBEAT_KEY: {"S": who}})
    for _ in range(int(WAIT_SECONDS / SETTLE_SECONDS)):
        then = datetime.now(UTC) - timedelta(hours=1)
        write_last_seen(cloud, node, then)
        time.sleep(SETTLE_SECONDS)
        if last_seen(cloud, node) == then:
            return
    raise AssertionError(f"{node.node_id} does not fall silent")


def beats_of(cloud: Sandbox, node: NodeHandle) -> dict[str, dict[str, Any]]:
    """The items of the node's heartbeats, by whose they are."""
    items = cloud.client("dynamodb").scan(TableName=names.HEARTBEATS_TABLE)["Items"]
    return {
        item[names.HEARTBEAT_KEY]["S"]: item for item in items if item[names.HEARTBEAT_KEY]["S"].endswith(node.node_id)
    }


def write_last_seen(cloud: Sandbox, node: NodeHandle, at: datetime) -> None:
    cloud.client("dynamodb").update_item(
        TableName=names.TABLE,
        Key=key_of(node.node_id),
        UpdateExpression="SET last_seen = :then ADD version :one",
        ExpressionAttributeValues={
            ":then": {"S": at.isoformat()},
            ":one": {"N": "1"},
        },
    )


def run(cloud: Sandbox, function: str, event: dict[str, Any]) -> None:
    """Run a deployed function once, with its own rights; it must not fail."""
    answer = cloud.client("lambda").invoke(FunctionName=function, Payload=json.dumps(event).encode())
    assert "FunctionError" not in answer, answer["Payload"].read()


def events_of(cloud: Sandbox, incident_id: str) -> list[dict[str, Any]]:
    entries = cloud.client("dynamodb").query(
        TableName=names.TABLE,
        KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
        ExpressionAttributeValues={
            ":pk": {"S": names.incident_pk(incident_id)},
            ":prefix": {"S": f"{names.TIMELINE_PREFIX}event-"},
        },
    )
    return [json.loads(item["data"]["S"]) for item in entries["Items"]]


def test_what_ecs_says_about_a_node_is_heard_and_no_heartbeat(cloud: Sandbox) -> None:
    node = enrolled(cloud, "heard")
    silenced(cloud, node)
    before = last_seen(cloud, node)

    for status in ("DRAINING", "ACTIVE"):  # of which the first, while it is connected, tells nothing
        cloud.client("ecs").update_container_instances_state(
            cluster=cloud.cluster, containerInstances=[node.container_instance_arn], status=status
        )

    heard = until(lambda: stored(cloud, node.node_id).get("signal_versions", {}).get("M"), "version that was heard")
    [(topic, version)] = heard.items()
    assert topic == f"ecs/instance#{node.container_instance_arn.rpartition('/')[2]}"
    assert int(version["N"]) > 0
    assert last_seen(cloud, node) == before


def test_a_sweep_hears_a_silent_node_and_asks_ecs_and_ssm_about_it(cloud: Sandbox) -> None:
    node = enrolled(cloud, "silent")
    silenced(cloud, node)

    run(cloud, "nodeheal-sweep", {})

    prefix = {":pk": {"S": names.pool_pk("silent")}, ":prefix": {"S": "incident#"}}
    [incident] = cloud.client("dynamodb").query(
        TableName=names.TABLE,
        IndexName=names.INDEX,
        KeyConditionExpression="gsi_pk = :pk AND begins_with(gsi_sk, :prefix)",
        ExpressionAttributeValues=prefix,
    )["Items"]
    [event] = events_of(cloud, incident["incident_id"]["S"])
    assert (event["code"], event["verdict"]) == (names.SILENT, "UNKNOWN")
    assert "ECS: agent connected" in event["evidence"]
    assert "SSM: Online" in event["evidence"]


def test_a_signal_about_a_machine_that_is_no_node_writes_nothing(cloud: Sandbox) -> None:
    event = recorded("ec2_state_terminated")

    attributes = {"ApproximateReceiveCount": "1"}
    message = {"messageId": "m1", "eventSource": "aws:sqs", "body": json.dumps(event), "attributes": attributes}
    run(cloud, "nodeheal-take-signal", {"Records": [message]})

    assert stored(cloud, event["detail"]["instance-id"]) == {}


def test_a_node_gives_heartbeats_in_its_own_item_at_the_interval_that_it_is_asked_for(cloud: Sandbox) -> None:
    node = cloud.add_node("beating", heartbeat_seconds=0.5)
    until(lambda: stored(cloud, node.node_id), "node in the table")
    [who] = until(lambda: list(beats_of(cloud, node)), "heartbeat")
    before = stored(cloud, node.node_id)["version"]

    run(cloud, "nodeheal-sweep", {})

    until(lambda: beats_of(cloud, node)[who].get(names.HEARTBEAT_WANTED) == {"N": "60"}, "interval of the policy")
    time.sleep(SETTLE_SECONDS)  # it hears of it with its next one
    item = beats_of(cloud, node)[who]
    time.sleep(SETTLE_SECONDS)
    assert beats_of(cloud, node)[who] == item  # many of the old interval would have come by now
    assert who.startswith("AROA")
    assert item[names.HEARTBEAT_BOOT] == stored(cloud, node.node_id)["boot_id"]
    assert stored(cloud, node.node_id)["version"] == before  # no heartbeat writes the record


def test_a_node_that_only_beats_is_not_silent(cloud: Sandbox) -> None:
    node = cloud.add_node("only-beating", heartbeat_seconds=0.5)
    until(lambda: stored(cloud, node.node_id), "node in the table")
    until(lambda: beats_of(cloud, node), "heartbeat")
    time.sleep(SETTLE_SECONDS)  # what it said as it came up
    write_last_seen(cloud, node, datetime.now(UTC) - timedelta(hours=1))

    run(cloud, "nodeheal-sweep", {})

    assert "open_incident" not in stored(cloud, node.node_id)


def test_a_boot_whose_announcement_was_lost_is_found_in_the_heartbeats(cloud: Sandbox) -> None:
    node = cloud.add_node("unannounced", heartbeat_seconds=0.5)
    until(lambda: stored(cloud, node.node_id), "node in the table")
    [who] = until(lambda: list(beats_of(cloud, node)), "heartbeat")
    time.sleep(SETTLE_SECONDS)
    processes.kill_all(lambda: processes.with_mark(processes.NODE_MARK, str(node.directory)))
    cloud.client("dynamodb").update_item(
        TableName=names.HEARTBEATS_TABLE,
        Key={names.HEARTBEAT_KEY: {"S": who}},
        UpdateExpression="SET boot = :boot",
        ExpressionAttributeValues={":boot": {"S": "another-boot"}},
    )

    run(cloud, "nodeheal-sweep", {})

    assert stored(cloud, node.node_id)["boot_id"] == {"S": "another-boot"}


def test_a_new_node_serves_once_it_has_passed_its_diagnostics(cloud: Sandbox) -> None:
    cloud.subscribe_mailbox()
    node = cloud.add_node("fresh")

    until(lambda: "passed_at" in stored(cloud, node.node_id), "diagnosis of the new node")
    until(lambda: "open_incident" not in stored(cloud, node.node_id), "end of its incident")

    kept = stored(cloud, node.node_id)
    seen = [change["M"]["state"]["S"] for change in kept["state_changes"]["L"]]
    assert (kept["state"]["S"], seen) == ("HEALTHY", ["HEALTHY", "ISOLATED"])
    assert [subject for subject, _ in cloud.mails() if node.node_id in subject] == []
