"""One job, as `nodeheal jobs show` tells of it."""

from collections.abc import Sequence
from datetime import datetime

from nodeheal.api.job_views import JobFindingRow, JobView, LinkedJob, LinkedJobIncident, RankRow, RunRow
from nodeheal.cli.job_list import progress_text
from nodeheal.contract.vocabulary import ActKind
from nodeheal.domain.humanize import counted, in_hours
from nodeheal.domain.jobs.job import ENDED


def as_text(view: LinkedJob, wrote: Sequence[str] = ()) -> list[str]:
    """One job for people, a line for each question. `wrote`: the last lines of the rank that broke its last run."""
    what = "Given up    by" if view.state in ENDED else "Stop        wanted by"
    stop = [f"{what} {view.stop_wanted}"] if view.stop_wanted else []
    by = f" by {view.submitted_by}" if view.submitted_by else ""
    return [
        f"Job         {view.job} (submission {view.submission}{by}, {_at(view.submitted_at)})",
        f"State       {view.state.value}: {view.summary or 'submitted; nothing is known of it yet'}",
        *stop,
        *_needed(view),
        *([f"Progress    {progress_text(view)}"] if view.step is not None else []),
        *_findings(view.findings),
        *([f"Waits for   {view.waits_for}"] if view.waits_for != view.summary else []),
        *([f"In line     {view.in_line}"] if view.in_line else []),
        f"Pool        {view.pool} (cluster {view.cluster}), {_wants(view)}",
        f"Definition  {view.task_definition}, container {view.container}",
        f"Checkpoints {_checkpoints(view)}",
        *([f"Directory   {view.directory_seen}"] if view.directory_seen else []),
        *_restarts(view),
        f"Owner       {_owner(view.owner, view.owner_confirmed)}",
        f"Workflow    {view.execution or '-'}",
        *_advice(view),
        *_placed(view),
        *wrote,
        *_runs(view.runs),
        *_incidents(view.incidents),
    ]


def _findings(rows: Sequence[JobFindingRow]) -> list[str]:
    """A line for each thing that is wrong with how it trains, or was."""
    return [
        f"Training    {row.text}; since {_at(row.since)}" + (f", over since {_at(row.over_at)}" if row.over_at else "")
        for row in rows
    ]


def _needed(view: JobView) -> list[str]:
    """Who has to do what about a job that has failed, as its owner's email says."""
    if not view.acts:
        return []
    again = f" `nodeheal jobs restart {view.job}`." if ActKind.RESTART_JOB in view.acts else ""
    return [f"Needed      {view.need}{again} If it stays down: `nodeheal jobs stop {view.job} --why …`"]


def _advice(view: JobView) -> list[str]:
    """Where its time went, and how often it should write checkpoints."""
    if not view.runs:
        return []
    advice = view.advice.lines if view.advice.says_enough else ()
    facts = [("Time", view.advice.account.words)] + [("Advice", line) for line in advice]
    return [f"{name:<12}{line}" for name, line in facts if line]


def _wants(view: JobView) -> str:
    each = f" with {counted(view.accelerators, 'accelerator')} each" if view.accelerators else ""
    spares = f", {view.spares} more to be left free" if view.spares else ""
    return f"{counted(view.nodes, 'node')}{each}{spares}, priority {view.priority}"


def _checkpoints(view: JobView) -> str:
    if view.checkpoints is None:
        return "no directory is named"
    newest, where = view.checkpoint, f"{view.checkpoints.directory} ({view.checkpoints.format})"
    if newest is None:
        return where
    step = f", step {newest.step}" if newest.step is not None else ""
    return f"{where}; newest valid at {_at(newest.looked_at)}, before its last start: {newest.path}{step}"


def _restarts(view: JobView) -> list[str]:
    """A line for each limit."""
    used, limits = view.restarts, view.restarts.limits
    hours = in_hours(limits.window_seconds)
    own = f"{used.of_application} of {limits.of_application} {hours} for failures of its program"
    binds = f"next limit: {used.next_limit}" if used.next_limit else "the policy limits them too: nodeheal policy show"
    return [
        f"Restarts    {used.total} of {limits.total} since it was submitted",
        f"            {used.in_window} of {limits.in_window} {hours}",
        f"            {own} (restarts.of_application)",
        f"            {binds}",
    ]


def _owner(owner: str | None, is_confirmed: bool | None) -> str:
    if owner is None:
        return "nobody; only the operators are told"
    consent = "gets emails about it" if is_confirmed else "has not agreed to emails: only the operators are told"
    return f"{owner} {consent}"


def _placed(view: JobView) -> list[str]:
    """The ranks of its newest run."""
    newest = next((row for row in view.runs if row.run == view.run), None)
    if newest is None:
        return []
    return [
        "",
        f"Ranks of run {newest.run} (in ECS started by {newest.started_by}):",
        *(f"  {row.rank:4d}  {row.node}  {_rank(row)}" for row in newest.ranks),
    ]


def _rank(row: RankRow) -> str:
    if row.status != "STOPPED":
        return row.status
    code = "no exit code" if row.exit_code is None else f"exit code {row.exit_code}"
    return f"STOPPED, {code}" + (f" ({row.stop_reason})" if row.stop_reason else "")


def _runs(rows: Sequence[RunRow]) -> list[str]:
    if not rows:
        return []
    title = "Its last run:" if len(rows) == 1 else f"Its last {counted(len(rows), 'run')}:"
    return ["", title, *map(_run, reversed(rows))]


def _run(row: RunRow) -> str:
    ended = f"; {row.broke}" if row.broke else "; every rank ended well" if row.has_succeeded else ""
    lost = f"; lost: {row.lost}" if row.lost else ""
    return f"  {row.run:4d}  {_at(row.started_at)}, {row.begins}: {row.why}{ended}{lost}"


def _incidents(rows: Sequence[LinkedJobIncident]) -> list[str]:
    lines = [f"  {row.incident}  {row.node}  {row.fault}: {row.status}\n      {row.execution}" for row in rows]
    return ["", "Its incidents:", *lines] if lines else []


def _at(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else "-"
