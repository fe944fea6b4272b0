"""What a service refuses at creation and neither cfn-lint nor cdk-nag knows.

Two kinds: what the model of a service's API says, read from botocore, and what only a page says, in a table of limits.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import pytest

from tests.infrastructure.filled import Place, filled, name_of, properties
from tests.infrastructure.service_models import Call, violations
from tests.infrastructure.synthesis import Template, synthesize

HERE = Place()


def _call(service: str, operation: str, *apart: str, **renamed: str) -> Call:
    return Call(service, operation, renamed, frozenset(apart))


# Each type of resource and the call that CloudFormation makes for it.
CALLS = {
    "AWS::ApiGatewayV2::Api": _call("apigatewayv2", "CreateApi"),
    "AWS::ApiGatewayV2::Integration": _call("apigatewayv2", "CreateIntegration"),
    "AWS::ApiGatewayV2::Route": _call("apigatewayv2", "CreateRoute"),
    "AWS::ApiGatewayV2::Stage": _call("apigatewayv2", "CreateStage"),
    "AWS::AppConfig::Application": _call("appconfig", "CreateApplication"),
    "AWS::AppConfig::ConfigurationProfile": _call("appconfig", "CreateConfigurationProfile"),
    "AWS::AppConfig::Deployment": _call("appconfig", "StartDeployment"),
    "AWS::AppConfig::DeploymentStrategy": _call("appconfig", "CreateDeploymentStrategy"),
    "AWS::AppConfig::Environment": _call("appconfig", "CreateEnvironment"),
    "AWS::AppConfig::HostedConfigurationVersion": _call("appconfig", "CreateHostedConfigurationVersion"),
    "AWS::CloudWatch::Alarm": _call("cloudwatch", "PutMetricAlarm"),
    "AWS::CloudWatch::Dashboard": _call("cloudwatch", "PutDashboard"),
    "AWS::Cognito::ManagedLoginBranding": _call("cognito-idp", "CreateManagedLoginBranding"),
    # The second factor is a call of its own.
    "AWS::Cognito::UserPool": _call("cognito-idp", "CreateUserPool", "EnabledMfas", UserPoolName="PoolName"),
    "AWS::Cognito::UserPoolClient": _call("cognito-idp", "CreateUserPoolClient"),
    "AWS::Cognito::UserPoolDomain": _call("cognito-idp", "CreateUserPoolDomain"),
    "AWS::Cognito::UserPoolGroup": _call("cognito-idp", "CreateGroup"),
    # Recovery and expiry are calls of their own.
    "AWS::DynamoDB::Table": _call(
        "dynamodb", "CreateTable", "PointInTimeRecoverySpecification", "TimeToLiveSpecification", "SSESpecification"
    ),
    "AWS::Events::EventBus": _call("events", "CreateEventBus"),
    "AWS::Events::Rule": _call("events", "PutRule", "Targets"),
    "AWS::IAM::ManagedPolicy": _call("iam", "CreatePolicy", "Roles", ManagedPolicyName="PolicyName"),
    "AWS::IAM::Policy": _call("iam", "PutRolePolicy", "Roles"),
    "AWS::IAM::Role": _call("iam", "CreateRole", "ManagedPolicyArns", "Policies"),
    "AWS::Lambda::EventSourceMapping": _call("lambda", "CreateEventSourceMapping"),
    "AWS::Lambda::Function": _call("lambda", "CreateFunction"),
    "AWS::Lambda::Permission": _call("lambda", "AddPermission"),
    "AWS::Logs::LogGroup": _call("logs", "CreateLogGroup", "RetentionInDays"),
    # CreateBucket takes a name; the rest is put in calls of its own.
    "AWS::S3::Bucket": _call(
        "s3",
        "CreateBucket",
        "BucketEncryption",
        "LifecycleConfiguration",
        "OwnershipControls",
        "PublicAccessBlockConfiguration",
        BucketName="Bucket",
    ),
    "AWS::S3::BucketPolicy": _call("s3", "PutBucketPolicy", PolicyDocument="Policy"),
    "AWS::SNS::Subscription": _call("sns", "Subscribe", "RawMessageDelivery", "RedrivePolicy"),
    "AWS::SNS::Topic": _call("sns", "CreateTopic", "DisplayName", TopicName="Name"),
    "AWS::SNS::TopicPolicy": _call("sns", "SetTopicAttributes", "Topics", PolicyDocument="AttributeValue"),
    # Attributes are strings in a map.
    "AWS::SQS::Queue": _call(
        "sqs",
        "CreateQueue",
        "MessageRetentionPeriod",
        "RedrivePolicy",
        "SqsManagedSseEnabled",
        "VisibilityTimeout",
    ),
    "AWS::SQS::QueuePolicy": _call("sqs", "SetQueueAttributes", "Queues", "PolicyDocument"),
    "AWS::SSM::Association": _call("ssm", "CreateAssociation"),
    "AWS::SSM::Document": _call("ssm", "CreateDocument", "UpdateMethod"),
    "AWS::SecretsManager::Secret": _call("secretsmanager", "CreateSecret", "GenerateSecretString"),
    # CloudFormation substitutes before it calls.
    "AWS::StepFunctions::StateMachine": _call(
        "stepfunctions",
        "CreateStateMachine",
        "DefinitionSubstitutions",
        StateMachineName="name",
        StateMachineType="type",
        DefinitionString="definition",
    ),
}


def refused(template: Template, place: Place = HERE) -> list[str]:
    """Every resource that its service would refuse, with the reason."""
    return [
        f"{name}: {why}"
        for name, resource in template.resources.items()
        if resource["Type"] in CALLS
        for why in violations(CALLS[resource["Type"]], properties(template, name, place))
    ]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """With every setting that adds a resource."""
    config = tmp_path_factory.mktemp("agent") / "agent.toml"
    config.write_text('cluster = "training"\nscheduler = "ECS"\npool = "h100"\n', encoding="utf-8")
    given = {"alert_emails": ["oncall@example.com"], "agent_pools": {"h100": str(config)}}
    given |= {"console": {"domain_prefix": "acme-nodeheal"}}
    return synthesize({"nodeheal": given})


def test_every_type_of_resource_has_its_call(full: Template) -> None:
    assert {resource["Type"] for resource in full.resources.values()} == set(CALLS)


@pytest.mark.parametrize("place", [HERE, Place("aws-cn", "cn-northwest-1"), Place("aws-us-gov", "us-gov-west-1")])
def test_no_resource_is_refused_by_the_model_of_its_service(full: Template, place: Place) -> None:
    assert refused(full, place) == []


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        ("AWS::Lambda::Function", {"FunctionName": "n" * 141}, "141 characters, at most 140"),
        ("AWS::Lambda::Function", {"Handler": "with a blank"}, "does not match"),
        ("AWS::IAM::Role", {"RoleName": "r" * 65}, "65 characters, at most 64"),
        ("AWS::IAM::Role", {"Description": "an em dash — here"}, "does not match"),
        ("AWS::Events::Rule", {"Description": "d" * 513}, "513 characters, at most 512"),
        ("AWS::Events::Rule", {"Targets": [], "Target": []}, "knows no such member"),
        ("AWS::StepFunctions::StateMachine", {"StateMachineName": "s" * 81}, "81 characters, at most 80"),
        ("AWS::StepFunctions::StateMachine", {"StateMachineType": "standard"}, "is none of STANDARD"),
        ("AWS::SSM::Document", {"Name": "a name"}, "does not match"),
        ("AWS::AppConfig::Application", {"Name": ""}, "0 characters, at least 1"),
        ("AWS::CloudWatch::Alarm", {"Dimensions": [{"Name": "n" * 256, "Value": "v"}]}, "256 characters, at most 255"),
        ("AWS::Lambda::Function", {"MemorySize": 64}, "64 as its value, at least 128"),
    ],
)
def test_what_a_model_refuses_is_found(kind: str, change: dict[str, Any], why: str) -> None:
    [found] = violations(CALLS[kind], change)

    assert why in found


# What only a page says ------------------------------------------------------------------------------------------------

Measured = Iterable[tuple[str, float]]


@dataclass(frozen=True)
class Limit:
    """A limit that no model carries. `measured`: what of a template it holds for, and how large each is."""

    what: str
    largest: float
    source: str
    measured: Callable[[Template], Measured]

    def exceeded(self, template: Template) -> list[str]:
        """Every place that is over it."""
        return [f"{where}: {size:g}" for where, size in self.measured(template) if size > self.largest]


def compact(value: Any) -> str:
    """JSON without blanks, as IAM counts policies."""
    return json.dumps(value, separators=(",", ":"))


def _each(kind: str, size: Callable[[dict[str, Any]], float]) -> Callable[[Template], Measured]:
    """One size for each resource of a kind."""
    return lambda template: [(name, size(properties(template, name, HERE))) for name, _ in template.of_type(kind)]


def _policies_of_role(template: Template) -> Measured:
    """All inline policies of a role together, with those that the CDK attaches by themselves."""
    for role, _ in template.of_type("AWS::IAM::Role"):
        own = [policy["PolicyDocument"] for policy in properties(template, role, HERE).get("Policies", ())]
        added = [properties(template, name, HERE) for name, _ in template.of_type("AWS::IAM::Policy")]
        own += [policy["PolicyDocument"] for policy in added if name_of(role, template, HERE) in policy["Roles"]]
        yield role, sum(len(compact(document)) for document in own)


def _named(kind: str) -> Callable[[Template], Measured]:
    return lambda template: [(name, len(name_of(name, template, HERE))) for name, _ in template.of_type(kind)]


def _groups_that_services_write(template: Template) -> Measured:
    """The ARNs of log groups that a service gets for itself, and that stand each in the Region's resource policy."""
    kinds = ("AWS::StepFunctions::StateMachine", "AWS::ApiGatewayV2::Stage")
    texts = [compact(resource) for kind in kinds for _, resource in template.of_type(kind)]
    for name, _ in template.of_type("AWS::Logs::LogGroup"):
        is_written = any(f'"{name}"' in text for text in texts)
        group = name_of(name, template, HERE)
        yield name, len(group) if is_written and not group.startswith("/aws/vendedlogs/") else 0


_BYTES = _each("AWS::SQS::QueuePolicy", lambda p: len(compact(p["PolicyDocument"]).encode()))
LIMITS = (
    Limit(
        "statements in the policy of a queue",
        20,
        "SQS Developer Guide, quotas of policies; the refusal stands in aws-cdk issue 16303",
        _each("AWS::SQS::QueuePolicy", lambda p: len(p["PolicyDocument"]["Statement"])),
    ),
    Limit("bytes in the policy of a queue", 8_192, "SQS Developer Guide, quotas of policies", _BYTES),
    Limit(
        "bytes in the policy of a topic",
        30_720,
        "SNS quotas",
        _each("AWS::SNS::TopicPolicy", lambda p: len(compact(p["PolicyDocument"]).encode())),
    ),
    Limit(
        "characters in the name that emails of a topic show",
        100,
        "SNS API Reference, SetTopicAttributes",
        _each("AWS::SNS::Topic", lambda p: len(p.get("DisplayName", ""))),
    ),
    Limit("characters in all inline policies of a role", 10_240, "IAM and STS quotas", _policies_of_role),
    Limit(
        "characters in the trust policy of a role",
        2_048,
        "IAM and STS quotas",
        _each("AWS::IAM::Role", lambda p: len(compact(p["AssumeRolePolicyDocument"]))),
    ),
    Limit(
        "characters in a managed policy",
        6_144,
        "IAM and STS quotas",
        _each("AWS::IAM::ManagedPolicy", lambda p: len(compact(p["PolicyDocument"]))),
    ),
    Limit(
        "managed policies of a role",
        10,
        "IAM and STS quotas",
        _each("AWS::IAM::Role", lambda p: len(p.get("ManagedPolicyArns", ()))),
    ),
    Limit(
        "bytes in the environment of a function",
        4_096,
        "Lambda quotas",
        _each("AWS::Lambda::Function", lambda p: len(compact(p["Environment"]["Variables"]).encode())),
    ),
    Limit(
        "characters in the name of a function",
        64,
        "Lambda API Reference, CreateFunction",
        _named("AWS::Lambda::Function"),
    ),
    Limit("targets of a rule", 5, "EventBridge quotas", _each("AWS::Events::Rule", lambda p: len(p["Targets"]))),
    Limit(
        "characters in the pattern of a rule",
        2_048,
        "EventBridge quotas",
        _each("AWS::Events::Rule", lambda p: len(compact(p.get("EventPattern", {})))),
    ),
    Limit("characters in the name of a queue", 80, "SQS API Reference, CreateQueue", _named("AWS::SQS::Queue")),
    Limit("characters in the name of a topic", 256, "SNS API Reference, CreateTopic", _named("AWS::SNS::Topic")),
    Limit(
        "characters in the name of a table",
        255,
        "DynamoDB Developer Guide, naming rules",
        _named("AWS::DynamoDB::Table"),
    ),
    Limit("characters in the name of a bucket", 63, "S3 User Guide, bucket naming rules", _named("AWS::S3::Bucket")),
    Limit(
        "bytes in an SSM document",
        65_536,
        "Systems Manager quotas",
        _each("AWS::SSM::Document", lambda p: len(compact(p["Content"]).encode())),
    ),
    Limit(
        "widgets on a dashboard",
        500,
        "CloudWatch quotas",
        _each("AWS::CloudWatch::Dashboard", lambda p: len(json.loads(p["DashboardBody"])["widgets"])),
    ),
    Limit(
        "entries of ours in the Region's resource policy of 5,120 characters for log groups",
        0,
        "Step Functions Developer Guide, logging: one entry stands for all groups under /aws/vendedlogs/",
        _groups_that_services_write,
    ),
    Limit("resources in a stack", 500, "CloudFormation quotas", lambda t: [("stack", len(t.resources))]),
    Limit("outputs of a stack", 200, "CloudFormation quotas", lambda t: [("stack", len(t.body["Outputs"]))]),
    Limit("parameters of a stack", 200, "CloudFormation quotas", lambda t: [("stack", len(t.body["Parameters"]))]),
    # As the CDK uploads it, with one blank for each level of depth.
    Limit(
        "bytes in a template",
        1_000_000,
        "CloudFormation quotas",
        lambda t: [("stack", len(json.dumps(t.body, indent=1).encode()))],
    ),
)
EACH_LIMIT = pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.what.replace(" ", "-"))


@EACH_LIMIT
def test_nothing_is_larger_than_its_service_takes(real: Template, limit: Limit) -> None:
    assert list(limit.measured(real))
    assert limit.exceeded(real) == []


@EACH_LIMIT
def test_what_is_larger_would_be_found(real: Template, limit: Limit) -> None:
    largest = max(size for _, size in limit.measured(real))

    assert Limit(limit.what, largest - 1, limit.source, limit.measured).exceeded(real)


def test_the_access_log_of_an_http_api_has_the_request_id(real: Template) -> None:
    """API Gateway answers "Access Log format must include either $context.requestId or $context.extendedRequestId"."""
    formats = [s["Properties"]["AccessLogSettings"]["Format"] for _, s in real.of_type("AWS::ApiGatewayV2::Stage")]

    assert formats
    assert all("$context.requestId" in each or "$context.extendedRequestId" in each for each in formats)
    assert not any("\n" in each for each in formats)  # one line for each request


def test_a_further_rule_adds_no_statement_to_the_queue_of_undelivered_events(real: Template) -> None:
    [policy] = [policy for name, policy in real.of_type("AWS::SQS::QueuePolicy") if name.startswith("Undelivered")]

    assert len(list(real.of_type("AWS::Events::Rule"))) >= 20
    [allowed] = [s for s in policy["Properties"]["PolicyDocument"]["Statement"] if s["Effect"] == "Allow"]
    assert compact(allowed["Condition"]).endswith(':rule/nodeheal*"]]}}}')


def test_every_rule_may_put_what_it_cannot_deliver_into_its_dead_letter_queue(real: Template) -> None:
    """A rule whose ARN the queue's condition does not match would lose its events without a word."""
    for name, _ in real.of_type("AWS::Events::Rule"):
        rule = filled({"Fn::GetAtt": [name, "Arn"]}, real, HERE)
        for target in properties(real, name, HERE)["Targets"]:
            sources = sources_that_may_send(real, target["DeadLetterConfig"]["Arn"])
            assert any(fnmatchcase(rule, source) for source in sources), name


def sources_that_may_send(template: Template, queue: str) -> list[str]:
    """The ARNs, as patterns, in whose name EventBridge may put messages into a queue."""
    return [
        condition["aws:SourceArn"]
        for name, _ in template.of_type("AWS::SQS::QueuePolicy")
        for statement in properties(template, name, HERE)["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow" and statement["Resource"] == queue
        if statement["Principal"] == {"Service": "events.amazonaws.com"}
        for condition in statement["Condition"].values()
    ]
