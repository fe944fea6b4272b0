"""How a cdk-nag finding is accepted: on one construct, with a reason."""

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from constructs import IConstruct

from stacks.permission import Permission


def accept(construct: IConstruct, finding: str, reason: str) -> None:
    """Acknowledge one finding on one construct."""
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=finding, reason=reason))


def accept_wildcards(role: IConstruct, permissions: Sequence[Permission], places: Mapping[str, str]) -> None:
    """Accept the wildcards of a role: each was written down with its reason where the permission is."""
    for permission in permissions:
        for resource in permission.resources:
            if "*" in resource:
                accept(role, f"AwsSolutions-IAM5[Resource::{_as_reported(resource, places)}]", permission.why)


def _as_reported(resource: str, places: Mapping[str, str]) -> str:
    """A resource as cdk-nag spells it: a reference as <Its::Name>."""
    spelled = {"partition": "<AWS::Partition>", "region": "<AWS::Region>", "account": "<AWS::AccountId>"}
    return resource.format_map({**places, **spelled})
