"""Queries about policy documents: what differs between two of them, and which one is in force."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from nodeheal.api.imagined import decided, event_of
from nodeheal.api.policy_views import FaultChange, PolicyDiff, PolicyInForce, SettingChange, Treatment
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Action, Family, NextStepCondition
from nodeheal.domain.faults.catalog import catalog, find
from nodeheal.domain.faults.diagnosis import faults_of
from nodeheal.domain.policy.policy import PolicyRefused, RecoveryPolicy, parse_policy
from nodeheal.domain.policy.policy_lint import lint_policy
from nodeheal.domain.verbs import VERBS
from nodeheal.services.notify.channel_kinds import read_channels
from nodeheal.services.operators import validate_policy


def in_force(text: str, appconfig_version: int, deployment: int, at: str, why: str) -> PolicyInForce:
    """Return the view of a deployed document."""
    try:
        version = parse_policy(text).version
    except PolicyRefused as refused:
        version = f"not valid ({refused.complaints[0]})"
    return PolicyInForce(version=version, appconfig_version=appconfig_version, deployment=deployment, at=at, why=why)


def readable(text: str) -> RecoveryPolicy:
    """Return the policy of a document in force; the default where it is not valid, for functions fall back to that."""
    try:
        return parse_policy(text)
    except PolicyRefused:
        return RecoveryPolicy()


def warnings(before: RecoveryPolicy, after: RecoveryPolicy) -> tuple[tuple[str, ...], int]:
    """Return what is probably not meant in the new document, and how many more such warnings the old one has as well.

    Those in force were accepted when they were applied.
    """
    accepted, of_both = set(lint_policy(before)), list(lint_policy(after))
    fresh = tuple(warning for warning in of_both if warning not in accepted)
    return fresh, len(of_both) - len(fresh)


def named_pools(policy: RecoveryPolicy) -> list[str]:
    """Return the pools that the document names: one that was mistyped changes nothing."""
    return [*policy.pools, *(pool for override in policy.overrides for pool in override.pools)]


def diff(before: RecoveryPolicy, after: RecoveryPolicy) -> PolicyDiff:
    """Return the settings that differ, and the faults that would be treated differently."""
    return PolicyDiff(
        versions=(before.version, after.version),
        knobs=changed_settings(before, after),
        faults=tuple(_changed_faults(before, after)),
    )


def changed_settings(before: RecoveryPolicy, after: RecoveryPolicy) -> tuple[SettingChange, ...]:
    """Return every setting that differs, defaults filled in.

    A pool that one document does not name goes by that document's default_pool.
    """
    old, new = (_named(policy, {*before.pools, *after.pools}) for policy in (before, after))
    return tuple(_differences(old, new, "", _Setting(_schema())))


def _treatment(event: HealthEvent, policy: RecoveryPolicy) -> Treatment:
    """Return how the policy treats this fault."""
    fault = next(iter(faults_of([event], policy, event.pool)), None)
    ladder = fault.ladder if fault else (Action.OBSERVE,)
    modes = [policy.pool(event.pool).mode_of(action).value for action in ladder if not VERBS[action].touches_nothing]
    return Treatment(
        first_step=decided(event, policy).step,
        ladder=ladder,
        next_rung=fault.next_rung if fault else NextStepCondition.unproven,
        mode="/".join(dict.fromkeys(modes)),
    )


def _changed_faults(before: RecoveryPolicy, after: RecoveryPolicy) -> Iterator[FaultChange]:
    """Compare every fault of the catalog, and every one that an override names, in each pool that is named."""
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
            old, new = _treatment(event, before), _treatment(event, after)
            if old != new:
                key = "/".join(part for part in (family, code, subcode) if part)
                name = row.name if row else "not in the catalog"
                yield FaultChange(fault=key, name=name, pool=pool, before=old, after=new)


def _named(policy: RecoveryPolicy, pools: set[str]) -> dict[str, Any]:
    """Return the document with each of these pools, and with its overrides by their faults."""
    document = policy.model_dump(mode="json")
    overrides = {
        " in ".join(filter(None, [override["fault"], ", ".join(override["pools"])])): override
        for override in document["overrides"]
    }
    everywhere = {name: document["pools"].get(name, document["default_pool"]) for name in pools}
    return {**document, "pools": everywhere, "overrides": overrides}


@cache
def _schema() -> dict[str, Any]:
    """The schema of the document, which says what each setting means."""
    return RecoveryPolicy.model_json_schema()


@dataclass(frozen=True)
class _Setting:
    """A place in the schema. `about`: what it means, or what it is a part of."""

    schema: Mapping[str, Any]
    about: str = ""

    def below(self, key: str) -> "_Setting":
        """The setting of this name in an object, a table or a list."""
        for option in (self.schema, *self.schema.get("anyOf", ())):
            whole = _schema()["$defs"][option["$ref"].rpartition("/")[2]] if "$ref" in option else option
            entries = (whole.get("additionalProperties"), *whole.get("patternProperties", {}).values())
            inner = whole.get("properties", {}).get(key) or next(filter(None, (*entries, whole.get("items"))), None)
            if inner:
                return _Setting(inner, inner.get("description", self.about))
        return _Setting({}, self.about)


def _differences(before: Any, after: Any, where: str, setting: _Setting) -> Iterator[SettingChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            name = f"{where}.{key}".lstrip(".")
            yield from _differences(before.get(key), after.get(key), name, setting.below(key))
    elif before != after:
        yield SettingChange(knob=where, about=setting.about, before=before, after=after)


def complaints_of_channels(policy: RecoveryPolicy, deployed: str) -> list[str]:
    """Return what the policy asks of channels that a deployment does not have, or that they cannot do. `deployed`: its
    channels, as the stack stores them.
    """
    return list(validate_policy.complaints_of_channels(policy, read_channels(deployed)))
