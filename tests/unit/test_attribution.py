"""Why a run failed, in words: the first cause and its echoes are told apart."""

from dataclasses import replace
from datetime import timedelta

from nodeheal.adapters.ecs.stop_reasons import causes_of
from nodeheal.contract.vocabulary import Family
from nodeheal.domain.jobs.attribution import failed_at, findings_on_nodes, rank_endings
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decision_context import Observation
from tests.support.builders import ACT, NOW, xid
from tests.support.job_cluster import NODES, JobCluster, fails, finishes, is_recovered

A, B, C, _ = NODES


def rank(number: int, code: int | None, seconds: float, reason: str = "") -> GangTask:
    at = NOW + timedelta(seconds=seconds)
    known = GangTask(NODES[number], number, "boot-1", "p", "t", "STOPPED", code, reason, at)
    return replace(known, end_causes=causes_of(reason))


def run(*tasks: GangTask) -> Run:
    return Run("llama", 1, NOW, "why", tasks)


def seen(code: str, node_id: str, seconds: float, family: Family = Family.xid) -> Observation:
    return Observation(f"{code}-{node_id}", node_id, NOW + timedelta(seconds=seconds), family, code)


FAILED = run(rank(0, 134, 2.1), rank(1, 137, 0), replace(rank(2, 0, 0), status="RUNNING", stopped_at=None))


def said(*observations: Observation, of: Run = FAILED, policy: RecoveryPolicy = ACT) -> str:
    return findings_on_nodes(of, observations, policy)


def test_ranks_are_told_in_the_order_of_their_ends() -> None:
    assert rank_endings(FAILED) == (
        "Ranks in order of their ends: rank 1 with 137 at 03:00:00 UTC, rank 0 with 134 2.1 s later; 1 of 3 still ran."
    )


def test_a_rank_that_was_asked_to_end_and_one_without_a_code_are_told_as_such() -> None:
    told = rank_endings(run(rank(0, None, 0), rank(1, 143, 1, "UserInitiated: nodeheal: recovery inc-1")))

    assert (
        told
        == "Ranks in order of their ends: rank 0 without a code at 03:00:00 UTC, rank 1 stopped as asked 1.0 s later."
    )


def test_of_what_has_not_ended_nothing_is_told() -> None:
    running = run(replace(rank(0, None, 0), status="RUNNING", stopped_at=None))

    assert (rank_endings(running), said(of=running), failed_at(running)) == ("", "", None)


def test_findings_around_the_failure_are_told_by_time_and_echoes_apart_from_causes() -> None:
    told = said(seen("45", A, 1), seen("79", B, -1.2), seen("45", B, -0.2))

    assert told == (
        f"Findings on its nodes within 60 s: {B} XID 79 (GPU has fallen off the bus) 1.2 s before it. "
        "Secondary faults or notes, and no causes: "
        f"{B} XID 45 (Preemptive cleanup after another fault) 0.2 s before it; "
        f"{A} XID 45 (Preemptive cleanup after another fault) 1.0 s after it."
    )


def test_what_the_catalog_only_notes_is_no_cause() -> None:
    assert said(seen("92", B, 0)).startswith("Findings on its nodes within 60 s: none. Secondary faults or notes")


def test_a_rank_that_has_ended_well_has_not_failed() -> None:
    assert failed_at(run(rank(0, 0, 1), rank(1, 1, 5))) == NOW + timedelta(seconds=5)


def test_a_secondary_fault_by_the_policys_word_is_no_cause_either() -> None:
    echoes = ACT.model_copy(
        update={"correlation": ACT.correlation.model_copy(update={"secondary_faults": ("xid/79",)})}
    )

    assert said(seen("79", B, 0), policy=echoes).startswith("Findings on its nodes within 60 s: none. Secondary faults")


def test_what_is_elsewhere_or_long_ago_or_a_task_of_ours_is_not_told() -> None:
    far = [seen("79", "mi-elsewhere", 0), seen("79", A, -61), seen("79", B, 61), seen("exit_1", A, 0, Family.task)]

    assert said(*far) == "Findings on its nodes within 60 s: none."


def test_a_storm_of_findings_is_cut_and_counted() -> None:
    assert said(*(seen("79", A, n) for n in range(20))).endswith("; and 8 more.")


def test_the_incident_of_a_failure_tells_what_was_seen_around_it() -> None:
    it = JobCluster()

    def fails_with_a_secondary_fault(cluster: JobCluster) -> None:
        cluster.ports.nodes.record(xid(45, node_id=A, instance_id=A, observed_at=cluster.clock()), "llama")
        fails(rank=1, exit_code=1)(cluster)

    it.happenings = [fails_with_a_secondary_fault, is_recovered, finishes]

    it.submit()

    [incident_id] = it.ports.workflows.started  # type: ignore[attr-defined]
    evidence = it.ports.incidents.history(incident_id).incident.root.evidence
    assert f"rank 1 on {B} ended with exit code 1" in evidence
    assert "Ranks in order of their ends: rank 1 with 1 at" in evidence
    assert f"Findings on its nodes within 60 s: none. Secondary faults or notes, and no causes: {A} XID 45" in evidence
