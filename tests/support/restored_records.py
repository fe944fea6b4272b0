"""Records that come from a backup."""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.acts import Reconcile, RecordsReconciled
from nodeheal.contract.vocabulary import Action, VerbName
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.records_epoch import Epoch
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.ports.compute import Started
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators.reconcile_records import reconcile_records
from tests.support.acts import ADA
from tests.support.builders import (
    ACT,
    NOW,
    job_under_way,
    memory_ports,
    node,
    started_job,
    stored_node,
    xid,
)
from tests.support.jobs import ecs_job

A, C = node().node_id, "mi-0c"


HOUR = timedelta(hours=1)


WHY = "restored to 11:00"


class Restored:
    """A world whose table went back by an hour: nodes A and C in service, and nothing else on record."""

    def __init__(self) -> None:
        self.ports = memory_ports()
        for node_id in (A, C):
            assert self.ports.nodes.save(node(node_id, accelerators=8))
        self.ports.epoch.renew(Epoch(), NOW - HOUR)
        self.ports.epoch.outside = NOW  # type: ignore[attr-defined]

    def started(self, started: Started) -> None:
        """An execution was started in the lost hour."""
        self.ports.workflows.since[started] = NOW - HOUR / 2  # type: ignore[attr-defined]

    def change(self, node_id: str = A, **changes: object) -> None:
        assert self.ports.nodes.save(replace(self.node(node_id), **changes))  # type: ignore[arg-type]

    def node(self, node_id: str = A) -> Node:
        return stored_node(self.ports, node_id)

    def incident(self) -> str:
        """An incident on A that the records have as open."""
        ingest(xid(), self.ports, ACT)
        return incident_id_of(xid())

    def job(self) -> Run:
        """A job that runs on A by the records, and whose workflow watches it."""
        self.ports.workflows.run_job("llama", 1)
        job = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 1, accelerators=8, submission=1)
        run = started_job(job, [self.node()], self.ports)
        job_under_way(self.ports, VerbName.WATCH_GANG)
        return run

    def reconcile(self, *, is_to_apply: bool = True) -> RecordsReconciled:
        return reconcile_records(Reconcile(why=WHY, is_to_apply=is_to_apply), ADA, self.ports, ACT)

    def attempts(self, node_id: str) -> int:
        return self.ports.attempts.spent(node_scope(node_id), ACT.limits[Action.REBOOT])[Action.REBOOT]
