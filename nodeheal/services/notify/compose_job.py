"""Write the emails about a job itself: to its owner when it starts, finishes, or ends otherwise; to the operators when
it is a human's. What a recovery does to it: compose_owner."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import Escalation, Phase, Trouble
from nodeheal.domain.humanize import all_of, counted, lasting
from nodeheal.domain.jobs.checkpoint_advice import NO_EXPERIENCE, PoolExperience, advice_of
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.lost_work import UNSAVED, start_text
from nodeheal.domain.jobs.owner import Owner
from nodeheal.domain.review.console_links import NO_LINKS, ConsoleLinks
from nodeheal.services.jobs.job_troubles import OF_THE_CLUSTER, needed, needed_of_operators
from nodeheal.services.notify.compose import fit_subject, runbook
from nodeheal.services.notify.compose_needed import give_up, log_of, restart
from nodeheal.services.notify.compose_owner import nodes_in_words
from nodeheal.services.notify.layout import command, paragraph
from nodeheal.services.notify.layout import field as labelled


@dataclass(frozen=True)
class JobStory:
    """A submission of a job and how it stands. `runs`: its own, in order; `reason`: why it ended, where it has."""

    job: Job
    runs: Sequence[Run]
    at: datetime
    reason: str = ""
    trouble: Trouble | None = None
    incident_id: str | None = None
    console_links: ConsoleLinks = field(default=NO_LINKS)
    beside: PoolExperience = NO_EXPERIENCE

    @property
    def why(self) -> str:
        """The reason, as a sentence."""
        return f"{self.reason.rstrip('.')}."

    @property
    def has_run(self) -> bool:
        """Whether all its ranks ran at once, so that it has computed something."""
        return any(run.running_since is not None for run in self.runs)

    @property
    def run(self) -> Run | None:
        """Its newest run."""
        return self.runs[-1] if self.runs else None


def compose_started(story: JobStory, owner: Owner) -> Notification | None:
    """All ranks of its first run are up. None: they are not."""
    run = story.run
    if run is None:
        return None
    job, since = story.job, run.running_since or story.at
    ranks = "its one rank has" if len(run.tasks) == 1 else f"{all_of(len(run.tasks), 'its')} ranks have"
    waited = since - job.submitted_at if job.submitted_at else timedelta()
    took = f" It took {lasting(waited)} to get and check its nodes and to start it."
    body = [
        *paragraph(
            f"your job {job.job_id} has started: {ranks} been running since {_time(since)}, as run {run.number}."
            f"{took if waited >= timedelta(seconds=1) else ''}"
        ),
        "",
        *labelled("Needed", "nothing. When a node breaks, all ranks start again by themselves, and you get an email."),
        "",
        *labelled("Nodes", nodes_in_words(run)),
        *labelled("Checked", _checked(job)),
        *(labelled("Directory", f"{job.directory_seen}.") if job.directory_in_doubt else []),
        *labelled("Starts", f"{start_text(job, run)}."),
    ]
    return _letter(story, owner, Phase.STARTED, f"has started on {counted(len(run.tasks), 'node')}", body)


def compose_finished(story: JobStory, owner: Owner) -> Notification:
    """Every rank has ended well."""
    job, run = story.job, story.run
    as_run = f" as run {run.number}" if run else ""
    body = [
        *paragraph(f"your job {job.job_id} has finished{as_run}: every rank has ended with exit code 0."),
        "",
        *labelled("Needed", "nothing. Its nodes are free for others."),
        "",
        *_books(story),
    ]
    return _letter(story, owner, Phase.FINISHED, "has finished", body)


def compose_cancelled(story: JobStory, owner: Owner) -> Notification:
    """A person has stopped it."""
    job = story.job
    body = [
        *paragraph(f"your job {job.job_id} was stopped by a person, and nothing starts it again by itself."),
        "",
        *labelled("Needed", "nothing. To let it go on:"),
        restart(job.job_id),
        "",
        *labelled("Why", story.why),
        *(labelled("Lost", _LOST) if story.has_run else []),
        *_books(story),
        *_checkpoint(story),
    ]
    return _letter(story, owner, Phase.CANCELLED, "was stopped by a person", body)


def compose_down(story: JobStory, owner: Owner) -> Notification:
    """It is down, or never came up, and a human has it."""
    job, what = story.job, "is down, and is not started again by itself"
    text = f"your job {job.job_id} is down, and nodeheal does not start it again."
    if not story.runs:
        what = "did not start, and is not tried again"
        text = f"your job {job.job_id} has not started, and nodeheal does not try it again."
    need, is_to_restart = needed(story.trouble)
    body = [
        *paragraph(text),
        "",
        *labelled("Needed", need),
        *_commands(story, is_to_restart),
        *give_up(job.job_id),
        "",
        *labelled("Why", story.why),
        *(labelled("Lost", _LOST) if story.has_run else []),
        *_books(story),
        *_checkpoint(story),
    ]
    return _letter(story, owner, Phase.HANDED_OVER, what, body)


def compose_for_operators(story: JobStory) -> Notification:
    """The same, to those who run the pool. A page only where the trouble is in the cluster, and not in the job."""
    job, code = story.job, Escalation.JOB_HANDED_OVER
    what = "is down" if story.runs else "did not start"
    is_page = story.trouble is None or story.trouble in OF_THE_CLUSTER
    whose = f"{job.owner}, who is told if subscribed" if job.owner else "nobody: the file names no owner"
    need, is_theirs = needed_of_operators(story.trouble, has_owner=job.owner is not None)
    looks = [command("nodeheal", "jobs", "show", job.job_id), *(_commands(story, True) if is_theirs else [])]
    body = [
        *paragraph(f"Job {job.job_id} {what}, and nodeheal does not start it again: {story.why}"),
        "",
        *labelled("Needed", need),
        *looks,
        *give_up(job.job_id),
        "",
        *labelled("Job", _named(story)),
        *labelled("Owner", whose),
        *labelled("Trouble", story.trouble.value if story.trouble else "not known"),
        *runbook(story.console_links, code),
    ]
    return Notification(
        key=f"job/{job.job_id}/{job.submission}/HANDED_OVER",
        subject=fit_subject(f"[nodeheal] needs a human: job {job.job_id} {what}: {story.reason}"),
        body="\n".join(body),
        severity="PAGE" if is_page else "INFO",
        pool=job.pool,
        phase=Phase.ENDED,
        escalation=code,
        job_id=job.job_id,
        needed=(need, *map(str.strip, looks)),
    )


_LOST = f"{UNSAVED}; the checkpoints are as they were."


def _commands(story: JobStory, is_to_restart: bool) -> list[str]:
    """What shows why a rank failed, then what starts the job again."""
    return [*log_of(story.job, story.run), *([restart(story.job.job_id)] if is_to_restart else [])]


def _letter(story: JobStory, owner: Owner, phase: Phase, what: str, body: list[str]) -> Notification:
    """One email a phase of a run; of a submission that had none, one a phase of that."""
    job, run = story.job, story.run
    which = str(run.number) if run else f"submission-{job.submission}"
    greeting = [*paragraph(f"Hello {owner.name}," if owner.name else "Hello,"), ""]
    is_said = story.incident_id is None or story.incident_id in story.reason
    reference = [] if is_said else labelled("Reference", str(story.incident_id))
    ending = [*labelled("Job", _named(story)), *reference, "More:", command("nodeheal", "jobs", "show", job.job_id)]
    return Notification(
        key=f"owner/{job.job_id}/{which}/{phase}",
        subject=fit_subject(f"[nodeheal] {job.job_id} {what}"),
        body="\n".join([*greeting, *body, *ending]),
        severity="INFO",
        pool=job.pool,
        phase=phase,
        job_id=job.job_id,
        owner=owner.address,
    )


def _named(story: JobStory) -> str:
    run = f", run {story.run.number}" if story.run else ""
    return f"{story.job.job_id}{run}, in pool {story.job.pool}"


def _checked(job: Job) -> str:
    asked = job.preflight
    if asked.level == 0:
        return "nothing, as it asks (preflight.level 0)."
    hours = asked.recent_seconds / 3600
    extra = f" ({', '.join(asked.checks)})" if asked.checks else ""
    return (
        f"each node has passed diagnostics of level {asked.level}{extra}, on its present boot, in the last {hours:g} h."
    )


def _books(story: JobStory) -> list[str]:
    """How its time went, and how often it should write checkpoints."""
    if not story.has_run or story.job.submitted_at is None:
        return []
    restarts = len(story.runs) - 1
    advice = advice_of(story.job, story.runs, (), story.at, story.beside)
    return [
        *(labelled("Time", f"{advice.account.words}.") if advice.account.words else []),
        *labelled("Restarts", f"{restarts or 'none'}."),
        *(labelled("Advice", f"{'; '.join(advice.lines)}.") if advice.daly_seconds is not None else []),
    ]


def _checkpoint(story: JobStory) -> list[str]:
    """The newest whole one that is known, of a job that has to go on."""
    checkpoint = story.job.found
    if checkpoint is None:
        return []
    step = "" if checkpoint.step is None else f" (step {checkpoint.step})"
    at, known = _time(checkpoint.looked_at), f"{checkpoint.path}{step}"
    if story.job.knows_where_to_go_on:
        return labelled("Checkpoint", f"{known}, the newest whole one at {at}.")
    last = f"{known} was the newest whole one at {at}, before its last start"
    return labelled("Checkpoint", f"{last}. What it has written since lies beside it, and its next start finds that.")


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
