"""Which scheduler a node and a job have."""

from dataclasses import replace
from typing import cast

import pytest

from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.adapters.memory.world import MemoryScheduler
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Action, Availability, Ending, Escalation, NodeState, SchedulerKind
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.enrolment import Enrolment
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode, NewNodes, PoolPolicy
from nodeheal.operations.new_node import stand_in_line
from nodeheal.services.intake.new_nodes import diagnose_new_nodes
from nodeheal.services.jobs.prepare_job import cluster_of_pool
from nodeheal.services.operators.check_act import why_not_now
from nodeheal.services.operators.describe_act import describe_act
from nodeheal.services.operators.node_availability import availability_of
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.steps import save_node
from tests.support.builders import ACT, behave_as, memory_ports, node, scheduler_in, xid
from tests.support.enrolment import enroll
from tests.support.example_scheduler import ExampleGate, example_scheduler
from tests.support.fake_cluster import SPARE, FakeCluster
from tests.support.jobs import TRAINING, ecs_job

EXAMPLE = SchedulerKind.SLURM  # whose row is the example's here
OTHER = cast("SchedulerKind", "OTHER")  # one that this deployment does not serve
JOB = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 1)


def test_a_node_and_a_job_are_served_by_their_own_scheduler() -> None:
    ports = memory_ports()

    assert ports.scheduler_of(node()).gate is scheduler_in(ports)
    assert ports.launcher_for(JOB) is scheduler_in(ports)
    with pytest.raises(NotFound, match="mi-a has the scheduler OTHER, which this deployment does not serve"):
        ports.scheduler_of(node("mi-a", scheduler=OTHER))
    with pytest.raises(NotFound, match="llama has the scheduler OTHER"):
        ports.launcher_for(replace(JOB, cluster=Cluster(OTHER, "training")))


def test_a_job_has_the_cluster_of_its_pools_nodes_and_a_pool_of_several_is_refused() -> None:
    ports = memory_ports()
    with pytest.raises(ValueError, match="demo has no node that its agent has reported"):
        cluster_of_pool("demo", ports)

    ports.nodes.save(node("mi-a", scheduler=OTHER))
    ports.nodes.save(node("mi-c", state=NodeState.RETIRED))  # it is in the pool no more
    alone = cluster_of_pool("demo", ports)
    ports.nodes.save(node("mi-b"))

    assert alone == Cluster(OTHER, "training")
    with pytest.raises(ValueError, match=r"are in several clusters \(training of ECS, training of OTHER\)"):
        cluster_of_pool("demo", ports)


def test_a_scheduler_in_memory_says_whether_it_reaches_a_node() -> None:
    memory = MemoryScheduler(unknown_nodes={"mi-b"}, disconnected={"placement-of-mi-c"})

    assert [memory.liveness(node(name)).is_up for name in ("mi-a", "mi-b", "mi-c")] == [True, None, False]


def test_a_node_that_is_announced_has_the_scheduler_of_its_pool() -> None:
    ports, marks = memory_ports(), MemoryMarks()
    said = Enrolment(pool="demo", why="ada: new rack", cluster="training")
    ports.nodes.save(node("mi-a", scheduler=OTHER))
    like_the_others, _ = enroll("mi-0b1b2c3d4e5f60718", said, ports, marks)
    ports.nodes.save(node("mi-b"))

    between, _ = enroll("mi-0c1b2c3d4e5f60718", replace(said, scheduler=SchedulerKind.ECS), ports, marks)

    assert (like_the_others.cluster.kind, between.cluster.kind) == (OTHER, SchedulerKind.ECS)
    with pytest.raises(ValueError, match="give --scheduler"):
        enroll("mi-0d1b2c3d4e5f60718", said, ports, marks)


def test_a_scheduler_that_starts_no_ranks_has_no_job_of_nodeheals() -> None:
    ports = memory_ports()
    behave_as(ports, launcher=None)

    assert ports.launcher_in(TRAINING) is None
    with pytest.raises(NotFound, match="llama has the scheduler ECS, for which nodeheal starts no jobs"):
        ports.launcher_for(JOB)
    assert [word for _, word in availability_of([node()], ports)] == [Availability.UP]


def with_an_example() -> tuple[FakeCluster, ExampleGate]:
    """The spare is a node of a third scheduler, which can open and close its gate and nothing else."""
    cluster, gate = FakeCluster(ACT), ExampleGate(SPARE)
    served = {**cluster.ports.schedulers, EXAMPLE: example_scheduler(EXAMPLE, gate)}
    cluster.ports = replace(cluster.ports, schedulers=served)
    save_node(cluster.ports, cluster.node(SPARE), cluster=Cluster(EXAMPLE, "training"), passed_at=None)
    return cluster, gate


def fault_of_example() -> HealthEvent:
    return xid(79, node_id=SPARE, instance_id=SPARE, scheduler=EXAMPLE)


def test_a_scheduler_with_a_gate_and_nothing_else_has_its_nodes_drained_and_handed_over() -> None:
    cluster, gate = with_an_example()

    cluster.reports(fault_of_example())

    history = cluster.ports.incidents.history(cluster.incident_id)
    assert gate.closed == {SPARE: "nodeheal"}
    ended = history.turns[-1].decision
    assert (ended.ending, ended.escalation) == (Ending.HANDED_TO_A_HUMAN, Escalation.MANUAL_REVIEW_REQUIRED)
    assert f"nodeheal cannot see what {EXAMPLE} runs on the node" in history.incident.summary
    assert any("its scheduler does not list them" in entry.text for entry in history.timeline)
    assert SPARE not in {node_id for _, node_id in cluster.commands}  # neither rebooted nor diagnosed

    release_node(SPARE, "ada: the job has ended, and the board is changed", cluster.ports)

    assert gate.closed == {}


def test_a_node_of_it_that_a_person_has_closed_stays_theirs() -> None:
    cluster, gate = with_an_example()
    gate.closed[SPARE] = "ada"

    cluster.reports(fault_of_example())

    assert gate.closed == {SPARE: "ada"}
    assert not cluster.node(SPARE).drained_by_us


def test_a_node_of_it_is_only_observed_where_the_policy_says_so() -> None:
    cluster, gate = with_an_example()
    cluster.policy = RecoveryPolicy(default_pool=PoolPolicy(mode=Mode.observe))

    cluster.reports(fault_of_example())

    assert gate.closed == {}
    assert cluster.ports.incidents.history(cluster.incident_id).incident.ending is Ending.OBSERVED_ONLY


def test_a_node_of_it_starts_no_job_of_nodeheals_and_is_not_diagnosed_when_it_is_new() -> None:
    cluster, _ = with_an_example()
    ports, new = cluster.ports, cluster.node(SPARE)
    rules = ACT.default_pool.model_copy(update={"new_nodes": NewNodes(diagnose=True)})
    stand_in_line(new, ports)

    policy = ACT.model_copy(update={"default_pool": rules})
    whole = {**ports.schedulers, EXAMPLE: scheduler_in(ports).as_scheduler(EXAMPLE)}

    assert diagnose_new_nodes(new.pool, ports, policy) == []
    assert diagnose_new_nodes(new.pool, replace(ports, schedulers=whole), policy) == [SPARE]  # with workloads
    assert [word for _, word in availability_of([new], ports)] == [Availability.UP]
    assert ports.launcher_in(Cluster(EXAMPLE, "training")) is None
    assert ports.launcher_in(Cluster(OTHER, "training")) is None


def test_what_comes_of_an_act_by_hand_on_a_node_of_it_is_said_before() -> None:
    cluster, _ = with_an_example()
    known = (cluster.node(SPARE), Action.REBOOT)

    _, work, *_ = describe_act(*known, "", cluster.ports, ACT)

    unknown = f"nodeheal cannot see what {EXAMPLE} runs on the node"
    assert work == ("work", f"{unknown}: it gets no new work, and the rest is left to you")
    assert why_not_now(*known, cluster.ports, ACT).startswith(f"{unknown}; it would only be isolated")
    assert why_not_now(cluster.node(SPARE), Action.ISOLATE, cluster.ports, ACT) == ""
