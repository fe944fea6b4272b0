"""A replay of stored faults under a policy."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nodeheal.adapters.memory.ports import memory_ports
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.services.operators.replay import Pace, Past, Replay, ReplayClock, Replayed, in_order
from tests.support.builders import ACT, NOW, xid

A, B, C = xid().node_id, "mi-0bbbbbbbbbbbbbbbb", "mi-0cccccccccccccccc"


HOUR = 3_600


def fault(code: int = 79, node_id: str = A, seconds: float = 0, job: str | None = None, /, **changes: Any) -> Past:
    """A fault, so many seconds after the beginning."""
    known = {
        "node_id": node_id,
        "instance_id": node_id,
        "event_id": f"{node_id}-{code}-{seconds}",
        "observed_at": NOW + timedelta(seconds=seconds),
    }
    return Past(xid(code, **{**known, **changes}), job)


def replayed(*past: Past, policy: RecoveryPolicy = ACT, pace: Pace | None = None) -> Replayed:
    clock = ReplayClock()
    world = Replay(policy, memory_ports(clock), clock, pace)
    for one in in_order(past):
        world.take(one)
    return world.finish()


def steps(seen: Replayed, node_id: str | None = None) -> list[str]:
    return [one.step for one in seen.decisions if node_id in (None, one.node_id)]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.json"
    path.write_text(ACT.model_dump_json())
    return path
