"""Counts an incident's cost over the real state machines and services, see tests/workflows/bill.py."""

from tests.workflows.bill import bill

REBOOTED, DEAREST, OBSERVED = "rebooted, proven, job resumed", "rebooted in vain, spare swapped in", "observed only"


def measure_incident() -> dict[str, float]:
    """Return transitions and dollars, the owner's emails included. Counted, so one run is enough."""
    measured: dict[str, float] = {}
    for name, story in (("reboot", REBOOTED), ("dearest", DEAREST), ("observed", OBSERVED)):
        billed = bill(story)
        measured[f"{name}_transitions"] = round(billed.counted["transition"])
        measured[f"{name}_usd"] = round(billed.dollars, 6)
    return measured
