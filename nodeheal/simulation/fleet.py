"""Simulates the true state of nodes: up or down, broken or healthy, whatever the control plane believes.

An idle node costs nothing. Faults come from one Poisson process of the whole pool, which then draws the node: that is
equivalent to a clock in every node, since the exponential distribution has no memory. They are drawn from streams of
their own (fault_schedule.py): neither the latency nor the reaction to a fault changes the next one. Heartbeats are not
sent but computed (`beat_of`), exactly as they would be in the table.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from zlib import crc32

from nodeheal.contract.health_event import NodeBooted
from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.node import Node
from nodeheal.simulation.agenda import EPOCH, Agenda
from nodeheal.simulation.agents import ACCELERATORS, AGENT, HEARTBEAT_SECONDS, Agents
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.fault_schedule import SHY, WIDE, ScheduledFault, fault_schedule
from nodeheal.simulation.faults import Kind, SimulatedFault, draw_fault, kinds
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.setting import DAY, Setting
from nodeheal.simulation.trace import Trace

PANIC_SECONDS = 20.0  # from the fault until the node that panics goes down
EXIT_SECONDS = 3.0  # from the fault until the rank on it has ended
BOOT_SECONDS = 300.0  # median
HANGS_IN_BOOT = 0.02


class Fleet(Agents):
    """All nodes of the pool, and their faults."""

    def __init__(self, setting: Setting, agenda: Agenda, chance: Chance, trace: Trace) -> None:
        super().__init__(setting, agenda, chance, trace)
        self._panics = chance.of("panics")
        self._fault_stream = chance.of("faults")
        self._fault_schedule = fault_schedule(setting)
        self.is_over = False  # no more faults are injected
        self._registered = 0
        self._places: list[str] = []  # nodes by their place in the racks: faults hit places
        self._launched: list[str] = []  # machines on EC2 without a place yet

    def populate(self) -> list[Node]:
        """Create every node, with the record that it would have after months of service."""
        records = [self.add(number) for number in range(self._setting.nodes)]
        self._places = list(self.nodes)
        self._await_fault()
        return records

    def add(self, number: int, node_id: str = "") -> Node:
        """Add one more node, with its record."""
        is_ec2 = self._setting.provider is Provider.ec2
        pool = crc32(self._setting.pool.encode())
        name = node_id or (f"i-{pool:08x}{number:09x}" if is_ec2 else f"mi-{pool:08x}{number:09x}")
        rack = f"{self._setting.pool}-rack-{number // self._setting.racks_of:03d}"
        node = GroundTruth(name, rack, self._stream.uniform(0, HEARTBEAT_SECONDS), self._setting.provider)
        node.chassis = name if is_ec2 else f"{self._setting.pool}-{number}"
        self.nodes[name] = node
        at = self._moment(node.booted_at)
        return Node(
            node_id=name,
            cluster=Cluster(self._setting.scheduler, "training"),
            pool=self._setting.pool,
            provider=self._setting.provider,
            instance_id=name,
            boot_id=node.boot_id,
            booted_at=at,
            last_seen=EPOCH,
            address="10.0.0.1",
            accelerators=ACCELERATORS,
            agent_version=AGENT,
            agent_since=at,
            passed_at=at,
            rack=rack,
            version=1,
        )

    # Faults

    def now_and_then(self, stream: Random, a_day: float, act: Callable[[], None]) -> None:
        """Do this so often a day, at random moments, as long as faults come."""

        def again() -> None:
            if not self.is_over:
                act()
                self.now_and_then(stream, a_day, act)

        if a_day:
            self._agenda.after(stream.expovariate(a_day / DAY), again)

    def fail_together(self, count: int) -> None:
        """Let this many nodes lose a GPU within one second."""
        off_the_bus = next(kind for kind in kinds() if kind.code == "79")
        for node in self._fault_stream.sample(list(self.nodes.values()), count):
            at = self._fault_stream.random()
            self._agenda.after(at, lambda node=node: self.strike(node, off_the_bus))  # type: ignore[misc]

    def _await_fault(self) -> None:
        strike = next(self._fault_schedule, None)
        if strike is not None:
            self._agenda.at(strike.at, lambda: self._meet(strike))

    def _meet(self, strike: ScheduledFault) -> None:
        if self.is_over:
            return
        self._await_fault()
        node = self._node_at(int(strike.place * len(self._places)))
        if node is not None and node.is_up and node.fault is None:
            self._break(node, strike.fault, is_wide=strike.is_wide)

    def _node_at(self, place: int) -> GroundTruth | None:
        """Return the node at a place. The place of a terminated machine goes to one that was launched since."""
        self._launched = [name for name in self._launched if name in self.nodes]
        if self._places[place] not in self.nodes and self._launched:
            self._places[place] = self._launched.pop(0)
        return self.nodes.get(self._places[place])

    def strike(self, node: GroundTruth, kind: Kind) -> None:
        """Inject a fault into a node now."""
        fault = draw_fault(self._fault_stream, kind, SHY)
        self._break(node, fault, is_wide=self._fault_stream.random() <= WIDE)

    def _break(self, node: GroundTruth, fault: SimulatedFault, *, is_wide: bool = False) -> None:
        kind = fault.kind
        self.faults += 1
        self._trace.tell("fault", node.node_id, f"{kind.name} (mended by {fault.cure})")
        if kind.effect == "exits":
            self.on_exit(node, kind)
            return
        node.fault, node.slot = fault, self.faults % ACCELERATORS
        if kind.effect == "vanishes":
            self.go_down(node)
            return
        for other in self._struck_with(node, kind, is_wide):
            self._shows(other, kind)
        if self._setting.panics and self._panics.random() < self._setting.panics:
            after, boot = lognormal(self._panics, PANIC_SECONDS, 1.5), node.boot
            self._agenda.after(after, lambda: self.reboot(node) if node.is_up and node.boot == boot else None)
        if fault.cure == "itself":
            node.fault = None

    def lose_fabric(self, node: GroundTruth, kind: Kind) -> None:
        """Fail the switch of a node: the node reports its links, and its rank dies."""
        self.faults += 1
        self._shows(node, kind)

    def _shows(self, node: GroundTruth, kind: Kind) -> None:
        self._report_soon(node, kind)
        if kind.effect != "warns":
            self._exit_soon(node, kind)

    def _exit_soon(self, node: GroundTruth, kind: Kind) -> None:
        boot = node.boot
        self._agenda.after(
            lognormal(self._stream, EXIT_SECONDS, 0.6),
            lambda: self.on_exit(node, kind) if node.is_up and node.boot == boot else None,
        )

    def _struck_with(self, node: GroundTruth, kind: Kind, is_wide: bool) -> list[GroundTruth]:
        if kind.effect != "rack" or not is_wide:
            return [node]
        rack = [other for other in self.nodes.values() if other.rack == node.rack and other.is_up]
        return rack[: max(1, len(rack) // 2)]

    # Up and down

    def go_down(self, node: GroundTruth) -> None:
        """Take the node down: no heartbeat, no answer, and all its processes are dead."""
        if node.is_up:
            node.is_up, node.went_at = False, self._agenda.now
            self._trace.tell("node down", node.node_id)
            self.on_down(node)
            self.on_silence(node)

    def come_up(self, node: GroundTruth) -> None:
        """Boot the node: a new boot id, and an agent that reports it."""
        if node.is_gone or node.is_up:
            return
        node.boot, node.is_up, node.booted_at, node.rebooting = node.boot + 1, True, self._agenda.now, False
        self._trace.tell("node up", node.node_id, node.boot_id)
        self.on_up(node)
        fact = self._fact(node, self._agenda.now)
        booted_at = fact["observed_at"]
        self.on_booted(NodeBooted(**fact, booted_at=booted_at, address="10.0.0.1", accelerators=ACCELERATORS))
        left, node.left = node.left, {}
        if left and self._agenda.clock().timestamp() < float(left["expires_at"]):
            self.diagnose(node, left["request_id"])
        if node.fault is not None and node.fault.kind.family and not node.fault.is_shy:
            self._report_soon(node, node.fault.kind, median=60.0)

    def reboot_soon(self, node: GroundTruth) -> None:
        """Reboot by a command: the node goes down a moment after the command has ended."""
        boot, seconds = node.boot, self._setting.latency.reboot_begin_seconds

        def go() -> None:
            if node.boot == boot and node.is_up:
                self.reboot(node)

        if seconds:
            self._agenda.after(seconds, go)
        else:
            self.reboot(node)

    def reboot(self, node: GroundTruth, *, only_if_up: bool = False) -> None:
        """Take the node down; it mostly comes back, without the faults that a reboot fixes."""
        if node.is_gone or (only_if_up and not node.is_up and node.fault is None):
            return  # it is booting already
        self.go_down(node)
        node.rebooting = True
        if node.fault is not None and node.fault.cure == "reboot":
            node.fault = None
        if node.fault is not None and node.fault.kind.effect == "vanishes":
            return
        if self._stream.random() < HANGS_IN_BOOT:
            self._trace.tell("hangs in boot", node.node_id)
            return
        self._agenda.after(lognormal(self._stream, BOOT_SECONDS, 0.4), lambda: self.come_up(node))

    def move_to_another_host(self, node: GroundTruth) -> None:
        """Start the node after a stop: the faults of the old host are gone."""
        node.fault, node.chassis = None, f"{node.chassis}+"
        self._agenda.after(lognormal(self._stream, BOOT_SECONDS, 0.4), lambda: self.come_up(node))

    def launch(self, machine_id: str, seconds: float) -> None:
        """Launch a new machine, which boots after a while."""
        self.add(len(self.nodes), machine_id)
        self._launched.append(machine_id)
        node = self.nodes[machine_id]
        node.is_up, node.boot = False, 0
        self._agenda.after(seconds, lambda: self.come_up(node))

    def terminate(self, node_id: str) -> None:
        """Terminate the node's machine."""
        node = self.nodes[node_id]
        self.go_down(node)
        node.is_gone = True
        del self.nodes[node_id]

    def replacement_node(self, gone: str) -> Node:
        """Repair a machine that was switched off for good; it registers again under a new id, with its record."""
        place = self._places.index(gone)
        self._registered += 1
        record = self.add(place, f"mi-{self._registered:08x}{crc32(self._setting.pool.encode()):09x}")
        self._places[place] = record.node_id
        self.nodes[record.node_id].booted_at = self._agenda.now
        at = self._agenda.clock()
        return replace(record, booted_at=at, last_seen=at, agent_since=at, passed_at=None, version=0)

    def repair(self, node: GroundTruth) -> None:
        """Repair the hardware, and switch the node on."""
        if node.fault is not None and node.fault.cure == "hardware":
            node.chassis = f"{node.chassis}+"
        node.fault = None
        if not node.is_up:
            self.come_up(node)
