"""What must be shown before anybody goes on: that nodes are fit and free, that a drain has held, that ranks are there.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from typing import Any

from nodeheal.contract.health_event import Sight
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome, Step, VerbName
from nodeheal.operations.engine import conclude
from nodeheal.operations.gang import GangRecord
from nodeheal.services.jobs.job_nodes import claim_replacement_nodes, free_nodes, replacement_nodes
from tests.unit.builders import gang_under_way, node, started_job, xid
from tests.workflows.fake_cluster import BROKEN, PEER
from tests.workflows.fuse import Fuse
from tests.workflows.job_cluster import NODES, JobCluster
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import RECOVERED, world
from tests.workflows.scenarios.turns import opened
from tests.workflows.stories import STORIES
from tests.workflows.test_find_checkpoint import training

ITS_OWN_DISK = Sight(file_system="ext4", source="/dev/nvme0n1", inode=7, device=1)


# Of nodes


def a_free_node_has_passed_nothing() -> list[str]:
    return _stands_in(passed_at=None)


def a_node_has_another_job() -> list[str]:
    return _stands_in(job_id="another")


def _stands_in(**known: Any) -> list[str]:
    it = Moment()
    it.is_written(**known)
    names = [one.node_id for one in replacement_nodes(JOB, it.plain)]
    return ["a job may go on where it must not"] if BROKEN in names else []


def another_job_has_taken_what_the_list_still_shows() -> list[str]:
    it = Moment()
    listed = it.plain.nodes.in_pool("demo")
    it.is_written(claimed_by="another")
    it.plain.nodes.in_pool = lambda pool: listed  # type: ignore[method-assign]
    found = it.does(lambda: claim_replacement_nodes(JOB, 1, it.ports))
    return ["a node of another job is taken"] if BROKEN in [one.node_id for one in found] else []


def another_job_runs_where_this_one_was() -> list[str]:
    it = Moment()
    it.is_written(job_id="another")
    it.does(lambda: free_nodes(JOB, [BROKEN], it.ports))
    kept = it.plain.nodes.get(BROKEN)
    return [] if kept is not None and kept.job_id == "another" else ["a node was freed under another job"]


def a_directory_is_on_a_disk_of_its_own() -> list[str]:
    it = training()
    it.sees[NODES[0]] = it.sees_later[NODES[0]] = ITS_OWN_DISK
    it.submit()
    return [f"{name} writes where nobody else reads" for name in _trained_on(it) if name == NODES[0]]


def a_directory_is_seen_late() -> list[str]:
    """Its client of NFS believes for a while that it is not there."""
    it = training()
    shared = Sight(file_system="nfs4", source="fs-1:/", inode=64, device=50)
    it.sees[NODES[0]], it.sees_later[NODES[0]] = ITS_OWN_DISK, shared
    it.submit()
    return [] if NODES[0] in _trained_on(it) else [f"{NODES[0]} is accused, and sees the directory"]


def _trained_on(it: JobCluster) -> list[str]:
    return [task.node_id for task in it.run.tasks] if it.job.current_run else []


# Of steps


def its_drain_breaks_off() -> list[str]:
    """It is marked, and the function was gone before the scheduler was asked: nobody knows what still runs there."""
    it, mine = opened()
    it.is_written(state=NodeState.ISOLATED)
    asked = mine.decision.model_copy(update={"step": Step.ISOLATE, "job_id": None})
    seen = it.does(lambda: conclude(mine.model_copy(update={"decision": asked}), it.ports))
    return [] if seen.outcome is Outcome.FAILED else [f"a node that takes work is taken for drained: {seen.reason}"]


def its_gang_has_not_stopped_by_the_deadline() -> list[str]:
    it, mine = opened()
    started_job(JOB, [node(PEER, version=1)], it.plain)
    it.is_written(state=NodeState.ISOLATED)
    asks = mine.model_copy(update={"decision": mine.decision.model_copy(update={"step": Step.ISOLATE})})
    run = it.plain.jobs.get_run("llama", 1)
    assert run is not None
    asked = GangRecord(run=1, outstanding=(run.tasks[0].placement,), is_asked=True, is_drained=True).model_dump_json()
    gang_under_way(it.plain, VerbName.ISOLATE, run, incident_id=mine.incident_id, data_json=asked)
    seen = it.does(lambda: conclude(asks, it.ports))
    return [] if seen.outcome is Outcome.TIMED_OUT else [f"a rank writes still: {seen.reason}"]


def no_rank_has_stopped_yet() -> list[str]:
    it, early = world(), list[bool]()
    stops = it._gang_stops

    def is_asked(request: StepRequest) -> None:
        early.append(request.task_token in it.plain.workflows.resumed)  # type: ignore[attr-defined]
        stops(request)

    it._gang_stops = is_asked  # type: ignore[method-assign]
    it.reports(xid(79))
    return [] if early[:1] == [False] else ["it goes on while all ranks may still write"]


def no_rank_runs_yet() -> list[str]:
    it = world()
    it._gang_becomes = lambda status, exit_code=143: None  # type: ignore[method-assign]
    it.reports(xid(31))
    return [] if it.ends != RECOVERED else ["a job is said to run, of which no rank does"]


# In line


def it_is_well_while_it_stands_in_line() -> list[str]:
    return _is_told_in_line(xid(0, family="nvml", code="ok", verdict="OK", event_id="well"))


def it_repeats_while_it_stands_in_line() -> list[str]:
    return _is_told_in_line(xid(79, event_id="again"))


def _is_told_in_line(event: Any) -> list[str]:
    """It can do nothing about it there, and each look would use one of its turns up."""
    it, called = STORIES[5].make(Fuse(writes_only=True)), list[bool]()
    frees = it.on_wait

    def is_told() -> None:
        before = len(it.plain.workflows.resumed)  # type: ignore[attr-defined]
        it._ingest(event)
        called.append(len(it.plain.workflows.resumed) > before)  # type: ignore[attr-defined]
        frees()

    it.on_wait = is_told
    it.reports(xid(79))
    return [] if called == [False] else ["it has left the line for nothing"]
