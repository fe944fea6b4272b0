"""Write the emails about a job itself: to its owner when it starts, finishes, or ends otherwise; to the operators when
it is a human's. What a recovery does to it: compose_owner."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import Escalation, Phase, Trouble
from nodeheal.domain.humanize import counted, lasting
from nodeheal.domain.jobs.checkpoint_advice import NO_EXPERIENCE, PoolExperience, advice_of
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.owner import Owner
from nodeheal.domain.review.console_links import NO_LINKS, ConsoleLinks
from nodeheal.services.jobs.job_troubles import OF_THE_CLUSTER, needed
from nodeheal.services.notify.compose import fit_subject
from nodeheal.services.notify.compose_owner import nodes_in_words
from nodeheal.services.notify.layout import command, link, paragraph
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
    def run(self) -> Run | None:
        """Its newest run."""
        return self.runs[-1] if self.runs else None


def compose_started(story: JobStory, owner: Owner) -> Notification | None:
    """All ranks of its first run are up. None: they are not."""
    run = story.run
    if run is None:
        return None
    job, since = story.job, run.running_since or story.at
    ranks = "its one rank runs" if len(run.tasks) == 1 else f"its {len(run.tasks)} ranks run"
    waited = since - job.submitted_at if job.submitted_at else timedelta()
    told = f" Nodes, their checks and its image took {lasting(waited)}." if waited >= timedelta(seconds=1) else ""
    following = "when a node breaks, all ranks stop and start again by themselves, from the last checkpoint. Then you"
    body = [
        *paragraph(f"your job {job.job_id} has started: {ranks} since {_time(since)}, as run {run.number}.{told}"),
        "",
        *labelled("Nodes", nodes_in_words(run)),
        *labelled("Checked", _checked(job)),
        *(labelled("Directory", f"{job.directory_seen}.") if job.directory_in_doubt else []),
        *labelled("Begins", _begins(run)),
        *labelled("Next", f"{following} get an email."),
        *labelled("Needed", "nothing."),
    ]
    return _letter(story, owner, Phase.STARTED, f"has started on {counted(len(run.tasks), 'node')}", body)


def compose_finished(story: JobStory, owner: Owner) -> Notification:
    """Every rank has ended well."""
    job, run = story.job, story.run
    as_run = f" as run {run.number}" if run else ""
    body = [
        *paragraph(f"your job {job.job_id} has finished{as_run}: every rank has ended with exit code 0."),
        "",
        *_books(story),
        *labelled("Needed", "nothing. Its nodes are free for others."),
    ]
    return _letter(story, owner, Phase.FINISHED, "has finished", body)


def compose_cancelled(story: JobStory, owner: Owner) -> Notification:
    """A person has stopped it."""
    job, need = story.job, "nothing. To let it go on from its last checkpoint:"
    body = [
        *paragraph(f"your job {job.job_id} was stopped by a person, and nothing starts it again by itself."),
        "",
        *labelled("Why", story.why),
        *(labelled("Lost", _LOST) if story.runs else []),
        *_books(story),
        *labelled("Needed", need),
        command("nodeheal", "jobs", "restart", job.job_id),
        "",
    ]
    return _letter(story, owner, Phase.CANCELLED, "was stopped by a person", body)


def compose_down(story: JobStory, owner: Owner) -> Notification:
    """It is down, or never came up, and a human has it."""
    job, what = story.job, "is down, and is not started again by itself"
    told = f"your job {job.job_id} is down, and nodeheal does not start it again."
    if not story.runs:
        what = "did not start, and is not tried again"
        told = f"your job {job.job_id} has not started, and nodeheal does not try it again."
    need, is_to_restart = needed(story.trouble)
    body = [
        *paragraph(told),
        "",
        *labelled("Why", story.why),
        *(labelled("Lost", _LOST) if story.runs else []),
        *_books(story),
        *labelled("Needed", need),
        *([command("nodeheal", "jobs", "restart", job.job_id), ""] if is_to_restart else []),
    ]
    return _letter(story, owner, Phase.HANDED_OVER, what, body)


def compose_for_operators(story: JobStory) -> Notification:
    """The same, to those who run the pool. A page only where the trouble is in the cluster, and not in the job."""
    job, code = story.job, Escalation.JOB_HANDED_OVER
    what = "is down" if story.runs else "did not start"
    is_page = story.trouble is None or story.trouble in OF_THE_CLUSTER
    need = "look at the nodes first; the runbook has it." if is_page else _OF_THE_OWNER
    whose = f"{job.owner}, who has been told" if job.owner else "nobody: the file names no owner"
    body = [
        *paragraph(f"Job {job.job_id} {what}, and nodeheal does not start it again: {story.why}"),
        "",
        *labelled("Job", _named(story)),
        *labelled("Owner", whose),
        *labelled("Trouble", story.trouble.value if story.trouble else "not known"),
        *labelled("Needed", need),
        link("Runbook", story.console_links.runbook(code)),
        link("More", f"nodeheal jobs show {job.job_id}"),
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
        needed=(need, f"nodeheal jobs show {job.job_id}"),
    )


_LOST = "what it had computed since its last checkpoint; the checkpoints are as they were."
_OF_THE_OWNER = (
    "nothing of you, once its owner knows of it: it is the job that has to change. The runbook has the rest."
)


def _letter(story: JobStory, owner: Owner, phase: Phase, what: str, body: list[str]) -> Notification:
    """One email a phase of a run; of a submission that had none, one a phase of that."""
    job, run = story.job, story.run
    which = str(run.number) if run else f"submission-{job.submission}"
    greeting = [*paragraph(f"Hello {owner.name}," if owner.name else "Hello,"), ""]
    reference = labelled("Reference", story.incident_id) if story.incident_id else []
    ending = [*labelled("Job", _named(story)), *reference, link("More", f"nodeheal jobs show {job.job_id}")]
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


def _begins(run: Run) -> str:
    if not run.resumed_from:
        return "at the beginning, or where its program finds a checkpoint by itself."
    step = "" if run.resumed_step is None else f" (step {run.resumed_step})"
    return f"from its last checkpoint, {run.resumed_from}{step}."


def _books(story: JobStory) -> list[str]:
    """How its time went, and how often it should write checkpoints."""
    if not story.runs or story.job.submitted_at is None:
        return []
    ran = sum((_ran(run, story.at) for run in story.runs), timedelta())
    whole = story.at - story.job.submitted_at
    restarts = len(story.runs) - 1
    told = f"{lasting(whole)} since it was submitted; its ranks ran for {lasting(ran)} of it."
    found = story.job.found
    step = "" if found is None or found.step is None else f" (step {found.step})"
    advice = advice_of(story.job, story.runs, (), story.at, story.beside)
    return [
        *labelled("Time", told),
        *(line for said in advice.account.lines for line in labelled("", f"{said}.")),
        *labelled("Restarts", f"{restarts or 'none'}."),
        *(labelled("Advice", f"{'; '.join(advice.lines)}.") if advice.daly_seconds is not None else []),
        *(
            labelled(
                "Checkpoint",
                f"{found.path}{step}, the newest whole one at {_time(found.looked_at)}, before its last start.",
            )
            if found
            else []
        ),
    ]


def _ran(run: Run, at: datetime) -> timedelta:
    return max(timedelta(), (run.ended_at or at) - run.running_since) if run.running_since else timedelta()


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
