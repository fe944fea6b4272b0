"""Timeline entries as items of the table: the payload is JSON, beside the tag that names its type.

`kind` is written for functions of release 0.3.0, which may run for seconds beside new ones while a stack is updated:
they read events, decisions and results by it, from the same `data`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nodeheal.adapters.aws.items import Item, fields_of, from_item, plain
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.type_adapters import adapter_of
from nodeheal.domain.fleet.machine import Machine
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.recovery import timeline
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.timeline import PAYLOADS, Payload, TimelineEntry

_TAG, _PAYLOAD, _KIND = "payload_type", "data", "kind"


def fields_of_entry(entry: TimelineEntry) -> dict[str, Any]:
    """Returns the entry's attributes."""
    fields = {**fields_of(replace(entry, payload=None)), _KIND: entry.kind.value, _TAG: ""}
    if entry.payload is None:
        return fields
    tag = type(entry.payload).__name__
    return {**fields, _TAG: tag, _PAYLOAD: adapter_of(PAYLOADS[tag]).dump_json(entry.payload).decode()}


def entry_of(item: Item) -> TimelineEntry:
    """Returns the entry of an item, also of one that release 0.3.0 has written."""
    if _TAG not in item:
        return _entry_of_0_3_0(plain(item))
    tag, entry = item[_TAG]["S"], from_item(TimelineEntry, item)
    return replace(entry, payload=adapter_of(PAYLOADS[tag]).validate_json(item[_PAYLOAD]["S"])) if tag else entry


# Release 0.3.0 had the value of a few kinds in `data`, and told the others by how an entry's id begins.

_TURN = re.compile(r"-(\d{4})$")


def _task(text: str) -> UnmanagedTask:
    task: UnmanagedTask = adapter_of(UnmanagedTask).validate_json(text)
    return task


def _machine(rest: str, data: str) -> Payload:
    machine: Machine = adapter_of(Machine).validate_json(data)
    return timeline.MachineRecorded(rest, machine)


def _left_running(text: str) -> Payload:
    """The task had its name here only, in the words for people."""
    name = text.removeprefix("task ").removesuffix("is left to run").strip()
    return timeline.TaskLeftRunning(UnmanagedTask("", name))


# By how the id begins, what is made of the rest of the id and of the data.
_BEGINNINGS: Mapping[str, Callable[[str, str], Payload]] = {
    "isolated-": lambda rest, data: timeline.NodeDrained(),
    "attempt-reserved-": lambda rest, data: timeline.AttemptReserved(),
    "checkpoint-asked-": lambda rest, data: timeline.CheckpointRequested(),
    "job-left-": lambda rest, data: timeline.JobLeft(rest),
    "released-": lambda rest, data: timeline.NodeReleased(),
    "withdrawn-by-hand": lambda rest, data: timeline.RequestWithdrawn(),
    "machine-": _machine,
    "guest-seen-": lambda rest, data: timeline.TaskToStop(_task(data)),
    "guest-gone-": lambda rest, data: timeline.TaskGone(_task(data)),
    "guest-stopped-": lambda rest, data: timeline.TaskStopped(rest, data != "no", is_held=data == "held"),
    "guest-started-": lambda rest, data: timeline.TaskStarted(rest, data),
}
_KINDS: Mapping[str, type[Any]] = {"event": HealthEvent, "decision": Decision, "result": StepResult}


def _entry_of_0_3_0(item: Mapping[str, Any]) -> TimelineEntry:
    kind, data, entry_id = item["kind"], item.get("data", ""), item["entry_id"]
    number = _TURN.search(entry_id)
    turn = int(number[1]) - (kind not in ("decision", "result")) if number and kind != "event" else None
    fields = {name: item[name] for name in ("at", "entry_id", "text", "times", "actor") if name in item}
    entry: TimelineEntry = adapter_of(TimelineEntry).validate_python({**fields, "turn": turn})
    return replace(entry, payload=_payload_of_0_3_0(kind, entry_id, data, entry.text))


def _payload_of_0_3_0(kind: str, entry_id: str, data: str, text: str) -> Payload | None:
    if kind in _KINDS:
        payload: Payload = adapter_of(_KINDS[kind]).validate_json(data)
        return payload
    if kind == "answer":
        answer = Answer(data) if data else Answer.refuse
        return timeline.ApprovalAnswered(answer) if data else timeline.AnswerRefused(answer)
    if entry_id.startswith("guest-seen-") and not data:
        return _left_running(text)
    made = (
        make(entry_id.removeprefix(begins), data) for begins, make in _BEGINNINGS.items() if entry_id.startswith(begins)
    )
    return next(made, None)
