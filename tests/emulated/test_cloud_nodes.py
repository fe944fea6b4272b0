"""Simulated nodes behave as nodes do: they reboot, their tasks end, their tools tell what is broken."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodeheal.contract import names
from sandbox import processes
from sandbox.behaviour import Behaviour
from sandbox.client import NodeHandle, Sandbox, SandboxError

pytestmark = pytest.mark.emulated

CLUSTER = "lab"
IDLE = ["sleep", "600"]
REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "numpy-trainer"
XID_79 = "NVRM: Xid (PCI:0000:b9:00): 79, pid=<unknown>, name=<unknown>, GPU has fallen off the bus."


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("cloud"), boot_seconds=0.5, cluster=CLUSTER) as sandbox:
        reboot = (REPOSITORY / "packaging" / "ssm" / "reboot-node.json").read_text()
        sandbox.client("ssm").create_document(
            Name=names.document("reboot-node"), Content=reboot, DocumentType="Command"
        )
        diagnose = document("dcgmi diag -r 2 -j")
        sandbox.client("ssm").create_document(Name="diagnose", Content=diagnose, DocumentType="Command")
        yield sandbox


@pytest.mark.parametrize("is_seen", [True, False], ids=["before the emulator starts", "when it would listen"])
def test_a_port_that_was_taken_since_it_was_found_free_is_left_to_who_has_it(
    cloud: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    beside = Sandbox(tmp_path / "beside")
    if not is_seen:
        monkeypatch.setattr("sandbox.client._is_free", lambda port: True)
    beside.port = cloud.port

    with beside:
        assert beside.port != cloud.port
        assert beside.client("sts").get_caller_identity()["Account"]


def test_a_port_that_was_asked_for_and_is_taken_is_refused(cloud: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=f"port {cloud.port} on 127.0.0.1 is in use; choose another one"):
        Sandbox(tmp_path / "wanted", port=cloud.port).start()


@pytest.fixture
def node(cloud: Sandbox) -> NodeHandle:
    return cloud.add_node(agent=IDLE)


def test_a_reboot_ends_the_tasks_and_brings_another_boot(cloud: Sandbox, node: NodeHandle) -> None:
    task = start(cloud, node, IDLE)
    wait_for(lambda: status(cloud, task) == "RUNNING")
    before = boot_id(cloud, node)

    done = reboot(cloud, node, expires_in=60)

    assert done["Status"] == "Success"
    assert json.loads(done["StandardOutputContent"])["rebooting"] == before
    assert boot_id(cloud, node) != before
    ended = describe(cloud, task)
    assert (ended["lastStatus"], ended["containers"][0]["exitCode"]) == ("STOPPED", 137)
    assert (node.directory / "kernel.log.1").exists()
    assert "[    0.0" in (node.directory / "kernel.log").read_text().splitlines()[0]


def test_an_old_command_reboots_nothing(cloud: Sandbox, node: NodeHandle) -> None:
    before = boot_id(cloud, node)

    expired = run(cloud, node, names.document("reboot-node"), BootId=before, ExpiresAt=str(int(time.time()) - 1))
    other = run(cloud, node, names.document("reboot-node"), BootId="another", ExpiresAt=str(int(time.time()) + 60))

    assert (expired["Status"], expired["ResponseCode"]) == ("Failed", 3)
    assert other["Status"] == "Success"
    assert boot_id(cloud, node) == before


def test_a_script_that_asks_the_ssm_agent_for_a_reboot_runs_again_after_it(cloud: Sandbox, node: NodeHandle) -> None:
    before, mark = boot_id(cloud, node), node.directory / "asked"
    script = document(f"echo ran; [ -e {mark} ] && exit 0; touch {mark}; exit 194")
    cloud.client("ssm").create_document(Name="ask-for-reboot", Content=script, DocumentType="Command")

    done = run(cloud, node, "ask-for-reboot")

    assert (done["Status"], done["StandardOutputContent"]) == ("Success", "ran\nran\n")
    assert boot_id(cloud, node) != before


def test_a_command_can_be_cancelled(cloud: Sandbox, node: NodeHandle) -> None:
    ssm = cloud.client("ssm")
    ssm.create_document(Name="sleep", Content=document("sleep 300"), DocumentType="Command")
    command = ssm.send_command(DocumentName="sleep", InstanceIds=[node.node_id])["Command"]["CommandId"]

    def seen() -> tuple[str, int]:
        found = ssm.get_command_invocation(CommandId=command, InstanceId=node.node_id)
        return found["Status"], found["ResponseCode"]

    wait_for(lambda: seen()[0] == "InProgress" and (node.directory / "ssm" / command).exists())
    ssm.cancel_command(CommandId=command)

    wait_for(lambda: seen() == ("Cancelled", 137))


def test_a_value_that_the_document_does_not_list_is_refused_by_the_service(cloud: Sandbox, node: NodeHandle) -> None:
    ssm = cloud.client("ssm")
    level = {"Level": {"type": "String", "allowedValues": ["1", "2"]}}
    content = json.dumps(json.loads(document("echo {{ Level }}")) | {"parameters": level})
    ssm.create_document(Name="level", Content=content, DocumentType="Command")

    with pytest.raises(ClientError) as refused:
        ssm.send_command(DocumentName="level", InstanceIds=[node.node_id], Parameters={"Level": ["3"]})

    assert refused.value.response["Error"]["Code"] == "InvalidParameters"


def test_a_command_with_parameters_that_the_document_does_not_take_is_refused(cloud: Sandbox, node: NodeHandle) -> None:
    ssm = cloud.client("ssm")

    with pytest.raises(ClientError) as refused:
        ssm.send_command(
            DocumentName=names.document("reboot-node"),
            InstanceIds=[node.node_id],
            Parameters={"BootId": ["$(reboot)"], "ExpiresAt": ["1"]},
        )

    assert refused.value.response["Error"]["Code"] == "InvalidParameters"


def test_a_fault_shows_in_the_kernel_log_and_in_diagnostics_until_the_reboot(cloud: Sandbox, node: NodeHandle) -> None:
    at = cloud.inject(node, XID_79, persists=False, kill_rank=False)
    broken = run(cloud, node, "diagnose")
    reboot(cloud, node, expires_in=60)
    healed = run(cloud, node, "diagnose")

    assert (node.directory / "kernel.log.1").read_text().rstrip().endswith(XID_79)
    assert abs(at - time.time()) < 60
    assert (broken["Status"], healed["Status"]) == ("Failed", "Success")
    assert '"Fail"' in broken["StandardOutputContent"]


def test_a_fault_that_persists_survives_the_reboot(cloud: Sandbox, node: NodeHandle) -> None:
    cloud.inject(node, XID_79, persists=True, kill_rank=False)
    reboot(cloud, node, expires_in=60)

    assert run(cloud, node, "diagnose")["Status"] == "Failed"


def test_a_lost_gpu_aborts_the_rank(cloud: Sandbox, node: NodeHandle) -> None:
    task = start(cloud, node, IDLE)
    wait_for(lambda: status(cloud, task) == "RUNNING")

    cloud.inject(node, XID_79, persists=False, kill_rank=True)

    wait_for(lambda: status(cloud, task) == "STOPPED")
    ended = describe(cloud, task)
    assert ended["containers"][0]["exitCode"] == 128 + signal.SIGABRT
    assert ended["stopCode"] == "EssentialContainerExited"


def test_the_example_job_runs_as_a_gang_on_two_nodes(cloud: Sandbox, tmp_path: Path) -> None:
    ecs, nodes = cloud.client("ecs"), [cloud.add_node(agent=IDLE), cloud.add_node(agent=IDLE)]
    ecs.register_task_definition(**json.loads((EXAMPLE / "task-definition.json").read_text()))
    gang = {"WORLD_SIZE": "2", "MASTER_ADDR": nodes[0].address, "MASTER_PORT": "29500", "TRAINER_STEPS": "40"}
    tasks = []
    for rank, node in enumerate(nodes):
        environment = {**gang, "RANK": str(rank), "NODEHEAL_RUN": "1", "TRAINER_DIRECTORY": str(tmp_path)}
        override = {"name": "trainer", "environment": [{"name": k, "value": v} for k, v in environment.items()]}
        started = ecs.start_task(
            cluster=CLUSTER,
            taskDefinition="numpy-trainer",
            containerInstances=[node.container_instance_arn],
            overrides={"containerOverrides": [override]},
        )
        tasks.append(started["tasks"][0]["taskArn"])

    wait_for(lambda: all(status(cloud, task) == "STOPPED" for task in tasks), seconds=60)

    assert [exit_code(cloud, task) for task in tasks] == [0, 0]
    assert '"event": "finished", "step": 40' in (tmp_path / "progress.jsonl").read_text()


def test_a_stopped_task_gets_its_grace_and_then_no_more(cloud: Sandbox, node: NodeHandle) -> None:
    polite = start(cloud, node, ["sh", "-c", "trap 'exit 143' TERM; while :; do sleep 0.05; done"])
    deaf = start(cloud, node, ["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"])
    wait_for(lambda: status(cloud, polite) == status(cloud, deaf) == "RUNNING")
    time.sleep(0.3)  # the shells set their traps

    for task in (polite, deaf):
        cloud.client("ecs").stop_task(cluster=CLUSTER, task=task, reason="gang stopped")

    wait_for(lambda: status(cloud, polite) == "STOPPED")
    assert status(cloud, deaf) == "RUNNING"
    wait_for(lambda: status(cloud, deaf) == "STOPPED")
    assert [exit_code(cloud, task) for task in (polite, deaf)] == [143, 137]
    assert describe(cloud, deaf)["stoppedReason"] == "gang stopped"
    assert describe(cloud, deaf)["stopCode"] == "UserInitiated"


@pytest.mark.parametrize("beside", ["containerInstance", "desiredStatus", "family"])
def test_tasks_are_found_by_their_mark_and_by_nothing_beside_it(cloud: Sandbox, node: NodeHandle, beside: str) -> None:
    ecs, mark = cloud.client("ecs"), f"nodeheal/{beside}/1"
    task = start(cloud, node, IDLE, startedBy=mark)
    values = {"containerInstance": node.container_instance_arn, "desiredStatus": "RUNNING", "family": "idle"}

    with pytest.raises(ClientError, match="cannot specify startedBy with other arguments"):
        ecs.list_tasks(cluster=CLUSTER, startedBy=mark, **{beside: values[beside]})

    assert ecs.list_tasks(cluster=CLUSTER, startedBy=mark)["taskArns"] == [task]


@pytest.mark.parametrize(
    ("service", "call", "parameters", "why"),
    [
        ("ecs", "list_tasks", {"cluster": CLUSTER, "startedBy": "x" * 37}, "ownerId longer than 36"),
        ("ssm", "send_command", {"DocumentName": "diagnose", "Comment": "x" * 101}, "101 characters, at most 100"),
        ("sns", "publish", {"TopicArn": "arn:aws:sns:us-east-1:0:t", "Message": "m", "Subject": "é"}, "Subject"),
        ("sqs", "send_message", {"QueueUrl": "http://127.0.0.1/q", "MessageBody": ""}, "is empty"),
        ("ec2", "run_instances", {"MinCount": 1, "MaxCount": 1, "ClientToken": "x" * 65}, "ClientToken"),
        ("appconfig", "create_application", {"Name": "x" * 65}, "65 characters, at most 64"),
    ],
)
def test_the_emulator_refuses_what_aws_refuses_whoever_calls(
    cloud: Sandbox, service: str, call: str, parameters: dict[str, Any], why: str
) -> None:
    with pytest.raises(ClientError, match=why):
        getattr(cloud.client(service), call)(**parameters)


def test_a_node_that_drains_or_is_full_takes_no_task(cloud: Sandbox, node: NodeHandle) -> None:
    ecs = cloud.client("ecs")

    first = try_to_start(cloud, node, IDLE, gpus=2)
    full = try_to_start(cloud, node, IDLE, gpus=1)
    ecs.update_container_instances_state(
        cluster=CLUSTER, containerInstances=[node.container_instance_arn], status="DRAINING"
    )
    draining = try_to_start(cloud, node, IDLE)

    assert [len(first["tasks"]), first["failures"]] == [1, []]
    assert full["failures"][0]["reason"] == "RESOURCE:GPU"
    assert draining["failures"][0]["reason"] == "INACTIVE"
    assert status(cloud, first["tasks"][0]["taskArn"]) != "STOPPED"


def test_ecs_and_ssm_tell_the_default_bus_what_happens(cloud: Sandbox, node: NodeHandle) -> None:
    events, sqs = cloud.client("events"), cloud.client("sqs")
    queue = sqs.create_queue(QueueName="told")["QueueUrl"]
    queue_arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="told", EventPattern=json.dumps({"source": ["aws.ecs", "aws.ssm"]}))
    events.put_targets(Rule="told", Targets=[{"Id": "queue", "Arn": queue_arn}])

    task = start(cloud, node, ["true"], startedBy="nodeheal/job/1")
    command = run(cloud, node, "diagnose")
    wait_for(lambda: status(cloud, task) == "STOPPED")
    time.sleep(0.3)

    told = read_all(sqs, queue)
    tasks = [each["detail"] for each in told if task in each["resources"]]
    commands = [each["detail"] for each in told if each["detail"].get("command-id") == command["CommandId"]]
    assert [(each["lastStatus"], each["version"]) for each in tasks] == [("PENDING", 1), ("RUNNING", 2), ("STOPPED", 3)]
    assert {each["startedBy"] for each in tasks} == {"nodeheal/job/1"}
    assert tasks[-1]["containers"][0]["exitCode"] == 0
    assert [each["status"] for each in commands if "instance-id" in each] == ["InProgress", "Success"]
    assert {each["document-name"] for each in commands} == {"diagnose"}


def test_a_node_gets_the_credentials_of_a_role_that_trusts_ssm_and_of_no_other(cloud: Sandbox) -> None:
    iam = cloud.client("iam")
    for name, service in (("good", "ssm.amazonaws.com"), ("bad", "lambda.amazonaws.com")):
        trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)

    cloud.outputs = {"NodeRoleArn": "arn:aws:iam::000000000000:role/good"}
    good = cloud.add_node(agent=IDLE)
    cloud.outputs = {"NodeRoleArn": "arn:aws:iam::000000000000:role/bad"}
    with pytest.raises(SandboxError, match="does not trust"):
        cloud.add_node(agent=IDLE)
    cloud.outputs = {}

    assert "aws_session_token" in (good.directory / "credentials").read_text()


def test_a_busy_port_is_named(cloud: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=str(cloud.port)):
        Sandbox(tmp_path, port=cloud.port).start()


def test_nothing_is_left_when_whoever_started_it_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from sandbox.client import Sandbox\n"
        "with Sandbox(Path(sys.argv[1])) as s:\n"
        "    node = s.add_node(agent=['setsid', 'sleep', '600'])\n"
        "    print(node.directory, flush=True); time.sleep(600)\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    directory = starter.stdout.readline().strip()
    wait_for(lambda: processes.with_mark(processes.NODE_MARK, directory) != [])

    starter.kill()
    starter.wait()

    wait_for(lambda: not processes.with_mark(processes.NODE_MARK, directory))
    wait_for(lambda: f"--dir {tmp_path}" not in all_command_lines())


def all_command_lines() -> str:
    return subprocess.run(["ps", "axo", "args"], capture_output=True, text=True, timeout=10, check=True).stdout


def document(command: str) -> str:
    step = {"action": "aws:runShellScript", "name": "script", "inputs": {"runCommand": [command]}}
    return json.dumps({"schemaVersion": "2.2", "mainSteps": [step]})


def run(cloud: Sandbox, node: NodeHandle, name: str, **parameters: str) -> dict[str, Any]:
    """Send a command and wait for its end."""
    ssm = cloud.client("ssm")
    given = {key: [value] for key, value in parameters.items()}
    command = ssm.send_command(DocumentName=name, InstanceIds=[node.node_id], Parameters=given)["Command"]["CommandId"]
    found: dict[str, Any] = {}

    def has_ended() -> bool:
        found.update(ssm.get_command_invocation(CommandId=command, InstanceId=node.node_id))
        return found["Status"] not in ("Pending", "InProgress")

    wait_for(has_ended)
    return found


def reboot(cloud: Sandbox, node: NodeHandle, expires_in: int) -> dict[str, Any]:
    """Send nodeheal's reboot command, and wait for its end and for the boot, which comes later."""
    before = boot_id(cloud, node)
    # In a twentieth of the real seconds a busy machine's node goes down before its command has ended.
    cloud.behave(ssm_seconds_scale=0.5)
    done = run(cloud, node, names.document("reboot-node"), BootId=before, ExpiresAt=str(int(time.time()) + expires_in))
    cloud.behave(ssm_seconds_scale=Behaviour().ssm_seconds_scale)
    wait_for(
        lambda: (
            boot_id(cloud, node) != before and next(n for n in cloud.nodes() if n["node_id"] == node.node_id)["is_up"]
        )
    )
    return done


def try_to_start(cloud: Sandbox, node: NodeHandle, command: list[str], gpus: int = 0, **more: Any) -> dict[str, Any]:
    needs = [{"type": "GPU", "value": str(gpus)}] if gpus else []
    container = {
        "name": "main",
        "image": "numpy-trainer",
        "command": command,
        "memory": 64,
        "stopTimeout": 2,
        "resourceRequirements": needs,
    }
    ecs = cloud.client("ecs")
    made = ecs.register_task_definition(family="test", containerDefinitions=[container])["taskDefinition"]
    where = [node.container_instance_arn]
    answer: dict[str, Any] = ecs.start_task(
        cluster=CLUSTER, taskDefinition=made["taskDefinitionArn"], containerInstances=where, **more
    )
    return answer


def start(cloud: Sandbox, node: NodeHandle, command: list[str], **more: Any) -> str:
    answer = try_to_start(cloud, node, command, **more)
    assert answer["failures"] == []
    found: str = answer["tasks"][0]["taskArn"]
    return found


def describe(cloud: Sandbox, task: str) -> dict[str, Any]:
    found: dict[str, Any] = cloud.client("ecs").describe_tasks(cluster=CLUSTER, tasks=[task])["tasks"][0]
    return found


def status(cloud: Sandbox, task: str) -> str:
    return str(describe(cloud, task)["lastStatus"])


def exit_code(cloud: Sandbox, task: str) -> int:
    return int(describe(cloud, task)["containers"][0]["exitCode"])


def boot_id(cloud: Sandbox, node: NodeHandle) -> str:
    return next(str(each["boot_id"]) for each in cloud.nodes() if each["node_id"] == node.node_id)


def read_all(sqs: Any, queue: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while messages := sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", []):
        for message in messages:
            found.append(json.loads(message["Body"]))
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    return found


def wait_for(is_so: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)
