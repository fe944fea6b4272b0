"""The state of the stack: nothing in it is lost, and nobody else's traffic gets in."""

import json
from typing import Any

from nodeheal.contract import names
from nodeheal.contract.names import OWNERS_TOPIC
from stacks.functions import FUNCTIONS
from tests.infrastructure.synthesis import Template, role_named, synthesize

# L6: a service could be asked by another account to assume these roles.
THIS_ACCOUNT = {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def table(templates: Template, name: str) -> Any:
    """A table, with what becomes of it."""
    [found] = [r for _, r in templates.of_type("AWS::DynamoDB::Table") if r["Properties"]["TableName"] == name]
    return found


def queue(templates: Template, name: str) -> Any:
    """A queue's properties."""
    [found] = [r["Properties"] for _, r in templates.of_type("AWS::SQS::Queue") if r["Properties"]["QueueName"] == name]
    return found


def test_the_table_survives_the_stack_and_can_be_restored(real: Template) -> None:
    state = table(real, names.TABLE)

    assert state["DeletionPolicy"] == "RetainExceptOnCreate"
    assert state["UpdateReplacePolicy"] == "Retain"
    assert state["Properties"]["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True
    assert state["Properties"]["BillingMode"] == "PAY_PER_REQUEST"
    assert state["Properties"]["SSESpecification"] == {"SSEEnabled": True}


def test_heartbeats_are_in_a_table_of_their_own_that_forgets(real: Template) -> None:
    heartbeats = table(real, names.HEARTBEATS_TABLE)
    properties = heartbeats["Properties"]

    assert heartbeats["DeletionPolicy"] == "Delete"
    assert properties["KeySchema"] == [{"AttributeName": names.HEARTBEAT_KEY, "KeyType": "HASH"}]
    assert properties["TimeToLiveSpecification"] == {"AttributeName": names.TTL_ATTRIBUTE, "Enabled": True}
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert properties["SSESpecification"] == {"SSEEnabled": True}


def test_the_table_has_the_keys_that_the_code_spells(real: Template) -> None:
    state = table(real, names.TABLE)["Properties"]
    [index] = state["GlobalSecondaryIndexes"]

    assert [key["AttributeName"] for key in state["KeySchema"]] == [names.PARTITION_KEY, names.SORT_KEY]
    assert index["IndexName"] == names.INDEX
    assert [key["AttributeName"] for key in index["KeySchema"]] == [names.INDEX_PARTITION_KEY, names.INDEX_SORT_KEY]
    assert state["TimeToLiveSpecification"] == {"AttributeName": names.TTL_ATTRIBUTE, "Enabled": True}


def test_a_large_fleet_may_buy_capacity_for_its_heartbeats() -> None:
    bought = synthesize({"nodeheal": {"heartbeat_writes_a_second": 2_000}})

    properties = table(bought, names.HEARTBEATS_TABLE)["Properties"]

    assert properties["ProvisionedThroughput"] == {"ReadCapacityUnits": 133, "WriteCapacityUnits": 2_000}
    assert "BillingMode" not in properties or properties["BillingMode"] == "PROVISIONED"


def test_an_event_outlives_an_outage_of_two_days_in_its_queue(real: Template) -> None:
    for spec in FUNCTIONS:
        if not spec.queue:
            continue
        feeding = queue(real, spec.queue)
        lives = feeding["RedrivePolicy"]["maxReceiveCount"] * feeding["VisibilityTimeout"]
        assert 48 * 3_600 <= lives < feeding["MessageRetentionPeriod"]
        assert feeding["VisibilityTimeout"] >= 6 * spec.timeout_seconds


def test_every_queue_is_encrypted_and_takes_only_tls(real: Template) -> None:
    queues = list(real.of_type("AWS::SQS::Queue"))
    policies = [json.dumps(policy) for _, policy in real.of_type("AWS::SQS::QueuePolicy")]

    assert len(queues) == 6
    for logical_id, resource in queues:
        assert resource["Properties"]["SqsManagedSseEnabled"] is True
        assert any(logical_id in policy and "aws:SecureTransport" in policy for policy in policies)


def test_operators_are_told_by_email_over_tls_only(real: Template) -> None:
    by_email = [s for _, s in real.of_type("AWS::SNS::Subscription") if s["Properties"]["Protocol"] == "email"]

    assert [subscription["Properties"]["Endpoint"] for subscription in by_email] == ["oncall@example.com"]
    policies = [json.dumps(policy) for _, policy in real.of_type("AWS::SNS::TopicPolicy")]
    assert len(policies) == len(list(real.of_type("AWS::SNS::Topic")))
    assert all("aws:SecureTransport" in policy for policy in policies)


def test_what_goes_around_the_bus_comes_to_ingest_in_wrapping_that_no_node_can_forge(real: Template) -> None:
    [way] = [s["Properties"] for _, s in real.of_type("AWS::SNS::Subscription") if s["Properties"]["Protocol"] == "sqs"]

    assert "Fallback" in json.dumps(way["TopicArn"])
    assert "EventQueue" in json.dumps(way["Endpoint"])
    assert way["RawMessageDelivery"] is False
    assert "EventDlq" in json.dumps(way["RedrivePolicy"])


def test_nobody_is_subscribed_to_what_owners_are_told_before_they_ask_for_it(real: Template) -> None:
    [owners] = [n for n, topic in real.of_type("AWS::SNS::Topic") if topic["Properties"]["TopicName"] == OWNERS_TOPIC]

    subscriptions = [json.dumps(subscription) for _, subscription in real.of_type("AWS::SNS::Subscription")]

    assert subscriptions
    assert not [subscription for subscription in subscriptions if owners in subscription]


def test_a_node_may_speak_for_itself_and_nothing_else(real: Template) -> None:
    role = role_named(real, names.NODE_ROLE)
    [policy] = role["Policies"]
    report, heartbeat, around, measure, _ = policy["PolicyDocument"]["Statement"]

    assert report["Action"] == "events:PutEvents"
    assert "Bus" in json.dumps(report["Resource"])
    assert report["Condition"] == {"StringEquals": {"events:source": "nodeheal.agent"}}
    assert heartbeat["Action"] == "dynamodb:UpdateItem"
    assert "Heartbeats" in json.dumps(heartbeat["Resource"])
    assert heartbeat["Condition"] == {
        "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": "${aws:userid}"},
        "Null": {"dynamodb:LeadingKeys": "false"},
    }
    assert around["Action"] == "sns:Publish"
    assert "Fallback" in json.dumps(around["Resource"])
    assert measure["Action"] == "cloudwatch:PutMetricData"
    assert measure["Condition"] == {"StringEquals": {"cloudwatch:namespace": "nodeheal/nodes"}}
    assert "AmazonSSMManagedInstanceCore" in json.dumps(role["ManagedPolicyArns"])
    trusted = {s["Principal"]["Service"]: s.get("Condition") for s in role["AssumeRolePolicyDocument"]["Statement"]}
    assert trusted == {"ssm.amazonaws.com": THIS_ACCOUNT, "ec2.amazonaws.com": None}


def test_the_outputs_have_the_names_that_tools_rely_on(real: Template) -> None:
    assert set(real.body["Outputs"]) == {
        "ActsUrl",
        "AgentBucketKeyArn",
        "AgentBucketName",
        "AgentDownloadPolicyArn",
        "ApprovalKeyArn",
        "BusName",
        "Channels",
        "EvidenceBucketName",
        "EventDlqUrl",
        "EventQueueUrl",
        "NodeRoleArn",
        "NodeRoleIds",
        "OperatorDoctorPolicyArn",
        "OperatorJobsPolicyArn",
        "OperatorPolicyArn",
        "OperatorViewerPolicyArn",
        "OwnersTopicArn",
        "PolicyPlace",
        "QuarantineUrl",
        "RecoverNodeArn",
        "RunJobArn",
        "TableName",
        "TopicArn",
        "UndeliveredUrl",
    }


def test_the_role_of_jobs_writes_their_log_and_pulls_images_and_only_ecs_takes_it_on(real: Template) -> None:
    role = role_named(real, names.JOB_EXECUTION_ROLE)
    [trusted] = role["AssumeRolePolicyDocument"]["Statement"]
    actions = {a for p in role["Policies"] for s in p["PolicyDocument"]["Statement"] for a in listed(s["Action"])}

    assert trusted["Principal"] == {"Service": "ecs-tasks.amazonaws.com"}
    assert trusted["Condition"] == THIS_ACCOUNT
    assert {action for action in actions if not action.startswith("ecr:")} == {
        "logs:CreateLogStream",
        "logs:PutLogEvents",
    }
    assert not [action for action in actions if action.startswith(("ecr:Put", "ecr:Create", "ecr:Delete"))]
    [log] = [r["Properties"] for _, r in real.of_type("AWS::Logs::LogGroup") if "nodeheal/jobs" in str(r["Properties"])]
    assert (log["LogGroupName"], log["RetentionInDays"]) == (names.JOB_LOG_GROUP, 90)


def listed(actions: "str | list[str]") -> list[str]:
    """IAM's one action, or many, as a list."""
    return [actions] if isinstance(actions, str) else actions
