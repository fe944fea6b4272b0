"""Finds settings in a valid policy document that were probably not intended. They refuse nothing."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

from nodeheal.contract import words
from nodeheal.contract.check_seconds import HEALTHY_SECONDS
from nodeheal.contract.vocabulary import Family
from nodeheal.domain.faults.catalog import catalog, find
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Budget, MaintenanceWindow, Mode, PoolPolicy

_WILDCARDS = "*?[]"
_OWN_FAULT = re.compile(rf"own/(?:\*|{words.OWN_NAME.strip('^$')}(?:/{words.OWN_CODE.strip('^$')})?)")
# What even a quick machine needs, in seconds. A step that is given less is always cut short.
_LEAST_SECONDS = {
    "isolate_seconds": (30, "tasks are stopped with their grace, 30 s unless their definition says otherwise"),
    "reboot_seconds": (60, "no machine with accelerators boots in less than a minute"),
    "stop_start_seconds": (120, "no machine with accelerators stops, starts and boots in less than two minutes"),
    "replace_seconds": (60, "no machine is launched, booted and checked in less than a minute"),
    "restart_seconds": (15, "a task has to be placed, and its image pulled"),
    "quick_seconds": (5, "a function may start cold, and AWS throttle"),
    "approval_seconds": (60, "a person has to read the question"),
}
_A_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)
_LOOK_EVERY_MINUTES = 10


def lint_policy(policy: RecoveryPolicy) -> Iterator[str]:
    """Yields one sentence for each, the field first."""
    pools = {"default_pool": policy.default_pool, **{f"pools.{name}": pool for name, pool in policy.pools.items()}}
    named = [*((f"pools.{name}", name) for name in policy.pools)]
    named += [(f"overrides.{i}.pools", name) for i, override in enumerate(policy.overrides) for name in override.pools]
    for field, name in named:
        yield from _of_a_name(field, name)
    for field, pool in pools.items():
        yield from _of_a_pool(field, pool)
    yield from _of_deadlines(policy, pools)
    yield from _of_faults(policy)
    if any(_acts(pool) for pool in pools.values()):
        yield from _of_limits(policy)


def _acts(pool: PoolPolicy) -> bool:
    return any(mode is not Mode.observe for mode in (pool.mode, *pool.modes.values()))


def _of_a_name(field: str, name: str) -> Iterator[str]:
    if set(name) & set(_WILDCARDS):
        yield f"{field}: {name!r} is taken as it is, not as a pattern; default_pool is for every pool that is not named"
    elif name != name.strip():
        yield f"{field}: {name!r} begins or ends with a space"


def _of_a_pool(field: str, pool: PoolPolicy) -> Iterator[str]:
    if not _acts(pool):
        return
    slots = _most_slots(pool.budget)
    if slots == 0:
        yield f"{field}.budget: no node may ever be out of service, so that nothing that acts will come to pass"
    elif pool.replacement.max_nodes > slots:
        yield (
            f"{field}.replacement.max_nodes: {pool.replacement.max_nodes} at once, "
            f"but the budget never lets more than {slots} out of service"
        )
    if pool.maintenance and _is_always(pool.maintenance):
        yield f"{field}.maintenance: the windows leave no hour of the week, so that nothing will ever be touched"


def _most_slots(budget: Budget) -> int:
    """Returns how many slots the largest possible pool has."""
    return budget.slots(1_000_000)


def _is_always(windows: tuple[MaintenanceWindow, ...]) -> bool:
    week = range(0, 7 * 24 * 60, _LOOK_EVERY_MINUTES)
    times = (_A_MONDAY + timedelta(minutes=minute) for minute in week)
    return all(any(window.holds(at) for window in windows) for at in times)


def _of_deadlines(policy: RecoveryPolicy, pools: Mapping[str, PoolPolicy]) -> Iterator[str]:
    for knob, (least, why) in _LEAST_SECONDS.items():
        given = getattr(policy.deadlines, knob)
        if given < least:
            yield f"deadlines.{knob}: {given} s is less than can be: {why}"
    levels = {"diagnostics_level": policy.diagnostics_level}
    levels |= {f"{name}.diagnostics_level": pool.diagnostics_level or 0 for name, pool in pools.items()}
    for field, level in levels.items():
        needed, given = HEALTHY_SECONDS.get(level, 0), policy.deadlines.diagnose_seconds
        if given < needed:
            yield f"{field}: level {level} can take {needed} s, and deadlines.diagnose_seconds gives {given} s"


def _of_faults(policy: RecoveryPolicy) -> Iterator[str]:
    named = [(f"overrides.{i}.fault", override.fault) for i, override in enumerate(policy.overrides)]
    named += [
        (f"correlation.secondary_faults.{i}", fault) for i, fault in enumerate(policy.correlation.secondary_faults)
    ]
    named += [(f"breaker.departures.{i}", fault) for i, fault in enumerate(policy.breaker.departures)]
    named += [(f"settling.{i}", fault) for i, fault in enumerate(policy.settling)]
    for field, fault in named:
        family, code, *rest = fault.split("/")
        if family == Family.own:
            if not _OWN_FAULT.fullmatch(fault):
                yield f"{field}: no check can report {fault}: of your own are own/*, own/NAME and own/NAME/CODE"
            continue
        if code == "*" or find(Family(family), code, "/".join(rest) or None) is not None:
            continue
        known = dict.fromkeys(row.code for row in catalog().values() if row.family.value == family)
        alike = [] if code.isdigit() else get_close_matches(code, known, n=2)
        perhaps = f"; did you mean {' or '.join(f'{family}/{guess}' for guess in alike)}?" if alike else ""
        yield f"{field}: the catalog does not know {fault}{perhaps}"


def _of_limits(policy: RecoveryPolicy) -> Iterator[str]:
    for action in policy.limited_actions():
        if policy.limits[action].limit == 0:
            yield f"limits.{action}.limit: 0 attempts, so that {action} never happens, whatever a mode says"
