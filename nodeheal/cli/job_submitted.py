"""What `nodeheal jobs submit` prints of a job, for people."""

import shlex
from collections.abc import Sequence

from nodeheal.api.submission_views import PlannedJob, SubmittedJob
from nodeheal.cli.say import say
from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import ENDED


def say_submitted(view: SubmittedJob) -> None:
    """What was submitted, or was known before."""
    warn(view.warnings)
    where = view.placement
    if view.is_new and where is not None:
        now = ", ".join(where.nodes) if where.nodes else f"it waits: {where.why}"
        say(f"{view.job} is submitted; nodes as they are now: {now}")
    else:
        _say_known(view)
    if view.in_line:
        say(view.in_line)
    if view.owner_confirmed is False:
        address = view.owner_address
        say(f"{address} has not confirmed emails: `nodeheal owners subscribe {address}`;")
        say("until that is confirmed, only the operators are told")
    say(f"see `nodeheal jobs show {view.job}`, `nodeheal jobs logs -f {view.job}`")


def say_planned(spec: JobSpec, view: PlannedJob) -> None:
    """What would be started, and where; nothing is recorded."""
    where = view.placement
    racks = f", racks {', '.join(where.racks)}" if where.racks else ""
    each = f" with {counted(view.accelerators, 'accelerator')} each" if view.accelerators else ""
    say(f"{spec.name}: {counted(spec.nodes, 'node')}{each} of pool {where.pool} (cluster {where.cluster}{racks})")
    say(f"  runs         {spec.image or view.task_definition}{f': {shlex.join(spec.command)}' if spec.command else ''}")
    kept = f"{spec.checkpoints.directory} ({spec.checkpoints.format})" if spec.checkpoints else "no directory is named"
    say(f"  checkpoints  {kept}")
    checks = f"dcgmi diag -r {spec.preflight.level}, before it starts" if spec.preflight.level else "nothing"
    say(f"  checked by   {checks}")
    say(f"  nodes now    {', '.join(where.nodes) or where.why}")
    if view.in_line:
        say(f"  in line      {view.in_line}")
    warn(view.warnings)
    say("dry run: nothing was recorded; --json shows the whole task definition")


def warn(doubts: Sequence[str]) -> None:
    """What to think about, a line each."""
    for doubt in doubts:
        say(f"warning: {doubt}")


def _say_known(view: SubmittedJob) -> None:
    say(f"{view.job} was submitted before and is {view.state}: {view.summary or 'nothing is known of it yet'}")
    if view.differs_in:
        runs = "it has run" if view.state in ENDED else "it runs"
        say(f"warning: the file differs from it in {', '.join(view.differs_in)}; {runs} as it was submitted")
