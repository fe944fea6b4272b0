"""What heartbeats, silence, other services and hangs tell of a node, and what of it is news.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import INSTANCE_GONE, TRAINING_HANG
from nodeheal.contract.vocabulary import Family, NodeState, Verdict
from nodeheal.domain.fleet.liveness import STOPPED, TERMINATED, Heartbeat, liveness_of
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.ports.signals import Draft
from nodeheal.services.intake import liveness
from nodeheal.services.intake.heartbeats import BOOTS_A_RUN, record_missed_boots
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.intake.take_signal import take_draft
from nodeheal.services.operators.operator_guardrails import pause_pool
from tests.unit.builders import ACT, NOW, node, started_job, xid
from tests.workflows.breaking_world import ACTS, QUIET
from tests.workflows.fake_cluster import BROKEN, PEER
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import world

HOURS_LATER = NOW + timedelta(hours=3)


# Beats and silence


def _beat(name: str, boot_id: str = "boot-2", at: Any = NOW) -> Heartbeat:
    return Heartbeat(f"role:{name}", boot_id, at, 30.0)


def _boots_told(it: Moment, heartbeats: dict[str, Heartbeat]) -> list[str]:
    """Which boots one run notes, of the nodes as the sweep sees them."""
    seen = [liveness_of(one) for one in it.plain.nodes.in_pool("demo")]
    told: list[str] = it.does(lambda: record_missed_boots(seen, heartbeats, it.ports))
    return told


def many_beat_that_never_announced_themselves() -> list[str]:
    return _many_beat("boot-2", state=NodeState.ENROLLED)


def many_beat_whose_boots_are_known() -> list[str]:
    return _many_beat("boot-1")


def _many_beat(boot_id: str, **known: Any) -> list[str]:
    """Before the one whose boot was lost: a run notes so many boots at most."""
    it = Moment()
    names = [f"mi-0{number:03}" for number in range(BOOTS_A_RUN)]
    for name in names:
        it.plain.nodes.save(node(name, **known))
    told = _boots_told(it, {BROKEN: _beat(BROKEN), **{name: _beat(name, boot_id) for name in names}})
    return [] if told == [BROKEN] else [f"the boot of {BROKEN} has to wait; noted were {told}"]


def a_boot_is_announced_while_the_sweep_looks() -> list[str]:
    it = Moment()
    seen = [liveness_of(one) for one in it.plain.nodes.in_pool("demo")]
    it.is_written(boot_id="boot-2", past_boots=("boot-1",), booted_at=NOW)
    told = it.does(lambda: record_missed_boots(seen, {BROKEN: _beat(BROKEN, at=NOW + timedelta(seconds=1))}, it.ports))
    return [f"{name} is said to have booted, which is known" for name in told]


def a_node_is_heard_while_the_silent_are_looked_at() -> list[str]:
    it = Moment()
    it.plain.clock.now = HOURS_LATER  # type: ignore[attr-defined]
    heartbeats = {BROKEN: _beat(BROKEN, "boot-1", HOURS_LATER)}
    silent = it.does(lambda: list(liveness._still_silent([BROKEN], heartbeats, it.ports, ACT)))
    return [f"{one.node_id} has just been heard" for one in silent]


def the_gang_has_left_a_silent_node() -> list[str]:
    it = Moment()
    started_job(JOB, [node(PEER, version=1)], it.plain)
    _all_run(it)
    it.is_written(job_id="llama")
    return _is_vouched_for(it)


def the_whole_gang_is_silent() -> list[str]:
    it = Moment()
    started_job(replace(JOB, nodes=2), [node(BROKEN, version=1), node(PEER, version=1)], it.plain)
    _all_run(it)
    it.plain.clock.now = HOURS_LATER  # type: ignore[attr-defined]
    return _is_vouched_for(it)


def _all_run(it: Moment) -> None:
    run = it.plain.jobs.get_run("llama", 1)
    assert run is not None
    it.plain.jobs.save_run(replace(run, tasks=tuple(replace(task, status="RUNNING") for task in run.tasks)))


def _is_vouched_for(it: Moment) -> list[str]:
    silent = it.plain.nodes.get(BROKEN)
    assert silent is not None
    said = it.does(lambda: liveness._ask_gang(silent, {}, it.ports, ACT))
    return [f"a silent node is taken for alive: {one.text}" for one in said if one.is_up]


# What others say


def draft_of(**said: Any) -> Draft:
    """What somebody says of a node."""
    known = {"source": "aws.ec2", "family": Family.host, "code": "said", "key": str(said), "observed_at": NOW}
    return Draft(**{"instance_id": BROKEN, **known, **said})


def _said(it: Moment, **said: Any) -> Any:
    return it.does(lambda: take_draft(draft_of(**said), it.ports, ACTS))


def _untouched(it: Moment) -> list[str]:
    started: list[str] = it.plain.workflows.started  # type: ignore[attr-defined]
    return [f"{name} was opened" for name in started]


def somebody_says_something_advisory() -> list[str]:
    it = Moment()
    _said(it, is_advisory=True, verdict=Verdict.FAILED)
    return _untouched(it)


def something_older_is_said_later() -> list[str]:
    it = Moment()
    _said(it, topic="agent", version=2, verdict=Verdict.OK)
    _said(it, topic="agent", version=1, verdict=Verdict.FAILED)
    return _untouched(it)


GONE: dict[str, Any] = {"code": INSTANCE_GONE, "subcode": TERMINATED, "takes_node_away": True}


def a_machine_goes_that_nobody_needs() -> list[str]:
    it = Moment()
    _said(it, **GONE)
    gone = it.plain.nodes.get(BROKEN)
    assert gone is not None
    return [*_untouched(it), *([] if gone.state is NodeState.RETIRED else [f"what is gone is {gone.state}"])]


def a_machine_is_stopped_that_nobody_needs() -> list[str]:
    it = Moment()
    _said(it, **{**GONE, "subcode": STOPPED})
    kept = it.plain.nodes.get(BROKEN)
    assert kept is not None
    return ["what may be started again is retired for good"] if kept.state is NodeState.RETIRED else []


def a_machine_goes_under_a_rank() -> list[str]:
    it = Moment()
    started_job(JOB, [node(BROKEN, version=1)], it.plain)
    _said(it, **GONE)
    return [] if _untouched(it) else ["a job has lost its node, and nobody sees to it"]


def a_machine_goes_that_is_being_recovered() -> list[str]:
    """By our own hand, most likely: no ladder climbs for it."""
    it = Moment()
    ingest(xid(79), it.plain, ACTS)
    it.is_written(state=NodeState.RECOVERING)
    _said(it, **GONE)
    events = it.plain.incidents.history(incident_id_of(xid(79))).events
    return [f"{e.code} is held against it" for e in events if e.code == INSTANCE_GONE and e.verdict is not Verdict.OK]


def a_node_is_written_while_its_machine_goes() -> list[str]:
    it = Moment("nodes.save", lambda it: it.is_written(last_seen=NOW))
    _said(it, **GONE)
    gone = it.plain.nodes.get(BROKEN)
    return [] if gone is not None and gone.state is NodeState.RETIRED else ["what is gone is not retired"]


# Hangs


def _hangs(run: int, name: str = BROKEN) -> HealthEvent:
    said = {"family": Family.host, "code": TRAINING_HANG, "component": f"llama/{run}", "event_id": f"hang-{name}"}
    return xid(0, **said, node_id=name, instance_id=name)


def _trains() -> Moment:
    it = Moment()
    started_job(replace(JOB, nodes=2), [node(BROKEN, version=1), node(PEER, version=1)], it.plain)
    return it


def an_older_run_is_said_to_hang() -> list[str]:
    it = _trains()
    it.job_is_written(current_run=2)
    older = it.ports.jobs.get_run("llama", 1)
    assert older is not None
    assert it.plain.jobs.save_run(replace(older, number=2, version=0))
    it.does(lambda: ingest(_hangs(1), it.ports, ACTS))
    return _untouched(it)


def a_job_is_said_to_hang_where_another_one_runs() -> list[str]:
    it = _trains()
    it.is_written(job_id="another")
    it.does(lambda: ingest(_hangs(1), it.ports, ACTS))
    return _untouched(it)


def two_nodes_say_that_their_run_hangs() -> list[str]:
    it = _trains()
    for name in (BROKEN, PEER):
        ingest(_hangs(1, name), it.plain, ACTS)
    return _untouched(it)[1:]


# What is said again


def it_repeats_while_it_is_observed() -> list[str]:
    return _repeats(RecoveryPolicy().model_copy(update=QUIET))


def it_repeats_while_it_is_opted_out() -> list[str]:
    return _repeats(ACTS.model_copy(update={"opted_out": {BROKEN: "ours"}}))


def it_repeats_while_its_pool_is_paused() -> list[str]:
    return _repeats(ACTS, seconds=10**6)


def _repeats(policy: RecoveryPolicy, seconds: int = 0) -> list[str]:
    """The fault was seen and nothing done, and nothing would be done now."""
    it = world(policy)
    if seconds:
        pause_pool("demo", seconds, "hands off", it.plain)
    it.reports(xid(79))
    assert it.ends == ("Observed only",)
    it._ingest(xid(79, event_id="again"))
    it.walk_what_was_started()
    return [] if len(it.ends) == 1 else ["people are told of one fault again and again"]
