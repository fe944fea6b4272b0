"""What is wrong with how a run trains: judged by the numbers of its nodes, and never more than they show."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.training import ENDED, NodeTraining
from nodeheal.contract.vocabulary import JobFindingKind as Kind
from nodeheal.domain.jobs.job import Divergence, GangTask, Run
from nodeheal.domain.jobs.job_findings import JobFinding, NotedFinding, Suspect, first_distrusted, job_findings, noted
from nodeheal.domain.policy.policy_models import SlowJobs
from tests.support.builders import NOW
from tests.support.jobs import ecs_job

JOB = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 8, steps=10_000)
TASKS = tuple(GangTask(f"mi-{rank}", rank, "boot-1", f"arn-{rank}", status="RUNNING") for rank in range(8))
RUN = Run("llama", 2, NOW, "first", TASKS, running_since=NOW)
LIMITS = SlowJobs()
USUAL = NodeTraining(
    "llama/2",
    500,
    idle_seconds=1.0,
    step_seconds=1.0,
    usual_step_seconds=1.0,
    step_spread=0.01,
    compute_seconds=0.8,
    slowest_compute_seconds=0.82,
    slowest_rank=3,
    loss=2.0,
    usual_loss=2.0,
    loss_spread=0.02,
)


def nodes(
    *changed: dict[str, Any], count: int = 8, everywhere: dict[str, Any] | None = None
) -> dict[str, NodeTraining]:
    """So many nodes that train as usual; the first ones with these changes."""
    usual = replace(USUAL, **(everywhere or {}))
    return {f"mi-{n}": replace(usual, **(changed[n] if n < len(changed) else {})) for n in range(count)}


def kinds(trainings: dict[str, NodeTraining], seconds_up: float = 7_200.0, **job: Any) -> list[Kind]:
    return [each.kind for each in job_findings(replace(JOB, **job), RUN, trainings, seconds_up, LIMITS)]


def test_a_run_that_trains_as_usual_has_nothing_wrong() -> None:
    assert kinds(nodes()) == []


@pytest.mark.parametrize(
    ("idle", "usual", "hangs"), [(30.0, 1.0, False), (31.0, 1.0, True), (61.0, 7.0, False), (71.0, 7.0, True)]
)
def test_it_hangs_without_a_step_for_half_a_minute_and_ten_of_its_own_steps(
    idle: float, usual: float, hangs: bool
) -> None:
    trainings = nodes(everywhere={"idle_seconds": idle, "usual_step_seconds": usual, "step_seconds": usual})

    assert kinds(trainings) == ([Kind.HUNG] if hangs else [])


def test_its_own_pace_counts_for_a_run_that_is_too_young_to_have_a_usual_one() -> None:
    young = {"idle_seconds": 100.0, "step_seconds": 20.0, "usual_step_seconds": None, "step_spread": None}

    assert kinds(nodes(everywhere=young)) == []
    assert kinds(nodes(everywhere={**young, "idle_seconds": 201.0})) == [Kind.HUNG]


def test_one_rank_that_moves_or_evaluates_shows_that_the_run_does_not_hang() -> None:
    still = {"idle_seconds": 600.0}

    assert kinds(nodes({"idle_seconds": 2.0}, everywhere=still)) == []
    assert kinds(nodes({"pause": "evaluation"}, everywhere=still)) == []
    assert kinds(nodes(everywhere=still)) == [Kind.HUNG]


def test_a_run_of_which_only_the_step_is_known_is_not_judged() -> None:
    assert kinds({"mi-0": NodeTraining("llama/2", 12)}) == []


@pytest.mark.parametrize(
    ("good", "diverged", "resumed", "first"),
    [
        ([70, 71, None], None, 60, 70),
        ([None, None], None, 60, 60),
        ([None, None], None, None, None),
        ([70], Divergence(1, 65), 60, 60),  # going back there has not helped: further
        ([70], Divergence(2, 70), 60, 70),  # the same look, made again
        ([70], Divergence(1, 65), None, 70),
        ([], Divergence(1, 65), 60, 60),
    ],
)
def test_a_loss_that_is_no_number_makes_the_checkpoints_from_the_last_good_step_on_distrusted(
    good: list[int | None], diverged: Divergence | None, resumed: int | None, first: int | None
) -> None:
    job = replace(JOB, diverged=diverged)
    reports = [NodeTraining("llama/2", 90, good_step=step) for step in good]

    assert first_distrusted(job, replace(RUN, resumed_step=resumed), reports) == first


WAITS, WORKS = {"waiting_ranks": 2}, {"waiting_ranks": 1, "working_rank": 1}


@pytest.mark.parametrize(
    ("some", "others", "suspects"),
    [
        ([WORKS], WAITS, ["mi-0"]),
        ([WAITS, WORKS, WORKS], WAITS, ["mi-1", "mi-2"]),
        ([], WAITS, []),
        ([WAITS], WORKS, []),  # most of them work: nobody waits for one rank
        ([WORKS], {"waiting_ranks": 0}, ["mi-0"]),
        ([{"waiting_ranks": 0, "working_rank": 0}], {"waiting_ranks": 0}, []),
        ([WORKS], {}, []),  # one of them does not show it
    ],
)
def test_the_ranks_for_which_the_others_wait_are_named_where_most_do(
    some: list[dict[str, Any]], others: dict[str, Any], suspects: list[str]
) -> None:
    still = {"idle_seconds": 600.0, **others}

    [finding] = job_findings(JOB, RUN, nodes(*some, everywhere=still), 7_200.0, LIMITS)

    assert finding.kind is Kind.HUNG
    assert [each.node_id for each in finding.suspects] == suspects


def test_of_a_hang_in_which_no_rank_shows_that_it_waits_nobody_is_accused() -> None:
    [finding] = job_findings(JOB, RUN, nodes(everywhere={"idle_seconds": 600.0, "step": 499}), 7_200.0, LIMITS)

    assert finding == JobFinding("llama", 2, Kind.HUNG, 600.0, 1.0, 499)


@pytest.mark.parametrize(("seconds", "expected"), [(3_600.0, []), (3_601.0, [Kind.NO_FIRST_STEP])])
def test_its_first_step_may_take_an_hour(seconds: float, expected: list[Kind]) -> None:
    assert kinds({}, seconds) == expected


def test_a_job_that_has_never_shown_a_step_is_not_missed() -> None:
    assert kinds({}, 1e6, steps=None) == []
    resumed = replace(RUN, resumed_step=0)
    assert [each.kind for each in job_findings(replace(JOB, steps=None), resumed, {}, 1e6, LIMITS)] == [
        Kind.NO_FIRST_STEP
    ]
    assert job_findings(JOB, RUN, {}, 1e6, SlowJobs(first_step_seconds=0)) == []


@pytest.mark.parametrize(
    ("now", "spread", "expected"), [(1.11, 0.01, []), (1.13, 0.01, [Kind.SLOWER]), (1.13, 0.03, []), (0.5, 0.01, [])]
)
def test_it_is_slower_by_more_than_the_limit_and_than_its_own_noise(
    now: float, spread: float, expected: list[Kind]
) -> None:
    assert kinds(nodes(everywhere={"step_seconds": now, "step_spread": spread})) == expected


def test_without_a_usual_pace_it_is_not_slower() -> None:
    for missing in ("step_seconds", "usual_step_seconds", "step_spread"):
        assert kinds(nodes(everywhere={"step_seconds": 9.0, missing: None})) == []


def test_a_rank_whose_own_work_takes_longer_is_named() -> None:
    [finding] = job_findings(JOB, RUN, nodes({}, {"slowest_compute_seconds": 1.2, "slowest_rank": 5}), 7_200.0, LIMITS)

    assert (finding.kind, finding.suspects, finding.usual) == (Kind.SLOW_RANK, (Suspect("mi-1", 5, 1.2),), 0.8)
    assert "local rank 5 on mi-1 (1.2 s)" in finding.text


@pytest.mark.parametrize(
    ("slow", "count", "named"), [(1, 3, 1), (1, 2, 0), (2, 8, 2), (3, 8, 0), (4, 64, 4), (5, 64, 0)]
)
def test_of_two_nodes_or_of_many_slow_ones_nobody_is_named(slow: int, count: int, named: int) -> None:
    trainings = nodes(*[{"slowest_compute_seconds": 1.2}] * slow, count=count)

    findings = job_findings(JOB, RUN, trainings, 7_200.0, LIMITS)

    assert sum(len(each.suspects) for each in findings) == named


def test_ranks_that_work_unequally_by_design_hide_no_more_than_their_own_spread() -> None:
    stages = [{"compute_seconds": 0.6 + 0.1 * n, "slowest_compute_seconds": 0.6 + 0.1 * n} for n in range(8)]

    assert kinds(nodes(*stages)) == []
    assert kinds(nodes(*stages[:-1], {"slowest_compute_seconds": 3.0})) == [Kind.SLOW_RANK]


def test_a_rank_that_shows_no_work_of_its_own_is_no_suspect() -> None:
    assert kinds(nodes({"slowest_compute_seconds": None}, {"compute_seconds": None}, count=8)) == []
    assert kinds(nodes({"slowest_compute_seconds": 1.2, "slowest_rank": None})) == [Kind.SLOW_RANK]


def test_a_loss_that_is_not_a_number_is_found_at_once() -> None:
    [finding] = job_findings(JOB, RUN, nodes({"loss": math.nan}), 60.0, LIMITS)

    assert (finding.kind, finding.value, finding.usual) == (Kind.LOSS_NOT_FINITE, None, 2.0)
    assert finding.text == "its loss is not a number any more; it was 2"


@pytest.mark.parametrize(
    ("loss", "usual", "spread", "expected"),
    [
        (3.1, 2.0, 0.02, [Kind.LOSS_ROSE]),
        (2.9, 2.0, 0.02, []),
        (3.1, 2.0, 0.2, []),
        (0.5, 2.0, 0.02, []),
        (3.1, None, 0.02, []),
        (3.1, 2.0, None, []),
        (None, 2.0, 0.02, []),
    ],
)
def test_a_loss_has_risen_above_its_median_and_its_noise(
    loss: float | None, usual: float | None, spread: float | None, expected: list[Kind]
) -> None:
    assert kinds(nodes(everywhere={"loss": loss, "usual_loss": usual, "loss_spread": spread})) == expected


@pytest.mark.parametrize(("age", "expected"), [(1_800.0, []), (1_801.0, [Kind.NO_CHECKPOINT]), (None, [])])
def test_three_checkpoints_of_its_file_may_be_missing(age: float | None, expected: list[Kind]) -> None:
    every = Checkpoints(directory="/fsx/llama", every_seconds=600)

    assert kinds(nodes({"saved_seconds": age}), checkpoints=every) == expected
    assert kinds(nodes({"saved_seconds": age}), checkpoints=replace_every(every)) == []


def replace_every(checkpoints: Checkpoints) -> Checkpoints:
    return checkpoints.model_copy(update={"every_seconds": None})


# What is written down


def finding(kind: Kind) -> JobFinding:
    return JobFinding("llama", 2, kind, 2.0, 1.0, 500)


def test_a_finding_is_written_down_when_it_begins_and_when_it_is_over() -> None:
    later = NOW + timedelta(minutes=5)
    [begun] = noted([finding(Kind.HUNG)], [], NOW)

    assert begun == NotedFinding(finding(Kind.HUNG), NOW)
    assert noted([finding(Kind.HUNG)], [begun], later) == []
    assert noted([], [begun], later) == [replace(begun, over_at=later)]
    assert noted([], [replace(begun, over_at=later)], later) == []


def test_one_that_begins_again_is_not_told_again() -> None:
    over = NotedFinding(finding(Kind.SLOWER), NOW, announced_at=NOW, over_at=NOW)
    later = NOW + timedelta(hours=1)

    [again] = noted([finding(Kind.SLOWER)], [over], later)

    assert (again.since, again.announced_at, again.over_at) == (later, NOW, None)
    assert not again.is_due(later + timedelta(hours=1))


@pytest.mark.parametrize("kind", Kind)
def test_what_is_noisy_is_told_when_the_next_heartbeats_say_the_same(kind: Kind) -> None:
    begun = NotedFinding(finding(kind), NOW)

    assert begun.is_due(NOW + timedelta(seconds=90))
    assert begun.is_due(NOW) is (kind not in {Kind.SLOWER, Kind.SLOW_RANK, Kind.LOSS_ROSE})
    assert not replace(begun, over_at=NOW).is_due(NOW + timedelta(hours=1))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.HUNG, "no rank has taken a step for 2 s; a step usually takes 1 s"),
        (Kind.NO_FIRST_STEP, "its ranks have been running for 2 s, and none has taken a step"),
        (Kind.NO_CHECKPOINT, "its last checkpoint is 2 s old; its file says one every 1 s"),
        (Kind.SLOWER, "a step takes 2 s; in this run it usually took 1 s"),
        (Kind.LOSS_NOT_FINITE, "its loss is not a number any more; it was 1"),
        (Kind.LOSS_ROSE, "its loss is 2; in this run it was 1 before"),
    ],
)
def test_each_kind_says_in_words_what_is_wrong(kind: Kind, text: str) -> None:
    assert finding(kind).text == text
    assert replace(finding(Kind.LOSS_NOT_FINITE), usual=None).text == "its loss is not a number any more"


SLOW_RANK: dict[str, Any] = {"slowest_compute_seconds": 1.2, "slowest_rank": 5}
LOW, HOT = "nvml/CLOCKS_LOW", "nvml/THERMAL_SLOWDOWN"


@pytest.mark.parametrize("count", [2, 8])
def test_a_slow_rank_whose_node_measures_why_is_proven_also_where_too_few_nodes_can_be_compared(count: int) -> None:
    [finding] = job_findings(JOB, RUN, nodes({**SLOW_RANK, "slowed_by": LOW}, count=count), 7_200.0, LIMITS)

    assert (finding.kind, finding.proven) == (Kind.SLOW_RANK, Suspect("mi-0", 5, 1.2, LOW))
    assert "local rank 5 on mi-0 (1.2 s, and its node measures nvml/CLOCKS_LOW)" in finding.text


def test_what_no_restart_mends_is_named_and_proves_nothing() -> None:
    [finding] = job_findings(JOB, RUN, nodes({**SLOW_RANK, "slowed_by": HOT}), 7_200.0, LIMITS)

    assert finding.proven is None
    assert "and its node measures nvml/THERMAL_SLOWDOWN" in finding.text


@pytest.mark.parametrize(
    "trainings",
    [
        nodes({"slowed_by": LOW}, count=2),
        nodes({"slowed_by": LOW}, SLOW_RANK, count=2),
        nodes({**SLOW_RANK, "slowed_by": LOW}, SLOW_RANK, count=2),
        nodes({**SLOW_RANK, "slowed_by": LOW}, count=1),
        nodes({**SLOW_RANK, "slowed_by": LOW}, {"slowest_compute_seconds": None, "compute_seconds": None}, count=2),
    ],
    ids=["it is as fast", "the other is slower", "both are as slow", "it is alone", "the other shows nothing"],
)
def test_of_two_nodes_one_that_measures_a_fault_is_no_suspect_where(trainings: dict[str, NodeTraining]) -> None:
    assert kinds(trainings) == []


def test_the_proof_of_one_suspect_is_none_of_another() -> None:
    [finding] = job_findings(JOB, RUN, nodes(SLOW_RANK, {**SLOW_RANK, "slowed_by": LOW}), 7_200.0, LIMITS)

    assert [suspect.node_id for suspect in finding.suspects] == ["mi-0", "mi-1"]
    assert finding.proven == finding.suspects[1]


def test_a_node_whose_ranks_have_ended_hides_no_hang_of_the_others() -> None:
    ended: dict[str, Any] = {"idle_seconds": 100.0, "pause": ENDED}

    assert kinds(nodes(ended, everywhere={"idle_seconds": 100.0})) == [Kind.HUNG]
    assert kinds(nodes(everywhere=ended)) == []
