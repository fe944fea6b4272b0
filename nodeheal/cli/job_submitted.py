"""What `nodeheal jobs submit` says of a job that it has taken in."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from nodeheal.api.job_list import job_row
from nodeheal.cli import connect
from nodeheal.cli.connect import clearly
from nodeheal.cli.job_list import standing_json
from nodeheal.cli.say import say, say_json
from nodeheal.contract.acts import JobRecorded
from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import Job
from nodeheal.services.jobs.job_line import Standing, line_in_words
from nodeheal.services.jobs.prepare_job import Plan, placement_of


@dataclass(frozen=True)
class Submitted:
    """A job as it was asked for, what the control plane answered, and its record. `ahead`: who gets nodes before it."""

    spec: JobSpec
    answer: JobRecorded
    job: Job
    ahead: tuple[Standing, ...]


def say_submitted(it: Submitted) -> None:
    """For people."""
    warn(it.answer.warnings)
    where = it.answer.placement
    if it.answer.is_new and where is not None:
        now = ", ".join(where.nodes) if where.nodes else f"it waits: {where.why}"
        say(f"{it.job.job_id} is submitted; nodes as they are now: {now}")
    else:
        _say_known(it)
    if it.ahead:
        say(line_in_words(it.ahead))
    if _is_confirmed(it.job) is False:
        address = it.job.owner.address if it.job.owner else ""
        say(f"{address} has not confirmed emails: `nodeheal owners subscribe {address}`;")
        say("until that is confirmed, only the operators are told")
    say(f"see `nodeheal jobs show {it.spec.name}`, `nodeheal jobs logs -f {it.spec.name}`")


def say_planned(spec: JobSpec, plan: Plan, ahead: Sequence[Standing]) -> None:
    """What would be started, and where; nothing is recorded."""
    where, job = placement_of(plan), plan.job
    racks = f", racks {', '.join(where.racks)}" if where.racks else ""
    each = f" with {counted(job.accelerators, 'accelerator')} each" if job.accelerators else ""
    say(f"{job.job_id}: {counted(job.nodes, 'node')}{each} of pool {job.pool} (cluster {job.cluster.name}{racks})")
    say(f"  runs         {spec.image or job.task_definition}{f': {shlex.join(spec.command)}' if spec.command else ''}")
    kept = f"{job.checkpoints.directory} ({job.checkpoints.format})" if job.checkpoints else "no directory is named"
    say(f"  checkpoints  {kept}")
    checks = f"dcgmi diag -r {job.preflight.level}, before it starts" if job.preflight.level else "nothing"
    say(f"  checked by   {checks}")
    say(f"  nodes now    {', '.join(where.nodes) or where.why}")
    if ahead:
        say(f"  in line      {line_in_words(ahead)}")
    warn(plan.doubts)
    say("dry run: nothing was recorded; --json shows the whole task definition")


def say_submitted_json(it: Submitted) -> None:
    """For programs."""
    say_json(
        {
            **job_row(it.job).model_dump(mode="json"),
            "is_new": it.answer.is_new,
            "differs_in": list(it.answer.differs_in),
            "placement": it.answer.placement.model_dump(mode="json") if it.answer.placement else None,
            "in_line_before": standing_json(it.ahead),
            "owner_confirmed": _is_confirmed(it.job),
            "warnings": list(it.answer.warnings),
        }
    )


def warn(doubts: "tuple[str, ...] | list[str]") -> None:
    """What to think about, a line each."""
    for doubt in doubts:
        say(f"warning: {doubt}")


def _say_known(it: Submitted) -> None:
    job = it.job
    say(f"{job.job_id} was submitted before and is {job.state}: {job.summary or 'nothing is known of it yet'}")
    if it.answer.differs_in:
        runs = "it has run" if job.is_over else "it runs"
        say(f"warning: the file differs from it in {', '.join(it.answer.differs_in)}; {runs} as it was submitted")
    if it.spec.image is not None and not job.made_of:
        say("its image, command, environment and mounts are not compared: an older version did not store them")


def _is_confirmed(job: Job) -> bool | None:
    """Whether its owner gets emails; None: it has none."""
    if job.owner is None:
        return None
    with clearly():
        return connect.owners().is_confirmed(job.owner)
