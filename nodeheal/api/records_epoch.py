"""Refuses acts of people while the table is an older copy of itself."""

from nodeheal.ports import Ports
from nodeheal.services.records_epoch import refuse_if_gone_back


def refuse_restored(ports: Ports) -> None:
    """Raises NotAccepted while the table is an older copy of itself, so that nobody decides by it."""
    refuse_if_gone_back(ports)
