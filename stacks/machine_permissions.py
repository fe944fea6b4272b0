"""Defines the permissions on EC2 instances and Auto Scaling groups: only on what the operator has tagged; and on
HyperPod clusters: only those that the settings name.
"""

from collections.abc import Sequence

from nodeheal.contract import names
from stacks.permission import MANAGED, Conditions, Permission

EC2 = "arn:{partition}:ec2:{region}:{account}"
INSTANCES = f"{EC2}:instance/*"
TEMPLATES = f"{EC2}:launch-template/*"
GROUPS = "arn:{partition}:autoscaling:{region}:{account}:autoScalingGroup:*:autoScalingGroupName/*"
# The resources of an instance beside its launch template, its image and its key pair. A launch names the subnet, and
# with it a template's network interfaces and their security groups: so IAM cannot hold these to the template.
_PARTS = (
    "capacity-reservation",
    "network-interface",
    "placement-group",
    "security-group",
    "subnet",
    "volume",
)
_TAGGED_WITH_IT = ("network-interface", "spot-instances-request", "volume")  # what a template may tag at a launch
_SNAPSHOTS = "arn:{partition}:ec2:{region}::snapshot/*"  # of an image, which may be anybody's
_ONLY_THE_TEMPLATES = ("arn:{partition}:ec2:{region}::image/*", f"{EC2}:key-pair/*")
_FROM_TEMPLATE: Conditions = {"ArnLike": {"ec2:LaunchTemplate": TEMPLATES}}

MANAGED_RESOURCE: Conditions = {"StringEquals": MANAGED}
MARKED: Conditions = {"StringEquals": {f"aws:RequestTag/{names.MANAGED_TAG}": names.MANAGED_TAG_VALUE}}

SEE_MACHINES = (
    Permission(
        "see what an instance is, and who else would repair it; these calls take no resource",
        ("ec2:DescribeInstanceTypes", "ec2:DescribeInstances"),
        ("*",),
    ),
    Permission(
        "see whether EKS repairs the nodes of a node group",
        ("eks:DescribeNodegroup",),
        ("arn:{partition}:eks:{region}:{account}:nodegroup/*",),
    ),
)
SEE_LAUNCHES = Permission(
    "see what a group has launched; the call takes no resource", ("autoscaling:DescribeScalingActivities",), ("*",)
)
REBOOT_MACHINE = Permission(
    "reboot only instances that the operator enrolled", ("ec2:RebootInstances",), (INSTANCES,), MANAGED_RESOURCE
)
STOP_MACHINE = Permission(
    "stop only instances that the operator enrolled, where a pool wants that before it replaces them",
    ("ec2:StopInstances",),
    (INSTANCES,),
    MANAGED_RESOURCE,
)
START_MACHINE = Permission(
    "start again what was stopped, on another host", ("ec2:StartInstances",), (INSTANCES,), MANAGED_RESOURCE
)
TERMINATE_MACHINE = Permission(
    "terminate only instances that the operator enrolled", ("ec2:TerminateInstances",), (INSTANCES,), MANAGED_RESOURCE
)
GIVE_UP_IN_GROUP = Permission(
    "terminate a machine of a group that the operator enrolled; the group launches another",
    ("autoscaling:SetInstanceHealth", "autoscaling:TerminateInstanceInAutoScalingGroup"),
    (GROUPS,),
    MANAGED_RESOURCE,
)
# RunInstances authorizes every participating resource separately.
LAUNCH_MACHINE = (
    Permission(
        "see where a launch template puts its instances; the call takes no resource",
        ("ec2:DescribeLaunchTemplateVersions",),
        ("*",),
    ),
    Permission(
        "launch from templates that the operator enrolled", ("ec2:RunInstances",), (TEMPLATES,), MANAGED_RESOURCE
    ),
    Permission("launch instances that are tagged as nodeheal's", ("ec2:RunInstances",), (INSTANCES,), MARKED),
    Permission(
        "use the resources that a template names, and none without a template",
        ("ec2:RunInstances",),
        (*(f"{EC2}:{part}/*" for part in _PARTS), _SNAPSHOTS),
        _FROM_TEMPLATE,
    ),
    Permission(
        "use the image and the key pair that a template names, and no others in their place",
        ("ec2:RunInstances",),
        _ONLY_THE_TEMPLATES,
        {**_FROM_TEMPLATE, "Bool": {"ec2:IsLaunchTemplateResource": "true"}},
    ),
    Permission(
        # EC2 supports no condition for it. Alone it launches nothing: the template and the instance have statements,
        # too.
        "launch into a group of capacity reservations",
        ("ec2:RunInstances",),
        ("arn:{partition}:resource-groups:{region}:{account}:group/*",),
    ),
    Permission(
        "tag an instance and what a template tags with it as they are launched, and at no other time",
        ("ec2:CreateTags",),
        (INSTANCES, *(f"{EC2}:{part}/*" for part in _TAGGED_WITH_IT)),
        {"StringEquals": {"ec2:CreateAction": "RunInstances"}},
    ),
    Permission(
        "find the image where a template names it by a public parameter of AWS's, as usual for ECS",
        ("ssm:GetParameters",),
        ("arn:{partition}:ssm:{region}::parameter/aws/service/*",),
    ),
)


def on_hyperpod(permissions: Sequence[Permission], clusters: tuple[str, ...]) -> tuple[Permission, ...]:
    """Return what a function may do to the nodes of these clusters, by what it may do to instances of EC2."""
    if not clusters:
        return ()
    given = {action for permission in permissions for action in permission.actions}
    asked = (
        (
            "see a node of HyperPod, and whether HyperPod repairs it by itself",
            ("sagemaker:DescribeCluster", "sagemaker:DescribeClusterNode"),
            {"ec2:DescribeInstances", "ec2:DescribeInstanceStatus"},
        ),
        (
            "see what HyperPod has made in place of a node",
            ("sagemaker:ListClusterNodes",),
            {"autoscaling:DescribeScalingActivities"},
        ),
        ("reboot a node of HyperPod", ("sagemaker:BatchRebootClusterNodes",), {"ec2:RebootInstances"}),
        (
            "have HyperPod replace a node, whose volumes are lost",
            ("sagemaker:BatchReplaceClusterNodes",),
            {"ec2:RunInstances"},  # of those that may terminate a machine, the one that has another made
        ),
    )
    return tuple(Permission(why, actions, clusters) for why, actions, like in asked if like & given)
