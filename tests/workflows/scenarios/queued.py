"""Whose turn it is, who is called when a slot is free, and at which nodes a human has looked.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.contract.names import pool_line
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, Ending, IncidentState, Outcome, Step, VerbName
from nodeheal.domain.jobs.job import CheckAnswer
from nodeheal.domain.recovery.incident import Incident
from nodeheal.services.jobs.job_nodes import claim
from nodeheal.services.recovery.queue import place_of
from tests.unit.builders import NOW, under_way, xid
from tests.workflows.breaking_world import ACTS, BreakingWorld
from tests.workflows.fake_cluster import BROKEN, PEER
from tests.workflows.fuse import Fuse
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import world
from tests.workflows.stories import STORIES

# Whose turn it is


def one_without_a_job_came_first() -> list[str]:
    return _goes_first(("llama", Action.REBOOT, 1), (None, Action.REBOOT, 0))


def one_with_less_to_do_came_first() -> list[str]:
    return _goes_first((None, Action.REPLACE, 1), (None, Action.REBOOT, 0))


def _goes_first(*each: tuple[str | None, Action, int]) -> list[str]:
    """Its job, what is to be done, and how many minutes late it came."""
    places = []
    for job, action, minutes in each:
        incident = Incident("inc", BROKEN, "demo", xid(79), NOW + timedelta(minutes=minutes), "policy", job_id=job)
        places.append(place_of(Decision(step=Step.WAIT, reason="in line", node_id=BROKEN, action=action), incident))
    return [] if places[0] < places[1] else ["what holds up less goes first"]


def somebody_stands_in_line_when_a_node_is_back() -> list[str]:
    return _is_called(world(spare=False), 79)


def somebody_stands_in_line_when_a_new_machine_is_in_place() -> list[str]:
    return _is_called(STORIES[1].make(Fuse(writes_only=True)), 74)


# Who has been looked at


def a_neighbour_was_looked_at() -> list[str]:
    return _is_chosen(PEER, NOW + timedelta(minutes=1))


def it_was_looked_at_before_its_check() -> list[str]:
    return _is_chosen(BROKEN, NOW - timedelta(hours=1))


def _is_chosen(looked_at: str, opened_at: datetime) -> list[str]:
    """It has failed its check, and a human has closed another incident."""
    it = Moment()
    for name in (BROKEN, PEER):
        it.is_written(name, passed_at=None)
    it.plain.job_notes.note_answer("llama", CheckAnswer("llama-1-0", BROKEN, "boot-1", Outcome.FAILED, "said", NOW))
    # The list of incidents is read from the first check that failed: here, from long before its own.
    early = CheckAnswer("llama-1-1", PEER, "boot-1", Outcome.FAILED, "said", NOW - timedelta(hours=2))
    it.plain.job_notes.note_answer("llama", early)
    closed = Incident("inc", looked_at, "demo", xid(79), opened_at, "policy", state=IncidentState.CLOSED)
    closed = replace(closed, ending=Ending.HANDED_TO_A_HUMAN, closed_at=opened_at)
    it.plain.incidents.incidents["inc"] = closed  # type: ignore[attr-defined]
    it.plain.clock.advance(600)  # type: ignore[attr-defined]
    found = it.does(lambda: claim(JOB, it.ports, ACTS))
    return [f"{BROKEN} is chosen again"] if BROKEN in [one.node_id for one in found.nodes] else []


def _is_called(it: BreakingWorld, code: int) -> list[str]:
    called: list[bool] = []

    def has_come() -> None:
        line = (pool_line(Awaited.BUDGET, "demo"), "00#first")
        under_way(it.plain, VerbName.WAIT, incident_id="inc-of-peer", node_id=PEER, token="of peer", line=line)

    it.meanwhile["return_to_service"] = [has_come]
    it.meanwhile["end_incident"] = [lambda: called.append("of peer" in it.plain.workflows.resumed)]  # type: ignore[attr-defined]
    it.reports(xid(code, **it.fault))
    return [] if called == [True] else ["its slot is free, and who waits for one is not called"]
