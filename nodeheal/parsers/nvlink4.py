"""Decodes the registers of XID 74, the NVLink error of Ampere and Hopper GPUs. Pure.

The bits are those of WORKFLOW_NVLINK_ERR in NVIDIA's XID catalog.
"""

import re

NVLINK4_XID = 74

# … NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)
_REGISTERS = re.compile(r"\((?P<values>(?:0x)?[0-9A-Fa-f]{1,8}(?:, ?(?:0x)?[0-9A-Fa-f]{1,8}){6})\)")
# The first, third, fourth and fifth register; the others have no meaning.
_MEANINGFUL = (0, 2, 3, 4)


def _mask(*bits: int) -> int:
    return sum(1 << bit for bit in bits)


# Each class with its bits in those four registers. The first class with a set bit names the fault.
_CLASSES = (
    # A connection that is loose or at its limit.
    ("signal", (_mask(8, 9, 12, 16, 17, 21, 22, 24, 28), 0, 0, 0)),
    # A memory of the link that failed its ECC or parity check.
    ("parity", (_mask(4, 5), _mask(0, 1, 2, 6), 0, _mask(18, 19, 21, 22, 24, 25, 27, 28))),
    # Errors that a reset clears, and that count only when they recur.
    ("reset", (_mask(27, 29), _mask(13, 16, 17, 18, 19), _mask(18), 0)),
    # Follows from another error.
    ("secondary", (_mask(1, 20), 0, _mask(16, 17), 0)),
    # The number of corrected errors exceeds a limit.
    ("ecc_limit", (0, 0, 0, _mask(20, 23, 26, 29))),
    ("ignorable", (_mask(0, 23, 30), 0, 0, 0)),
)
_LISTED = tuple(sum(masks[register] for _, masks in _CLASSES) for register in range(len(_MEANINGFUL)))
_UNLISTED = "reset"  # the vendor asks for a report of such a bit, and a reset clears every XID 74


def nvlink4_subcode(text: str) -> str | None:
    """Return `signal`, `parity`, `reset`, `secondary`, `ecc_limit` or `ignorable`: the gravest set bit.

    None without registers, or where no meaningful bit is set.

    `text`: what follows the number of the XID.
    """
    match = _REGISTERS.search(text)
    if match is None:
        return None
    all_values = [int(value, 16) for value in match["values"].split(",")]
    values = [all_values[register] for register in _MEANINGFUL]
    is_unlisted = any(value & ~listed for value, listed in zip(values, _LISTED, strict=True))
    for name, masks in _CLASSES:
        if any(value & mask for value, mask in zip(values, masks, strict=True)) or (name == _UNLISTED and is_unlisted):
            return name
    return None
