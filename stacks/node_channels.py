"""Defines the permissions of a node in addition to SSM's, those of an agent's pod, and the table for heartbeats."""

from collections.abc import Sequence
from typing import Required, TypedDict

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from nodeheal.contract import names
from stacks.nag import accept, accept_wildcards
from stacks.permission import Permission, for_this_account
from stacks.settings import Settings

# A node may report faults of itself, and may not send commands.
REPORT = Permission(
    "report what the node sees, in an agent's name and in nobody else's",
    ("events:PutEvents",),
    ("{bus}",),
    {"StringEquals": {"events:source": names.AGENT_SOURCE}},
)
HEARTBEAT = Permission(
    "write heartbeats, in the one item that is named after its own session and in no other",
    ("dynamodb:UpdateItem",),
    ("{heartbeats}",),
    {
        # AWS names the sessions of machines after them, ROLE-ID:MACHINE-ID. A machine cannot choose another name.
        "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": "${{aws:userid}}"},
        # With an empty set of keys, ForAllValues is always true.
        "Null": {"dynamodb:LeadingKeys": "false"},
    },
)
POD_HEARTBEAT = Permission(
    "write heartbeats, in the one item that is named after its own cluster and pod and in no other",
    ("dynamodb:UpdateItem",),
    ("{heartbeats}",),
    {
        # EKS sets these tags of a pod's session, and nobody else can.
        "ForAllValues:StringEquals": {
            "dynamodb:LeadingKeys": "pod:${{aws:PrincipalTag/eks-cluster-name}}/"
            "${{aws:PrincipalTag/kubernetes-pod-name}}"
        },
        "Null": {"dynamodb:LeadingKeys": "false"},
    },
)
GO_AROUND = Permission(
    "publish grave faults to SNS while the bus accepts nothing; ingest reads them like an agent's events",
    ("sns:Publish",),
    ("{fallback}",),
)
MEASURE = Permission(
    "send metrics of the node's load and heat to CloudWatch, in this namespace; the call takes no resource",
    ("cloudwatch:PutMetricData",),
    ("*",),
    {"StringEquals": {"cloudwatch:namespace": names.NODE_METRICS_NAMESPACE}},
)
# AWS's policy for the ECS agent, which people attach to this role, allows both for every container instance. The agent
# calls neither, except that spot instances drain themselves (aws/amazon-ecs-agent, ecs-agent/api/ecs/interface.go).
TOUCH_NO_OTHER = Permission(
    "**denied**, whatever else is attached: drain other machines of the cluster, or take them out of it",
    ("ecs:DeregisterContainerInstance", "ecs:UpdateContainerInstancesState"),
    ("*",),
    effect=iam.Effect.DENY,
)
SSM_CORE = "AmazonSSMManagedInstanceCore"  # the SSM agent's own policy
NODE_PERMISSIONS = (REPORT, HEARTBEAT, GO_AROUND, MEASURE, TOUCH_NO_OTHER)
AGENT_POD_PERMISSIONS = (REPORT, POD_HEARTBEAT, GO_AROUND, MEASURE)


def heartbeats_table(scope: Construct, settings: Settings) -> dynamodb.Table:
    """Create the table with one small item for each machine. It is separate, so that nodes cannot write what decisions
    use.
    """
    table = dynamodb.Table(
        scope,
        "Heartbeats",
        table_name=names.HEARTBEATS_TABLE,
        partition_key=dynamodb.Attribute(name=names.HEARTBEAT_KEY, type=dynamodb.AttributeType.STRING),
        encryption=dynamodb.TableEncryption.AWS_MANAGED,
        **_capacity(settings.heartbeat_writes_a_second),
        time_to_live_attribute=names.TTL_ATTRIBUTE,
        # Its content is written again within a minute.
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    accept(table, "AwsSolutions-DDB3", "old heartbeats have no value, and present ones are written again")
    return table


def fallback_topic(scope: Construct, queue: sqs.Queue, dead: sqs.Queue) -> sns.Topic:
    """Create the topic that replaces the bus during an outage, straight into ingest's queue: nodeheal acts on faults
    from it as from the bus.

    SNS wraps the messages, which shows their origin: in a raw one, a node could forge an envelope of EventBridge's.
    """
    topic = sns.Topic(scope, "FallbackTopic", topic_name=names.FALLBACK_TOPIC, enforce_ssl=True)
    topic.add_subscription(subscriptions.SqsSubscription(queue, raw_message_delivery=False, dead_letter_queue=dead))
    return topic


class _Capacity(TypedDict, total=False):
    billing_mode: Required[dynamodb.BillingMode]
    read_capacity: int
    write_capacity: int


def _capacity(writes_a_second: int) -> _Capacity:
    """Return the table's capacity. Heartbeats come evenly, day and night, so provisioned capacity costs a large fleet a
    third of on-demand requests.
    """
    if not writes_a_second:
        return _Capacity(billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST)
    return _Capacity(
        billing_mode=dynamodb.BillingMode.PROVISIONED,
        write_capacity=writes_a_second,
        # The sweep reads all once a minute: 60 nodes for a write a second, 150 bytes each, 8 KiB a unit. Times three.
        read_capacity=max(5, writes_a_second // 15),
    )


def node_role(scope: Construct, places: dict[str, str], settings: Settings) -> iam.Role:
    """Create the role of hybrid activations (ssm) and instance profiles (ec2): the agent may only report."""
    trusted: list[iam.IPrincipal] = [
        for_this_account("ssm.amazonaws.com"),
        # No AWS page says that EC2 passes an account here. An instance profile accepts only roles of its own account.
        iam.ServicePrincipal("ec2.amazonaws.com"),
    ]
    if settings.is_sandbox:
        trusted.append(iam.AccountRootPrincipal())  # simulated nodes get its credentials from the sandbox
    managed = f"arn:{cdk.Aws.PARTITION}:iam::aws:policy/{SSM_CORE}"
    statements = [permission.statement(places) for permission in NODE_PERMISSIONS]
    role = iam.Role(
        scope,
        "NodeRole",
        role_name=names.NODE_ROLE.format(region=cdk.Aws.REGION),
        assumed_by=iam.CompositePrincipal(*trusted),
        managed_policies=[iam.ManagedPolicy.from_managed_policy_arn(scope, "SsmAgent", managed)],
        inline_policies={"report": iam.PolicyDocument(statements=statements)},
    )
    accept_wildcards(role, NODE_PERMISSIONS, places)
    accept(
        role,
        f"AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{SSM_CORE}]",
        "the SSM agent's own policy, kept by AWS as the agent changes",
    )
    return role


def agent_pods_role(scope: Construct, places: dict[str, str], clusters: Sequence[str]) -> iam.Role:
    """Create the role that the agent's pods have by EKS Pod Identity in these clusters, and no other pods."""
    arns = [f"arn:{cdk.Aws.PARTITION}:eks:{cdk.Aws.REGION}:{cdk.Aws.ACCOUNT_ID}:cluster/{name}" for name in clusters]
    tags = {
        "aws:RequestTag/eks-cluster-arn": arns,
        "aws:RequestTag/kubernetes-namespace": names.KUBERNETES_NAMESPACE,
        "aws:RequestTag/kubernetes-service-account": names.KUBERNETES_AGENT,
    }
    eks_pods = iam.ServicePrincipal("pods.eks.amazonaws.com", conditions={"StringEquals": tags})
    role = iam.Role(
        scope,
        "AgentPodsRole",
        role_name=names.AGENT_POD_ROLE.format(region=cdk.Aws.REGION),
        assumed_by=iam.SessionTagsPrincipal(eks_pods),
        inline_policies={
            "report": iam.PolicyDocument(statements=[each.statement(places) for each in AGENT_POD_PERMISSIONS])
        },
    )
    accept_wildcards(role, AGENT_POD_PERMISSIONS, places)
    for cluster in clusters:
        eks.CfnPodIdentityAssociation(
            scope,
            f"AgentPods-{cluster}",
            cluster_name=cluster,
            namespace=names.KUBERNETES_NAMESPACE,
            service_account=names.KUBERNETES_AGENT,
            role_arn=role.role_arn,
        )
    return role
