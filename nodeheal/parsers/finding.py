"""Defines the result of a parser, before it becomes an event or an answer to an operator."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeheal.contract.vocabulary import Family, Verdict


@dataclass(frozen=True)
class Finding:
    """One fault in the terms of the hardware, its driver or its tool. The catalog defines its meaning."""

    family: Family
    code: str  # as in the catalog: 79, 20034, DCGM_FR_VOLATILE_DBE_DETECTED, HBM_UNCORRECTABLE_ERROR
    component: str | None  # a PCI address like 0000:b9:00.0, a GPU UUID, a Neuron device, a NIC
    message: str  # the text of the kernel or the tool
    subcode: str | None = None  # the detail beyond the code, as in the catalog; see kernel_line
    pid: int | None = None  # the process that the driver names
    verdict: Verdict | None = None  # of an operator's own check, or UNKNOWN in doubt; for others the catalog has it


@dataclass(frozen=True)
class ToolReport:
    """The result of a tool's whole output. Nothing untested counts as healthy."""

    verdict: Verdict
    failed_tests: tuple[str, ...] = ()
    failed_components: tuple[str, ...] = ()  # GPU-…, 0000:b9:00.0, "GPU 3", neuron0, rdmap0s6: the tool's own names
    findings: tuple[Finding, ...] = field(default=())
    reason: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)  # by name; see measures
    undone_tests: tuple[str, ...] = ()  # neither passed nor failed
    is_only_undone: bool = False  # every other test has passed, so that doing these settles it
