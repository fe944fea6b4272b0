"""One job, as `nodeheal jobs show` tells of it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from nodeheal.cli.job_list import row_of, standing_json
from nodeheal.cli.say import iso
from nodeheal.contract.names import started_by
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.gang import first_failure
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.jobs.lost_work import lost_work_text, start_text
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.review.review import status_text, title_of
from nodeheal.services.jobs.job_line import line_in_words
from nodeheal.services.jobs.job_troubles import needed
from nodeheal.services.operators.look_at_job import JobView, in_hours


def as_text(
    view: JobView, link: str, links: Mapping[str, str], is_confirmed: bool | None, wrote: Sequence[str] = ()
) -> list[str]:
    """One job for people, a line for each question. `wrote`: the last lines of the rank that broke its last run."""
    job = view.job
    what = "Given up    by" if job.is_over else "Stop        wanted by"
    stop = [f"{what} {job.stop_wanted}"] if job.stop_wanted else []
    return [
        f"Job         {job.job_id} (submission {job.submission}, {_at(job.submitted_at)})",
        f"State       {job.state.value}: {job.summary or 'submitted; nothing is known of it yet'}",
        *stop,
        *_needed(job),
        *([f"Progress    {view.progress.words}"] if view.progress else []),
        *_waits(view),
        *([f"In line     {line_in_words(view.ahead)}"] if view.ahead else []),
        f"Pool        {job.pool} (cluster {job.cluster}), {_wants(job)}",
        f"Definition  {job.task_definition}, container {job.container}",
        f"Checkpoints {_checkpoints(job)}",
        *([f"Directory   {job.directory_seen}"] if job.directory_seen else []),
        *_restarts(view),
        f"Owner       {_owner(job, is_confirmed)}",
        f"Workflow    {link or '-'}",
        *_advice(view),
        *_placed(view.run),
        *wrote,
        *_runs(view),
        *_incidents(view.incidents, links),
    ]


def _needed(job: Job) -> list[str]:
    """Who has to do what about a job that has failed, as its owner's email says."""
    if not job.waits_for_a_human:
        return []
    need, can_restart = needed(job.trouble)
    again = f" `nodeheal jobs restart {job.job_id}`." if can_restart else ""
    return [f"Needed      {need}{again} If it stays down: `nodeheal jobs stop {job.job_id} --why …`"]


def _advice(view: JobView) -> list[str]:
    """Where its time went, and how often it should write checkpoints."""
    if not view.runs:
        return []
    advice = view.advice.lines if view.advice.says_enough else ()
    told = [("Time", view.advice.account.words)] + [("Advice", line) for line in advice]
    return [f"{name:<12}{line}" for name, line in told if line]


def as_json_of(view: JobView, link: str, links: Mapping[str, str], is_confirmed: bool | None) -> dict[str, object]:
    """One job for programs."""
    job = view.job
    return {
        **row_of(job, view.progress),
        "owner_confirmed": is_confirmed,
        "cluster": job.cluster,
        "accelerators": job.accelerators,
        "task_definition": job.task_definition,
        "container": job.container,
        "checkpoints": job.checkpoints.model_dump(mode="json") if job.checkpoints else None,
        "directory_seen": job.directory_seen or None,
        "stop_wanted": job.stop_wanted or None,
        "trouble": job.trouble,
        "waits_for": waits_for(view),
        "in_line_before": standing_json(view.ahead),
        "restarts": {
            "total": view.restarts.total,
            "in_window": view.restarts.in_window,
            "of_application": view.restarts.of_application,
            "limits": job.restarts.model_dump(mode="json"),
            "next_limit": view.next_limit or None,
        },
        "execution": link or None,
        "advice": view.advice.as_json(),
        "runs": [_run_json(run) for run in view.runs],
        "incidents": [_incident_json(one, links) for one in view.incidents],
    }


def _waits(view: JobView) -> list[str]:
    """Nothing where the state has said it already."""
    told = waits_for(view)
    return [] if told == view.job.summary else [f"Waits for   {told}"]


def waits_for(view: JobView) -> str:
    """What has to happen before it goes on; `-`: nothing, it trains or is over."""
    job, run, incident = view.job, view.run, view.working
    if job.is_over:
        return "-"
    if incident is not None:
        awaits = f" for {view.awaits}" if view.awaits else ""
        return f"incident {incident.incident_id} on {incident.node_id}: {status_text(incident)}{awaits}"
    if run is not None and run.is_running:
        return "-"
    late = [f"rank {task.rank} on {task.node_id}" for task in run.tasks if task.status == "PENDING"] if run else []
    return f"the start of {', '.join(late)}" if late else job.summary or "its workflow, which starts within a minute"


def _run_json(run: Run) -> dict[str, object]:
    return {
        "run": run.number,
        "started_by": started_by(run.job_id, run.number),
        "started_at": iso(run.started_at),
        "running_since": iso(run.running_since),
        "ended_at": iso(run.ended_at),
        "why": run.why,
        "resumed_from": run.resumed_from or None,
        "resumed_step": run.resumed_step,
        "last_step": run.last_step,
        "ranks": [
            {
                "rank": task.rank,
                "node": task.node_id,
                "task": task.task_id or None,
                "status": task.status,
                "exit_code": task.exit_code,
                "stop_reason": task.stop_reason or None,
                "stopped_at": iso(task.stopped_at),
            }
            for task in run.tasks
        ],
    }


def _incident_json(incident: Incident, links: Mapping[str, str]) -> dict[str, object]:
    return {
        "incident": incident.incident_id,
        "node": incident.node_id,
        "state": incident.state.value,
        "ending": incident.ending.value if incident.ending else None,
        "fault": title_of(incident.root),
        "summary": incident.summary,
        "execution": links.get(incident.incident_id),
    }


def _wants(job: Job) -> str:
    each = f" with {counted(job.accelerators, 'accelerator')} each" if job.accelerators else ""
    spares = f", {job.spares} more to be left free" if job.spares else ""
    return f"{counted(job.nodes, 'node')}{each}{spares}, priority {job.priority}"


def _checkpoints(job: Job) -> str:
    if job.checkpoints is None:
        return "no directory is named"
    found = job.found
    if found is None:
        return f"{job.checkpoints.directory} ({job.checkpoints.format})"
    step = f", step {found.step}" if found.step is not None else ""
    seen = f"newest valid at {_at(found.looked_at)}, before its last start"
    return f"{job.checkpoints.directory} ({job.checkpoints.format}); {seen}: {found.path}{step}"


def _restarts(view: JobView) -> list[str]:
    """A line for each limit."""
    used, limits = view.restarts, view.job.restarts
    hours = in_hours(limits.window_seconds)
    own = f"{used.of_application} of {limits.of_application} {hours} for failures of its program"
    binds = f"next limit: {view.next_limit}" if view.next_limit else "the policy limits them too: nodeheal policy show"
    return [
        f"Restarts    {used.total} of {limits.total} since it was submitted",
        f"            {used.in_window} of {limits.in_window} {hours}",
        f"            {own} (restarts.of_application)",
        f"            {binds}",
    ]


def _owner(job: Job, is_confirmed: bool | None) -> str:
    if job.owner is None:
        return "nobody; only the operators are told"
    said = "gets emails about it" if is_confirmed else "has not agreed to emails: only the operators are told"
    return f"{job.owner} {said}"


def _placed(run: Run | None) -> list[str]:
    if run is None:
        return []
    return [
        "",
        f"Ranks of run {run.number} (in ECS started by {started_by(run.job_id, run.number)}):",
        *(f"  {task.rank:4d}  {task.node_id}  {_rank(task)}" for task in run.tasks),
    ]


def _rank(task: GangTask) -> str:
    if not task.has_stopped:
        return task.status
    code = "no exit code" if task.exit_code is None else f"exit code {task.exit_code}"
    return f"STOPPED, {code}" + (f" ({task.stop_reason})" if task.stop_reason else "")


def _runs(view: JobView) -> list[str]:
    told = []
    after = {run.number: following for run, following in pairwise(view.runs)}
    for run in reversed(view.runs):
        broke = first_failure(run)
        ended = f"; {broke.words}" if broke else "; every rank ended well" if run.has_succeeded else ""
        begun = f"{_at(run.started_at)}, {start_text(view.job, run)}"
        told.append(f"  {run.number:4d}  {begun}: {run.why}{ended}{_lost(view.job, run, after)}")
    title = "Its last run:" if len(told) == 1 else f"Its last {counted(len(told), 'run')}:"
    return ["", title, *told] if told else []


def _lost(job: Job, run: Run, after: Mapping[int, Run]) -> str:
    following = after.get(run.number)
    return f"; lost: {lost_work_text(job, run, following)}" if following is not None else ""


def _incidents(incidents: Sequence[Incident], links: Mapping[str, str]) -> list[str]:
    told = [
        f"  {one.incident_id}  {one.node_id}  {title_of(one.root)}: {status_text(one)}"
        f"\n      {links.get(one.incident_id, '')}"
        for one in incidents
    ]
    return ["", "Its incidents:", *told] if told else []


def _at(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else "-"
