"""Lists every scheduler that a deployment supports. A new scheduler adds its rows to this file.

Each row imports its adapter on demand: a function or a command pays only for the schedulers of the nodes that it sees.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from nodeheal.adapters.ecs.marks import EcsMarks
from nodeheal.contract import names
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.ports.clock import Clock
from nodeheal.ports.compute import Machines
from nodeheal.ports.scheduler import Scheduler, TaskChange

if TYPE_CHECKING:
    from nodeheal.adapters.aws.account import Look, Registration
    from nodeheal.adapters.aws.marks import SchedulerMarks
    from nodeheal.adapters.aws.translate.foreign import ForeignEvent
    from nodeheal.adapters.kubernetes.access import EksClusters
    from nodeheal.adapters.slurm.controller import SlurmController
    from nodeheal.ports.commands import NodeCommands
    from nodeheal.ports.signals import Draft

Make = Callable[[str], Any]  # a client of a service, by name


class Schedulers(Mapping[SchedulerKind, Scheduler]):
    """What each scheduler can do, put together when it is first asked for.

    `node_commands`: how commands reach the nodes of each scheduler that does not leave that to SSM.
    """

    def __init__(
        self,
        makers: Mapping[SchedulerKind, Callable[[], Scheduler]],
        node_commands: "Mapping[SchedulerKind, Callable[[], NodeCommands]]",
    ) -> None:
        self._makers, self._made = makers, dict[SchedulerKind, Scheduler]()
        self.node_commands = node_commands

    def __getitem__(self, kind: SchedulerKind) -> Scheduler:
        if kind not in self._made:
            self._made[kind] = self._makers[kind]()
        return self._made[kind]

    def __iter__(self) -> Iterator[SchedulerKind]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def schedulers(
    make: Make,
    make_once: Make,
    controllers_once: Make,
    clock: Clock,
    hyperpod: Machines,
    task_roles: Sequence[str] = (),
) -> Schedulers:
    """Return what each scheduler can do; clients are created when a port is first used. `controllers_once`: of the role
    that asks controllers. `task_roles`: those that a registered task definition may name.
    """

    def ecs() -> Scheduler:
        from nodeheal.adapters.aws.calls import client_in, own_role_arn
        from nodeheal.adapters.ecs.job_logs import EcsJobLogs
        from nodeheal.adapters.ecs.scheduler import ecs_scheduler
        from nodeheal.adapters.ecs.task_definitions import EcsTaskDefinitions

        find_role = partial(own_role_arn, names.JOB_EXECUTION_ROLE)
        definitions = EcsTaskDefinitions(lambda: make("ecs"), find_role, task_roles)
        job_logs = EcsJobLogs(definitions, lambda region: client_in("logs", region) if region else make("logs"))
        return ecs_scheduler(lambda: make("ecs"), lambda: make_once("ecs"), definitions, job_logs)

    def slurm() -> Scheduler:
        from nodeheal.adapters.slurm.scheduler import slurm_scheduler

        return slurm_scheduler(_slurm_controller(make, controllers_once, clock, hyperpod))

    @cache
    def clusters() -> "EksClusters":
        from nodeheal.adapters.kubernetes.access import EksClusters

        return EksClusters(controllers_once)

    def kubernetes() -> Scheduler:
        from nodeheal.adapters.kubernetes.scheduler import kubernetes_scheduler

        return kubernetes_scheduler(clusters(), lambda: make("ec2"), clock)

    def jobs_on_nodes() -> "NodeCommands":
        from nodeheal.adapters.kubernetes.node_commands import KubernetesNodeCommands

        return KubernetesNodeCommands(clusters(), clock)

    return Schedulers(
        {SchedulerKind.ECS: ecs, SchedulerKind.SLURM: slurm, SchedulerKind.KUBERNETES: kubernetes},
        {SchedulerKind.KUBERNETES: jobs_on_nodes},
    )


def _slurm_controller(make: Make, controllers_once: Make, clock: Clock, hyperpod: Machines) -> "SlurmController":
    from nodeheal.adapters.slurm.controller import SlurmController

    return SlurmController(lambda: make("ssm"), lambda: controllers_once("ssm"), lambda: make("ec2"), hyperpod, clock)


def scheduler_marks(make: Make) -> "dict[SchedulerKind, SchedulerMarks]":
    """Return the marks of schedulers that keep the operator's mark in a registry of their own."""
    return {SchedulerKind.ECS: EcsMarks(make)}


def registrations() -> "Mapping[SchedulerKind, Registration]":
    """Return the check of `nodeheal doctor` for each scheduler whose nodes are in a registry."""
    from nodeheal.adapters.ecs.account_look import unregistered

    return {SchedulerKind.ECS: unregistered}


def looks(make: Make, make_once: Make, controllers_once: Make, clock: Clock) -> "Sequence[Look]":
    """Return the checks of `nodeheal doctor` for each scheduler, in addition to those of the account."""
    from nodeheal.adapters.aws.calls import own_role_arn
    from nodeheal.adapters.aws.hyperpod import HyperPodMachines
    from nodeheal.adapters.kubernetes.account_look import kubernetes_look
    from nodeheal.adapters.slurm.account_look import slurm_look

    hyperpod = HyperPodMachines(make, make_once, ())  # it asks by an address that a node has reported
    return (
        slurm_look(lambda: _slurm_controller(make, controllers_once, clock, hyperpod)),
        kubernetes_look(lambda: own_role_arn(names.CONTROLLER_ROLE)),
    )


def signals() -> "dict[str, tuple[type[ForeignEvent], Callable[[Any], list[Draft]]]]":
    """Return the schedulers' events about nodes: each type with its model, and the function that creates drafts."""
    from nodeheal.adapters.ecs.health_event import EcsHealthEvent, from_ecs_health
    from nodeheal.adapters.ecs.instance_event import EcsInstanceEvent, from_ecs_instance
    from nodeheal.adapters.ecs.lost_task_event import EcsTaskLostEvent, from_ecs_task_lost

    return {
        names.ECS_INSTANCE_HEALTH_CHANGE: (EcsHealthEvent, from_ecs_health),
        names.ECS_INSTANCE_STATE_CHANGE: (EcsInstanceEvent, from_ecs_instance),
        names.ECS_TASK_STATE_CHANGE: (EcsTaskLostEvent, from_ecs_task_lost),
    }


def rank_changes() -> Mapping[str, Callable[[Any], TaskChange | None]]:
    """Return the schedulers' events about ranks: each type, and the function that parses its detail.

    It returns None where the task is not a rank, and raises ValidationError.
    """
    from nodeheal.adapters.ecs.rank_change import task_change
    from nodeheal.adapters.ecs.task import EcsTaskDetail

    return {names.ECS_TASK_STATE_CHANGE: lambda detail: task_change(EcsTaskDetail.model_validate(detail))}
