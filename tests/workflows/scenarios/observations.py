"""What was seen elsewhere and before, and what is told twice: what of it counts, under which job, and how often.

Each is one history or one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Awaited, Family, JobState, Step, VerbName, Verdict
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import fingerprint, incident_id_of
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.jobs.start_gang import find_unnoted, record_run
from nodeheal.services.jobs.sweep_jobs import sweep_jobs
from nodeheal.services.operators.operator_guardrails import pause_pool
from tests.support.builders import NOW, node, scheduler_in, under_way, xid
from tests.support.fake_cluster import BROKEN
from tests.support.observations import seen
from tests.support.policies import with_policy
from tests.support.recovery_story import Story
from tests.workflows.breaking_world import ACTS, QUIET, BreakingWorld
from tests.workflows.scenarios.climbs import next_is
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import world
from tests.workflows.scenarios.turns import opened, turned

OLD = "from before the node's current boot"


# What is kept


def operators_ask_for_many_reboots() -> list[str]:
    """Which says nothing of what fails by itself."""
    asked = tuple(
        seen(0, f"mi-hand-{number}", family=Family.host, code=OPERATOR_REQUEST, subcode="REBOOT")
        for number in range(12)
    )
    return next_is(Story(xid(79)).amid(observations=asked, pool_nodes=12), Step.ISOLATE)


# What was started


def its_rank_was_stopped_before_it_was_noted() -> list[str]:
    it = Moment()
    it.plain.jobs.save(JOB)
    run = record_run(replace(JOB, version=1), [node(BROKEN)], "mine", it.plain)
    scheduler_in(it.plain).stop_rank(
        "training", scheduler_in(it.plain).start_rank(JOB, run, run.tasks[0], {}), "by hand"
    )
    found = it.does(lambda: find_unnoted(JOB, run, it.ports))
    return [] if all(task.has_stopped for task in found.tasks) else ["a rank that was stopped is waited for"]


def a_jobs_workflow_begins_late() -> list[str]:
    """It was started, and has noted nothing yet when the sweep passes."""
    it = Moment()
    it.plain.jobs.save(replace(JOB, state=JobState.SUBMITTED))
    it.plain.workflows.run_job("llama", 1)
    it.plain.clock.advance(120)  # type: ignore[attr-defined]
    it.does(lambda: sweep_jobs("demo", it.ports, ACTS))
    started = it.plain.workflows.jobs_started  # type: ignore[attr-defined]
    return [] if len(started) == 1 else ["two workflows run one job"]


# What was decided on, and is told again


def its_good_news_is_told_again_while_it_waits() -> list[str]:
    return _is_told_again(xid(0, family=Family.nvml, code="ok", verdict=Verdict.OK, event_id="well"))


def _is_told_again(event: HealthEvent) -> list[str]:
    """Each time that it is woken is one of its turns."""
    it, mine = opened()
    ingest(event, it.plain, ACTS)
    known = len(it.plain.incidents.history(mine.incident_id).events)
    waits = Decision(step=Step.WAIT, reason="it comes up", node_id=BROKEN, awaits=Awaited.SETTLED, events_seen=known)
    turned(it, mine, waits)
    under_way(it.plain, VerbName.WAIT, incident_id=mine.incident_id)
    it.does(lambda: ingest(event, it.ports, ACTS))
    resumed = it.plain.workflows.resumed  # type: ignore[attr-defined]
    return ["it is woken for what it knows"] if resumed else []


# What was dealt with on this boot, and comes again


OBSERVES = with_policy(default_pool={"mode": "observe"}).model_copy(update=QUIET)
OPTED_OUT = with_policy(
    default_pool={"mode": "act", "budget": {"max_nodes": 1, "max_percent": 100}}, opted_out={BROKEN: "it is ours"}
).model_copy(update=QUIET)


def it_repeats_while_it_is_opted_out() -> list[str]:
    return _is_told_once(world(OPTED_OUT))


def it_repeats_what_may_climb_while_its_pool_is_paused() -> list[str]:
    it = world()
    pause_pool("demo", 10**6, "hands off", it.plain)
    return _is_told_once(it, code=94)


def _is_told_once(it: BreakingWorld, code: int = 79) -> list[str]:
    it.reports(xid(code))
    it._ingest(xid(code, event_id="again"))
    it.walk_what_was_started()
    return [] if it.ends == ("Observed only",) else ["people are told of one fault again and again"]


def its_trend_comes_again_and_again_where_nothing_may_be_done() -> list[str]:
    """Nothing held the first one back: it asked for nothing. By now it asks for something."""
    became = _comes_again(1, 2, policy=OBSERVES)
    return [] if became[-1] is Ingested.OPENED else ["nobody hears that it comes again and again"]


def other_faults_come_between() -> list[str]:
    return [] if _comes_again(3, others=(1, 2)) == [Ingested.REPEATED] else ["what others say is held against it"]


def its_old_reports_come_late() -> list[str]:
    """The newest first: each is older than what was dealt with."""
    became = _comes_again(-1, -2, -3)
    return [] if set(became) == {Ingested.REPEATED} else ["what was before is taken for what came since"]


def a_fault_that_does_not_climb_comes_again_and_again() -> list[str]:
    became = _comes_again(1, 2, 3, code=79)
    return [] if set(became) == {Ingested.REPEATED} else ["what was dealt with is dealt with once more"]


def _comes_again(
    *hours: float, code: int = 159, others: tuple[float, ...] = (), policy: RecoveryPolicy = ACTS
) -> list[Ingested]:
    """What becomes of it, so many hours after an incident has dealt with it; `others` of another code meanwhile."""
    it = Moment()
    known = {"verdict": Verdict.DEGRADED if code == 159 else Verdict.FAILED}
    ingest(xid(code, **known), it.plain, policy)
    dealt_with = {fingerprint(xid(code, **known)): incident_id_of(xid(code, **known))}
    it.is_written(open_incident=None, resolved_faults=dealt_with)
    for hour in others:
        it.plain.nodes.record(xid(31, event_id=f"other-{hour}", observed_at=NOW + timedelta(hours=hour)), None)
    again = (xid(code, event_id=f"at-{h}", observed_at=NOW + timedelta(hours=h), **known) for h in hours)
    return [ingest(event, it.plain, policy) for event in again]
