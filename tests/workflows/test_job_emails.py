"""A story of a job ends with exactly the emails that it should: none twice, none for what another has said."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from nodeheal.api import job_queries, queries
from nodeheal.api.job_views import JobView
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.names import DRAIN
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, Ending, JobState, Phase, Trouble, Verdict
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.review.review import state_word
from nodeheal.ports import Ports
from nodeheal.services.jobs.attribute_failure import attribute_failure
from nodeheal.services.jobs.submit_job import restart_job
from nodeheal.services.operators.answer_approval import answer_approval, asked_now
from nodeheal.services.operators.ask_to_stop import ask_to_stop
from nodeheal.services.operators.needed_now import needed_now
from tests.support.acts import requested
from tests.support.builders import ACT, NOW
from tests.support.job_cluster import (
    NODES,
    Happening,
    JobCluster,
    ends,
    fails,
    falls_off_the_bus,
    finishes,
    is_recovered,
    wants_it_stopped,
)
from tests.support.policies import with_policy

A, B, _, _ = NODES
APPROVE = with_policy(default_pool={"mode": "approve"})


def owner_hears(it: JobCluster) -> list[str]:
    """The keys of what the owner gets, each once."""
    return list(dict.fromkeys(told.key for _, told in it.ports.notifier.announced if told.owner))  # type: ignore[attr-defined]


def operators_hear(it: JobCluster) -> list[str]:
    """The severities and subjects of what they get."""
    told = {told.key: told for _, told in it.ports.notifier.announced if not told.owner}  # type: ignore[attr-defined]
    return [f"{one.severity} {one.subject}" for one in told.values()]


def test_a_job_that_nothing_happens_to_is_two_emails_to_its_owner_and_none_to_anybody_else() -> None:
    it = JobCluster()
    it.happenings = [finishes]

    it.submit()

    assert owner_hears(it) == ["owner/llama/1/STARTED", "owner/llama/1/FINISHED"]
    assert operators_hear(it) == []


def test_a_failure_of_the_program_is_told_by_its_recovery_alone() -> None:
    it = JobCluster()
    it.happenings = [fails(), is_recovered, finishes]

    it.submit()

    assert owner_hears(it) == ["owner/llama/1/STARTED", "owner/llama/2/RUNS_AGAIN", "owner/llama/2/FINISHED"]


def test_a_program_that_is_restarted_has_not_recovered_and_each_email_says_which_restart_it_is() -> None:
    it = JobCluster(restarts={"of_application": 2})
    it.happenings = [fails(), is_recovered, fails(), is_recovered, fails()]

    it.submit()

    told = {told.key: told for _, told in it.ports.notifier.announced}.values()  # type: ignore[attr-defined]
    told_operators = [one for one in told if not one.owner and one.severity == "INFO" and one.incident_id]
    told_owner = [one.body for one in told if one.phase is Phase.RUNS_AGAIN]
    after = "in 24 h after a failure of the program's own (restarts.of_application)."
    then = {1: "When both are used, the", 2: "That was the last: the"}
    ends = "next failure is not restarted, and goes to a human."
    assert [one.subject.partition(":")[0] for one in told_operators] == ["[nodeheal] restarted"] * 2
    assert {state_word(it.ports.incidents.incident(str(one.incident_id))) for one in told_operators} == {"restarted"}
    assert not any("recovered" in one.body or "its checkpoint" in one.body for one in told_operators)
    for number, (ours, theirs) in enumerate(zip(told_operators, told_owner, strict=True), 1):
        needed = f"Needed: nothing now. It was restart {number} of 2 {after} {then[number]} {ends}"
        assert needed in ours.body
        assert needed in theirs
    assert owner_hears(it)[-1] == "owner/llama/3/HANDED_OVER"


def test_a_node_that_is_repaired_is_told_by_its_recovery_alone() -> None:
    it = JobCluster()
    it.happenings = [falls_off_the_bus(B), is_recovered, finishes]

    it.submit()

    assert owner_hears(it) == [
        "owner/llama/1/STARTED",
        "owner/llama/1/STOPPED",
        "owner/llama/2/RUNS_AGAIN",
        "owner/llama/2/FINISHED",
    ]


def test_a_recovery_that_is_handed_over_and_the_job_that_ends_by_it_are_one_email() -> None:
    it = JobCluster(pool_of=2)

    def breaks(cluster: JobCluster) -> None:
        cluster.diagnoses[B] = Verdict.FAILED
        falls_off_the_bus(B)(cluster)
        cluster.recover_all()

    it.happenings = [breaks]

    it.submit()

    assert owner_hears(it) == ["owner/llama/1/STARTED", "owner/llama/1/STOPPED", "owner/llama/1/HANDED_OVER"]
    [page] = operators_hear(it)
    assert page.startswith(f"PAGE [nodeheal] needs a human: {B}, llama is down")
    bodies = {told.owner: told.body for _, told in it.ports.notifier.announced}  # type: ignore[attr-defined]
    does = "  nodeheal nodes list demo\n  nodeheal jobs restart llama\n"
    assert f"ada@example.com, if subscribed, has been told that you do.\n{does}" in bodies[None]
    assert "Needed: nothing" in bodies["ada@example.com"]


def test_a_program_that_fails_too_often_is_handed_over_to_its_owner_and_wakes_nobody() -> None:
    it = JobCluster(restarts={"of_application": 1})
    it.happenings = [fails(), is_recovered, fails()]

    it.submit()

    assert owner_hears(it)[-1] == "owner/llama/2/HANDED_OVER"
    assert [told for told in operators_hear(it) if told.startswith("PAGE")] == []
    assert operators_hear(it)[-1].startswith("INFO [nodeheal] needs a human: job llama is down: rank 1 on")
    handed_over = it.ports.notifier.announced[-1][1]  # type: ignore[attr-defined]
    assert "\n  nodeheal jobs logs llama --rank 1 --run 2\n  nodeheal jobs restart llama\n" in handed_over.body


def test_a_program_whose_restart_is_refused_is_its_owners_and_who_is_told_hears_how_a_changed_file_starts() -> None:
    none_left = {
        **ACT.limits,
        Action.RESTART_WORKLOAD: ACT.limits[Action.RESTART_WORKLOAD].model_copy(update={"limit": 0}),
    }
    it = JobCluster(policy=ACT.model_copy(update={"limits": none_left}))
    it.happenings = [fails(), is_recovered]

    it.submit()

    assert owner_hears(it)[-1] == "owner/llama/1/HANDED_OVER"
    theirs, *_ = [told.body for _, told in it.ports.notifier.announced if told.phase is Phase.HANDED_OVER]  # type: ignore[attr-defined]
    assert "Where the job's file has to change, submit it under another name. Where something else was" in theirs
    assert (
        "at fault, start it again as it was:\n  nodeheal jobs logs llama --rank 1 --run 1\n  nodeheal jobs re" in theirs
    )
    assert it.job.trouble is Trouble.PROGRAM_FAILS


def shown_job(it: JobCluster) -> JobView:
    """The job as `jobs show` reads it."""
    return job_queries.job("llama", it.ports, lambda: it.policy)


def test_a_restart_that_nobody_approves_is_said_to_be_that_and_is_started_by_hand() -> None:
    it = JobCluster(policy=APPROVE)
    it.happenings = [fails(), is_recovered]
    shown: list[str] = []
    it.on_question = lambda request: shown.append(shown_job(it).waits_for)

    it.submit()

    assert (it.job.trouble, it.job.left_down_by) == (Trouble.NOT_APPROVED, it.incident_id)
    assert shown[0].endswith(f": waiting for approval until {NOW + timedelta(hours=1):%Y-%m-%d %H:%M:%S} UTC")
    page = next(told.body for _, told in it.ports.notifier.announced if "needs a human" in told.subject)  # type: ignore[attr-defined]
    assert "llama is stopped: its restart was not approved. If it may run again as it was, start it." in page
    assert "\n  nodeheal jobs restart llama\n" in page
    theirs = next(told.body for _, told in it.ports.notifier.announced if told.phase is Phase.HANDED_OVER)  # type: ignore[attr-defined]
    assert "The operators refused its restart, or did not answer in time. If it may run again as it was" in theirs
    assert shown_job(it).advice.account.losses.down_seconds >= 3_600


def test_a_job_stood_still_since_its_first_rank_ended_and_not_since_somebody_said_why() -> None:
    it = JobCluster()
    it.happenings = [fails()]
    it.before["Attribute failure"] = lambda cluster: cluster.clock.advance(300)
    it.happenings += [is_recovered, finishes]

    it.submit()

    [again] = [told for _, told in it.ports.notifier.announced if "runs again" in told.subject]  # type: ignore[attr-defined]
    assert "has been running again since 2026-03-01 03:05:00 UTC, after 5 min down." in again.body
    assert f"Why: At 2026-03-01 03:00:00 UTC its rank 1 on {B} ended with exit code 1" in again.body


def test_an_owner_reads_the_exit_code_that_the_program_had() -> None:
    it = JobCluster()
    it.happenings = [fails(exit_code=2), is_recovered, finishes]

    it.submit()

    [again] = [told for _, told in it.ports.notifier.announced if "runs again" in told.subject]  # type: ignore[attr-defined]
    told = " ".join(again.body.split())
    assert f"its rank 1 on {B} ended with exit code 2 (EssentialContainerExited)." in told
    assert "exit_1" not in told.partition("Evidence")[0]
    assert "If it comes again, look there:\n  nodeheal jobs logs llama --rank 1 --run 1\n" in again.body


def asks_and(*happenings: Happening) -> JobCluster:
    """A job in a pool that asks. When it asks the first time, this happens; then everything is approved."""
    it, left = JobCluster(policy=APPROVE), [happenings]

    def asked(request: StepRequest) -> None:
        for happens in left.pop() if left else ():
            happens(it)
        answer_approval(Question(request.incident_id, request.turn), Answer.approve, "ada", "", it.ports)

    it.on_question = asked
    return it


def is_attributed(it: JobCluster) -> None:
    """Its workflow looks for the cause of a failure."""
    attribute_failure(JobRequest(job_id="llama", submission=1, round=1, looks=1), it.ports, it.policy)


@pytest.mark.parametrize(
    ("happenings", "while_asked"),
    [([fails(), is_recovered], []), ([falls_off_the_bus(B), is_recovered], [fails(), is_attributed])],
    ids=["down when they are asked", "down later"],
)
def test_an_owner_hears_that_a_job_is_down_while_its_recovery_waits_for_approval(
    happenings: list[Happening], while_asked: list[Happening]
) -> None:
    it = asks_and(*while_asked)
    it.happenings = [*happenings, finishes]

    it.submit()

    assert owner_hears(it) == [
        "owner/llama/1/STARTED",
        "owner/llama/1/STOPPED",
        "owner/llama/2/RUNS_AGAIN",
        "owner/llama/2/FINISHED",
    ]
    stopped = next(told for _, told in it.ports.notifier.announced if told.phase is Phase.STOPPED)  # type: ignore[attr-defined]
    assert stopped.subject == "[nodeheal] llama has stopped: its recovery waits for approval"
    assert (
        "Next: the operators have been asked to approve its recovery by 2026-03-01 04:00:00 UTC. Then all"
        in stopped.body
    )
    assert "Without a yes you are told that it stays down.\n" in stopped.body
    is_the_programs = not while_asked
    assert ("program failed:\n  nodeheal jobs logs llama --rank 1 --run 1\n" in stopped.body) is is_the_programs


def test_a_job_that_runs_on_while_its_recovery_waits_has_not_stopped() -> None:
    it = asks_and(is_attributed)
    it.happenings = [falls_off_the_bus(B), is_recovered, finishes]

    it.submit()

    stopped = next(told for _, told in it.ports.notifier.announced if told.phase is Phase.STOPPED)  # type: ignore[attr-defined]
    assert stopped.subject == "[nodeheal] llama has stopped: one of its nodes is being repaired"


def test_a_question_about_a_job_that_a_person_stops_is_withdrawn() -> None:
    it = JobCluster(policy=APPROVE)
    it.happenings = [fails(), is_recovered]
    still_asked: list[object] = []

    def stopped(request: StepRequest) -> None:
        ends(it.ports, JobState.CANCELLED)
        still_asked.append(asked_now(request.incident_id, it.ports))

    it.on_question = stopped
    it.submit()

    incident = it.ports.incidents.incident(it.incident_id)
    assert still_asked == [None]
    assert incident.ending is Ending.OBSERVED_ONLY
    assert incident.summary.endswith("llama was stopped by a person; there is nothing to restart")
    assert not any("restarted" in told for told in operators_hear(it))


@pytest.mark.parametrize(
    "seen_to", [lambda ports: restart_job("llama", ports), lambda ports: ask_to_stop("llama", "ada: no", ports)]
)
def test_a_refused_restart_waits_for_nobody_once_its_job_was_started_again_or_given_up(
    seen_to: Callable[[Ports], object],
) -> None:
    it = JobCluster(policy=APPROVE)
    it.happenings = [fails(), is_recovered]
    it.submit()
    before = queries.fleet(["demo"], it.ports, APPROVE)
    it.clock.advance(60)

    seen_to(it.ports)

    after = queries.fleet(["demo"], it.ports, APPROVE)
    assert [row.job for row in before.failed_jobs] == ["llama"]
    assert (after.failed_jobs, after.handed_over) == ((), ())
    [(text, [close])] = needed_now(it.incident_id, it.ports, lambda: APPROVE)
    assert text.startswith("nothing: llama was started again, or given up, since.")
    assert "incidents close" in close


def drained_and(happens: Happening) -> JobCluster:
    """A job of one node, which an operator drains; while its end is awaited, this happens."""
    it = JobCluster(nodes=1)

    def drained(it: JobCluster) -> None:
        it._ingest(requested(A, Action.ISOLATE, "ada: a new riser", it.ports, kind=DRAIN))

    it.on_wait = lambda: happens(it)
    it.happenings = [drained, is_recovered]
    return it


def test_a_program_that_fails_while_its_node_is_drained_is_its_owners() -> None:
    it = drained_and(fails(rank=0, exit_code=3))

    it.submit()

    assert owner_hears(it) == ["owner/llama/1/STARTED", "owner/llama/1/HANDED_OVER"]
    theirs = next(told for _, told in it.ports.notifier.announced if told.phase is Phase.HANDED_OVER)  # type: ignore[attr-defined]
    assert "Needed: look for the cause in your program and its logs." in theirs.body
    assert "rank 0 on mi-0000000a ended with exit code 3" in theirs.body
    assert it.job.trouble is Trouble.PROGRAM_FAILS
    assert not any("llama is down" in told for told in operators_hear(it) if "Drain" in told)
    assert not any("llama" in text for text, _ in needed_now(it.incident_id, it.ports, lambda: it.policy))


def test_a_job_that_is_stopped_by_hand_while_its_node_is_drained_is_not_said_to_be_down() -> None:
    def stopped(it: JobCluster) -> None:
        wants_it_stopped(it)
        it.all_become("STOPPED", 143, "nodeheal: ada: enough")

    it = drained_and(stopped)

    it.submit()

    assert owner_hears(it) == ["owner/llama/1/STARTED", "owner/llama/1/CANCELLED"]
    assert not any("is down" in told for told in operators_hear(it))


def test_a_rank_that_never_starts_wakes_the_operators() -> None:
    it = JobCluster()
    it.never_start = {B}

    it.submit()

    assert owner_hears(it) == ["owner/llama/1/HANDED_OVER"], "it has not started, and nobody is told that it has"
    assert operators_hear(it) == [
        f"PAGE [nodeheal] needs a human: job llama is down: rank 1 on {B} of run 1 did not start in time"
    ]


def test_what_a_person_stops_is_told_to_the_owner_alone() -> None:
    it = JobCluster()
    it.happenings = [wants_it_stopped]

    it.submit()

    assert owner_hears(it) == ["owner/llama/1/STARTED", "owner/llama/1/CANCELLED"]
    assert operators_hear(it) == []
    phases = {told.phase for _, told in it.ports.notifier.announced}  # type: ignore[attr-defined]
    assert phases == {Phase.STARTED, Phase.CANCELLED}
