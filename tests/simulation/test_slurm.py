"""Nodes of a Slurm cluster: nodeheal drains, requeues and resumes, and Slurm does the rest."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from nodeheal.cli.simulated import tell
from nodeheal.contract.vocabulary import Ending, NodeState, SchedulerKind
from nodeheal.services.recovery import unmanaged_tasks
from nodeheal.simulation import cluster_jobs
from nodeheal.simulation.mass_failure import settings_of
from nodeheal.simulation.report import report_of
from nodeheal.simulation.runner import run_world
from nodeheal.simulation.schedules import run_some, schedule
from nodeheal.simulation.setting import Setting, SlurmJobs, on_cluster
from nodeheal.simulation.slurm import SimSlurm, SlurmCluster
from nodeheal.simulation.world import MASS_FAILURE_AT, SimulatedPool
from tests.simulation.builders import HOUR
from tests.simulation.cases import (
    ACT,
    SLURM,
    a_job_on_all_nodes_loses_one,
    a_node_that_people_have_drained_fails,
    calm,
    strike,
    submit,
)
from tests.without import without

SCHEDULES = range(60)


def _played(happen: Callable[[SimulatedPool], None], jobs: SlurmJobs = SLURM, until: float = 8 * HOUR) -> SimulatedPool:
    world = calm(ACT, jobs)
    happen(world)
    world.advance(until)
    return world


def _cluster(world: SimulatedPool) -> SlurmCluster:
    assert isinstance(world.parts.cluster, SlurmCluster)
    return world.parts.cluster


def _told(world: SimulatedPool) -> set[tuple[str, str]]:
    return {(one.invariant, one.text.partition(" (")[0]) for one in world.watch.violations}


def _a_job_of_somebody_who_has_not_agreed(world: SimulatedPool) -> None:
    submit(world, 6, may_requeue=False)
    strike(world, 600)


def test_a_job_is_requeued_off_a_node_that_fails_and_runs_again_when_slurm_has_nodes_for_it() -> None:
    world = _played(a_job_on_all_nodes_loses_one, until=2 * HOUR)

    (job,) = _cluster(world).jobs.values()
    (incident,) = world.incidents.incidents.values()
    assert (job.restarts, len(job.nodes), incident.ending) == (1, 6, Ending.RECOVERED)
    assert [one.incident_id for one in world.watch.requeues] == [incident.incident_id]
    assert (world.watch.violations, world.surprises) == ([], Counter())


def test_a_job_whose_owner_has_not_agreed_runs_until_the_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_jobs, "HANGS", 1.0)
    told: list[str] = []
    world = calm(ACT, SLURM)
    world.trace._read = told.append
    _a_job_of_somebody_who_has_not_agreed(world)
    world.advance(8 * HOUR)

    words = [" ".join(line.split()[2:5]) for line in told if "slurm " in line or " node down " in line]
    assert words == ["slurm starts 1", f"node down {next(iter(world.fleet.nodes))}", "slurm ends 1"]
    assert "NODE_FAIL" in next(line for line in told if "slurm ends" in line)
    assert (world.watch.requeues, world.watch.violations) == ([], [])


def test_jobs_that_slurm_ends_are_reported_and_no_training_time_that_nodeheal_does_not_know(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster_jobs, "HANGS", 1.0)
    world = _played(_a_job_of_somebody_who_has_not_agreed)

    tell(report_of(world), "nodeheal simulate", as_json=False, latency="none")

    rows = dict(re.split(r"  +", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["jobs that ended"] == "NODE_FAIL 1"
    assert "ETTR" not in rows


def test_and_without_that_guard_it_is_named() -> None:
    with without(unmanaged_tasks.stop_unmanaged_tasks, "wants_stop and task.may_be_stopped", "wants_stop"):
        world = _played(_a_job_of_somebody_who_has_not_agreed)

    assert _told(world) == {("tasks_of_others_are_left_alone", "job of 6 nodes")}


def test_a_node_that_a_person_has_drained_is_healed_and_stays_drained() -> None:
    world = _played(a_node_that_people_have_drained_fails)

    (drained,) = world.co_tenants.drained
    assert world.scheduler.draining == {drained}
    assert world.nodes.nodes[drained].state in (NodeState.PROBATION, NodeState.HEALTHY)
    assert world.watch.violations == []


@pytest.mark.parametrize(("nodes", "share"), [(40, 0.0), (40, 1.0), (80, 1.0)])
def test_forty_nodes_that_fail_at_once_are_all_drained_by_one_slow_controller(nodes: int, share: float) -> None:
    """Its SSM agent works on five commands at a time, and one that nobody waits for any more holds a worker, too."""
    setting = settings_of(Setting(nodes=nodes + 20, mass_failure=nodes))["raised"]
    world = SimulatedPool(on_cluster(setting, SlurmJobs(share=share, days=30, most_nodes=1, requeueable=1.0)))

    world.advance(MASS_FAILURE_AT + 600)

    assert isinstance(world.scheduler, SimSlurm)
    drained = world.scheduler.drained_at
    assert len(drained) == nodes
    assert max(drained.values()) - MASS_FAILURE_AT < 120
    # Four commands for each node are what it took before: a look, a drain, a list of jobs, a requeue.
    assert len([at for at in world.scheduler.machine.sent_at if at >= MASS_FAILURE_AT]) < 4 * nodes
    assert world.watch.violations == []


def test_an_order_whose_answer_comes_too_late_is_sent_again_and_carried_out_once() -> None:
    world = _played(a_job_on_all_nodes_loses_one, replace(SLURM, unanswered=0.6))

    assert (world.trace.counts["task fails"] > 0, len(world.watch.requeues)) == (True, 1)
    assert world.watch.violations == []


def test_random_schedules_over_nodes_of_slurm_break_no_invariant() -> None:
    done, incidents, broken, surprises = run_some(SCHEDULES, SchedulerKind.SLURM)

    assert (broken, surprises) == ([], Counter())
    assert (done, incidents > 3 * done) == (len(SCHEDULES), True)


def test_and_what_they_are_about_happens_in_them() -> None:
    counts, endings = Counter[str](), Counter[str]()
    for number in SCHEDULES:
        world = SimulatedPool(schedule(number, SchedulerKind.SLURM))
        endings += run_world(world).endings
        counts += world.trace.counts
        counts["requeued by nodeheal"] += len(world.watch.requeues)
        assert isinstance(world.scheduler, SimSlurm)
        counts["replaced by their cluster"] += len(world.scheduler.handed_over)
        counts["drained by people"] += len(world.co_tenants.drained)

    assert min(counts["slurm starts"], counts["requeued by nodeheal"], counts["drained by people"]) > 10
    assert counts["replaced by their cluster"] > 5
    assert counts["slurm requeues"] > counts["requeued by nodeheal"]  # where a node has failed, Slurm does it itself
    assert min(endings[one] for one in (Ending.RECOVERED, Ending.HANDED_TO_A_HUMAN)) > 10


@pytest.mark.parametrize("number", [7, 4_711])
def test_a_number_is_the_run_of_ecs_that_it_was_and_on_slurm_one_of_the_same_faults(number: int) -> None:
    ecs, other = schedule(number), schedule(number, SchedulerKind.SLURM)

    assert ecs.cluster is None
    assert replace(other, cluster=None, work=ecs.work, others=ecs.others, policy=ecs.policy) == ecs
    assert (other.work.share, other.others.unmanaged_tasks, other.scheduler) == (0, 0, SchedulerKind.SLURM)


def test_people_repeat_a_release_that_broke_off_before_the_node_was_resumed() -> None:
    _, _, broken, surprises = run_some([2_004_534], SchedulerKind.SLURM)

    assert (broken, surprises) == ([], Counter())
