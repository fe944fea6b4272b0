"""Decodes the NVLink 5 XIDs (144 to 150): the unit, and its complaint. Pure.

The numbers are those of NVIDIA's XID catalog, where V1 is the layout before driver R575 and V2 the one since.
"""

import re

NVLINK5_XIDS = range(144, 151)

_UNIT = re.compile(
    r",\s{0,8}(?!XC[\d ])(?P<unit>[A-Z][A-Z0-9_]{1,31}(?:/[A-Z][A-Z0-9_]{1,31})?)(?=[\s(\[]|$)", re.ASCII
)
_REGISTERS = re.compile(r"[(\[](?P<intr_info>0x[0-9A-Fa-f]{1,8})[ ,]{1,4}(?P<status>0x[0-9A-Fa-f]{1,8})(?=[ ,)\]])")

# A unit by its short name, and the register that the catalog uses.
_OTHER_NAMES = {"NETIR": "NETIR_INT", "NETIR_LINK_DOWN": "NETIR_LINK_EVT"}
# Units whose complaint is in the interrupt word rather than in the status word.
_TOLD_BY_INTERRUPT = ("NETIR_LINK_EVT", "NETIR_INT")

# Units whose non-fatal statuses the driver may promote: then the line's own word counts.
_PROMOTED = "RLW_RXPIPE"
_FATAL = re.compile(r"\bFatal\b", re.ASCII)

# V1: the low ten bits; the lowest five of them count the XIDs from 144 as 1.
_UNITS_V1 = {
    0x021: "SAW_MVB",
    0x062: "RLW_CTRL",
    0x082: "RLW_REMAP",
    0x0A2: "RLW_RSPCOL",
    0x0C2: "RLW_RXPIPE",
    0x0E2: "RLW_SRC_TRACK",
    0x102: "RLW_TAGSTATE",
    0x123: "TLW_CTRL",
    0x143: "TLW_RX",
    0x163: "TLW_TX",
    0x184: "TREX",
    0x005: "NVLPW",
    0x006: "NETIR_INT",
    0x1C6: "NETIR_LINK_EVT",
    0x226: "NETIR_BER_EVENT",
    0x246: "NETIR_MFDE_EVENT",
}
# V2: the low seven bits.
_UNITS_V2 = {
    144: {1: "SAW_MVB"},
    145: {
        3: "RLW_CTRL",
        4: "RLW_REMAP",
        5: "RLW_RSPCOL",
        6: "RLW_RXPIPE",
        7: "RLW_SRC_TRACK",
        8: "RLW_TAGSTATE",
    },
    146: {9: "TLW_CTRL", 10: "TLW_RX_PIPE0", 11: "TLW_RX_PIPE1", 12: "TLW_TX_PIPE0", 13: "TLW_TX_PIPE1"},
    147: {14: "TREX"},
    148: {15: "NVLPW"},
    149: {17: "NETIR_LINK_EVT", 19: "NETIR_BER_EVENT", 20: "NETIR_MFDE_EVENT", 24: "NETIR_INT"},
    150: {25: "MSE_WATCHDOG"},
}


def nvlink5_subcode(xid: int, text: str) -> str | None:
    """Return `NETIR_LINK_EVT/37`, `RLW_REMAP/0x00000004`, `RLW_RXPIPE/0x00000004/fatal`; the unit alone without
    registers.

    None without a unit.

    `text`: what follows the number of the XID.
    """
    registers = _REGISTERS.search(text)
    named = _UNIT.search(text)
    unit = _plain(named["unit"]) if named else None
    if registers is None:
        return unit
    intr_info, status = int(registers["intr_info"], 16), int(registers["status"], 16)
    unit = unit or _decoded(xid, intr_info)
    if unit is None:
        return None
    detail = str(intr_info >> 20 & 0x3F) if unit in _TOLD_BY_INTERRUPT else f"0x{status:08x}"
    promoted = "/fatal" if unit == _PROMOTED and _FATAL.search(text) else ""
    return f"{unit}/{detail}{promoted}"


def _plain(unit: str) -> str:
    last = unit.rpartition("/")[2]
    return _OTHER_NAMES.get(last, last)


def _decoded(xid: int, intr_info: int) -> str | None:
    if intr_info & 0x1F == xid - NVLINK5_XIDS.start + 1 and intr_info & 0x3FF in _UNITS_V1:
        return _UNITS_V1[intr_info & 0x3FF]
    return _UNITS_V2[xid].get(intr_info & 0x7F)
