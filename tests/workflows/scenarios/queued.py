"""Whose turn it is, who is called when a slot is free, and at which nodes a human has looked.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.contract.vocabulary import Ending, IncidentState, Outcome
from nodeheal.domain.jobs.job import CheckAnswer
from nodeheal.domain.recovery.incident import Incident
from nodeheal.services.jobs.job_nodes import claim
from tests.support.builders import NOW, xid
from tests.support.fake_cluster import BROKEN, PEER
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.races import JOB, Moment

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
