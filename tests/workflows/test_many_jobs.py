"""Fifty jobs of eight nodes at once: no rank is lost, none is doubled, whatever the order in which things happen.

Each job's workflow is walked on a thread of its own. One thread runs at a time, and hands over to another one, drawn by
a seed, at every call of a port: a seed is one order of all side effects, the same each time.
"""

import random
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import count
from typing import Any

import pytest

from nodeheal.contract.vocabulary import JobState, Verdict
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.policy.policy_models import Budget, Mode, PoolPolicy
from nodeheal.ports import Ports
from nodeheal.services.steps import save_node
from tests.support.builders import ACT, FrozenClock, memory_ports, node, scheduler_in, xid
from tests.support.job_cluster import JobCluster, fails, finishes, is_recovered

JOBS, NODES_A_JOB, SPARE_NODES = 50, 8, 40
POLICY = ACT.model_copy(
    update={
        "default_pool": PoolPolicy(mode=Mode.act, budget=Budget(max_nodes=400, max_percent=100)),
        "breaker": ACT.breaker.model_copy(update={"min_nodes": 400, "max_nodes": 500}),
        "move_job_seconds": 60,
    }
)


class Baton:
    """Who has it runs; all others wait. It is handed on by the draw of a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._turns: dict[threading.Thread, threading.Event] = {}
        self.handed_on = 0

    def race(self, runners: list[Callable[[], None]]) -> list[BaseException]:
        """Run all to their ends; what they raised."""
        raised: list[BaseException] = []

        def run(runner: Callable[[], None]) -> None:
            me = threading.current_thread()
            self._turns[me].wait()
            try:
                runner()
            except BaseException as error:  # a thread's error is the test's
                raised.append(error)
                error.add_note("".join(traceback.format_tb(error.__traceback__)[-4:]))
            finally:
                del self._turns[me]
                self._wake_one()

        threads = [threading.Thread(target=run, args=(runner,)) for runner in runners]
        self._turns = {thread: threading.Event() for thread in threads}
        for thread in threads:
            thread.start()
        self._wake_one()
        for thread in threads:
            thread.join()
        return raised

    def hand_on(self) -> None:
        """Let another one run, or go on; from a thread that has the baton."""
        mine = self._turns.get(threading.current_thread())
        if mine is None:
            return
        self.handed_on += 1
        mine.clear()
        self._wake_one()
        mine.wait()

    def _wake_one(self) -> None:
        if self._turns:
            self._random.choice(list(self._turns.values())).set()


class Shared:
    """A port whose every call is a moment at which others may come between."""

    def __init__(self, port: Any, baton: Baton) -> None:
        self._port, self._baton = port, baton

    def __call__(self, *given: Any, **named: Any) -> Any:
        self._baton.hand_on()
        return self._port(*given, **named)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._baton.hand_on()
            return found(*given, **named)

        return call


class Floor:
    """Watches every start: on a node whose last task has not ended, nothing is started."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._start = scheduler_in(ports).start_rank
        self._there: dict[str, tuple[str, int, int]] = {}
        self.doubled: list[str] = []

    def start_rank(self, job: Job, run: Run, task: GangTask, environment: dict[str, str]) -> str:
        """As the scheduler's, with a look at who was the last to start there."""
        last = self._there.get(task.node_id)
        there = self._ports.jobs.get_run(*last[:2]) if last else None
        before = there.tasks[last[2]] if there and last else None
        is_other = last is not None and last[:2] != (run.job_id, run.number)
        node = self._ports.nodes.get(task.node_id)
        if is_other and before and node and not before.has_stopped and before.boot_id == node.boot_id:
            self.doubled.append(f"{run.job_id}/{run.number} on {task.node_id}, where {last} still runs")
        self._there[task.node_id] = (run.job_id, run.number, task.rank)
        return str(self._start(job, run, task, environment))


class OneOfMany(JobCluster):
    """A job among others, on nodes that all share."""

    def _begin(self, names: Sequence[str]) -> None:
        """The nodes are there already. Tokens are its own: the workflows are everybody's."""
        self._tokens = (f"{self.spec.name}-{number}" for number in count())  # type: ignore[assignment]

    def _is_mine(self, incident_id: str) -> bool:
        incident = self.ports.incidents.history(incident_id).incident
        return incident.job_id == self.spec.name and super()._is_mine(incident_id)


def breaks_a_node(it: JobCluster) -> None:
    """The node under one of its ranks falls off the bus."""
    name = it.run.tasks[3].node_id
    it._ingest(xid(79, node_id=name, instance_id=name, event_id=f"fault-of-{name}-{it.run.job_id}"))


HAPPENINGS: tuple[tuple[Callable[[JobCluster], object], ...], ...] = (
    (finishes,),
    (fails(rank=5, exit_code=1), is_recovered, finishes),
    (breaks_a_node, is_recovered, finishes),
    (fails(rank=2, exit_code=139), is_recovered, finishes),
    (breaks_a_node, is_recovered, fails(rank=0, exit_code=1), is_recovered, finishes),
)


@pytest.mark.parametrize("seed", range(2))
def test_fifty_jobs_of_eight_nodes_lose_and_double_no_rank(seed: int) -> None:
    clock, baton = FrozenClock(), Baton(seed)
    plain = memory_ports(clock)
    floor = Floor(plain)
    scheduler_in(plain).start_rank = floor.start_rank
    as_they_are = ("channels", "clock", "console_links", "decide", "sign_upload", "has_confirmed")
    wrapped: dict[str, Any] = {f.name: getattr(plain, f.name) for f in fields(Ports)}
    wrapped = {name: port if name in as_they_are else Shared(port, baton) for name, port in wrapped.items()}
    wrapped["schedulers"] = {
        kind: replace(one, gate=(seam := Shared(one.gate, baton)), registry=seam, workloads=seam, launcher=seam)
        for kind, one in plain.schedulers.items()
    }
    shared = Ports(**wrapped)
    for number in range(JOBS * NODES_A_JOB + SPARE_NODES):
        plain.nodes.save(replace(node(f"mi-{number:08x}"), rack=f"rack-{number // 16}", accelerators=8))
    for number in range(0, 400, 97):  # a few do not pass their first diagnostics
        save_node(plain, node(f"mi-{number:08x}"), passed_at=None)
    jobs = []
    for number in range(JOBS):
        it = OneOfMany(0, POLICY, lambda _: shared, name=f"job-{number:02}", nodes=NODES_A_JOB, accelerators=8)
        it.clock = clock
        it.while_waiting = [lambda _: baton.hand_on()] * 100_000
        it.happenings = list(HAPPENINGS[number % len(HAPPENINGS)])
        it.diagnoses = {f"mi-{bad:08x}": Verdict.FAILED for bad in range(0, 400, 97)}
        jobs.append(it)

    raised = baton.race([lambda it=it: it.submit() and None for it in jobs])  # type: ignore[misc]

    assert [(repr(error), error.__notes__) for error in raised] == []
    assert floor.doubled == []
    assert Counter(it.job.state for it in jobs) == {JobState.COMPLETED: JOBS}
    for it in jobs:
        for run in plain.jobs.runs(it.spec.name):
            assert [task.rank for task in run.tasks] == list(range(NODES_A_JOB))
            assert len({task.node_id for task in run.tasks}) == NODES_A_JOB
        assert it.is_clean, it.spec.name
    assert baton.handed_on > 10_000
