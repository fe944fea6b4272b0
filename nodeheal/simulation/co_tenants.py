"""Simulates others in the pool: unmanaged tasks, nodes that people drain, opt out or repair by other means, pauses, and
drills. nodeheal must not touch what is theirs.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.errors import NodehealError
from nodeheal.domain.fleet.machine import Remediator
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode, PoolPolicy
from nodeheal.ports import Ports
from nodeheal.services.operators.inject_fault import drill_line, inject_fault
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.cloud import SimScheduler
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.machines import SimMachines
from nodeheal.simulation.operators import Operators
from nodeheal.simulation.setting import Setting
from nodeheal.simulation.trace import Trace

UNMANAGED_TASK_SECONDS = 6 * 3_600.0  # duration of an unmanaged task (median)
OBSERVED_SECONDS = 3_600.0  # duration of observe mode (median)
LOOKED_AFTER_SECONDS = 6 * 3_600.0  # between two rounds of those who repair the nodes that are not nodeheal's to touch


class CoTenants:
    """All others in the pool. Where the setting has none, nothing is drawn and nothing happens."""

    def __init__(
        self,
        setting: Setting,
        agenda: Agenda,
        chance: Chance,
        trace: Trace,
        ports: Ports,
        fleet: Fleet,
        operators: Operators,
    ) -> None:
        self._setting, self._agenda, self._trace = setting, agenda, trace
        self._ports, self._fleet, self._people = ports, fleet, operators
        self._share, self._stream = setting.others, chance.of("others")
        self._unmanaged_tasks = 0
        self.theirs: set[str] = set()  # nodes that they repair themselves
        self.drained: set[str] = set()
        self.policy = setting.rules
        self.in_force: Callable[[RecoveryPolicy], None] = lambda policy: None

    def begin(self, records: list[Node], scheduler: SimScheduler, machines: SimMachines) -> None:
        """Set up the initial state, and schedule what follows."""
        share = self._share
        if not any(vars(share).values()):
            return
        for node in self._some(records, share.drained):
            scheduler.drain_by_people(node.node_id)
            self.drained.add(node.node_id)
            self._trace.tell("drained by people", node.node_id)
        opted_out = {node.node_id: "ours alone" for node in self._some(records, share.opted_out)}
        repaired = self._some(records, share.repaired) if self._setting.provider is Provider.ec2 else iter(())
        for node in repaired:
            known = machines.machines[node.instance_id]
            by = {"external_remediator": Remediator.ec2_auto_recovery, "remediator_detail": "simulated"}
            machines.machines[node.instance_id] = replace(known, **by)  # type: ignore[arg-type]
            self.theirs.add(node.node_id)
        self.theirs |= set(opted_out)
        self.policy = self.policy.model_copy(update={"opted_out": {**self.policy.opted_out, **opted_out}})
        self.in_force(self.policy)
        for _ in self._some(records, share.unmanaged_tasks):
            self._comes(scheduler)
        for rate, act in (
            (share.pauses_a_day, lambda: self._people.pause(self._stream)),
            (share.observed_a_day, self._observe),
            (share.drills_a_day, self._drill),
        ):
            self._fleet.now_and_then(self._stream, rate, act)
        self._agenda.after(LOOKED_AFTER_SECONDS, self._look_after)

    def _some(self, records: list[Node], share: float) -> Iterator[Node]:
        return (node for node in records if self._stream.random() < share)

    def _comes(self, scheduler: SimScheduler) -> None:
        """Start an unmanaged task, which ends after a while and is followed by another one."""
        self._unmanaged_tasks += 1
        node_id = self._stream.choice(list(self._fleet.nodes))
        may_stop = self._stream.random() < self._share.stoppable
        unmanaged_task = UnmanagedTask(f"guest-{self._unmanaged_tasks:06d}", "eval:1", "cron", may_stop)
        scheduler.unmanaged[unmanaged_task.task_id] = (node_id, unmanaged_task)
        self._trace.tell("guest", node_id, unmanaged_task.task_id)

        def ends() -> None:
            scheduler.unmanaged.pop(unmanaged_task.task_id, None)
            self._comes(scheduler)

        self._agenda.after(lognormal(self._stream, UNMANAGED_TASK_SECONDS, 0.7), ends)

    def _observe(self) -> None:
        """Set the pool to observe mode for a while."""
        self._trace.tell("observes", self._setting.pool)
        self.in_force(observing(self.policy))
        self._agenda.after(lognormal(self._stream, OBSERVED_SECONDS, 0.5), lambda: self.in_force(self.policy))

    def _drill(self) -> None:
        name, line = self._stream.choice(list(self._fleet.nodes)), drill_line(79, None)
        try:
            inject_fault(name, line, "ada: a drill", self._ports, self.policy)
            self._trace.tell("drill", name)
        except (ValueError, NodehealError):
            return

    def _look_after(self) -> None:
        """Repair the nodes that are excluded from nodeheal."""
        for name in sorted(self.theirs):
            known = self._fleet.nodes.get(name)
            if known is not None and (known.fault is not None or not known.is_up):
                self._fleet.repair(known)
        self._agenda.after(LOOKED_AFTER_SECONDS, self._look_after)


def observing(policy: RecoveryPolicy) -> RecoveryPolicy:
    """Return the same document with every pool in observe mode."""

    def only(pool: PoolPolicy) -> PoolPolicy:
        return pool.model_copy(update={"mode": Mode.observe, "modes": {}})

    pools = {name: only(pool) for name, pool in policy.pools.items()}
    return policy.model_copy(update={"default_pool": only(policy.default_pool), "pools": pools})
