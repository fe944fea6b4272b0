"""Implements Machines in memory: existing machines, missing capacity, and the calls made."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from nodeheal.contract import names
from nodeheal.domain.errors import MachineRefused, NoCapacity, NotAccepted
from nodeheal.domain.fleet.machine import STOPPED_BY_CALL, Alternative, Launch, Machine, Power, Termination


@dataclass
class MemoryMachines:
    """Implements Machines. `full` lists places without capacity; `launched_by` takes what groups launch by
    themselves.
    """

    machines: dict[str, Machine] = field(default_factory=dict)
    ordered: list[tuple[str, Power]] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    given_back: list[tuple[str, Termination]] = field(default_factory=list)
    full: set[Alternative] = field(default_factory=set)
    is_full: bool = False  # everywhere
    templates_gone: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    launched_by: list[Launch] = field(default_factory=list)

    def describe(self, machine_id: str) -> Machine | None:
        return self.machines.get(machine_id)

    def power(self, machine_id: str, order: Power) -> None:
        known = self.machines.get(machine_id)
        if known is None:
            raise MachineRefused(f"EC2 knows no instance {machine_id}")
        if order is Power.START and known.state == "stopping":
            raise NotAccepted(f"{machine_id} is still stopping")
        if order is Power.START and (self.is_full or Alternative(known.subnet, known.instance_type) in self.full):
            raise NoCapacity(f"no capacity for {known.instance_type} in {known.subnet}")
        self.ordered.append((machine_id, order))
        if order is not Power.REBOOT:
            state = {Power.STOP: "stopped", Power.START: "running"}[order]
            reason = STOPPED_BY_CALL if order is Power.STOP else ""
            self.machines[machine_id] = replace(known, state=state, state_code=reason, state_reason=reason)

    @property
    def rebooted(self) -> list[str]:
        """The machines that were rebooted, in order."""
        return [machine_id for machine_id, order in self.ordered if order is Power.REBOOT]

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
        kept = {key: value for key, value in like.tags.items() if not key.startswith("aws:") and key != names.RACK_TAG}
        tags = {**kept, names.MANAGED_TAG: names.MANAGED_TAG_VALUE, names.LAUNCH_TAG: token}
        self.machines[machine_id] = replace(
            like, machine_id=machine_id, subnet=free[0].subnet, instance_type=free[0].instance_type, tags=tags
        )
        self.tokens[token] = machine_id
        return machine_id

    def terminate_instance(self, machine: Machine, how: Termination) -> None:
        if machine.group and machine.group not in self.groups:
            raise MachineRefused(f"Auto Scaling group {machine.group} does not exist")
        if machine.machine_id not in self.machines:
            raise MachineRefused(f"EC2 knows no instance {machine.machine_id}")
        self.given_back.append((machine.machine_id, how))
        del self.machines[machine.machine_id]

    def launches(self, group: str, since: datetime) -> Sequence[Launch]:
        if group not in self.groups:
            raise MachineRefused(f"Auto Scaling group {group} does not exist")
        launches = [launch for launch in self.launched_by if launch.group == group and launch.at >= since]
        return sorted(launches, key=lambda launch: launch.at)
