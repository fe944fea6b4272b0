"""The handlers over ports in memory: what comes in as JSON, what is done about it, and what changes nothing."""

import json
import re
from base64 import b64encode
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

import lambdas.answer_approval
import lambdas.find_checkpoint
import lambdas.ingest
import lambdas.notify
import lambdas.operation
import lambdas.return_to_service
import lambdas.signatures
import lambdas.sweep
import lambdas.take_signal
import lambdas.wakeup
from nodeheal.adapters.ecs.task import EcsTaskDetail
from nodeheal.contract import names
from nodeheal.contract.acts import Reconcile
from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.results import Diagnosed, EvidenceSaved
from nodeheal.contract.vocabulary import Action, Family, JobStep, NodeState, Outcome, Step, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.operation import Operation
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.records_epoch import Epoch
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.operations import engine
from nodeheal.ports.commands import CommandStatus
from nodeheal.services.recovery import new_machine
from tests.support.acts import does, requested
from tests.support.approvals import LINKS, Asked
from tests.support.builders import (
    ACT,
    DIAGNOSTICS,
    EVIDENCE,
    NOW,
    as_rank,
    commands_in,
    facts_of,
    named,
    stored_job,
    waiting,
    xid,
)
from tests.support.crashes import lost
from tests.support.foreign import MACHINE, machine, recorded
from tests.support.incident_steps import A, C, Incident
from tests.support.lambda_world import World, batch, fact, on_bus, wake, world
from tests.support.signing import signed_by
from tests.support.step_functions import freeze_evidence, isolate_node, reboot_node, run_diagnostics

__all__ = ["world"]  # fixtures


def around_the_bus(detail: object, **more: object) -> str:
    """As SNS wraps what a node has published."""
    topic = f"arn:aws:sns:us-east-1:111122223333:{names.FALLBACK_TOPIC}"
    return json.dumps({"Type": "Notification", "TopicArn": topic, "Message": json.dumps(detail), **more})


def booted(it: Incident, boot_id: str) -> None:
    it.clock.advance(60)
    wake(names.NODE_BOOTED, fact(it, boot_id, booted_at=it.clock().isoformat(), address="10.0.0.1", accelerators=8))


def task(run: int, rank: int, status: str, it: Incident, exit_code: int | None = None, **more: Any) -> None:
    wake(names.ECS_TASK_STATE_CHANGE, {**task_detail(run, rank, status, it, exit_code), **more})


def task_detail(run: int, rank: int, status: str, it: Incident, exit_code: int | None = None) -> dict[str, Any]:
    found: Any = it.ports.jobs.get_run("llama", run)
    return {
        "taskArn": found.tasks[rank].task_id,
        "containerInstanceArn": found.tasks[rank].placement,
        "lastStatus": status,
        **as_rank("llama", run),
        "containers": [{"name": "sidecar"}, {"name": "trainer", "exitCode": exit_code}],
    }


# ingest ---------------------------------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_kept_and_does_not_hold_up_the_rest(world: World) -> None:
    it = world.serves(Incident())
    other = xid(48, node_id=C, instance_id=C)

    answer = lambdas.ingest.handler(batch("{", '{"detail": {"xid": 79}}', on_bus(other)), None)

    assert answer == {"batchItemFailures": []}
    assert len(it.ports.notifier.quarantined) == 2  # type: ignore[attr-defined]
    assert it.ports.incidents.history(incident_id_of(other)).incident.policy_version == ACT.version


def test_what_cannot_be_stored_now_comes_back_later_and_alone(world: World) -> None:
    it = world.serves(Incident())
    it.ports.incidents.open = lost  # type: ignore[method-assign]

    answer = lambdas.ingest.handler(batch(on_bus(xid(48, node_id=C, instance_id=C)), on_bus(xid(48))), None)

    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}


@pytest.mark.parametrize("sign", [{"family": Family.heartbeat}, {"verdict": Verdict.OK}])
def test_a_heartbeat_opens_nothing_whatever_else_it_says(world: World, sign: dict[str, Any]) -> None:
    it = world.serves(Incident())

    lambdas.ingest.handler(batch(on_bus(xid(79, node_id=C, instance_id=C, **sign))), None)

    assert it.node(C).open_incident is None


def test_a_run_that_stands_still_is_looked_at_and_opens_nothing(world: World) -> None:
    it = world.serves(Incident())
    stalled = {"family": Family.host, "code": "training_alert", "subcode": None, "component": "llama/1"}

    answer = lambdas.ingest.handler(batch(on_bus(xid(0, node_id=C, instance_id=C, **stalled))), None)

    assert (answer, it.node(C).open_incident) == ({"batchItemFailures": []}, None)


def test_an_event_whose_node_changed_while_it_was_read_is_taken_on_the_second_try(world: World) -> None:
    it = world.serves(Incident())
    opening, tries = it.ports.incidents.open, [False]
    it.ports.incidents.open = lambda *what: opening(*what) if not tries or tries.pop() else False  # type: ignore

    lambdas.ingest.handler(batch(on_bus(xid(48, node_id=C, instance_id=C))), None)

    assert it.node(C).open_incident is not None


def test_a_workflow_that_is_under_way_is_not_started_again(world: World) -> None:
    it = world.serves(Incident())
    it.request()
    it.ports.workflows.started.clear()  # type: ignore[attr-defined]

    lambdas.ingest.handler(batch(on_bus(xid(48))), None)

    assert it.ports.workflows.started == []  # type: ignore[attr-defined]


class Failing:
    """A node store of a service in this state."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def get(self, node_id: str) -> None:
        raise self._error


def _refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "refused"}}, "GetItem")


@pytest.mark.parametrize(
    "error",
    [
        NotAccepted("GetItem: ThrottlingException"),
        _refused("InternalServerError"),
        _refused("AccessDeniedException"),
        EndpointConnectionError(endpoint_url="https://dynamodb.eu-west-1.amazonaws.com"),
        ReadTimeoutError(endpoint_url="https://dynamodb.eu-west-1.amazonaws.com"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("receives", [1, 3, 999])
def test_a_message_stays_in_its_queue_for_as_long_as_a_service_fails(
    world: World, error: Exception, receives: int
) -> None:
    it = world.serves(Incident())
    it.ports = replace(it.ports, nodes=Failing(error))  # type: ignore[arg-type]
    world.ports = it.ports

    answer = lambdas.ingest.handler(batch(on_bus(xid(48)), receives=receives), None)

    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}
    assert it.ports.notifier.quarantined == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [KeyError("pool"), _refused("ValidationException")], ids=["ours", "always refused"])
def test_a_message_that_crashes_three_times_is_kept_for_a_person_with_its_error(world: World, error: Exception) -> None:
    it = world.serves(Incident())
    it.ports = replace(it.ports, nodes=Failing(error))  # type: ignore[arg-type]
    world.ports = it.ports
    body = on_bus(xid(48))

    answers = [lambdas.ingest.handler(batch(body, receives=receives), None) for receives in (1, 2, 3)]

    again = {"batchItemFailures": [{"itemIdentifier": "m0"}]}
    assert answers == [again, again, {"batchItemFailures": []}]
    [(kept, why)] = it.ports.notifier.quarantined  # type: ignore[attr-defined]
    assert kept == body
    assert why.startswith(type(error).__name__)


def restored(world: World) -> Incident:
    """The table went back by an hour."""
    it = world.serves(Incident())
    it.ports.epoch.renew(Epoch(), NOW - timedelta(hours=1))
    it.ports.epoch.outside = NOW  # type: ignore[attr-defined]
    return it


def test_events_wait_in_their_queue_while_the_records_went_back(world: World) -> None:
    it = restored(world)
    answer = lambdas.ingest.handler(batch(on_bus(xid(48)), receives=999), None)

    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}
    assert it.ports.notifier.quarantined == []  # type: ignore[attr-defined]
    assert list(it.ports.incidents.incidents) == [it.id]  # type: ignore[attr-defined]


def test_no_step_and_no_answer_is_taken_while_the_records_went_back(world: World) -> None:
    it = restored(world)
    request = {**it.request().model_dump(mode="json"), "task_token": "token"}

    with pytest.raises(NotAccepted, match="the records went back"):
        lambdas.return_to_service.handler(request, None)
    with pytest.raises(NotAccepted, match="the records went back"):
        wake(names.ECS_TASK_STATE_CHANGE, {"taskArn": "arn", "lastStatus": "RUNNING"})
    assert it.ports.workflows.resumed == {}  # type: ignore[attr-defined]


def test_the_sweep_only_pages_while_the_records_went_back_and_that_page_is_sent(world: World) -> None:
    it = restored(world)
    lambdas.sweep.handler({}, None)
    [(_, page)] = it.ports.notifier.announced  # type: ignore[attr-defined]

    answer = lambdas.notify.handler(batch(json.dumps({"detail": page.model_dump(mode="json")})), None)

    assert answer == {"batchItemFailures": []}
    assert [message.notification.key for message in it.ports.notifier.sent] == [page.key]  # type: ignore[attr-defined]
    assert it.ports.epoch.read().has_gone_back


def test_work_goes_on_once_a_person_has_set_the_records_right(world: World) -> None:
    it = restored(world)
    lambdas.ingest.handler(batch(on_bus(xid(48))), None)

    does(Reconcile(why="restored", is_to_apply=True), it.ports, ACT)

    assert lambdas.ingest.handler(batch(on_bus(xid(48))), None) == {"batchItemFailures": []}


# wakeup ---------------------------------------------------------------------------------------------------------------


GROUP_EVENT = {"AutoScalingGroupName": "trainers", "StartTime": "2026-03-01T03:00:01.000Z", "StatusMessage": "full"}


@pytest.mark.parametrize(
    ("kind", "detail", "heard"),
    [
        (names.GROUP_LAUNCHED, {**GROUP_EVENT, "EC2InstanceId": "i-1"}, ("i-1", "")),
        (names.GROUP_LAUNCH_FAILED, GROUP_EVENT, ("", "full")),
        (names.MACHINE_STATE_CHANGE, {"instance-id": "i-1", "state": "terminated"}, "i-1"),
        (names.MACHINE_STATE_CHANGE, {"instance-id": "i-1", "state": "stopping"}, None),
        (names.MACHINE_STATE_CHANGE, {"instance-id": "i-1", "state": "stopped"}, "i-1 has stopped"),
    ],
)
def test_what_becomes_of_machines_is_heard(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, detail: dict[str, Any], heard: Any
) -> None:
    world.serves(Incident())
    told: list[Any] = []
    monkeypatch.setattr(
        new_machine, "on_group_launch", lambda launch, _: told.append((launch.machine_id, launch.failed))
    )
    monkeypatch.setattr(engine, "machine_gone", lambda machine_id, _: told.append(machine_id))
    monkeypatch.setattr(engine, "machine_stopped", lambda machine_id, _: told.append(f"{machine_id} has stopped"))

    wake(kind, detail)

    assert told == ([heard] if heard is not None else [])


def test_an_answer_that_nobody_waits_for_changes_nothing(world: World) -> None:
    it = world.serves(Incident())

    booted(it, "boot-2")
    wake(names.DIAGNOSTICS_FINISHED, fact(it, "boot-2", request_id="gone", verdict="OK"))
    wake(names.SSM_INVOCATION_CHANGE, {"command-id": "gone", "instance-id": A, "status": "Failed"})
    wake("Some Other Event", {})

    assert (it.node().boot_id, it.ports.workflows.resumed) == ("boot-2", {})  # type: ignore[attr-defined]


def test_a_late_event_of_an_old_boot_proves_no_reboot(world: World) -> None:
    it = world.serves(Incident())
    it.isolate()
    it.ports.nodes.save(replace(it.node(), past_boots=("boot-0",)))
    reboot_node(it.request(), it.ports)

    booted(it, "boot-0")

    assert it.is_waiting()
    assert it.node().boot_id == "boot-1"


def test_a_boot_that_could_not_be_recorded_comes_back_later(world: World) -> None:
    it = world.serves(Incident())
    it.ports.nodes.save = lost  # type: ignore[method-assign]

    with pytest.raises(NotAccepted):
        booted(it, "boot-2")


def test_the_first_boot_of_a_node_enrols_it(world: World) -> None:
    it = world.serves(Incident())
    it.ports.nodes.nodes.clear()  # type: ignore[attr-defined]

    booted(it, "boot-1")

    assert (it.node().address, it.node().accelerators) == ("10.0.0.1", 8)


@pytest.mark.parametrize(
    ("status", "exit_code", "is_over"),
    [
        ("Success", 0, False),
        ("Failed", 3, True),
        # Codes of the SSM agent and of SSM: the node may reboot all the same, and only its boot id decides.
        ("Failed", 1, False),
        ("Delivery Timed Out", -1, False),
    ],
)
def test_only_a_reboot_whose_own_script_failed_ends_the_wait(
    world: World, status: str, exit_code: int, is_over: bool
) -> None:
    it = world.serves(Incident())
    it.isolate()
    reboot_node(it.request(), it.ports)
    seen = CommandStatus("SUCCEEDED" if status == "Success" else "FAILED", "", exit_code)
    it.ports.commands.statuses["command-1"] = seen  # type: ignore[attr-defined]

    wake(names.SSM_INVOCATION_CHANGE, {"command-id": "command-1", "instance-id": A, "status": status})

    assert it.is_waiting() is not is_over


def test_what_the_diagnostics_found_is_kept_as_evidence(world: World) -> None:
    it = world.serves(Incident())
    it.isolate(), it.reboot()
    run_diagnostics(it.request(), it.ports, ACT)

    found = {
        "request_id": named(DIAGNOSTICS, f"{it.id}-{it.turn}", it.ports),
        "verdict": "FAILED",
        "evidence": "x" * 8000,
    }
    wake(names.DIAGNOSTICS_FINISHED, fact(it, "boot-2", **found))

    assert it.resumed().facts == Diagnosed(output="x" * 996 + " ...")


def test_evidence_that_a_node_has_saved_resumes_the_step_that_asked_for_it(world: World) -> None:
    it = world.serves(Incident())
    it.isolate()
    request = it.request()
    freezing = request.decision.model_copy(update={"step": Step.FREEZE_EVIDENCE})
    freeze_evidence(request.model_copy(update={"decision": freezing}), it.ports, RecoveryPolicy())

    request_id = named(EVIDENCE, f"{it.id}-{it.turn}", it.ports)
    saved = {"request_id": request_id, "object_key": names.evidence_key(it.id, it.turn), "size_bytes": 9, "items": 3}
    wake(names.EVIDENCE_FROZEN, fact(it, "boot-1", **saved))

    assert facts_of(it.resumed(), EvidenceSaved).size_bytes == 9


def test_a_checkpoint_that_a_node_has_found_resumes_whoever_asked_for_it(world: World) -> None:
    it = world.serves(Incident())
    where = Checkpoints(directory="/mnt/llama")
    job = stored_job(it.ports, "llama")
    assert it.ports.jobs.save(replace(job, checkpoints=where))

    lambdas.find_checkpoint.handler(it.request().model_dump(mode="json"), None)
    [sent] = commands_in(it.ports).sent
    name, asked = sent.node_id, sent.parameters
    found = {
        "request_id": asked["RequestId"],
        "directory": asked["Directory"],
        "format": "megatron",
        "path": "/mnt/llama/iter_0000009",
    }
    wake(names.CHECKPOINT_FOUND, {**fact(it, "boot-1", **found), "node_id": name, "instance_id": name})

    assert it.resumed().outcome is Outcome.DONE
    job = stored_job(it.ports, "llama")
    assert job.found is not None
    assert job.found.path == "/mnt/llama/iter_0000009"


def test_the_workflow_of_a_job_asks_the_same_function(world: World) -> None:
    it = world.serves(Incident())
    job = stored_job(it.ports, "llama")
    asked = JobRequest(job_id="llama", submission=job.submission or 1, round=1, task_token="t")
    assert it.ports.jobs.save(replace(job, submission=asked.submission))

    lambdas.find_checkpoint.handler(asked.model_dump(mode="json"), None)

    assert it.ports.workflows.resumed["t"].step is JobStep.FIND_CHECKPOINT  # type: ignore[attr-defined]


def test_hardware_that_a_node_reports_is_kept(world: World) -> None:
    it = world.serves(Incident())

    wake(names.NODE_HARDWARE_REPORTED, fact(it, "boot-1", machine="trn2.48xlarge", accelerators=[]))

    report = it.ports.hardware.of(A)
    assert report is not None
    assert report.machine == "trn2.48xlarge"


def test_an_event_that_cannot_be_read_is_kept(world: World) -> None:
    it = world.serves(Incident())

    wake(names.NODE_BOOTED, {"node_id": A})

    assert len(it.ports.notifier.quarantined) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "changes",
    [
        {"startedBy": "somebody-else"},
        {"containerInstanceArn": None},
        as_rank("llama", 9),
        {"containerInstanceArn": "of-another-node"},
        {"lastStatus": "STOPPING"},
        {"lastStatus": "PENDING"},
    ],
)
def test_only_our_own_task_that_has_stopped_is_over(world: World, changes: dict[str, Any]) -> None:
    it = world.serves(Incident())
    isolate_node(it.request(), it.ports, ACT)

    for rank in (0, 1):
        task(1, rank, "STOPPED", it, 0, **changes)

    run: Any = it.ports.jobs.get_run("llama", 1)
    assert [t.status for t in run.tasks] == ["RUNNING", "RUNNING"]
    assert it.is_waiting()


def test_how_a_rank_ended_is_recorded(world: World) -> None:
    it = world.serves(Incident())

    task(1, 0, "STOPPED", it, 134, stopCode="EssentialContainerExited", stoppedReason="dead")

    run: Any = it.ports.jobs.get_run("llama", 1)
    assert (run.tasks[0].exit_code, run.tasks[0].stop_reason) == (134, "EssentialContainerExited: dead")


def test_a_stop_reason_says_once_that_a_container_has_exited() -> None:
    ended = {"taskArn": "arn", "lastStatus": "STOPPED", "stopCode": "EssentialContainerExited"}
    reason = "Essential container in task exited"

    assert EcsTaskDetail.model_validate({**ended, "stoppedReason": reason}).stop_reason == "EssentialContainerExited"
    assert EcsTaskDetail.model_validate({**ended, "stopCode": "", "stoppedReason": reason}).stop_reason == reason


@pytest.mark.parametrize("source", [names.AGENT_SOURCE, names.OPERATOR_SOURCE, "somebody", None])
def test_nobody_but_aws_says_how_a_rank_ended(world: World, source: str | None) -> None:
    it = world.serves(Incident())
    detail = task_detail(1, 0, "STOPPED", it, 134)

    lambdas.wakeup.handler(
        {"id": "e", "source": source, "detail-type": names.ECS_TASK_STATE_CHANGE, "detail": detail}, None
    )

    run: Any = it.ports.jobs.get_run("llama", 1)
    assert run.tasks[0].exit_code is None


@pytest.mark.parametrize("kind", [names.MACHINE_STATE_CHANGE, names.SSM_INVOCATION_CHANGE])
def test_a_node_cannot_speak_as_aws_or_as_an_operator(world: World, kind: str) -> None:
    it = world.serves(Incident())
    it.isolate()
    reboot_node(it.request(), it.ports)
    [operation] = waiting(it.ports)
    assert isinstance(operation, Operation)
    detail = {"instance-id": A, "state": "terminated", "command-id": operation.reference, "status": "Failed"}

    lambdas.wakeup.handler(
        {"id": "e", "source": names.AGENT_SOURCE, "detail-type": kind, "detail": {**detail, "job_id": "llama"}}, None
    )

    assert waiting(it.ports) == [operation]


def test_a_ping_is_no_event(world: World) -> None:
    it = world.serves(Incident())

    assert lambdas.ingest.handler(names.KEEP_WARM, None) == {}
    lambdas.wakeup.handler(names.KEEP_WARM, None)

    assert not it.ports.notifier.quarantined  # type: ignore[attr-defined]


def test_a_ping_does_nothing_and_a_step_answers_in_json(world: World) -> None:
    it = world.serves(Incident())

    answers = [lambdas.return_to_service.handler(event, None) for event in (names.KEEP_WARM, it.request().model_dump())]

    assert [answer and answer["outcome"] for answer in answers] == [None, "REFUSED"]


@pytest.mark.parametrize("may_read", [True, False])
def test_a_function_of_one_operation_reads_the_policy_where_it_may(
    world: World, monkeypatch: pytest.MonkeyPatch, may_read: bool
) -> None:
    it = world.serves(Incident())
    if may_read:
        monkeypatch.setenv(names.ENV_POLICY, "application/environment/profile")
    asked = it.request().model_dump(mode="json")
    assert asked["decision"]["step"] == "ISOLATE"

    assert lambdas.operation.handler(names.KEEP_WARM, None) is None
    with nullcontext() if may_read else pytest.raises(ValueError, match="this function reads no policy"):
        lambdas.operation.handler(asked, None)

    assert (it.node().state is NodeState.ISOLATED) is may_read


# What only an operator may ask for


def test_a_node_that_speaks_as_an_operator_is_not_heard_and_its_words_are_kept(world: World) -> None:
    it = world.serves(Incident())
    asked = requested(C, Action.REBOOT, "ada: it smells", it.ports)

    answer = lambdas.ingest.handler(batch(on_bus(asked)), None)

    assert answer == {"batchItemFailures": []}
    [(_, why)] = it.ports.notifier.quarantined  # type: ignore[attr-defined]
    assert why == f"{C} speaks as an operator, as AWS or as nodeheal from nodeheal.agent"
    assert it.node(C).open_incident is None


def test_what_went_around_the_bus_is_an_event_like_any_other(world: World) -> None:
    it = world.serves(Incident())
    event = xid(79, node_id=C, instance_id=C, observed_at=it.clock())

    for body in (around_the_bus(signed_by(C, event.model_dump(mode="json"))), on_bus(event)):
        assert lambdas.ingest.handler(batch(body), None) == {"batchItemFailures": []}

    history = it.ports.incidents.history(incident_id_of(event))
    assert history.events == (event,)


def test_around_the_bus_too_no_node_speaks_as_an_operator(world: World) -> None:
    it = world.serves(Incident())
    asked = requested(C, Action.REBOOT, "ada: it smells", it.ports).model_dump(mode="json")
    forged = {"source": names.OPERATOR_SOURCE, "detail": asked}

    signed = signed_by(C, asked)
    lambdas.ingest.handler(batch(around_the_bus(signed, source=names.OPERATOR_SOURCE), around_the_bus(forged)), None)

    told = [why for _, why in it.ports.notifier.quarantined]  # type: ignore[attr-defined]
    assert told[0] == f"{C} speaks as an operator, as AWS or as nodeheal from nodeheal.agent"
    assert len(told) == 2
    assert it.node(C).open_incident is None


def test_what_comes_from_another_topic_is_kept_unread(world: World) -> None:
    it = world.serves(Incident())
    event = xid(79, node_id=C, instance_id=C).model_dump(mode="json")

    lambdas.ingest.handler(batch(around_the_bus(event, TopicArn="arn:aws:sns:us-east-1:111122223333:other")), None)

    [(_, why)] = it.ports.notifier.quarantined  # type: ignore[attr-defined]
    assert why.startswith("TopicArn")
    assert it.node(C).open_incident is None


# The page behind an approval link


@pytest.fixture
def asked(world: World, monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr(lambdas.answer_approval, "links", lambda: LINKS)
    it = Asked()
    world.serves(it)
    return it


def opened(link: str, method: str = "GET", body: str = "", odd: Any = None) -> tuple[int, str]:
    """A request as API Gateway hands it over, or an odd one."""
    query = dict(parse_qsl(urlsplit(link).query))
    http = {"method": method, "sourceIp": "203.0.113.9"}
    event = {
        "queryStringParameters": query,
        "headers": {"content-type": "application/x-www-form-urlencoded"},
        "requestContext": {"http": http},
        "body": b64encode(body.encode()).decode(),
        "isBase64Encoded": True,
        **(odd or {}),
    }
    answer = lambdas.answer_approval.handler(event, None)
    assert "default-src 'none'" in answer["headers"]["Content-Security-Policy"]
    return answer["statusCode"], answer["body"]


def link_of(it: Asked, answer: Answer = Answer.approve) -> str:
    return LINKS.link(it.question, answer, NOW + timedelta(hours=1))


def test_opening_a_link_decides_nothing_however_often(asked: Asked) -> None:
    seen = [opened(link_of(asked)) for _ in range(3)]

    assert {status for status, _ in seen} == {200}
    assert "Nothing has been decided yet." in seen[0][1]
    assert asked.is_waiting()


def test_the_form_of_the_page_decides_once_with_name_and_address_on_record(asked: Asked) -> None:
    first = opened(link_of(asked), "POST", "who=ada&why=go")
    second = opened(link_of(asked, Answer.refuse), "POST", "who=bob")

    assert (first[0], second[0]) == (200, 409)
    assert asked.resumed().reason == "approved by ada (link, from 203.0.113.9): go"
    assert "answered before" in second[1]


@pytest.mark.parametrize("opened_link", Answer)
def test_the_page_gives_both_answers_and_says_afterwards_what_happens_now(asked: Asked, opened_link: Answer) -> None:
    _, page = opened(link_of(asked, opened_link))
    links = [unescape(link) for link in re.findall('formaction="([^"]+)"', page)]
    other = next(answer for answer in Answer if answer is not opened_link)

    status, done = opened(links[1], "POST", "who=ada")

    assert page.index("does</dt>") < page.index("<form") < page.index("What was asked")
    assert [dict(parse_qsl(urlsplit(link).query))["answer"] for link in links] == [opened_link, other]
    assert status == 200
    assert ("nodeheal goes on with" if other is Answer.approve else "Nothing is done to") in done
    assert "nodeheal incidents show" in done


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_forged_link_is_refused(asked: Asked, method: str) -> None:
    status, page = opened(link_of(asked).replace("signature=", "signature=0"), method, "who=eve")

    assert (status, "not made by nodeheal" in page) == (403, True)
    assert asked.is_waiting()


def test_a_late_link_is_refused(asked: Asked) -> None:
    link = link_of(asked)
    asked.clock.advance(3_600)

    assert opened(link, "POST", "who=ada")[0] == 403
    assert asked.is_waiting()


def test_a_form_without_a_name_decides_nothing(asked: Asked) -> None:
    assert opened(link_of(asked), "POST", "why=go")[0] == 400
    assert asked.is_waiting()


@pytest.mark.parametrize(
    "odd",
    [
        {"body": "who=ada%", "isBase64Encoded": False},
        {"body": "who=%zz", "isBase64Encoded": False},
        {"body": "who=%ff%fe", "isBase64Encoded": False},
        {"body": "who=ada"},  # said to be base64
        {"body": "!!!!"},
        {"body": b64encode("who=ädä".encode("latin-1")).decode()},
        {"body": None},
        {"body": "", "isBase64Encoded": False},
        {"body": "&".join(["a=b"] * 9), "isBase64Encoded": False},
        {"body": "who=ada&why=" + "x" * 10_000, "isBase64Encoded": False},
        {"body": b64encode(b"who=ada&why=" + b"x" * 1_000_000).decode()},
        {"body": '{"who": "ada"}', "isBase64Encoded": False, "headers": {"content-type": "application/json"}},
        {"body": "who=ada", "isBase64Encoded": False, "headers": {"content-type": "multipart/form-data"}},
        {"body": "who=ada", "isBase64Encoded": False, "headers": {}},
        {"body": "who=ada", "isBase64Encoded": False, "headers": None},
    ],
    ids=lambda odd: str(odd)[:60],
)
def test_what_no_browser_sends_from_the_page_is_a_bad_request_and_decides_nothing(
    asked: Asked, odd: dict[str, Any]
) -> None:
    status, page = opened(link_of(asked), "POST", odd=odd)

    assert (status, "Nothing was sent" in page) == (400, True)
    assert asked.is_waiting()
    assert asked.told() == []


def test_a_name_in_any_alphabet_and_a_reason_of_full_length_are_taken(asked: Asked) -> None:
    name, why = "\N{GRINNING FACE}" * 80, "\N{GRINNING FACE}" * 300

    status, _ = opened(link_of(asked), "POST", urlencode({"who": name, "why": why}))

    assert status == 200
    assert asked.resumed().reason.startswith(f"approved by {name} (link")


def test_a_link_to_an_incident_that_is_gone_is_refused(asked: Asked) -> None:
    link = LINKS.link(replace(asked.question, incident_id="inc-gone"), Answer.approve, NOW + timedelta(hours=1))

    assert opened(link)[0] == 403


# take_signal and sweep -----------------------------------------------------------------------------------------------


def test_what_aws_says_about_a_node_opens_its_incident(world: World) -> None:
    it = world.serves(Incident())
    it.ports.nodes.save(machine())

    lambdas.take_signal.handler(batch(json.dumps(recorded("ec2_spot_warning"))), None)

    assert it.node(MACHINE).open_incident is not None


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"detail-type": "EC2 Something New", "detail": {}}, "nobody reads events of the kind 'EC2 Something New'"),
        ({}, "nobody reads events of the kind 'None'"),
        (recorded("ec2_spot_warning", **{"instance-id": ""}), "EC2 Spot Instance Interruption Warning: detail"),
        (recorded("ecs_instance_connected", version="late"), "ECS Container Instance State Change: detail.version"),
    ],
)
def test_a_signal_that_cannot_be_read_is_kept_with_its_reason(world: World, event: dict[str, Any], why: str) -> None:
    it = world.serves(Incident())

    lambdas.take_signal.handler(batch(json.dumps(event)), None)

    [(body, told)] = it.ports.notifier.quarantined  # type: ignore[attr-defined]
    assert (json.loads(body), told[: len(why)]) == (event, why)


def test_a_signal_about_nobody_we_know_is_left_alone(world: World) -> None:
    it = world.serves(Incident())

    lambdas.take_signal.handler(batch(json.dumps(recorded("ec2_state_terminated"))), None)

    assert it.ports.notifier.quarantined == []  # type: ignore[attr-defined]
    assert it.ports.nodes.get(MACHINE) is None


def test_a_sweep_makes_up_for_a_lost_start(world: World) -> None:
    it = world.serves(Incident())
    lambdas.ingest.handler(batch(on_bus(xid(48, node_id=C, instance_id=C))), None)
    started = it.ports.workflows.started  # type: ignore[attr-defined]
    started.clear()
    it.clock.advance(61)

    lambdas.sweep.handler({}, None)

    assert it.node(C).open_incident in started
