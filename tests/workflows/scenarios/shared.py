"""What is one of several: nodes that show one fault, machines that come up together, faults that belong to another.

Each is one history or one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.steps import Reservation, StepRequest
from nodeheal.contract.vocabulary import (
    Action,
    Family,
    IncidentState,
    JobState,
    NodeState,
    Step,
    Verdict,
)
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.operations import launch_gang
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators.withdraw_request import withdraw_request
from tests.support.builders import NOW, node, started_job, stored_node, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE
from tests.support.recovery_story import Story
from tests.support.step_functions import replace_node
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.turns import opened

EARLIER, LATER = NOW - timedelta(seconds=20), NOW + timedelta(minutes=10)


def _next(story: Story, *steps: Step) -> list[str]:
    decided = story.next()
    return [] if decided.step in steps else [f"{decided.step.value} {decided.action or ''} is next: {decided.reason}"]


# One incident of a fabric


_SWITCH: dict[str, Any] = {"family": Family.sxid, "labels": {"fabric": "clique-1"}}


# What is no fault


def it_is_well_when_a_request_is_withdrawn() -> list[str]:
    it = Moment()
    asked = xid(0, family="host", code=OPERATOR_REQUEST, subcode="REBOOT", event_id="asked")
    ingest(asked, it.plain, ACTS)
    ingest(xid(0, family="nvml", code="ok", verdict=Verdict.OK, event_id="well"), it.plain, ACTS)
    known = it.plain.incidents.incidents  # type: ignore[attr-defined]
    for name, one in list(known.items()):
        known[name] = replace(one, state=IncidentState.WAITING)
    told = it.does(lambda: withdraw_request(BROKEN, "the wrong node", it.ports))
    return [] if told in known else [f"he cannot withdraw it: {told}"]


# A rank a node: a member of a gang that a human has given back has no job's name on it, while its gang is down.


def a_free_member_of_the_gang_is_no_spare() -> list[str]:
    it, mine = _gang_is_down()
    swapped = it.does(lambda: replace_node(_replaces(mine), it.ports, ACTS))
    peer = it.plain.nodes.get(PEER)
    taken = peer is not None and peer.open_incident == mine.incident_id
    return [f"a rank's own node is to bear another rank: {swapped}"] if taken else []


def another_job_has_a_member_of_the_gang() -> list[str]:
    return _goes_on_beside(job_id="another")


def a_job_that_is_over_had_a_member_of_the_gang() -> list[str]:
    it, mine = _gang_is_down()
    assert it.plain.jobs.save(replace(JOB, job_id="another", state=JobState.COMPLETED))
    it.is_written(PEER, job_id="another")
    return [f"the job is not launched: {why}"] if (why := _why_unfit(it, mine)) else []


def _goes_on_beside(**known: Any) -> list[str]:
    it, mine = _gang_is_down()
    assert it.plain.jobs.save(replace(JOB, job_id="another", state=JobState.RUNNING))
    it.is_written(PEER, **known)
    return [] if _why_unfit(it, mine) else ["two jobs are on one node"]


def _why_unfit(it: Moment, mine: StepRequest) -> str:
    peer = stored_node(it.plain, PEER)
    return launch_gang._why_unfit(peer, mine, it.plain, ACTS)


def _gang_is_down() -> tuple[Moment, StepRequest]:
    """Two ranks; its peer was out of service, and has been given back. No other node is free."""
    it, mine = opened()
    started_job(replace(JOB, nodes=2), [node(BROKEN, version=1), node(PEER, version=1)], it.plain)
    it.is_written(PEER, job_id=None)
    it.is_written(SPARE, job_id="other-job")
    it.is_written(BROKEN, state=NodeState.ISOLATED)
    it.plain.pools.claim("demo", BROKEN, 1)
    return it, mine


def _replaces(mine: StepRequest) -> StepRequest:
    limit = Reservation(scope=node_scope(BROKEN), limit=ACTS.limits[Action.REPLACE])
    said = {"step": Step.REPLACE, "action": Action.REPLACE, "reserve": (limit,)}
    decision = mine.decision.model_copy(update=said)
    return mine.model_copy(update={"decision": decision, "task_token": "token"})
