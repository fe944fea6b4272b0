"""Defines permissions as data: what a function may do, on what, under which condition, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aws_cdk as cdk
from aws_cdk import aws_iam as iam

from nodeheal.contract import names

Conditions = Mapping[str, Mapping[str, str | tuple[str, ...]]]

# Where a resource is written {like this}, the stack fills in the deployed one; docs/reference/iam.md shows it as it is.
ECS = "arn:{partition}:ecs:{region}:{account}"
LAMBDA = "arn:{partition}:lambda:{region}:{account}"
SSM = "arn:{partition}:ssm:{region}:{account}"
CLUSTER = f"{ECS}:cluster/{{cluster}}"
CONTAINER_INSTANCES = f"{ECS}:container-instance/{{cluster}}/*"
TASKS = f"{ECS}:task/{{cluster}}/*"
TASK_DEFINITIONS = f"{ECS}:task-definition/*"
MANAGED_NODES = (f"{SSM}:managed-instance/*", "arn:{partition}:ec2:{region}:{account}:instance/*")

IN_CLUSTER: Conditions = {"ArnEquals": {"ecs:cluster": CLUSTER}}
MANAGED = {f"aws:ResourceTag/{names.MANAGED_TAG}": names.MANAGED_TAG_VALUE}
MANAGED_IN_CLUSTER: Conditions = {**IN_CLUSTER, "StringEquals": MANAGED}
# A task gets the tag as it is started: what nodeheal starts, it may stop.
MARKED_IN_CLUSTER: Conditions = {
    **IN_CLUSTER,
    "StringEquals": {f"aws:RequestTag/{names.MANAGED_TAG}": names.MANAGED_TAG_VALUE},
}
# SSM has the tags of a hybrid node under its own condition key only.
MANAGED_BY_SSM: Conditions = {"StringEquals": {f"ssm:resourceTag/{names.MANAGED_TAG}": names.MANAGED_TAG_VALUE}}


@dataclass(frozen=True)
class Permission:
    """One statement of a policy, with its reason."""

    why: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Conditions = field(default_factory=dict)
    effect: iam.Effect = iam.Effect.ALLOW

    def statement(self, places: Mapping[str, str]) -> iam.PolicyStatement:
        """Return the statement, with the deployed resources filled in."""
        return iam.PolicyStatement(
            effect=self.effect,
            actions=list(self.actions),
            resources=[resource.format_map(places) for resource in self.resources],
            conditions={
                operator: {key: _in_place(value, places) for key, value in pairs.items()}
                for operator, pairs in self.conditions.items()
            },
        )


def only_keys(*keys: str) -> Conditions:
    """Return a condition for items below these partition keys, of the table or its index. A request without a key is
    refused.
    """
    return {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": keys},
        "Null": {"dynamodb:LeadingKeys": "false"},  # an empty set of keys matches any condition
    }


def _in_place(value: str | tuple[str, ...], places: Mapping[str, str]) -> str | list[str]:
    return value.format_map(places) if isinstance(value, str) else [one.format_map(places) for one in value]


# Each function has only the table actions that its code uses: a test reads the code.
KEEP = Permission("read and write single items of the table", ("dynamodb:GetItem", "dynamodb:PutItem"), ("{table}",))
LIST = Permission(
    "read what belongs together, from the table and its index; no scans",
    ("dynamodb:Query",),
    ("{table}", "{table}/index/" + names.INDEX),
)
FORGET = Permission("delete budget slots and leases", ("dynamodb:DeleteItem",), ("{table}",))
CHANGE = Permission("write an incident's next turn, or end it", ("dynamodb:UpdateItem",), ("{table}",))
READ_HEARTBEATS = Permission(
    "read the heartbeats of all machines, which is all that their table holds", ("dynamodb:Scan",), ("{heartbeats}",)
)
READ_HEARTBEATS_OF_JOB = Permission(
    "read the heartbeats of a job's machines, by their keys or, where the roles of the nodes are not known, all",
    ("dynamodb:BatchGetItem", "dynamodb:Scan"),
    ("{heartbeats}",),
)
SEE_RECORDS_MARK = Permission(
    "see whether the records went back: the mark outside their table",
    ("dynamodb:GetItem",),
    ("{heartbeats}",),
    only_keys(names.EPOCH_KEY),
)
MARK_RECORDS = Permission(
    "renew the mark outside the table of records",
    ("dynamodb:UpdateItem",),
    ("{heartbeats}",),
    only_keys(names.EPOCH_KEY),
)
READ_KEYS = Permission(
    "read the public key with which a node signs what it reports, and the records' mark",
    ("dynamodb:GetItem",),
    ("{heartbeats}",),
)
PLACE_AGENT_PODS = Permission(
    "record which machine a pod of the agent is on",
    ("dynamodb:UpdateItem",),
    ("{heartbeats}",),
    only_keys(f"{names.AGENT_POD_KEY}*"),
)
SEE_INSTANCE_TAGS = Permission(
    "see whether an operator has tagged the instance of an unknown node as enrolled; the call takes no resource",
    ("ec2:DescribeInstances",),
    ("*",),
)
SEE_NODE_TAGS = Permission(
    "see whether an operator has tagged an unknown hybrid node as enrolled",
    ("ssm:ListTagsForResource",),
    (f"{SSM}:managed-instance/*",),
)
READ_POLICY = Permission(
    "read the policy document that is in force",
    ("appconfig:GetLatestConfiguration", "appconfig:StartConfigurationSession"),
    ("arn:{partition}:appconfig:{region}:{account}:{policy}",),
)
READ_APPROVAL_KEY = Permission(
    "create and check the signatures of approval links",
    ("secretsmanager:GetSecretValue",),
    ("{approval_key}",),
)
RESUME = Permission(
    "resume the workflow that waits; the task token is the capability, and the call takes no resource",
    ("states:SendTaskSuccess",),
    ("*",),
)
_EXECUTIONS = tuple(
    "arn:{partition}:states:{region}:{account}:execution:" + workflow + ":*"
    for workflow in (names.RECOVERY_WORKFLOW, names.JOB_WORKFLOW)
)
SEE_EXECUTIONS = (
    Permission(
        "see which recoveries and jobs were started", ("states:ListExecutions",), ("{recover_node}", "{run_job}")
    ),
    Permission(
        "see what an execution was started for, and whether it runs", ("states:DescribeExecution",), _EXECUTIONS
    ),
)
START_RECOVERY = Permission("start the recovery of a new incident", ("states:StartExecution",), ("{recover_node}",))
START_JOB = Permission(
    "start the workflow of a job, which starts its tasks", ("states:StartExecution",), ("{run_job}",)
)
FIND_NODE = Permission("find a node in the cluster", ("ecs:ListContainerInstances",), (CLUSTER,))
SEE_HOLDER = Permission("see whether a person keeps a node drained", ("ecs:ListAttributes",), (CLUSTER,))
SEE_NODE = Permission(
    "see whether a node drains or is connected",
    ("ecs:DescribeContainerInstances",),
    (CONTAINER_INSTANCES,),
    IN_CLUSTER,
)
_SWITCH_NODE = Permission(
    "take a node that the operator enrolled out of service, or back in",
    ("ecs:UpdateContainerInstancesState",),
    (CONTAINER_INSTANCES,),
    MANAGED_IN_CLUSTER,
)
_ISOLATED_TAG_ONLY = {"StringEquals": MANAGED, "ForAllValues:StringEquals": {"aws:TagKeys": names.ISOLATED_TAG}}
DRAIN_NODE = (
    _SWITCH_NODE,
    Permission(
        "write on a node that the operator enrolled which incident holds it, in this one tag",
        ("ecs:TagResource",),
        (CONTAINER_INSTANCES,),
        _ISOLATED_TAG_ONLY,
    ),
)
UNTAG_NODE = Permission(
    "remove the tag with the incident from a node that the operator enrolled",
    ("ecs:UntagResource",),
    (CONTAINER_INSTANCES,),
    _ISOLATED_TAG_ONLY,
)
UNDRAIN_NODE = (_SWITCH_NODE, UNTAG_NODE)
STOP_TASK = Permission(
    "stop only tasks that nodeheal started, or whose owner has tagged them so",
    ("ecs:StopTask",),
    (TASKS,),
    MANAGED_IN_CLUSTER,
)
# Without a container instance AWS asks for "*", and only the condition holds it to the cluster.
LIST_TASKS = Permission("see which tasks are on a node, or have a mark", ("ecs:ListTasks",), ("*",), IN_CLUSTER)
SEE_TASKS = Permission(
    "see whose a task on a node is, and whether it has ended", ("ecs:DescribeTasks",), (TASKS,), IN_CLUSTER
)
PASS_EXECUTION_ROLE = Permission(
    "give a job's task the role with which its image is pulled and its output is logged, which can do no more",
    ("iam:PassRole",),
    ("arn:{partition}:iam::{account}:role/" + names.JOB_EXECUTION_ROLE,),
    {"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}},
)
_JOB_DEFINITIONS = (f"{ECS}:task-definition/{names.JOB_FAMILY_PREFIX}*",)
REGISTER_DEFINITION = Permission(
    "register a task definition from a job file, in nodeheal's own families; nothing is started by it",
    ("ecs:RegisterTaskDefinition",),
    _JOB_DEFINITIONS,
)
TAG_DEFINITION = Permission(
    "tag a task definition with its job as it is registered, and at no other time",
    ("ecs:TagResource",),
    _JOB_DEFINITIONS,
    {"StringEquals": {"ecs:CreateAction": "RegisterTaskDefinition"}},
)
SEE_DEFINITION = Permission(
    "check the task definition of a job; the call takes no resource", ("ecs:DescribeTaskDefinition",), ("*",)
)
START_TASK = (
    Permission(
        "start a task on a node of the cluster, tagged as nodeheal's to stop",
        ("ecs:StartTask",),
        (TASK_DEFINITIONS,),
        MARKED_IN_CLUSTER,
    ),
    Permission(
        "tag a task as it is started, and at no other time",
        ("ecs:TagResource",),
        (TASKS,),
        {"StringEquals": {"ecs:CreateAction": "StartTask"}},
    ),
    LIST_TASKS,
    PASS_EXECUTION_ROLE,
)
SIGN_UPLOADS = Permission(
    "sign a node's upload of evidence: a signature permits no more than its signer may do",
    ("s3:PutObject",),
    ("arn:{partition}:s3:::" + names.EVIDENCE_BUCKET + "/" + names.EVIDENCE_PREFIX + "*",),
)
QUARANTINE = Permission("keep what cannot be read", ("sqs:SendMessage",), ("{quarantine}",))
ANNOUNCE = Permission(
    "put notifications on the bus, in the control plane's name and in nobody else's",
    ("events:PutEvents",),
    ("{bus}",),
    {"StringEquals": {"events:source": names.CONTROL_SOURCE}},
)


def for_this_account(service: str) -> iam.ServicePrincipal:
    """Return a service principal for this account only: otherwise another account could make the service assume the
    role.
    """
    return iam.ServicePrincipal(service, conditions={"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}})


def take_messages(queue: str) -> Permission:
    """Return what a function needs of the queue that feeds it."""
    return Permission(
        "take events off the queue",
        ("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"),
        (f"arn:{{partition}}:sqs:{{region}}:{{account}}:{queue}",),
    )


def own_log(log_group: str) -> Permission:
    """Return the permission to write one log group's streams, and to create no group."""
    streams = f"arn:{{partition}}:logs:{{region}}:{{account}}:log-group:{log_group}:*"
    return Permission("write its own log", ("logs:CreateLogStream", "logs:PutLogEvents"), (streams,))


SEE_COMMAND = Permission(
    "see the result of a command; the call takes no resource", ("ssm:GetCommandInvocation",), ("*",)
)
SEE_MANAGED_NODES = Permission(
    "see at which address SSM reaches a node, and which machine is a Slurm controller; the call takes no resource",
    ("ssm:DescribeInstanceInformation",),
    ("*",),
)
# IAM authorizes the document and the machine of a command apart. So controllers are asked as a role that sends nothing
# else: a role that sends documents to nodes, too, could send those to a controller. A controller is not a healed node,
# and needs no such tag.
CONTROLLER_ROLE_PERMISSIONS = (
    Permission(
        "ask the controller of a Slurm cluster: with this document only",
        ("ssm:SendCommand",),
        (f"{SSM}:document/{names.document('slurm')}",),
    ),
    Permission(
        "ask the controller of a Slurm cluster: only machines that the operator tagged as one",
        ("ssm:SendCommand",),
        MANAGED_NODES,
        {"StringLike": {f"ssm:resourceTag/{names.SLURM_CONTROLLER_TAG}": "*"}},
    ),
)


def describe_clusters(eks_clusters: Sequence[str]) -> tuple[Permission, ...]:
    """Return the permission to find the API servers of these clusters; none: of no cluster."""
    arns = tuple(f"arn:{{partition}}:eks:{{region}}:{{account}}:cluster/{name}" for name in eks_clusters)
    why = "find the API server of an EKS cluster; what it lets the role do is bounded there"
    return (Permission(why, ("eks:DescribeCluster",), arns),) if arns else ()


ASK_CLUSTERS = Permission(
    "ask clusters, by Slurm's controllers and by API servers of EKS, as the role that may do nothing else",
    ("sts:AssumeRole",),
    ("arn:{partition}:iam::{account}:role/" + names.CONTROLLER_ROLE,),
)
# In addition to DescribeInstanceInformation, which every deciding function may call.
ASK_CONTROLLER = (ASK_CLUSTERS, SEE_COMMAND)


def on_kubernetes(
    permissions: Sequence[Permission], eks_clusters: Sequence[str], pod_identity_clusters: Sequence[str]
) -> tuple[Permission, ...]:
    """Return what a function needs to ask a cluster what it asks SSM elsewhere: commands, and whether a node answers.

    One that reads keys asks as well which machine a pod of the agent is on, where agents speak as their pods.
    """
    if not eks_clusters:
        return ()
    given = {action for permission in permissions for action in permission.actions}
    of_ssm = {"ssm:SendCommand", "ssm:GetCommandInvocation", "ssm:DescribeInstanceInformation"}
    places = (PLACE_AGENT_PODS,) if pod_identity_clusters and READ_KEYS in permissions else ()
    asks = (ASK_CLUSTERS,) if places or given & of_ssm else ()
    return tuple(each for each in (*asks, *places) if each not in permissions)


def in_vpc(function: str) -> tuple[Permission, ...]:
    """Return what Lambda needs to run this function in a VPC, in the name of the function's role; its own code may not
    do it. Lambda asks for these resources: Lambda Developer Guide, functions in a VPC.
    """
    make = "ec2:CreateNetworkInterface"
    rest = ("ec2:AssignPrivateIpAddresses", "ec2:DeleteNetworkInterface", "ec2:UnassignPrivateIpAddresses")
    own = {"ArnEquals": {"lambda:SourceFunctionArn": f"{LAMBDA}:function:{function}"}}
    return (
        Permission("have Lambda make its network interfaces, in any subnet", (make,), ("*",)),
        Permission("have Lambda delete its network interfaces", rest, ("arn:{partition}:ec2:{region}:{account}:*/*",)),
        Permission(
            "have Lambda see its network interfaces; the calls take no resource",
            ("ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets"),
            ("*",),
        ),
        Permission("denied: to make and delete any by its own code", (make, *rest), ("*",), own, iam.Effect.DENY),
    )


def send_command(why: str, *documents: str) -> tuple[Permission, Permission]:
    """Return the permissions of SendCommand, which authorizes the document and the node separately: two statements, and
    only nodes have the tag.
    """
    action = ("ssm:SendCommand",)
    return (
        Permission(
            f"{why}: with {'this document' if len(documents) == 1 else 'these documents'} only",
            action,
            tuple(f"{SSM}:document/{names.document(document)}" for document in documents),
        ),
        Permission(f"{why}: only nodes that the operator enrolled", action, MANAGED_NODES, MANAGED_BY_SSM),
    )
