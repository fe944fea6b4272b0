"""What a parser found, before it becomes an event or an answer to an operator."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeheal.contract.vocabulary import Family, Verdict


@dataclass(frozen=True)
class Finding:
    """One fault as the hardware, its driver or its tool words it. What it means is the catalog's business."""

    family: Family
    code: str  # as the catalog spells it: 79, 20034, DCGM_FR_VOLATILE_DBE_DETECTED, HBM_UNCORRECTABLE_ERROR
    component: str | None  # a PCI address as 0000:b9:00.0, a GPU uuid, a Neuron device, a NIC
    message: str  # the kernel's or the tool's own words
    subcode: str | None = None  # what the line says beyond its code, as the catalog spells it; see kernel_line
    pid: int | None = None  # the process that the driver names
    verdict: Verdict | None = None  # as a check of the operator's own says it; of all others the catalog does


@dataclass(frozen=True)
class Report:
    """What a tool's whole output says about a node. Nothing counts as healthy that was not tested."""

    verdict: Verdict
    failed_tests: tuple[str, ...] = ()
    failed_components: tuple[str, ...] = ()  # GPU-…, 0000:b9:00.0, "GPU 3", neuron0, rdmap0s6 as the tool names them
    findings: tuple[Finding, ...] = field(default=())
    reason: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)  # by name; see measures
