"""Defines managed policies for the commands: for those who look, who operate nodes, who train on them, who deploy.

A person with these policies and no other can do what `nodeheal` does from the command line, and writes no record:
they read, and have acts done by the functions, each by a route of its own. Only a pause is written directly: a brake
must work when functions do not.
"""

from collections.abc import Mapping
from dataclasses import replace

from aws_cdk import aws_iam as iam
from constructs import Construct

from nodeheal.contract import names
from nodeheal.contract.vocabulary import ActKind
from stacks.acts_api import permit
from stacks.machine_permissions import INSTANCES
from stacks.nag import accept_wildcards
from stacks.permission import (
    ASK_CONTROLLER,
    CONTAINER_INSTANCES,
    FIND_NODE,
    READ_HEARTBEATS_OF_JOB,
    SEE_DEFINITION,
    SEE_INSTANCE_TAGS,
    SEE_MANAGED_NODES,
    SEE_NODE,
    SSM,
    Conditions,
    Permission,
    only_keys,
    send_command,
)

VIEWER_POLICY_NAME = "nodeheal-viewer-{region}"
POLICY_NAME = "nodeheal-operator-{region}"
DOCTOR_POLICY_NAME = "nodeheal-doctor-{region}"
JOBS_POLICY_NAME = "nodeheal-jobs-{region}"
EKS = "arn:{partition}:eks:{region}:{account}"
APPCONFIG = "arn:{partition}:appconfig:{region}:{account}"
# Itself and all in it, in one pattern: a policy has 6,144 characters, and AppConfig's ids are all of one length.
_APPLICATION = (f"{APPCONFIG}:application/{{policy_application}}*",)
_HYBRID = (f"{SSM}:managed-instance/*",)
ONLY_OUR_TAGS: Conditions = {
    "ForAllValues:StringEquals": {"aws:TagKeys": (names.MANAGED_TAG, names.RACK_TAG)},
    "Null": {"aws:TagKeys": "false"},  # DeleteTags without keys removes every tag of an instance
}


READ = Permission(
    "read nodes, incidents, pools and waits; no scans",
    ("dynamodb:GetItem", "dynamodb:Query"),
    ("{table}", "{table}/index/" + names.INDEX),
)
READ_HEARTBEATS_AND_MARK = Permission(
    "read the heartbeats of all machines, and whether the records went back",
    ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Scan"),
    ("{heartbeats}",),
)
PAUSE = Permission(
    "pause a node or a pool, or end a pause: written directly, so that the brake works when functions do not",
    ("dynamodb:PutItem",),
    ("{table}",),
    only_keys(names.PAUSES_PK),
)
READ_JOBS = Permission(
    "read jobs, the nodes, incidents, queues and pauses of their pools; no approval, and no task token of one",
    ("dynamodb:GetItem", "dynamodb:Query"),
    ("{table}", "{table}/index/" + names.INDEX),
    only_keys(
        names.job_pk("*"),
        names.pool_pk("*"),
        names.POOLS_PK,
        names.PAUSES_PK,
        names.line_pk(names.pool_line(names.NODES_LINE, "*")),
    ),
)
SUBMIT_JOB = permit("submit a job", ActKind.SUBMIT_JOB)
STOP_JOB = permit("stop a job", ActKind.STOP_JOB)
RESTART_JOB = permit("submit a job again that is over", ActKind.RESTART_JOB)
COUNT_NODES = Permission(
    "count pools and their nodes; nothing else of the table",
    ("dynamodb:Query",),
    ("{table}", "{table}/index/" + names.INDEX),
    only_keys(names.POOLS_PK, names.UNENROLLED_PK, names.pool_pk("*")),
)
FIND_STACK = Permission(
    "find the policy document, the API of acts and the roles of nodes by the outputs of the stack",
    ("cloudformation:DescribeStacks",),
    ("arn:{partition}:cloudformation:{region}:{account}:stack/" + names.STACK + "/*",),
)
READ_POLICY = Permission(
    "read the policy documents and their deployments",
    (
        "appconfig:GetDeployment",
        "appconfig:GetHostedConfigurationVersion",
        "appconfig:ListDeployments",
    ),
    _APPLICATION,
)
CHANGE_POLICY = (
    Permission("store a policy document", ("appconfig:CreateHostedConfigurationVersion",), _APPLICATION),
    Permission(
        "activate a policy document, which defines what nodeheal may do",
        ("appconfig:StartDeployment",),
        (*_APPLICATION, f"{APPCONFIG}:deploymentstrategy/*"),
    ),
)
SEE_INSTANCES = Permission(
    "see whether SSM knows a node; the call takes no resource", ("ssm:DescribeInstanceInformation",), ("*",)
)
SEE_MACHINES = Permission(
    "see whether EC2 knows a node; the call takes no resource", ("ec2:DescribeInstances",), ("*",)
)
SEE_MARKS = (
    SEE_MANAGED_NODES,
    SEE_INSTANCE_TAGS,
    Permission("see whether a hybrid node is tagged as enrolled", ("ssm:ListTagsForResource",), _HYBRID),
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
    *send_command("inject a fault line into a node's kernel log, for a drill", "inject-fault"),
    *send_command("inject a value into a node's DCGM, for a drill", "inject-dcgm"),
    Permission(
        "see whether the node has accepted the drill; the call takes no resource", ("ssm:GetCommandInvocation",), ("*",)
    ),
)
SUBSCRIBE_OWNER = Permission(
    "ask the owner of a job to confirm emails about it: by email, and from no other topic",
    ("sns:Subscribe",),
    ("{owners_topic}",),
    {"StringEquals": {"sns:Protocol": "email"}},
)
CONFIRM_EMAIL = Permission(
    "confirm a subscription so that nobody can end it with a forwarded email",
    ("sns:ConfirmSubscription",),
    ("{topic}", "{owners_topic}"),
)
SEE_OWNERS = Permission(
    "see whether the owner of a job has confirmed", ("sns:ListSubscriptionsByTopic",), ("{owners_topic}",)
)
_JOB_LOG = "arn:{partition}:logs:{region}:{account}:log-group:" + names.JOB_LOG_GROUP
READ_LOG = Permission("read what the ranks of jobs have written", ("logs:GetLogEvents",), (f"{_JOB_LOG}:*",))
_FIND = (FIND_NODE, SEE_NODE)
_POLICY = (FIND_STACK, READ_POLICY)
_LOOK = (READ, READ_HEARTBEATS_AND_MARK)
_ASK_CONTROLLER = (SEE_MANAGED_NODES, SEE_INSTANCE_TAGS, *ASK_CONTROLLER)
_ENROL = (*_FIND, *SEE_MARKS, *CHANGE_MARKS)

Commands = Mapping[str, tuple[Permission, ...]]


def _act(why: str, *acts: ActKind) -> tuple[Permission, ...]:
    """What a command needs that has acts done: it reads what they will do, and finds the API."""
    return (*_LOOK, FIND_STACK, permit(why, *acts))


# They change nothing.
VIEW_COMMANDS: Commands = {
    "breaker show": (READ,),
    "incidents list": (READ,),
    "incidents show": (READ,),
    "incidents export": (READ,),
    "incidents rma": (READ,),
    "nodes list": _LOOK,
    "nodes unenrolled": (READ,),
    "nodes show": (*_LOOK, *_POLICY),
    "pools list": (READ,),
    "status": _LOOK,
    "policy show": _POLICY,
    "policy diff": (READ, *_POLICY),
}
NODE_COMMANDS: Commands = {
    **VIEW_COMMANDS,
    # A user who may send the document of a controller may drain with it, too.
    "nodes list": (*_LOOK, *_ASK_CONTROLLER),
    "nodes show": (*_LOOK, *_POLICY, *_ASK_CONTROLLER),
    "approve": _act("approve what an incident proposes", ActKind.APPROVE),
    "refuse": _act("refuse what an incident proposes", ActKind.REFUSE),
    "pause": (READ, PAUSE),
    "unpause": (READ, PAUSE),
    "breaker reset": _act("reset the breaker of a pool", ActKind.RESET_BREAKER),
    "incidents close": _act("close an incident that was handed to a human", ActKind.CLOSE_INCIDENT),
    "inject": (READ, *_POLICY, *DRILL, *_ASK_CONTROLLER),
    "nodes enroll": (*_act("record a node that is tagged as enrolled", ActKind.ENROLL), *_ENROL),
    "nodes release": (*_act("return a node to service", ActKind.RELEASE), *_ASK_CONTROLLER),
    "nodes retire": (*_act("give a node up for good", ActKind.RETIRE), *_ENROL),
    "nodes isolate": _act("take a node out of service", ActKind.ISOLATE),
    "nodes drain": _act("take a node out of service when its job has ended", ActKind.DRAIN),
    "nodes diagnose": _act("diagnose a node", ActKind.DIAGNOSE),
    "nodes reboot": _act("reboot a node", ActKind.REBOOT),
    "nodes replace": _act("replace a node", ActKind.REPLACE),
    "pools sweep": _act("diagnose a node", ActKind.DIAGNOSE),
    "reconcile": (FIND_STACK, permit("set restored records right", ActKind.RECONCILE)),
    "owners subscribe": (SUBSCRIBE_OWNER,),
    "emails confirm": (CONFIRM_EMAIL,),
    "policy apply": (READ, *_POLICY, *CHANGE_POLICY),
    "policy edit": (READ, *_POLICY, *CHANGE_POLICY),
    "policy rollback": (*_POLICY, *CHANGE_POLICY),
}
# Separate from the others: people who train need no more than these, and both together exceed one policy's size.
JOB_COMMANDS: Commands = {
    "jobs submit": (READ_JOBS, FIND_STACK, SUBMIT_JOB, *_POLICY, SEE_DEFINITION, SEE_OWNERS, READ_LOG),
    # A controller's jobs are listed for operators only: a user who may send the document may also drain with it.
    "jobs list": (READ_JOBS, FIND_STACK, READ_HEARTBEATS_OF_JOB),
    "jobs top": (READ_JOBS, FIND_STACK, READ_HEARTBEATS_OF_JOB),
    "jobs show": (READ_JOBS, FIND_STACK, READ_HEARTBEATS_OF_JOB, SEE_OWNERS, SEE_DEFINITION, READ_LOG),
    "jobs stop": (READ_JOBS, FIND_STACK, STOP_JOB),
    "jobs restart": (READ_JOBS, FIND_STACK, RESTART_JOB),
    "jobs wait": (READ_JOBS, SEE_DEFINITION, READ_LOG),
    "jobs logs": (READ_JOBS, SEE_DEFINITION, READ_LOG),
}
# Separate from the others as well: a person who deploys needs it, and may not touch nodes; and it only reads.
DOCTOR_COMMANDS: Commands = {
    "doctor": (
        COUNT_NODES,
        READ_HEARTBEATS_OF_JOB,
        *_POLICY,
        *_FIND,
        SEE_INSTANCES,
        SEE_MACHINES,
        Permission(
            "see the role in the instance profile of a node that does not report",
            ("iam:GetInstanceProfile",),
            ("arn:{partition}:iam::{account}:instance-profile/*",),
        ),
        Permission(
            "count what AppConfig has a quota for; the calls take no resource",
            ("appconfig:ListApplications", "appconfig:ListDeploymentStrategies"),
            ("*",),
        ),
        Permission(
            "see the quotas of AppConfig",
            ("servicequotas:GetServiceQuota",),
            ("arn:{partition}:servicequotas:{region}:{account}:appconfig/*",),
        ),
        Permission(
            "see the default of a quota; the call takes no resource",
            ("servicequotas:GetAWSDefaultServiceQuota",),
            ("*",),
        ),
        Permission(
            "see what `cdk bootstrap` has created", ("ssm:GetParameter",), (f"{SSM}:parameter/cdk-bootstrap/*",)
        ),
        Permission("find the agent's rollouts; the call takes no resource", ("ssm:ListAssociations",), ("*",)),
        Permission(
            "see how the agent's rollouts went", ("ssm:DescribeAssociationExecutions",), (f"{SSM}:association/*",)
        ),
        Permission(
            "see with which key the CDK's staging bucket is encrypted",
            ("s3:GetEncryptionConfiguration",),
            ("arn:{partition}:s3:::cdk-*-assets-{account}-{region}",),
        ),
        Permission(
            "see whether an EKS cluster is open to the functions, and has node groups",
            ("eks:DescribeCluster", "eks:ListNodegroups"),
            (f"{EKS}:cluster/*",),
        ),
        Permission(
            "see what the functions' role may do in an EKS cluster",
            ("eks:DescribeAccessEntry", "eks:ListAssociatedAccessPolicies"),
            (f"{EKS}:access-entry/*",),
        ),
        Permission("see whether EKS repairs a node group", ("eks:DescribeNodegroup",), (f"{EKS}:nodegroup/*",)),
        Permission(
            "see whether an EKS cluster admits the functions' security groups; the call takes no resource",
            ("ec2:DescribeSecurityGroups",),
            ("*",),
        ),
        Permission("see which tier of SSM the account has", ("ssm:GetServiceSetting",), (f"{SSM}:servicesetting/*",)),
        Permission(
            "see how many functions may run at once; the call takes no resource", ("lambda:GetAccountSettings",), ("*",)
        ),
        Permission("see who has confirmed the subscription to alerts", ("sns:ListSubscriptionsByTopic",), ("{topic}",)),
        Permission(
            "see whose subscription any holder of an email could end; the call takes no resource",
            ("sns:GetSubscriptionAttributes",),
            ("*",),
        ),
        Permission(
            "see which alarms are in ALARM; by prefix, no single one is named", ("cloudwatch:DescribeAlarms",), ("*",)
        ),
        Permission(
            "see how long logs are kept; by prefix, no single group is named", ("logs:DescribeLogGroups",), ("*",)
        ),
        Permission(
            "see what could not be processed",
            ("sqs:GetQueueAttributes",),
            ("arn:{partition}:sqs:{region}:{account}:nodeheal-*",),
        ),
    ),
}
# Every command that calls AWS; a test compares it with the existing commands.
COMMANDS: Commands = {**NODE_COMMANDS, **JOB_COMMANDS, **DOCTOR_COMMANDS}
POLICIES: Mapping[str, Commands] = {
    VIEWER_POLICY_NAME: VIEW_COMMANDS,
    POLICY_NAME: NODE_COMMANDS,
    JOBS_POLICY_NAME: JOB_COMMANDS,
    DOCTOR_POLICY_NAME: DOCTOR_COMMANDS,
}


def every_permission(commands: Commands = COMMANDS) -> tuple[Permission, ...]:
    """Return each permission once, in the order in which commands first need it."""
    found: dict[str, Permission] = {}
    for permissions in commands.values():
        for permission in permissions:
            found.setdefault(permission.why, permission)
    return tuple(found.values())


class OperatorPolicy(Construct):
    """The managed policies. They are attached to nobody: the account's owner decides who operates, and who trains."""

    def __init__(self, scope: Construct, places: Mapping[str, str]) -> None:
        super().__init__(scope, "Operator")
        self._policies = {
            "ViewerPolicy": self._make("ViewerPolicy", VIEWER_POLICY_NAME, every_permission(VIEW_COMMANDS), places),
            "Policy": self._make("Policy", POLICY_NAME, every_permission(NODE_COMMANDS), places),
            "DoctorPolicy": self._make("DoctorPolicy", DOCTOR_POLICY_NAME, every_permission(DOCTOR_COMMANDS), places),
            "JobsPolicy": self._make("JobsPolicy", JOBS_POLICY_NAME, every_permission(JOB_COMMANDS), places),
        }
        self.by_name: Mapping[str, iam.IManagedPolicy] = {
            VIEWER_POLICY_NAME: self._policies["ViewerPolicy"],
            POLICY_NAME: self._policies["Policy"],
            DOCTOR_POLICY_NAME: self._policies["DoctorPolicy"],
            JOBS_POLICY_NAME: self._policies["JobsPolicy"],
        }

    def outputs(self) -> dict[str, str]:
        """Return the stack's outputs for tools, by name."""
        return {f"Operator{key}Arn": policy.managed_policy_arn for key, policy in self._policies.items()}

    def _make(
        self, construct_id: str, name: str, permissions: tuple[Permission, ...], places: Mapping[str, str]
    ) -> iam.ManagedPolicy:
        made = iam.ManagedPolicy(
            self,
            construct_id,
            managed_policy_name=name.format_map(places),
            description="What the nodeheal command needs, and nothing that acts directly",
            statements=[permission.statement(places) for permission in _joined(permissions)],
        )
        accept_wildcards(made, permissions, places)
        return made


def _joined(permissions: tuple[Permission, ...]) -> list[Permission]:
    """Join those that differ in their resources only: a policy has 6,144 characters."""
    joined: dict[tuple[object, ...], Permission] = {}
    for each in permissions:
        alike = (each.actions, repr(each.conditions), each.effect)
        known = joined.get(alike)
        resources = (*known.resources, *each.resources) if known is not None else each.resources
        joined[alike] = replace(each, resources=tuple(dict.fromkeys(resources)))
    return list(joined.values())
