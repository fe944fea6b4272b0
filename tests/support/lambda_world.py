"""The handlers over a world in memory."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import lambdas.answer_approval
import lambdas.find_checkpoint
import lambdas.ingest
import lambdas.notify
import lambdas.operation
import lambdas.return_to_service
import lambdas.signatures
import lambdas.sweep
import lambdas.take_signal
import lambdas.wakeup
from lambdas import composition
from nodeheal.contract import names
from nodeheal.contract.health_event import HealthEvent
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.verbs import ANSWERS
from nodeheal.ports import Ports
from tests.support.builders import (
    ACT,
    NOW,
)
from tests.support.incident_steps import A, Incident
from tests.support.signing import KEYS, ROLE, signed_by


class World:
    """The functions, deployed over the ports of whatever the test has set up."""

    ports: Ports

    def serves(self, it: Incident) -> Incident:
        self.ports = it.ports
        composition.ports.cache_clear()
        composition.records.cache_clear()
        return it

    def read(self) -> RecoveryPolicy:
        """The policy in force."""
        return ACT


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()
    monkeypatch.setattr(composition, "policy_reader", lambda: world)
    monkeypatch.setattr(composition, "last_good", lambda table: None)
    monkeypatch.setattr(composition, "client", lambda service: None)
    monkeypatch.setenv(names.ENV_TABLE, "state")
    monkeypatch.setattr(composition, "aws_ports", lambda **_: world.ports)
    monkeypatch.setattr(lambdas.signatures, "node_keys", lambda: KEYS)
    monkeypatch.setenv(names.ENV_NODE_ROLE_IDS, ROLE)
    yield world
    composition.ports.cache_clear()
    composition.records.cache_clear()


def batch(*bodies: str, receives: int = 1) -> dict[str, Any]:
    attributes = {"ApproximateReceiveCount": str(receives)}
    return {
        "Records": [{"messageId": f"m{n}", "body": body, "attributes": attributes} for n, body in enumerate(bodies)]
    }


def on_bus(event: HealthEvent, source: str = names.AGENT_SOURCE) -> str:
    envelope = {"source": source, "detail-type": names.NODE_HEALTH_REPORTED, "time": NOW.isoformat()}
    detail = event.model_dump(mode="json")
    if source == names.AGENT_SOURCE:
        detail = signed_by(event.node_id, detail)
    return json.dumps({**envelope, "detail": detail})


def wake(kind: str, detail: dict[str, Any]) -> None:
    if "node_id" in detail:
        detail = signed_by(detail["node_id"], detail, kind)
    lambdas.wakeup.handler({"id": "e", "source": source_of(kind), "detail-type": kind, "detail": detail}, None)


def source_of(kind: str) -> str:
    """Who sends events of this kind."""
    reports = (names.NODE_BOOTED, names.NODE_HARDWARE_REPORTED)
    return names.AGENT_SOURCE if kind in reports or kind in ANSWERS else "aws.ecs"


def fact(it: Incident, boot_id: str, **more: Any) -> dict[str, Any]:
    observed = {"observed_at": it.clock().isoformat(), "provider": "hybrid"}
    return {**it._fact(boot_id, A), **observed, **more}
