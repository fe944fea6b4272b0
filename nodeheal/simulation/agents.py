"""Simulates the agents on nodes: they report faults, run commands, and send heartbeats."""

from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from nodeheal.adapters.memory.evidence import uploaded_key
from nodeheal.contract.health_event import DiagnosticsFinished, EvidenceFrozen, HealthEvent, NodeBooted
from nodeheal.contract.steps import Accusation
from nodeheal.contract.vocabulary import Confirmation, Family, Outcome, Verdict
from nodeheal.domain.faults.catalog import find
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.operations.reset_gpu import GpuResetFinished, NodeOutcome
from nodeheal.simulation.agenda import EPOCH, Agenda, seconds_of
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.faults import Kind
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.setting import Setting
from nodeheal.simulation.trace import Trace

HEARTBEAT_SECONDS = 60.0
OVERWRITTEN = 0.01  # share of kernel logs whose entry has been overwritten
LIES = 0.001  # share of healthy nodes that fail diagnostics
SILENT_IN_DIAGNOSTICS = 0.002
HIBERNATES = 0.01  # share of commands that find the SSM agent hibernating
HIBERNATES_SECONDS = 3_600.0
COMMAND_SECONDS = 1.5  # until a command begins (median), where the setting names no latency
AGENT = "0.1.0"
REPORT_SECONDS = 0.5  # from the fault until the agent reports it
DIAGNOSE_SECONDS, EVIDENCE_SECONDS, RESET_SECONDS = 240.0, 20.0, 20.0  # medians
# Of GPU resets, all of them guesses: no table is public. The last one is the share of a GPU's faults, among those that
# a reboot fixes.
IN_USE, RESET_FAILS, SILENT_IN_RESET, FIXED_BY_RESET = 0.1, 0.05, 0.02, 0.6
ACCELERATORS = 8
_OF_ACCELERATORS = (Family.xid, Family.nvml)


class Agents:
    """The agents of a whole pool. Events go to the callback that the world has set."""

    def __init__(self, setting: Setting, agenda: Agenda, chance: Chance, trace: Trace) -> None:
        self._setting, self._agenda, self._trace = setting, agenda, trace
        self._stream, self._logs = chance.of("fleet"), chance.of("kernel logs")
        self._resets = chance.of("GPU resets")
        self.nodes: dict[str, GroundTruth] = {}
        self.faults = 0
        self.on_event: Callable[[HealthEvent], None] = lambda event: None
        self.on_booted: Callable[[NodeBooted], None] = lambda event: None
        self.on_diagnosed: Callable[[DiagnosticsFinished], None] = lambda event: None
        self.on_reset: Callable[[GpuResetFinished], None] = lambda event: None
        self.on_evidence: Callable[[EvidenceFrozen], None] = lambda event: None
        self.on_refused: Callable[[str, str], None] = lambda node_id, command_id: None
        self.on_down: Callable[[GroundTruth], None] = lambda node: None
        self.on_exit: Callable[[GroundTruth, Kind], None] = lambda node, kind: None
        self.on_up: Callable[[GroundTruth], None] = lambda node: None
        self.on_silence: Callable[[GroundTruth], None] = lambda node: None

    def pretend(self, node: GroundTruth, kind: Kind, line: str) -> None:
        """Report a fault that the node does not have."""
        self._report_soon(node, kind, line=line)

    def _report_soon(self, node: GroundTruth, kind: Kind, median: float = REPORT_SECONDS, line: str = "") -> None:
        boot = node.boot
        seen_at = self._agenda.now

        def tell() -> None:
            if node.is_up and node.boot == boot:
                node.logged.add((node.boot_id, kind.family, kind.code))
                self.on_event(self._event(node, kind, seen_at, line))

        self._agenda.after(lognormal(self._stream, median, 0.6), tell)

    def _event(self, node: GroundTruth, kind: Kind, seen_at: float, line: str = "") -> HealthEvent:
        family = Family(kind.family)
        row = find(family, kind.code, None)
        return HealthEvent(
            **self._fact(node, seen_at),
            source=kind.source,
            family=family,
            code=kind.code,
            component=f"0000:{node.slot:02x}:00.0",
            component_serial=node.serial if family in _OF_ACCELERATORS else None,
            verdict=row.verdict if row else Verdict.FAILED,
            evidence=line or f"simulated: {kind.name}",
        )

    def _fact(self, node: GroundTruth, seen_at: float) -> dict[str, Any]:
        node.event_count += 1
        return {
            "schema_version": 1,
            "event_id": f"{node.node_id}-{node.boot}-{node.event_count}",
            "node_id": node.node_id,
            "cluster": "training",
            "pool": self._setting.pool,
            "provider": node.provider,
            "instance_id": node.node_id,
            "boot_id": node.boot_id,
            "observed_at": self._moment(seen_at),
            "agent_version": AGENT,
            "scheduler": self._setting.scheduler,
        }

    def fact(self, node: GroundTruth) -> dict[str, Any]:
        """Return the common fields of the node's events, as of now."""
        return self._fact(node, self._agenda.now)

    def _moment(self, seconds: float) -> datetime:
        return EPOCH + timedelta(seconds=seconds)

    # Commands

    def order(self, node_id: str, boot_id: str, command_id: str, expires_at: datetime, obey: Any) -> None:
        """Deliver a command to the node, at once or when its SSM agent wakes. A stale command is refused."""
        sleeps = self._stream.random() < HIBERNATES
        begins = self._setting.latency.ssm_begin_seconds or COMMAND_SECONDS
        delay = lognormal(self._stream, HIBERNATES_SECONDS if sleeps else begins, 0.5)

        def arrive() -> None:
            node = self.nodes.get(node_id)
            if node is None or not node.is_up:
                return
            if node.boot_id != boot_id or self._agenda.now > seconds_of(expires_at):
                self._trace.tell("refuses stale", node_id, command_id)
                self.on_refused(node_id, command_id)
                return
            obey(node)

        self._agenda.after(delay, arrive)

    def diagnose(self, node: GroundTruth, request_id: str) -> None:
        """Run the diagnostics and answer, unless something interrupts them."""
        boot, draw = node.boot, self._stream.random()
        if draw < SILENT_IN_DIAGNOSTICS:
            return

        def answer() -> None:
            if not node.is_up or node.boot != boot:
                return
            is_bad = (node.fault is not None and not node.fault.is_shy) or draw > 1 - LIES
            event = DiagnosticsFinished(
                **self._fact(node, self._agenda.now),
                request_id=request_id,
                verdict=Verdict.FAILED if is_bad else Verdict.OK,
                failed_tests=("memory",) if is_bad else (),
            )
            self.on_diagnosed(event)
            if node.fault is not None and not is_bad:
                self._report_soon(node, node.fault.kind, median=6 * 3_600.0)

        self._agenda.after(lognormal(self._stream, DIAGNOSE_SECONDS, 0.3), answer)

    def reset_gpu(self, node: GroundTruth, request_id: str) -> None:
        """Reset the GPU that has failed, or report why not. A reset fixes some of the faults that a reboot fixes."""
        boot, draw, is_fixed = node.boot, self._resets.random(), self._resets.random() < FIXED_BY_RESET
        if draw < SILENT_IN_RESET:
            return
        failed = SILENT_IN_RESET + RESET_FAILS
        outcome: NodeOutcome = Outcome.FAILED if draw < failed else Outcome.DONE
        if failed <= draw < failed + IN_USE:
            outcome = Outcome.REFUSED

        def answer() -> None:
            if not node.is_up or node.boot != boot:
                return
            kind = node.fault.kind if node.fault is not None else None
            is_of_gpu = kind is not None and kind.family in _OF_ACCELERATORS
            if (
                outcome is Outcome.DONE
                and node.fault is not None
                and is_of_gpu
                and is_fixed
                and node.fault.cure == "reboot"
            ):
                node.fault = None
            self._trace.tell("GPU reset", node.node_id, outcome)
            fact = self._fact(node, self._agenda.now)
            self.on_reset(GpuResetFinished(**fact, request_id=request_id, outcome=outcome, reason="simulated"))
            if outcome is Outcome.DONE and node.fault is not None and not node.fault.is_shy:
                self._report_soon(node, node.fault.kind, median=60.0)

        self._agenda.after(lognormal(self._resets, RESET_SECONDS, 0.5), answer)

    def freeze_evidence(self, node: GroundTruth, asked: Mapping[str, str]) -> None:
        """Upload the evidence, and report whether the kernel log shows the fault in question."""
        boot, key = node.boot, uploaded_key(asked["Upload"])
        named = asked["Accused"]
        accused = None if named == "none" else Accusation.model_validate_json(urlsafe_b64decode(f"{named}=="))
        is_overwritten = self._logs.random() < OVERWRITTEN

        def answer() -> None:
            if node.is_up and node.boot == boot:
                fact = {**self._fact(node, self._agenda.now), "request_id": asked["RequestId"]}
                saved = {"object_key": key, "size_bytes": 1_000_000, "items": 12}
                shown = {"confirmation": _confirmation(node, accused, is_overwritten), "confirmed_by": "its kernel log"}
                self.on_evidence(EvidenceFrozen(**fact, **saved, **shown))

        self._agenda.after(lognormal(self._stream, EVIDENCE_SECONDS, 0.5), answer)

    # Heartbeats

    def beat_of(self, node: GroundTruth) -> Heartbeat:
        """Return the newest heartbeat in the table."""
        until = self._agenda.now if node.is_up else node.went_at
        last = max(until - (until - node.beat_offset) % HEARTBEAT_SECONDS, node.booted_at)
        return Heartbeat(f"role:{node.node_id}", node.boot_id, self._moment(last), HEARTBEAT_SECONDS)

    def silent(self) -> Iterator[GroundTruth]:
        """Return the nodes without heartbeats."""
        return (node for node in self.nodes.values() if not node.is_up and not node.is_gone)


def _confirmation(node: GroundTruth, accused: Accusation | None, is_overwritten: bool) -> Confirmation:
    """Return what the node's kernel log shows. An overwritten log is UNKNOWN."""
    if accused is None or is_overwritten or accused.boot_id != node.boot_id:
        return Confirmation.UNKNOWN
    is_there = (accused.boot_id, accused.family.value, accused.code) in node.logged
    return Confirmation.CONFIRMED if is_there else Confirmation.DENIED
