"""Stories of jobs, to be told with breaks in them: what happens before a job runs, and a person who stops it."""

from collections.abc import Callable
from typing import Any

from nodeheal.contract.health_event import Sight
from tests.support.builders import ACT, xid
from tests.support.fuse import NEVER, Fuse
from tests.support.job_cluster import NODES, JobCluster, fails, finishes, node_of
from tests.support.policies import WITH_FABRIC
from tests.workflows.breaking_job import BreakingJob, JobStory
from tests.workflows.restart_stories import refuse

A, B, C, _ = NODES
A_DISK = Sight(file_system="ext4", source="/dev/nvme0n1", inode=2, device=259, machine="machine-a")


def _job(policy: Any = ACT, **spec_of: Any) -> Callable[[Fuse], BreakingJob]:
    def make(fuse: Fuse) -> BreakingJob:
        it = BreakingJob(fuse, policy, **spec_of)
        it.happenings = [finishes]
        return it

    return make


def _is_stopped_while_it_runs(fuse: Fuse) -> BreakingJob:
    it = _job()(fuse)
    it.happenings = [lambda _: it.is_asked_to_stop()]
    return it


def _is_stopped_before_its_launch(fuse: Fuse) -> BreakingJob:
    it = _job()(fuse)
    it.before["Launch job"] = lambda _: it.is_asked_to_stop()
    return it


def _two_do_not_reach_one_another(fuse: Fuse) -> BreakingJob:
    it = _job(WITH_FABRIC)(fuse)
    it.broken_links.add(frozenset((A, B)))
    return it


def _one_does_not_answer(fuse: Fuse) -> BreakingJob:
    it = _job()(fuse)
    it.hangs.add(A)
    return it


def _sees(**sights: Sight) -> Callable[[Fuse], BreakingJob]:
    """Before its first start its nodes say what they see where its checkpoints are."""

    def make(fuse: Fuse) -> BreakingJob:
        it = _job(nodes=3, checkpoints={"directory": "/mnt/llama"}, preflight={"level": 0})(fuse)
        it.sees = {dict(zip("abc", NODES, strict=False))[rank]: sight for rank, sight in sights.items()}
        return it

    return make


def a_rank_of_the_job_is_refused(fuse: Fuse, times: int = NEVER) -> BreakingJob:
    """Rank 1 of its first run, by the scheduler; so many times it is."""
    it = _job()(fuse)
    refuse(it.plain, run=1, times=times)
    it.before["Launch job"] = lambda _: it.before.update({"Choose nodes": _who_was_asked_stops})
    return it


def _who_was_asked_stops(it: JobCluster) -> None:
    it._ranks_stop(None)


def _its_incidents_start_is_lost(fuse: Fuse) -> BreakingJob:
    """Its rank fails before the node's fault is heard; nobody has begun the recovery when the job looks at both."""
    it = _job()(fuse)

    def is_heard(_: JobCluster) -> None:
        broken = node_of(it, 1)
        known = {"node_id": broken.node_id, "instance_id": broken.node_id, "boot_id": broken.boot_id}
        it._ingest(xid(79, observed_at=it.clock(), **known))
        it.plain.workflows.started.pop()  # type: ignore[attr-defined]
        it.memory.broke()

    it.happenings = [fails(), finishes]
    it.before["Attribute failure"] = is_heard
    return it


def _other_disk(of: str) -> Sight:
    return A_DISK.model_copy(update={"machine": f"machine-{of}"})


JOB_STORIES = (
    JobStory("a person stops it while it runs", _is_stopped_while_it_runs, "Stopped", ("ask_to_stop",)),
    JobStory(
        "a person stops it before its launch",
        _is_stopped_before_its_launch,
        "Stopped",
        ("ask_to_stop", "launch_job"),
    ),
    JobStory("a node does not answer its check", _one_does_not_answer, "Completed", ("judge_checks",)),
    JobStory("two nodes do not reach one another", _two_do_not_reach_one_another, "Completed", ("judge_checks",)),
    JobStory("a node has a disk of its own", _sees(b=A_DISK), "Completed", ("find_checkpoint",)),
    JobStory(
        "each node has a disk of its own",
        _sees(a=A_DISK, b=_other_disk("b"), c=_other_disk("c")),
        "Escalated",
        ("find_checkpoint",),
        ("Completed",),  # what nobody could say holds no job up
    ),
    JobStory("its incident's start is lost", _its_incidents_start_is_lost, "Completed", ("attribute_failure",)),
    JobStory("a rank is refused", a_rank_of_the_job_is_refused, "Completed", ("launch_job",)),
)
