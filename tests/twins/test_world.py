"""The adapters of the world: what they ask of ECS, SSM, Step Functions and SNS, and what the answers mean."""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.stub import ANY

from nodeheal.adapters.aws import calls
from nodeheal.adapters.aws.evidence import S3UploadSigner
from nodeheal.adapters.aws.items import Table
from nodeheal.adapters.aws.notifier import AwsNotifier, Destinations
from nodeheal.adapters.aws.ssm import SsmNodeCommands
from nodeheal.adapters.aws.workflows import StepFunctionsWorkflows
from nodeheal.adapters.ecs.scheduler import EcsScheduler
from nodeheal.adapters.memory.evidence import sign_upload
from nodeheal.adapters.memory.world import MemoryNodeCommands
from nodeheal.contract import names
from nodeheal.contract.notification import Notification
from nodeheal.contract.results import StepResult
from nodeheal.contract.vocabulary import Escalation, Family, Outcome, Phase, Provider, Step
from nodeheal.domain.errors import NotAccepted, NotEnrolled, NotFound, PlacementRefused
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.ports.commands import Command, CommandStatus, SignUpload
from nodeheal.ports.compute import Started
from nodeheal.ports.messaging import Delivery, Message, Way
from nodeheal.ports.scheduler import Drained, NodePlacement
from tests.support.aws_world import ARN, LLAMA, TASK, Aws, aws, on_ecs, on_ssm
from tests.support.builders import NOW, FrozenClock, node

__all__ = ["aws"]  # a fixture

A = node().node_id
RANK = GangTask(A, 1, "boot-1", ARN)
RUN = Run("llama", 2, NOW, "inc-1/5", (RANK,))
RESULT = StepResult(step=Step.REBOOT, node_id=A, outcome=Outcome.DONE, reason="back", finished_at=NOW)
TOLD = Notification(key="inc-1/RECOVERED", subject="recovered", body="all is well", severity="INFO", pool="demo")


on_workflows = pytest.mark.parametrize("aws", ["stepfunctions"], indirect=True)


def registered(aws: Aws, status: str, arns: list[str], *, connected: bool = True) -> Aws:
    expression = f"ec2InstanceId == {A}" + (" and agentConnected == true" if connected else "")
    asked = {"cluster": "training", "filter": expression, **({"status": status} if status else {})}
    return aws.answers("list_container_instances", {"containerInstanceArns": arns}, asked)


def updated(
    instances: Mapping[str, str], missing: Sequence[str] = (), *, running: int = 0, pending: int = 0
) -> dict[str, Any]:
    """What UpdateContainerInstancesState answers: ARNs by machine, and those that it does not know."""
    described = [
        {
            "containerInstanceArn": arn,
            "ec2InstanceId": machine,
            "runningTasksCount": running,
            "pendingTasksCount": pending,
        }
        for arn, machine in instances.items()
    ]
    failures = [{"arn": arn, "reason": "MISSING"} for arn in missing]
    return {"containerInstances": described, "failures": failures}


def held(aws: Aws, **by: str) -> Aws:
    """Which container instances a person keeps, by their ARN."""
    asked = {"cluster": "training", "targetType": "container-instance", "attributeName": "nodeheal.held-by"}
    rows = [{"name": "nodeheal.held-by", "value": who, "targetId": arn} for arn, who in by.items()]
    return aws.answers("list_attributes", {"attributes": rows}, asked)


# ECS -----------------------------------------------------------------------------------------------------------------


@on_ecs
def test_a_node_that_is_not_registered_is_not_found(aws: Aws) -> None:
    for connected in (True, False):
        registered(aws, "ACTIVE", [], connected=connected), registered(aws, "", [], connected=connected)

    with pytest.raises(NotFound, match=f"{A} is not registered in ECS cluster training"):
        EcsScheduler(aws, aws).placement_of(node())


@on_ecs
def test_a_node_in_service_is_found_by_one_call_and_one_that_drains_by_three(aws: Aws) -> None:
    registered(aws, "ACTIVE", [ARN])
    registered(aws, "ACTIVE", []), held(registered(aws, "", [ARN]))

    placements = [EcsScheduler(aws, aws).placement_of(node()) for _ in range(2)]

    assert placements == [NodePlacement(ARN, is_schedulable=True), NodePlacement(ARN, is_schedulable=False)]


@on_ecs
def test_a_node_whose_ecs_agent_is_away_is_found_all_the_same(aws: Aws) -> None:
    registered(aws, "ACTIVE", []), registered(aws, "", []), registered(aws, "ACTIVE", [ARN], connected=False)

    assert EcsScheduler(aws, aws).placement_of(node()) == NodePlacement(ARN, is_schedulable=True)


@on_ecs
def test_the_registration_that_a_node_has_left_behind_is_not_taken_for_it(aws: Aws) -> None:
    # The old container instance is ACTIVE and not connected; the one in use drains.
    registered(aws, "ACTIVE", []), held(registered(aws, "", [ARN]))

    assert EcsScheduler(aws, aws).placement_of(node()) == NodePlacement(ARN, is_schedulable=False)


@on_ecs
def test_a_node_that_a_person_keeps_drained_says_whose_it_is(aws: Aws) -> None:
    for _ in range(2):
        registered(aws, "ACTIVE", []), registered(aws, "", [ARN])
        held(aws, **{ARN: "ada, a new riser" if _ else "ada", f"{ARN}-other": "bob"})

    found = [EcsScheduler(aws, aws).placement_of(node()).held_by for _ in range(2)]

    assert list(map(str, found)) == [
        "held by ada: attribute nodeheal.held-by",
        "held by ada, a new riser: attribute nodeheal.held-by",
    ]


@on_ecs
def test_a_node_without_the_operators_tag_is_not_enrolled(aws: Aws) -> None:
    aws.refuses("update_container_instances_state", "AccessDeniedException")

    with pytest.raises(NotEnrolled, match=f"nodeheal:managed = true.*nodeheal nodes enroll {A}"):
        EcsScheduler(aws, aws).drain_all([node()], [ARN])


@on_ecs
def test_a_node_is_switched_off_for_an_incident_that_is_named_there_and_on_again(aws: Aws) -> None:
    asked = {"cluster": "training", "containerInstances": [ARN]}
    aws.answers("update_container_instances_state", updated({ARN: A}), {**asked, "status": "DRAINING"})
    tag = {"key": "nodeheal:isolated-by", "value": "inc-1"}
    aws.answers("tag_resource", {}, {"resourceArn": ARN, "tags": [tag]})
    aws.answers("update_container_instances_state", updated({ARN: A}), {**asked, "status": "ACTIVE"})
    aws.answers("untag_resource", {}, {"resourceArn": ARN, "tagKeys": ["nodeheal:isolated-by"]})

    scheduler = EcsScheduler(aws, aws)

    drained = scheduler.drain_all([node()], [ARN])
    scheduler.show_isolation(node(), NodePlacement(ARN, is_schedulable=False), "inc-1")
    scheduler.undrain(node(), NodePlacement(ARN, is_schedulable=False))

    assert drained == {A: Drained(ARN, has_tasks=False)}


@on_ecs
def test_a_node_that_ecs_knows_no_more_is_not_found_and_not_tagged(aws: Aws) -> None:
    aws.answers("update_container_instances_state", {"failures": [{"arn": ARN, "reason": "MISSING"}]})

    with pytest.raises(NotFound, match="MISSING"):
        EcsScheduler(aws, aws).drain_all([node()], [ARN])


@on_ecs
def test_a_rank_is_started_where_it_is_asked_for_marked_as_ours_and_found_by_that(aws: Aws) -> None:
    mark = {"startedBy": names.started_by("llama", 2), "cluster": "training"}
    started = {"taskDefinition": "trainer:1", "containerInstances": [ARN], "overrides": ANY}
    tags = [{"key": names.MANAGED_TAG, "value": names.MANAGED_TAG_VALUE}]
    answer = {"tasks": [{"taskArn": TASK}], "failures": []}
    aws.answers("start_task", answer, {**mark, **started, "tags": tags})
    # What was started is found by its mark alone: ECS refuses a second filter beside it.
    aws.answers("list_tasks", {"taskArns": [TASK]}, mark)
    there = {"taskArn": TASK, "containerInstanceArn": ARN}
    aws.answers("describe_tasks", {"tasks": [there]}, {"cluster": "training", "tasks": [TASK]})

    scheduler = EcsScheduler(aws, aws)

    assert scheduler.start_rank(LLAMA, RUN, RANK, {"RANK": "1"}) == TASK
    assert scheduler.find_ranks(LLAMA, RUN) == {ARN: TASK}


@on_ecs
def test_a_job_with_a_command_of_its_own_runs_it_instead_of_the_definitions(aws: Aws) -> None:
    variables = [{"name": "RANK", "value": "1"}]
    override = {"name": LLAMA.container, "environment": variables, "command": ["python", "train.py"]}
    answer = {"tasks": [{"taskArn": TASK}], "failures": []}
    started = {"cluster": ANY, "taskDefinition": ANY, "containerInstances": ANY, "startedBy": ANY, "tags": ANY}
    aws.answers("start_task", answer, {**started, "overrides": {"containerOverrides": [override]}})

    job = replace(LLAMA, command=("python", "train.py"))

    assert EcsScheduler(aws, aws).start_rank(job, RUN, RANK, {"RANK": "1"}) == TASK


@on_ecs
def test_a_rank_that_ecs_will_not_place_is_refused_in_its_own_words(aws: Aws) -> None:
    aws.answers("start_task", {"tasks": [], "failures": [{"arn": ARN, "reason": "RESOURCE:GPU"}]})

    with pytest.raises(PlacementRefused, match=f"rank 1 on {A}: RESOURCE:GPU"):
        EcsScheduler(aws, aws).start_rank(LLAMA, RUN, RANK, {})


@on_ecs
@pytest.mark.parametrize(
    ("described", "is_ours"),
    [
        ([{"taskArn": TASK, "startedBy": names.started_by(LLAMA.job_id, RUN.number)}], True),
        ([{"taskArn": TASK, "startedBy": names.started_by(LLAMA.job_id, RUN.number + 1)}], False),
        ([{"taskArn": TASK, "startedBy": names.started_by("other", RUN.number)}], False),
        ([{"taskArn": TASK, "startedBy": "ecs-svc/1"}], False),
        ([{"taskArn": TASK}], False),
        ([], True),  # not to be seen yet, or any more: to ask it to end harms nobody
    ],
)
def test_a_task_that_ecs_knows_as_another_runs_is_not_the_ranks(aws: Aws, described: list[Any], is_ours: bool) -> None:
    rank = replace(RANK, task_id=TASK)
    aws.answers("describe_tasks", {"tasks": described}, {"cluster": LLAMA.cluster.name, "tasks": [TASK]})

    assert EcsScheduler(aws, aws).confirm_ranks(LLAMA, RUN, [rank]) == ([rank] if is_ours else [])


@on_ecs
def test_a_task_that_ecs_has_forgotten_is_stopped_and_any_other_error_is_a_surprise(aws: Aws) -> None:
    aws.refuses("stop_task", "InvalidParameterException").refuses("stop_task", "ClusterNotFoundException")
    aws.refuses("stop_task", "ThrottlingException")

    EcsScheduler(aws, aws).stop_rank(LLAMA.cluster, TASK, "recovery")
    with pytest.raises(ClientError, match="ClusterNotFound"):
        EcsScheduler(aws, aws).stop_rank(LLAMA.cluster, TASK, "recovery")
    with pytest.raises(NotAccepted, match="StopTask: ThrottlingException"):
        EcsScheduler(aws, aws).stop_rank(LLAMA.cluster, TASK, "recovery")


@on_ecs
@pytest.mark.parametrize("seen", [[], [{"taskArn": TASK, "desiredStatus": "STOPPED"}]], ids=["forgotten", "stopping"])
def test_a_task_whose_tag_went_with_its_end_is_stopped_although_iam_denies_it(aws: Aws, seen: list[Any]) -> None:
    aws.refuses("stop_task", "AccessDeniedException")
    aws.answers("describe_tasks", {"tasks": seen}, {"cluster": "training", "tasks": [TASK]})

    EcsScheduler(aws, aws).stop_rank(LLAMA.cluster, TASK, "recovery")


@on_ecs
def test_a_task_that_runs_and_may_not_be_stopped_is_a_surprise(aws: Aws) -> None:
    aws.refuses("stop_task", "AccessDeniedException")
    aws.answers("describe_tasks", {"tasks": [{"taskArn": TASK, "desiredStatus": "RUNNING"}]})

    with pytest.raises(ClientError, match="AccessDenied"):
        EcsScheduler(aws, aws).stop_rank(LLAMA.cluster, TASK, "recovery")


# SSM -----------------------------------------------------------------------------------------------------------------


@on_ssm
@pytest.mark.parametrize(("seconds", "delivery"), [(600, 600), (5, 30)])
def test_a_reboot_names_its_boot_and_when_it_expires(aws: Aws, seconds: int, delivery: int) -> None:
    expires = NOW + timedelta(seconds=seconds)
    limits = {"BootId": ["boot-1"], "ExpiresAt": [str(int(expires.timestamp()))]}
    asked = {"DocumentName": names.document("reboot-node"), "InstanceIds": [A], "Parameters": limits}
    aws.answers("send_command", {"Command": {"CommandId": "0" * 36}}, {**asked, "TimeoutSeconds": delivery})

    assert SsmNodeCommands(aws, aws, FrozenClock()).send(node(), Command("reboot-node"), expires) == "0" * 36


@on_ssm
@pytest.mark.parametrize(
    ("status", "code", "state"),
    [("Success", 0, "SUCCEEDED"), ("InProgress", -1, "PENDING"), ("TimedOut", 137, "FAILED"), ("Failed", 3, "FAILED")],
)
def test_what_became_of_a_command(aws: Aws, status: str, code: int, state: str) -> None:
    aws.answers("get_command_invocation", {"Status": status, "StandardOutputContent": "{}", "ResponseCode": code})

    assert SsmNodeCommands(aws, aws, FrozenClock()).look(node(), "0" * 36) == CommandStatus(state, "{}", code)


@on_ssm
def test_a_command_that_ssm_does_not_know_is_unknown_and_any_other_error_is_a_surprise(aws: Aws) -> None:
    aws.refuses("get_command_invocation", "InvocationDoesNotExist")
    aws.refuses("get_command_invocation", "InternalServerError")

    commands = SsmNodeCommands(aws, aws, FrozenClock())

    assert commands.look(node(), "0" * 36) == CommandStatus("UNKNOWN")
    with pytest.raises(ClientError, match="InternalServerError"):
        commands.look(node(), "0" * 36)


@on_ssm
def test_a_command_has_its_own_parameters_beside_its_boot_and_its_end(aws: Aws) -> None:
    expires = NOW + timedelta(seconds=90)
    parameters = {"BootId": ["boot-1"], "ExpiresAt": [str(int(expires.timestamp()))], "Level": ["3"]}
    asked = {"DocumentName": "nodeheal-run-diagnostics", "InstanceIds": [A], "TimeoutSeconds": 90}
    aws.answers("send_command", {"Command": {"CommandId": "0" * 36}}, {**asked, "Parameters": parameters})

    sent = SsmNodeCommands(aws, aws, FrozenClock()).send(node(), Command("run-diagnostics", {"Level": "3"}), expires)

    assert sent == "0" * 36


@on_ssm
def test_a_gang_is_asked_for_a_checkpoint_fifty_nodes_at_a_time(aws: Aws) -> None:
    expires = NOW + timedelta(seconds=60)
    gang = [node(f"mi-{number:017x}", boot_id=f"boot-{number}") for number in range(60)]
    for some in (gang[:50], gang[50:]):
        told = {"Job": ["llama"], "BootIds": [",".join(one.boot_id for one in some)]}
        asked = {"DocumentName": names.document("checkpoint-now"), "InstanceIds": [one.node_id for one in some]}
        parameters = {"ExpiresAt": [str(int(expires.timestamp()))], **told}
        answer = {"Command": {"CommandId": f"{len(some):036d}"}}
        aws.answers("send_command", answer, {**asked, "TimeoutSeconds": 60, "Parameters": parameters})

    command = Command("checkpoint-now", {"Job": "llama"})
    sent = SsmNodeCommands(aws, aws, FrozenClock()).send_to_all(gang, command, expires)

    assert sent == [f"{50:036d}", f"{10:036d}"]


def _nobody() -> Any:
    raise AssertionError("SSM was asked")


@pytest.fixture(params=["memory", "ssm"])
def deaf(request: pytest.FixtureRequest) -> Iterator[MemoryNodeCommands | SsmNodeCommands]:
    """Commands of a world in which node A takes none."""
    if request.param == "memory":
        yield MemoryNodeCommands(unknown_nodes={A})
        return
    made = Aws("ssm")
    with made.refuses("send_command", "InvalidInstanceId").stub:
        yield SsmNodeCommands(made, made, FrozenClock())
        made.stub.assert_no_pending_responses()


def test_a_node_that_takes_no_commands_is_not_found(deaf: MemoryNodeCommands | SsmNodeCommands) -> None:
    with pytest.raises(NotFound, match=A):
        deaf.send(node(), Command("reboot-node"), NOW)


def test_one_node_that_takes_no_commands_refuses_what_all_are_sent(deaf: MemoryNodeCommands | SsmNodeCommands) -> None:
    with pytest.raises(NotFound, match=A):
        deaf.send_to_all([node()], Command("checkpoint-now", {"Job": "llama"}), NOW)


@pytest.mark.parametrize("commands", [MemoryNodeCommands(), SsmNodeCommands(_nobody, _nobody, FrozenClock())])
def test_no_command_is_sent_to_a_node_of_hyperpod(commands: MemoryNodeCommands | SsmNodeCommands) -> None:
    of_hyperpod = node(provider=Provider.hyperpod)

    with pytest.raises(NotFound, match=A):
        commands.send(of_hyperpod, Command("run-diagnostics"), NOW)
    with pytest.raises(NotFound, match=A):
        commands.send_to_all([node("mi-1"), of_hyperpod], Command("checkpoint-now", {"Job": "llama"}), NOW)


# S3 ------------------------------------------------------------------------------------------------------------------


def signer(region: str, clock: FrozenClock) -> SignUpload:
    config = Config(signature_version="s3v4", s3={"addressing_style": "virtual"})
    made: Any = boto3.Session("test", "test", region_name=region).client("s3", config=config)
    return S3UploadSigner(lambda: made, "evidence", clock)


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_leave_to_upload_says_where_the_object_goes_and_how_big_it_may_be(kind: str) -> None:
    sign = sign_upload if kind == "memory" else signer("eu-central-1", FrozenClock())

    leave = sign("incidents/inc-1/a.tar.gz", 1_000, NOW + timedelta(seconds=60))

    assert (leave.key, leave.link) == ("incidents/inc-1/a.tar.gz", "s3://evidence/incidents/inc-1/a.tar.gz")
    assert leave.max_bytes == 1_000
    assert leave.console_url.startswith("https://")


def test_what_is_signed_is_one_key_one_size_and_one_kind() -> None:
    leave = signer("eu-central-1", FrozenClock())("incidents/inc-1/a.tar.gz", 1_000, NOW + timedelta(seconds=60))

    post = json.loads(base64.urlsafe_b64decode(leave.ticket + "=="))
    policy = json.loads(base64.b64decode(post["fields"]["policy"]))["conditions"]
    assert post["url"] == "https://evidence.s3.eu-central-1.amazonaws.com/"
    assert {"bucket": "evidence"} in policy
    assert {"key": "incidents/inc-1/a.tar.gz"} in policy
    assert ["content-length-range", 1, 1_000] in policy
    assert post["fields"]["Content-Type"] == names.EVIDENCE_TYPE
    assert re.fullmatch(r"[0-9A-Za-z_-]+", leave.ticket)  # as the SSM document demands


def test_an_upload_names_the_regions_own_endpoint_in_us_east_1_too(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    # The global name is on no node's allow-list, and on no interface endpoint of the Region.
    post = calls._client("s3", attempts=1).generate_presigned_post("evidence", "key")

    assert post["url"] == "https://evidence.s3.us-east-1.amazonaws.com/"


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-central-1", "eu-central-1.console.aws.amazon.com"),
        ("cn-north-1", "cn-north-1.console.amazonaws.cn"),
        ("us-gov-west-1", "us-gov-west-1.console.amazonaws-us-gov.com"),
    ],
)
def test_the_console_is_the_partitions_own(region: str, host: str) -> None:
    leave = signer(region, FrozenClock())("incidents/a", 1_000, NOW + timedelta(seconds=60))

    assert leave.console_url == f"https://{host}/s3/object/evidence?region={region}&prefix=incidents%2Fa"


# Step Functions ------------------------------------------------------------------------------------------------------


@on_workflows
def test_a_workflow_is_named_after_its_incident_and_starts_once(aws: Aws) -> None:
    answer = {"executionArn": "arn:aws:states:us-east-1:111122223333:execution:m:inc-1", "startDate": NOW}
    aws.answers("start_execution", answer, {"stateMachineArn": "arn:m", "name": "inc-1", "input": ANY})
    aws.refuses("start_execution", "ExecutionAlreadyExists").refuses("start_execution", "StateMachineDoesNotExist")
    workflows = StepFunctionsWorkflows(aws, "arn:m")

    for _ in range(2):
        workflows.start("inc-1", "mi-1")
    with pytest.raises(ClientError, match="StateMachineDoesNotExist"):
        workflows.start("inc-1", "mi-1")


@on_workflows
def test_a_token_that_nobody_waits_with_is_no_error_but_a_lost_call_is(aws: Aws) -> None:
    aws.answers("send_task_success", {}, {"taskToken": "token", "output": RESULT.model_dump_json()})
    for code in ("TaskTimedOut", "TaskDoesNotExist", "InvalidToken", "InternalFailure"):
        aws.refuses("send_task_success", code)
    workflows = StepFunctionsWorkflows(aws, "arn:m")

    assert [workflows.resume("token", RESULT) for _ in range(4)] == [True, False, False, False]
    with pytest.raises(ClientError, match="InternalFailure"):
        workflows.resume("token", RESULT)


@on_workflows
def test_executions_are_named_by_what_they_were_started_for_since_a_moment(aws: Aws) -> None:
    """The newest come first, so the first older one ends the list. An input of nobody's is left out."""
    arn = "arn:aws:states:us-east-1:111122223333:execution"
    machines = {"m": [("m", NOW), ("m", NOW - timedelta(hours=2))], "j": [("j", NOW), ("j2", NOW)]}
    inputs = {
        "m": '{"incident_id": "inc-1", "node_id": "mi-1"}',
        "j": '{"job_id": "llama", "submission": 2}',
        "j2": "[]",
    }
    for machine, executions in machines.items():
        listed = [
            {
                "executionArn": f"{arn}:{name}",
                "stateMachineArn": f"arn:{machine}",
                "name": name,
                "status": "RUNNING",
                "startDate": at,
            }
            for name, at in executions
        ]
        aws.answers("list_executions", {"executions": listed}, {"stateMachineArn": f"arn:{machine}"})
        for name, _ in [each for each in executions if each[1] == NOW]:
            described = {**listed[0], "executionArn": f"{arn}:{name}", "input": inputs[name]}
            aws.answers("describe_execution", described, {"executionArn": f"{arn}:{name}"})

    started = StepFunctionsWorkflows(aws, "arn:m", "arn:j").started_since(NOW - timedelta(hours=1))

    assert started == [Started(node_id="mi-1"), Started(job_id="llama", submission=2)]


@on_workflows
def test_a_job_runs_whose_execution_has_begun_and_not_ended(aws: Aws) -> None:
    machine = "arn:aws:states:us-east-1:111122223333:stateMachine:nodeheal-run-job"
    arn = "arn:aws:states:us-east-1:111122223333:execution:nodeheal-run-job:llama-2"
    for status in ("RUNNING", "ABORTED"):
        described = {"executionArn": arn, "stateMachineArn": machine, "status": status, "startDate": NOW}
        aws.answers("describe_execution", described, {"executionArn": arn})
    aws.refuses("describe_execution", "ExecutionDoesNotExist")
    workflows = StepFunctionsWorkflows(aws, "arn:m", machine)

    assert [workflows.runs_job("llama", 2) for _ in range(3)] == [True, False, False]


# SNS, EventBridge, SQS -----------------------------------------------------------------------------------------------


def notifier(**clients: Aws) -> AwsNotifier:
    nobody = Aws("sqs")
    events, sns, sqs = (clients.get(service, nobody) for service in ("events", "sns", "sqs"))
    to = Destinations("bus", "arn:t", "https://q", "arn:owners")
    table = Table(clients.get("table", nobody)(), "state")
    return AwsNotifier(events, sns, sqs, table, to, FrozenClock())


@pytest.mark.parametrize("aws", ["sns"], indirect=True)
def test_an_email_has_its_subject_and_can_be_filtered(aws: Aws) -> None:
    told = {"severity": "PAGE", "pool": "demo", "phase": "ENDED", "node": A, "family": "xid", "escalation": "LEMON"}
    attributes = {name: {"DataType": "String", "StringValue": value} for name, value in told.items()}
    asked = {"TopicArn": "arn:t", "Subject": "recovered", "Message": "all is well", "MessageAttributes": attributes}
    aws.answers("publish", {"MessageId": "m"}, asked)

    more = {"severity": "PAGE", "node_id": A, "family": Family.xid, "escalation": Escalation.LEMON}
    table = Aws("dynamodb").answers("put_item", {}).answers("update_item", {})
    with table.stub:
        assert notifier(sns=aws, table=table).send(Message(TOLD.model_copy(update=more)), 1) is Delivery.SENT


@pytest.mark.parametrize("aws", ["sns"], indirect=True)
def test_what_is_for_the_owner_of_a_job_goes_where_no_operator_reads(aws: Aws) -> None:
    told = {"severity": "INFO", "pool": "demo", "phase": "STOPPED", "job": "llama", "owner": "ada@example.com"}
    attributes = {name: {"DataType": "String", "StringValue": value} for name, value in told.items()}
    asked = {"TopicArn": "arn:owners", "Subject": "recovered", "Message": "all is well"}
    aws.answers("publish", {"MessageId": "m"}, {**asked, "MessageAttributes": attributes})

    mine = TOLD.model_copy(update={"owner": "ada@example.com", "job_id": "llama", "phase": Phase.STOPPED})
    table = Aws("dynamodb").answers("put_item", {}).answers("update_item", {})
    with table.stub:
        assert notifier(sns=aws, table=table).send(Message(mine), 1) is Delivery.SENT


@pytest.mark.parametrize("aws", ["sns"], indirect=True)
def test_a_chat_message_goes_to_the_topic_of_its_channel(aws: Aws) -> None:
    attributes = {name: {"DataType": "String", "StringValue": value} for name, value in TOLD.attributes.items()}
    asked = {"TopicArn": "arn:nodeheal-channel-ops", "Subject": "recovered", "Message": '{"version": "1.0"}'}
    aws.answers("publish", {"MessageId": "m"}, {**asked, "MessageAttributes": attributes})

    table = Aws("dynamodb").answers("put_item", {}).answers("update_item", {})
    with table.stub:
        message = Message(TOLD, "ops", Way.TOPIC, {"version": "1.0"})
        assert notifier(sns=aws, table=table).send(message, 1) is Delivery.SENT


@pytest.mark.parametrize("aws", ["events"], indirect=True)
def test_what_a_webhook_gets_is_an_event_for_the_rule_of_its_channel(aws: Aws) -> None:
    detail = {"channel": "oncall", "key": f"oncall/{TOLD.key}", "message": {"event_action": "resolve"}}
    entry = {"EventBusName": "bus", "Source": names.CONTROL_SOURCE, "DetailType": names.CHANNEL_MESSAGE}
    aws.answers("put_events", {"FailedEntryCount": 0}, {"Entries": [{**entry, "Detail": json.dumps(detail)}]})

    table = Aws("dynamodb").answers("put_item", {})
    with table.stub:
        message = Message(TOLD, "oncall", Way.WEBHOOK, {"event_action": "resolve"})
        assert notifier(events=aws, table=table).send(message, 1) is Delivery.SENT


def test_what_is_not_known_of_an_email_is_no_attribute_of_it() -> None:
    assert TOLD.attributes == {"severity": "INFO", "pool": "demo", "phase": "ENDED"}  # SNS refuses an empty value


@pytest.mark.parametrize("aws", ["events"], indirect=True)
def test_an_announcement_that_the_bus_did_not_take_is_made_again(aws: Aws) -> None:
    aws.answers("put_events", {"FailedEntryCount": 0, "Entries": [{"EventId": "e"}]})
    aws.answers("put_events", {"FailedEntryCount": 1, "Entries": [{"ErrorMessage": "internal failure"}]})

    notifier(events=aws).announce(names.INCIDENT_CLOSED, TOLD)
    with pytest.raises(NotAccepted, match="internal failure"):
        notifier(events=aws).announce(names.INCIDENT_CLOSED, TOLD)


@pytest.mark.parametrize("aws", ["sqs"], indirect=True)
def test_what_is_kept_is_never_empty_and_never_too_long(aws: Aws) -> None:
    for body, why in (("(empty)", "unknown"), ("x" * 200_000, "y" * 1_000)):
        attributes = {"why": {"DataType": "String", "StringValue": why}}
        aws.answers("send_message", {}, {"QueueUrl": "https://q", "MessageBody": body, "MessageAttributes": attributes})

    for body, why in (("", ""), ("x" * 300_000, "y" * 2_000)):
        notifier(sqs=aws).quarantine(body, why)
