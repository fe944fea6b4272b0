"""A free node that is diagnosed so that a job can go on there, and what may happen to it or around it meanwhile."""

from dataclasses import replace
from typing import TYPE_CHECKING

from nodeheal.contract.steps import DecideRequest, Decision, StepRequest
from nodeheal.contract.vocabulary import Ending, NodeState, Step
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Evidence
from nodeheal.services.jobs.job_nodes import claim_replacement_nodes
from nodeheal.services.operators.operator_guardrails import pause_pool
from nodeheal.services.steps import save_node
from tests.support.builders import ACT, xid
from tests.support.job_cluster import NODES, JobCluster, finishes, is_recovered
from tests.support.jobs import ecs_job_of

if TYPE_CHECKING:
    from collections.abc import Callable

A, B, C, D = NODES
MOVES = ACT.model_copy(update={"move_job_seconds": 60})


class Cluster(JobCluster):
    """A job on A and B; B falls off the bus, and C is free, but not proven."""

    def __init__(self, policy: RecoveryPolicy = MOVES) -> None:
        super().__init__(policy=policy)
        save_node(self.ports, self.node(D), claimed_by="another")
        self.happenings = [lambda it: it._ingest(xid(79, node_id=B, instance_id=B)), is_recovered, finishes]
        self.while_proven: Callable[[], object] = lambda: None

    def _diagnosed(self, request: StepRequest) -> None:
        if request.decision.is_move:
            self.while_proven()
        super()._diagnosed(request)

    @property
    def did(self) -> list[str]:
        """The steps of B's recovery, in order."""
        turns = self.ports.incidents.history(self.recovered[0]).turns
        return [f"{turn.decision.step} {turn.decision.node_id}" for turn in turns]


def falls(it: Cluster, code: int = 79) -> None:
    it._ingest(xid(code, node_id=C, instance_id=C, event_id="of-the-replacement node", observed_at=it.clock()))


def test_one_that_breaks_while_it_is_diagnosed_gets_no_job_whatever_its_diagnostics_say() -> None:
    it = Cluster()
    it.while_proven = lambda: falls(it)

    it.submit()

    assert [task.node_id for task in it.run.tasks] == [A, B], "its own node is healed, and brings it back"
    assert (it.node(C).state, it.node(C).open_incident) == (NodeState.SUSPECT, None)
    summary = it.ports.incidents.history(it.recovered[0]).incident.summary
    assert f"{C} could not stand in for it: XID 79 (GPU has fallen off the bus) on {C}" in summary
    assert it.is_clean


def test_what_is_no_fault_of_the_node_does_not_keep_the_job_from_going_on_there() -> None:
    it = Cluster()
    it.while_proven = lambda: falls(it, code=43)

    it.submit()

    assert [task.node_id for task in it.run.tasks] == [A, C]


def test_one_that_breaks_after_its_diagnosis_gets_no_job() -> None:
    it = Cluster()
    decide = it._decides_at_once

    def breaks_after(request: DecideRequest) -> Decision | None:
        decided = decide(request)
        if decided is not None and decided.is_move and decided.step is Step.RESTART_WORKLOAD:
            falls(it)
        return decided

    it._decides_at_once = breaks_after  # type: ignore[method-assign]

    it.submit()

    assert [task.node_id for task in it.run.tasks] == [A, B]
    assert (it.node(C).state, it.node(C).open_incident) == (NodeState.SUSPECT, None)


def test_a_pause_that_comes_while_it_is_diagnosed_restarts_no_job() -> None:
    it = Cluster()
    it.happenings = it.happenings[:2]
    it.while_proven = lambda: pause_pool("demo", 3_600, "ada: hands off", it.ports)

    it.submit()

    assert not any(step.startswith("RESTART_WORKLOAD") for step in it.did)
    assert it.ports.incidents.history(it.recovered[0]).incident.ending is Ending.HANDED_TO_A_HUMAN
    assert it.job.current_run == 1
    assert it.node(C).open_incident is None


def test_what_the_broken_node_can_tell_is_saved_before_another_one_is_diagnosed() -> None:
    it = Cluster(MOVES.model_copy(update={"evidence": Evidence()}))

    it.submit()

    assert it.did[:4] == [f"ISOLATE {B}", f"FREEZE_EVIDENCE {B}", f"DIAGNOSE {C}", f"RESTART_WORKLOAD {B}"]
    assert [step for step in it.did if step.startswith("FREEZE")] == [f"FREEZE_EVIDENCE {B}"]


def free_pair() -> tuple[Cluster, Job]:
    """C and D are free and proven, and the job may claim them."""
    it = Cluster()
    for name in (A, B):
        save_node(it.ports, it.node(name), job_id="llama")
    for name in (C, D):
        save_node(it.ports, it.node(name), passed_at=it.clock(), claimed_by=None)
    return it, ecs_job_of(it.spec, "training", "trainer:1", it.clock())


def test_a_launch_that_is_repeated_after_a_crash_finds_what_it_has_claimed() -> None:
    it, job = free_pair()
    save_node(it.ports, it.node(C), claimed_by="another")

    for _ in range(2):
        assert [node.node_id for node in claim_replacement_nodes(job, 1, it.ports) or ()] == [D]


def test_a_job_goes_on_only_on_nodes_that_its_file_allows() -> None:
    it, job = free_pair()

    found = claim_replacement_nodes(replace(job, exclude_nodes=(C,)), 1, it.ports)

    assert [node.node_id for node in found or ()] == [D]


def test_one_that_finds_too_few_lets_go_of_its_own_and_not_of_what_another_launch_of_the_job_has_claimed() -> None:
    it, job = free_pair()
    claim_replacement_nodes(job, 1, it.ports)

    assert claim_replacement_nodes(job, 3, it.ports) is None
    assert [it.node(name).claimed_by for name in (C, D)] == ["llama", None]


def test_what_a_recovery_took_is_noted_without_the_time_that_another_nodes_proof_took() -> None:
    it = Cluster()
    it.while_proven = lambda: it.clock.advance(500)

    it.submit()

    [past] = it.node(B).recoveries
    assert (past.seconds, past.proof_seconds) == (60.0, 0.0)
