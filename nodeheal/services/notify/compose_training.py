"""Write the email to the owner of a job that runs, and trains slowly, wrongly or not at all."""

from typing import assert_never

from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import JobFindingKind, Phase
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.job_findings import JobFinding, NotedFinding
from nodeheal.domain.jobs.owner import Owner
from nodeheal.services.notify.compose import fit_subject
from nodeheal.services.notify.layout import command, field, paragraph

_NOTHING_DONE = "nothing: nodeheal has looked, and touches neither the job nor its nodes for this."
_RESTARTED = (
    "an incident is open for it, which starts the job again from a checkpoint where its limits and the mode of its pool"
    " allow it."
)

_REPAIRED = (
    "an incident is open for {}, which takes it out, repairs it, and has the job go on from a checkpoint, where the"
    " budget and the mode of its pool allow it."
)


def compose_training(job: Job, run: Run, noted: NotedFinding, owner: Owner, *, restarts: bool) -> Notification:
    """One email a kind of finding and a run, and one more when it is proven. `restarts`: an incident was opened, which
    starts it again.
    """
    finding = noted.finding
    proof = "" if finding.proven is None else "/proven"
    body = [
        *paragraph(f"Hello {owner.name}," if owner.name else "Hello,"),
        "",
        *paragraph(f"your job {job.job_id} runs, but {finding.text}."),
        "",
        *field("Needed", "nothing now." if restarts else _needed(finding.kind)),
        command("nodeheal", "jobs", "show", job.job_id),
        command("nodeheal", "jobs", "logs", job.job_id),
        "",
        *field("Since", f"{noted.since:%Y-%m-%d %H:%M:%S} UTC"),
        *([] if finding.step is None else field("Step", f"{finding.step}")),
        *field("Done", _done(finding, restarts=restarts)),
        *field("Job", f"{job.job_id}, run {run.number}, in pool {job.pool}"),
    ]
    return Notification(
        key=f"owner/{job.job_id}/{run.number}/{Phase.TRAINS_BADLY}/{finding.kind}{proof}",
        subject=fit_subject(f"[nodeheal] {job.job_id} {_WHAT[finding.kind]}"),
        body="\n".join(body),
        severity="INFO",
        pool=job.pool,
        phase=Phase.TRAINS_BADLY,
        job_id=job.job_id,
        owner=owner.address,
    )


def _done(finding: JobFinding, *, restarts: bool) -> str:
    if not restarts:
        return _NOTHING_DONE
    return _RESTARTED if finding.proven is None else _REPAIRED.format(finding.proven.node_id)


_WHAT = {
    JobFindingKind.HUNG: "seems to hang",
    JobFindingKind.NO_FIRST_STEP: "has taken no step yet",
    JobFindingKind.NO_CHECKPOINT: "writes no checkpoints",
    JobFindingKind.SLOWER: "trains more slowly than before",
    JobFindingKind.SLOW_RANK: "may have a slow rank",
    JobFindingKind.LOSS_NOT_FINITE: "has a loss that is not a number",
    JobFindingKind.LOSS_ROSE: "has a loss that has risen",
}


def _needed(kind: JobFindingKind) -> str:
    match kind:
        case JobFindingKind.HUNG:
            return "see what it waits for. With hang_seconds in its file, nodeheal restarts it when it hangs."
        case JobFindingKind.NO_FIRST_STEP:
            return "see what it does before its first step: data, compilation, or a rank that waits for another."
        case JobFindingKind.NO_CHECKPOINT:
            return "see whether it still writes checkpoints: what it has done since the last is lost with any node."
        case JobFindingKind.SLOWER:
            return "nothing, if it does more work in a step now. Otherwise see its data, and its slowest rank."
        case JobFindingKind.SLOW_RANK:
            return "nothing yet, if these ranks have more to do by design. Otherwise ask the operators about the node."
        case JobFindingKind.LOSS_NOT_FINITE | JobFindingKind.LOSS_ROSE:
            return "look at its loss; you may want to go back to an earlier checkpoint."
    assert_never(kind)
