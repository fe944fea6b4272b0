"""Lists every scheduler that a deployment supports. A new scheduler adds its rows to this file.

Each row imports its adapter on demand: a function or a command pays only for the schedulers of the nodes that it sees.
The schedulers' events are in `scheduler_signals.py` and `rank_changes.py`, each for the one function that reads it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from nodeheal.adapters.ecs.marks import EcsMarks
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.ports.clock import Clock
from nodeheal.ports.compute import Machines
from nodeheal.ports.scheduler import Scheduler

if TYPE_CHECKING:
    from nodeheal.adapters.aws.marks import SchedulerMarks
    from nodeheal.adapters.kubernetes.access import EksClusters
    from nodeheal.ports.commands import NodeCommands

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
        from nodeheal.adapters.ecs.scheduler import ecs_with_jobs

        return ecs_with_jobs(make, make_once, task_roles)

    def slurm() -> Scheduler:
        from nodeheal.adapters.slurm.scheduler import slurm_by_ssm

        return slurm_by_ssm(make, controllers_once, hyperpod, clock)

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


def scheduler_marks(make: Make) -> "dict[SchedulerKind, SchedulerMarks]":
    """Return the marks of schedulers that keep the operator's mark in a registry of their own."""
    return {SchedulerKind.ECS: EcsMarks(make)}
