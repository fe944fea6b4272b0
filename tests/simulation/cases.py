"""For each invariant a guard to be taken away, and what must happen then for it to be broken."""

from collections.abc import Callable
from dataclasses import replace

from nodeheal.adapters.kubernetes import notes, workloads
from nodeheal.adapters.memory.stores import MemoryJobNotes, MemoryPoolStore
from nodeheal.contract.vocabulary import Action, Provider
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Breaker, Budget, Mode, Override, PoolPolicy
from nodeheal.operations import engine, isolate
from nodeheal.operations import replace as replace_node
from nodeheal.services.intake.ingest import Ingested
from nodeheal.services.jobs import job_nodes
from nodeheal.services.recovery import return_to_service, unmanaged_tasks
from nodeheal.simulation.cloud import SimWorkflows
from nodeheal.simulation.faults import Kind, SimulatedFault
from nodeheal.simulation.kubernetes import KubernetesCluster
from nodeheal.simulation.setting import CALM, KubernetesWork, OperatorTimes, Setting, SlurmJobs, Work, on_cluster
from nodeheal.simulation.slurm import SlurmCluster
from nodeheal.simulation.stores import SimIncidents
from nodeheal.simulation.world import SimulatedPool
from tests.simulation.builders import HOUR, NVLINK, OFF_THE_BUS, SOFTWARE_BUG
from tests.simulation.taken_away import (
    Break,
    all_is_closed,
    claims_for_anybody,
    cut,
    every_attempt_is_granted,
    no_boot_is_told_from_another,
    requeued_wherever_it_is,
    set_to,
    twice,
)

Jobs = Work | SlurmJobs | KubernetesWork
ACT = RecoveryPolicy(
    default_pool=PoolPolicy(mode=Mode.act, budget=Budget(max_nodes=2, max_percent=100)),
    breaker=Breaker(min_nodes=99, max_nodes=99),
)


def calm(
    policy: RecoveryPolicy = ACT,
    work: Jobs | None = None,
    nodes: int = 6,
    provider: Provider = Provider.hybrid,
) -> SimulatedPool:
    """A pool in which nothing fails by itself."""
    setting = Setting(
        nodes=nodes,
        provider=provider,
        days=1,
        cloud=CALM,
        faults_a_node_day=0,
        work=work if isinstance(work, Work) else Work(share=0),
        policy=policy,
        operators=OperatorTimes(page_seconds=1e9, round_seconds=1e9, answer_seconds=1_200, spread=0.01),
    )
    return SimulatedPool(setting if work is None or isinstance(work, Work) else on_cluster(setting, work))


def strike(world: SimulatedPool, at: float, number: int = 0, kind: Kind = OFF_THE_BUS, cure: str = "reboot") -> None:
    """This node gets this fault then."""

    def now() -> None:
        node = list(world.fleet.nodes.values())[number]
        world.fleet.strike(node, kind)
        node.fault = SimulatedFault(kind, cure)

    world.agenda.at(at, now)


def one_fault(world: SimulatedPool) -> None:
    strike(world, 60)


def two_faults_at_once(world: SimulatedPool) -> None:
    strike(world, 60)
    strike(world, 62, kind=NVLINK)


def three_nodes_at_once(world: SimulatedPool) -> None:
    for number in range(3):
        strike(world, 60 + number, number, cure="hardware")


def the_same_again(world: SimulatedPool) -> None:
    strike(world, 60)
    strike(world, 3 * HOUR)


def a_report_of_an_old_boot(world: SimulatedPool) -> None:
    node = next(iter(world.fleet.nodes.values()))
    event = world.fleet._event(node, OFF_THE_BUS, 30.0)
    stale = event.model_copy(update={"boot_id": "an-old-boot", "observed_at": world.fleet._moment(-7_200.0)})
    world.agenda.at(60, lambda: world._report(stale))


def it_reboots_by_itself_while_a_human_is_asked(world: SimulatedPool) -> None:
    strike(world, 60)
    world.agenda.at(120, lambda: world.fleet.reboot(next(iter(world.fleet.nodes.values()))))


def a_gang_loses_a_node(world: SimulatedPool, kind: Kind = NVLINK, cure: str = "hardware") -> None:
    def now() -> None:
        busy = next(node for node in world.fleet.nodes.values() if world.work._on_node.get(node.node_id))
        world.fleet.strike(busy, kind)
        busy.fault = SimulatedFault(kind, cure)

    world.agenda.at(2 * HOUR, now)


def a_gang_loses_a_node_while_another_bears_no_name(world: SimulatedPool) -> None:
    """A human has given the other one back while the gang was down, and so its job's name is gone."""

    def now() -> None:
        other, broken, *_ = (node for node in world.fleet.nodes.values() if world.work._on_node.get(node.node_id))
        assert world.nodes.save(replace(world.nodes.nodes[other.node_id], job_id=None))
        world.fleet.strike(broken, NVLINK)
        broken.fault = SimulatedFault(NVLINK, "hardware")

    world.agenda.at(2 * HOUR, now)


def _first(world: SimulatedPool) -> str:
    return next(iter(world.fleet.nodes))


def a_node_that_people_have_drained_fails(world: SimulatedPool) -> None:
    world.scheduler.drain_by_people(_first(world))
    world.co_tenants.drained.add(_first(world))
    strike(world, 60)


def a_node_with_a_task_of_others_fails(world: SimulatedPool) -> None:
    unmanaged_task = UnmanagedTask("task-of-others", "eval:1", may_be_stopped=True)
    world.scheduler.unmanaged[unmanaged_task.task_id] = (_first(world), unmanaged_task)
    strike(world, 60)


def submit(world: SimulatedPool, *sizes: int, may_requeue: bool = True) -> None:
    """Jobs of the cluster, of so many nodes each."""
    assert world.parts.cluster is not None
    for size in sizes:
        world.parts.cluster.submit(size, 5 * HOUR, may_requeue=may_requeue)


def a_job_on_all_nodes_loses_one(world: SimulatedPool) -> None:
    submit(world, 6)
    strike(world, 600)


def a_gang_on_half_of_the_nodes_loses_two(world: SimulatedPool) -> None:
    """One after the other, and both for good: it has room on the others."""
    submit(world, 3)

    def breaks() -> None:
        assert world.parts.cluster is not None
        [gang] = world.parts.cluster.jobs.values()
        node = world.fleet.nodes[gang.nodes[0]]
        world.fleet.strike(node, NVLINK)
        node.fault = SimulatedFault(NVLINK, "hardware")

    world.agenda.at(600, breaks)
    world.agenda.at(2 * HOUR, breaks)


def a_node_breaks_while_jobs_run_on_all_others(world: SimulatedPool) -> None:
    submit(world, *[1] * 6)
    strike(world, 600, cure="hardware")


RESET_FIRST = Override(fault="xid/79", ladder=(Action.RESET_GPU, Action.REBOOT, Action.REPLACE), why="a case")
RESETS = ACT.model_copy(
    update={"default_pool": ACT.default_pool.model_copy(update={"reset_gpu": True}), "overrides": (RESET_FIRST,)}
)
OPTED_OUT = ACT.model_copy(update={"opted_out": {"mi-2b3ec911000000000": "it is mine"}})
APPROVE = ACT.model_copy(update={"default_pool": PoolPolicy(mode=Mode.approve, budget=Budget(max_nodes=2))})
TRAINS = Work(share=0.7, gang_nodes=4, days=5)
SLURM = SlurmJobs(share=0.0)  # the jobs are those that a case submits
KUBERNETES = KubernetesWork(share=0.0, most_restarts=(1,), services=0, bare=0.0)


_SERVICES = "nodeheal.services."
it_is_given_back_unwritten = set_to((f"{_SERVICES}recovery.return_to_service._save_proven", lambda *_: None))
CASES: dict[str, tuple[Break, Callable[[SimulatedPool], None], RecoveryPolicy, Jobs]] = {
    "one_open_incident_a_node": (
        set_to((f"{_SERVICES}intake.ingest._is_abandoned", lambda node, ports: True)),
        two_faults_at_once,
        ACT,
        Work(share=0),
    ),
    "one_destructive_action_a_node": (
        set_to(("nodeheal.operations.reboot._send", twice)),
        one_fault,
        ACT,
        Work(share=0),
    ),
    "budget_is_never_exceeded": (
        lambda patch: patch.setattr(MemoryPoolStore, "claim", claims_for_anybody),
        three_nodes_at_once,
        ACT,
        Work(share=0),
    ),
    "no_attempt_beyond_its_limit": (every_attempt_is_granted, the_same_again, ACT, Work(share=0)),
    "nothing_is_disrupted_without_a_reservation": (every_attempt_is_granted, one_fault, ACT, Work(share=0)),
    "only_nodes_in_service_take_work": (it_is_given_back_unwritten, one_fault, ACT, Work(share=0)),
    "a_slot_is_kept_until_its_node_is_back": (it_is_given_back_unwritten, one_fault, ACT, Work(share=0)),
    "nodes_in_service_take_work": (
        set_to((f"{_SERVICES}recovery.return_to_service._let_work", lambda *_: "")),
        one_fault,
        ACT,
        Work(share=0),
    ),
    "no_job_is_forgotten": (
        set_to(*((f"{_SERVICES}intake.wakeup.{name}", lambda *_: None) for name in ("_settle_job", "reconcile_all"))),
        lambda world: a_gang_loses_a_node(world, SOFTWARE_BUG, "itself"),
        ACT,
        TRAINS,
    ),
    "hands_off_where_told": (
        lambda patch: patch.setattr(RecoveryPolicy, "why_only_observe", lambda *_: ""),
        one_fault,
        OPTED_OUT,
        Work(share=0),
    ),
    "nothing_is_done_without_a_yes": (
        set_to(("nodeheal.domain.recovery.guardrails._ask", lambda *_: None)),
        one_fault,
        APPROVE,
        Work(share=0),
    ),
    "what_people_drained_stays_drained": (
        cut(isolate._record_isolated, "known.drained_by_us or placement.is_schedulable", "True"),
        a_node_that_people_have_drained_fails,
        ACT,
        Work(share=0),
    ),
    "tasks_of_others_are_left_alone": (
        cut(unmanaged_tasks.stop_unmanaged_tasks, "may_stop_workloads(scheduler, policy.pool(node.pool))", "True"),
        a_node_with_a_task_of_others_fails,
        ACT,
        Work(share=0),
    ),
    "stopped_tasks_come_back": (
        set_to((f"{_SERVICES}recovery.end_incident.restart_unmanaged_tasks", lambda *_: "")),
        a_node_with_a_task_of_others_fails,
        ACT.model_copy(update={"default_pool": ACT.default_pool.model_copy(update={"stops_other_tasks": True})}),
        Work(share=0),
    ),
    "no_gpu_is_reset_beside_tasks_of_others": (
        set_to(("nodeheal.operations.reset_gpu._why_not_reset", lambda *_: "")),
        a_node_with_a_task_of_others_fails,
        RESETS,
        Work(share=0),
    ),
    "a_job_is_requeued_once": (
        lambda patch: patch.setattr(SlurmCluster, "requeue", requeued_wherever_it_is),
        a_job_on_all_nodes_loses_one,
        ACT,
        SLURM,
    ),
    "requeued_jobs_run_again": (
        cut(return_to_service._let_work, "node.drained_by_us"),
        a_job_on_all_nodes_loses_one,
        ACT,
        SLURM,
    ),
    "no_diagnosis_beside_a_job": (
        cut(replace_node._start, "not may_keep_idle(ports.scheduler_of(node))"),
        a_node_breaks_while_jobs_run_on_all_others,
        ACT,
        SLURM,
    ),
    "no_gang_is_torn": (
        cut(workloads._restart, "_pods_left(api, kind, what)", "0"),
        a_job_on_all_nodes_loses_one,
        ACT,
        KUBERNETES,
    ),
    "no_gang_is_restarted_above_its_count": (
        cut(notes.may_restart, "restarts_of(owner) < _count(notes[MAX_RETRIES])", "True"),
        a_gang_on_half_of_the_nodes_loses_two,
        ACT,
        KUBERNETES,
    ),
    "no_service_falls_below_its_floor": (
        cut(KubernetesCluster.evict, "pod.service.ready - pod.is_ready < pod.service.floor"),
        one_fault,
        ACT,
        replace(KUBERNETES, services=1, floors=(3,)),
    ),
    "nothing_stale_opens_an_incident": (no_boot_is_told_from_another, a_report_of_an_old_boot, ACT, Work(share=0)),
    "no_act_on_stale_news": (
        set_to(("nodeheal.domain.recovery.guardrails.stale", lambda *_: None)),
        it_reboots_by_itself_while_a_human_is_asked,
        APPROVE,
        Work(share=0),
    ),
    "incidents_end_or_page_in_time": (
        lambda patch: patch.setattr(SimWorkflows, "start", lambda *_: None),
        one_fault,
        ACT,
        Work(share=0),
    ),
    "nothing_is_left_behind": (
        cut(engine.deliver, "operation.version"),
        one_fault,
        ACT,
        Work(share=0),
    ),
    "nothing_is_left_of_a_job": (
        lambda patch: patch.setattr(MemoryJobNotes, "release_directory", lambda *_: None),
        lambda _: None,
        ACT,
        Work(share=0.7, gang_nodes=4, days=0.05),
    ),
    "isolated_nodes_are_somebodys": (
        lambda patch: patch.setattr(SimIncidents, "finish", all_is_closed),
        lambda world: strike(world, 60, kind=NVLINK, cure="hardware"),
        ACT,
        Work(share=0),
    ),
    "every_fault_is_accounted_for": (
        set_to((f"{_SERVICES}intake.ingest._join", lambda *_: Ingested.JOINED)),
        two_faults_at_once,
        ACT,
        Work(share=0),
    ),
    "one_rank_a_node": (
        cut(job_nodes._able, "node.node_id not in gang", "True"),
        a_gang_loses_a_node_while_another_bears_no_name,
        ACT,
        TRAINS,
    ),
    "two_runs_never_write_at_once": (
        set_to(
            (f"{_SERVICES}jobs.runs.may_write", lambda *_: False),
            ("nodeheal.simulation.ranks.HANG_SECONDS", 2 * HOUR),  # the other ranks do not give up by themselves before
        ),
        a_gang_loses_a_node,
        ACT,
        TRAINS,
    ),
}
