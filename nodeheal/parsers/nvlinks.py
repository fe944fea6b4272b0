"""Names the state of a node's NVLinks. The CLI imports this for its options, so it is short."""

from enum import StrEnum


class NvLinks(StrEnum):
    """The state of a node's NVLinks. Without it, what DCGM says of them is no evidence."""

    UP = "up"
    TRAINING = "training"  # the fabric is not complete yet
    ABSENT = "absent"  # this product has none, or uses none under MIG
    UNKNOWN = "unknown"


# Of a report on a machine that has none.
LEFT_OUT = "errors of NVLinks are left out, as this machine has no NVLinks"
