"""What the setting `channels` deploys, and what it lets be done."""

import json
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from nodeheal.contract import names
from nodeheal.contract.vocabulary import ChannelKind
from stacks.channels import ADDRESSES
from stacks.settings import ChannelSetting, Settings
from tests.infrastructure.synthesis import Template, synthesize
from tests.support.channels import CHANNELS, SECRET

RESOLVED = f"{{{{resolve:secretsmanager:{SECRET}:SecretString:::}}}}"


@pytest.fixture(scope="module")
def told() -> Template:
    return synthesize({"nodeheal": {"channels": CHANNELS}})


def of_channels(template: Template, kind: str) -> list[dict[str, Any]]:
    return [resource["Properties"] for name, resource in template.of_type(kind) if name.startswith("Channel")]


def test_without_the_setting_there_is_nothing_of_it(real: Template) -> None:
    kinds = {resource["Type"] for resource in real.resources.values()}

    assert not kinds & {"AWS::Events::Connection", "AWS::Events::ApiDestination"}
    assert not [name for name in real.resources if name.startswith("Channel")]


def test_a_webhook_gets_only_what_is_for_it_and_what_fails_is_kept(told: Template) -> None:
    rules = of_channels(told, "AWS::Events::Rule")

    assert [rule["EventPattern"] for rule in rules] == [
        {"source": [names.CONTROL_SOURCE], "detail-type": [names.CHANNEL_MESSAGE], "detail": {"channel": [name]}}
        for name in ("oncall", "tracker")
    ]
    for rule in rules:
        [target] = rule["Targets"]
        assert target["InputPath"] == "$.detail.message"
        assert target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0].startswith("UndeliveredEvents")


def test_each_webhooks_role_may_post_there_and_nothing_else(told: Template) -> None:
    destinations = {name for name, _ in told.of_type("AWS::Events::ApiDestination")}
    statements = [s for policy in of_channels(told, "AWS::IAM::Policy") for s in policy["PolicyDocument"]["Statement"]]

    assert [statement["Action"] for statement in statements] == ["events:InvokeApiDestination"] * 2
    assert {statement["Resource"]["Fn::GetAtt"][0] for statement in statements} == destinations
    for role in of_channels(told, "AWS::IAM::Role"):
        assert "Policies" not in role
        assert role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"] == {"Service": "events.amazonaws.com"}


def test_the_secret_stands_where_the_endpoint_reads_it_and_in_no_template(told: Template) -> None:
    pagerduty, webhook = (one["AuthParameters"] for one in of_channels(told, "AWS::Events::Connection"))

    key = {"Key": "routing_key", "Value": RESOLVED, "IsValueSecret": True}
    assert pagerduty["InvocationHttpParameters"] == {"BodyParameters": [key]}
    assert webhook["ApiKeyAuthParameters"] == {"ApiKeyName": "X-Key", "ApiKeyValue": RESOLVED}
    assert json.dumps(told.body).count(SECRET) == 2


def test_notify_may_publish_to_the_topics_of_chats_and_every_function_knows_the_channels(told: Template) -> None:
    [role] = [r["Properties"] for n, r in told.of_type("AWS::IAM::Role") if n.startswith("NotifyRole")]
    asked = json.dumps([s for policy in role["Policies"] for s in policy["PolicyDocument"]["Statement"]])
    [notify] = [f["Properties"] for n, f in told.of_type("AWS::Lambda::Function") if n.startswith("NotifyFunction")]

    assert f":{names.CHANNEL_TOPIC_PREFIX}ops-chat" in asked
    known = "email=email,ops-chat=chat,oncall=pagerduty,tracker=webhook"
    assert notify["Environment"]["Variables"][names.ENV_CHANNELS] == known
    assert told.body["Outputs"][names.CHANNELS_OUTPUT]["Value"] == known


def test_every_kind_of_channel_can_be_deployed_and_knows_where_it_posts_to() -> None:
    kinds = {*ChannelKind} - {ChannelKind.email}

    assert {*get_args(ChannelSetting.model_fields["kind"].annotation)} == kinds
    for kind in kinds - {ChannelKind.chat, *ADDRESSES}:
        with pytest.raises(ValidationError, match=f"a channel of kind {kind} needs url"):
            Settings.model_validate({"channels": {"x": {"kind": kind, "secret_arn": SECRET}}})
