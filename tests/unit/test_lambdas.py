"""The handlers over ports in memory: what comes in as JSON, what is done about it, and what changes nothing."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import lambdas.ingest
import lambdas.look_once
import lambdas.wakeup
from lambdas import composition
from nodeheal.contract import names
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Family, Step, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.incident import incident_id_of
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.freeze_evidence import freeze_evidence
from nodeheal.services.isolate_node import isolate_node
from nodeheal.services.reboot_node import reboot_node
from nodeheal.services.run_diagnostics import run_diagnostics
from tests.unit.builders import ACT, xid
from tests.unit.test_guards import lost
from tests.unit.test_steps import A, C, Incident


class World:
    """The functions, deployed over the ports of whatever the test has set up."""

    ports: Ports

    def serves(self, it: Incident) -> Incident:
        self.ports = it.ports
        composition.ports.cache_clear()
        return it

    def read(self) -> RecoveryPolicy:
        """The policy in force."""
        return ACT


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()
    monkeypatch.setattr(composition, "policy_reader", lambda: world)
    monkeypatch.setenv(names.ENV_TABLE, "state")
    monkeypatch.setattr(composition, "aws_ports", lambda **_: world.ports)
    yield world
    composition.ports.cache_clear()


def batch(*bodies: str) -> dict[str, Any]:
    return {"Records": [{"messageId": f"m{n}", "body": body} for n, body in enumerate(bodies)]}


def on_bus(event: HealthEvent) -> str:
    return json.dumps({"detail-type": names.NODE_HEALTH_REPORTED, "detail": event.model_dump(mode="json")})


def wake(kind: str, detail: dict[str, Any]) -> None:
    lambdas.wakeup.handler({"id": "e", "detail-type": kind, "detail": detail}, None)


def fact(it: Incident, boot_id: str, **more: Any) -> dict[str, Any]:
    observed = {"observed_at": it.clock().isoformat(), "provider": "hybrid"}
    return {**it._fact(boot_id, A), **observed, **more}


def booted(it: Incident, boot_id: str) -> None:
    it.clock.advance(60)
    wake(names.NODE_BOOTED, fact(it, boot_id, booted_at=it.clock().isoformat(), address="10.0.0.1", accelerators=8))


def task(run: int, rank: int, status: str, it: Incident, exit_code: int | None = None, **more: Any) -> None:
    found: Any = it.ports.jobs.get_run("llama", run)
    detail = {
        "taskArn": found.tasks[rank].task_id,
        "containerInstanceArn": found.tasks[rank].placement,
        "lastStatus": status,
        "startedBy": names.started_by("llama", run),
        "containers": [{"name": "sidecar"}, {"name": "trainer", "exitCode": exit_code}],
    }
    wake(names.ECS_TASK_STATE_CHANGE, {**detail, **more})


# ingest ---------------------------------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_kept_and_does_not_hold_up_the_rest(world: World) -> None:
    it = world.serves(Incident())
    other = xid(48, node_id=C, instance_id=C)

    answer = lambdas.ingest.handler(batch("{", '{"detail": {"xid": 79}}', on_bus(other)), None)

    assert answer == {"batchItemFailures": []}
    assert len(it.ports.messenger.quarantined) == 2  # type: ignore[attr-defined]
    assert it.ports.incidents.history(incident_id_of(other)).incident.policy_version == ACT.version


def test_what_cannot_be_stored_now_comes_back_later_and_alone(world: World) -> None:
    it = world.serves(Incident())
    it.ports.incidents.open = lost  # type: ignore[method-assign]

    answer = lambdas.ingest.handler(batch(on_bus(xid(48, node_id=C, instance_id=C)), on_bus(xid(48))), None)

    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}


@pytest.mark.parametrize("sign", [{"family": Family.heartbeat}, {"verdict": Verdict.OK}])
def test_a_sign_of_life_opens_nothing_whatever_else_it_says(world: World, sign: dict[str, Any]) -> None:
    it = world.serves(Incident())

    lambdas.ingest.handler(batch(on_bus(xid(79, node_id=C, instance_id=C, **sign))), None)

    assert it.node(C).open_incident is None


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


# wakeup ---------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("status", "is_over"), [("Success", False), ("Delivery Timed Out", True), ("Failed", True)])
def test_only_a_command_that_failed_ends_the_wait(world: World, status: str, is_over: bool) -> None:
    it = world.serves(Incident())
    it.isolate()
    reboot_node(it.request(), it.ports)

    wake(names.SSM_INVOCATION_CHANGE, {"command-id": "command-1", "instance-id": A, "status": status})

    assert it.is_waiting() is not is_over


def test_what_the_diagnostics_found_is_kept_as_evidence(world: World) -> None:
    it = world.serves(Incident())
    it.isolate(), it.reboot()
    run_diagnostics(it.request(), it.ports, ACT)

    found = {"request_id": f"{it.id}-{it.turn}", "verdict": "FAILED", "evidence": "x" * 8000}
    wake(names.DIAGNOSTICS_FINISHED, fact(it, "boot-2", **found))

    assert it.resumed().evidence == {"diagnostics": "x" * 1000}


def test_evidence_that_a_node_has_saved_resumes_the_step_that_asked_for_it(world: World) -> None:
    it = world.serves(Incident())
    it.isolate()
    request = it.request()
    freezing = request.decision.model_copy(update={"step": Step.FREEZE_EVIDENCE})
    freeze_evidence(request.model_copy(update={"decision": freezing}), it.ports, ACT)

    request_id = f"{it.id}-{it.turn}"
    saved = {"request_id": request_id, "object_key": names.evidence_key(it.id, request_id), "size_bytes": 9, "items": 3}
    wake(names.EVIDENCE_FROZEN, fact(it, "boot-1", **saved))

    assert it.resumed().evidence["bytes"] == "9"


def test_an_event_that_cannot_be_read_is_kept(world: World) -> None:
    it = world.serves(Incident())

    wake(names.NODE_BOOTED, {"node_id": A})

    assert len(it.ports.messenger.quarantined) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "changes",
    [
        {"startedBy": "somebody-else"},
        {"containerInstanceArn": None},
        {"startedBy": names.started_by("llama", 9)},
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


def test_a_ping_does_nothing_and_a_step_answers_in_json(world: World) -> None:
    it = world.serves(Incident())

    answers = [lambdas.look_once.handler(event, None) for event in (names.KEEP_WARM, it.request().model_dump())]

    assert [answer and answer["outcome"] for answer in answers] == [None, "FAILED"]
