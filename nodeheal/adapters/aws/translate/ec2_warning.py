"""EC2 announces that it will reclaim a machine: spot interruption, rebalance recommendation, interruptible reservation.

Best effort; the warning comes about two minutes before the end, and a recommendation may come together with it.
"""

from pydantic import Field

from nodeheal.adapters.aws.translate.foreign import Foreign, ForeignEvent
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Family
from nodeheal.ports.signals import Draft

CODES = {
    names.EC2_SPOT_WARNING: "spot_interruption",
    names.EC2_RESERVATION_WARNING: "reservation_interruption",
    names.EC2_REBALANCE: "rebalance_recommended",
}


class _Detail(Foreign):
    instance_id: str = Field(alias="instance-id", min_length=1)
    instance_action: str = Field(default="", alias="instance-action")  # terminate, stop or hibernate


class Ec2WarningEvent(ForeignEvent):
    """Any of the three."""

    detail_type: str = Field(alias="detail-type")
    detail: _Detail


def from_ec2_warning(event: Ec2WarningEvent) -> list[Draft]:
    """Return one draft: EC2 names one machine in each event."""
    what, action = event.detail_type, event.detail.instance_action
    return [
        Draft(
            instance_id=event.detail.instance_id,
            source="aws.ec2",
            family=Family.host,
            code=CODES[what],
            key=event.event_id,
            observed_at=event.time,
            evidence=f"{what}{f': {action}' if action else ''}",
        )
    ]
