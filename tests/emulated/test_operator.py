"""An operator with the deployed policy and nothing else: every command works, and nothing past them does."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from nodeheal.contract import names
from nodeheal.contract.vocabulary import NodeState
from nodeheal.ports import Ports
from nodeheal.services.saving import node_of
from nodeheal.services.steps import save_node
from sandbox.client import NodeHandle, Sandbox
from tests.support.operators import REPOSITORY, Operator, deployed, is_denied, operator
from tests.support.until import until

pytestmark = pytest.mark.emulated

XID_79 = "NVRM: Xid (PCI:0000:b9:00): 79, pid=<unknown>, name=<unknown>, GPU has fallen off the bus."


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("operator"), boot_seconds=0.5) as sandbox:
        sandbox.deploy()
        yield sandbox


@pytest.fixture(scope="module")
def ada(cloud: Sandbox) -> Operator:
    return operator(cloud, "ada", "OperatorPolicyArn")


@pytest.fixture(scope="module")
def ports(cloud: Sandbox) -> Ports:
    return deployed(cloud)


def reported(cloud: Sandbox, ports: Ports, pool: str, **more: Any) -> NodeHandle:
    """A node whose agent has reported."""
    handle = cloud.add_node(pool, **more)
    until(lambda: ports.nodes.get(handle.node_id), "report of the agent")
    return handle


def test_a_stranger_is_enrolled_drilled_and_retired(cloud: Sandbox, ports: Ports, ada: Operator) -> None:
    handle = reported(cloud, ports, "drilled", tags={})
    refused = ada.types("inject", handle.node_id, "--xid", "79", "--why", "before it is enrolled")
    assert f"{handle.node_id} is not enrolled" in refused.stderr
    assert handle.node_id in ada.does("nodes", "unenrolled")

    enrolled = ada.does("nodes", "enroll", handle.node_id, "--pool", "drilled", "--why", "new")
    again = ada.does("nodes", "enroll", handle.node_id, "--pool", "drilled", "--why", "new")
    dcgm = ada.does("inject", handle.node_id, "--dcgm", "xid=79", "--why", "does the exporter page?")
    no_such_gpu = ada.types("inject", handle.node_id, "--dcgm", "xid=79", "--gpu", "99", "--why", "a slip")
    injected = ada.does("inject", handle.node_id, "--xid", "79", "--why", "fire drill")

    assert "marked SSM managed node" in enrolled
    assert "field 230 (the last XID): 79" in dcgm
    assert "Bad parameter passed to function" in no_such_gpu.stdout
    assert "it was already" in again
    assert names.DRILL_MARK in injected
    list_them = ("incidents", "list", "drilled", "--json")
    ended = until(
        lambda: [one for one in json.loads(ada.does(*list_them)) if one["ending"]], "end of the drill's incident"
    )
    told = json.loads(ada.does("incidents", "show", ended[0]["incident"], "--json"))
    assert (told["is_drill"], told["ending"]) == (True, "RECOVERED")
    assert {"isolated", "rebooted", "diagnosed", "returned"} <= told["phase_seconds"].keys()
    assert told["execution"] == ""  # no console shows this cloud
    assert '"drills": 1' in ada.does("incidents", "export", "drilled", "--format", "json")
    assert "1 REPLACE" in ada.does("nodes", "show", handle.node_id)

    retired = ada.does("nodes", "retire", handle.node_id, "--why", "sold")

    assert "took the mark off" in retired
    assert carries_no_mark(cloud, handle)
    assert "RETIRED" in ada.does("nodes", "list", "drilled")


def test_a_node_that_has_not_reported_is_announced_with_its_rack(cloud: Sandbox, ada: Operator) -> None:
    handle = cloud.add_node("announced", tags={}, agent=["sleep", "600"])
    words = ("nodes", "enroll", handle.node_id, "--pool", "announced", "--rack", "r7", "--why", "racked")

    unsaid = ada.types(*words)
    nowhere = ada.types(*words, "--cluster", "another", "--scheduler", "ECS")
    enrolled = ada.does(*words, "--cluster", "training", "--scheduler", "ECS")

    assert "give --cluster" in unsaid.stderr
    assert nowhere.returncode == 1
    assert "its agent has not reported yet" in enrolled
    [listed] = json.loads(ada.does("nodes", "list", "announced", "--json"))
    assert (listed["state"], listed["rack"], listed["last_seen"]) == ("ENROLLED", "r7", None)
    managed = cloud.client("ssm").list_tags_for_resource(ResourceType="ManagedInstance", ResourceId=handle.node_id)
    assert {tag["Key"]: tag["Value"] for tag in managed["TagList"]} == {
        names.MANAGED_TAG: names.MANAGED_TAG_VALUE,
        names.RACK_TAG: "r7",
    }
    ada.does("nodes", "retire", handle.node_id, "--why", "sent back")
    assert carries_no_mark(cloud, handle)


def carries_no_mark(cloud: Sandbox, handle: NodeHandle) -> bool:
    """Whether neither SSM nor ECS carries the mark."""
    managed = cloud.client("ssm").list_tags_for_resource(ResourceType="ManagedInstance", ResourceId=handle.node_id)
    container = cloud.client("ecs").list_tags_for_resource(resourceArn=handle.container_instance_arn)
    return not managed["TagList"] and not container["tags"]


def test_a_question_is_answered(cloud: Sandbox, ports: Ports, ada: Operator) -> None:
    handle = reported(cloud, ports, "careful")
    cloud.inject(handle, XID_79, persists=False, kill_rank=False)
    waiting = until(
        lambda: json.loads(ada.does("incidents", "list", "careful", "--state", "waiting", "--json")),
        "incident that waits",
    )

    # The incident is written before the question is: between the two there is nothing to answer yet.
    approve = ("approve", waiting[0]["incident"], "--why", "go on")
    said = until(lambda: (done := ada.types(*approve)).returncode == 0 and done.stdout, "question")

    assert "approved by ada/ada: go on" in said  # the role and its session, as AWS names them
    assert ada.types(*approve).returncode == 1


def test_a_pool_and_a_node_are_paused_and_a_repaired_node_goes_back_to_work(
    cloud: Sandbox, ports: Ports, ada: Operator
) -> None:
    handle = reported(cloud, ports, "repaired")
    where = {"cluster": cloud.cluster, "containerInstances": [handle.container_instance_arn]}
    cloud.client("ecs").update_container_instances_state(**where, status="DRAINING")
    out = {"state": NodeState.QUARANTINED, "state_reason": "test", "drained_by_us": True}
    save_node(ports, node_of(handle.node_id, ports), **out)

    paused = ada.does("pause", handle.node_id, "--for", "2h", "--why", "new riser")
    ada.does("pause", "repaired", "--for", "30m", "--why", "new switch")
    ada.does("unpause", "repaired")
    ada.does("breaker", "show", "repaired")
    released = ada.does("nodes", "release", handle.node_id, "--why", "board exchanged")

    assert "is paused until" in paused
    assert "is HEALTHY now" in released
    seen = cloud.client("ecs").describe_container_instances(**where)["containerInstances"][0]
    assert seen["status"] == "ACTIVE"


def test_a_pause_that_is_written_by_hand_holds_and_is_ended_by_the_command(
    cloud: Sandbox, ports: Ports, ada: Operator
) -> None:
    handle = reported(cloud, ports, "braked")
    written = {"pk": {"S": names.PAUSES_PK}, "sk": {"S": names.pool_pause_sk("braked")}, "until": {"S": "tomorrow"}}

    ada.client("dynamodb").put_item(TableName=cloud.outputs["TableName"], Item=written)

    assert "an unreadable pause" in ada.does("nodes", "list", "braked")
    assert "is paused" in ada.types("nodes", "reboot", handle.node_id, "--why", "x").stderr
    ada.does("unpause", "braked")
    assert "paused" not in ada.does("nodes", "list", "braked")


def test_a_reboot_is_asked_for(cloud: Sandbox, ports: Ports, ada: Operator) -> None:
    handle = reported(cloud, ports, "rebooted")
    before = node_of(handle.node_id, ports).boot_id

    said = ada.does("nodes", "reboot", handle.node_id, "--why", "new kernel")

    assert "asked for; it is incident inc-" in said
    until(lambda: node_of(handle.node_id, ports).boot_id != before, "new boot")


def test_the_owner_of_a_job_is_subscribed_to_his_own_jobs_and_nobody_to_anything_else(
    cloud: Sandbox, ada: Operator
) -> None:
    said = ada.does("owners", "subscribe", "Bob@Example.com")

    sns, topic = cloud.client("sns"), cloud.outputs["OwnersTopicArn"]
    [found] = sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert said.startswith("bob@example.com ")
    assert (found["Protocol"], found["Endpoint"]) == ("email", "bob@example.com")
    hers = ada.client("sns")
    assert is_denied(lambda: hers.subscribe(TopicArn=topic, Protocol="sqs", Endpoint="arn:aws:sqs:us-east-1:1:mine"))
    pages = cloud.outputs["TopicArn"]
    assert is_denied(lambda: hers.subscribe(TopicArn=pages, Protocol="email", Endpoint="eve@example.com"))


def test_a_policy_is_shown(ada: Operator) -> None:
    assert '"drills": true' in ada.does("policy", "show")


def test_past_the_commands_everything_is_denied(cloud: Sandbox, ports: Ports, ada: Operator) -> None:
    handle = reported(cloud, ports, "guarded")
    ecs, ssm = ada.client("ecs"), ada.client("ssm")
    task = f"arn:aws:ecs:us-east-1:000000000000:task/{cloud.cluster}/{'0' * 32}"
    theirs = [{"Key": "Owner", "Value": "ada"}]
    forged = {"Source": names.AGENT_SOURCE, "DetailType": names.NODE_HEALTH_REPORTED, "Detail": "{}"}
    table = cloud.outputs["TableName"]
    records = [
        {"pk": {"S": names.node_pk(handle.node_id)}, "sk": {"S": names.NODE_SK}},
        {"pk": {"S": names.pool_pk("guarded")}, "sk": {"S": names.POOL_SK}},
        {"pk": {"S": names.incident_pk("inc-1")}, "sk": {"S": names.INCIDENT_SK}},
        {"pk": {"S": names.operation_pk("node#i-1")}, "sk": {"S": names.operation_sk("inc-1-2")}},
    ]

    assert is_denied(lambda: ecs.stop_task(cluster=cloud.cluster, task=task))
    assert is_denied(lambda: ssm.send_command(DocumentName=names.document("reboot-node"), InstanceIds=[handle.node_id]))
    assert is_denied(
        lambda: ssm.add_tags_to_resource(ResourceType="ManagedInstance", ResourceId=handle.node_id, Tags=theirs)
    )
    for source in (names.AGENT_SOURCE, names.OPERATOR_SOURCE):
        entry = {**forged, "Source": source, "EventBusName": names.BUS}
        assert is_denied(lambda entry=entry: ada.client("events").put_events(Entries=[entry]))  # type: ignore[misc]
    for record in records:
        assert is_denied(lambda it=record: ada.client("dynamodb").put_item(TableName=table, Item=it))  # type: ignore[misc]
        assert is_denied(lambda it=record: ada.client("dynamodb").delete_item(TableName=table, Key=it))  # type: ignore[misc]
    assert is_denied(lambda: ada.client("stepfunctions").send_task_success(taskToken="t", output="{}"))
    assert is_denied(lambda: ada.client("lambda").invoke(FunctionName="nodeheal-do-act", Payload=b"{}"))
    assert is_denied(lambda: ada.client("dynamodb").scan(TableName=cloud.outputs["TableName"]))
    assert is_denied(
        lambda: ada.client("stepfunctions").start_execution(stateMachineArn=cloud.outputs["RecoverNodeArn"])
    )


def test_who_looks_sees_the_fleet_and_has_nothing_done(cloud: Sandbox, ports: Ports) -> None:
    handle = reported(cloud, ports, "seen")
    vera = operator(cloud, "vera", "OperatorViewerPolicyArn")

    assert handle.node_id in vera.does("nodes", "list", "seen")
    assert "seen" in vera.does("status")
    assert "HEALTHY" in vera.does("nodes", "show", handle.node_id)
    assert "then" in vera.does("nodes", "drain", handle.node_id, "--dry-run")
    refused = vera.types("nodes", "isolate", handle.node_id, "--why", "curious")

    assert refused.returncode == 1
    assert "your role needs execute-api:Invoke for POST /acts/isolate" in refused.stderr
    assert node_of(handle.node_id, ports).open_incident is None


def test_a_program_drains_a_node_by_the_api_alone(cloud: Sandbox, ports: Ports, ada: Operator) -> None:
    handle = reported(cloud, ports, "scripted")
    script = [sys.executable, str(REPOSITORY / "examples" / "drain_a_node.py"), handle.node_id, "new riser"]
    environment = {**cloud.environment(), **ada.keys, "PYTHONPATH": str(REPOSITORY)}

    done = subprocess.run(script, env=environment, input="y\n", capture_output=True, text=True, timeout=90, check=False)

    assert done.returncode == 0, done.stderr
    assert f"node    {handle.node_id} (pool scripted), HEALTHY" in done.stdout
    assert '"kind": "RECOVERY_REQUESTED"' in done.stdout
    [incident] = json.loads(ada.does("incidents", "list", "scripted", "--json"))
    assert incident["incident"] in done.stdout
