"""What is one of several: nodes that show one fault, machines that come up together, faults that belong to another.

Each is one history or one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.steps import Reservation, StepRequest
from nodeheal.contract.vocabulary import (
    Action,
    Ending,
    Family,
    IncidentState,
    JobState,
    NodeState,
    Outcome,
    Step,
    VerbName,
    Verdict,
)
from nodeheal.domain.operation import incident_owner
from nodeheal.domain.recovery.decision_context import Observation, node_scope
from nodeheal.operations import launch_gang
from nodeheal.operations.engine import conclude
from nodeheal.operations.gang import GangRecord
from nodeheal.services.intake import liveness
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs.job_nodes import replacement_nodes
from nodeheal.services.operators.withdraw_request import withdraw_request
from tests.unit.builders import ACT, NOW, node, started_job, under_way, xid
from tests.unit.step_functions import replace_node
from tests.unit.test_decide import Story
from tests.unit.test_decide_among_others import OTHER, seen
from tests.unit.test_guardrails import APPROVE, waited
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, PEER, SPARE
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.turns import opened

EARLIER, LATER = NOW - timedelta(seconds=20), NOW + timedelta(minutes=10)


def _next(story: Story, *steps: Step) -> list[str]:
    decided = story.next()
    return [] if decided.step in steps else [f"{decided.step.value} {decided.action or ''} is next: {decided.reason}"]


# One restart of a job


def another_node_of_the_job_has_shown_it_first() -> list[str]:
    return _next(Story(xid(31)).amid(observations=(seen(31, observed_at=EARLIER),)), Step.CLOSE)


def its_next_run_fails_alike() -> list[str]:
    return _next(_restarted(Outcome.DONE).reports(_again()), Step.RESTART_WORKLOAD)


def its_job_could_not_be_restarted() -> list[str]:
    return _next(_restarted(Outcome.FAILED).reports(_again()), Step.ESCALATE)


def _restarted(outcome: Outcome) -> Story:
    story = Story(xid(31)).then(outcome, "so it went")
    story.now = LATER
    return story


def _again() -> HealthEvent:
    return xid(31, event_id="again", observed_at=LATER)


def a_yes_comes_before_its_node_is_paused() -> list[str]:
    """Who has said yes has to hear that nothing was done."""
    story = waited(Story(xid(79), policy=APPROVE), Outcome.DONE, "approved by ada")
    paused = story.amid(node_paused_until=LATER, node_paused_why="ours").next()
    return [] if paused.ending is Ending.HANDED_TO_A_HUMAN else [f"he thinks that it is healed: {paused.reason}"]


# One incident of a fabric


_SWITCH: dict[str, Any] = {"family": Family.sxid, "labels": {"fabric": "clique-1"}}


def _is_its_own(other: Observation) -> list[str]:
    """A switch is broken, and beside it something was seen that is no reason to leave it to somebody else."""
    return _next(Story(_fabric_fault()).amid(observations=(other,)), Step.ISOLATE)


def another_node_of_its_fabric_has_told_later() -> list[str]:
    """To which this one's incident is the fabric's: if each left it to the other, nobody would see to it."""
    return _is_its_own(_seen_fabric(observed_at=NOW + timedelta(seconds=20)))


def another_fabric_is_broken_too() -> list[str]:
    return _is_its_own(_seen_fabric(observed_at=EARLIER, labels={"fabric": "clique-2"}))


def it_has_told_of_its_fabric_before() -> list[str]:
    return _is_its_own(_seen_fabric(node_id=BROKEN, observed_at=EARLIER))


def something_else_was_seen_in_its_fabric() -> list[str]:
    return _is_its_own(seen(31, observed_at=EARLIER, labels={"fabric": "clique-1"}))


def another_node_of_its_fabric_has_told_before() -> list[str]:
    """One incident for one fabric."""
    story = Story(_fabric_fault()).amid(observations=(_seen_fabric(observed_at=EARLIER),))
    return _next(story, Step.CLOSE)


def _fabric_fault() -> HealthEvent:
    return xid(10003, **_SWITCH)


def _seen_fabric(node_id: str = OTHER, **changes: Any) -> Observation:
    return seen(10003, node_id, **{**_SWITCH, **changes})


# New machines of one group


# What is no fault


def it_says_that_it_is_well() -> list[str]:
    return _opens(verdict=Verdict.OK, family=Family.nvml, code="ok")


def it_beats() -> list[str]:
    return _opens(family=Family.heartbeat, code="alive", verdict=Verdict.UNKNOWN)


def _opens(**said: Any) -> list[str]:
    it = Moment()
    it.does(lambda: ingest(xid(0, **said), it.ports, ACTS))
    started = it.plain.workflows.started  # type: ignore[attr-defined]
    return [f"{name} was opened" for name in started]


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


# Who is looked at


def it_was_given_back_at_the_deadline_of_its_isolation() -> list[str]:
    return _is_drained(state=NodeState.HEALTHY)


def it_was_anothers_at_the_deadline_of_its_isolation() -> list[str]:
    return _is_drained(state=NodeState.ISOLATED, open_incident="inc-of-another")


def _is_drained(**known: Any) -> list[str]:
    it, mine = opened()
    asks = mine.model_copy(update={"decision": mine.decision.model_copy(update={"step": Step.ISOLATE, "job_id": None})})
    drained = GangRecord(is_asked=True, is_drained=True).model_dump_json()
    of = {"owner": incident_owner(mine.incident_id), "incident_id": mine.incident_id}
    under_way(it.plain, VerbName.ISOLATE, data_json=drained, **of)
    it.is_written(**known)
    found = it.does(lambda: conclude(asks, it.ports))
    return ["a node that may work is taken for drained"] if found.outcome is Outcome.DONE else []


def its_peer_is_back_when_it_is_launched() -> list[str]:
    """It has passed, and its incident has not ended yet."""
    return _is_in_the_way(79, healthy_since=NOW)


def its_peer_has_a_fault_of_its_program() -> list[str]:
    return _is_in_the_way(31)


def its_peer_waits_for_the_jobs_end() -> list[str]:
    return _is_in_the_way(63)


def _is_in_the_way(code: int, **known: Any) -> list[str]:
    it, mine = opened()
    peers = xid(code, node_id=PEER, instance_id=PEER, event_id="peer")
    started_job(JOB, [node(PEER, version=1)], it.plain)
    ingest(peers, it.plain, ACTS)
    it.is_written(PEER, **known)
    peer = it.plain.nodes.get(PEER)
    assert peer is not None
    assert peer.open_incident
    why = launch_gang._why_unfit(peer, mine, it.plain, ACTS)
    return [f"the job is not launched: {why}"] if why else []


def the_gang_of_a_silent_node_has_ended() -> list[str]:
    it = Moment()
    started_job(replace(JOB, nodes=2), [node(BROKEN, version=1), node(PEER, version=1)], it.plain)
    run = it.plain.jobs.get_run("llama", 1)
    assert run is not None
    own, peers = run.tasks
    ended = (replace(own, status="RUNNING"), replace(peers, status="STOPPED", exit_code=0))
    it.plain.jobs.save_run(replace(run, tasks=ended))
    it.is_written(job_id="llama")
    silent = it.plain.nodes.get(BROKEN)
    assert silent is not None
    said = it.does(lambda: liveness._ask_gang(silent, {}, it.ports, ACT))
    return [f"a silent node is taken for alive: {one.text}" for one in said if one.is_up]


# A rank a node: a member of a gang that a human has given back has no job's name on it, while its gang is down.


def a_free_member_of_the_gang_is_no_spare() -> list[str]:
    it, mine = _gang_is_down()
    swapped = it.does(lambda: replace_node(_replaces(mine), it.ports, ACTS))
    peer = it.plain.nodes.get(PEER)
    taken = peer is not None and peer.open_incident == mine.incident_id
    return [f"a rank's own node is to bear another rank: {swapped}"] if taken else []


def a_free_member_of_the_gang_stands_in_for_nobody() -> list[str]:
    it, _ = _gang_is_down()
    names = [one.node_id for one in replacement_nodes(JOB, it.plain)]
    return ["a rank's own node counts as a free one"] if PEER in names else []


def a_member_of_a_gang_that_is_over_is_a_spare() -> list[str]:
    it, mine = _gang_is_down()
    job = it.plain.jobs.get("llama")
    assert job is not None
    assert it.plain.jobs.save(replace(job, state=JobState.COMPLETED))
    it.does(lambda: replace_node(_replaces(mine), it.ports, ACTS))
    peer = it.plain.nodes.get(PEER)
    return [] if peer is not None and peer.open_incident == mine.incident_id else ["a free node is not taken"]


def another_job_has_a_member_of_the_gang() -> list[str]:
    return _goes_on_beside(job_id="another")


def another_job_has_claimed_a_member_of_the_gang() -> list[str]:
    return _goes_on_beside(claimed_by="another")


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
    peer = it.plain.nodes.get(PEER)
    assert peer is not None
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
