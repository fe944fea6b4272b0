"""What a node may do besides being managed by SSM, and the table for its heartbeats."""

from typing import Required, TypedDict

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from nodeheal.contract import names
from stacks.nag import accept, accept_wildcards
from stacks.permission import Permission, for_this_account
from stacks.settings import Settings

# A node may accuse itself, and not give orders.
REPORT = Permission(
    "report what the node sees, in an agent's name and in nobody else's",
    ("events:PutEvents",),
    ("{bus}",),
    {"StringEquals": {"events:source": names.AGENT_SOURCE}},
)
HEARTBEAT = Permission(
    "give heartbeats, in the one item that is named after its own session and in no other",
    ("dynamodb:UpdateItem",),
    ("{heartbeats}",),
    {
        # AWS names the sessions of machines after them, ROLE-ID:MACHINE-ID. Nobody there can choose another name.
        "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": "${{aws:userid}}"},
        # Of no keys at all, all are equal to whatever one likes.
        "Null": {"dynamodb:LeadingKeys": "false"},
    },
)
GO_AROUND = Permission(
    "tell what is grave by way of SNS while the bus takes nothing; ingest reads it as an agent's",
    ("sns:Publish",),
    ("{fallback}",),
)
MEASURE = Permission(
    "tell CloudWatch how busy and how hot the node is, in this namespace; the call takes no resource",
    ("cloudwatch:PutMetricData",),
    ("*",),
    {"StringEquals": {"cloudwatch:namespace": names.NODE_METRICS_NAMESPACE}},
)
# AWS's policy for the ECS agent, which people attach to this role, allows both for every container instance. The agent
# calls neither, but for spot instances that drain themselves (aws/amazon-ecs-agent, ecs-agent/api/ecs/interface.go).
TOUCH_NO_OTHER = Permission(
    "**denied**, whatever else is attached: drain other machines of the cluster, or take them out of it",
    ("ecs:DeregisterContainerInstance", "ecs:UpdateContainerInstancesState"),
    ("*",),
    effect=iam.Effect.DENY,
)
NODE_PERMISSIONS = (REPORT, HEARTBEAT, GO_AROUND, MEASURE, TOUCH_NO_OTHER)


def heartbeats_table(scope: Construct, settings: Settings) -> dynamodb.Table:
    """One small item a machine. A table of its own, so that what nodes may write holds nothing that decides."""
    table = dynamodb.Table(
        scope,
        "Heartbeats",
        table_name=names.HEARTBEATS_TABLE,
        partition_key=dynamodb.Attribute(name=names.HEARTBEAT_KEY, type=dynamodb.AttributeType.STRING),
        encryption=dynamodb.TableEncryption.AWS_MANAGED,
        **_capacity(settings.heartbeat_writes_a_second),
        time_to_live_attribute=names.TTL_ATTRIBUTE,
        # What it held is said again within a minute.
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    accept(table, "AwsSolutions-DDB3", "heartbeats of yesterday are worth nothing; those of today are given again")
    return table


def fallback_topic(scope: Construct, queue: sqs.Queue, dead: sqs.Queue) -> sns.Topic:
    """The way around the bus, straight into ingest's queue: what a node tells there is acted on, and pages as ever.

    Wrapped by SNS, which says where it comes from: raw, a node could write an envelope of EventBridge's.
    """
    topic = sns.Topic(scope, "FallbackTopic", topic_name=names.FALLBACK_TOPIC, enforce_ssl=True)
    topic.add_subscription(subscriptions.SqsSubscription(queue, raw_message_delivery=False, dead_letter_queue=dead))
    return topic


class _Capacity(TypedDict, total=False):
    billing_mode: Required[dynamodb.BillingMode]
    read_capacity: int
    write_capacity: int


def _capacity(writes_a_second: int) -> _Capacity:
    """Heartbeats come evenly, day and night: a large fleet pays a third for capacity of what it pays for each."""
    if not writes_a_second:
        return _Capacity(billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST)
    return _Capacity(
        billing_mode=dynamodb.BillingMode.PROVISIONED,
        write_capacity=writes_a_second,
        # The sweep reads all once a minute: 60 nodes for a write a second, 150 bytes each, 8 KiB a unit. Thrice that.
        read_capacity=max(5, writes_a_second // 15),
    )


def node_role(scope: Construct, places: dict[str, str], settings: Settings) -> iam.Role:
    """The role of hybrid activations (ssm) and instance profiles (ec2): all that the agent may do is speak."""
    trusted: list[iam.IPrincipal] = [
        for_this_account("ssm.amazonaws.com"),
        # No page says that EC2 names an account here. An instance profile takes only roles of its own account.
        iam.ServicePrincipal("ec2.amazonaws.com"),
    ]
    if settings.is_sandbox:
        trusted.append(iam.AccountRootPrincipal())  # simulated nodes get its credentials from the sandbox
    managed = f"arn:{cdk.Aws.PARTITION}:iam::aws:policy/AmazonSSMManagedInstanceCore"
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
        "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/AmazonSSMManagedInstanceCore]",
        "the SSM agent's own policy, kept by AWS as the agent changes",
    )
    return role
