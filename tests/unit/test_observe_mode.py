"""The policy that ships acts on nothing: with it, no step that touches the world is ever reached."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeheal.contract.names import OPERATOR_REQUEST, TRAINING_DIVERGED, TRAINING_HANG, TRAINING_SLOWED
from nodeheal.contract.steps import DecideRequest, StepRequest
from nodeheal.contract.vocabulary import Family, SchedulerKind
from nodeheal.domain.faults.catalog import catalog
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.recovery.end_incident import end_incident
from tests.support.builders import memory_ports, node, stored_node, xid

SHIPPED = Path(__file__).resolve().parents[2] / "nodeheal" / "policies" / "default.json"


class Untouchable:
    """A part of the world that this test does not allow to be spoken to. It may be read."""

    def get(self, name: str) -> Pool:
        return Pool(name)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"observe mode called {name}")


# A heartbeat opens nothing, and what an operator asks for by hand is allowed by that.
FAULTS = [r for r in catalog().values() if r.family is not Family.heartbeat and r.code != OPERATOR_REQUEST]


@pytest.mark.parametrize("row", [*FAULTS, None], ids=lambda row: row.key if row else "unknown")
def test_nothing_is_mutated_whatever_the_fault(row: Any) -> None:
    policy = RecoveryPolicy.model_validate_json(SHIPPED.read_text("utf-8"))
    event = (
        xid(79, code=row.code, family=row.family, subcode=row.subcode or None) if row else xid(79, code="no-such-code")
    )
    if row and row.code in (TRAINING_HANG, TRAINING_DIVERGED, TRAINING_SLOWED):
        event = event.model_copy(update={"component": "llama/1"})  # the run, and no device
    world = memory_ports()
    world.nodes.save(node(job_id="llama"))
    served: Any = Untouchable()
    ports = replace(world, schedulers={SchedulerKind.ECS: served}, commands=Untouchable(), pools=Untouchable())

    ingest(event, ports, policy)
    incident_id = incident_id_of(event)
    decision = decide_next_step(DecideRequest(incident_id=incident_id, turn=0), ports, policy)
    end_incident(StepRequest(incident_id=incident_id, turn=1, decision=decision), ports, policy)

    after = stored_node(world, node().node_id)
    before = node(job_id="llama")
    assert (after.state, after.job_id, after.drained_by_us) == (before.state, before.job_id, False)
    assert world.attempts.counters == {}  # type: ignore[attr-defined]
    assert len(world.notifier.announced) == 1  # type: ignore[attr-defined]


def test_the_shipped_policy_observes_in_every_pool() -> None:
    policy = RecoveryPolicy.model_validate_json(SHIPPED.read_text("utf-8"))

    assert policy.default_pool.mode is Mode.observe
    assert policy.pools == {}
