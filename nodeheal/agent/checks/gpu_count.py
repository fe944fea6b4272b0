"""Checks that all GPUs are on the PCI bus and registered with the driver.

A GPU that falls off the bus while the driver runs stays listed here; the check gpu_state reports it.
"""

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State
from nodeheal.agent.checks.hardware import (
    Expected,
    expected_gpus,
    gpus_on_bus,
    gpus_with_driver,
    has_nvidia,
    nvidia_driver,
)
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

CODE = "gpu_count_mismatch"


def why_not(place: CheckContext) -> str:
    """Require NVIDIA GPUs, and a known number of them."""
    if not has_nvidia(place):
        return "no NVIDIA GPU: none by the driver, the PCI bus or the instance type"
    return (
        ""
        if expected_gpus(place).count or gpus_on_bus(place)
        else "the number of GPUs is not known: set `accelerators` in the configuration"
    )


def look(place: CheckContext, _: State) -> NodeCheckResult:
    """Count the GPUs."""
    has_driver = nvidia_driver(place).exists()
    return judge(expected_gpus(place), gpus_on_bus(place), gpus_with_driver(place) if has_driver else None)


def sees_missing(place: CheckContext) -> bool:
    """Whether this check reports missing GPUs, for any reason."""
    return bool(look(place, {}).problems)


def judge(expected: Expected, on_bus: tuple[str, ...], with_driver: tuple[str, ...] | None) -> NodeCheckResult:
    """Judge the counts. `with_driver` is None where the driver is not loaded."""
    registered = with_driver or ()
    unclaimed = sorted(set(on_bus) - set(registered))
    wanted = expected.count or (len(on_bus) if with_driver is not None else 0)
    summary = f"{max(len(on_bus), len(registered))} GPUs"
    if len(registered) >= wanted:
        return NodeCheckResult(summary=summary)
    if with_driver is None:
        detail = "the driver is not loaded"
    elif unclaimed:
        detail = f"the driver has not registered {', '.join(unclaimed)}"
    else:
        detail = f"{len(on_bus)} on the PCI bus"
    message = f"{len(registered)} of {wanted} GPUs are there ({expected.by or 'as the bus shows'}): {detail}"
    return NodeCheckResult((Problem(Finding(Family.host, CODE, None, message), message),), summary=summary)


CHECK = NodeCheck(
    name="gpu_count",
    about="GPUs on the bus and with the driver, against what the node should have",
    interval_seconds=60.0,
    deadline_seconds=10.0,
    why_not=why_not,
    look=look,
    confirm=2,  # while the driver is reloaded, it shows none for a moment
    settle_seconds=180.0,
)
