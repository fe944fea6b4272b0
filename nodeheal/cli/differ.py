"""Compares two policy documents: which faults they treat differently, and which settings differ."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nodeheal.cli.imagined import decided, event_of
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Action, Family, NextStepCondition
from nodeheal.domain.faults.catalog import catalog, find
from nodeheal.domain.faults.diagnosis import diagnose
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.verbs import VERBS


@dataclass(frozen=True)
class Treatment:
    """How a policy treats a fault in a pool, the first time that it comes."""

    first_step: str
    ladder: tuple[str, ...]
    next_rung: str
    mode: str  # empty where there is nothing to be let do


@dataclass(frozen=True)
class Change:
    """One fault that would be treated differently in one pool."""

    fault: str
    name: str
    pool: str
    before: Treatment
    after: Treatment


def treatment(event: HealthEvent, policy: RecoveryPolicy) -> Treatment:
    """How the policy treats this fault."""
    fault = next(iter(diagnose([event], policy, event.pool)), None)
    ladder = fault.ladder if fault else (Action.OBSERVE,)
    modes = [policy.pool(event.pool).mode_of(action).value for action in ladder if not VERBS[action].touches_nothing]
    return Treatment(
        first_step=decided(event, policy).step.value,
        ladder=tuple(action.value for action in ladder),
        next_rung=fault.next_rung.value if fault else NextStepCondition.unproven.value,
        mode="/".join(dict.fromkeys(modes)),
    )


def changes(before: RecoveryPolicy, after: RecoveryPolicy) -> Iterator[Change]:
    """Every fault of the catalog, and every one that an override names, in each pool that either document names."""
    overrides = [*before.overrides, *after.overrides]
    named_pools = {*before.pools, *after.pools, *(pool for override in overrides for pool in override.pools)}
    pools = ["default", *sorted(named_pools - {"default"})]
    named = {tuple(override.fault.split("/", 2)) for override in overrides}
    faults = [(row.family.value, row.code, row.subcode) for row in catalog().values()]
    faults += sorted((parts[0], parts[1], "/".join(parts[2:])) for parts in named if parts[1] != "*")
    for family, code, subcode in dict.fromkeys(faults):
        row = find(Family(family), code, subcode or None)
        for pool in pools:
            event = event_of(Family(family), code, subcode or None, pool, None)
            old, new = treatment(event, before), treatment(event, after)
            if old != new:
                key = "/".join(part for part in (family, code, subcode) if part)
                yield Change(key, row.name if row else "not in the catalog", pool, old, new)


def changed_settings(before: RecoveryPolicy, after: RecoveryPolicy) -> Iterator[tuple[str, Any, Any]]:
    """(where, before, after) of every setting that differs, defaults filled in.

    A pool that one document does not name goes by that document's default_pool.
    """
    old, new = (_named(policy, {*before.pools, *after.pools}) for policy in (before, after))
    yield from _differences(old, new, "")


def _named(policy: RecoveryPolicy, pools: set[str]) -> dict[str, Any]:
    """The document with each of these pools, and with its overrides by their faults."""
    document = policy.model_dump(mode="json")
    overrides = {
        " in ".join(filter(None, [one["fault"], ", ".join(one["pools"])])): one for one in document["overrides"]
    }
    everywhere = {name: document["pools"].get(name, document["default_pool"]) for name in pools}
    return {**document, "pools": everywhere, "overrides": overrides}


def _differences(before: Any, after: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from _differences(before.get(key), after.get(key), f"{where}.{key}".lstrip("."))
    elif before != after:
        yield where, before, after
