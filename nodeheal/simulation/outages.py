"""Outages of a whole service, for an hour or so: what nodeheal needs of AWS is not there, and comes back."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from nodeheal.domain.errors import NotAccepted
from nodeheal.simulation.agenda import Agenda


class AwsService(StrEnum):
    """What may be down."""

    table = "DynamoDB"  # no read, no write
    bus = "EventBridge"  # takes nothing: agents and AWS send later what they have kept
    functions = "Lambda"  # starts no function of the account


# The ports behind which the table is.
TABLE_PORTS = frozenset(
    {
        "nodes",
        "incidents",
        "attempts",
        "pools",
        "operations",
        "jobs",
        "job_notes",
        "job_findings",
        "fleet_index",
        "heartbeats",
    }
)
BUS_CALL = "notifier.announce"


@dataclass(frozen=True)
class Outage:
    """One service is down from `at` on, for so many seconds."""

    service: AwsService
    at: float
    seconds: float = 3_600.0

    @property
    def ends_at(self) -> float:
        """Return when it is over."""
        return self.at + self.seconds


@dataclass(frozen=True)
class Outages:
    """All outages of a run."""

    agenda: Agenda
    outages: Sequence[Outage]

    def seconds_left(self, service: AwsService) -> float:
        """Return the seconds until the service is back; 0 where it is up."""
        now = self.agenda.now
        left = [each.ends_at - now for each in self.outages if each.service is service and each.at <= now]
        return max([0.0, *left])

    def refuse(self, port_call: str) -> None:
        """Raises NotAccepted for a call of a port (`nodes.save`) whose service is down."""
        port = port_call.partition(".")[0]
        service = AwsService.table if port in TABLE_PORTS else AwsService.bus if port_call == BUS_CALL else None
        if service is not None and self.seconds_left(service):
            raise NotAccepted(f"{port_call}: {service} is down")
