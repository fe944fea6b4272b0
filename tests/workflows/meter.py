"""What a recovery costs: what AWS would bill is counted while a story is walked over the real state machines, the real
services and the real DynamoDB adapters (on moto).

What cannot be counted without AWS is assumed, and the assumptions stand here, by name.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeheal.simulation.prices import LOG_BYTES_A_RUN, RUN_SECONDS
from stacks.functions import FUNCTIONS
from tests.support.fake_cluster import FakeCluster
from tests.support.walker import Walk, load

# A heartbeat is read and written by a function that is always warm.
HEARTBEAT_SECONDS, HEARTBEAT_LOG_BYTES = 0.05, 700
# EventBridge sends, Lambda receives and deletes.
QUEUE_REQUESTS_A_FAULT = 3
# ECS says of a node's instance that it drains, that its agent left and came back, that it is active again.
INSTANCE_CHANGES_A_REBOOT = 4
SUBSCRIBERS = 1

_KILOBYTE = 1_024
_MEMORY_GB = {f"${{{spec.class_name}Function}}": spec.memory_mb / 1_024 for spec in FUNCTIONS}
_OTHER_GB = FUNCTIONS[0].memory_mb / 1_024


@dataclass
class Units:
    """DynamoDB request units. Counted from the requests that a client sends."""

    write: float = 0
    read: float = 0
    calls: Counter[str] = field(default_factory=Counter)

    def forget(self) -> None:
        """Begin again at nothing."""
        self.write, self.read = 0, 0
        self.calls.clear()


def billed_transitions(walked: Walk, stem_states: Mapping[str, Any]) -> int:
    """Step Functions bills every step that is executed, and every retry as one more."""
    tasks_entered: int = sum(stem_states[state]["Type"] == "Task" for state in walked.path)
    return len(walked.path) + len(walked.asked) - tasks_entered


def states_of(walked: Walk) -> Mapping[str, Any]:
    """The states of the file that was walked: each file has a state that no other begins with."""
    for stem in ("recover_node", "reboot_node", "run_diagnostics", "replace_node", "restart_workload"):
        definition = load(stem)
        if definition["StartAt"] == walked.path[0] and set(walked.path) <= set(definition["States"]):
            states: Mapping[str, Any] = definition["States"]
            return states
    raise AssertionError(f"no file has the states {walked.path}")


def count(cluster: FakeCluster, units: Units) -> dict[str, float]:
    """How much of everything in the price list the cluster's stories have used."""
    runs = _function_runs(cluster)
    transitions = sum(billed_transitions(walked, states_of(walked)) for walked in cluster.walked)
    parents = sum(walked.path[0] == "Open incident" for walked in cluster.walked)
    announced = len(cluster.ports.notifier.announced)  # type: ignore[attr-defined]
    heard = cluster.heard
    return {
        "transition": transitions,
        "function_run": sum(runs.values()),
        "function_time": sum(_MEMORY_GB.get(name, _OTHER_GB) * RUN_SECONDS * times for name, times in runs.items()),
        # "Open incident": one item of under 1 KB, table and index. Each email: asked for, claimed, and remembered.
        "table_write": units.write + 2 * parents + 2 * announced,
        "table_read": units.read + announced,
        "bus_event": heard["fault"] + heard["node"] + announced,
        "queue_request": heard["fault"] * QUEUE_REQUESTS_A_FAULT,
        "publish": announced,
        "email": announced * SUBSCRIBERS,
        "upload": heard["upload"],
        "log": sum(runs.values()) * LOG_BYTES_A_RUN / 1e9,
    }


def of_heartbeat(units: Units) -> dict[str, float]:
    """How much one heartbeat uses that comes in a batch of its own: small fleets; a storm fills batches of ten."""
    return {
        "bus_event": 1,
        "queue_request": QUEUE_REQUESTS_A_FAULT,
        "function_run": 1,
        "function_time": _OTHER_GB * HEARTBEAT_SECONDS,
        "table_write": units.write,
        "table_read": units.read,
        "log": HEARTBEAT_LOG_BYTES / 1e9,
    }


def of_beat(units: Units, item: Mapping[str, Any]) -> dict[str, float]:
    """How much a heartbeat uses that a node writes itself, and one look of the sweep at it.

    A scan is billed by all that it reads together, half a unit for 4 KiB.
    """
    return {"table_write": units.write, "table_read": item_bytes(item) / (4 * _KILOBYTE) / 2}


def _function_runs(cluster: FakeCluster) -> Counter[str]:
    """Who ran how often. Functions that a state names, by their placeholder; the others, by what woke them."""
    runs: Counter[str] = Counter()
    for walked in cluster.walked:
        for _, arguments in walked.asked:
            if isinstance(arguments, dict) and "FunctionName" in arguments:
                runs[arguments["FunctionName"]] += 1
    reboots = sum(verb == "reboot-node" for verb, _ in cluster.commands)
    runs["ingest"] = cluster.heard["fault"]
    runs["wakeup"] = cluster.heard["task"] + cluster.heard["node"] + len(cluster.commands)  # each command's end wakes
    runs["take_signal"] = reboots * INSTANCE_CHANGES_A_REBOOT
    runs["notify"] = len(cluster.ports.notifier.announced)  # type: ignore[attr-defined]
    return runs


def waits_by_the_clock(stem: str) -> list[str]:
    """States of a file that pass time instead of being woken."""
    return [name for name, state in load(stem)["States"].items() if state["Type"] == "Wait"]


def waits_to_be_woken(stem: str) -> set[str]:
    """States of a file that an event resumes."""
    return {name for name, state in load(stem)["States"].items() if state.get("Resource", "").endswith("Token")}


def loops(stem: str, without: Collection[str] = ()) -> bool:
    """Whether a file can come back to a state that it has been in, passing through none of `without`."""
    ways = {
        name: [to for to in _next_of(state) if to not in without]
        for name, state in load(stem)["States"].items()
        if name not in without
    }
    while leaves := [name for name, to in ways.items() if not to]:
        ways = {name: [t for t in to if t not in leaves] for name, to in ways.items() if name not in leaves}
    return bool(ways)


def _next_of(state: Mapping[str, Any]) -> list[str]:
    others = [*state.get("Choices", []), *state.get("Catch", [])]
    return [to for to in (state.get("Next"), state.get("Default"), *(other["Next"] for other in others)) if to]


def item_bytes(item: Mapping[str, Any]) -> int:
    """About what DynamoDB counts as an item's size: names and values as UTF-8."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, held),) = value.items()
    if kind == "M":
        return 3 + item_bytes(held) + len(held)
    if kind == "L":
        return 3 + sum(1 + _value_bytes(inner) for inner in held)
    if kind in ("BOOL", "NULL"):
        return 1
    return (
        sum(len(str(one).encode()) for one in held) if kind.endswith("S") and kind != "S" else len(str(held).encode())
    )


class UnitMeter:
    """Counts what a DynamoDB client is billed. `raw` reads the table aside, to see what a write really changed."""

    def __init__(self, client: Any, raw: Any, units: Units) -> None:
        self._raw, self._units = raw, units
        client.meta.events.register("provide-client-params.dynamodb", self._before)
        client.meta.events.register("after-call.dynamodb", self._after)
        self._pending: list[tuple[str, dict[str, Any], list[Any]]] = []

    def _before(self, params: dict[str, Any], model: Any, **_: object) -> None:
        self._pending.append((model.name, params, [self._stored(key) for key in _keys(model.name, params)]))

    def _after(self, parsed: dict[str, Any], **_: object) -> None:
        name, params, before = self._pending.pop()
        self._units.calls[name] += 1
        if name == "GetItem":
            self._units.read += math.ceil(max(1, item_bytes(parsed.get("Item", {}))) / (4 * _KILOBYTE))
        elif name == "Query":
            size = sum(item_bytes(item) for item in parsed.get("Items", []))
            strong = 1.0 if params.get("ConsistentRead") else 0.5
            self._units.read += strong * math.ceil(max(1, size) / (4 * _KILOBYTE))
        else:
            after = [self._stored(key) for key in _keys(name, params)]
            each = 2 if name == "TransactWriteItems" else 1
            self._units.write += each * sum(write_units(*change) for change in zip(before, after, strict=True))

    def _stored(self, key: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        table, wanted = key
        found: dict[str, Any] = self._raw.get_item(TableName=table, Key=wanted, ConsistentRead=True).get("Item", {})
        return found


def write_units(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """A write of the table (refused ones are billed too) and what it changes in the index, which holds all fields."""
    of_table = math.ceil(max(1, item_bytes(before), item_bytes(after)) / _KILOBYTE)
    listed = [item for item in (before, after) if "gsi_pk" in item]
    if before == after or not listed:
        return of_table
    is_moved = len(listed) == 2 and any(before[key] != after[key] for key in ("gsi_pk", "gsi_sk"))
    touched = listed if is_moved else listed[-1:]
    return of_table + sum(math.ceil(item_bytes(item) / _KILOBYTE) for item in touched)


def _keys(name: str, params: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The items that a request writes."""
    if name == "TransactWriteItems":
        writes = [next(iter(one.values())) for one in params["TransactItems"]]
    elif name in ("PutItem", "UpdateItem", "DeleteItem"):
        writes = [params]
    else:
        return []
    return [(w["TableName"], w.get("Key") or {key: w["Item"][key] for key in ("pk", "sk")}) for w in writes]
