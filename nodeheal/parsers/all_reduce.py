"""Parses the output of the agent's all-reduce, on either of the two nodes. Pure, total."""

import math

from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.fi_pingpong import PingpongExit
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.tool_report import first_line, first_object, unknown

ALL_REDUCE, BANDWIDTH, TIMEOUT = "all_reduce", "all_reduce_bandwidth", "timeout"  # the names of the tests that may fail
MISSING = 3  # its exit code where a library or a GPU is missing
_NOBODY = ("timed out", "Connection refused", "No route to host", "Address already in use", "Name or service not known")


def parse_all_reduce(text: str, errors: str, ended: PingpongExit, least_mb_per_s: float = 0.0) -> ToolReport:
    """Return the result of one of the two nodes about the sum over all their GPUs."""
    message = first_line(errors or text)
    if ended.hung_seconds:
        return _failed(TIMEOUT, f"the all-reduce has not ended within {ended.hung_seconds:g} s")
    if ended.exit_code == MISSING:
        return unknown(f"no all-reduce can be tried: {message}")
    if ended.exit_code:
        nobody_there = any(word in errors for word in _NOBODY)
        why = f"the all-reduce ended with {ended.exit_code}: {message}"
        return unknown(why) if nobody_there or ended.exit_code < 0 else _failed(ALL_REDUCE, why)
    result = first_object(text)
    ranks, speed, wrong = result.get("ranks"), result.get("bus_mb_per_s"), result.get("wrong_gpus")
    if not isinstance(ranks, int) or not isinstance(speed, int | float) or not isinstance(wrong, list):
        return unknown(f"the all-reduce printed no result: {message}".rstrip(": "))
    if wrong:
        return _failed(
            ALL_REDUCE, f"the sum over {ranks} GPUs is wrong on GPU {', '.join(map(str, wrong))} of this node"
        )
    if not math.isfinite(speed) or speed < least_mb_per_s:
        asked = f"at least {least_mb_per_s:g} are required"
        return _failed(BANDWIDTH, f"the all-reduce over {ranks} GPUs made {speed:g} MB/s on the bus, {asked}")
    reason = f"an all-reduce over {ranks} GPUs made {speed:g} MB/s on the bus"
    return ToolReport(Verdict.OK, reason=reason, measured={"all_reduce_mb_per_s": float(speed)})


def _failed(test: str, reason: str) -> ToolReport:
    return ToolReport(Verdict.FAILED, (test,), reason=reason)
