"""Defines what each field of nvidia-smi means for a GPU's health. Pure.

A field has its name in the CSV query (`remapped_rows.pending`) or its path in the XML and the plain `-q` log
(`remapped_rows/remapped_row_pending`). Fields without a meaning for health are not listed.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.tool_report import ReportedFault, fault

_LONGEST_NUMBER = 20


@dataclass(frozen=True)
class Reading:
    """The values of one GPU: its address, UUID or number, and its fields in the order printed."""

    component: str
    index: int | None
    fields: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Doubt:
    """A health field with an unknown value: cut off, or new."""

    text: str


@dataclass(frozen=True)
class _Check:
    """A field, and the meaning of its values."""

    field: re.Pattern[str]
    is_raised: "Callable[[str], bool | None]"  # None: the value is unknown
    verdict: Verdict
    code: str
    subcode: str | None = None


def _count(value: str) -> bool | None:
    return int(value) > 0 if value.isdecimal() and len(value) <= _LONGEST_NUMBER else None


def _flag(value: str) -> bool | None:
    return {
        **dict.fromkeys(("yes", "active", "true", "1"), True),
        **dict.fromkeys(("no", "not active", "false", "0"), False),
    }.get(value.lower())


def _other_than(*sound: str) -> Callable[[str], bool | None]:
    def is_other(value: str) -> bool | None:
        return value.lower() not in sound

    return is_other


def _word(**words: bool) -> Callable[[str], bool | None]:
    def is_raised(value: str) -> bool | None:
        return words.get(re.sub(r"\W+", "_", value.lower()))

    return is_raised


def _has_bit(bit: int) -> Callable[[str], bool | None]:
    def is_set(value: str) -> bool | None:
        return bool(int(value, 16) & bit) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", value) else None

    return is_set


def _check(field: str, rule: Callable[[str], bool | None], verdict: Verdict, code: str, sub: str = "") -> _Check:
    return _Check(re.compile(field), rule, verdict, code, sub or None)


_CLOCKS = r"clocks_(?:event|throttle)_reasons"
_CLOCK = r"(?:clocks_(?:event|throttle)_reason_)?"
# The bits of NVML's clocks event reasons.
_HW_THERMAL, _HW_POWER_BRAKE = 0x40, 0x80
_FABRIC = r"fabric[/.](?:health[/.])?"
_FAILED, _DEGRADED = Verdict.FAILED, Verdict.DEGRADED

CHECKS = (
    _check(
        r"ecc_errors/volatile/(?:[sd]ram_uncorrectable\w*|double_bit/\w+)|ecc\.errors\.uncorrected\.volatile\.[\w.]+"
        r"|volatile_uncorr_ecc|mig_devices/.*volatile_count/sram_uncorrectable",
        _count,
        _FAILED,
        "ECC_UNCORRECTED_VOLATILE",
    ),
    _check(
        r"ecc_errors/aggregate/(?:[sd]ram_uncorrectable\w*|double_bit/\w+)|ecc\.errors\.uncorrected\.aggregate\.[\w.]+",
        _count,
        _DEGRADED,
        "ECC_UNCORRECTED_AGGREGATE",
    ),
    _check(r"ecc_errors/(?:aggregate/)?sram_threshold_exceeded", _flag, _FAILED, "SRAM_THRESHOLD_EXCEEDED"),
    _check(r"ecc_errors/channel_repair_pending", _flag, _DEGRADED, "CHANNEL_REPAIR_PENDING"),
    _check(r"ecc_errors/tpc_repair_pending", _flag, _DEGRADED, "TPC_REPAIR_PENDING"),
    _check(r"ecc_errors/unrepairable_memory", _flag, _FAILED, "UNREPAIRABLE_MEMORY"),
    _check(
        r"retired_pages/pending_(?:retirement|blacklist|page_blacklist)|retired_pages\.pending",
        _flag,
        _DEGRADED,
        "RETIRED_PAGES_PENDING",
    ),
    _check(
        r"remapped_rows/(?:remapped_row_)?pending|remapped_rows\.pending",
        _flag,
        _DEGRADED,
        "REMAP_PENDING",
    ),
    _check(
        r"remapped_rows/(?:remapped_row_failure|remapping_failure_occurred)|remapped_rows\.failure",
        _flag,
        _FAILED,
        "REMAP_FAILED",
    ),
    _check(
        r"(?:gpu_reset_status/)?(?:gpu_)?reset_required|reset_status\.reset_required",
        _flag,
        _FAILED,
        "RESET_REQUIRED",
    ),
    _check(
        r"(?:gpu_reset_status/)?drain_and_reset_recommended|reset_status\.drain_and_reset_recommended",
        _flag,
        _FAILED,
        "RECOVERY_ACTION",
        "DRAIN_AND_RESET",
    ),
    _check(
        rf"{_CLOCKS}(?:/hw_slowdown)?[/.]{_CLOCK}hw_thermal_slowdown",
        _flag,
        _DEGRADED,
        "THERMAL_SLOWDOWN",
    ),
    _check(rf"{_CLOCKS}\.active", _has_bit(_HW_THERMAL), _DEGRADED, "THERMAL_SLOWDOWN"),
    _check(
        rf"{_CLOCKS}(?:/hw_slowdown)?[/.]{_CLOCK}hw_power_brake_slowdown",
        _flag,
        _DEGRADED,
        "POWER_BRAKE",
    ),
    _check(rf"{_CLOCKS}\.active", _has_bit(_HW_POWER_BRAKE), _DEGRADED, "POWER_BRAKE"),
    # A GPU that has just booted joins the fabric within a minute. One output does not show how long it has been trying,
    # so the GPU is not OK and has not failed.
    _check(
        r"fabric[/.]state", _word(not_started=True, in_progress=True, completed=False), _DEGRADED, "FABRIC_NOT_READY"
    ),
    _check(r"fabric[/.]status", _other_than("success"), _FAILED, "FABRIC_UNHEALTHY"),
    _check(rf"{_FABRIC}route_unhealthy", _flag, _FAILED, "FABRIC_UNHEALTHY"),
    _check(rf"{_FABRIC}incorrect_configuration", _other_than("none"), _FAILED, "FABRIC_MISCONFIGURED"),
    _check(rf"{_FABRIC}bandwidth", _word(degraded=True, full=False), _FAILED, "FABRIC_DEGRADED"),
    _check(rf"{_FABRIC}(?:route|access_timeout)_recovery(?:_in_progress)?", _flag, _DEGRADED, "FABRIC_RECOVERING"),
    _check(
        rf"{_FABRIC}summary", _word(unhealthy=True, healthy=False, limited_capacity=False), _FAILED, "FABRIC_UNHEALTHY"
    ),
    _check(
        rf"{_FABRIC}summary", _word(limited_capacity=True, healthy=False, unhealthy=False), _FAILED, "FABRIC_DEGRADED"
    ),
)
# A past event, and a finding without a reason, are dropped where another finding of the same GPU is more specific.
_OUTWEIGHED_BY = {
    "ECC_UNCORRECTED_AGGREGATE": "ECC_UNCORRECTED_VOLATILE",
    "FABRIC_UNHEALTHY": "FABRIC_MISCONFIGURED",
}

# The action that the driver requests. Draining peer-to-peer traffic is a step on the way to one of the others.
_ACTIONS = {
    "none": None,
    "reset": (_FAILED, "GPU_RESET"),
    "gpu reset": (_FAILED, "GPU_RESET"),
    "reboot": (_FAILED, "NODE_REBOOT"),
    "node reboot": (_FAILED, "NODE_REBOOT"),
    "system reboot": (_FAILED, "NODE_REBOOT"),
    "drain p2p": (_DEGRADED, "DRAIN_P2P"),
    "drain and reset": (_FAILED, "DRAIN_AND_RESET"),
    "recover imex domain": (_FAILED, "RECOVER_IMEX_DOMAIN"),
    "bus reset": (_FAILED, None),  # newer than the catalog's sub-codes
}
# nvidia-smi's words for what the product or the driver does not have.
_ABSENT = re.compile(
    r"\[?(?:N/A|Not Supported|Not Found|No data|Requested functionality has been deprecated)\]?|None|Disabled", re.I
)
# The value of any field that the driver could not read.
_UNREADABLE = (
    (re.compile(r"GPU is lost", re.I), "GPU_LOST"),
    (re.compile(r"GPU requires reset", re.I), "RESET_REQUIRED"),
    (re.compile(r"\[?Unknown Error\]?$", re.I), "UNKNOWN_ERROR"),  # one field of a GPU that answers
    (re.compile(r"\[?ERR!\]?$"), "ERR_FIELD"),
)
CODES = frozenset(
    f"nvml/{code}"
    for code in (
        "RECOVERY_ACTION",
        *(f"{check.code}/{check.subcode}" if check.subcode else check.code for check in CHECKS),
        *(f"RECOVERY_ACTION/{asked[1]}" for asked in _ACTIONS.values() if asked and asked[1]),
        *(code for _, code in _UNREADABLE),
    )
)


def judge(reading: Reading) -> Iterator[ReportedFault | Doubt]:
    """Return the meaning of a GPU's fields. Of two equivalent findings, the more specific one is kept."""
    answers = [
        answer for name, value in reading.fields for answer in _judge_field(reading.component, name, value.strip())
    ]
    codes = {answer.finding.code for answer in answers if isinstance(answer, ReportedFault)}
    for answer in answers:
        if not (isinstance(answer, ReportedFault) and _OUTWEIGHED_BY.get(answer.finding.code) in codes):
            yield answer


def unreadable_code(value: str) -> str | None:
    """Return the code of a value that represents a failed read; None for a real value."""
    return next((code for pattern, code in _UNREADABLE if pattern.match(value.lstrip("["))), None)


def _judge_field(component: str, name: str, value: str) -> Iterator[ReportedFault | Doubt]:
    message = f"{name}: {value}"
    code = unreadable_code(value)
    if code:
        verdict = _DEGRADED if code == "UNKNOWN_ERROR" else _FAILED
        yield fault(verdict, Family.nvml, code, component, message)
    elif name == "gpu_recovery_action":
        yield from _judge_action(component, value, message)
    else:
        for check in CHECKS:
            if check.field.fullmatch(name) and not _ABSENT.fullmatch(value):
                yield from _apply(check, component, value, message)


def _apply(check: _Check, component: str, value: str, message: str) -> Iterator[ReportedFault | Doubt]:
    is_raised = check.is_raised(value)
    if is_raised is None:
        yield Doubt(f"{message[:100]} is not understood")
    elif is_raised:
        yield fault(check.verdict, Family.nvml, check.code, component, message, check.subcode)


def _judge_action(component: str, value: str, message: str) -> Iterator[ReportedFault | Doubt]:
    word = value.lower().removesuffix(" required")
    if word in _ACTIONS:
        asked = _ACTIONS[word]
        if asked:
            yield fault(asked[0], Family.nvml, "RECOVERY_ACTION", component, message, asked[1])
    elif not _ABSENT.fullmatch(value):
        yield Doubt(f"{message[:100]} is not understood")
