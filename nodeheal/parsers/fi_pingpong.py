"""Parses the output of libfabric's `fi_pingpong`, on either of its two sides. Pure, total.

It has a row for each message size, in ascending order, in fixed columns; numbers have suffixes k, m, g (sizes, of 1024)
or k, m, b (counts, of 1000). `#ack` is `=` with the count where all were acknowledged, else `-` or `+` with the
difference.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.tool_report import first_line, unknown

FABRIC, BANDWIDTH, TIMEOUT = "fabric", "fabric_bandwidth", "timeout"  # the names of the tests that may fail

_NUMBER = r"(-?(?:\d{1,12}(?:\.\d{1,6})?|inf|nan))"
_ROW = re.compile(
    r"\s{0,8}(\d{1,12}(?:\.\d)?[kmg]?)\s{1,20}(\d{1,12}[kmb]?)\s{1,20}([=+-])(\d{1,12}[kmb]?)\s{1,20}\d{1,12}(?:\.\d)?[kmg]?"
    rf"\s{{1,20}}{_NUMBER}s\s{{1,20}}{_NUMBER}\s{{1,20}}{_NUMBER}\s{{1,20}}{_NUMBER}\s{{0,8}}"
)
_LINES = 1000  # it has six default sizes, and about sixty at most
_TAKEN = re.compile(r"Address already in use")
_ABSENT = re.compile(r"(?:failed to connect|getaddrinfo ?): {0,2}.{0,200}")
_NO_PROVIDER = re.compile(r"fi_getinfo.{0,200}(?:-61\b|No data available)")
# Errors of a transfer that breaks off.
_BROKEN = re.compile(r"cq_read|eq_read|timeout expired|completion|transmit|receive|\bctrl/|fi_\w{1,40}\(\): |ret=-\d")


@dataclass(frozen=True)
class MessageSizeResult:
    """The result of the messages of one size. An invalid number (`inf`, after zero time) is None."""

    size: str  # as printed: 64, 1.5k, 1m
    all_acknowledged: bool
    mb_per_s: float | None
    us: float | None


@dataclass(frozen=True)
class PingpongExit:
    """How the tool has ended. `hung`: at its deadline, after this many seconds."""

    exit_code: int
    hung_seconds: float = 0.0


def read_rows(text: str) -> tuple[MessageSizeResult, ...]:
    """Return the rows in order; other lines are ignored."""
    matches = (_ROW.fullmatch(line[:300]) for line in text.split("\n", _LINES)[:_LINES])
    return tuple(
        MessageSizeResult(match[1], match[3] == "=", _finite(match[6]), _finite(match[7]))
        for match in matches
        if match is not None
    )


def is_nobody_there(text: str) -> bool:
    """Whether the connecting side reports that the other side does not listen (yet)."""
    return _ABSENT.search(text) is not None and not read_rows(text)


def parse_pingpong(
    text: str, errors: str, ended: PingpongExit, serves: bool, least_mb_per_s: float = 0.0
) -> ToolReport:
    """Return one side's result of the test."""
    rows = read_rows(text)
    broken = _why_broken(f"{text}\n{errors}", rows, ended, serves)
    if broken is not None:
        return broken
    if not rows:
        return unknown(f"fi_pingpong printed no result: {first_line(text + errors)}".rstrip(": "))
    lost = [row.size for row in rows if not row.all_acknowledged]
    if lost:
        return _failed(FABRIC, f"messages of {', '.join(lost)} bytes were not all acknowledged", rows)
    best = rows[-1]
    if least_mb_per_s and (best.mb_per_s is None or best.mb_per_s < least_mb_per_s):
        return _failed(BANDWIDTH, f"{_told(best)}, at least {least_mb_per_s:g} MB/s are required", rows)
    return ToolReport(Verdict.OK, reason=_told(best), measured=_measured(rows))


def _why_broken(output: str, rows: Sequence[MessageSizeResult], ended: PingpongExit, serves: bool) -> ToolReport | None:
    """Return the report of a failed run."""
    if ended.hung_seconds:
        return _hung(rows, ended.hung_seconds, serves)
    if ended.exit_code == 0:
        return None
    what = first_line("\n".join(line for line in output.splitlines() if not _ROW.fullmatch(line[:300])))
    if _TAKEN.search(output):
        return unknown(f"the port is taken on this node: {what}")
    if not rows and _ABSENT.search(output):
        return unknown(f"the other node cannot be reached, or does not serve: {what}")
    if _NO_PROVIDER.search(output):
        return _failed(FABRIC, f"libfabric offers no such provider: {what}", rows)
    if ended.exit_code > 0 and (rows or _BROKEN.search(output)):
        return _failed(FABRIC, f"it broke off: {what}", rows)
    return unknown(f"fi_pingpong ended with {ended.exit_code}: {what}")


def _hung(rows: Sequence[MessageSizeResult], seconds: float, serves: bool) -> ToolReport:
    if serves and not rows:
        return unknown(f"no node connected within {seconds:g} s, or nothing came through")
    after = f" after messages of {rows[-1].size} bytes" if rows else ""
    return _failed(
        TIMEOUT,
        f"nothing came through{after} within {seconds:g} s: is all traffic between the two allowed?",
        rows,
    )


def _failed(test: str, reason: str, rows: Sequence[MessageSizeResult]) -> ToolReport:
    return ToolReport(Verdict.FAILED, (test,), reason=reason, measured=_measured(rows))


def _told(row: MessageSizeResult) -> str:
    speed = "at an unknown speed" if row.mb_per_s is None else f"at {row.mb_per_s:g} MB/s"
    return f"messages of {row.size} bytes came through {speed}"


def _measured(rows: Sequence[MessageSizeResult]) -> dict[str, float]:
    """Return the speed of the largest messages, and the time of the smallest."""
    if not rows:
        return {}
    measures = {"fabric_mb_per_s": rows[-1].mb_per_s, "fabric_us": rows[0].us}
    return {name: value for name, value in measures.items() if value is not None}


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) and number >= 0 else None
