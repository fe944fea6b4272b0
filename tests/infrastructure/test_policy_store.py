"""The policy document's home: seeded once, validated, and alarmed about."""

import json
from typing import Any

from nodeheal.contract import metrics, names
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from stacks.policy_store import FIRST_POLICY
from stacks.settings import REPOSITORY, SANDBOX_POLICY
from tests.infrastructure.synthesis import Template


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


def test_a_document_is_validated_by_our_function_before_it_holds(real: Template) -> None:
    profile = only(real, "AWS::AppConfig::ConfigurationProfile")["Properties"]

    [validator] = profile["Validators"]
    assert validator["Type"] == "LAMBDA"
    assert "ValidatePolicyFunction" in json.dumps(validator["Content"]["Fn::GetAtt"])


def test_the_validator_and_its_permission_are_there_before_anything_is_validated(real: Template) -> None:
    """AppConfig's User Guide: a validator is created before the configuration profile that names it."""
    [permission] = [
        name
        for name, resource in real.of_type("AWS::Lambda::Permission")
        if resource["Properties"]["Principal"] == "appconfig.amazonaws.com"
    ]
    for kind in ("ConfigurationProfile", "HostedConfigurationVersion", "Deployment"):
        [(name, _)] = real.of_type(f"AWS::AppConfig::{kind}")

        assert permission in real.comes_after(name)


def test_appconfig_may_call_the_validator_whatever_source_it_names(real: Template) -> None:
    """AWS's own instructions give the permission without a condition; no page says that AppConfig sends a source."""
    [allowed] = [
        resource["Properties"]
        for _, resource in real.of_type("AWS::Lambda::Permission")
        if resource["Properties"]["Principal"] == "appconfig.amazonaws.com"
    ]

    assert set(allowed) == {"Action", "FunctionName", "Principal"}


def test_what_operators_applied_outlives_the_stack(real: Template) -> None:
    assert only(real, "AWS::AppConfig::HostedConfigurationVersion")["DeletionPolicy"] == "RetainExceptOnCreate"
    assert only(real, "AWS::AppConfig::HostedConfigurationVersion")["Properties"]["Content"] == FIRST_POLICY


def test_a_refused_document_and_an_unusable_one_ring(real: Template) -> None:
    alarms = [resource["Properties"] for _, resource in real.of_type("AWS::CloudWatch::Alarm")]

    assert {(alarm["Namespace"], alarm["MetricName"]) for alarm in alarms} >= {
        ("AWS/Lambda", "Errors"),
        (names.METRICS_NAMESPACE, metrics.POLICY_REFUSED.name),
    }
    assert all(alarm["AlarmActions"] for alarm in alarms)
