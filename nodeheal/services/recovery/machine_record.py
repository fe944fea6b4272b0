"""What the broken machine was, kept in the incident: a later attempt may find it terminated."""

from datetime import datetime

from pydantic import TypeAdapter

from nodeheal.contract.steps import StepRequest
from nodeheal.domain.fleet.machine import Machine
from nodeheal.domain.recovery.incident import TimelineEntry
from nodeheal.ports import Ports

_machines: TypeAdapter[Machine] = TypeAdapter(Machine)


def record_machine(request: StepRequest, machine: Machine, ports: Ports) -> None:
    """Keep it, and when the incident first came to replace it. Recording it again changes nothing."""
    source = f"group {machine.group}" if machine.group else f"launch template {machine.launch_template}"
    text = f"{machine.machine_id} is a {machine.instance_type} of {source}"
    data = _machines.dump_json(machine).decode()
    ports.incidents.append(
        request.incident_id, TimelineEntry(ports.clock(), "progress", _entry_id(request), text, data)
    )


def recorded_machine(request: StepRequest, ports: Ports) -> Machine | None:
    """The machine as it was first seen."""
    found = _record(request, ports)
    return _machines.validate_json(found.data) if found else None


def replacing_since(request: StepRequest, ports: Ports) -> datetime | None:
    """When the incident first came to replace it, by EC2's clock: what was launched before is not its successor."""
    found = _record(request, ports)
    return found.at.replace(microsecond=0) if found else None  # EC2 tells its times in whole seconds


def _record(request: StepRequest, ports: Ports) -> TimelineEntry | None:
    timeline = ports.incidents.history(request.incident_id).timeline
    return next((entry for entry in timeline if entry.entry_id == _entry_id(request)), None)


def _entry_id(request: StepRequest) -> str:
    return f"machine-{request.decision.node_id}"
