"""A researcher with the policy for jobs and nothing else: from a file to a job that trains, is read, and is stopped."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeheal.contract import names
from nodeheal.contract.vocabulary import JobState, NodeState, Outcome
from nodeheal.domain.operation import node_owner
from nodeheal.ports import Ports
from sandbox.client import Sandbox, free_port
from tests.support.builders import stored_job
from tests.support.operators import Operator, deployed, is_denied, operator
from tests.support.until import until

pytestmark = pytest.mark.emulated

FILE = """\
name: digits
pool: wired
nodes: 2
accelerators: 2
image: numpy-trainer:latest
command: [sh, -c, "echo rank $RANK of $WORLD_SIZE; exec python train.py --steps {steps} --step-seconds 0.05"]
environment: {{TRAINER_DIRECTORY: {directory}}}
mounts: [{{source: {directory}, target: {directory}}}]
checkpoints: {{directory: {directory}, format: numpy}}
stop_seconds: 5
master_port: {port}
owner: grace@example.com
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("jobs"), boot_seconds=0.5) as sandbox:
        sandbox.deploy()
        yield sandbox


@pytest.fixture(scope="module")
def grace(cloud: Sandbox) -> Operator:
    return operator(cloud, "grace", "OperatorJobsPolicyArn")


@pytest.fixture(scope="module")
def ports(cloud: Sandbox) -> Ports:
    made = deployed(cloud)
    handles = [cloud.add_node("wired") for _ in range(2)]
    until(lambda: all(made.nodes.get(handle.node_id) for handle in handles), "reports of the agents")
    return made


def written(tmp_path: Path, cloud: Sandbox, steps: int) -> str:
    """The job file, with a checkpoint directory that exists."""
    directory = cloud.directory / "shared" / "digits"
    directory.mkdir(parents=True, exist_ok=True)
    file = tmp_path / "job.yaml"
    file.write_text(FILE.format(steps=steps, directory=directory, port=free_port()))
    return str(file)


def state_of(grace: Operator) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(grace.does("jobs", "show", "digits", "--json"))
    return found


def said(grace: Operator) -> list[str]:
    """What its ranks have said so far."""
    return grace.does("jobs", "logs", "digits").splitlines()


def test_a_job_is_submitted_trains_is_read_and_stopped_and_leaves_nothing(
    cloud: Sandbox, ports: Ports, grace: Operator, tmp_path: Path
) -> None:
    file = written(tmp_path, cloud, steps=5_000)

    planned = json.loads(grace.does("jobs", "submit", file, "--dry-run", "--json"))
    submitted = grace.does("jobs", "submit", file)
    again = grace.types("jobs", "submit", file)
    until(lambda: state_of(grace)["summary"] == "run 1 is under way", "run")
    until(lambda: {"[0] rank 0 of 2", "[1] rank 1 of 2"} <= set(said(grace)), "output of the ranks")
    until(lambda: any("loss" in line for line in said(grace)), "what the training says")
    shown = state_of(grace)
    listed = grace.does("jobs", "list", "wired")
    stopped = grace.does("jobs", "stop", "digits", "--why", "wrong data")
    waited = grace.types("jobs", "wait", "digits", "--timeout", "60s")

    assert len(planned["placement"]["nodes"]) == 2
    assert planned["task_definition"]["executionRoleArn"].endswith(
        f":role/{names.JOB_EXECUTION_ROLE.format(region='us-east-1')}"
    )
    assert "grace@example.com has not confirmed emails" in submitted
    assert (again.returncode, "exists already" in again.stderr) == (1, True)
    assert [rank["status"] for rank in shown["runs"][0]["ranks"]] == ["RUNNING", "RUNNING"]
    assert shown["execution"] is None  # no console shows this cloud
    assert "digits  ECS        RUNNING" in listed
    asked = zip(planned["placement"]["nodes"], ("serve", "connect"), strict=True)
    ways = [ports.operations.get(node_owner(name), f"digits-1-1-network-0-{role}") for name, role in asked]
    results = [way.result for way in ways if way is not None]
    assert [result.outcome for result in results] == [Outcome.DONE, Outcome.DONE]
    assert all("messages of 1m bytes came through" in result.reason for result in results)
    assert shown["directory_seen"].startswith("both nodes share ")
    assert "is being stopped" in stopped
    assert waited.returncode == 4, (waited.stdout, waited.stderr)
    assert "wrong data" in waited.stdout
    assert is_clean(cloud, ports)


def test_it_is_restarted_with_the_definition_that_it_had(
    cloud: Sandbox, ports: Ports, grace: Operator, tmp_path: Path
) -> None:
    job = stored_job(ports, "digits")
    first = job.task_definition
    again = grace.does("jobs", "restart", "digits")
    until(lambda: state_of(grace)["run"] == 2, "second run")
    grace.does("jobs", "stop", "digits", "--why", "enough")

    waited = grace.types("jobs", "wait", "digits", "--timeout", "60s")

    assert "submission 2" in again
    assert waited.returncode == 4
    runs = ports.jobs.runs("digits")
    assert [(run.number, run.has_ended) for run in runs] == [(1, True), (2, True)]
    job = stored_job(ports, "digits")
    assert (job.task_definition, job.state) == (first, JobState.CANCELLED)
    assert is_clean(cloud, ports)


def test_a_directory_that_is_another_one_on_every_node_is_noticed_before_anything_runs(
    cloud: Sandbox, ports: Ports, grace: Operator, tmp_path: Path
) -> None:
    file = tmp_path / "apart.yaml"
    # The folder in which each node's command runs: one path, and a folder of each node's own.
    text = FILE.format(steps=1, directory="/proc/self/cwd", port=free_port()).replace("name: digits", "name: apart")
    file.write_text(text)

    submitted = grace.types("jobs", "submit", str(file), "--wait")
    shown = json.loads(grace.does("jobs", "show", "apart", "--json"))

    assert submitted.returncode == 3, (submitted.stdout, submitted.stderr)
    assert (shown["state"], shown["run"]) == ("FAILED", 0)
    assert shown["summary"].startswith("/proc/self/cwd is not one directory on all nodes: ")
    nodes = ports.nodes.in_pool("wired")
    assert all(node.node_id in shown["summary"] for node in nodes)
    assert [node.open_incident for node in nodes] == [None, None]
    assert not [node.node_id for node in nodes if node.job_id or node.claimed_by]


def test_a_program_that_fails_is_restarted_within_its_own_limit_and_no_node_is_touched(
    cloud: Sandbox, ports: Ports, grace: Operator, tmp_path: Path
) -> None:
    directory = cloud.directory / "shared" / "flaky"
    directory.mkdir(parents=True, exist_ok=True)
    file = tmp_path / "flaky.yaml"
    text = FILE.format(steps=60, directory=directory, port=free_port()).replace("name: digits", "name: flaky")
    file.write_text(text.replace("echo rank $RANK of $WORLD_SIZE;", "[ $NODEHEAL_RUN$RANK = 11 ] && exit 1;"))

    submitted = grace.types("jobs", "submit", str(file), "--wait")
    # It ends when the second run is known to work, which such a short one may be done before.
    until(lambda: all(node.open_incident is None for node in ports.nodes.in_pool("wired")), "end of the incident")
    shown = json.loads(grace.does("jobs", "show", "flaky", "--json"))

    assert submitted.returncode == 0, (submitted.stdout, submitted.stderr)
    assert (shown["state"], shown["run"], shown["restarts"]["total"]) == ("COMPLETED", 2, 1)
    assert [rank["exit_code"] for rank in shown["runs"][0]["ranks"]][1] == 1
    assert [rank["exit_code"] for rank in shown["runs"][1]["ranks"]] == [0, 0]
    [incident] = shown["incidents"]
    assert (incident["ending"], incident["node"]) == ("RECOVERED", shown["runs"][0]["ranks"][1]["node"])
    nodes = ports.nodes.in_pool("wired")
    assert [(node.state, node.recoveries, node.open_incident) for node in nodes] == [(NodeState.HEALTHY, (), None)] * 2


def is_clean(cloud: Sandbox, ports: Ports) -> bool:
    """Whether nothing is left of the job: no task, no mark on a node, no claim, no lease."""
    ecs = cloud.client("ecs")
    nodes = ports.nodes.in_pool("wired")
    job = stored_job(ports, "digits")
    assert job.checkpoints is not None
    holder = ports.job_notes.hold(job.checkpoints.directory, "another")
    ports.job_notes.release_directory(job.checkpoints.directory, "another")
    marks = [node.node_id for node in nodes if node.job_id or node.claimed_by]
    return not ecs.list_tasks(cluster=cloud.cluster)["taskArns"] and not marks and holder == "another"


def test_past_the_commands_everything_is_denied(cloud: Sandbox, ports: Ports, grace: Operator) -> None:
    ecs, steps = grace.client("ecs"), grace.client("stepfunctions")
    node = ports.nodes.in_pool("wired")[0]
    placement = ports.scheduler_of(node).gate.placement_of(node)
    idle = {"name": "c", "image": "numpy-trainer", "memory": 64, "command": ["true"]}
    registered = cloud.client("ecs").register_task_definition(
        family="nodeheal-other", requiresCompatibilities=["EXTERNAL"], networkMode="host", containerDefinitions=[idle]
    )
    definition = registered["taskDefinition"]["taskDefinitionArn"]
    admin = "arn:aws:iam::000000000000:role/admin"
    agents = {"Source": names.AGENT_SOURCE, "DetailType": names.NODE_HEALTH_REPORTED, "Detail": "{}"}

    assert is_denied(
        lambda: ecs.start_task(cluster=cloud.cluster, taskDefinition=definition, containerInstances=[placement.name])
    )
    assert is_denied(
        lambda: ecs.register_task_definition(family="mine", containerDefinitions=[idle], taskRoleArn=admin)
    )
    assert is_denied(lambda: steps.start_execution(stateMachineArn=cloud.outputs["RecoverNodeArn"]))
    assert is_denied(lambda: grace.client("events").put_events(Entries=[{**agents, "EventBusName": names.BUS}]))
    asked = {"Source": names.OPERATOR_SOURCE, "DetailType": names.NODE_HEALTH_REPORTED, "Detail": "{}"}
    assert is_denied(lambda: grace.client("events").put_events(Entries=[{**asked, "EventBusName": names.BUS}]))
    table, state = cloud.outputs["TableName"], grace.client("dynamodb")
    question = {"pk": {"S": names.operation_pk("incident#inc-1")}, "sk": {"S": names.operation_sk("inc-1-2")}}
    answer = {"pk": {"S": names.incident_pk("inc-1")}, "sk": {"S": f"{names.TIMELINE_PREFIX}answer-0002"}}
    lease = {"pk": {"S": names.lease_pk("/data")}, "sk": {"S": names.LEASE_SK}}
    assert is_denied(lambda: state.get_item(TableName=table, Key=question))
    assert is_denied(lambda: state.put_item(TableName=table, Item=answer))
    assert is_denied(lambda: state.put_item(TableName=table, Item=lease))
    assert is_denied(
        lambda: state.query(
            TableName=table,
            IndexName=names.INDEX,
            KeyConditionExpression="gsi_pk = :line",
            ExpressionAttributeValues={":line": {"S": names.line_pk(names.pool_line("BUDGET", "wired"))}},
        )
    )
    assert is_denied(lambda: grace.client("logs").get_log_events(logGroupName="/aws/lambda/x", logStreamName="y"))
    assert is_denied(
        lambda: grace.client("ssm").send_command(
            DocumentName=names.document("reboot-node"), InstanceIds=["mi-0a1b2c3d4e5f60718"]
        )
    )
