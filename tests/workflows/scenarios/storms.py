"""Many nodes fail together, breakers open and are reset, windows pass: what that says of one node, and what not.

Each is one history or one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.vocabulary import Awaited, Family, Outcome, Provider, Step, VerbName
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import MaintenanceWindow, Mode, PoolPolicy, Weekday
from nodeheal.domain.recovery import guardrails
from nodeheal.domain.recovery.ending import settled_faults
from nodeheal.domain.recovery.incident import fingerprint
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.recovery.timeline import JobLeft, TimelineEntry
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.recovery import carry_out
from tests.support.builders import ACT, NOW, node, started_job, under_way, xid
from tests.support.fake_cluster import PEER
from tests.support.guardrails import OPEN, no_capacity, waited
from tests.support.incident_steps import Incident
from tests.support.observations import crowd, seen
from tests.support.policies import with_policy
from tests.support.recovery_story import Story
from tests.support.step_functions import isolate_node
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.climbs import EARLIER, next_is
from tests.workflows.scenarios.races import JOB
from tests.workflows.scenarios.turns import opened

HOUR = timedelta(hours=1)
WINDOW = MaintenanceWindow(days=(Weekday.sunday,), starts_at="02:00", minutes=120, why="the weekly patching")
PATCHED = ACT.model_copy(update={"default_pool": PoolPolicy(mode=Mode.act, maintenance=(WINDOW,))})


# What is asked for, and what leaves, in the middle of it


def an_operator_asks_for_a_reboot_in_a_storm() -> list[str]:
    return next_is(_in_a_storm(_asked()), Step.ISOLATE)


def a_spot_machine_is_taken_back_in_a_storm() -> list[str]:
    """In two minutes it is gone, whatever the others have."""
    return next_is(_in_a_storm(xid(0, family=Family.host, code="spot_interruption", source="aws.ec2")), Step.ISOLATE)


def an_operator_asks_for_a_reboot_in_maintenance() -> list[str]:
    """Maintenance is where operators work by hand. NOW is a Sunday, three o'clock."""
    return next_is(Story(_asked(), policy=PATCHED), Step.ISOLATE)


def _asked() -> HealthEvent:
    return xid(0, family=Family.host, code=OPERATOR_REQUEST, subcode="REBOOT")


def _in_a_storm(fault: HealthEvent) -> Story:
    return Story(fault).amid(observations=crowd(5), pool_nodes=10)


# Breakers


def a_storm_comes_long_after_a_reset() -> list[str]:
    was_reset = OPEN.reset("looked at", NOW - HOUR)
    return next_is(_in_a_storm(xid(79)).amid(pool=was_reset), Step.WAIT)


def a_breaker_was_reset_for_which_it_has_not_waited() -> list[str]:
    """It was somewhere else in the meantime: what it stands for, nobody has looked at."""
    return next_is(Story(xid(79)).amid(pool=OPEN.reset("looked at", NOW + HOUR)), Step.ISOLATE)


def its_storm_is_over_before_the_breaker_opened() -> list[str]:
    """So nobody had one to reset."""
    story = waited(_in_a_storm(xid(79)), Outcome.DONE).amid(observations=())
    try:
        return next_is(story, Step.ISOLATE)
    except TypeError as surprise:
        return [f"nothing is decided: {surprise}"]


def its_neighbours_fail_while_it_is_rebooted() -> list[str]:
    """The breaker opens, and what is next is only its proof: there is no wait to be told of."""
    it = Incident()
    it.isolate(), it.reboot()
    for number in range(5):
        name = f"mi-crowd-{number}"
        it.ports.nodes.save(node(name))
        there = {"node_id": name, "instance_id": name, "event_id": f"of-{name}", "observed_at": it.clock()}
        ingest(xid(79, **there), it.ports, it.policy)
    proves = it.request().decision.step is Step.DIAGNOSE and it.ports.pools.get("demo").is_tripped
    told = [text for _, text in it.ports.notifier.announced]  # type: ignore[attr-defined]
    return [] if proves and None not in told else ["people are told of a wait that is none"]


def _is_open(policy: RecoveryPolicy, fault: HealthEvent) -> list[str]:
    story = _in_a_storm(fault)
    cause = guardrails.breaker_cause(Situation(story.history, policy), NOW)
    return [f"the breaker opens: {cause.text}"] if cause is not None else []


# Whose it is


def another_node_of_its_run_has_just_shown_it() -> list[str]:
    """One of them restarts the job."""
    others = (seen(31, observed_at=EARLIER),)
    return next_is(Story(xid(31)).amid(observations=others, run_started_at=NOW - HOUR), Step.CLOSE)


def it_was_given_back_before_it_was_touched() -> list[str]:
    """Whoever isolates it finds that out, and a human hears of it: nobody has withdrawn a fault."""
    return next_is(Story(xid(79)).amid(is_released_or_retired=True), Step.ISOLATE)


def the_job_that_was_left_to_it_runs() -> list[str]:
    """What it is about asks for nothing."""
    story = Story(xid(45)).amid(job_is_running=True)
    left = TimelineEntry(NOW, "job-left-inc-1", "inc-1 has left llama to this incident", JobLeft("inc-1"))
    story.history = replace(story.history, timeline=(left,))
    return next_is(story, Step.CLOSE)


def a_gang_runs_when_an_incident_of_it_ends() -> list[str]:
    """Who waits for the job's end waits on: each look would use one of its turns up."""
    it, mine = opened()
    started_job(JOB, [node(PEER, version=1)], it.plain)
    it.is_written(PEER, open_incident="inc-peer", job_id="llama")
    under_way(it.plain, VerbName.WAIT, incident_id="inc-peer")
    ended = replace(it.plain.incidents.history(mine.incident_id).incident, job_id="llama")
    of_peer = replace(ended, incident_id="inc-peer", node_id=PEER, turn=1)
    it.plain.incidents.incidents["inc-peer"] = of_peer  # type: ignore[attr-defined]
    it.does(lambda: carry_out._wake_incidents_of_job(ended.job_id, ended.incident_id, it.ports))
    return ["the job runs, and who waits for its end is woken"] if it.plain.workflows.resumed else []  # type: ignore[attr-defined]


def ec2_does_not_answer_when_a_node_of_ours_is_isolated() -> list[str]:
    """It knows nothing of such a node, so that nobody asks it."""
    it = Incident()

    def too_busy(machine_id: str) -> None:
        raise NotAccepted(f"DescribeInstances: {machine_id}")

    it.ports.machines.describe = too_busy  # type: ignore[method-assign]
    try:
        isolate_node(it.request(), it.ports, it.policy)
    except NotAccepted as surprise:
        return [f"it is not isolated: {surprise}"]
    return []


# What is counted


def its_job_is_restarted_when_it_is_healed() -> list[str]:
    """What its node had is settled by that, too: told again, it is no news."""
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE).then(Outcome.DONE, "llama runs again")
    settled = settled_faults(node(), Situation(story.history, ACTS), story.next())
    return [] if list(settled) == [fingerprint(xid(79))] else ["what was healed is healed again"]


def no_machine_was_to_be_had_at_first() -> list[str]:
    """What it waits for before a replacement is nothing to a stop and start."""
    climbs = {"fault": "xid/79", "ladder": ["REPLACE"], "why": "ours"}
    short = no_capacity(Story(xid(79), policy=with_policy(overrides=[climbs])).amid(provider=Provider.ec2).isolated())
    reboots = {"fault": "xid/79", "ladder": ["REBOOT"], "why": "ours, since a minute"}
    short.policy = with_policy(overrides=[reboots])
    decided = short.next()
    return [] if decided.awaits is not Awaited.CAPACITY else [f"its {decided.action} waits for a machine"]
