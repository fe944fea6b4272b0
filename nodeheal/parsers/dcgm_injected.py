"""Predicts what the agent reports of a value that was injected into one of DCGM's fields. Pure.

From modules/health/DcgmHealthWatch.cpp of DCGM 4.6: MonitorMemVolatileDbes, MonitorInforom, MonitorPcie,
BuildXidMappings. The watches read XIDs since DCGM 4.4.1.
"""

XID_FIELD = 230
# Volatile double-bit errors, of the whole GPU and of its memory: the fields of `dcgmi health` and of DCGM's policies.
DOUBLE_BIT_FIELDS = (311, 319)
POLICY_DOUBLE_BIT = "POLICY_DBE"
CODES = frozenset({f"dcgm/{POLICY_DOUBLE_BIT}"})
_DOUBLE_BIT_FIELD, _INFOROM_FIELD, _PCIE_REPLAY_FIELD = 311, 84, 202
_XID_ERRORS = frozenset(
    (31, 32, 38, 39, 42, 43, 48, 54, 56, 58, 61, 62, 67, 73, 74, 78, 119, 120, 121, 137, 140),
)
_XIDS = {
    57: "CLOCKS_EVENT_POWER",
    60: "CLOCKS_EVENT_THERMAL",
    63: "PENDING_PAGE_RETIREMENTS",
    64: "ROW_REMAP_FAILURE",
    79: "FALLEN_OFF_BUS",
    94: "CONTAINED_ERROR",
    95: "UNCONTAINED_ERROR",
    **dict.fromkeys(_XID_ERRORS, "XID_ERROR"),
}


def health_code(field: int, value: str) -> str | None:
    """Return the catalog's code that `dcgmi health` reports for the value; None where no watch reads it or finds it
    wrong.
    """
    number = float(value)
    name = {
        XID_FIELD: _XIDS.get(int(number)),
        _DOUBLE_BIT_FIELD: "VOLATILE_DBE_DETECTED" if number > 0 else None,
        _INFOROM_FIELD: "CORRUPT_INFOROM" if number == 0 else None,
        _PCIE_REPLAY_FIELD: "PCI_REPLAY_RATE" if number > 0 else None,  # where the rate of its rise is above the limit
    }.get(field)
    return f"DCGM_FR_{name}" if name else None


def counter_code(field: int, value: str) -> str | None:
    """Return the catalog's code that the check of DCGM's counters reports for the value; None where it reads no such
    field.
    """
    return POLICY_DOUBLE_BIT if field in DOUBLE_BIT_FIELDS and float(value) > 0 else None
