"""Which of two writes comes first, where the other way round something is lost until the sweep, or for good."""

from datetime import timedelta

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.names import pool_line
from nodeheal.contract.steps import StepResult
from nodeheal.contract.vocabulary import JobState, JobStep, Next, Outcome, Step
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.incident import incident_id_of
from nodeheal.ports import Wait
from nodeheal.services.end_job import end_job
from tests.unit.builders import NOW, node, started_job, xid
from tests.workflows.fake_cluster import BROKEN, PEER
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import peers_fault, world


def test_a_slot_is_free_before_the_next_in_line_is_called() -> None:
    it, waiting = world(), incident_id_of(peers_fault())
    blank = StepResult(step=Step.WAIT, node_id=PEER, outcome=Outcome.DONE, reason="its turn", finished_at=NOW)
    line = (pool_line("BUDGET", "demo"), "99#last")
    stands = Wait("news", waiting, "next", waiting, NOW, result_json=blank.model_dump_json(), line=line)
    it.meanwhile["return_to_service"] = [lambda: it._ingest(peers_fault()), lambda: None]
    it.fuse.meanwhile["return_to_service", "nodes.save"] = lambda: it.plain.waits.save(stands)
    it._begun.append(waiting)
    resume, held = it.plain.workflows.resume, list[bool]()

    def called(token: str, result: StepResult) -> bool:
        if token == "next":
            held.append(BROKEN in it.plain.pools.holders("demo"))
        return resume(token, result)

    it.plain.workflows.resume = called  # type: ignore[method-assign, assignment]
    it.reports(xid(79))

    assert held == [False]


def test_a_job_is_over_only_when_nothing_of_it_is_left() -> None:
    """Of one that is over nobody looks after what is left: a function that dies before is called again."""

    def throttled(_: Moment) -> None:
        raise NotAccepted("too many calls")

    it = Moment("nodes.save", throttled)
    started_job(JOB, [node(BROKEN)], it.plain)
    it.is_written(BROKEN, boot_id="boot-2", booted_at=NOW + timedelta(hours=1), job_id="llama")  # no rank is left
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
    asks = JobRequest(job_id="llama", submission=1, round=0, last=last)

    told = it.does(lambda: end_job(asks, it.ports))
    between = it.plain.jobs.get("llama")
    end_job(asks, it.plain)
    after = it.plain.jobs.get("llama")

    assert told == "too many calls"
    assert between is not None and not between.is_over
    assert after is not None and after.is_over
    assert [one.node_id for one in it.plain.nodes.in_pool("demo") if one.job_id] == []
