"""Two nodes of one job that fail together."""

from nodeheal.services.intake.ingest import ingest
from tests.support.builders import ACT, xid
from tests.support.incident_steps import B, Incident

OTHER = xid(79, node_id=B, instance_id=B, event_id="on-b")


def healed() -> Incident:
    """The incident on A, healed and about to restart the job, while B has one of its own."""
    it = Incident()
    it.isolate(), it.reboot(), it.diagnose(), it.give_back()
    ingest(OTHER, it.ports, ACT)
    return it
