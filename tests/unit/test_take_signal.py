"""What becomes of what others say: an incident, a line of history, or nothing at all."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodeheal.adapters.aws.translate.foreign import milliseconds
from nodeheal.contract.vocabulary import JobState, NodeState, Outcome, VerbName, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.intake.take_signal import health_event, take_signal
from tests.support.builders import ACT, NOW, memory_ports, stored_job, stored_node, under_way, waiting, xid
from tests.support.foreign import EVERY, MACHINE, drafts, machine, recorded
from tests.support.jobs import ecs_job

REGISTRATION = "ecs/instance#0123456789abcdef0123456789abcdef"


def world(**changes: Any) -> Ports:
    ports = memory_ports()
    ports.nodes.save(machine(**changes))
    return ports


def take(ports: Ports, *events: dict[str, Any]) -> list[Ingested | None]:
    return [taken.became for event in events for taken in take_signal(drafts(event), ports, ACT)]


def known(ports: Ports) -> Node:
    return stored_node(ports, MACHINE)


def started(ports: Ports) -> list[str]:
    return list(ports.workflows.started)  # type: ignore[attr-defined]


def notes(ports: Ports) -> list[str]:
    return [observation.note for _, observation in ports.nodes.recorded.values()]  # type: ignore[attr-defined]


def with_job(ports: Ports) -> Ports:
    ports.jobs.save(ecs_job("llama", "demo", "training", "trainer:1", "trainer", 1, current_run=1))
    ports.jobs.save_run(
        Run("llama", 1, NOW, "first", (GangTask(MACHINE, 0, "boot-1", "placement", "task", "RUNNING"),))
    )
    return ports


def test_a_signal_becomes_an_event_of_the_node_on_its_current_boot() -> None:
    [draft] = drafts(recorded("ec2_spot_warning"))

    event = health_event(draft, machine(pool="h100", agent_version="0.3.0"))

    assert (event.node_id, event.pool, event.boot_id, event.cluster) == (MACHINE, "h100", "boot-1", "training")
    assert (event.source, event.verdict, event.observed_at) == ("aws.ec2", Verdict.FAILED, NOW)
    assert not event.is_from_node


def test_a_strong_signal_opens_an_incident_and_a_redelivery_changes_nothing() -> None:
    ports = world()

    assert take(ports, *[recorded("ec2_spot_warning")] * 2) == [Ingested.OPENED, Ingested.DUPLICATE]

    assert len(started(ports)) == 1


def test_a_machine_that_is_no_node_is_left_alone() -> None:
    ports = memory_ports()

    assert take(ports, recorded("ec2_state_terminated")) == [None]

    assert (ports.nodes.get(MACHINE), started(ports)) == (None, [])


@pytest.mark.parametrize(
    "name", ["ec2_spot_warning", "ecs_instance_disconnected", "ecs_instance_connected", "alarm_ok"]
)
def test_what_others_say_is_no_heartbeat(name: str) -> None:
    long_ago = NOW - timedelta(hours=1)
    ports = world(booted_at=long_ago, last_seen=long_ago, agent_version="0.3.0")

    take(ports, recorded(name))

    assert (known(ports).last_seen, known(ports).agent_version) == (long_ago, "0.3.0")


def test_an_advisory_signal_opens_nothing_and_is_history() -> None:
    ports = world()

    assert take(ports, recorded("ecs_instance_disconnected")) == [Ingested.HISTORY]

    assert (started(ports), known(ports).open_incident) == ([], None)
    assert notes(ports) == ["advisory: it opens no incident by itself"]


def test_an_advisory_signal_joins_the_incident_that_is_open() -> None:
    ports = world()
    take(ports, recorded("ec2_spot_warning"))

    assert take(ports, recorded("ecs_instance_disconnected")) == [Ingested.JOINED]


def test_what_was_seen_before_the_node_came_up_is_history() -> None:
    ports = world(boot_id="boot-2", past_boots=("boot-1",), booted_at=NOW)

    assert take(ports, recorded("alarm_system")) == [Ingested.HISTORY]

    assert started(ports) == []


def test_what_was_seen_before_the_first_boot_is_history_too() -> None:
    assert take(world(booted_at=NOW + timedelta(minutes=1)), recorded("ec2_spot_warning")) == [Ingested.HISTORY]


# Order ---------------------------------------------------------------------------------------------------------------


def test_an_older_version_after_a_newer_one_is_history() -> None:
    ports = world()
    take(ports, recorded("ec2_spot_warning"))  # an open incident, which an advisory signal would join

    became = take(ports, recorded("ecs_instance_connected"), recorded("ecs_instance_disconnected"))

    assert became == [Ingested.SEEN, Ingested.HISTORY]
    assert "something newer was heard from aws.ecs before" in notes(ports)


def test_the_same_version_again_makes_up_for_what_a_crash_lost() -> None:
    ports = world(signal_versions={"ecs/CONTAINER_RUNTIME": drafts(recorded("ecs_health_runtime"))[0].version})

    assert take(ports, recorded("ecs_health_runtime")) == [Ingested.OPENED]


def test_one_check_that_is_newer_makes_no_other_check_history() -> None:
    [check] = recorded("ecs_health_xid")["detail"]["healthChecks"]
    later = {**check, "type": "DAEMON", "lastStatusChange": "2026-03-01T03:59:00Z"}
    ports = world()
    take(ports, recorded("ecs_health_daemon", healthChecks=[later]))

    assert take(ports, recorded("ecs_health_xid")) == [Ingested.OPENED]


def test_an_older_version_never_replaces_a_newer_one_written_meanwhile() -> None:
    ports = world()
    save = ports.nodes.save
    lost: list[bool] = []

    def race(node: Node) -> bool:
        if not lost:
            lost.append(save(replace(known(ports), signal_versions={REGISTRATION: 14802})))
        return save(node)

    ports.nodes.save = race  # type: ignore[method-assign]

    assert take(ports, recorded("ecs_instance_disconnected")) == [Ingested.HISTORY]
    assert known(ports).signal_versions == {REGISTRATION: 14802}


def test_a_node_that_registers_anew_begins_to_count_anew() -> None:
    ports = world(signal_versions={"alarm/status": 7, "ecs/instance#of-the-registration-before": 90_000})
    take(ports, recorded("ec2_spot_warning"))

    assert take(ports, recorded("ecs_instance_disconnected")) == [Ingested.JOINED]
    assert known(ports).signal_versions == {"alarm/status": 7, REGISTRATION: 14801}


def test_a_version_that_cannot_be_written_comes_back_later() -> None:
    ports = world()
    ports.nodes.save = lambda node: False  # type: ignore[method-assign]

    with pytest.raises(NotAccepted, match="is being written by others"):
        take(ports, recorded("ecs_instance_disconnected"))


# A machine leaves ----------------------------------------------------------------------------------------------------


def test_a_machine_that_leaves_with_a_job_on_it_is_a_fault() -> None:
    ports = with_job(world(job_id="llama"))

    assert take(ports, recorded("ec2_state_terminated")) == [Ingested.OPENED]


def test_a_machine_that_leaves_without_a_job_is_retired_and_no_fault() -> None:
    ports = world()

    assert take(ports, recorded("ec2_state_shutting_down"), recorded("ec2_state_terminated")) == [Ingested.HISTORY] * 2

    assert (known(ports).state, started(ports)) == (NodeState.RETIRED, [])


def test_a_machine_that_leaves_after_its_job_is_done_is_no_fault() -> None:
    ports = with_job(world(job_id="llama"))
    job = stored_job(ports, "llama")
    ports.jobs.save(replace(job, state=JobState.COMPLETED))

    assert take(ports, recorded("ec2_state_terminated")) == [Ingested.HISTORY]


def test_an_open_incident_learns_that_its_machine_has_left() -> None:
    ports = world()
    take(ports, recorded("aws_health_retirement"))

    assert take(ports, recorded("ec2_state_terminated")) == [Ingested.JOINED]


def test_a_machine_that_is_only_stopped_may_come_back() -> None:
    ports = world()

    take(ports, recorded("ec2_state_stopped"))

    assert (known(ports).state, started(ports)) == (NodeState.HEALTHY, [])


def test_a_machine_that_we_took_out_of_service_ourselves_leaves_without_a_fault() -> None:
    ports = world()
    fault = xid(79, node_id=MACHINE)
    ingest(fault, ports, ACT)
    ports.nodes.save(replace(known(ports), state=NodeState.RECOVERING))

    assert take(ports, recorded("ec2_state_terminated")) == [Ingested.JOINED]

    history = ports.incidents.history(incident_id_of(fault))
    told = {event.code: event.verdict for event in history.events}
    assert told == {"79": Verdict.FAILED, "instance_gone": Verdict.OK}
    # Nobody reads "gone: OK" in the incident.
    words = [entry.text for entry in history.timeline if entry.kind == "event"]
    assert f"{MACHINE}: its machine is terminated, as it may be: the node is out of service" in words


def test_who_waits_for_a_reboot_learns_that_the_machine_is_gone() -> None:
    ports = world(state=NodeState.RECOVERING)
    wait_for_boot(ports)

    take(ports, recorded("ec2_state_terminated"))

    resumed = ports.workflows.resumed["token"]  # type: ignore[attr-defined]
    assert (resumed.outcome, resumed.reason) == (Outcome.FAILED, "its machine was terminated")
    assert waiting(ports) == []


@pytest.mark.parametrize("name", ["ec2_state_stopped", "auto_scaling_terminate"])
def test_a_machine_that_may_still_boot_ends_no_wait(name: str) -> None:
    ports = world(state=NodeState.RECOVERING)
    wait_for_boot(ports)

    take(ports, recorded(name))

    assert waiting(ports) != []


def test_a_stop_that_was_told_after_the_next_boot_is_kept_as_it_was_also_where_the_node_is_out_by_now() -> None:
    ports = world(state=NodeState.QUARANTINED, boot_id="boot-2", past_boots=("boot-1",), booted_at=NOW)

    assert take(ports, recorded("ec2_state_stopped")) == [Ingested.HISTORY]

    [(event, _)] = ports.nodes.recorded.values()  # type: ignore[attr-defined]
    assert event.verdict is Verdict.FAILED


def test_a_stop_that_was_told_after_the_next_boot_says_nothing_of_it() -> None:
    ports = with_job(world(job_id="llama", boot_id="boot-2", past_boots=("boot-1",), booted_at=NOW))
    wait_for_boot(ports)

    assert take(ports, recorded("ec2_state_terminated")) == [Ingested.HISTORY]

    assert (known(ports).state, started(ports)) == (NodeState.HEALTHY, [])
    assert waiting(ports) != []


def test_an_idle_node_that_came_up_again_is_told_apart_from_one_that_left() -> None:
    ports = world(boot_id="boot-2", past_boots=("boot-1",), booted_at=NOW)

    take(ports, recorded("ec2_state_stopped"))

    assert notes(ports) == ["from before the node's current boot"]


def wait_for_boot(ports: Ports) -> None:
    under_way(ports, VerbName.REBOOT, node_id=MACHINE, boot_id=known(ports).boot_id)


def redated(value: Any, to: datetime) -> Any:
    """The same with every time in it set to this one."""
    if isinstance(value, dict):
        return {key: redated(inner, to) for key, inner in value.items()}
    if isinstance(value, list):
        return [redated(inner, to) for inner in value]
    return to.isoformat() if re.match(r"\d{4}-\d\d-\d\dT", str(value)) else value


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("ahead", [timedelta(minutes=6), timedelta(hours=14), timedelta(days=365 * 70)], ids=str)
def test_what_a_source_dates_ahead_of_the_bus_is_of_the_time_of_the_bus(name: str, ahead: timedelta) -> None:
    event = recorded(name)
    at = datetime.fromisoformat(event["time"])

    for draft in drafts({**event, "detail": redated(event["detail"], at + ahead)}):
        assert draft.observed_at == at
        assert draft.version is None or draft.version <= milliseconds(at)


@pytest.mark.parametrize("name", ["ecs_health_runtime", "alarm_system"])
def test_a_date_that_does_not_count_is_told(name: str) -> None:
    event = recorded(name)

    [draft, *_] = drafts({**event, "detail": redated(event["detail"], datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC))})

    assert draft.evidence.endswith("Its source dates it 2099-01-02 03:04:05 UTC, ahead of the bus's time.")
