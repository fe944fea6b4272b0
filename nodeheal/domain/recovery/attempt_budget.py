"""The arithmetic of attempts: a sliding window counts what was spent."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from nodeheal.contract.steps import AttemptLimit, Reservation
from nodeheal.domain.verbs import VERBS


def in_window(attempts: Mapping[str, datetime], limit: AttemptLimit, now: datetime) -> dict[str, datetime]:
    """Returns the attempts that still count: those younger than the window."""
    oldest = now - timedelta(seconds=limit.window_seconds)
    return {attempt_id: at for attempt_id, at in attempts.items() if at > oldest}


def reserve(
    attempts: Mapping[str, datetime], attempt_id: str, limit: AttemptLimit, now: datetime
) -> tuple[bool, dict[str, datetime]]:
    """Returns whether the attempt is granted, and the attempts that count afterwards.

    An attempt that is reserved already is granted again and spends nothing more.
    """
    counted = in_window(attempts, limit, now)
    if attempt_id in counted:
        return True, counted
    if len(counted) >= limit.limit:
        return False, counted
    return True, {**counted, attempt_id: now}


def attempts_text(reservation: Reservation, spent: int) -> str:
    """Returns '1 of 1 reboots in 24 h', for reasons and emails. It names the accelerator or the job's own limit."""
    limit, (kind, _, who) = reservation.limit, reservation.scope.partition("#")
    name = VERBS[limit.group].plural
    whose = f" of accelerator {who}" if kind == "accelerator" else ""
    when = f"in {limit.window_seconds / 3600:g} h"
    job_id, _, which = who.partition("/")
    _, is_hang, trusted_time = which.partition("/hangs/")
    if is_hang:
        return f"{spent} of {limit.limit} {name} of {job_id} for hangs that {trusted_time} alone reported {when}"
    if kind == "job" and which:
        setting = "restarts.total" if which.endswith("/total") else "restarts.in_window"
        when = f"{'since it was submitted' if which.endswith('/total') else when} (the job's own {setting})"
        whose = f" of {job_id}"
    return f"{spent} of {limit.limit} {name}{whose} {when}"
