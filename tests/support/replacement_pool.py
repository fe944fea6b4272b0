"""A pool whose nodes are machines of EC2, one of them broken."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from nodeheal.adapters.memory.world import MemoryScheduler
from nodeheal.contract.health_event import NodeBooted
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision, Reservation, StepRequest
from nodeheal.contract.vocabulary import (
    Action,
    NodeState,
    Provider,
    SchedulerKind,
    Step,
    VerbName,
)
from nodeheal.domain.fleet.machine import Launch, Machine, Termination
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.operation import Operation, node_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Budget, Mode, PoolPolicy, Replacement
from nodeheal.domain.recovery.incident import Incident, incident_id_of
from nodeheal.services.intake import wakeup
from nodeheal.services.recovery import new_machine
from tests.support.builders import (
    NOW,
    FrozenClock,
    memory_ports,
    node,
    requeueing,
    stored_node,
    xid,
)
from tests.support.step_functions import replace_node

A, B = "i-0aaaaaaaaaaaaaaaa", "i-0bbbbbbbbbbbbbbbb"


N, M = "i-0cccccccccccccccc", "i-0dddddddddddddddd"


GROUP, TEMPLATE = "trainers", "lt-0123456789abcdef0"


LIMIT = RecoveryPolicy().limits[Action.REPLACE]


class Pool:
    """Two broken EC2 nodes, isolated, each with an incident; by default in one group."""

    def __init__(
        self,
        *,
        group: str = GROUP,
        template: str = "",
        scheduler: SchedulerKind = SchedulerKind.ECS,
        provider: Provider = Provider.ec2,
        **knobs: Any,
    ) -> None:
        self.clock = FrozenClock()
        self.scheduler = MemoryScheduler()
        self.kind_of_scheduler = scheduler
        starts_jobs = scheduler is not SchedulerKind.ECS
        served = requeueing(self.scheduler, scheduler) if starts_jobs else self.scheduler.as_scheduler(scheduler)
        self.ports = replace(memory_ports(self.clock), schedulers={scheduler: served})
        self.provider = provider
        machines: Any = self.ports.hyperpod if provider is Provider.hyperpod else self.ports.machines
        self.machines = machines
        self.machines.groups.add(GROUP)
        pool = PoolPolicy(
            mode=Mode.act,
            budget=Budget(max_nodes=2, max_percent=100),
            replacement=Replacement(**{"max_nodes": 2, **knobs}),
        )
        self.policy = RecoveryPolicy(default_pool=pool)
        self.kind = Machine(A, instance_type="p5.48xlarge", group=group, launch_template=template, subnet="subnet-1")
        for name in (A, B):
            self.machines.machines[name] = replace(self.kind, machine_id=name)
            self._breaks(name)

    def _breaks(self, name: str) -> None:
        fault = xid(79, node_id=name, instance_id=name, event_id=name, provider=self.provider)
        known = {"provider": self.provider, "scheduler": self.kind_of_scheduler, "state": NodeState.ISOLATED}
        broken = node(name, open_incident=incident_id_of(fault), **known)
        self.ports.nodes.save(replace(broken, open_incident=None))
        opened = Incident(incident_id_of(fault), name, "demo", fault, NOW, "policy")
        assert self.ports.incidents.open(opened, replace(broken, version=1))
        assert self.ports.pools.claim("demo", name, 2)

    def node(self, name: str = A) -> Node:
        return stored_node(self.ports, name)

    def request(self, name: str = A, turn: int = 3, token: str = "") -> StepRequest:
        reserve = (Reservation(scope=f"node#{name}", limit=LIMIT),)
        decision = Decision(step=Step.REPLACE, reason="broken", node_id=name, reserve=reserve, deadline_seconds=900)
        asked = StepRequest(
            incident_id=self.incident(name), turn=turn, decision=decision, task_token=token or f"token-{name}-{turn}"
        )
        return asked

    def incident(self, name: str = A) -> str:
        return incident_id_of(xid(79, node_id=name, instance_id=name, event_id=name))

    def replaces(self, name: str = A, **changed: Any) -> StepRequest:
        asked = self.request(name, **changed)
        replace_node(asked, self.ports, self.policy)
        return asked

    def operation(self, name: str = A) -> Operation:
        """The replacement that is under way."""
        [found] = [o for o in self.ports.operations.open_of(node_owner(name)) if o.verb is VerbName.REPLACE]
        return found

    def answer(self, name: str = A, turn: int = 3) -> StepResult | None:
        found: StepResult | None = self.ports.workflows.resumed.get(f"token-{name}-{turn}")  # type: ignore[attr-defined]
        return found

    def spent(self, name: str = A) -> int:
        return self.ports.attempts.spent(f"node#{name}", LIMIT)[LIMIT.group]

    def group_makes(self, name: str = N) -> None:
        """The machine exists; nobody has been told."""
        self.machines.machines[name] = replace(self.kind, machine_id=name, launched_at=self.clock())

    def told_of_launch(self, name: str = N, at: datetime | None = None, failed: str = "") -> None:
        new_machine.on_group_launch(Launch(GROUP, at or self.clock(), name, failed), self.ports)

    def boots(self, name: str = N, boot_id: str = "boot-1") -> None:
        self.clock.advance(60)
        shared = xid().model_dump(include={"schema_version", "cluster", "pool", "scheduler", "agent_version"})
        own = {"node_id": name, "instance_id": name, "boot_id": boot_id, "observed_at": self.clock()}
        own |= {"scheduler": self.kind_of_scheduler}
        event = {**shared, **own, "provider": self.provider, "event_id": f"{name}-{boot_id}", "booted_at": self.clock()}
        wakeup.on_node_booted(NodeBooted(**event, address="127.0.0.1", accelerators=8), self.ports)

    @property
    def given_back(self) -> list[tuple[str, Termination]]:
        found: list[tuple[str, Termination]] = self.machines.given_back
        return found
