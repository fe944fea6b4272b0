"""Nodes of a Kubernetes cluster: the real adapter acts on them, and the cluster does the rest."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from nodeheal.adapters.kubernetes import gate, nodes, workloads
from nodeheal.adapters.kubernetes.api import Object
from nodeheal.adapters.kubernetes.notes import RESTARTED_FOR
from nodeheal.contract.vocabulary import Ending, SchedulerKind
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.services.recovery import unmanaged_tasks
from nodeheal.simulation.kubernetes import KubernetesCluster
from nodeheal.simulation.runner import run_world
from nodeheal.simulation.schedules import run_some, schedule
from nodeheal.simulation.setting import KubernetesWork
from nodeheal.simulation.world import SimulatedPool
from tests.simulation.builders import HOUR
from tests.simulation.cases import (
    ACT,
    KUBERNETES,
    a_job_on_all_nodes_loses_one,
    calm,
    one_fault,
)
from tests.simulation.taken_away import Break, Patch, cut

SCHEDULES = range(60)
# The tries of a workflow to isolate a node outlast this deadline, and not always the default one.
QUICK = ACT.model_copy(update={"deadlines": ACT.deadlines.model_copy(update={"isolate_seconds": 60})})


def _cluster(world: SimulatedPool) -> KubernetesCluster:
    assert isinstance(world.parts.cluster, KubernetesCluster)
    return world.parts.cluster


def _played(
    happen: Callable[[SimulatedPool], None],
    jobs: KubernetesWork = KUBERNETES,
    until: float = 8 * HOUR,
    policy: RecoveryPolicy = ACT,
) -> SimulatedPool:
    world = calm(policy, jobs)
    happen(world)
    world.advance(until)
    return world


def _a_person_cordons_again_under_our_taint(world: SimulatedPool) -> None:
    one_fault(world)
    name = next(iter(world.fleet.nodes))
    world.agenda.at(120, lambda: _cluster(world).cordon(name, is_to_be=False))
    world.agenda.at(180, lambda: _cluster(world).cordon(name))


def _the_node_of_a_gang_panics(world: SimulatedPool) -> None:
    """Its pods there end when it is up again, minutes later."""
    a_job_on_all_nodes_loses_one(world)
    world.agenda.at(601, lambda: world.fleet.reboot(next(iter(world.fleet.nodes.values()))))


def _the_answer_to_a_resume_is_lost(world: SimulatedPool) -> None:
    a_job_on_all_nodes_loses_one(world)
    patch, lost = _cluster(world).patch, list[str]()

    def once(path: str, change: Object) -> Object:
        after = patch(path, change)
        if RESTARTED_FOR in change["metadata"].get("annotations", ()) and not lost:
            lost.append(path)
            raise NotAccepted("the API server has not answered")
        return after

    _cluster(world).patch = once  # type: ignore[method-assign]


# Invariants that are not Kubernetes' alone: what is taken away, what happens then, and in which cluster.
CASES: dict[str, tuple[str, Break, Callable[[SimulatedPool], None], KubernetesWork]] = {
    "a cordon from while it stood": (
        "what_people_drained_stays_drained",
        cut(nodes.is_cordon_ours, "_cordoned_by(node_object) in (MANAGER, *_NOBODY)", "True"),
        _a_person_cordons_again_under_our_taint,
        KUBERNETES,
    ),
    "our own cordon": (
        "nodes_in_service_take_work",
        cut(gate._opened, "is_cordon_ours(node_object)", "False"),
        one_fault,
        KUBERNETES,
    ),
    "a pod of nobody": (
        "tasks_of_others_are_left_alone",
        cut(workloads._task_of_pod, "root is not None and root.kind_name in _MADE_AGAIN", "True"),
        one_fault,
        replace(KUBERNETES, bare=1.0),
    ),
    "an answer that is lost": (
        "a_job_is_requeued_once",
        cut(workloads._restart, "notes.get(RESTARTED_FOR) == reason"),
        _the_answer_to_a_resume_is_lost,
        replace(KUBERNETES, most_restarts=(None,)),
    ),
    "a gang without its resume": (
        "requeued_jobs_run_again",
        cut(workloads._restart, "not is_held"),
        a_job_on_all_nodes_loses_one,
        KUBERNETES,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_without_its_guard_it_is_named_and_with_it_nothing_is_broken(name: str, monkeypatch: Patch) -> None:
    invariant, take_away, happen, jobs = CASES[name]
    whole = _played(happen, jobs)
    take_away(monkeypatch)

    without = _played(happen, jobs)

    assert whole.fleet.faults
    assert (whole.watch.violations, whole.surprises) == ([], Counter())
    assert invariant in {violation.invariant for violation in without.watch.violations}


def test_a_gang_is_restarted_on_other_nodes_while_its_node_is_healed() -> None:
    world = _played(a_job_on_all_nodes_loses_one, until=2 * HOUR)

    [gang] = _cluster(world).jobs.values()
    [incident] = world.incidents.incidents.values()
    assert (gang.restarted_by_nodeheal, len(gang.nodes), incident.ending) == (1, 6, Ending.RECOVERED)
    assert [requeue.incident_id for requeue in world.watch.requeues] == [incident.incident_id]
    assert (world.scheduler.draining, world.watch.violations) == (set(), [])


def test_a_gang_whose_node_panics_is_resumed_before_its_incident_ends(monkeypatch: Patch) -> None:
    whole = _played(_the_node_of_a_gang_panics, until=2 * HOUR, policy=QUICK)
    cut(unmanaged_tasks._complete, "restarts_stopped(scheduler)")(monkeypatch)
    without = _played(_the_node_of_a_gang_panics, until=2 * HOUR, policy=QUICK)

    restarts = [[gang.restarted_by_nodeheal for gang in _cluster(world).jobs.values()] for world in (whole, without)]
    assert (restarts, whole.watch.violations) == ([[1], [0]], [])


def test_random_schedules_over_nodes_of_kubernetes_break_no_invariant() -> None:
    done, incidents, broken, surprises = run_some(SCHEDULES, SchedulerKind.KUBERNETES)

    assert (broken, surprises) == ([], Counter())
    assert (done, incidents > 3 * done) == (len(SCHEDULES), True)


def test_and_what_they_are_about_happens_in_them() -> None:
    counts, endings = Counter[str](), Counter[str]()
    for number in SCHEDULES:
        world = SimulatedPool(schedule(number, SchedulerKind.KUBERNETES))
        endings += run_world(world).endings
        counts += world.trace.counts
        counts["suspended by nodeheal"] += len(world.watch.requeues)
        counts["throttled"] += world.throttles.buckets["kubernetes"].refused

    assert min(counts[name] for name in ("cordons", "uncordons", "kubernetes evicts", "suspended by nodeheal")) > 10
    assert counts["kubernetes suspends"] > counts["suspended by nodeheal"]  # owners do as well
    assert counts["withdraws consent"] > 5
    assert min(endings[one] for one in (Ending.RECOVERED, Ending.HANDED_TO_A_HUMAN)) > 10


@pytest.mark.parametrize("number", [7, 4_711])
def test_a_number_is_one_of_the_faults_that_it_has_on_ecs(number: int) -> None:
    ecs, other = schedule(number), schedule(number, SchedulerKind.KUBERNETES)

    assert replace(other, cluster=None, work=ecs.work, others=ecs.others, policy=ecs.policy) == ecs
    assert (other.work.share, other.others.unmanaged_tasks, other.scheduler) == (0, 0, SchedulerKind.KUBERNETES)
