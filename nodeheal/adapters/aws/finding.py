"""Defines what a check of `nodeheal doctor` has found."""

from dataclasses import dataclass

GOOD, WARNING, BAD, UNKNOWN = "ok", "warn", "fail", "unknown"


@dataclass(frozen=True)
class DoctorFinding:
    """The result of one check. `todo`: what to do about it; empty where nothing is needed."""

    what: str
    state: str
    detail: str
    todo: str = ""
