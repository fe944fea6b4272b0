"""A record that somebody else has written between a function's look and its write: it looks again, and writes then.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from tests.support.builders import NOW, xid
from tests.workflows.scenarios.setup import (
    RECOVERED,
    changes,
    ends_as,
    world,
    wrong_with,
)


def a_node_is_heard_while_it_is_returned() -> list[str]:
    return _is_heard_while("return_to_service")


def _is_heard_while(function: str) -> list[str]:
    """It gives a heartbeat, between the function's look at its record and its write."""
    it = world(spare=False)
    it.fuse.meanwhile[function, "nodes.save"] = changes(it, last_seen=NOW)
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))
