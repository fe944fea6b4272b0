"""What somebody else writes, or has written, right before a service's own write: it must not be taken for its own.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.errors import NodehealError
from nodeheal.domain.fleet.liveness import Heartbeat, liveness_of
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.heartbeats import record_missed_boots
from nodeheal.services.jobs.job_nodes import claim_replacement_nodes, leave
from nodeheal.services.jobs.submit_job import restart_job
from tests.support.builders import (
    NOW,
    FrozenClock,
    memory_ports,
    node,
    started_job,
    stored_job,
    stored_node,
    stored_run,
)
from tests.support.enrolment import retire
from tests.support.fake_cluster import BROKEN, PEER, SPARE
from tests.support.fuse import Fuse, fused
from tests.support.jobs import ecs_job

JOB = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 1, submission=1, submitted_at=NOW)


class Moment:
    """Three free nodes; one service, and what others do right before one of its writes."""

    def __init__(self, call: str = "", others: Callable[["Moment"], object] = lambda _: None) -> None:
        self.plain, fuse = memory_ports(FrozenClock()), Fuse(writes_only=True)
        for name in (BROKEN, PEER, SPARE):
            self.plain.nodes.save(node(name, passed_at=NOW))
        self.fuse, self.ports = fuse, fused(self.plain, fuse)
        fuse.meanwhile["it", call] = lambda: others(self)

    def does(self, act: Callable[[], Any]) -> Any:
        """What it answers, or why it did not."""
        with self.fuse.working("it"):
            try:
                return act()
            except (ValueError, NodehealError) as refusal:
                return str(refusal)

    def is_written(self, name: str = BROKEN, **to: Any) -> None:
        stored = stored_node(self.plain, name)
        self.plain.nodes.save(replace(stored, **to))

    def job_is_written(self, **to: Any) -> None:
        stored = stored_job(self.plain, "llama")
        self.plain.jobs.save(replace(stored, **to))

    def of_another(self, names: list[str]) -> list[str]:
        claimed = {node.node_id: node.claimed_by for node in self.plain.nodes.in_pool("demo")}
        return [f"{name} is {claimed[name]}'s" for name in names if claimed[name] != "llama"]


def _another_claims(it: Moment) -> None:
    it.is_written(BROKEN, claimed_by="another")


def a_replacement_node_is_claimed_while_a_job_claims_it() -> list[str]:
    it = Moment("nodes.save", _another_claims)
    found = it.does(lambda: claim_replacement_nodes(JOB, 1, it.ports))
    return it.of_another([node.node_id for node in found])


def a_node_gets_a_job_while_it_is_retired() -> list[str]:
    it = Moment("nodes.save", lambda it: it.is_written(job_id="llama"))
    told = it.does(lambda: retire(BROKEN, "too old", it.ports, MemoryMarks()))
    return [] if isinstance(told, str) else ["he is told that it is retired, and it trains"]


def two_start_a_job_again() -> list[str]:
    it = Moment("jobs.save", lambda it: it.job_is_written(state=JobState.SUBMITTED, submission=2))
    it.plain.jobs.save(replace(JOB, state=JobState.FAILED))
    told = it.does(lambda: restart_job("llama", it.ports))
    return [] if isinstance(told, str) else ["he is told that it was started again, and another one has done that"]


def a_rank_may_still_write_when_its_job_is_over() -> list[str]:
    it = Moment()
    job = replace(JOB, checkpoints=Checkpoints(directory="/fsx/llama"))
    started_job(job, [node(BROKEN, version=1)], it.plain)
    it.plain.job_notes.hold("/fsx/llama", "llama")
    it.does(lambda: leave(replace(job, state=JobState.FAILED), it.ports))
    return [] if it.plain.job_notes.hold("/fsx/llama", "another") == "llama" else ["two may write to one directory"]


def _end(it: Moment, rank: int) -> TaskChange:
    run = stored_run(it.plain, "llama", 1)
    task = run.tasks[rank]
    return TaskChange("llama", 1, task.task_id, task.placement, "STOPPED", 1, "")


def a_node_is_written_while_its_beat_tells_of_a_boot() -> list[str]:
    it = Moment("nodes.save", lambda it: it.is_written(last_seen=NOW))
    stored = stored_node(it.plain, BROKEN)
    heartbeats = {BROKEN: Heartbeat(f"role:{BROKEN}", "boot-2", NOW + timedelta(seconds=5), 30.0)}
    told = it.does(lambda: record_missed_boots([liveness_of(stored)], heartbeats, it.ports))
    after = stored_node(it.plain, BROKEN)
    return [] if after.boot_id == "boot-2" or not told else ["a boot counts that is not on record"]
