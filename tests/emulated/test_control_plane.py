"""What reaches the deployed control plane, good and bad. One deployed sandbox without nodes serves all tests here."""

import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from nodeheal import __version__
from nodeheal.agent.identity.signing import Signer
from nodeheal.agent.identity.sts_identity import StsIdentity
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.transport import heartbeat_client as agent_heartbeat
from nodeheal.agent.transport.aws_client import AwsClient
from nodeheal.agent.transport.credentials import CredentialChain
from nodeheal.agent.transport.fallback import Fallback
from nodeheal.agent.transport.heartbeat_client import HeartbeatItem
from nodeheal.agent.transport.metrics import NodeMetrics, NotPut
from nodeheal.agent.transport.spool import Spool
from nodeheal.contract import names
from nodeheal.contract.notification import Notification
from nodeheal.contract.steps import AttemptLimit, Decision, Reservation, StepRequest
from nodeheal.contract.vocabulary import Action, Step, Verdict
from nodeheal.domain.jobs.owner import Owner
from sandbox.client import Sandbox
from sandbox.deployment import ASSET_BUCKET
from tests.support.agent_fakes import PUBLIC_KEY
from tests.support.agent_fakes import xid_event as agent_xid
from tests.support.builders import xid
from tests.support.node_root import NodeRoot, executable
from tests.support.until import until

# One worker deploys it once.
pytestmark = pytest.mark.emulated

OBSERVED_CODE = 63
SETTLE_SECONDS = 2.0


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("control-plane")) as sandbox:
        sandbox.deploy()
        sandbox.subscribe_mailbox()
        yield sandbox


@pytest.fixture
def node_id() -> str:
    """A node of its own for each test."""
    return f"mi-{uuid.uuid4().hex[:17]}"


def fault(node_id: str, code: int = OBSERVED_CODE, **changes: Any) -> dict[str, Any]:
    event = xid(code, node_id=node_id, instance_id=node_id, event_id=uuid.uuid4().hex, observed_at=datetime.now(UTC))
    return {**event.model_dump(mode="json"), **changes}


def put(cloud: Sandbox, *details: Any, detail_type: str = names.NODE_HEALTH_REPORTED) -> None:
    for detail in details:
        node_id = detail.get("node_id", "mi-0" + "0" * 16)
        cloud.voices.enrols(node_id)
        cloud.voices.puts(node_id, detail_type, json.dumps(detail))


def quarantined(cloud: Sandbox) -> list[tuple[str, str]]:
    messages = cloud.client("sqs").receive_message(
        QueueUrl=cloud.outputs["QuarantineUrl"],
        MaxNumberOfMessages=10,
        MessageAttributeNames=["All"],
        VisibilityTimeout=0,
    )
    return [(m["MessageAttributes"]["why"]["StringValue"], m["Body"]) for m in messages.get("Messages", [])]


def items(cloud: Sandbox, pk: str, prefix: str) -> list[dict[str, Any]]:
    answer = cloud.client("dynamodb").query(
        TableName=cloud.outputs["TableName"],
        KeyConditionExpression="pk = :pk AND begins_with(sk, :sk)",
        ExpressionAttributeValues={":pk": {"S": pk}, ":sk": {"S": prefix}},
    )
    found: list[dict[str, Any]] = answer["Items"]
    return found


def record(cloud: Sandbox, node_id: str) -> dict[str, Any]:
    return items(cloud, names.node_pk(node_id), names.NODE_SK)[0]


def executions(cloud: Sandbox, node_id: str) -> list[dict[str, Any]]:
    runs = cloud.client("stepfunctions").list_executions(stateMachineArn=cloud.outputs["RecoverNodeArn"])
    return [run for run in runs["executions"] if node_id in run["name"]]


def test_what_cannot_be_read_is_quarantined_with_its_reason_and_the_rest_of_its_batch_proceeds(
    cloud: Sandbox, node_id: str
) -> None:
    marks = {name: f"{name}-{node_id}" for name in ("unknown-field", "oversized", "no-node")}
    no_node = {key: value for key, value in fault(node_id, event_id=marks["no-node"]).items() if key != "node_id"}

    put(
        cloud,
        fault(node_id, event_id=marks["unknown-field"], shoe_size=44),
        fault(node_id, event_id=marks["oversized"], evidence="x" * 10_000),
        no_node,
        fault(node_id),
    )

    until(lambda: executions(cloud, node_id), "execution for the good event")
    found = until(
        lambda: (seen := [q for q in quarantined(cloud) if node_id in q[1]]) and len(seen) == 3 and seen,
        "quarantine of the three bad events",
    )
    reasons = {mark: why for why, body in found for mark in marks.values() if mark in body}
    assert "shoe_size: there is no such field" in reasons[marks["unknown-field"]]
    assert "evidence: is too long; give at most 8192 characters" in reasons[marks["oversized"]]
    assert "signed an event about another node" in reasons[marks["no-node"]]


def test_a_duplicate_opens_no_second_incident(cloud: Sandbox, node_id: str) -> None:
    event = fault(node_id)

    put(cloud, event, event)
    put(cloud, event)
    put(cloud, marker := fault(f"{node_id}x"))

    def of_node() -> list[Any]:
        return [run for run in executions(cloud, node_id) if f"{node_id}x" not in run["name"]]

    # A queue promises no order: the last event may be the first to be taken.
    until(of_node, "execution for the event")
    until(lambda: executions(cloud, marker["node_id"]), "execution for the last event")
    assert len(of_node()) == 1


def test_an_event_from_before_the_current_boot_is_history(cloud: Sandbox, node_id: str) -> None:
    booted = {
        **{k: v for k, v in fault(node_id, boot_id="boot-2").items() if k in _FACT},
        "booted_at": datetime.now(UTC).isoformat(),
        "address": "127.0.0.1",
        "accelerators": 8,
    }
    put(cloud, booted, detail_type=names.NODE_BOOTED)
    until(lambda: record(cloud, node_id)["boot_id"]["S"] == "boot-2", "record of the boot")

    old = fault(node_id, 79, observed_at=(datetime.now(UTC) - timedelta(minutes=5)).isoformat())
    put(cloud, old)

    kept = until(lambda: items(cloud, names.node_pk(node_id), names.HISTORY_PREFIX), "history of the event")
    assert kept[0]["note"]["S"] == "from before the node's current boot"
    assert executions(cloud, node_id) == []


_FACT = frozenset(
    {
        "schema_version",
        "event_id",
        "node_id",
        "cluster",
        "pool",
        "provider",
        "instance_id",
        "boot_id",
        "observed_at",
        "agent_version",
        "scheduler",
    }
)


def test_a_node_that_ecs_does_not_know_goes_to_a_human_and_stays_as_it_is(cloud: Sandbox, node_id: str) -> None:
    cloud.client("ecs").create_cluster(clusterName=cloud.cluster)

    put(cloud, fault(node_id, 79))

    mails = until(lambda: [m for m in cloud.mails() if node_id in m[0]], "email")
    assert f"{node_id} is not registered in ECS cluster training" in mails[0][1]
    assert items(cloud, names.node_pk(node_id), names.NODE_SK)[0]["state"]["S"] == "HEALTHY"


def test_a_recovery_that_breaks_pages_once(cloud: Sandbox, node_id: str) -> None:
    incident_id = f"inc-{node_id}"  # of which the table knows nothing
    cloud.client("stepfunctions").start_execution(
        stateMachineArn=cloud.outputs["RecoverNodeArn"],
        name=incident_id,
        input=json.dumps({"incident_id": incident_id}),
    )

    until(lambda: [run for run in executions(cloud, node_id) if run["status"] == "FAILED"], "end of the execution")
    until(lambda: [m for m in cloud.mails() if incident_id in m[0] + m[1]], "page")
    time.sleep(1.0)  # a second page, from the rule for failed executions, would come now

    mails = [m for m in cloud.mails() if incident_id in m[0] + m[1]]
    assert len(mails) == 1
    assert len(mails[0][0]) < 100


def test_an_owner_gets_what_is_about_his_own_jobs_and_operators_get_none_of_it(cloud: Sandbox) -> None:
    cloud.subscribe_owner(Owner("ada@example.com"))
    cloud.all_mails()  # from now on they are collected
    for owner in ("bob@example.com", "ada@example.com"):
        letter = Notification(
            key=uuid.uuid4().hex, subject=f"for {owner}", body="yours", severity="INFO", pool="demo", owner=owner
        )
        entry = {
            "Source": names.CONTROL_SOURCE,
            "DetailType": names.JOB_NEWS,
            "Detail": letter.model_dump_json(),
            "EventBusName": cloud.outputs["BusName"],
        }
        cloud.client("events").put_events(Entries=[entry])

    until(cloud.owner_mails, "email to the owner")
    time.sleep(1.0)  # one that nobody should get would have come by now

    assert [subject for subject, _ in cloud.owner_mails()] == ["for ada@example.com"]
    assert not [subject for subject, _ in cloud.mails() if subject.startswith("for ")]
    told = {subject: owner for subject, _, owner in cloud.all_mails()}
    owners = ("ada@example.com", "bob@example.com")
    assert [(told[f"for {owner}"], cloud.gets_emails(owner)) for owner in owners] == [
        ("ada@example.com", True),
        ("bob@example.com", False),
    ]


def node_credentials(cloud: Sandbox, node_id: str) -> CredentialChain:
    keys = cloud.client("sts").assume_role(RoleArn=cloud.outputs["NodeRoleArn"], RoleSessionName=node_id)["Credentials"]
    names_of = {
        "AWS_ACCESS_KEY_ID": "AccessKeyId",
        "AWS_SECRET_ACCESS_KEY": "SecretAccessKey",
        "AWS_SESSION_TOKEN": "SessionToken",
    }
    return CredentialChain(Clock(), {name: keys[key] for name, key in names_of.items()})


def signer(cloud: Sandbox, node_id: str, folder: Path) -> Signer:
    credentials, clock = node_credentials(cloud, node_id), Clock()
    table, sts = (AwsClient(name, "us-east-1", cloud.endpoint_url, credentials, clock) for name in ("dynamodb", "sts"))
    return Signer(folder, node_id, HeartbeatItem(node_id, table, StsIdentity(sts)), clock)


def test_a_nodes_metrics_are_taken_in_their_namespace_and_in_no_other(
    cloud: Sandbox, node_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials, now = node_credentials(cloud, node_id), datetime.now(UTC)
    node = NodeMetrics(AwsClient("monitoring", "us-east-1", cloud.endpoint_url, credentials, Clock()), node_id)

    node.put({"gpu_power_watts:0": 70.0, "gpu_power_watts:1": 412.0}, now)
    monkeypatch.setattr(names, "NODE_METRICS_NAMESPACE", names.METRICS_NAMESPACE)
    with pytest.raises(NotPut, match="AccessDenied"):
        node.put({"gpu_power_watts:0": 70.0}, now)

    [seen] = cloud.client("cloudwatch").get_metric_statistics(
        Namespace="nodeheal/nodes",
        MetricName="gpu_power_watts",
        Dimensions=[{"Name": "NodeId", "Value": node_id}],
        StartTime=now - timedelta(minutes=5),
        EndTime=now + timedelta(minutes=5),
        Period=600,
        Statistics=["Maximum", "Sum", "SampleCount"],
    )["Datapoints"]
    assert (seen["Maximum"], seen["Sum"], seen["SampleCount"]) == (412.0, 482.0, 2.0)
    node.close()


def test_a_grave_finding_that_goes_around_the_bus_opens_its_incident_once(
    cloud: Sandbox, node_id: str, tmp_path: Path
) -> None:
    credentials = node_credentials(cloud, node_id)
    sns, sts = (AwsClient(name, "us-east-1", cloud.endpoint_url, credentials, Clock()) for name in ("sns", "sts"))
    cloud.voices.enrols(node_id)
    spool, fallback = Spool(tmp_path), Fallback(sns, StsIdentity(sts), signer(cloud, node_id, tmp_path))
    event = agent_xid(OBSERVED_CODE)
    event = replace(
        event,
        event_id=uuid.uuid4().hex,
        node_id=node_id,
        instance_id=node_id,
        observed_at=datetime.now(UTC),
        verdict=Verdict.FAILED,
    )
    spool.put([event])

    fallback.tell(spool)
    until(lambda: executions(cloud, node_id), "incident")
    put(cloud, json.loads(event.to_json()))
    time.sleep(SETTLE_SECONDS)

    assert len(executions(cloud, node_id)) == 1
    spool.close()


def test_a_nodes_role_may_speak_for_itself_and_nothing_else(cloud: Sandbox) -> None:
    keys = cloud.client("sts").assume_role(RoleArn=cloud.outputs["NodeRoleArn"], RoleSessionName="a-node")[
        "Credentials"
    ]
    cloud.client("ecs").create_cluster(clusterName=cloud.cluster)
    session = boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], "us-east-1")

    def client(service: str) -> Any:
        return session.client(service, endpoint_url=cloud.endpoint_url)  # type: ignore[call-overload]

    event = {
        "Source": names.AGENT_SOURCE,
        "DetailType": "Drill",
        "Detail": "{}",
        "EventBusName": cloud.outputs["BusName"],
    }
    own = client("sts").get_caller_identity()["UserId"]

    def heartbeat(who: str) -> Any:
        return client("dynamodb").update_item(
            **agent_heartbeat.request(who, agent_heartbeat.HeartbeatContent("boot-1", 0.0, 60.0, PUBLIC_KEY))
        )

    assert client("events").put_events(Entries=[event])["FailedEntryCount"] == 0
    assert own.endswith(":a-node")
    assert heartbeat(own)["Attributes"][names.HEARTBEAT_KEY] == {"S": own}
    denied: dict[str, Callable[[], Any]] = {
        "table": lambda: client("dynamodb").get_item(
            TableName=cloud.outputs["TableName"], Key={"pk": {"S": "x"}, "sk": {"S": "x"}}
        ),
        "a heartbeat of another node": lambda: heartbeat(own.replace("a-node", "b-node")),
        "heartbeats of all": lambda: client("dynamodb").scan(TableName=names.HEARTBEATS_TABLE),
        "taking its own back": lambda: client("dynamodb").delete_item(
            TableName=names.HEARTBEATS_TABLE, Key={names.HEARTBEAT_KEY: {"S": own}}
        ),
        "topic": lambda: client("sns").publish(TopicArn=cloud.outputs["TopicArn"], Message="boo"),
        "workflow": lambda: client("stepfunctions").start_execution(stateMachineArn=cloud.outputs["RecoverNodeArn"]),
        "queue": lambda: client("sqs").send_message(QueueUrl=cloud.outputs["EventQueueUrl"], MessageBody="boo"),
        "cluster": lambda: client("ecs").list_container_instances(cluster=cloud.cluster),
        "commands": lambda: client("ssm").send_command(
            DocumentName=names.document("reboot-node"), InstanceIds=["mi-" + "0" * 17]
        ),
    }
    for call in denied.values():
        with pytest.raises(ClientError, match=r"(?i)denied|not authorized"):
            call()


@pytest.fixture
def without(cloud: Sandbox) -> Iterator[Callable[[str, str], None]]:
    """Takes an action out of a function's role, until the test is over."""
    iam, taken = cloud.client("iam"), dict[str, str]()

    def take(stem: str, action: str) -> None:
        function = cloud.client("lambda").get_function_configuration(FunctionName=f"nodeheal-{stem.replace('_', '-')}")
        role = function["Role"].rpartition("/")[2]
        document = iam.get_role_policy(RoleName=role, PolicyName="may")["PolicyDocument"]
        taken[role] = json.dumps(document)
        left = json.loads(taken[role])
        for statement in left["Statement"]:
            named = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            statement["Action"] = [one for one in named if one != action] or ["none:Left"]
        iam.put_role_policy(RoleName=role, PolicyName="may", PolicyDocument=json.dumps(left))

    yield take
    for role, document in taken.items():
        iam.put_role_policy(RoleName=role, PolicyName="may", PolicyDocument=document)


@pytest.mark.parametrize("action", ["dynamodb:GetItem", "dynamodb:PutItem", None])
def test_a_function_without_one_of_its_permissions_is_denied_and_with_all_of_them_is_not(
    cloud: Sandbox, node_id: str, without: Callable[[str, str], None], action: str | None
) -> None:
    put(cloud, fault(node_id))
    until(lambda: items(cloud, names.node_pk(node_id), names.NODE_SK), "the node's first report")
    limit = AttemptLimit(group=Action.REBOOT, limit=1, window_seconds=3_600)
    reserve = (Reservation(scope=names.node_pk(node_id), limit=limit),)
    decided = Decision(step=Step.REBOOT, reason="a drill", node_id=node_id, action=Action.REBOOT, reserve=reserve)
    request = StepRequest(incident_id=f"inc-{node_id}", turn=1, decision=decided, task_token="nobody-waits")
    if action is not None:
        without("reboot_node", action)

    answer = cloud.client("lambda").invoke(
        FunctionName="nodeheal-reboot-node", Payload=request.model_dump_json().encode()
    )

    said = answer["Payload"].read().decode()
    assert ("AccessDenied" in said or "not authorized" in said) == (action is not None), said
    assert ("FunctionError" in answer) == (action is not None)


def test_a_node_installs_the_agent_with_its_own_role_and_reads_nothing_else_of_the_bucket(
    cloud: Sandbox, tmp_path: Path
) -> None:
    keys = cloud.client("sts").assume_role(RoleArn=cloud.outputs["NodeRoleArn"], RoleSessionName="mi-0a1b2c3d4e5f67890")
    access, secret, token = (keys["Credentials"][key] for key in ("AccessKeyId", "SecretAccessKey", "SessionToken"))
    content = json.loads(cloud.client("ssm").get_document(Name=names.INSTALL_DOCUMENT)["Content"])
    node = NodeRoot(tmp_path / "root", {"cluster": "training", "scheduler": "ECS", "pool": "h100"})
    executable(node.tools / "python3", f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 "$@"\n')
    (node.root / "credentials").write_text(
        f"[default]\naws_access_key_id={access}\naws_secret_access_key={secret}\naws_session_token={token}\n"
    )
    environment = {
        "AWS_SHARED_CREDENTIALS_FILE": str(node.root / "credentials"),
        "AWS_ENDPOINT_URL_S3": cloud.endpoint_url,
        "AWS_SSM_INSTANCE_ID": "mi-0a1b2c3d4e5f67890",
        "AWS_SSM_REGION_NAME": "us-east-1",
    }

    ended = node.send(content, "install", __version__, None, **environment)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == f"nodeheal-agent {__version__}: active"
    s3: Any = boto3.Session(access, secret, token, "us-east-1").client("s3", endpoint_url=cloud.endpoint_url)
    [wheelhouse] = re.findall(r"key='(\w+\.zip)'", "\n".join(content["mainSteps"][0]["inputs"]["runCommand"]))
    assert s3.get_object(Bucket=ASSET_BUCKET, Key=wheelhouse)["ContentLength"] > 0
    held = cloud.client("s3").list_objects_v2(Bucket=ASSET_BUCKET)["Contents"]
    other = next(each["Key"] for each in held if each["Key"] != wheelhouse)
    denied: tuple[Callable[[], Any], ...] = (
        lambda: s3.get_object(Bucket=ASSET_BUCKET, Key=other),
        lambda: s3.put_object(Bucket=ASSET_BUCKET, Key=wheelhouse, Body=b"mine"),
        lambda: s3.delete_object(Bucket=ASSET_BUCKET, Key=wheelhouse),
        lambda: s3.list_objects_v2(Bucket=ASSET_BUCKET),
    )
    for call in denied:
        with pytest.raises(ClientError, match=r"(?i)denied|not authorized"):
            call()
