"""What comes again, or was begun and broke off: it is done once, and it is done.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from nodeheal.contract.steps import StepRequest
from nodeheal.domain.errors import NotAccepted
from nodeheal.services.jobs.runs import current_run
from tests.unit.builders import xid
from tests.workflows.breaking_world import ACTS, BreakingWorld
from tests.workflows.fuse import Crash, InjectedFailure, LostAnswer
from tests.workflows.scenarios.setup import (
    HANDED_OVER,
    RECOVERED,
    breaks,
    ends_as,
    is_soon,
    made_of,
    world,
    wrong_with,
)
from tests.workflows.stories import TEMPLATE, pool


def two_faults_one_after_the_other() -> list[str]:
    it = world()
    it.before_walk = [xid(48)]
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def a_recovery_broke_before() -> list[str]:
    # A bug, which says so each time it is asked: a function that is merely gone is asked again.
    it = world(ACTS, breaks("incidents.advance", of="decide_next_step", error=RuntimeError))
    it.reports(xid(79))
    it._ingest(xid(79, event_id="again"))
    it.walk_what_was_started()
    return [] if it.ends == ("Recovery failed", "Recovered") else [f"after a recovery that broke: {it.ends}"]


def a_harmless_fault_repeats() -> list[str]:
    it = world()
    it.reports(xid(999))
    for number in range(3):
        it._ingest(xid(999, event_id=f"again-{number}"))
    it.walk_what_was_started()
    return wrong_with(it, ends_as(it, *HANDED_OVER))


def a_retired_node_reports() -> list[str]:
    it = world(pool(), spare=False, machine=TEMPLATE)
    it.reports(xid(74, **it.fault))
    it._ingest(xid(79, event_id="late", observed_at=it.clock(), **it.fault))
    it.walk_what_was_started()
    return wrong_with(it, ends_as(it, *RECOVERED))


def a_fault_comes_at_the_end() -> list[str]:
    """It comes after the last decision, and is not swallowed by it."""
    it = world()
    it.meanwhile["end_incident"] = [
        lambda: it._ingest(xid(74, event_id="late", boot_id="boot-2", observed_at=it.clock()))
    ]
    it.reports(xid(79))
    it._heard.clear()  # it is told once: what a function has taken is not told again
    it.settle()
    return [] if len(it.ends) == 2 else ["a fault that came at the end was lost"]


def it_grows_worse() -> list[str]:
    it = world()
    it.on_wait = lambda: it._ingest(xid(79))
    it.reports(xid(63))
    return wrong_with(it, ends_as(it, *RECOVERED), is_soon(it))


def the_start_is_lost_and_told_again() -> list[str]:
    it = world(ACTS, breaks("incidents.open", of="ingest", error=Crash))
    it._ingest(xid(79))
    return [] if it.plain.workflows.started else ["the event was told again, and nothing was started"]  # type: ignore[attr-defined]


def the_start_is_lost_for_good() -> list[str]:
    """Each delivery of the event dies, and it ends in the dead-letter queue."""
    opened = breaks("incidents.open", of="ingest", error=Crash).at
    it = world(ACTS, *(InjectedFailure(at, is_after=True, error=Crash) for at in range(opened, opened + 8)))
    it._ingest(xid(79))
    it._later.clear()
    it._heard.clear()
    it.fuse.injected_failures = ()
    wrong = it.faults()
    return wrong if it.ends == RECOVERED else [*wrong, f"after its start was lost: {it.ends}"]


def a_decision_is_asked_again() -> list[str]:
    it = world(ACTS, breaks("incidents.advance", of="decide_next_step", error=LostAnswer))
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def request_of(it: BreakingWorld) -> StepRequest:
    history = it.plain.incidents.history(it.incident_id)
    return StepRequest(incident_id=it.incident_id, turn=history.incident.turn, decision=history.turns[-1].decision)


def a_launch_is_repeated() -> list[str]:
    of = [
        n for n, made in enumerate(made_of(3)) if (made.function, made.call) == ("launch_gang", "scheduler.start_rank")
    ]
    it = world(ACTS, InjectedFailure(of[-1], is_after=True, error=NotAccepted))
    it.reports(xid(31))
    _, run = current_run("llama", it.plain)
    return wrong_with(it, ends_as(it, *RECOVERED), (run is not None and run.number == 2, "it was launched twice"))


def the_job_ends_before_the_wait() -> list[str]:
    it = world()
    it.meanwhile["wait_for_news"] = [it._gang_finishes]
    it.on_wait = lambda: None
    it.reports(xid(63))
    return wrong_with(it, ends_as(it, *RECOVERED), is_soon(it))
