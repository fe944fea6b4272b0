"""The few surprises that travel as exceptions. Outcomes travel as data."""


class NodehealError(Exception):
    """Base of all."""


class NotAccepted(NodehealError):
    """The other side provably did not take the call (throttled, refused at the door): safe to repeat as it is."""


class NotFound(NodehealError):
    """Something that must exist does not. Says what and where it was looked for."""


class Conflict(NodehealError):
    """What is on record does not permit it. Says what stands there, and what to do instead."""


class Superseded(NodehealError):
    """The caller works for a submission or step that a newer one has replaced. There is nothing to do."""


class NoCapacity(NodehealError):
    """The provider has no machine to give now, anywhere that was asked. Nothing was launched. Says what is missing."""

    def __init__(self, missing: str, is_reservation: bool = False) -> None:
        super().__init__(missing)
        self.is_reservation = is_reservation  # the targeted reservation is full, and that is all


class MachineRefused(NodehealError):
    """The provider will not do this with this machine, and has not. Says why, in the provider's words."""


class NotEnrolled(NodehealError):
    """IAM denies the act, because what it is for does not bear the operator's tag. Nothing was done. Says which."""


class NotPermitted(NodehealError):
    """IAM does not permit this caller what they asked for. Nothing was done. Says which permission is missing."""


class PlacementRefused(NodehealError):
    """The scheduler will not start a task where it was asked to. Says why, in the scheduler's words."""


class HalfDone(NodehealError):
    """Some of what was asked is done and the rest is not. Says which; asking again goes on from there."""
