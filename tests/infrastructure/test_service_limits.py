"""What a service refuses at creation and neither cfn-lint nor cdk-nag knows. Each limit names its source."""

import json

from tests.infrastructure.synthesis import Template

# SQS Developer Guide, policy quotas. The refusal: "21 statements were found in the submitted policy, max allowed is 20"
# (aws-cdk issue 16303).
QUEUE_POLICY_STATEMENTS = 20


def test_the_access_log_of_an_http_api_has_the_request_id(real: Template) -> None:
    """API Gateway answers "Access Log format must include either $context.requestId or $context.extendedRequestId"."""
    formats = [
        stage["Properties"]["AccessLogSettings"]["Format"] for _, stage in real.of_type("AWS::ApiGatewayV2::Stage")
    ]

    assert formats
    assert all("$context.requestId" in each or "$context.extendedRequestId" in each for each in formats)


def test_no_queue_has_more_statements_than_sqs_takes(real: Template) -> None:
    policies = [policy["Properties"]["PolicyDocument"] for _, policy in real.of_type("AWS::SQS::QueuePolicy")]

    assert len(policies) == len(list(real.of_type("AWS::SQS::Queue")))
    assert max(len(policy["Statement"]) for policy in policies) <= QUEUE_POLICY_STATEMENTS


def test_a_further_rule_adds_no_statement_to_the_queue_of_undelivered_events(real: Template) -> None:
    [policy] = [policy for name, policy in real.of_type("AWS::SQS::QueuePolicy") if name.startswith("Undelivered")]

    assert len(list(real.of_type("AWS::Events::Rule"))) >= QUEUE_POLICY_STATEMENTS
    [allowed] = [s for s in policy["Properties"]["PolicyDocument"]["Statement"] if s["Effect"] == "Allow"]
    assert json.dumps(allowed["Condition"]).endswith(':rule/nodeheal*"]]}}}')
