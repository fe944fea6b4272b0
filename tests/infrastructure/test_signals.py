"""What AWS says about nodes reaches take_signal, and the sweep runs by the clock."""

import json
from typing import Any

import pytest

from lambdas.take_signal import TRANSLATORS
from nodeheal.adapters.aws.translate.cloudwatch_alarm import METRICS, NAMESPACE
from nodeheal.contract import names
from sandbox.ministack_adapter.eventbridge import matches
from stacks.signals import signals
from tests.infrastructure.synthesis import Template

CLUSTER = "arn:aws:ecs:us-east-1:111122223333:cluster/training"


def rules_to(templates: Template, function: str) -> list[dict[str, Any]]:
    """Every rule with this function as a target."""
    rules = [resource["Properties"] for _, resource in templates.of_type("AWS::Events::Rule")]
    return [rule for rule in rules if f'"{function}' in json.dumps(rule["Targets"])]


def kinds(rules: list[dict[str, Any]]) -> set[str]:
    """The detail types that the rules let through."""
    return {kind for rule in rules for kind in rule["EventPattern"]["detail-type"]}


def patterns(kind: str) -> list[dict[str, Any]]:
    """The details that a route for this kind of event asks for."""
    return [dict(route.pattern.detail or {}) for route in signals(CLUSTER) if kind in (route.pattern.detail_type or [])]


def test_what_is_let_through_is_what_can_be_read_and_nothing_that_can_be_read_is_kept_out(real: Template) -> None:
    routed = kinds(rules_to(real, "TakeSignalQueue"))

    assert routed == set(TRANSLATORS)


def test_what_aws_says_comes_from_aws_on_the_default_bus(real: Template) -> None:
    rules = rules_to(real, "TakeSignalQueue")

    assert rules
    assert all(rule["EventPattern"]["source"][0].startswith("aws.") for rule in rules)
    assert not [rule for rule in rules if "EventBusName" in rule]


@pytest.mark.parametrize(
    "kind", [names.ECS_INSTANCE_STATE_CHANGE, names.ECS_INSTANCE_HEALTH_CHANGE, names.ECS_TASK_STATE_CHANGE]
)
def test_of_ecs_only_our_cluster_is_heard(kind: str) -> None:
    assert [detail["clusterArn"] for detail in patterns(kind)] == [[CLUSTER]]


@pytest.mark.parametrize(
    ("is_connected", "status", "is_heard"),
    [(True, "ACTIVE", True), (False, "ACTIVE", True), (False, "DRAINING", True), (True, "DRAINING", False)],
)
def test_of_instances_all_is_heard_but_what_follows_from_our_own_drains(
    is_connected: bool, status: str, is_heard: bool
) -> None:
    [pattern] = patterns(names.ECS_INSTANCE_STATE_CHANGE)
    detail = {"clusterArn": CLUSTER, "agentConnected": is_connected, "status": status}

    event = {"Source": "aws.ecs", "Detail": json.dumps(detail)}

    assert matches({"detail": pattern}, event) is is_heard


def test_a_task_of_ours_is_left_to_those_who_wait_for_it() -> None:
    [detail] = patterns(names.ECS_TASK_STATE_CHANGE)

    assert {"anything-but": {"prefix": names.started_by("", 0).split("/")[0] + "/"}} in detail["startedBy"]
    assert {"exists": False} in detail["startedBy"]


def test_a_machine_on_its_way_up_wakes_nobody() -> None:
    [detail] = patterns(names.EC2_STATE_CHANGE)

    assert set(detail["state"]) == {"stopping", "stopped", "shutting-down", "terminated"}


def test_of_alarms_only_those_on_status_checks_are_heard() -> None:
    [detail] = patterns(names.ALARM_STATE_CHANGE)
    metric = detail["configuration"]["metrics"]["metricStat"]["metric"]

    assert metric["namespace"] == [NAMESPACE]
    assert all(name.startswith(metric["name"][0]["prefix"]) for name in METRICS)


def test_the_sweep_runs_once_a_minute(real: Template) -> None:
    [rule] = rules_to(real, "SweepFunction")

    assert rule["ScheduleExpression"] == "rate(1 minute)"
