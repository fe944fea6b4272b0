"""Defines the role that asks clusters' controllers."""

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from nodeheal.contract import names
from stacks.nag import accept_wildcards
from stacks.permission import CONTROLLER_ROLE_PERMISSIONS


def controller_role(scope: Construct) -> iam.Role:
    """Create the role. Policies of this account say who may assume it: the functions and the operators that ask."""
    places = {"partition": cdk.Aws.PARTITION, "region": cdk.Aws.REGION, "account": cdk.Aws.ACCOUNT_ID}
    statements = [permission.statement(places) for permission in CONTROLLER_ROLE_PERMISSIONS]
    role = iam.Role(
        scope,
        "ControllerRole",
        role_name=names.CONTROLLER_ROLE.format(region=cdk.Aws.REGION),
        assumed_by=iam.AccountRootPrincipal(),
        inline_policies={"ask": iam.PolicyDocument(statements=statements)},
    )
    accept_wildcards(role, CONTROLLER_ROLE_PERMISSIONS, places)
    return role
