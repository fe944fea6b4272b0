"""What a story of the sandbox comes to, for comparison with other worlds."""

from typing import TypeVar

Seen = TypeVar("Seen")


XID_74 = (
    "NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, "
    "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
)


XID_73 = "NVRM: Xid (PCI:0000:b9:00): 73, pid=<unknown>, name=<unknown>, drill"


def proves_itself(state: str, after: str) -> bool:
    """The second more that a node waits which is proven quicker than the policy trusts: how fast the machine is decides
    whether there is one."""
    return (state, after) in (("Wait for condition", "Return to service"), ("WAIT", "RETURN"))


HEALED = [
    "Isolate node",
    "Freeze evidence",
    "Reboot node",
    "Run diagnostics",
    "Return to service",
    "Stop gang",
    "Launch gang",
    "End incident",
    "Recovered",
]


SWAPPED = ["Isolate node", "Freeze evidence", "Replace node", "Run diagnostics", "Return to service"]


# The path of every story that the demo knows by name.
PATHS = {
    "fixed-by-reboot": HEALED,
    "dcgm-policy": HEALED,
    "gpu-reset": HEALED,
    "gpu-reset-refused": HEALED,  # the state of the reset is that of the reboot after it
    "fixed-by-replacement": [
        *HEALED[:4],
        "Replace node",
        "Run diagnostics",
        *HEALED[5:8],
        "Escalated",
    ],
    "fixed-by-stop-start": [*HEALED[:4], *HEALED[2:]],
    "replaced-by-group": [*SWAPPED, *HEALED[5:]],
    "replaced-from-template": [*SWAPPED, *HEALED[5:]],
    "no-capacity": [
        *SWAPPED[:3],
        "Wait for condition",
        "Replace node",
        *HEALED[7:8],
        "Escalated",
    ],
    "never-returns": [*HEALED[:3], "Replace node", "Run diagnostics", *HEALED[5:8], "Escalated"],
    "approval-given": ["Wait for approval", *HEALED],
    "approval-refused": ["Wait for approval", *HEALED[7:8], "Escalated"],
    "approval-ignored": ["Wait for approval", *HEALED[7:8], "Escalated"],
    "budget-full": ["Isolate node", "Wait for condition", *HEALED],
    "breaker-open": ["Wait for condition", *HEALED[7:8], "Observed only"],
    "two-faults": HEALED,
    "two-nodes": [],  # of each of the two, and in whatever order: see SIDE_BY_SIDE
    "tasks-of-others": HEALED,
    "hung-collective": ["Freeze evidence", "Stop gang", "Launch gang", "End incident", "Recovered"],
    "loss-diverged": ["Stop gang", "Launch gang", "End incident", "Recovered"],
    "paused": [*HEALED[7:8], "Observed only"],
    "stale-event": HEALED,
}


def done(*steps: str) -> list[list[str]]:
    """Steps that came to what they were for."""
    return [[step, "DONE"] for step in steps]


OUT = done("ISOLATE", "FREEZE_EVIDENCE")


BACK = done("RETURN", "RESTART_WORKLOAD")


REBOOTED = [*OUT, *done("REBOOT", "DIAGNOSE"), *BACK]


REPLACED = [*OUT, *done("REPLACE", "DIAGNOSE"), *BACK]


FAILS = ["DIAGNOSE", "FAILED"]


# What came of each of their steps.
RESULTS = {
    "fixed-by-reboot": REBOOTED,
    "dcgm-policy": REBOOTED,
    "gpu-reset": REBOOTED,
    "gpu-reset-refused": [*OUT, ["REBOOT", "FAILED"], *done("REBOOT", "DIAGNOSE"), *BACK],
    "fixed-by-replacement": [*OUT, *done("REBOOT"), FAILS, *done("REPLACE", "DIAGNOSE", "RESTART_WORKLOAD")],
    "fixed-by-stop-start": [*OUT, *done("REBOOT"), FAILS, *done("REBOOT", "DIAGNOSE"), *BACK],
    "replaced-by-group": REPLACED,
    "replaced-from-template": REPLACED,
    "no-capacity": [*OUT, ["REPLACE", "REFUSED"], *done("WAIT"), ["REPLACE", "REFUSED"]],
    "never-returns": [*OUT, ["REBOOT", "TIMED_OUT"], *done("REPLACE", "DIAGNOSE", "RESTART_WORKLOAD")],
    "approval-given": [*done("WAIT"), *REBOOTED],
    "approval-refused": [["WAIT", "REFUSED"]],
    "approval-ignored": [["WAIT", "TIMED_OUT"]],
    "budget-full": [["ISOLATE", "REFUSED"], *done("WAIT"), *REBOOTED],
    "breaker-open": done("WAIT"),
    "two-faults": REBOOTED,
    "tasks-of-others": REBOOTED,
    "hung-collective": done("FREEZE_EVIDENCE", "RESTART_WORKLOAD"),
    "loss-diverged": done("RESTART_WORKLOAD"),
    "paused": [],
    "stale-event": REBOOTED,
}


# What each of two nodes goes through that fail in one moment, and what came of it; which goes first is not told.
SIDE_BY_SIDE = sorted(
    [
        (HEALED, [*REBOOTED[:-1], ["RESTART_WORKLOAD", "REFUSED"]]),  # the job is left to the other one
        (["Isolate node", "Wait for condition", *HEALED], [["ISOLATE", "REFUSED"], *done("WAIT"), *REBOOTED]),
    ]
)


def in_its_turn(seen: list[Seen]) -> list[Seen]:
    """However often it was called in vain before its turn had come, it has waited once."""
    kept: list[Seen] = []
    for one in seen:
        kept.append(one)
        if kept[-2:] == kept[-4:-2]:
            del kept[-2:]
    return kept


def outcomes(results: list[list[str]], *, waits: bool) -> list[list[str]]:
    """What came of each step. Without the second in which a node proves itself, which may be over by then."""
    kept = [
        one
        for number, (one, after) in enumerate(zip(results, [*results[1:], [""]], strict=False))
        if one[0] != "WAIT" or number == 0 or (waits and not proves_itself(one[0], after[0]))
    ]
    return [one for one, before in zip(kept, [[], *kept], strict=False) if one != before]
