"""Reads the statements of IAM policies."""

from typing import Any

# Calls for which IAM knows no resource.
WITHOUT_RESOURCE = {
    "ec2:DescribeInstanceStatus",
    "ssm:DescribeInstanceInformation",
    "autoscaling:DescribeScalingActivities",
    "ecs:ListTasks",  # by `startedBy`: only the condition holds it to the cluster
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "ec2:DescribeLaunchTemplateVersions",
    "ecs:DescribeTaskDefinition",
    "ssm:GetCommandInvocation",
    "states:SendTaskSuccess",
}


def as_list(value: Any) -> list[Any]:
    """IAM spells one thing without its list."""
    return value if isinstance(value, list) else [value]
