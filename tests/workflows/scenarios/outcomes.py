"""How a check, a rank or a step has ended, and what that says of it, and what it does not.

Each is one history or one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from typing import Any

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.results import Refused
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import (
    Action,
    Confirmation,
    Ending,
    JobStep,
    Next,
    Outcome,
    Provider,
    Refusal,
    Step,
)
from nodeheal.domain.jobs.job import CheckAnswer, GangTask, Run
from nodeheal.domain.policy.policy_models import Evidence
from nodeheal.domain.recovery.incident import Incident
from nodeheal.operations.steps import check_nodes
from nodeheal.services.jobs.judge_checks import UNANSWERED, judge_checks
from nodeheal.services.recovery.end_incident import end_incident
from tests.support.builders import NOW, xid
from tests.support.fake_cluster import BROKEN, PEER
from tests.support.guardrails import APPROVE, waited
from tests.support.job_moves import MOVES
from tests.support.observations import NODE, seen
from tests.support.pauses import pause_of_node
from tests.support.policies import with_policy
from tests.support.recovery_story import Story
from tests.support.stop_start_incident import POOL
from tests.support.unmanaged_tasks import cluster_with_unmanaged_tasks, unmanaged_tasks_of
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.climbs import next_is
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.shared import LATER

# Checks of a job


def a_person_stops_a_job_while_its_nodes_are_checked() -> list[str]:
    it = Moment()
    it.plain.jobs.save(replace(JOB, stop_wanted="enough"))
    judged = _judges(it, BROKEN)
    return [] if judged.then is Next.STOP else [f"{judged.then.value} is next, and nobody wants it any more"]


def a_node_cannot_tell_whether_it_is_well() -> list[str]:
    it = _checked({BROKEN: Outcome.UNKNOWN})
    _judges(it, BROKEN)
    codes = [one.root.code for one in _opened(it)]
    return [] if codes == [UNANSWERED] else [f"its check has found {codes}: it is taken for broken"]


def a_node_has_not_answered_when_the_wait_is_over() -> list[str]:
    """The wait is forgotten by then. Who has had the time is not asked for ever."""
    it = _checked({PEER: Outcome.DONE})
    _judges(it, BROKEN, PEER)
    return [] if [one.node_id for one in _opened(it)] == [BROKEN] else ["a node that hangs is asked again and again"]


def a_check_breaks_off_when_one_has_failed() -> list[str]:
    it = _checked({PEER: Outcome.FAILED})
    check_nodes(_round(BROKEN, PEER), it.plain, ACTS)
    told = _judges(it, BROKEN, PEER).reason
    return [] if PEER in told else [f"nobody is told which node has failed: {told}"]


def _checked(answers: dict[str, Outcome]) -> Moment:
    """The nodes of a job were asked, and these have answered."""
    it = Moment()
    it.plain.jobs.save(JOB)
    for name in (BROKEN, PEER):
        it.is_written(name, passed_at=None, claimed_by="llama")
    for name, outcome in answers.items():
        it.plain.job_notes.note_answer("llama", CheckAnswer("llama-1-0", name, "boot-1", outcome, "so it went", NOW))
    return it


def _round(*names: str) -> JobRequest:
    chosen = JobResult(
        step=JobStep.CHOOSE,
        job_id="llama",
        outcome=Outcome.DONE,
        then=Next.CHECK,
        reason="chosen",
        finished_at=NOW,
        nodes=names,
    )
    return JobRequest(job_id="llama", submission=1, round=0, last=chosen, task_token="token")


def _judges(it: Moment, *names: str) -> JobResult:
    judged: JobResult = it.does(lambda: judge_checks(_round(*names), it.ports, ACTS))
    return judged


def _opened(it: Moment) -> list[Incident]:
    return list(it.plain.incidents.incidents.values())  # type: ignore[attr-defined]


# Ranks


def _run(exit_code: int) -> Run:
    return Run("llama", 1, NOW, "first", (GangTask(BROKEN, 0, "boot-1", "placement", "task", "STOPPED", exit_code),))


# Steps of a recovery


def a_no_comes_before_its_node_is_paused() -> list[str]:
    story = waited(Story(xid(79), policy=APPROVE), Outcome.REFUSED, "refused by ada")
    paused = story.amid(pauses=pause_of_node(story.history.incident.node_id, LATER)).next()
    return [] if paused.ending is Ending.OBSERVED_ONLY else [f"he has said no, and is told: {paused.reason}"]


def another_incident_brings_its_job_back_when_it_is_given_back() -> list[str]:
    story = (
        Story(xid(74))
        .isolated()
        .swapped()
        .passed()
        .then(Outcome.REFUSED, "another fails", facts=Refused(code=Refusal.LEFT_TO_INCIDENT, incident_id="b"))
    )
    return next_is(story.amid(is_released_or_retired=True), Step.CLOSE)


def its_reboots_were_in_earlier_incidents() -> list[str]:
    """Its ladder is climbed at its second escalation step, above which there is no reboot."""
    climbs = {"fault": "xid/79", "ladder": ["REBOOT", "REPLACE"], "next_rung": "repeated", "why": "ours"}
    story = Story(xid(79), policy=with_policy(default_pool=POOL, overrides=[climbs]))
    before = tuple(seen(79, NODE, observed_at=NOW.replace(hour=hour)) for hour in (0, 1))
    try:
        return next_is(
            story.amid(provider=Provider.ec2, observations=before).isolated(), Step.REBOOT, Action.STOP_START
        )
    except ValueError as surprise:
        return [f"nothing is decided: {surprise}"]


def its_job_goes_on_elsewhere_at_once() -> list[str]:
    """What its node can tell is saved afterwards, and holds nobody up."""
    saves = MOVES.model_copy(update={"evidence": Evidence()})
    return next_is(Story(xid(79), policy=saves).isolated().amid(free_nodes=2), Step.RESTART_WORKLOAD)


def its_machine_can_be_replaced_when_its_job_has_moved() -> list[str]:
    story = Story(xid(74), policy=MOVES).amid(provider=Provider.ec2, free_nodes=2).isolated()
    moved = story.then(Outcome.DONE, "llama goes on elsewhere")
    return next_is(moved.answers(Confirmation.CONFIRMED), Step.REPLACE)


# Tasks of others


def an_unmanaged_task_was_refused_before_the_end_is_repeated() -> list[str]:
    _, told = _ends_twice()
    return [] if "could not be started again" in told else [f"its owner is not told any more: {told}"]


def _ends_twice() -> tuple[list[Any], str]:
    """What was started, and how it ended as the second call has it."""
    it = cluster_with_unmanaged_tasks()
    unmanaged_tasks_of(it).unmanaged_refused = "RESOURCE:GPU"
    it.reports(xid(79))
    turns = it.ports.incidents.history(it.incident_id).turns
    unmanaged_tasks_of(it).unmanaged_refused = ""
    asks = StepRequest(incident_id=it.incident_id, turn=len(turns), decision=turns[-1].decision)
    return unmanaged_tasks_of(it).unmanaged_started, end_incident(asks, it.ports, it.policy).reason
