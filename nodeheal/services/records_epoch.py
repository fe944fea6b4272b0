"""Notices that the table was restored to an earlier moment: then nobody acts, until the records are set right."""

from nodeheal.contract.names import INCIDENT_ESCALATED
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.records_epoch import Epoch
from nodeheal.ports import Ports
from nodeheal.services.notify.compose_records_back import compose_records_back


def refuse_if_gone_back(ports: Ports) -> None:
    """Raises NotAccepted while the records know less than has happened. As in an outage of the table, work waits."""
    marks = ports.epoch.read()
    if marks.has_gone_back:
        told = f"the records went back to {marks.lost_since:%Y-%m-%d %H:%M:%S} UTC"
        raise NotAccepted(f"{told}: nodeheal does nothing before `nodeheal reconcile`")


def page_gone_back(marks: Epoch, ports: Ports) -> bool:
    """Page operators, once for each restore. False: they were paged before."""
    page = compose_records_back(marks, ports.console_links)
    if ports.notifier.was_sent(page.key):
        return False
    ports.notifier.announce(INCIDENT_ESCALATED, page)
    return True
