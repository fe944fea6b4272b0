"""Machines in memory: what exists, what there is no capacity for, and what was asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from nodeheal.contract import names
from nodeheal.domain.errors import MachineRefused, NoCapacity
from nodeheal.domain.machine import Alternative, GiveBack, Launch, Machine
from nodeheal.domain.node import Node


@dataclass
class MemoryMachines:
    """Machines. `full` holds what has no capacity now; what groups launch by themselves is put into `launched_by`."""

    machines: dict[str, Machine] = field(default_factory=dict)
    rebooted: list[str] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    given_back: list[tuple[str, GiveBack]] = field(default_factory=list)
    full: set[Alternative] = field(default_factory=set)
    is_full: bool = False  # everywhere
    templates_gone: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    launched_by: list[Launch] = field(default_factory=list)

    def describe(self, machine_id: str) -> Machine | None:
        return self.machines.get(machine_id)

    def reboot(self, node: Node) -> None:
        if node.instance_id not in self.machines:
            raise MachineRefused(f"EC2 knows no instance {node.instance_id}")
        self.rebooted.append(node.instance_id)

    def launch(self, like: Machine, token: str, alternatives: Sequence[Alternative]) -> str:
        if token in self.tokens:
            return self.tokens[token]
        if like.launch_template in self.templates_gone:
            raise MachineRefused(f"launch template {like.launch_template} does not exist")
        free = [place for place in alternatives if place not in self.full and not self.is_full]
        if not free:
            tried = ", ".join(f"{place.instance_type} in {place.subnet}" for place in alternatives)
            raise NoCapacity(f"no capacity for {tried}", is_reservation=bool(like.reservation))
        machine_id = f"i-{len(self.machines) + 1:017x}"
        kept = {key: value for key, value in like.tags.items() if not key.startswith("aws:")}
        tags = {**kept, names.MANAGED_TAG: names.MANAGED_TAG_VALUE, names.LAUNCH_TAG: token}
        self.machines[machine_id] = replace(
            like, machine_id=machine_id, subnet=free[0].subnet, instance_type=free[0].instance_type, tags=tags
        )
        self.tokens[token] = machine_id
        return machine_id

    def give_back(self, machine: Machine, how: GiveBack) -> None:
        if machine.group and machine.group not in self.groups:
            raise MachineRefused(f"Auto Scaling group {machine.group} does not exist")
        if machine.machine_id not in self.machines:
            raise MachineRefused(f"EC2 knows no instance {machine.machine_id}")
        self.given_back.append((machine.machine_id, how))
        del self.machines[machine.machine_id]

    def launches(self, group: str, since: datetime) -> Sequence[Launch]:
        if group not in self.groups:
            raise MachineRefused(f"Auto Scaling group {group} does not exist")
        found = [launch for launch in self.launched_by if launch.group == group and launch.at >= since]
        return sorted(found, key=lambda launch: launch.at)
