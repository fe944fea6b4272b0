"""Refuses to act after the table was restored to an earlier moment, until the records are set right."""

from nodeheal.domain.errors import NotAccepted
from nodeheal.ports import Ports


def refuse_if_gone_back(ports: Ports) -> None:
    """Raises NotAccepted while the records know less than has happened. As in an outage of the table, work waits."""
    marks = ports.epoch.read()
    if marks.has_gone_back:
        reason = f"the records went back to {marks.lost_since:%Y-%m-%d %H:%M:%S} UTC"
        raise NotAccepted(f"{reason}: nodeheal does nothing before `nodeheal reconcile`")
