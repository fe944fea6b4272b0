"""What a check found on a node, before it becomes an event."""

from dataclasses import dataclass

from nodeheal.contract.vocabulary import Family


@dataclass(frozen=True)
class Finding:
    """One fault as the hardware or its driver words it. What it means is the control plane's business."""

    family: Family
    code: str
    component: str | None  # a PCI address as 0000:b9:00.0
    message: str
