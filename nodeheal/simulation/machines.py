"""Simulates EC2: machines that reboot, stop, start and are replaced, and times without capacity."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nodeheal.adapters.memory.machines import MemoryMachines
from nodeheal.contract import names
from nodeheal.domain.errors import MachineRefused, NoCapacity
from nodeheal.domain.fleet.machine import Alternative, Machine, Power, Termination
from nodeheal.domain.fleet.node import Node
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.cloud import Acts, Throttles
from nodeheal.simulation.fleet import Fleet

LAUNCH_SECONDS, STOP_SECONDS, REBOOT_SECONDS = 600.0, 120.0, 5.0  # medians
SHORT_OF_CAPACITY = 0.15  # share of the hours in which a Region has no capacity of the kind


class SimMachines(MemoryMachines):
    """Implements Machines, each of them a node of the fleet."""

    def __init__(self, throttles: Throttles, fleet: Fleet, agenda: Agenda, chance: Chance) -> None:
        super().__init__()
        self._throttles, self._fleet, self._agenda = throttles, fleet, agenda
        self._stream = chance.of("machines")
        self._short: dict[int, bool] = {}
        self._launched = 0
        self.on_act: Acts = lambda verb, node_id, why: None
        self.on_stopped: Callable[[str], None] = lambda machine_id: None
        self.on_gone: Callable[[str], None] = lambda machine_id: None

    def put(self, nodes: Sequence[Node]) -> None:
        """Create the machines of these nodes."""
        tags = {names.MANAGED_TAG: names.MANAGED_TAG_VALUE}
        for node in nodes:
            self.machines[node.instance_id] = Machine(
                node.instance_id,
                instance_type="p5.48xlarge",
                launch_template="lt-0simulated",
                launch_template_version="1",
                subnet="subnet-a",
                tags=tags,
            )

    def power(self, machine_id: str, order: Power) -> None:
        self._throttles.take("ec2_writes", f"{order.title()}Instances")
        if order is Power.START and self._is_short():
            raise NoCapacity("no capacity for p5.48xlarge in subnet-a")
        super().power(machine_id, order)
        node = self._fleet.nodes[machine_id]
        match order:
            case Power.REBOOT:
                self.on_act("reboot", machine_id, "EC2")
                self._agenda.after(
                    lognormal(self._stream, REBOOT_SECONDS, 0.4), lambda: self._fleet.reboot(node, only_if_up=True)
                )
            case Power.STOP:
                self.on_act("stop", machine_id, "EC2")
                self.machines[machine_id] = replace(self.machines[machine_id], state="stopping")
                self._fleet.go_down(node)
                self._agenda.after(lognormal(self._stream, STOP_SECONDS, 0.4), lambda: self._has_stopped(machine_id))
            case Power.START:
                self._fleet.move_to_another_host(node)

    def launch(self, like: Machine, token: str, alternatives: Sequence[Alternative]) -> str:
        self._throttles.take("ec2_writes", "RunInstances")
        if token in self.tokens:
            return self.tokens[token]
        if self._is_short():
            raise NoCapacity("no capacity for p5.48xlarge in subnet-a", is_reservation=bool(like.reservation))
        self.on_act("launch", like.machine_id, "EC2")
        self.tokens[token] = self._make(like, {names.LAUNCH_TAG: token})
        return self.tokens[token]

    def remake(self, node: Node) -> None:
        """Replace a node's machine as its cluster does, if there is capacity."""
        self.on_act("replace", node.node_id, "its cluster")
        like = self.machines[node.instance_id]
        super().terminate_instance(like, Termination.TERMINATE)
        self._fleet.terminate(node.node_id)
        if not self._is_short():
            self._make(like, {})

    def _make(self, like: Machine, tags: Mapping[str, str]) -> str:
        """Create a new machine, which boots after a while; returns its id."""
        self._launched += 1
        machine_id = f"i-{self._launched:08x}{0xFFFFFFFFF - self._launched:09x}"
        kept = {key: value for key, value in like.tags.items() if key != names.RACK_TAG}
        at = self._agenda.clock()
        self.machines[machine_id] = replace(like, machine_id=machine_id, tags={**kept, **tags}, launched_at=at)
        self._fleet.launch(machine_id, lognormal(self._stream, LAUNCH_SECONDS, 0.3))
        return machine_id

    def terminate_instance(self, machine: Machine, how: Termination) -> None:
        self._throttles.take("ec2_writes", "TerminateInstances")
        if machine.machine_id not in self.machines:
            raise MachineRefused(f"EC2 knows no instance {machine.machine_id}")
        self.on_act("replace", machine.machine_id, "EC2")
        super().terminate_instance(machine, how)
        self._fleet.terminate(machine.machine_id)
        self._agenda.after(lognormal(self._stream, STOP_SECONDS, 0.4), lambda: self.on_gone(machine.machine_id))

    def _has_stopped(self, machine_id: str) -> None:
        known = self.machines.get(machine_id)
        if known is not None and known.state == "stopping":
            self.machines[machine_id] = replace(known, state="stopped")
            self.on_stopped(machine_id)

    def _is_short(self) -> bool:
        hour = int(self._agenda.now // 3_600)
        if hour not in self._short:
            self._short = {hour: self._stream.random() < SHORT_OF_CAPACITY}
        return self._short[hour]
