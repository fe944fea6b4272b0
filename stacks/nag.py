"""Accepts cdk-nag findings: on one construct, with a reason."""

from collections.abc import Mapping, Sequence
from typing import Any

import aws_cdk as cdk
from constructs import IConstruct

from stacks.permission import Permission


def accept(construct: IConstruct, finding: str, reason: str) -> None:
    """Acknowledge one finding on one construct."""
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=finding, reason=reason))


def accept_wildcards(role: IConstruct, permissions: Sequence[Permission], places: Mapping[str, str]) -> None:
    """Accept the wildcards of a role: each has its reason in the permission."""
    for permission in permissions:
        for resource in permission.resources:
            if "*" in resource:
                reported = _as_reported(cdk.Stack.of(role).resolve(resource.format_map(places)))
                accept(role, f"AwsSolutions-IAM5[Resource::{reported}]", permission.why)


def _as_reported(resource: Any) -> str:
    """Return a resource as cdk-nag prints it: a reference as <Its::Name> or <Its.Attribute>."""
    if isinstance(resource, str):
        return resource
    [(function, given)] = resource.items()
    if function == "Fn::Join":
        return str(given[0]).join(_as_reported(part) for part in given[1])
    return f"<{given if function == 'Ref' else '.'.join(given)}>"
