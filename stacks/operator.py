"""What an operator's commands need: one managed policy, to be attached to the people who look after the nodes.

A person with this policy and no other can do what `nodeheal` does from the command line, and cannot reboot, terminate,
stop or start anything past it: what acts on a node stays with the functions, their budgets and their record.
"""

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from nodeheal.contract import names
from stacks.machine_permissions import INSTANCES
from stacks.nag import accept_wildcards
from stacks.permission import (
    CONTAINER_INSTANCES,
    FIND_NODE,
    READ_BEATS,
    RESUME,
    SEE_NODE,
    SSM,
    SWITCH_NODE,
    Conditions,
    Permission,
    send_command,
)

POLICY_NAME = "nodeheal-operator"
APPCONFIG = "arn:{partition}:appconfig:{region}:{account}"
_APPLICATION = (f"{APPCONFIG}:application/{{policy_application}}", f"{APPCONFIG}:application/{{policy_application}}/*")
# cdk-nag spells what comes from the other stack by the name of its export.
_APPLICATION_AS_REPORTED = "nodeheal-state:ExportsOutputRefPolicyApplication6A3948DE42652283"
_HYBRID = (f"{SSM}:managed-instance/*",)
ONLY_OUR_TAGS: Conditions = {"ForAllValues:StringEquals": {"aws:TagKeys": (names.MANAGED_TAG, names.RACK_TAG)}}

READ = Permission(
    "look nodes, incidents, pools and waits up; no scans",
    ("dynamodb:GetItem", "dynamodb:Query"),
    ("{table}", "{table}/index/" + names.INDEX),
)
WRITE = Permission(
    "record what the operator decides",
    ("dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"),
    ("{table}",),
)
ASK = Permission(
    "ask for a recovery by hand, in an operator's name and in nobody else's",
    ("events:PutEvents",),
    ("{bus}",),
    {"StringEquals": {"events:source": names.OPERATOR_SOURCE}},
)
FIND_POLICY = Permission(
    "find the policy document and how it is deployed; these calls take no resource",
    ("appconfig:ListApplications", "appconfig:ListDeploymentStrategies"),
    ("*",),
)
READ_POLICY = Permission(
    "read the policy documents and their deployments",
    (
        "appconfig:GetDeployment",
        "appconfig:GetHostedConfigurationVersion",
        "appconfig:ListConfigurationProfiles",
        "appconfig:ListDeployments",
        "appconfig:ListEnvironments",
    ),
    _APPLICATION,
)
CHANGE_POLICY = Permission(
    "put a policy document into force, which says what nodeheal may do",
    ("appconfig:CreateHostedConfigurationVersion", "appconfig:StartDeployment"),
    (*_APPLICATION, f"{APPCONFIG}:deploymentstrategy/*"),
)
SEE_MARKS = (
    Permission(
        "see whether SSM and EC2 know a node; these calls take no resource",
        ("ec2:DescribeInstances", "ssm:DescribeInstanceInformation"),
        ("*",),
    ),
    Permission("see whether a hybrid node is marked", ("ssm:ListTagsForResource",), _HYBRID),
)
CHANGE_MARKS = (
    Permission(
        "let nodeheal act on a hybrid node, or no longer: this tag, and its rack's",
        ("ssm:AddTagsToResource", "ssm:RemoveTagsFromResource"),
        _HYBRID,
        ONLY_OUR_TAGS,
    ),
    Permission(
        "let nodeheal act on an instance, or no longer: this tag, and its rack's",
        ("ec2:CreateTags", "ec2:DeleteTags"),
        (INSTANCES,),
        ONLY_OUR_TAGS,
    ),
    Permission(
        "let nodeheal act on a container instance, or no longer: this tag, and its rack's",
        ("ecs:TagResource", "ecs:UntagResource"),
        (CONTAINER_INSTANCES,),
        ONLY_OUR_TAGS,
    ),
)
DRILL = (
    *send_command("have a node pretend a fault, for a drill", names.INJECT_DOCUMENT),
    *send_command("have a node's DCGM pretend a fault, for a drill", names.INJECT_DCGM_DOCUMENT),
    Permission(
        "see whether the node has taken the drill; the call takes no resource", ("ssm:GetCommandInvocation",), ("*",)
    ),
)
SUBSCRIBE_OWNER = Permission(
    "ask the owner of a job for a yes to emails about it: by email, and from no other topic",
    ("sns:Subscribe",),
    ("{owners_topic}",),
    {"StringEquals": {"sns:Protocol": "email"}},
)
_FIND = (FIND_NODE, SEE_NODE)
_DECIDE = (READ, WRITE, RESUME)
_POLICY = (FIND_POLICY, READ_POLICY)
_ENROL = (*_FIND, *SEE_MARKS, *CHANGE_MARKS)

# Every command that asks AWS for anything; a test holds it against the commands there are.
COMMANDS: Mapping[str, tuple[Permission, ...]] = {
    "approve": _DECIDE,
    "refuse": _DECIDE,
    "pause": (READ, WRITE),
    "unpause": (READ, WRITE),
    "breaker show": (READ,),
    "breaker reset": _DECIDE,
    "incidents list": (READ,),
    "incidents show": (READ,),
    "incidents close": (READ, WRITE),
    "incidents export": (READ,),
    "inject": (READ, *_POLICY, *DRILL),
    "nodes list": (READ, READ_BEATS),
    "nodes show": (READ, READ_BEATS, *_POLICY),
    "nodes enroll": (READ, WRITE, *_ENROL),
    "nodes release": (*_DECIDE, FIND_NODE, *SWITCH_NODE),
    "nodes retire": (*_DECIDE, *_ENROL),
    "nodes isolate": (READ, ASK),
    "nodes reboot": (READ, ASK),
    "nodes replace": (READ, ASK),
    "owners subscribe": (SUBSCRIBE_OWNER,),
    "policy show": _POLICY,
    "policy apply": (*_POLICY, CHANGE_POLICY),
    "policy rollback": (*_POLICY, CHANGE_POLICY),
}


def every_permission() -> tuple[Permission, ...]:
    """Each permission once, in the order in which commands first need it."""
    found: dict[str, Permission] = {}
    for permissions in COMMANDS.values():
        for permission in permissions:
            found.setdefault(permission.why, permission)
    return tuple(found.values())


class OperatorPolicy(Construct):
    """The managed policy. It is attached to nobody: who operates is not ours to say."""

    def __init__(self, scope: Construct, places: Mapping[str, str]) -> None:
        super().__init__(scope, "Operator")
        self.policy = iam.ManagedPolicy(
            self,
            "Policy",
            managed_policy_name=POLICY_NAME,
            description="What the nodeheal command needs, and nothing that acts past it",
            statements=[permission.statement(places) for permission in every_permission()],
        )
        accept_wildcards(self.policy, every_permission(), {**places, "policy_application": _APPLICATION_AS_REPORTED})
        cdk.CfnOutput(cdk.Stack.of(self), "OperatorPolicyArn", value=self.policy.managed_policy_arn)
