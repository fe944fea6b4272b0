"""Write the emails to the owner of a job: what became of it, what is lost, what happens next, what is needed."""

from dataclasses import dataclass
from datetime import datetime

from nodeheal.contract.notification import Notification
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, Family, Outcome, Phase, Trouble
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.humanize import lasting
from nodeheal.domain.jobs.gang import first_failure
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.lost_work import UNSAVED, lost_work_text, start_text
from nodeheal.domain.jobs.owner import Owner
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.recovery.timeline import CheckpointRequested, payloads_of
from nodeheal.domain.review.review import AWAITED
from nodeheal.domain.verbs import VERBS
from nodeheal.services.jobs.job_troubles import NOT_APPROVED, needed
from nodeheal.services.notify.compose import fit_subject, heading
from nodeheal.services.notify.compose_needed import log_of, restart
from nodeheal.services.notify.layout import field, link, paragraph, quoted, sentence

NODES_NAMED = 8


def nodes_in_words(run: Run) -> str:
    """Where it runs: the first ranks' nodes by name."""
    nodes = [task.node_id for task in run.tasks]
    return ", ".join(nodes[:NODES_NAMED]) + (f" and {len(nodes) - NODES_NAMED} more" if nodes[NODES_NAMED:] else "")


@dataclass(frozen=True)
class About:
    """A job and what a recovery has come to with it. `run`: the one that was stopped, or that runs now."""

    owner: Owner
    job: Job
    run: Run
    situation: Situation
    before: Run | None = None  # the run before that one
    first_end_at: datetime | None = None  # of the run before, where a rank had ended by itself before anybody said so
    restarts: str = ""  # which of the restarts that the job allows its program this was, in words
    execution: str = ""  # the address of the recovery in the console; empty: it is not known

    @property
    def history(self) -> History:
        """The incident's own story."""
        return self.situation.history

    @property
    def progress(self) -> Progress:
        """What the recovery has done so far."""
        return self.situation.progress

    @property
    def fault(self) -> Fault:
        """The gravest fault."""
        return self.situation.assessment.fault


def compose_stopped(about: About) -> Notification:
    """It was stopped, and is to be brought back."""
    body = [
        *paragraph(f"your job {about.job.job_id} has stopped. {_what_broke(about)} {_why_all(about.run)}"),
        "",
        *field("Needed", _do_not_start(about.job)),
        "",
        *field("Next", f"the node is repaired, or another one takes its place. {_FOLLOWING}"),
        *field("Lost", f"{UNSAVED}.{_asked(about.history)}"),
    ]
    return _letter(about, Phase.STOPPED, "has stopped: one of its nodes is being repaired", body)


def compose_held_back(about: About, awaited: Awaited, due: datetime) -> Notification:
    """It has ended, and its recovery waits until `due` for what `awaited` says. That it stops later is no news."""
    silence = " Without a yes you are told that it stays down." if awaited is Awaited.APPROVAL else ""
    waits = HELD_BACK[awaited].format(f"{due:%Y-%m-%d %H:%M:%S} UTC")
    shown = log_of(about.job, about.run) if about.situation.is_fault_of_program else []
    body = [
        *paragraph(f"your job {about.job.job_id} has stopped. {_what_broke(about)}"),
        "",
        *field("Needed", _do_not_start(about.job)),
        *([*paragraph("Meanwhile look at why your program failed:"), *shown] if shown else []),
        "",
        *field("Next", f"{waits}. {_FOLLOWING}{silence}"),
        *field("Lost", f"{UNSAVED}."),
    ]
    return _letter(about, Phase.STOPPED, f"has stopped: its recovery waits for {AWAITED[awaited]}", body)


def _do_not_start(job: Job) -> str:
    harm = "it would run twice" if job.checkpoints is None else "two copies would write the same checkpoints"
    return f"nothing. Please do not start it yourself: {harm}."


# What a recovery may wait for while its job is down, and how its owner is told, with the time of the latest end.
HELD_BACK = {
    Awaited.APPROVAL: "the operators have been asked to approve its recovery by {}",
    Awaited.BUDGET: "as many nodes as may be are out of service, so its recovery waits for its turn, until {} at most",
    Awaited.BREAKER: "many nodes fail together, so the operators look for the cause first, until {} at most",
}
_FOLLOWING = "Then all ranks start again by themselves, and you get another email, which says from where."


def compose_runs_again(about: About) -> Notification:
    """All its ranks run."""
    since = (
        max(about.progress.restart.finished_at, about.run.started_at)
        if about.progress.restart
        else about.run.started_at
    )
    broke_at = about.history.incident.root.observed_at
    down = lasting(since - min(broke_at, about.first_end_at or broke_at))
    where = nodes_in_words(about.run)
    lost = f"{lost_work_text(about.job, about.before, about.run)}."
    lost += " Its log says at which step it goes on." if about.run.resumed_step is None else ""
    text = f"your job {about.job.job_id} has been running again since {since:%Y-%m-%d %H:%M:%S} UTC, after {down} down."
    body = [
        *paragraph(text),
        "",
        *_needed_after_restart(about),
        "",
        *field("Why", f"{_what_broke(about)} {_what_was_done(about)}"),
        *field("Goes on", f"as run {about.run.number}, on {where}, {start_text(about.job, about.run)}."),
        *field("Lost", f"{lost}{_lost_with_the_host(about)}"),
        *(quoted("Evidence", about.fault.event.evidence) if about.situation.is_fault_of_program else []),
    ]
    return _letter(about, Phase.RUNS_AGAIN, f"runs again{_from(about)}", body)


def _from(about: About) -> str:
    """Where it goes on, for the subject. Empty: its program may find a checkpoint that nodeheal does not see."""
    if about.run.resumed_step is not None:
        return f", from step {about.run.resumed_step}"
    if about.run.resumed_from:
        return ", from its newest checkpoint"
    return "" if about.job.checkpoints is None else ", from its beginning"


def compose_handed_over(about: About, decided: Decision) -> Notification:
    """It is down, and no recovery brings it back."""
    lost = f"{UNSAVED}; the checkpoints are as they were."
    body = [
        *paragraph(f"your job {about.job.job_id} is down, and nodeheal does not start it again. {_what_broke(about)}"),
        "",
        *_needed_when_down(about, decided),
        "",
        *field("Why", sentence(decided.reason)),
        *(quoted("Evidence", about.fault.event.evidence) if about.situation.is_fault_of_program else []),
        *field("Lost", f"{lost}{_lost_with_the_host(about)}"),
    ]
    return _letter(about, Phase.HANDED_OVER, "is down, and is not started again by itself", body)


def _needed_when_down(about: About, decided: Decision) -> list[str]:
    """Who starts it again, as the operators are told: compose_needed."""
    job = about.job
    if about.situation.is_fault_of_program:
        shown = log_of(job, about.run) or log_of(job, about.before)
        trouble = Trouble.NOT_APPROVED if decided.escalation in NOT_APPROVED else Trouble.PROGRAM_FAILS
        return [*field("Needed", needed(trouble)[0]), *shown, restart(job.job_id)]
    text = "nothing now. The operators have been told: they start it again when it has enough healthy nodes."
    return field("Needed", text)


def _letter(about: About, phase: Phase, what: str, body: list[str]) -> Notification:
    """One email a phase of a run, however many of its nodes fail and however often it is announced."""
    job, incident = about.job, about.history.incident
    greeting = [*paragraph(f"Hello {about.owner.name}," if about.owner.name else "Hello,"), ""]
    ending = [
        *field("Job", f"{job.job_id}, run {about.run.number}, in pool {incident.pool}"),
        *(
            link("Its recovery, step by step", about.execution)
            if about.execution
            else field("Reference", incident.incident_id)
        ),
    ]
    return Notification(
        key=f"owner/{job.job_id}/{about.run.number}/{phase}",
        subject=fit_subject(f"{heading(about.history)} {job.job_id} {what}"),
        body="\n".join([*greeting, *body, *ending]),
        severity="INFO",
        pool=incident.pool,
        phase=phase,
        job_id=job.job_id,
        owner=about.owner.address,
    )


def how_it_broke(history: History, fault: Fault) -> str:
    """When and how the job's node went out of service."""
    root = history.incident.root
    at = f"{root.observed_at:%Y-%m-%d %H:%M:%S} UTC"
    if fault.is_by_hand:
        return f"At {at} an operator took its node {root.node_id} out of service."
    drill = " That is a drill: an operator has injected this fault." if history.is_drill else ""
    return f"At {at} its node {root.node_id} broke down: {fault.title}.{drill}"


def _what_broke(about: About) -> str:
    if about.fault.is_by_hand or not about.situation.is_fault_of_program:
        return how_it_broke(about.history, about.fault)
    root = about.history.incident.root
    broke = next(
        (failure for run in (about.run, about.before) if run is not None and (failure := first_failure(run))), None
    )
    if broke is None or root.family is not Family.task or broke.task.node_id != root.node_id:
        return f"At {root.observed_at:%Y-%m-%d %H:%M:%S} UTC its rank on {root.node_id} failed: {about.fault.title}."
    return f"At {broke.task.stopped_at or root.observed_at:%Y-%m-%d %H:%M:%S} UTC its {broke.words}."


def _why_all(run: Run) -> str:
    if len(run.tasks) == 1:
        return "It cannot run there any more."
    return f"It runs on {len(run.tasks)} nodes together and cannot go on without one of them, so all its ranks stop."


def _asked(history: History) -> str:
    is_asked = bool(payloads_of(history.timeline, CheckpointRequested))
    return " It was asked to write one just before, so that may be little." if is_asked else ""


def _what_was_done(about: About) -> str:
    if about.situation.is_fault_of_program:
        return "It was started again on the same nodes."
    if about.progress.has_moved_job:
        return _why_moved(about)
    if about.progress.replacement:
        return f"{about.progress.replacement} has taken its place, after passing its diagnostics."
    return f"The node {_healed_by(about.progress)}has passed its diagnostics since."


def _why_moved(about: About) -> str:
    """Who has taken the node's place, and why the job did not wait for it."""
    before = {task.node_id for task in about.before.tasks} if about.before is not None else set()
    new = [task.node_id for task in about.run.tasks if task.node_id not in before]
    reasons = [t.decision.reason for t in about.history.turns if t.decision.is_move and t.decision.action is not None]
    taken = f"{' and '.join(new)} has taken its place" if len(new) == 1 else "Other nodes have taken its place"
    return f"{taken}, after passing diagnostics. {reasons[-1] if reasons else ''}".rstrip() + ("." if reasons else "")


def _healed_by(progress: Progress) -> str:
    """What was done to the node that runs it again. An escalation step that did not go through has healed nothing."""
    last = progress.tried[-1] if progress.tried else None
    if last is None or last.result.outcome is not Outcome.DONE:
        return ""
    before = " and ".join(VERBS[step.action].with_article for step in progress.tried[:-1])
    first = f"could not be repaired by {before}. It " if before else ""
    return f"{first}{VERBS[last.action].healed} and "


def _lost_with_the_host(about: About) -> str:
    """What no checkpoint brings back: a stop takes the disks that belong to the host."""
    node_id = about.history.incident.root.node_id
    stops = [step for step in about.progress.tried if step.action is Action.STOP_START]
    is_stopped = any(step.result.outcome is not Outcome.REFUSED for step in stops)
    is_gone = is_stopped or about.progress.has_new_machine
    return f" What lay on the own disks (instance store) of {node_id} is gone." if is_gone else ""


def _needed_after_restart(about: About) -> list[str]:
    if not about.situation.is_fault_of_program:
        return field("Needed", "nothing.")
    shown = log_of(about.job, about.before)
    look = "This kind of fault mostly comes from the program. If it comes again, look there"
    need = " ".join(filter(None, ["nothing now.", about.restarts, look]))
    return [*field("Needed", f"{need}{':' if shown else '.'}"), *shown]
