"""Defines what is simulated: the size of a pool, the duration, the policy, and the rates of failures."""

from dataclasses import dataclass, field, replace

from nodeheal.contract.vocabulary import Provider, SchedulerKind
from nodeheal.domain.fleet.machine import ClusterReplacement
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Budget, Mode, PoolPolicy
from nodeheal.simulation.injected_failures import InjectedFailure
from nodeheal.simulation.latency import NONE, Latency
from nodeheal.simulation.outages import Outage
from nodeheal.simulation.restores import Restore

DAY = 86_400.0
# Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters" (arXiv 2410.21680): 6.50
# node failures in 1,000 node-days on RSC-1, 16,000 A100.
FAULTS_A_NODE_DAY = 6.5 / 1_000


def acting(nodes: int) -> RecoveryPolicy:
    """Return the policy as shipped, in act mode, with a budget that fits the pool: one node in twenty."""
    budget = Budget(max_nodes=max(1, nodes // 20))
    return RecoveryPolicy(default_pool=PoolPolicy(mode=Mode.act, budget=budget))


@dataclass(frozen=True)
class Cloud:
    """Failures of the cloud, as shares of deliveries and of calls, with published figures where they exist.

    EventBridge and SQS deliver at least once; EventBridge retries for as long as a rule says, then gives up; standard
    queues keep no order. How often is not published: these are pessimistic guesses.
    """

    duplicated: float = 0.01  # deliveries that come twice
    late: float = 0.000_5  # that come up to late_seconds later
    late_seconds: float = DAY
    lost: float = 0.000_1  # that end in a dead-letter queue, despite all retries
    dies: float = 0.000_02  # calls of a port at which the function dies: before it, or after it
    breaks: float = 0.000_01  # calls of a port that fail although they were carried out
    interleaves: float = 0.001  # calls of a port during which another function runs
    # Writes that the table's index shows up to index_seconds later. AWS says "within a fraction of a second" as a rule.
    index_late: float = 0.01
    index_seconds: float = 10.0


HARSH = Cloud(
    duplicated=0.1,
    late=0.02,
    late_seconds=7_200,
    lost=0.01,
    dies=0.003,
    breaks=0.002,
    interleaves=0.03,
    index_late=0.3,
    index_seconds=120,
)
CALM = Cloud(duplicated=0, late=0, lost=0, dies=0, breaks=0, interleaves=0, index_late=0)


@dataclass(frozen=True)
class Quotas:
    """Calls a second, and the burst, for an account.

    Published: those of ECS (instances and tasks: 40 and 100 for changes, 20 and 100 for reads, 10 and 20 for tags),
    Step Functions (300 and 1,300) and Lambda (1,000 at once). Not published, and assumed: SSM's, and EC2's for calls
    that change.
    """

    ecs_writes: tuple[float, float] = (40, 100)
    ecs_reads: tuple[float, float] = (20, 100)
    ecs_tags: tuple[float, float] = (10, 20)
    send_command: tuple[float, float] = (25, 100)
    ec2_writes: tuple[float, float] = (5, 50)
    start_execution: tuple[float, float] = (300, 1_300)
    kubernetes: tuple[float, float] = (50, 100)  # assumed: the API server's fair share of one client
    functions: tuple[float, float] = (2_500, 1_000)  # 1,000 at once, each for 0.4 s


@dataclass(frozen=True)
class Work:
    """The training jobs on the pool. No nodes: none."""

    share: float = 0.8  # of the pool's nodes that have a job at the beginning
    gang_nodes: int = 8
    days: float = 14.0  # duration of a job without failures (median)
    checkpoint_seconds: float = 1_800.0
    write_seconds: float = 0.0  # for which training stops while a checkpoint is written


@dataclass(frozen=True)
class ClusterWork:
    """The jobs on a pool whose cluster starts all of them itself."""

    share: float = 0.8  # requested share of the pool's nodes; above 1: jobs wait
    most_nodes: int = 4  # of one job; at least one
    days: float = 0.25  # duration of an uninterrupted job (median)
    requeueable: float = 0.6  # share of the jobs whose owners consent to a restart


@dataclass(frozen=True)
class SlurmJobs(ClusterWork):
    """The jobs on a pool of Slurm nodes."""

    unanswered: float = 0.0  # share of commands to the controller that are carried out, and answered too late
    replaces: bool = False  # its cluster replaces machines on EC2 by itself where nodeheal requests that


@dataclass(frozen=True)
class KubernetesWork(ClusterWork):
    """The jobs and services on a pool of Kubernetes nodes, and who else acts there."""

    most_restarts: tuple[int | None, ...] = (None, 1, 2, 3)  # of a job, by its owner's word: one of these; None: any
    services: int = 2  # each with a pod on three nodes
    floors: tuple[int, ...] = (1, 2, 2, 3)  # pods that its disruption budget wants to be ready: one of these
    bare: float = 0.1  # share of the nodes with a pod that no controller makes again
    refused: float = 0.0  # share of calls that the API server refuses, or whose answer is lost
    cordons_a_day: float = 0.0  # times that a person cordons a node, or uncordons one that is cordoned
    owners_act_a_day: float = 0.0  # times that an owner suspends a job for a while, or withdraws the consent


@dataclass(frozen=True)
class OperatorTimes:
    """How long people take. Medians in seconds; the spread is that of a lognormal's logarithm."""

    answer_seconds: float = 600.0  # an approval
    page_seconds: float = 1_800.0  # to read a page and handle it
    repair_seconds: float = 2 * DAY  # to have broken hardware repaired
    round_seconds: float = DAY  # between two rounds
    spread: float = 0.7


@dataclass(frozen=True)
class Others:
    """Who else is in the pool. Shares of its nodes, and rates a day. No figures are published: guesses."""

    unmanaged_tasks: float = 0.05  # unmanaged tasks, one on this share of the nodes
    stoppable: float = 0.5  # of those, whose owners permit nodeheal to stop them
    drained: float = 0.01  # nodes that a human has drained
    opted_out: float = 0.01
    repaired: float = 0.01  # machines on EC2 that another service repairs as well
    pauses_a_day: float = 0.02  # of the pool or of a node, in addition to the rounds of people
    observed_a_day: float = 0.02  # times that the pool is in observe mode for a while
    drills_a_day: float = 0.02  # where the policy permits them


NOBODY = Others(0, 0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class Setting:
    """The simulation of one pool. The same setting gives the same run."""

    nodes: int = 100
    days: float = 30.0
    seed: int = 1
    pool: str = "pool-00"
    provider: Provider = Provider.hybrid
    faults_a_node_day: float = FAULTS_A_NODE_DAY
    cloud: Cloud = field(default_factory=Cloud)
    quotas: Quotas = field(default_factory=Quotas)
    latency: Latency = NONE
    work: Work = field(default_factory=Work)
    cluster: SlurmJobs | KubernetesWork | None = None  # the jobs that it starts itself; none: the nodes are of ECS
    operators: OperatorTimes = field(default_factory=OperatorTimes)
    others: Others = NOBODY
    policy: RecoveryPolicy | None = None  # none: `acting`
    mass_failure: int = 0  # this many nodes fail within one second, after an hour
    racks_of: int = 16
    racks_a_switch: int = 2
    panics: float = 0.0  # share of reported faults after which the node soon reboots by itself
    switches_fail_a_day: float = 0.0  # switches above the racks, in the whole pool (switches.py)
    outages: tuple[Outage, ...] = ()  # of whole services (outages.py)
    restores: tuple[Restore, ...] = ()  # of the table, to what it was before (restores.py)
    # After the last fault: until running work has ended. Only waits for a job's end or a human take longer.
    cool_down_days: float = 2.0
    injected_failures: tuple[
        InjectedFailure, ...
    ] = ()  # failures at single calls of this very run, beside random ones (injected_failures.py)
    is_strict: bool = True  # false: unread outputs of state machines are not evaluated; only for speed

    @property
    def rules(self) -> RecoveryPolicy:
        """Return the active policy."""
        return self.policy or acting(self.nodes)

    @property
    def scheduler(self) -> SchedulerKind:
        """Return the scheduler of all its nodes."""
        if self.cluster is None:
            return SchedulerKind.ECS
        return SchedulerKind.SLURM if isinstance(self.cluster, SlurmJobs) else SchedulerKind.KUBERNETES


def on_cluster(setting: Setting, jobs: SlurmJobs | KubernetesWork) -> Setting:
    """Return the same pool as nodes of a Slurm or Kubernetes cluster, with its jobs."""
    others, policy = replace(setting.others, unmanaged_tasks=0.0), setting.policy
    if isinstance(jobs, SlurmJobs) and jobs.replaces and setting.provider is Provider.ec2:
        known = setting.rules.default_pool
        asked = known.replacement.model_copy(update={"by_cluster": ClusterReplacement.power_down})
        pool = known.model_copy(update={"replacement": asked})
        policy = setting.rules.model_copy(update={"default_pool": pool})
    return replace(setting, cluster=jobs, work=replace(setting.work, share=0.0), others=others, policy=policy)
