"""How far the stop and start of a machine has got, and who else has his hand on its switch.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from contextlib import suppress

from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.machine import Power
from tests.support.stop_start import Stopping, of

BY_HAND = "Client.UserInitiatedShutdown: User initiated (2026-03-01 03:00:00 GMT)"


def _stopped() -> Stopping:
    """EC2 was asked to stop it, which it has; nobody has told."""
    it = of()
    it.calls()
    return it


def started() -> Stopping:
    it = _stopped()
    it.has_stopped()
    return it


def _throttled() -> Stopping:
    """Nothing was asked of EC2 yet."""
    it = of()
    it.fails_once(Power.STOP, NotAccepted("RequestLimitExceeded"))
    with suppress(NotAccepted):
        it.calls()
    return it


def _asked(it: Stopping, *orders: tuple[str, Power]) -> list[str]:
    return [] if it.ordered == list(orders) else [f"EC2 was asked for {it.ordered}, and not for {list(orders)}"]
