"""Faults that other nodes have reported."""

from datetime import timedelta
from typing import Any

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import NEW_NODE, SWEEP_SOURCE
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.domain.fleet.node import PastRecovery
from nodeheal.domain.recovery.decision_context import Observation, observation_of
from tests.support.builders import NOW, xid

NODE = xid().node_id


OTHER, THIRD = "mi-0bbbbbbbbbbbbbbbb", "mi-0cccccccccccccccc"


def seen(code: int = 31, /, node_id: str = OTHER, job: str | None = "llama", **changes: Any) -> Observation:
    """A fault that was seen somewhere in the pool."""
    event_id = f"{node_id}-{code}-{job}-{changes.get('observed_at', NOW)}"
    return observation_of(xid(code, node_id=node_id, event_id=event_id, **changes), job)


def later(seconds: float) -> Any:
    """A time after the fault."""
    return NOW + timedelta(seconds=seconds)


def crowd(nodes: int, code: int = 79, **changes: Any) -> tuple[Observation, ...]:
    """So many other nodes that fail within a minute."""
    return tuple(seen(code, f"mi-{n:017d}", None, observed_at=later(n % 60), **changes) for n in range(nodes))


def recoveries(*days_ago: int) -> tuple[PastRecovery, ...]:
    """Earlier incidents in which the node was out of service."""
    return tuple(PastRecovery(f"inc-{n}", NOW - timedelta(days=n)) for n in days_ago)


def no_gpus(**changes: Any) -> HealthEvent:
    """The node sees no accelerator."""
    values = {"family": Family.nvml, "code": "NO_DEVICES", "component": None, "event_id": "none"}
    return xid(79, **{**values, **changes})


def later_fault(seconds: float = 60, code: int = 79, /, **changes: Any) -> HealthEvent:
    """A fault that is reported later."""
    at = NOW + timedelta(seconds=seconds)
    return xid(code, **{"event_id": f"later-{code}-{seconds}", "observed_at": at, **changes})


def wave(count: int, code: int = 79, /, began: float = 0, **labels: str) -> tuple[Observation, ...]:
    return tuple(
        seen(code, f"mi-{code}-{n:02}", None, observed_at=later(began + n), labels=labels) for n in range(count)
    )


def new_node() -> HealthEvent:
    return xid(79, family=Family.host, code=NEW_NODE, verdict=Verdict.DEGRADED, source=SWEEP_SOURCE)


def sxid(**changes: Any) -> HealthEvent:
    """A fatal error of an NVSwitch."""
    values = {"family": Family.sxid, "code": "12020", "subcode": "fatal", "component": "0000:c1:00.0"}
    return xid(79, **{**values, "event_id": "sxid", "labels": {"fabric": "f1"}, **changes})


def stated(subcode: str, **changes: Any) -> HealthEvent:
    """XID 154: the driver states a recovery action."""
    return xid(154, **{"subcode": subcode, "event_id": f"154-{subcode}", **changes})
