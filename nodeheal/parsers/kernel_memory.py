"""Parses the kernel's messages about the host's processors and memory: machine checks, EDAC, the OOM killer. Pure."""

import re

from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

# mce: [Hardware Error]: CPU 18: Machine Check Exception: 5 Bank 7: be00000001010091
_MACHINE_CHECK = re.compile(
    r"(?:mce: )?\[Hardware Error\]: CPU ?\d{1,6}: Machine Check(?: Exception| Event)?: {1,24}"
    r"(?:0x)?[0-9a-f]{1,16} Bank \d{1,4}: (?:0x)?(?P<status>[0-9a-f]{1,16})(?![0-9a-f])",
    re.ASCII,
)
_UNCORRECTED_BIT, _CONTEXT_CORRUPT_BIT = 1 << 61, 1 << 57
# The beginning of AMD's decoder's lines, and other kernel messages.
_DECODED = (
    (re.compile(r"(?:mce: )?\[Hardware Error\]: (?:System Fatal error|Fatal error)"), "fatal"),
    (re.compile(r"(?:mce: )?\[Hardware Error\]: Uncorrected[, ]"), "uncorrected"),
    (re.compile(r"EDAC MC\d{1,4}: (?:[1-9]\d{0,9} )?UE[ :]", re.ASCII), "edac_ue"),
    (
        re.compile(
            r"Kernel panic - not syncing: (?:Fatal (?:local )?[Mm]achine [Cc]heck|Machine [Cc]heck"
            r"|Fatal hardware error|Timeout: Not all CPUs entered broadcast exception handler)"
        ),
        "panic",
    ),
    # A clean or free page is dropped without harm.
    (
        re.compile(r"Memory failure: 0x[0-9a-f]{1,16}: recovery action for (?!clean |free |already )"),
        "memory_failure",
    ),
)
_MEMORY_PREFIXES = ("mce:", "[Hardware Error]", "EDAC ", "Kernel panic", "Memory failure")

# Out of memory: Killed process 4711 (python3) …   Memory cgroup out of memory: Kill process 4711 (python3) score …
_OOM = re.compile(
    r"(?:(?P<host>Out of memory)(?: \([a-z_]{1,40}\))?|Memory cgroup out of memory): "
    r"Kill(?:ed)? process (?P<pid>\d{1,10})[ ,]",
    re.ASCII,
)


def parse_machine_check(message: str) -> Finding | None:
    """Return an error that processor or memory could not correct. A corrected one is no fault."""
    if not message.startswith(_MEMORY_PREFIXES):
        return None
    check = _MACHINE_CHECK.match(message)
    if check is not None:
        is_uncorrected = int(check["status"], 16) & (_UNCORRECTED_BIT | _CONTEXT_CORRUPT_BIT)
        return Finding(Family.mce, "uncorrected", None, message) if is_uncorrected else None
    code = next((code for words, code in _DECODED if words.match(message)), None)
    return None if code is None else Finding(Family.mce, code, None, message)


def parse_oom(message: str) -> Finding | None:
    """Return one finding for each kill: of the many lines around it only the one with the killed process counts."""
    kill = _OOM.match(message)
    if kill is None:
        return None
    code = "oom_kill" if kill["host"] else "oom_kill_cgroup"
    return Finding(Family.oom, code, None, message, pid=int(kill["pid"]))
