"""Parses the output of nvidia-smi: XML, log, CSV query, plain table, list, or its error sentences. Pure.

The format is detected. A list (CSV, `-L`) has no end mark, so it is healthy only if the expected number of GPUs is
known; the query's `count` field gives it, too.
"""

import re
from collections.abc import Iterator, Sequence

from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.nvidia_smi_fields import CODES as FIELD_CODES
from nodeheal.parsers.nvidia_smi_fields import Doubt, judge
from nodeheal.parsers.nvidia_smi_log import read_log, read_xml
from nodeheal.parsers.nvidia_smi_readers import UUID, GpuListing, address, read_csv, read_list, read_table
from nodeheal.parsers.tool_report import ReportedFault, fault, first_line, sum_up, unknown

_FAILED, _UNKNOWN = Verdict.FAILED, Verdict.UNKNOWN
# nvidia-smi's sentences, the more specific ones first: one line may contain several.
_SENTENCES = (
    (re.compile(r"couldn't communicate with the NVIDIA driver", re.I), "DRIVER_NOT_LOADED", _FAILED),
    (re.compile(r"Driver/library version mismatch", re.I), "DRIVER_MISMATCH", _FAILED),
    (re.compile(r"No devices were found", re.I), "NO_DEVICES", _FAILED),
    (re.compile(r"(?:nvml|GPU ).{0,120}GPU is lost", re.I), "GPU_LOST", _FAILED),
    # Whatever the error is called: the driver knows a GPU that it cannot open, mostly one that fell off the bus.
    (re.compile(r"Unable to determine the device handle for", re.I), "GPU_LOST", _FAILED),
    (re.compile(r"GPU requires reset", re.I), "RESET_REQUIRED", _FAILED),
    (re.compile(r"infoROM is corrupted", re.I), "INFOROM_CORRUPT", Verdict.DEGRADED),
    # In a container this is as often lost access as a lost GPU.
    (re.compile(r"Failed to initialize NVML: Unknown Error", re.I), "UNKNOWN_ERROR", _UNKNOWN),
)
CODES = FIELD_CODES | frozenset(f"nvml/{code}" for code in ("GPU_MISSING", *(code for _, code, _ in _SENTENCES)))
# Other lines around nvidia-smi's output; each begins a sentence, never a row.
_CHATTER = re.compile(
    r"(?:Unable|Failed|WARNING|Warning|Error|NVIDIA-SMI has|Make sure|No devices|Reboot|Use |Treating)\b"
)
_GPU_NUMBER = re.compile(r"\bGPU ?(\d{1,3})\b(?!:[0-9A-Fa-f]{2})")
_LINE_CHARACTERS = 2000


def parse_nvidia_smi(text: str, expected: int = 0) -> ToolReport:
    """Parse an output of a node with this many GPUs (0: unknown)."""
    xml = read_xml(text)
    lines = [
        line[:_LINE_CHARACTERS].rstrip() for line in (text if xml is None else text[: text.find("<")]).splitlines()
    ]
    notices = [notice for line in lines if (notice := _sentence(line))]
    rows = [line for line in lines if line.strip() and not _is_sentence(line)]
    listing = xml or read_log(rows) or read_table(rows) or read_list(rows) or read_csv(rows)
    if listing is None and not notices:
        return unknown(f"not understood as nvidia-smi's output: {first_line(text)}" if text.strip() else "empty output")
    return _judge(listing or GpuListing((), has_end=True), notices, expected)


def _judge(listing: GpuListing, notices: Sequence[ReportedFault], expected: int) -> ToolReport:
    answers = [answer for reading in listing.readings for answer in judge(reading)]
    faults = [
        *notices,
        *(answer for answer in answers if isinstance(answer, ReportedFault)),
        *_missing(listing, expected),
    ]
    doubts = [listing.doubt, *(answer.text for answer in answers if isinstance(answer, Doubt))]
    count = len(listing.readings)
    if not count and not notices:
        doubts.append("no GPU is shown")
    summary = "show no fault" if listing.tells_health else "are listed; the list does not contain their health"
    if not listing.has_end and not expected:
        summary = f"{summary}; the expected number is not known"
    return sum_up(faults, f"{count} GPUs {summary}", next(filter(None, doubts), ""), _unproven(listing, expected))


def _unproven(listing: GpuListing, expected: int) -> str:
    if not listing.tells_health and not expected:
        return f"{len(listing.readings)} GPUs are listed; the list does not contain their health"
    return ""


def _missing(listing: GpuListing, expected: int) -> Iterator[ReportedFault]:
    """Return the missing GPUs: gaps in the numbers, then a difference to the count."""
    numbers = [reading.index for reading in listing.readings if reading.index is not None]
    holes = sorted(set(range(max(numbers) + 1)) - set(numbers)) if len(numbers) > 1 and max(numbers) < 1024 else []
    for hole in holes:
        yield fault(_FAILED, Family.nvml, "GPU_MISSING", f"GPU {hole}", f"number {hole} is missing")
    count, should = len(listing.readings), max(expected, listing.attached or 0)
    # The rest of a cut-off output may be healthy.
    if count and not listing.doubt and count + len(holes) < should:
        yield fault(_FAILED, Family.nvml, "GPU_MISSING", None, f"{count} of {should} GPUs are shown")


def _sentence(line: str) -> ReportedFault | None:
    # A row of the table or of the CSV contains the same words as a field.
    if line.startswith("|") or "," in line.partition(":")[0]:
        return None
    for pattern, code, verdict in _SENTENCES:
        if pattern.search(line):
            return fault(verdict, Family.nvml, code, _component(line), line.strip())
    return None


def _is_sentence(line: str) -> bool:
    return _sentence(line) is not None or _CHATTER.match(line) is not None


def _component(line: str) -> str | None:
    uuid, number = UUID.search(line), _GPU_NUMBER.search(line)
    return address(line) or (uuid[0] if uuid else None) or (f"GPU {number[1]}" if number else None)
