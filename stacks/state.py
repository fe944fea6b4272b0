"""Creates the state and the channels of the stack: tables, bus, topics, queues, bucket, and the nodes' role."""

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs

from nodeheal.contract import names
from stacks.alarms import ALARM_PREFIX
from stacks.controller_role import controller_role
from stacks.functions import FUNCTIONS
from stacks.job_output import job_output
from stacks.nag import accept
from stacks.node_channels import agent_pods_role, fallback_topic, heartbeats_table, node_role
from stacks.parallelcluster import QueueRole
from stacks.settings import Settings
from stacks.stages import KEPT_AFTER_ITS_STACK

QUEUED = {function.stem: function for function in FUNCTIONS if function.queue}
# Six times the function's timeout, as Lambda recommends: a batch must not reappear while its retries still run.
VISIBILITY = cdk.Duration.seconds(6 * max(function.timeout_seconds for function in QUEUED.values()))
# SQS's maximum: at one delivery in three minutes, two days of an outage. A throttled call, and a function that cannot
# start, cost a delivery each. Crashes of our own code end sooner: see lambdas/composition.py.
DELIVERIES = 1_000
KEPT = cdk.Duration.days(14)


class State:
    """State and channels. Everything here keeps its name, so that agents and people can rely on it."""

    def __init__(self, stack: cdk.Stack, settings: Settings) -> None:
        self._stack = stack
        self.table = self._table()
        self.bus = events.EventBus(
            self._stack, "Bus", event_bus_name=names.BUS, description="Events of nodes and of nodeheal"
        )
        self.topic = self._topic(settings)
        # A separate topic: a reader here sees no page, and no link that approves a recovery.
        self.owners_topic = sns.Topic(
            self._stack, "OwnersTopic", topic_name=names.OWNERS_TOPIC, display_name="nodeheal", enforce_ssl=True
        )
        self.event_dlq = self._queue("EventDlq", "nodeheal-events-dead")
        self.queues = {stem: self._feeding_queue(stem, function.queue) for stem, function in QUEUED.items()}
        self.event_queue = self.queues["ingest"]
        self.quarantine = self._queue("Quarantine", "nodeheal-quarantine")
        self.evidence = self._evidence_bucket(settings)
        self._route_health_events()
        self.approval_key_arn = self._approval_key()
        job_output(self._stack, settings)
        self.heartbeats = heartbeats_table(self._stack, settings)
        fallback = fallback_topic(self._stack, self.event_queue, self.event_dlq)
        places = {
            "bus": self.bus.event_bus_arn,
            "heartbeats": self.heartbeats.table_arn,
            "fallback": fallback.topic_arn,
        }
        self.node_role = node_role(self._stack, places, settings)
        self._eks_clusters = settings.eks_clusters
        self.controller_role = controller_role(self._stack, settings.eks_clusters)
        if settings.pod_identity_clusters:
            agent_pods_role(self._stack, places, settings.pod_identity_clusters)
        self._queue_role = QueueRole(stack, places, settings.parallelclusters) if settings.parallelclusters else None
        self.node_roles = (self.node_role, self._queue_role.role) if self._queue_role else (self.node_role,)
        # Of the roles whose session names AWS sets to machine ids: other signatures are refused.
        self.node_role_ids = ",".join((*(role.role_id for role in self.node_roles), *settings.node_role_ids))
        accept(self.event_dlq, "AwsSolutions-SQS3", "it is a dead-letter queue")
        accept(self.quarantine, "AwsSolutions-SQS3", "it is where unreadable messages are kept; nothing consumes it")

    def _table(self) -> dynamodb.Table:
        table = dynamodb.Table(
            self._stack,
            "Table",
            table_name=names.TABLE,
            partition_key=_string(names.PARTITION_KEY),
            sort_key=_string(names.SORT_KEY),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.AWS_MANAGED,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute=names.TTL_ATTRIBUTE,
            removal_policy=KEPT_AFTER_ITS_STACK,
        )
        table.add_global_secondary_index(
            index_name=names.INDEX,
            partition_key=_string(names.INDEX_PARTITION_KEY),
            sort_key=_string(names.INDEX_SORT_KEY),
        )
        return table

    def _evidence_bucket(self, settings: Settings) -> s3.Bucket:
        """Create the bucket for evidence. Only the function that signs for nodes may write it."""
        bucket = s3.Bucket(
            self._stack,
            "Evidence",
            # The stack's own account and Region: literal where they are known, since CloudFormation imports only what
            # has a literal name.
            bucket_name=names.EVIDENCE_BUCKET.format(account=self._stack.account, region=self._stack.region),
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=cdk.Duration.days(settings.evidence_retention_days),
                    abort_incomplete_multipart_upload_after=cdk.Duration.days(1),
                )
            ],
            removal_policy=KEPT_AFTER_ITS_STACK,
        )
        accept(bucket, "AwsSolutions-S1", "an access log would need a bucket of its own; CloudTrail has data events")
        return bucket

    def _topic(self, settings: Settings) -> sns.Topic:
        topic = sns.Topic(
            self._stack, "Topic", topic_name=names.ALERTS_TOPIC, display_name="nodeheal", enforce_ssl=True
        )
        for email in settings.alert_emails:
            topic.add_subscription(subscriptions.EmailSubscription(email))
        # A topic with its own policy has lost the default one, which permits the account's alarms to publish.
        alarms = f"arn:{cdk.Aws.PARTITION}:cloudwatch:{cdk.Aws.REGION}:{cdk.Aws.ACCOUNT_ID}:alarm:{ALARM_PREFIX}*"
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"ArnLike": {"aws:SourceArn": alarms}},
            )
        )
        return topic

    def _queue(self, construct_id: str, name: str, dead: sqs.Queue | None = None) -> sqs.Queue:
        return sqs.Queue(
            self._stack,
            construct_id,
            queue_name=name,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=KEPT,
            visibility_timeout=VISIBILITY,
            dead_letter_queue=sqs.DeadLetterQueue(max_receive_count=DELIVERIES, queue=dead) if dead else None,
        )

    def _feeding_queue(self, stem: str, name: str) -> sqs.Queue:
        """Create the queue of a function. Rules of this stack may fill it.

        One statement for all rules: a queue's policy has twenty at most, and the CDK would add one for each rule.
        """
        construct_id = "EventQueue" if stem == "ingest" else "".join(word.title() for word in stem.split("_")) + "Queue"
        queue = self._queue(construct_id, name, self.event_dlq)
        queue.add_to_resource_policy(sent_by_rules(queue))
        return queue

    def _approval_key(self) -> str:
        """Create the secret of the approval links; returns its ARN.

        It is deleted with the stack, and has no fixed name: links are valid for an hour, and Secrets Manager refuses
        the name of a secret that is still being deleted.
        """
        secret = secretsmanager.Secret(
            self._stack,
            "ApprovalKey",
            description="nodeheal signs its approval links with this; a new value invalidates every link sent before",
            generate_secret_string=secretsmanager.SecretStringGenerator(password_length=64, exclude_punctuation=True),
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        accept(
            secret,
            "AwsSolutions-SMG4",
            "links are valid for an hour; a rotation in between would invalidate those just sent",
        )
        resource = secret.node.default_child
        assert isinstance(resource, secretsmanager.CfnSecret)
        return resource.attr_id  # the ARN, as secret_arn is; the emulator answers Ref with the name

    def _route_health_events(self) -> None:
        events.Rule(
            self._stack,
            "HealthReported",
            event_bus=self.bus,
            description="Every health event of every agent is queued for ingest",
            event_pattern=events.EventPattern(source=[names.AGENT_SOURCE], detail_type=[names.NODE_HEALTH_REPORTED]),
            targets=[targets.SqsQueue(self.event_queue, dead_letter_queue=self.event_dlq)],
        )

    def outputs(self) -> dict[str, str]:
        """Return the stack's outputs for tools, by name."""
        return {
            "TableName": self.table.table_name,
            "BusName": self.bus.event_bus_name,
            "TopicArn": self.topic.topic_arn,
            "OwnersTopicArn": self.owners_topic.topic_arn,
            "NodeRoleArn": self.node_role.role_arn,
            names.NODE_ROLES_OUTPUT: self.node_role_ids,
            "EventQueueUrl": self.event_queue.queue_url,
            "EventDlqUrl": self.event_dlq.queue_url,
            "QuarantineUrl": self.quarantine.queue_url,
            "EvidenceBucketName": self.evidence.bucket_name,
            "ApprovalKeyArn": self.approval_key_arn,
            **({names.EKS_CLUSTERS_OUTPUT: ",".join(self._eks_clusters)} if self._eks_clusters else {}),
            **(self._queue_role.outputs() if self._queue_role else {}),
        }


def sent_by_rules(queue: sqs.Queue) -> iam.PolicyStatement:
    """Return the statement that lets the rules of this stack send to a queue."""
    rules = f"arn:{cdk.Aws.PARTITION}:events:{cdk.Aws.REGION}:{cdk.Aws.ACCOUNT_ID}:rule/nodeheal*"
    return iam.PolicyStatement(
        principals=[iam.ServicePrincipal("events.amazonaws.com")],
        actions=["sqs:SendMessage"],
        resources=[queue.queue_arn],
        conditions={"ArnLike": {"aws:SourceArn": rules}},
    )


def _string(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
