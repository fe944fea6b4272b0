"""Defines the role that asks clusters: their controllers, and the API servers of EKS."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from nodeheal.contract import names
from stacks.nag import accept_wildcards
from stacks.permission import CONTROLLER_ROLE_PERMISSIONS, describe_clusters


def controller_role(scope: Construct, eks_clusters: Sequence[str]) -> iam.Role:
    """Create the role. Policies of this account say who may assume it: the functions and the operators that ask.

    In each of these EKS clusters it has an access entry with the group that the chart's manifests bind.
    """
    places = {"partition": cdk.Aws.PARTITION, "region": cdk.Aws.REGION, "account": cdk.Aws.ACCOUNT_ID}
    permissions = (*CONTROLLER_ROLE_PERMISSIONS, *describe_clusters(eks_clusters))
    role = iam.Role(
        scope,
        "ControllerRole",
        role_name=names.CONTROLLER_ROLE.format(region=cdk.Aws.REGION),
        assumed_by=iam.AccountRootPrincipal(),
        inline_policies={"ask": iam.PolicyDocument(statements=[each.statement(places) for each in permissions])},
    )
    accept_wildcards(role, permissions, places)
    for cluster in eks_clusters:
        eks.CfnAccessEntry(
            scope,
            f"AccessEntry-{cluster}",
            cluster_name=cluster,
            principal_arn=role.role_arn,
            kubernetes_groups=[names.KUBERNETES_GROUP],
            type="STANDARD",
        )
    return role
