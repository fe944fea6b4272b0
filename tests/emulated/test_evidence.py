"""Evidence and checkpoint requests, for real: the deployed workflow, SSM, a node's own agent, S3, IAM enforced."""

import io
import json
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from nodeheal.adapters.aws.notifier import Destinations
from nodeheal.adapters.aws.ports import aws_ports
from nodeheal.agent.transport.upload import NotUploaded, read_ticket, upload
from nodeheal.contract import names
from nodeheal.contract.results import EvidenceSaved, StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Outcome, Step
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.services.saving import node_of
from nodeheal.services.steps import save_node
from sandbox.client import NodeHandle, Sandbox
from tests.support.builders import facts_of, stored_node, xid
from tests.support.until import until

pytestmark = pytest.mark.emulated

DEADLINE_SECONDS = 40
# No fault: what heals the node by itself is not what is tested here.
LAST_WORDS = "2026-11-21T05:50:31.123456+00:00 gpu-7 kernel: [  123.456789] something odd was seen"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("evidence"), boot_seconds=0.5) as sandbox:
        sandbox.deploy()
        yield sandbox


@pytest.fixture(scope="module")
def ports(cloud: Sandbox) -> Ports:
    """The deployed state, as the functions see it, for what a test puts there and reads."""
    to = Destinations(cloud.outputs["BusName"], cloud.outputs["TopicArn"], cloud.outputs["QuarantineUrl"])
    bucket = cloud.outputs["EvidenceBucketName"]
    table, arn = cloud.outputs["TableName"], cloud.outputs["RecoverNodeArn"]
    return aws_ports(table, arn, to, partial(client_of, cloud), cloud.client, evidence_bucket=bucket)


def client_of(cloud: Sandbox, service: str) -> Any:
    """A client as the functions make theirs: S3 signs in the new way only if it is told to."""
    if service != "s3":
        return cloud.client(service)
    root: Any = boto3.Session("test", "test", region_name="us-east-1")
    return root.client("s3", endpoint_url=cloud.endpoint_url, config=Config(signature_version="s3v4"))


@pytest.fixture
def node(cloud: Sandbox, ports: Ports) -> NodeHandle:
    """A node whose agent has reported."""
    handle = cloud.add_node("evidence")
    until(lambda: ports.nodes.get(handle.node_id), "report of the agent")
    return handle


def opened(node: NodeHandle, ports: Ports) -> str:
    """An incident on the node, as ingest opens it; no workflow of its own runs."""
    return str(until(lambda: _open(node, ports), "node that nobody else writes"))


def _open(node: NodeHandle, ports: Ports) -> str:
    known = stored_node(ports, node.node_id)
    root = xid(79, node_id=node.node_id, instance_id=node.node_id, boot_id=known.boot_id, observed_at=datetime.now(UTC))
    incident_id = f"inc-{node.node_id}"
    incident = Incident(incident_id, node.node_id, known.pool, root, ports.clock(), RecoveryPolicy().version)
    return incident_id if ports.incidents.open(incident, replace(known, open_incident=incident_id)) else ""


def only_the_step(cloud: Sandbox) -> str:
    """A state machine of the one state, as recover_node has it and with its role; its ARN."""
    workflows = cloud.client("stepfunctions")
    parent = workflows.describe_state_machine(stateMachineArn=cloud.outputs["RecoverNodeArn"])
    state = json.loads(parent["definition"])["States"]["Freeze evidence"]
    payload = "{% $merge([$states.input.request, {'task_token': $states.context.Task.Token}]) %}"
    alone = {
        "Type": "Task",
        "Resource": state["Resource"],
        "Arguments": {**state["Arguments"], "Payload": payload},
        "TimeoutSeconds": DEADLINE_SECONDS,
        "Output": "{% $states.result %}",
        "End": True,
    }
    definition = {"QueryLanguage": "JSONata", "StartAt": "Freeze evidence", "States": {"Freeze evidence": alone}}
    made = workflows.create_state_machine(
        name=f"only-{time.monotonic_ns()}", definition=json.dumps(definition), roleArn=parent["roleArn"]
    )
    return str(made["stateMachineArn"])


def freeze(cloud: Sandbox, incident_id: str, node: NodeHandle, seconds: int = DEADLINE_SECONDS) -> StepResult:
    """What the step comes to."""
    ended = ended_step(cloud, incident_id, node, seconds)
    assert ended["status"] == "SUCCEEDED", ended
    return StepResult.model_validate_json(ended["output"])


def ended_step(cloud: Sandbox, incident_id: str, node: NodeHandle, seconds: int = DEADLINE_SECONDS) -> dict[str, Any]:
    """Run the step to its end, as the parent has it, without the parent."""
    decision = Decision(
        step=Step.FREEZE_EVIDENCE, reason="before the reboot", node_id=node.node_id, deadline_seconds=seconds
    )
    request = StepRequest(incident_id=incident_id, turn=1, decision=decision)
    workflows = cloud.client("stepfunctions")
    machine = only_the_step(cloud)
    given = json.dumps({"request": request.model_dump(mode="json")})
    started = workflows.start_execution(stateMachineArn=machine, name=f"freeze-{incident_id}", input=given)
    arn = started["executionArn"]
    until(lambda: workflows.describe_execution(executionArn=arn)["status"] != "RUNNING", "end of the workflow")
    return dict(workflows.describe_execution(executionArn=arn))


def archive_at(cloud: Sandbox, link: str) -> tarfile.TarFile:
    bucket, _, key = link.removeprefix("s3://").partition("/")
    body = cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    return tarfile.open(fileobj=io.BytesIO(body))


def content(archive: tarfile.TarFile, name: str) -> str:
    file = archive.extractfile(name)
    assert file is not None
    return file.read().decode()


def test_what_a_broken_node_can_tell_is_in_the_bucket_before_it_is_touched(
    cloud: Sandbox, ports: Ports, node: NodeHandle
) -> None:
    incident_id = opened(node, ports)
    breaks(node, "fail")
    with (node.directory / "kernel.log").open("a") as log:
        log.write(f"{LAST_WORDS}\n")

    result = freeze(cloud, incident_id, node)

    assert result.outcome is Outcome.DONE, result
    assert facts_of(result, EvidenceSaved).link.endswith(f"/incidents/{incident_id}/evidence-1.tar.gz")
    archive = archive_at(cloud, facts_of(result, EvidenceSaved).link)
    manifest = json.loads(content(archive, "manifest.json"))
    assert (facts_of(result, EvidenceSaved).size_bytes or 0) > 0
    assert manifest["node_id"] == node.node_id
    assert LAST_WORDS in content(archive, "kernel-log-0.txt")
    assert "<attached_gpus>1<" in content(archive, "nvidia-smi.xml")
    assert '"Failure"' in content(archive, "dcgm-health.json")
    assert not [item for item in manifest["items"] if item["error"] not in ("", "not installed")]
    # The leave to upload is in none of it.
    assert not [name for name in archive.getnames() if "x-amz-signature" in content(archive, name)]


def test_a_tool_that_hangs_holds_nothing_up_and_is_named(cloud: Sandbox, ports: Ports, node: NodeHandle) -> None:
    incident_id = opened(node, ports)
    breaks(node, "hang")

    result = freeze(cloud, incident_id, node, seconds=20)

    assert result.outcome is Outcome.DONE, result
    assert "nvidia-smi.xml" in result.reason
    manifest = json.loads(content(archive_at(cloud, facts_of(result, EvidenceSaved).link), "manifest.json"))
    [hung] = [item for item in manifest["items"] if item["name"] == "nvidia-smi.xml"]
    assert hung["error"].startswith("no answer within")


def breaks(node: NodeHandle, how: str) -> None:
    """From now on the fake tools find the node broken (fail), or answer no more (hang)."""
    faults = node.directory / "faults.json"
    faults.write_text(json.dumps({**json.loads(faults.read_text()), "dcgm": how}))


def test_a_node_that_may_not_be_commanded_fails_the_step_at_once_and_the_parent_goes_on(
    cloud: Sandbox, ports: Ports, node: NodeHandle
) -> None:
    incident_id = opened(node, ports)
    save_node(ports, node_of(node.node_id, ports), instance_id="mi-" + "0" * 17)

    ended = ended_step(cloud, incident_id, node)

    # As recover_node catches it; tests/workflows walks on from there.
    assert (ended["status"], ended["error"]) == ("FAILED", "AccessDeniedException"), ended
    assert "AccessDenied" in ended["cause"]


def test_the_leave_to_upload_is_for_one_key_one_size_and_one_time(cloud: Sandbox, ports: Ports, tmp_path: Any) -> None:
    expires_at = ports.clock() + timedelta(seconds=60)
    file = tmp_path / "evidence.tar.gz"
    file.write_bytes(b"x" * 1000)
    good = read_ticket(ports.sign_upload("incidents/a/1.tar.gz", 1000, expires_at).ticket)
    upload(file, good, 10)

    elsewhere = replace(good, fields={**good.fields, "key": "incidents/b/1.tar.gz"})
    with pytest.raises(NotUploaded, match=r"403.*Policy Condition failed"):
        upload(file, elsewhere, 10)
    file.write_bytes(b"x" * 1001)
    with pytest.raises(NotUploaded, match=r"400.*EntityTooLarge"):
        upload(file, good, 10)
    forged = replace(good, fields={**good.fields, "x-amz-signature": "0" * 64})
    with pytest.raises(NotUploaded, match=r"403.*SignatureDoesNotMatch"):
        upload(file, forged, 10)
    old = read_ticket(ports.sign_upload("incidents/a/2.tar.gz", 2000, ports.clock()).ticket)
    time.sleep(1.5)
    with pytest.raises(NotUploaded, match=r"403.*expired"):
        upload(file, old, 10)


def test_a_nodes_own_role_can_neither_write_nor_read_the_bucket(cloud: Sandbox) -> None:
    keys = cloud.client("sts").assume_role(RoleArn=cloud.outputs["NodeRoleArn"], RoleSessionName="a-node")[
        "Credentials"
    ]
    session = boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], "us-east-1")
    s3: Any = session.client("s3", endpoint_url=cloud.endpoint_url)
    bucket = cloud.outputs["EvidenceBucketName"]

    with pytest.raises(ClientError, match=r"(?i)denied|not authorized"):
        s3.put_object(Bucket=bucket, Key="incidents/x", Body=b"mine")
    with pytest.raises(ClientError, match=r"(?i)denied|not authorized"):
        s3.list_objects_v2(Bucket=bucket)


def test_a_request_for_a_checkpoint_reaches_every_node_of_the_gang_in_one_command(
    cloud: Sandbox, ports: Ports, node: NodeHandle
) -> None:
    other = cloud.add_node("evidence")
    until(lambda: ports.nodes.get(other.node_id), "report of the other agent")
    nodes = [known for handle in (node, other) if (known := ports.nodes.get(handle.node_id))]

    command = Command("checkpoint-now", {"Job": "llama"})
    sent = ports.commands.send_to_all(nodes, command, ports.clock() + timedelta(seconds=60))

    assert len(sent) == 1
    for handle in (node, other):
        asked = handle.directory / "run" / "llama.json"
        until(asked.exists, "request")
        assert json.loads(asked.read_text())["job_id"] == "llama"


def test_every_document_that_is_used_here_is_deployed(cloud: Sandbox) -> None:
    for name in (
        names.document("freeze-evidence"),
        names.document("checkpoint-now"),
        names.document("find-checkpoint"),
    ):
        assert cloud.client("ssm").get_document(Name=name)["Status"] == "Active"
