"""What comes again, or was begun and broke off: it is done once, and it is done.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from tests.support.builders import xid
from tests.workflows.scenarios.setup import (
    RECOVERED,
    ends_as,
    is_soon,
    world,
    wrong_with,
)


def it_grows_worse() -> list[str]:
    it = world()
    it.on_wait = lambda: it._ingest(xid(79))
    it.reports(xid(63))
    return wrong_with(it, ends_as(it, *RECOVERED), is_soon(it))
