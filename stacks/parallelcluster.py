"""Defines the role of ParallelCluster's compute nodes: what ParallelCluster grants them by default, and what an agent
needs.

A role that the cluster creates is not known before the cluster is. The control plane believes this one from the start.
"""

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from nodeheal.contract import names
from stacks.machine_permissions import INSTANCES
from stacks.nag import accept, accept_wildcards
from stacks.node_channels import NODE_PERMISSIONS, SSM_CORE
from stacks.permission import Permission
from stacks.settings import REPOSITORY

SCRIPT = REPOSITORY / "examples" / "parallelcluster" / "compute.sh"
LOG_AGENT = "CloudWatchAgentServerPolicy"
READ_SCRIPT = Permission(
    "download the script that waits for the agent, which is one object", ("s3:GetObject",), ("{script}",)
)


def queue_permissions(clusters: tuple[str, ...]) -> tuple[Permission, ...]:
    """Return what ParallelCluster grants the compute nodes of these clusters by default (aws/aws-parallelcluster,
    cdk_builder_utils.py, ComputeNodeIamResources).
    """
    return (
        Permission("see an attribute of an instance", ("ec2:DescribeInstanceAttribute",), (INSTANCES,)),
        Permission(
            "download what ParallelCluster publishes for its nodes",
            ("s3:GetObject",),
            ("arn:{partition}:s3:::{region}-aws-parallelcluster/*",),
        ),
        Permission(
            "see the resources of the cluster's stack",
            ("cloudformation:DescribeStackResource",),
            tuple(f"arn:{{partition}}:cloudformation:{{region}}:{{account}}:stack/{name}/*" for name in clusters),
        ),
        Permission(
            "keep what ParallelCluster's own programs on the node have done, in the cluster's table",
            ("dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"),
            tuple(
                f"arn:{{partition}}:dynamodb:{{region}}:{{account}}:table/parallelcluster-{name}" for name in clusters
            ),
        ),
    )


class QueueRole(Construct):
    """The role, and the script for the queue as an object that it may read."""

    def __init__(self, scope: Construct, places: dict[str, str], clusters: tuple[str, ...]) -> None:
        super().__init__(scope, "ParallelCluster")
        script = s3_assets.Asset(self, "Script", path=str(SCRIPT))
        key = f"arn:{cdk.Aws.PARTITION}:s3:::{script.s3_bucket_name}/{script.s3_object_key}"
        places = {**places, "script": key, "partition": cdk.Aws.PARTITION, "region": cdk.Aws.REGION}
        places["account"] = cdk.Aws.ACCOUNT_ID
        permissions = (*NODE_PERMISSIONS, *queue_permissions(clusters), READ_SCRIPT)
        of_aws = f"arn:{cdk.Aws.PARTITION}:iam::aws:policy/"
        self.role = iam.Role(
            self,
            "QueueRole",
            role_name=names.QUEUE_ROLE.format(region=cdk.Aws.REGION),
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            managed_policies=[
                iam.ManagedPolicy.from_managed_policy_arn(self, policy, of_aws + policy)
                for policy in (SSM_CORE, LOG_AGENT)
            ],
            inline_policies={
                "report": iam.PolicyDocument(statements=[permission.statement(places) for permission in permissions])
            },
        )
        accept_wildcards(self.role, permissions, places)
        for policy in (SSM_CORE, LOG_AGENT):
            accept(
                self.role,
                f"AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{policy}]",
                "an agent's own policy, kept by AWS as the agent changes",
            )
        self._script = script.s3_object_url

    def outputs(self) -> dict[str, str]:
        """Return the stack's outputs for a cluster's configuration, by name."""
        return {"QueueRoleArn": self.role.role_arn, "QueueScript": self._script}
