"""The end of an incident: what it lets go of, what it counts as settled, and where tasks of others go on.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from typing import Any

from nodeheal.contract import names
from nodeheal.contract.steps import DecideRequest
from nodeheal.contract.vocabulary import Action, IncidentState, NodeState, Step, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.unmanaged_tasks import UnmanagedTask
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators.close_incident import close_incident
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.operators.request_action import request_action
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.recovery.end_incident import end_incident
from tests.unit.builders import scheduler_in, xid
from tests.workflows.breaking_world import BreakingWorld
from tests.workflows.fake_cluster import BROKEN, SPARE
from tests.workflows.scenarios.once import request_of
from tests.workflows.scenarios.setup import HANDED_OVER, RECOVERED, ends_as, world, wrong_with
from tests.workflows.stories import pool


def a_human_closes_it_before_its_end_is_written_again() -> list[str]:
    """The answer of the function that has ended it was lost, and came again when he had seen to it."""
    it = world()
    it.reports(xid(999))
    close_incident(it.incident_id, "seen to", it.plain)
    end_incident(request_of(it), it.plain, it.policy)
    state = it.plain.incidents.history(it.incident_id).incident.state
    return wrong_with(it, (state is IncidentState.CLOSED, "what a human has closed is open again"))


def a_reboot_is_asked_for() -> list[str]:
    it = world()
    it.reports(request_action(BROKEN, Action.REBOOT, "ada: new firmware", it.plain))
    assert it.ends == RECOVERED
    return ["what a human has asked for speaks against the node"] if it.node().recoveries else []


def only_the_job_restarts() -> list[str]:
    it = world()
    it.reports(xid(31))
    assert it.ends == RECOVERED
    return ["a fault of the program speaks against the node"] if it.node().recoveries else []


def its_spare_fails_too() -> list[str]:
    it = world()
    it.diagnoses[SPARE] = Verdict.FAILED
    it.reports(xid(74))
    is_free = it.node(SPARE).is_available(it.clock())
    return wrong_with(it, ends_as(it, *HANDED_OVER), (not is_free, "what has failed is a spare again"))


def its_spare_passes() -> list[str]:
    it = world()
    it.reports(xid(74))
    state = it.node(SPARE).state
    return wrong_with(it, (state is NodeState.HEALTHY, f"a spare that has passed is {state}"))


def its_repair_does_not_help() -> list[str]:
    it = world(spare=False)
    it.diagnoses[BROKEN] = Verdict.FAILED
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *HANDED_OVER))


def another_fault_comes_at_the_end() -> list[str]:
    """Nobody has decided about it, so it is not settled."""
    it = world()
    worse = xid(79, event_id="late", observed_at=it.clock())
    it.meanwhile["end_incident"] = [lambda: it._ingest(worse)]
    it.reports(xid(31))
    it.settle()
    return [] if len(it.ends) == 2 else ["a fault that came at the end was lost"]


def the_next_run_fails_alike() -> list[str]:
    it = world()
    it.reports(xid(31))
    it.clock.advance(600)
    it._ingest(xid(31, event_id="again", observed_at=it.clock()))
    it.walk_what_was_started()
    return wrong_with(it, (len(it.ends) == 2, "the next run has failed as the last one did, and nobody restarts it"))


def it_is_given_back_while_it_waits() -> list[str]:
    """Its incident is closed by that, and its workflow wakes only to end."""
    it = world(spare=False)
    it.diagnoses[BROKEN] = Verdict.FAILED
    it.reports(xid(79))
    release_node(BROKEN, "repaired", it.plain)
    turn = it.plain.incidents.history(it.incident_id).incident.turn
    decide_next_step(DecideRequest(incident_id=it.incident_id, turn=turn), it.plain, it.policy)
    state = it.plain.incidents.history(it.incident_id).incident.state
    return [] if state is IncidentState.CLOSED else [f"what a human has seen to is {state} again"]


def what_is_quarantined_reports_again() -> list[str]:
    """A human has it; its faults join the incident that he has."""
    it = world(spare=False)
    it.diagnoses[BROKEN] = Verdict.FAILED
    it.reports(xid(79))
    ingest(xid(74, event_id="again", boot_id="boot-2", observed_at=it.clock()), it.plain, it.policy)
    started: list[str] = it.plain.workflows.started  # type: ignore[attr-defined]
    return [] if len(started) == 1 else ["a second recovery is at work on what a human has"]


def what_is_to_stay_quarantined_reports_again() -> list[str]:
    """Its incident has just ended, and keeps it: nothing is lost where the fault joins it."""
    it = world(spare=False)
    it.diagnoses[BROKEN] = Verdict.FAILED
    it.reports(xid(79))
    late = xid(74, event_id="late", boot_id="boot-2", observed_at=it.clock())
    try:
        ingest(late, it.plain, it.policy)
    except NotAccepted as refusal:
        return [f"its fault is sent back for ever: {refusal}"]
    return []


def _with_an_unmanaged_task(**said: Any) -> BreakingWorld:
    """Its owner has said that it may be stopped."""
    it = world(pool(stops_other_tasks=True), **said)
    unmanaged_task = UnmanagedTask("task/1", "eval:1", tags={names.MANAGED_TAG: names.MANAGED_TAG_VALUE})
    scheduler_in(it.plain).unmanaged["task/1"] = (BROKEN, unmanaged_task)
    return it


def _started_on(it: BreakingWorld) -> list[str]:
    return [where for where, _ in scheduler_in(it.plain).unmanaged_started]


def its_repair_does_not_help_and_a_task_was_stopped() -> list[str]:
    it = _with_an_unmanaged_task(spare=False)
    it.diagnoses[BROKEN] = Verdict.FAILED
    it.reports(xid(79))
    assert it.ends == HANDED_OVER
    return [f"a task was started on {name}, which is out of service" for name in _started_on(it)]


def its_spare_fails_too_and_a_task_was_stopped() -> list[str]:
    it = _with_an_unmanaged_task()
    it.diagnoses[SPARE] = Verdict.FAILED
    it.reports(xid(74))
    assert it.ends == HANDED_OVER
    return [f"a task was started on {name}, which has failed its test" for name in _started_on(it)]


def a_task_is_forgotten_while_it_is_stopped() -> list[str]:
    """The function is throttled after the stop; when it comes again, the scheduler knows nothing of the task."""
    it = _with_an_unmanaged_task(spare=False)

    def throttled() -> None:
        scheduler_in(it.plain).unmanaged_ended.clear()
        raise NotAccepted("too many calls")

    it.fuse.meanwhile["isolate_node", "jobs.save_run"] = throttled
    it.reports(xid(79))
    turns = it.plain.incidents.history(it.incident_id).turns
    told = [t.result.reason for t in turns if t.decision.step is Step.ISOLATE and t.result is not None]
    is_told = any("stopped, to be started again" in text for text in told)
    return wrong_with(it, ends_as(it, *RECOVERED), (is_told, f"nobody is told that a task was stopped: {told}"))
