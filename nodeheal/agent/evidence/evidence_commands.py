"""Lists the evidence to save of a node before any action: commands with deadlines and size limits."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.checks.dcgm_host import dcgmi
from nodeheal.agent.runtime.config import AgentConfig

KIB, MIB = 1024, 1024 * 1024
QUICK_SECONDS, TOOL_SECONDS, REPORT_SECONDS = 10.0, 30.0, 300.0
# DCGM's fields: XID, ECC by kind and age, retired and remapped memory, temperatures, power, clocks and their throttle
# reasons, PCIe replays, NVLink errors.
DCGM_FIELDS = "230,310,311,312,313,319,390,391,392,393,394,395,140,150,155,100,101,112,202,409,419,429"
# neuron-ls prints the command line of each process (its user guide): the program is kept, its arguments are dropped.
_ARGUMENTS = re.compile(rb'("command"\s*:\s*"[^"\\\s]*)(?:[^"\\]|\\.)*')


@dataclass(frozen=True)
class EvidenceCommand:
    """One file of the evidence, and the command that produces it."""

    name: str
    command: tuple[str, ...]
    seconds: float = QUICK_SECONDS
    limit_bytes: int = 2 * MIB
    makes: str = ""  # the file that the command writes beside its output, where that is the evidence
    cut: re.Pattern[bytes] | None = None  # only the first group of each match in the output is kept


def evidence_commands(config: AgentConfig, with_bug_report: bool) -> Iterator[EvidenceCommand]:
    """Return all evidence commands, the most valuable first: the last ones are dropped for lack of room."""
    yield from _kernel(config)
    yield EvidenceCommand("nvidia-smi.xml", ("nvidia-smi", "-q", "-x"), TOOL_SECONDS, 4 * MIB)
    yield EvidenceCommand("dcgm-health.json", tuple(dcgmi(config, "health", "-c", "-j")), TOOL_SECONDS)
    yield EvidenceCommand("dcgm-fields.txt", tuple(dcgmi(config, "dmon", "-e", DCGM_FIELDS, "-c", "1")), TOOL_SECONDS)
    yield EvidenceCommand("nvlink-errors.txt", ("nvidia-smi", "nvlink", "-e"), TOOL_SECONDS)
    yield EvidenceCommand("neuron-ls.json", ("neuron-ls", "--json-output"), TOOL_SECONDS, cut=_ARGUMENTS)
    for what in ("neuron", "network", "processes", "stuck", "last-boot"):
        yield EvidenceCommand(
            f"{what}.txt", (sys.executable, "-m", "nodeheal.agent.evidence.host_snapshot", what), limit_bytes=4 * MIB
        )
    yield EvidenceCommand("stacks.txt", (sys.executable, "-m", "nodeheal.agent.evidence.stacks"), TOOL_SECONDS, 4 * MIB)
    yield EvidenceCommand("pci.txt", ("lspci", "-vvv"), limit_bytes=4 * MIB)
    yield EvidenceCommand("disks.txt", ("df", "-h"), limit_bytes=256 * KIB)
    yield EvidenceCommand("mounts.txt", ("cat", "/proc/mounts"), limit_bytes=256 * KIB)
    yield EvidenceCommand("load.txt", ("cat", "/proc/loadavg", "/proc/uptime", "/proc/meminfo"), limit_bytes=256 * KIB)
    yield EvidenceCommand(
        "agent.txt", (sys.executable, "-m", "nodeheal.agent.main", "--version"), limit_bytes=256 * KIB
    )
    if with_bug_report:
        made, command = "nvidia-bug-report.log.gz", ("nvidia-bug-report.sh", "--safe-mode")
        yield EvidenceCommand("nvidia-bug-report.txt", command, REPORT_SECONDS, 32 * MIB, made)


def _kernel(config: AgentConfig) -> Iterator[EvidenceCommand]:
    """Return commands for the end of each kernel log: the last messages matter."""
    tail = (sys.executable, "-m", "nodeheal.agent.evidence.host_snapshot", "log-end")
    for number, log in enumerate(config.kernel_log):
        if log.kind == "file":
            path = Path(log.path)
            yield EvidenceCommand(f"kernel-log-{number}.txt", (*tail, str(path)), limit_bytes=4 * MIB)
            yield EvidenceCommand(f"kernel-log-{number}-before.txt", (*tail, f"{path}.1"), limit_bytes=4 * MIB)
        else:
            yield EvidenceCommand("kernel-ring.txt", ("dmesg", "--kernel", "--time-format", "iso"), limit_bytes=4 * MIB)
    journal = ("journalctl", "-k", "-o", "short-iso-precise", "--no-pager", "-n", "20000")
    yield EvidenceCommand("kernel-journal.txt", (*journal, "-b", "0"), TOOL_SECONDS, 4 * MIB)
    yield EvidenceCommand("kernel-journal-before.txt", (*journal, "-b", "-1"), TOOL_SECONDS, 4 * MIB)
