"""The policy document's home: seeded once, validated, and alarmed about."""

import json
from typing import Any

from nodeheal.contract import metrics, names
from nodeheal.domain.knobs import Mode
from nodeheal.domain.policy import RecoveryPolicy
from stacks.policy_store import FIRST_POLICY
from stacks.settings import REPOSITORY, SANDBOX_POLICY
from tests.infrastructure.synthesis import Templates


def only(stack: Any, kind: str) -> dict[str, Any]:
    """The one resource of a kind."""
    [(_, resource)] = stack.of_type(kind)
    found: dict[str, Any] = resource
    return found


def test_the_first_policy_observes_every_pool() -> None:
    policy = RecoveryPolicy.model_validate_json(FIRST_POLICY)

    assert policy.default_pool.mode is Mode.observe
    assert policy.pools == {}


def test_the_first_policy_is_never_edited() -> None:
    # CloudFormation deploys whatever changes here over the document that operators have applied since.
    assert FIRST_POLICY == '{"default_pool": {"mode": "observe"}}'


def test_the_sandbox_acts() -> None:
    text = (REPOSITORY / SANDBOX_POLICY).read_text("utf-8")

    assert RecoveryPolicy.model_validate_json(text).default_pool.mode is Mode.act


def test_a_document_is_validated_by_our_function_before_it_holds(real: Templates) -> None:
    profile = only(real, "AWS::AppConfig::ConfigurationProfile")["Properties"]

    [validator] = profile["Validators"]
    assert validator["Type"] == "LAMBDA"
    assert "function:nodeheal-validate-policy" in json.dumps(validator["Content"])
    [allowed] = [
        resource["Properties"]
        for _, resource in real.of_type("AWS::Lambda::Permission")
        if resource["Properties"]["Principal"] == "appconfig.amazonaws.com"
    ]
    assert allowed["SourceAccount"]


def test_what_operators_applied_outlives_the_stack(real: Templates) -> None:
    assert only(real, "AWS::AppConfig::HostedConfigurationVersion")["DeletionPolicy"] == "Retain"
    assert only(real, "AWS::AppConfig::HostedConfigurationVersion")["Properties"]["Content"] == FIRST_POLICY


def test_a_refused_document_and_an_unusable_one_ring(real: Templates) -> None:
    alarms = [resource["Properties"] for _, resource in real.of_type("AWS::CloudWatch::Alarm")]

    assert {(alarm["Namespace"], alarm["MetricName"]) for alarm in alarms} >= {
        ("AWS/Lambda", "Errors"),
        (names.METRICS_NAMESPACE, metrics.POLICY_REFUSED.name),
    }
    assert all(alarm["AlarmActions"] for alarm in alarms)
