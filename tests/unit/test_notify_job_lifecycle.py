"""What the owner of a job and the operators read of it: as whole emails, as a tired person would read them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.notification import SUBJECT_CHARACTERS, Notification
from nodeheal.contract.vocabulary import EndCause, JobState, JobStep, Next, Outcome, Phase, Trouble
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.jobs.job import FoundCheckpoint, GangTask, Job, Run
from nodeheal.domain.jobs.owner import Owner
from nodeheal.ports import Ports
from nodeheal.services.jobs.end_job import end_job
from nodeheal.services.jobs.job_troubles import OF_THE_CLUSTER, needed
from nodeheal.services.notify.compose_job import (
    JobStory,
    compose_cancelled,
    compose_down,
    compose_finished,
    compose_for_operators,
    compose_started,
)
from nodeheal.services.notify.deliver_notification import notify
from nodeheal.services.notify.notify_job_lifecycle import notify_of_start
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, stored_job
from tests.support.job_cluster import NODES, WHY, ends, spec
from tests.support.jobs import ecs_job_of

ADA = Owner("ada@example.com", "Ada Lovelace")
HOUR = timedelta(hours=1)
JOB = replace(ecs_job_of(spec(owner=str(ADA)), "training", "trainer:1", NOW), current_run=1, state=JobState.RUNNING)
RANKS = tuple(GangTask(name, rank, "boot-1", name, f"task-{rank}", "RUNNING") for rank, name in enumerate(NODES[:2]))
RUN = Run("llama", 1, NOW, "run_job llama-1-3", RANKS, running_since=NOW + timedelta(minutes=4))


def story(*runs: Run, job: Job = JOB, hours: float = 5, **more: Any) -> JobStory:
    return JobStory(job, runs, NOW + hours * HOUR, **more)


def body(letter: Notification | None) -> list[str]:
    assert letter is not None
    return letter.body.splitlines()


def test_the_email_of_a_start_says_where_it_runs_what_was_checked_and_where_it_begins() -> None:
    letter = compose_started(story(replace(RUN, resumed_from="/fsx/llama/step-1200", resumed_step=1_200)), ADA)

    assert letter is not None
    assert letter.subject == "[nodeheal] llama has started on 2 nodes"
    assert body(letter) == [
        "Hello Ada Lovelace,",
        "",
        "your job llama has started: both its ranks have been running since 2026-03-01 03:04:00 UTC, as run 1. It "
        "took 4 min to get and check its nodes and to start it.",
        "",
        "Needed: nothing. When a node breaks, all ranks start again by themselves, and you get an email.",
        "",
        "Nodes: mi-0000000a, mi-0000000b",
        "Checked: each node has passed diagnostics of level 2, on its present boot, in the last 24 h.",
        "Starts: from checkpoint /fsx/llama/step-1200 (step 1200).",
        "Job: llama, run 1, in pool demo",
        "More:",
        "  nodeheal jobs show llama",
    ]


def test_the_email_of_an_end_says_how_its_time_went() -> None:
    first = replace(RUN, ended_at=NOW + HOUR)
    second = replace(RUN, number=2, started_at=NOW + 2 * HOUR, running_since=NOW + 2 * HOUR, ended_at=NOW + 5 * HOUR)
    job = replace(JOB, found=FoundCheckpoint("/fsx/llama/step-900", 900, NOW))

    assert body(compose_finished(story(first, second, job=job), ADA)) == [
        "Hello Ada Lovelace,",
        "",
        "your job llama has finished as run 2: every rank has ended with exit code 0.",
        "",
        "Needed: nothing. Its nodes are free for others.",
        "",
        "Time: effective training time (ETTR) 79%: it trained 3 h 56 min of the 5 h since submission; lost: 1 h down, "
        "4 min starting its ranks.",
        "Restarts: 1.",
        "Job: llama, run 2, in pool demo",
        "More:",
        "  nodeheal jobs show llama",
    ]


def test_the_email_of_a_stop_by_hand_says_who_and_how_to_go_on() -> None:
    job, run = replace(JOB, found=FoundCheckpoint("/fsx/llama/step-900", 900, NOW)), replace(RUN, ended_at=NOW + HOUR)

    letter = compose_cancelled(story(run, job=job, reason="stopped by a person: ada: enough"), ADA)

    assert letter.subject == "[nodeheal] llama was stopped by a person"
    assert body(letter) == [
        "Hello Ada Lovelace,",
        "",
        "your job llama was stopped by a person, and nothing starts it again by itself.",
        "",
        "Needed: nothing. To let it go on:",
        "  nodeheal jobs restart llama",
        "",
        "Why: stopped by a person: ada: enough.",
        "Lost: what it had computed and not saved in a checkpoint; the checkpoints are as they were.",
        "Time: effective training time (ETTR) 19%: it trained 56 min of the 5 h since submission; lost: 4 h down, "
        "4 min starting its ranks.",
        "Restarts: none.",
        "Checkpoint: /fsx/llama/step-900 (step 900) was the newest whole one at 2026-03-01 03:00:00 UTC, before its "
        "last start. What it has written since lies beside it, and its next start finds that.",
        "Job: llama, run 1, in pool demo",
        "More:",
        "  nodeheal jobs show llama",
    ]


def test_the_email_about_a_job_that_never_started_loses_nothing_and_says_what_to_change() -> None:
    why = "llama wants 2 nodes with 16 accelerators, and pool demo has none"
    letter = compose_down(story(reason=why, trouble=Trouble.POOL_TOO_SMALL), ADA)

    assert letter.subject == "[nodeheal] llama did not start, and is not tried again"
    assert body(letter) == [
        "Hello Ada Lovelace,",
        "",
        "your job llama has not started, and nodeheal does not try it again.",
        "",
        "Needed: ask for fewer nodes or accelerators, or name another pool, and submit it under another name.",
        "If it stays down:",
        "  nodeheal jobs stop llama --why ...",
        "",
        "Why: llama wants 2 nodes with 16 accelerators, and pool demo has none.",
        "Job: llama, in pool demo",
        "More:",
        "  nodeheal jobs show llama",
    ]


def test_the_operators_email_says_whether_it_is_theirs() -> None:
    run = replace(RUN, ended_at=NOW + HOUR)
    theirs = compose_for_operators(story(run, reason="rank 1 did not start in time", trouble=Trouble.RANK_LATE))
    owners = compose_for_operators(story(run, reason=WHY, trouble=Trouble.PROGRAM_FAILS))

    assert (theirs.severity, owners.severity) == ("PAGE", "INFO")
    assert theirs.key == owners.key == "job/llama/1/HANDED_OVER"
    assert body(theirs) == [
        "Job llama is down, and nodeheal does not start it again: rank 1 did not start in time.",
        "",
        "Needed: look at the nodes first; then its owner looks at its image, and starts it again. Tell its owner, "
        "unless this says that the owner gets emails:",
        "  nodeheal jobs show llama",
        "If it stays down:",
        "  nodeheal jobs stop llama --why ...",
        "",
        "Job: llama, run 1, in pool demo",
        "Owner: Ada Lovelace <ada@example.com>, who is told if subscribed",
        "Trouble: RANK_LATE",
        "Runbook:",
        "job-handed-over.md",
    ]
    assert "Needed: its owner has to change the job, and starts it again. Tell its owner" in owners.body
    assert "jobs restart" not in theirs.body + owners.body


@pytest.mark.parametrize("trouble", [None, *Trouble])
def test_of_owner_and_operators_one_is_told_to_start_it_again_and_the_other_that_he_does(
    trouble: Trouble | None,
) -> None:
    run, restart = replace(RUN, ended_at=NOW + HOUR), "nodeheal jobs restart llama"
    owners = compose_down(story(run, trouble=trouble, reason=WHY), ADA).body
    operators = compose_for_operators(story(run, trouble=trouble, reason=WHY)).body
    alone = compose_for_operators(story(run, trouble=trouble, reason=WHY, job=replace(JOB, owner=None))).body

    operators_do = "The operators have been told, see to the nodes, and start it again with:" in owners or (
        trouble is Trouble.NOT_APPROVED and "If it may run again as it was, start it, or ask them to:" in owners
    )
    assert (restart in operators) is operators_do
    assert ("its owner" in operators and "starts it again" in operators) is not operators_do
    assert ("the operators" in owners.lower()) >= operators_do
    assert "its owner" not in alone.replace("find its owner", "")


@pytest.mark.parametrize("trouble", [None, *Trouble])
def test_whatever_the_trouble_every_email_says_what_to_do(trouble: Trouble | None) -> None:
    told = story(RUN, reason=f"{WHY} ({'x' * 300})", trouble=trouble, incident_id="inc-1")

    letters = [compose_down(told, ADA), compose_for_operators(told)]

    assert all(len(letter.subject) <= SUBJECT_CHARACTERS for letter in letters)
    need, is_to_restart = needed(trouble)
    assert need.endswith(":") is is_to_restart, "what ends with a colon is followed by the command"
    assert ("nodeheal jobs restart llama" in letters[0].body) is is_to_restart


def test_what_is_in_the_cluster_is_a_page_and_what_is_in_the_job_is_none() -> None:
    mine = {Trouble.POOL_TOO_SMALL, Trouble.DIRECTORY_TAKEN, Trouble.DIRECTORY_NOT_SHARED}
    mine |= {Trouble.CANNOT_START, Trouble.PROGRAM_FAILS, Trouble.ONLY_OBSERVED, Trouble.NOT_APPROVED}

    assert set(Trouble) - OF_THE_CLUSTER == mine


def test_the_rank_that_failed_is_named_by_the_command_that_shows_its_log() -> None:
    ended = (replace(RANKS[0], status="STOPPED", exit_code=143), replace(RANKS[1], status="STOPPED", exit_code=1))
    run = replace(RUN, ended_at=NOW + HOUR, tasks=(replace(ended[0], end_causes=(EndCause.ON_REQUEST,)), ended[1]))

    letter = compose_down(story(run, reason=WHY, trouble=Trouble.PROGRAM_FAILS), ADA)

    assert "\n  nodeheal jobs logs llama --rank 1 --run 1\n  nodeheal jobs restart llama\n" in letter.body


def test_of_a_job_that_never_ran_nothing_is_said_to_be_lost() -> None:
    letter = compose_down(story(replace(RUN, running_since=None), reason=WHY, trouble=Trouble.RANK_LATE), ADA)

    assert "Lost:" not in letter.body
    assert "Time:" not in letter.body


# Who is told when


def world(job: Job = JOB, *runs: Run) -> Ports:
    ports = memory_ports(FrozenClock())
    ports.jobs.save(job)
    for run in runs:
        ports.jobs.save_run(run)
    return ports


def phases(ports: Ports) -> list[tuple[str | None, Phase]]:
    announced = [told for _, told in ports.notifier.announced]  # type: ignore[attr-defined]
    return [(told.owner, told.phase) for told in announced]


@pytest.mark.parametrize(
    ("ending", "phase"),
    [(JobState.COMPLETED, Phase.FINISHED), (JobState.CANCELLED, Phase.CANCELLED)],
)
def test_of_an_end_that_somebody_wanted_only_the_owner_hears(ending: JobState, phase: Phase) -> None:
    ports = world(JOB, RUN)

    ends(ports, ending)

    assert phases(ports) == [("ada@example.com", phase)]


def test_of_a_job_that_is_a_humans_the_operators_hear_too() -> None:
    ports = world(JOB, RUN)

    ends(ports, JobState.FAILED, trouble=Trouble.RANK_LATE)

    assert phases(ports) == [(None, Phase.ENDED), ("ada@example.com", Phase.HANDED_OVER)]
    assert f"Needed: {needed(Trouble.RANK_LATE)[0]}\n" in ports.notifier.announced[1][1].body  # type: ignore[attr-defined]


def test_where_an_incident_has_told_the_operators_they_hear_nothing_more() -> None:
    ports = world(JOB, RUN)

    ends(ports, JobState.FAILED, trouble=Trouble.RECOVERY_ENDED, incident_id="inc-1")

    assert phases(ports) == [("ada@example.com", Phase.HANDED_OVER)]


def test_a_job_of_nobody_is_told_to_nobody_but_the_operators() -> None:
    ports = world(replace(JOB, owner=None), RUN)

    notify_of_start(replace(JOB, owner=None), ports)
    ends(ports, JobState.FAILED, trouble=Trouble.NOT_LAUNCHED)

    assert phases(ports) == [(None, Phase.ENDED)]
    [(_, told)] = ports.notifier.announced  # type: ignore[attr-defined]
    assert "Owner: nobody: the file names no owner" in told.body


def test_a_job_that_is_submitted_again_and_never_starts_is_not_taken_for_the_run_before() -> None:
    job = replace(JOB, submission=2, submitted_at=NOW + HOUR)
    ports = world(job, RUN)

    last = ends_second(ports)

    [_, (_, told)] = ports.notifier.announced  # type: ignore[attr-defined]
    assert told.key == "owner/llama/submission-2/HANDED_OVER"
    assert last.ending is JobState.FAILED


def ends_second(ports: Ports) -> JobResult:
    last = JobResult(
        step=JobStep.CHOOSE,
        job_id="llama",
        outcome=Outcome.REFUSED,
        then=Next.END,
        reason="too few",
        finished_at=NOW,
        ending=JobState.FAILED,
        trouble=Trouble.POOL_TOO_SMALL,
    )
    return end_job(JobRequest(job_id="llama", submission=2, round=1, last=last), ports)


def test_a_start_is_told_when_all_ranks_run_and_once_a_run() -> None:
    late = replace(RUN, tasks=(RANKS[0], replace(RANKS[1], status="PENDING")), running_since=None)
    before, ports = world(JOB, late), world(JOB, RUN)

    notify_of_start(JOB, before)
    notify_of_start(JOB, ports)
    notify_of_start(JOB, ports)

    assert phases(before) == []
    keys = {told.key for _, told in ports.notifier.announced}  # type: ignore[attr-defined]
    assert keys == {"owner/llama/1/STARTED"}


def test_a_start_is_told_although_a_rank_has_broken_before_anybody_could_tell_it() -> None:
    ports = world(JOB, replace(RUN, tasks=(RANKS[0], replace(RANKS[1], status="STOPPED"))))

    notify_of_start(JOB, ports)

    assert phases(ports) == [("ada@example.com", Phase.STARTED)]


def test_a_start_is_told_of_the_first_run_only_and_to_its_owner() -> None:
    """Nobody has told that the ranks of the first run are gone."""
    again, of_nobody = world(JOB, RUN, replace(RUN, number=2)), replace(JOB, owner=None)

    assert (notify_of_start(JOB, again), phases(again)) == ("", [])
    assert notify_of_start(of_nobody, world(of_nobody, RUN)) == ""


def test_an_email_that_cannot_be_sent_keeps_no_job_from_its_end() -> None:
    ports = world(JOB, RUN)

    def refuse(detail_type: str, told: Notification) -> None:
        raise NotAccepted("PutEvents: throttled")

    ports.notifier.announce = refuse  # type: ignore[method-assign,assignment]

    done = ends(ports, JobState.COMPLETED)

    assert done.ending is JobState.COMPLETED
    assert done.reason.endswith("; and nobody could be told: PutEvents: throttled")
    job = stored_job(ports, "llama")
    assert job.state is JobState.COMPLETED


# Owners who do not hear


def test_the_operators_are_told_once_a_job_of_an_owner_who_has_not_confirmed() -> None:
    ports = world()
    ports.has_confirmed.deaf.add("ada@example.com")  # type: ignore[attr-defined]
    letter = compose_started(story(RUN), ADA)
    assert letter is not None

    notify(letter, ports, ACT), notify(letter, ports, ACT)
    notify(compose_finished(story(RUN), ADA), ports, ACT)

    sent = [message.notification for message in ports.notifier.sent]  # type: ignore[attr-defined]
    assert [told.owner for told in sent] == ["ada@example.com", None, "ada@example.com"]
    assert sent[1].subject == "[nodeheal] ada@example.com, who owns llama, gets no email: not confirmed"
    assert body(sent[1]) == [
        "ada@example.com owns llama and gets no email about it: the address was never subscribed, or did not confirm "
        "its subscription. Until then, what nodeheal writes to it is lost, and you are told of this job.",
        "",
        "Needed: ask the owner to open AWS's email that asks for a confirmation; it may be in the spam folder. To have "
        "it sent again:",
        "  nodeheal owners subscribe ada@example.com",
        "",
        "Lost:",
        "| [nodeheal] llama has started on 2 nodes",
    ]


def test_of_what_has_no_owner_nobody_is_asked_whether_he_has_confirmed() -> None:
    ports = replace(world(), has_confirmed=lambda owner: False)
    letter = compose_started(story(RUN), ADA)
    assert letter is not None

    notify(letter.model_copy(update={"owner": None}), ports, ACT)

    assert len(ports.notifier.sent) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", ["confirmed", "nobody can tell"])
def test_of_an_owner_who_hears_or_may_hear_nothing_is_said(what: str) -> None:
    ports = world()
    if what != "confirmed":
        ports.has_confirmed.unknown.add("ada@example.com")  # type: ignore[attr-defined]

    notify(compose_finished(story(RUN), ADA), ports, ACT)

    assert [told.notification.owner for told in ports.notifier.sent] == ["ada@example.com"]  # type: ignore[attr-defined]
