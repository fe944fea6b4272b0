"""Memory and DynamoDB keep one specification: every test here runs over both."""

import contextlib
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from moto import mock_aws

from nodeheal.contract.health_event import Accelerator, NodeFact, NodeHardwareReported
from nodeheal.contract.results import Isolated, StepResult
from nodeheal.contract.steps import AttemptLimit, Decision
from nodeheal.contract.vocabulary import (
    Action,
    Availability,
    Ending,
    IncidentState,
    JobState,
    NodeState,
    Outcome,
    Step,
    VerbName,
)
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.machine import Machine
from nodeheal.domain.fleet.pool import AcceleratorCount, Census, Pool, RunningJobs
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.jobs.owner import Owner
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.recovery.timeline import (
    PAYLOADS,
    AnswerRefused,
    ApprovalAnswered,
    JobLeft,
    MachineRecorded,
    Payload,
    TaskGone,
    TaskLeftRunning,
    TaskStarted,
    TaskStopped,
    TaskToStop,
    TimelineEntry,
    decision_entry,
    event_entry,
)
from nodeheal.domain.recovery.timeline_fold import Fold
from nodeheal.ports import Ports
from tests.support.builders import NOW, FrozenClock, node, under_way, xid
from tests.support.dynamo_tables import clock, dynamo_ports, new_incident, ports
from tests.support.jobs import ecs_job
from tests.support.walker import load

__all__ = ["clock", "ports"]  # fixtures

REBOOTS = AttemptLimit(group=Action.REBOOT, limit=2, window_seconds=3600)
REPLACEMENTS = AttemptLimit(group=Action.REPLACE, limit=2, window_seconds=3600)


def hardware(machine: str, at: datetime) -> NodeHardwareReported:
    fact = xid(79, observed_at=at).model_dump(include=set(NodeFact.model_fields))
    return NodeHardwareReported(**fact, machine=machine, accelerators=(Accelerator(index=0, component="neuron0"),))


def _opened(ports: Ports) -> Incident:
    incident = new_incident()
    assert ports.incidents.open(incident, node(open_incident=incident.incident_id))
    return incident


def test_a_node_comes_back_as_it_was_saved(ports: Ports) -> None:
    measured = {"pcie_gpu_to_host_gb_per_s": 24.02, "hottest_zone_celsius": 71.25}
    saved = node(state=NodeState.PROBATION, probation_until=NOW, resolved_faults={"a": "b"}, past_boots=("boot-0",))
    saved = replace(saved, diagnostic_baseline=measured)

    assert ports.nodes.save(saved)

    assert ports.nodes.get(saved.node_id) == replace(saved, version=1)
    assert list(ports.nodes.in_pool("demo")) == [replace(saved, version=1)]


def test_a_save_over_a_version_that_somebody_else_replaced_changes_nothing(ports: Ports) -> None:
    ports.nodes.save(node())
    read = ports.nodes.get(node().node_id)
    assert read is not None
    assert ports.nodes.save(replace(read, job_id="first"))

    assert not ports.nodes.save(replace(read, job_id="second"))

    stored = ports.nodes.get(node().node_id)
    assert stored is not None
    assert stored.job_id == "first"


def test_a_node_that_was_never_seen_is_none(ports: Ports) -> None:
    assert ports.nodes.get("mi-unknown") is None


def test_opening_an_incident_writes_the_incident_its_event_and_the_node(ports: Ports) -> None:
    incident = _opened(ports)

    history = ports.incidents.history(incident.incident_id)
    stored = ports.nodes.get(incident.node_id)

    assert history.incident == incident
    assert history.events == (incident.root,)
    assert stored is not None
    assert stored.open_incident == incident.incident_id


def test_an_incident_opens_once(ports: Ports) -> None:
    incident = _opened(ports)
    read = ports.nodes.get(incident.node_id)
    assert read is not None

    assert not ports.incidents.open(incident, read)


def test_an_incident_does_not_open_over_a_node_that_changed(ports: Ports) -> None:
    ports.nodes.save(node())

    assert not ports.incidents.open(new_incident(), node())

    with pytest.raises(NotFound, match=new_incident().incident_id):
        ports.incidents.history(new_incident().incident_id)


def test_an_entry_is_added_once(ports: Ports) -> None:
    incident = _opened(ports)
    entry = event_entry(xid(48))

    assert [ports.incidents.append(incident.incident_id, entry) for _ in range(2)] == [True, False]

    assert [e.code for e in ports.incidents.history(incident.incident_id).events] == ["48", "79"]


def test_every_kind_of_payload_is_read_as_it_was_written(ports: Ports) -> None:
    incident, task = _opened(ports), UnmanagedTask("arn:task/1", "eval:3", "cron", may_be_stopped=True)
    decision = Decision(step=Step.ISOLATE, reason="so", node_id=incident.node_id, due_at=NOW)
    machine = Machine("i-1", group="trainers", launched_at=NOW, tags={"rack": "r1"})
    payloads: dict[str, Payload] = {
        "HealthEvent": xid(48),
        "Decision": decision,
        "StepResult": StepResult(
            step=Step.ISOLATE,
            node_id=incident.node_id,
            outcome=Outcome.DONE,
            reason="so",
            finished_at=NOW,
            facts=Isolated(is_drained=True),
        ),
        "JobLeft": JobLeft("inc-2"),
        "ApprovalAnswered": ApprovalAnswered(Answer.approve),
        "AnswerRefused": AnswerRefused(Answer.refuse),
        "MachineRecorded": MachineRecorded(incident.node_id, machine),
        "TaskToStop": TaskToStop(task),
        "TaskLeftRunning": TaskLeftRunning(task),
        "TaskGone": TaskGone(task),
        "TaskStopped": TaskStopped(task.short_id, by_us=True, is_held=True),
        "TaskStarted": TaskStarted(task.short_id, ""),
    }
    entries = {
        tag: TimelineEntry(NOW, tag, "so", payloads.get(tag) or kind(), turn=0, actor="arn:aws:iam::1:user/ada")
        for tag, kind in PAYLOADS.items()
    }

    for entry in entries.values():
        ports.incidents.append(incident.incident_id, entry)

    read = {entry.entry_id: entry for entry in ports.incidents.history(incident.incident_id).timeline}
    assert {tag: read[tag] for tag in entries} == entries


def test_entries_are_folded_into_one_that_counts_them(ports: Ports) -> None:
    incident = _opened(ports)
    entries = [event_entry(xid(code)) for code in (31, 48, 63)]
    for entry in entries:
        ports.incidents.append(incident.incident_id, entry)
    fold = Fold(entries[:2], entries[2], replace(entries[2], times=3, text="three"))

    folded = [ports.incidents.fold(incident.incident_id, fold) for _ in range(2)]

    history = ports.incidents.history(incident.incident_id)
    assert folded == [True, False]
    assert [event.code for event in history.events] == ["63", "79"]
    assert [entry.times for entry in history.timeline if entry.kind == "event"] == [3, 1]
    assert history.event_count == 4


@pytest.mark.parametrize("what", ["its target was folded", "one is gone"])
def test_entries_that_have_changed_are_not_folded(ports: Ports, what: str) -> None:
    """Two functions may fold at once: what one has counted the other does not count again."""
    incident = _opened(ports)
    entries = [event_entry(xid(code)) for code in (31, 48, 63)]
    for entry in entries[1 if what == "one is gone" else 0 :]:
        ports.incidents.append(incident.incident_id, entry)
    before = replace(entries[2], times=1 if what == "one is gone" else 2)

    assert not ports.incidents.fold(incident.incident_id, Fold(entries[:2], before, replace(before, times=9)))

    assert {entry.times for entry in ports.incidents.history(incident.incident_id).timeline} == {1}


def test_a_turn_is_taken_once(ports: Ports) -> None:
    incident = _opened(ports)
    first = decision_entry(0, Decision(step=Step.ISOLATE, reason="first", node_id=incident.node_id), NOW)
    second = decision_entry(0, Decision(step=Step.REBOOT, reason="second", node_id=incident.node_id), NOW)

    taken = [ports.incidents.advance(replace(incident, turn=1), [entry]) for entry in (first, second)]

    assert taken == [True, False]
    assert [t.decision.reason for t in ports.incidents.history(incident.incident_id).turns] == ["first"]


def test_an_incident_that_was_handed_over_takes_no_turn(ports: Ports) -> None:
    """Its workflow has failed, and marked it, between the look at it and this write."""
    incident = _opened(ports)
    ports.incidents.finish(replace(incident, state=IncidentState.ESCALATED))
    late = decision_entry(0, Decision(step=Step.REBOOT, reason="late", node_id=incident.node_id), NOW)

    assert not ports.incidents.advance(replace(incident, turn=1), [late])

    found = ports.incidents.history(incident.incident_id)
    assert (found.incident.state, found.turns) == (IncidentState.ESCALATED, ())


def test_a_finished_incident_says_how_it_ended(ports: Ports) -> None:
    incident = _opened(ports)
    finished = replace(incident, state=IncidentState.CLOSED, ending=Ending.RECOVERED, summary="healed", closed_at=NOW)

    ports.incidents.finish(finished)
    ports.incidents.finish(finished)

    assert ports.incidents.history(incident.incident_id).incident == finished


def test_an_incident_is_finished_and_its_node_let_go_in_one_write(ports: Ports) -> None:
    incident = _opened(ports)
    held = ports.nodes.get(incident.node_id)
    assert held is not None
    over, free = replace(incident, state=IncidentState.CLOSED), replace(held, open_incident=None)

    assert ports.incidents.finish(over, free)

    after = ports.nodes.get(incident.node_id)
    assert (ports.incidents.history(incident.incident_id).incident, after) == (
        over,
        replace(free, version=held.version + 1),
    )


def test_an_incident_is_not_finished_over_a_node_that_changed(ports: Ports) -> None:
    incident = _opened(ports)
    held = ports.nodes.get(incident.node_id)
    assert held is not None
    ports.nodes.save(replace(held, last_seen=NOW + timedelta(seconds=5)))

    assert not ports.incidents.finish(replace(incident, state=IncidentState.CLOSED), replace(held, open_incident=None))

    after = ports.nodes.get(incident.node_id)
    assert after is not None
    assert (ports.incidents.history(incident.incident_id).incident, after.open_incident) == (
        incident,
        held.open_incident,
    )


def test_attempts_stop_at_the_limit_and_what_is_denied_spends_nothing(ports: Ports) -> None:
    asked = [ports.attempts.reserve("node#a", f"attempt-{n}", REBOOTS) for n in range(3)]

    assert asked == [(True, 1), (True, 2), (False, 2)]
    assert ports.attempts.spent("node#a", REBOOTS) == {REBOOTS.group: 2}


def test_the_same_attempt_is_spent_once(ports: Ports) -> None:
    asked = [ports.attempts.reserve("node#a", "attempt-1", REBOOTS) for _ in range(2)]

    assert asked == [(True, 1), (True, 1)]


def test_attempts_are_counted_per_scope(ports: Ports) -> None:
    for scope in ("node#a", "node#b"):
        for n in range(2):
            ports.attempts.reserve(scope, f"attempt-{n}", REBOOTS)

    assert ports.attempts.spent("node#a", REBOOTS) == {REBOOTS.group: 2}


def test_what_was_spent_is_told_for_each_group_that_is_asked_for(ports: Ports) -> None:
    ports.attempts.reserve("node#a", "attempt-1", REBOOTS)
    ports.attempts.reserve("node#a", "attempt-2", REPLACEMENTS)
    ports.attempts.reserve("node#a", "attempt-3", REPLACEMENTS)

    assert ports.attempts.spent("node#a", REBOOTS, REPLACEMENTS) == {Action.REBOOT: 1, Action.REPLACE: 2}
    assert ports.attempts.spent("node#a", REPLACEMENTS) == {Action.REPLACE: 2}
    assert ports.attempts.spent("node#b", REBOOTS, REPLACEMENTS) == {Action.REBOOT: 0, Action.REPLACE: 0}


def test_an_attempt_leaves_the_window_in_time(ports: Ports, clock: FrozenClock) -> None:
    for n in range(2):
        ports.attempts.reserve("node#a", f"attempt-{n}", REBOOTS)
    clock.advance(REBOOTS.window_seconds + 1)

    assert ports.attempts.reserve("node#a", "later", REBOOTS) == (True, 1)


def test_a_refunded_attempt_can_be_spent_again(ports: Ports) -> None:
    for n in range(2):
        ports.attempts.reserve("node#a", f"attempt-{n}", REBOOTS)

    ports.attempts.refund("node#a", "attempt-1", REBOOTS)
    ports.attempts.refund("node#a", "attempt-1", REBOOTS)

    assert ports.attempts.spent("node#a", REBOOTS) == {REBOOTS.group: 1}
    assert ports.attempts.reserve("node#a", "attempt-9", REBOOTS) == (True, 2)


def test_no_more_nodes_hold_a_slot_than_there_are_slots(ports: Ports) -> None:
    claims = [ports.pools.claim("demo", name, 2) for name in ("a", "b", "c", "a")]

    assert claims == [True, True, False, True]
    assert list(ports.pools.holders("demo")) == ["a", "b"]


def test_fewer_slots_than_holders_let_nobody_in(ports: Ports) -> None:
    ports.pools.claim("demo", "a", 3)
    ports.pools.claim("demo", "b", 3)
    ports.pools.release("demo", "a")

    assert not ports.pools.claim("demo", "c", 1)


def test_a_released_slot_is_free_again(ports: Ports) -> None:
    ports.pools.claim("demo", "a", 1)

    ports.pools.release("demo", "a")
    ports.pools.release("demo", "a")

    assert ports.pools.claim("demo", "b", 1)


def test_a_job_and_its_runs_come_back_as_they_were_saved(ports: Ports) -> None:
    job = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, {"A": "1"}, state=JobState.STOPPED)
    job = replace(job, owner=Owner("ada@example.com", "Ada"))
    task = GangTask("mi-1", 0, "boot-1", "placement", "task", "STOPPED", 134, "EssentialContainerExited: dead")
    run = Run("llama", 3, NOW, "inc-1/5", (task,))

    assert ports.jobs.save(job)
    assert ports.jobs.save_run(run)

    assert ports.jobs.get("llama") == replace(job, version=1)
    assert ports.jobs.get_run("llama", 3) == replace(run, version=1)
    assert not ports.jobs.save_run(run)
    assert ports.jobs.get("other") is None


def test_an_incident_that_waits_is_listed_as_waiting_until_it_goes_on(ports: Ports) -> None:
    incident = _opened(ports)

    states = []
    for turn, state in ((1, IncidentState.WAITING), (2, IncidentState.OPEN)):
        assert ports.incidents.advance(replace(incident, turn=turn, state=state), [])
        states.append(ports.incidents.history(incident.incident_id).incident.state)

    assert states == [IncidentState.WAITING, IncidentState.OPEN]


def test_a_pool_that_was_never_written_has_no_guardrails_on(ports: Ports) -> None:
    assert ports.pools.get("demo") == Pool("demo")


def test_a_pools_guardrails_come_back_as_they_were_saved_once(ports: Ports) -> None:
    tripped = Pool("demo").tripped("rack r7", NOW)
    counted = Census({NodeState.HEALTHY: 3}, {Availability.FREE: 1, Availability.BUSY: 2}, 1, AcceleratorCount(24, 16))
    jobs = RunningJobs(2, 1, 16, 8)
    reset = replace(
        tripped,
        breaker_reset_at=NOW,
        nodes=3,
        counted_at=NOW,
        census=counted,
        running_jobs=jobs,
        jobs_counted_at=NOW,
    )

    assert ports.pools.save(reset)
    assert not ports.pools.save(tripped)

    assert ports.pools.get("demo") == replace(reset, version=1)
    assert ports.pools.get("other") == Pool("other")


def test_a_pools_guardrails_are_no_slot(ports: Ports) -> None:
    ports.pools.save(Pool("demo").tripped("rack r7", NOW))

    assert list(ports.pools.holders("demo")) == []
    assert ports.pools.claim("demo", "a", 1)


def test_a_line_is_in_order_of_its_places_and_has_only_those_who_replacement_node_it(ports: Ports) -> None:
    lines = {"a": ("demo", "2"), "b": ("demo", "1"), "c": ("other", "0"), "d": None}
    standing = {name: under_way(ports, VerbName.WAIT, incident_id=name, line=line) for name, line in lines.items()}

    assert [one.incident_id for one in ports.operations.queued("demo")] == ["b", "a"]
    ports.operations.save(standing["b"].delivered())
    assert [one.incident_id for one in ports.operations.queued("demo")] == ["a"]


def test_of_a_line_those_are_told_that_stand_behind_one(ports: Ports) -> None:
    places = {"a": "3", "b": "1", "c": "2", "d": "4"}
    made = {name: under_way(ports, VerbName.WAIT, incident_id=name, line=("demo", at)) for name, at in places.items()}
    under_way(ports, VerbName.WAIT, incident_id="e", line=("other", "9"))

    def behind(name: str, most: int) -> list[str]:
        return [operation_id for _, operation_id in ports.operations.behind(made[name], most)]

    assert list(ports.operations.behind(made["b"], 1)) == [("incident#c", "c-1")]
    assert (behind("b", 9), behind("c", 1), behind("d", 9)) == (["c-1", "a-1", "d-1"], ["a-1"], [])

    assert ports.operations.save(replace(made["a"], line=None))  # it has left the line
    ports.operations.save(made["c"].delivered())

    assert behind("b", 9) == ["d-1"]


def test_an_operation_is_written_over_the_version_that_was_read_only(ports: Ports) -> None:
    known = under_way(ports, VerbName.WAIT)

    assert ports.operations.save(replace(known, boot_id="boot-2"))
    assert not ports.operations.save(replace(known, boot_id="boot-3"))

    stored = ports.operations.get(known.owner, known.operation_id)
    assert stored == replace(known, boot_id="boot-2", version=known.version + 1)


@pytest.mark.parametrize(
    ("state", "after"),
    [
        (JobState.RUNNING, JobState.FAILED),
        (JobState.COMPLETED, JobState.COMPLETED),
        (JobState.CANCELLED, JobState.CANCELLED),
    ],
)
def test_a_workflow_that_breaks_makes_its_job_a_humans_but_takes_no_end_back(state: JobState, after: JobState) -> None:
    asked = load("run_job")["States"]["Mark job escalated"]["Arguments"]
    with mock_aws():
        ports = dynamo_ports(FrozenClock())
        ports.jobs.save(ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, state=state))
        table = ports.jobs._table  # type: ignore[attr-defined]
        key = {"pk": {"S": "job#llama"}, "sk": {"S": "job"}}

        with contextlib.suppress(table.client.exceptions.ConditionalCheckFailedException):
            table.client.update_item(**{**asked, "TableName": table.name, "Key": key})

        assert ports.jobs.get("llama").state is after  # type: ignore[union-attr]


def test_of_two_reports_of_a_nodes_hardware_the_newer_is_kept(ports: Ports) -> None:
    first, later = (hardware(machine, at) for machine, at in (("dgx", NOW), ("hgx", NOW + timedelta(minutes=1))))

    for report in (first, later, first):
        ports.hardware.save(report)

    assert ports.hardware.of(first.node_id) == later
    assert ports.hardware.of("mi-of-nobody") is None


def test_reports_of_a_node_are_counted_by_window(ports: Ports) -> None:
    until = NOW + timedelta(days=1)

    counted = [ports.nodes.count_report("mi-1", window, until) for window in ("12:00", "12:00", "12:01")]

    assert counted == [1, 2, 1]
    assert ports.nodes.count_report("mi-2", "12:00", until) == 1
    assert ports.nodes.get("mi-1") is None
