"""One question to all nodes of a gang: each answers by itself, and the last answer resumes the job, whatever breaks."""

import random
from collections.abc import Iterable
from typing import Any

import pytest

from nodeheal.contract.health_event import DiagnosticsFinished
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobState, JobStep, Next, Outcome, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.operation import Operation, OperationState, job_owner, node_owner
from nodeheal.operations import fan_out
from nodeheal.operations.steps import check_nodes
from nodeheal.services.intake import wakeup
from tests.support.builders import ACT, CHECK, NOW, SHARED_FACTS, memory_ports, named, node, stored_node, xid
from tests.support.jobs import ecs_job

GANG = 256
ASKED = "llama-1-0-check"


class Gang:
    """Nodes that are asked for their diagnostics before a job starts on them."""

    def __init__(self, size: int = 3) -> None:
        self.ports = memory_ports()
        self.names = [f"mi-{number:08d}" for number in range(size)]
        for name in self.names:
            self.ports.nodes.save(node(name, claimed_by="llama"))
        self.ports.jobs.save(
            ecs_job("llama", "demo", "training", "trainer:1", "trainer", size, state=JobState.SUBMITTED, submission=1)
        )

    @property
    def request(self) -> JobRequest:
        known: dict[str, Any] = {"step": JobStep.CHOOSE, "job_id": "llama", "outcome": Outcome.DONE, "finished_at": NOW}
        chosen = JobResult(**known, then=Next.CHECK, reason="so", nodes=tuple(self.names))
        return JobRequest(job_id="llama", submission=1, round=0, last=chosen, task_token="token")

    def asks(self) -> None:
        check_nodes(self.request, self.ports, ACT)

    def answer(self, name: str, verdict: Verdict = Verdict.OK) -> None:
        shared = xid().model_dump(include=SHARED_FACTS | {"observed_at"})
        shared |= {"event_id": f"done-{name}", "node_id": name, "instance_id": name, "boot_id": "boot-1"}
        request_id = named(CHECK, ASKED, self.ports, name)
        wakeup.on_answer(DiagnosticsFinished(**shared, request_id=request_id, verdict=verdict), self.ports)

    def part(self, name: str) -> Operation:
        found = self.ports.operations.get(node_owner(name), ASKED)
        assert found is not None
        return found

    @property
    def question(self) -> Operation:
        found = self.ports.operations.get(job_owner("llama"), ASKED)
        assert found is not None
        return found

    @property
    def is_resumed(self) -> bool:
        return "token" in self.ports.workflows.resumed  # type: ignore[attr-defined]

    def count(self, names: Iterable[str]) -> tuple[int, int, int]:
        """(parts read, parts read at most in one answer, writes of the question), while all of these answer."""
        store: Any = self.ports.operations
        get, save, reads, writes = store.get, store.save, list[str](), list[Operation]()

        def read(owner: str, operation_id: str) -> Any:
            reads.append(owner)
            return get(owner, operation_id)

        def write(operation: Operation) -> Any:
            writes.append(operation)
            return save(operation)

        store.get, store.save = read, write
        each = []
        for name in names:
            before = len(reads)
            self.answer(name)
            each.append(sum(owner.startswith("node#") for owner in reads[before:]))
        whole = [one for one in writes if one.owner == job_owner("llama")]
        return sum(each), max(each[:-1]), len(whole)


def test_the_last_answer_resumes_the_job_and_leaves_nothing_open() -> None:
    it = Gang()
    it.asks()

    resumed = []
    for name in it.names:
        it.answer(name)
        resumed.append(it.is_resumed)

    assert resumed == [False, False, True]
    assert it.ports.workflows.resumed["token"].reason == "3 nodes answered"  # type: ignore[attr-defined]
    assert it.ports.operations.all_open() == []  # type: ignore[attr-defined]


def test_a_large_gang_writes_its_question_only_at_the_end_and_reads_little() -> None:
    in_order, mixed = Gang(GANG), Gang(GANG)
    in_order.asks()
    mixed.asks()

    reads, most, writes = in_order.count(in_order.names)
    reads_mixed, _, writes_mixed = mixed.count(random.Random(1).sample(mixed.names, GANG))

    assert in_order.is_resumed and mixed.is_resumed
    assert (writes, writes_mixed) == (2, 2)  # its result, and that the workflow has it
    assert (reads, most) == (3 * GANG - 1, 2)  # the part itself, and one that has not answered; at the end all of them
    assert reads_mixed < 10 * GANG


def test_a_function_that_died_before_it_told_of_the_last_answer_is_made_up_for() -> None:
    it = Gang(1)
    it.asks()
    resume = it.ports.workflows.resume

    def throttled(token: str, result: Any) -> bool:
        it.ports.workflows.resume = resume  # type: ignore[method-assign]
        raise NotAccepted("throttled")

    it.ports.workflows.resume = throttled  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        it.answer(it.names[0])
    assert it.part(it.names[0]).state is OperationState.DONE

    it.answer(it.names[0])

    assert it.is_resumed
    assert it.part(it.names[0]).state is OperationState.DELIVERED


def test_two_last_answers_at_once_resume_the_job() -> None:
    """Each is stored before either looks at the other."""
    it = Gang(2)
    it.asks()
    first, second = it.names
    get, others = it.ports.operations.get, [second]

    def meanwhile(owner: str, operation_id: str) -> Operation | None:
        if owner == job_owner("llama") and others:
            it.answer(others.pop())
        return get(owner, operation_id)

    it.ports.operations.get = meanwhile  # type: ignore[method-assign]

    it.answer(first)

    assert it.is_resumed


def test_a_command_that_fails_is_no_answer_to_wait_for() -> None:
    it = Gang(2)
    it.asks()
    wakeup.on_command_failed(it.names[0], it.part(it.names[0]).reference, it.ports)

    it.answer(it.names[1])

    assert it.is_resumed
    assert it.part(it.names[0]).result.outcome is Outcome.UNKNOWN


def test_what_nobody_waits_for_any_more_resumes_nobody_and_a_late_pass_counts() -> None:
    it = Gang(2)
    it.asks()
    it.answer(it.names[0])
    fan_out.stop_waiting(it.question, it.ports)

    it.answer(it.names[1])

    late = it.ports.nodes.get(it.names[1])
    assert late is not None and late.passed_at == NOW
    assert not it.is_resumed
    assert (it.question.state, it.question.result.outcome) == (OperationState.DELIVERED, Outcome.TIMED_OUT)


def test_a_part_that_is_closed_takes_no_answer() -> None:
    it = Gang(2)
    it.asks()
    closed = fan_out.close_part(it.question, it.names[0], it.ports)

    it.answer(it.names[0])

    assert closed is not None and closed.result.reason == "no answer in time"
    assert it.part(it.names[0]).result == closed.result
    assert fan_out.close_part(it.question, it.names[0], it.ports) == it.part(it.names[0])
    assert fan_out.close_part(it.question, "mi-unasked", it.ports) is None
    assert fan_out.close_part(None, it.names[0], it.ports) is None


def test_a_question_to_nobody_is_answered() -> None:
    it = Gang(2)
    for name in it.names:
        known = stored_node(it.ports, name)
        it.ports.nodes.save(node(name, version=known.version, passed_at=NOW))

    it.asks()

    assert it.is_resumed
