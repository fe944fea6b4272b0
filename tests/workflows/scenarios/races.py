"""What somebody else writes, or has written, right before a service's own write: it must not be taken for its own.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.names import pool_line
from nodeheal.contract.vocabulary import Awaited, JobState, JobStep, Next, NodeState, Outcome, VerbName, Verdict
from nodeheal.domain.errors import NodehealError
from nodeheal.domain.fleet.liveness import Heartbeat, liveness_of
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.operations import check_node, fan_out
from nodeheal.operations.diagnose import DiagnosisAnswer
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.heartbeats import record_missed_boots
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.intake.wakeup import on_task_change
from nodeheal.services.jobs.end_job import end_job
from nodeheal.services.jobs.job_nodes import claim, claim_replacement_nodes, leave
from nodeheal.services.jobs.job_steps import save_job
from nodeheal.services.jobs.start_gang import record_run
from nodeheal.services.jobs.submit_job import restart_job, submit_job
from nodeheal.services.operators.operator_guardrails import trip_breaker
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.operators.retire_node import retire_node
from nodeheal.services.recovery.queue import wake_after_reset
from tests.unit.builders import NOW, FrozenClock, memory_ports, node, started_job, under_way, xid
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, PEER, SPARE
from tests.workflows.fuse import Fuse, fused
from tests.workflows.scenarios.setup import changes, world

JOB = Job("llama", "demo", "training", "trainer:1", "trainer", 1, submission=1, submitted_at=NOW)


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
        stored = self.plain.nodes.get(name)
        assert stored is not None
        self.plain.nodes.save(replace(stored, **to))

    def job_is_written(self, **to: Any) -> None:
        stored = self.plain.jobs.get("llama")
        assert stored is not None
        self.plain.jobs.save(replace(stored, **to))

    def of_another(self, names: list[str]) -> list[str]:
        claimed = {node.node_id: node.claimed_by for node in self.plain.nodes.in_pool("demo")}
        return [f"{name} is {claimed[name]}'s" for name in names if claimed[name] != "llama"]


def _another_claims(it: Moment) -> None:
    it.is_written(BROKEN, claimed_by="another")


def a_node_is_claimed_while_a_job_claims_it() -> list[str]:
    it = Moment("nodes.save", _another_claims)
    found = it.does(lambda: claim(JOB, it.ports, ACTS))
    return it.of_another([node.node_id for node in found.nodes])


def a_replacement_node_is_claimed_while_a_job_claims_it() -> list[str]:
    it = Moment("nodes.save", _another_claims)
    found = it.does(lambda: claim_replacement_nodes(JOB, 1, it.ports))
    return it.of_another([node.node_id for node in found])


def a_node_gets_a_job_while_it_is_retired() -> list[str]:
    it = Moment("nodes.save", lambda it: it.is_written(job_id="llama"))
    told = it.does(lambda: retire_node(BROKEN, "too old", it.ports, MemoryMarks()))
    return [] if isinstance(told, str) else ["he is told that it is retired, and it trains"]


def a_job_of_another_has_the_name() -> list[str]:
    it = Moment()
    it.plain.jobs.save(JOB)
    told = it.does(lambda: submit_job(replace(JOB, task_definition="other:1"), it.ports))
    return [] if isinstance(told, str) else ["he is told that his job was taken in, and another one has its name"]


def two_start_a_job_again() -> list[str]:
    it = Moment("jobs.save", lambda it: it.job_is_written(state=JobState.SUBMITTED, submission=2))
    it.plain.jobs.save(replace(JOB, state=JobState.FAILED))
    told = it.does(lambda: restart_job("llama", it.ports))
    return [] if isinstance(told, str) else ["he is told that it was started again, and another one has done that"]


def two_record_a_run() -> list[str]:
    def another(it: Moment) -> None:
        it.plain.jobs.save_run(Run("llama", 1, NOW, "another", ()))

    it = Moment("jobs.save_run", another)
    it.plain.jobs.save(JOB)
    told = it.does(lambda: record_run(replace(JOB, version=1), [node(BROKEN)], "mine", it.ports))
    return [] if isinstance(told, str) else ["the job points at a run that is another's"]


def a_job_is_written_while_it_is_written() -> list[str]:
    it = Moment("jobs.save", lambda it: it.job_is_written(priority=7))
    it.plain.jobs.save(JOB)
    it.does(lambda: save_job(it.ports, "llama", summary="run 1 is under way"))
    stored = it.plain.jobs.get("llama")
    return [] if stored is not None and stored.summary else ["what was to be written is not"]


def a_workflow_of_an_older_submission_ends() -> list[str]:
    it = Moment()
    it.plain.jobs.save(replace(JOB, submission=2))
    last = JobResult(
        step=JobStep.STOP,
        job_id="llama",
        outcome=Outcome.DONE,
        then=Next.END,
        reason="stopped",
        finished_at=NOW,
        ending=JobState.CANCELLED,
        deadline_seconds=60,
    )
    it.does(lambda: end_job(JobRequest(job_id="llama", submission=1, round=0, last=last), it.ports))
    stored = it.plain.jobs.get("llama")
    return [] if stored is not None and not stored.is_over else ["it has ended the submission that came after it"]


def a_rank_may_still_write_when_its_job_is_over() -> list[str]:
    it = Moment()
    job = replace(JOB, checkpoints=Checkpoints(directory="/fsx/llama"))
    started_job(job, [node(BROKEN, version=1)], it.plain)
    it.plain.job_notes.hold("/fsx/llama", "llama")
    it.does(lambda: leave(replace(job, state=JobState.FAILED), it.ports))
    return [] if it.plain.job_notes.hold("/fsx/llama", "another") == "llama" else ["two may write to one directory"]


def a_node_fails_twice_in_one_moment() -> list[str]:
    it = Moment("incidents.open", lambda it: ingest(xid(48), it.plain, ACTS))
    it.does(lambda: ingest(xid(79), it.ports, ACTS))
    known = it.plain.incidents.incidents  # type: ignore[attr-defined]
    started = it.plain.workflows.started  # type: ignore[attr-defined]
    return [f"a workflow was started for {name}, which is not there" for name in started if name not in known]


def two_ranks_end_in_one_moment() -> list[str]:
    it = Moment("jobs.save_run", lambda it: on_task_change(_end(it, 1), it.plain))
    started_job(replace(JOB, nodes=2), [node(BROKEN, version=1), node(PEER, version=1)], it.plain)
    it.does(lambda: on_task_change(_end(it, 0), it.ports))
    run = it.plain.jobs.get_run("llama", 1)
    return [] if run is not None and run.has_ended else ["the end of a rank is not on record"]


def _end(it: Moment, rank: int) -> TaskChange:
    run = it.plain.jobs.get_run("llama", 1)
    assert run is not None
    task = run.tasks[rank]
    return TaskChange("llama", 1, task.task_id, task.placement, "STOPPED", 1, "")


def a_node_is_written_while_its_beat_tells_of_a_boot() -> list[str]:
    it = Moment("nodes.save", lambda it: it.is_written(last_seen=NOW))
    stored = it.plain.nodes.get(BROKEN)
    assert stored is not None
    heartbeats = {BROKEN: Heartbeat(f"role:{BROKEN}", "boot-2", NOW + timedelta(seconds=5), 30.0)}
    told = it.does(lambda: record_missed_boots([liveness_of(stored)], heartbeats, it.ports))
    after = it.plain.nodes.get(BROKEN)
    assert after is not None
    return [] if after.boot_id == "boot-2" or not told else ["a boot counts that is not on record"]


def a_node_has_booted_since_it_was_checked() -> list[str]:
    it = Moment()
    it.is_written(boot_id="boot-2", passed_at=None)
    asked = fan_out.plan(JobRequest(job_id="llama", submission=1, round=0), it.plain, check_node.QUESTION, 60)
    answer = DiagnosisAnswer(verdict=Verdict.OK)
    part = replace(fan_out.plan_part(asked, VerbName.CHECK_NODE, BROKEN, answer), boot_id="boot-1")
    part = replace(part, answer_json=answer.model_dump_json())
    passed = fan_out.part_result(part, NOW, Outcome.DONE, "passed")
    it.does(lambda: check_node._settle(part, passed, it.ports))
    after = it.plain.nodes.get(BROKEN)
    return [] if after is not None and after.passed_at is None else ["what another boot has passed counts for this one"]


def a_breaker_is_open_when_the_sweep_looks() -> list[str]:
    it = Moment()
    trip_breaker("demo", "6 fail", it.plain)
    line = (pool_line(Awaited.BREAKER, "demo"), "1")
    under_way(it.plain, VerbName.WAIT, line=line)
    return ["an open breaker was passed"] if it.does(lambda: wake_after_reset("demo", it.ports)) else []


def another_incident_holds_a_neighbour_of_what_is_released() -> list[str]:
    it = world(spare=False)
    it.diagnoses[BROKEN] = Verdict.FAILED
    it.reports(xid(79))
    claimed = replace(it.node(PEER), open_incident=it.node().open_incident)
    changes(it, PEER, open_incident="inc-of-another")()
    assert it.node().state is NodeState.QUARANTINED
    it.plain.nodes.in_pool = lambda pool: [claimed]  # type: ignore[method-assign]  # the list of a pool lags
    release_node(BROKEN, "repaired", it.plain)
    return [] if it.node(PEER).open_incident == "inc-of-another" else ["a node of another incident was let go"]
