"""The few surprises that travel as exceptions. Outcomes travel as data."""


class NodehealError(Exception):
    """Base of all."""


class NotAccepted(NodehealError):
    """The other side provably did not take the call (throttled, refused at the door): safe to repeat as it is."""


class NotFound(NodehealError):
    """Something that must exist does not. Says what and where it was looked for."""


class PlacementRefused(NodehealError):
    """The scheduler will not start a task where it was asked to. Says why, in the scheduler's words."""
