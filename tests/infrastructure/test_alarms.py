"""The alarms and the dashboard: they watch what is really emitted, and somebody hears them."""

import json
import re
from typing import Any

import pytest

from nodeheal.agent.transport.metrics import PUBLISHED
from nodeheal.contract import metrics, names
from nodeheal.contract.metrics import METRICS
from nodeheal.contract.vocabulary import Escalation, Family
from nodeheal.domain.faults.catalog import catalog
from stacks.alarms import ALARM_PREFIX, ours
from stacks.dashboard import NODES_DASHBOARD
from stacks.functions import FUNCTIONS
from stacks.settings import REPOSITORY
from tests.infrastructure.filled import Place, name_of
from tests.infrastructure.synthesis import Template, synthesize

EMITTED = {metric.name: metric for metric in METRICS}
HERE = Place()
METRIC_USD, HOURS = 0.30, 730  # CloudWatch in us-east-1: each of the first 10,000 metrics, by the hours with values


def alarms(templates: Template) -> dict[str, Any]:
    """Every alarm's properties, by its name without the prefix."""
    found = [resource["Properties"] for _, resource in templates.of_type("AWS::CloudWatch::Alarm")]
    return {alarm["AlarmName"].removeprefix(ALARM_PREFIX): alarm for alarm in found}


def page(templates: Template, logical_name: str = "Dashboard") -> tuple[str, str]:
    """(name, body as JSON with <token> for what only the deployment knows) of the dashboard."""
    [(logical_id, dashboard)] = [
        found for found in templates.of_type("AWS::CloudWatch::Dashboard") if found[0].startswith(logical_name)
    ]
    parts = dashboard["Properties"]["DashboardBody"]["Fn::Join"][1]
    name = name_of(logical_id, templates, HERE)
    return name, "".join(p if isinstance(p, str) else "<token>" for p in parts)


def test_every_metric_of_ours_that_is_watched_is_emitted_with_these_dimensions(real: Template) -> None:
    watched = [alarm for alarm in alarms(real).values() if alarm["Namespace"] == names.METRICS_NAMESPACE]

    assert len(watched) >= 3
    for alarm in watched:
        given = {dimension["Name"] for dimension in alarm.get("Dimensions", [])}
        assert given == set(EMITTED[alarm["MetricName"]].dimensions), alarm["MetricName"]


@pytest.mark.parametrize(
    "name",
    [
        "DeadEvents",
        "DeadUndelivered",
        "Quarantine",
        "EventsLate",
        "BeatsThrottled",
        "BusAvoided",
        "IngestErrors",
        "Throttled",
        "SweepGone",
        "RecoveriesBreak",
        "BudgetFull",
        "BreakerOpen",
        "PolicyRefused",
        "PolicyUnusable",
    ],
)
def test_what_may_keep_help_from_coming_is_watched_and_told(real: Template, name: str) -> None:
    alarm = alarms(real)[name]

    assert "Topic" in json.dumps(alarm["AlarmActions"])
    assert alarm["AlarmDescription"]


def test_what_nodes_say_is_watched_where_they_say_it(real: Template) -> None:
    [table] = [p for name, p in real.of_type("AWS::DynamoDB::Table") if name.startswith("Heartbeats")]
    [topic] = [p for name, p in real.of_type("AWS::SNS::Topic") if name.startswith("FallbackTopic")]
    found = alarms(real)

    watched = {
        name: (found[name]["Namespace"], found[name]["MetricName"], found[name]["Dimensions"][0])
        for name in ("BeatsThrottled", "BusAvoided")
    }

    name, avoided = table["Properties"]["TableName"], topic["Properties"]["TopicName"]
    assert watched == {
        "BeatsThrottled": ("AWS/DynamoDB", "WriteThrottleEvents", {"Name": "TableName", "Value": name}),
        "BusAvoided": ("AWS/SNS", "NumberOfMessagesPublished", {"Name": "TopicName", "Value": avoided}),
    }
    assert [found[name]["EvaluationPeriods"] for name in watched] == [3, 1]


def test_each_error_of_neuron_devices_has_an_alarm_with_its_name(real: Template) -> None:
    found = {name: alarm for name, alarm in alarms(real).items() if name.startswith("NeuronHasError_")}

    assert set(found) == {metric.name for metric in metrics.NEURON_HAS_ERROR.values()}
    watched = {(a["Namespace"], a["MetricName"], a.get("Dimensions"), a["Threshold"]) for a in found.values()}
    assert watched == {("NeuronHealthCheck", name, None, 1) for name in found}
    assert all("Topic" in json.dumps(alarm["AlarmActions"]) for alarm in found.values())


def test_every_function_that_fails_again_and_again_rings(real: Template) -> None:
    watched = [name for name, alarm in alarms(real).items() if alarm["MetricName"] == "Errors"]

    assert len(watched) == len(FUNCTIONS)  # the validator's is the refused policy


def test_a_sweep_that_no_longer_runs_rings_and_one_that_has_not_run_yet_does_not(real: Template) -> None:
    """An alarm begins as INSUFFICIENT_DATA (PutMetricAlarm), and acts on changes of its state only."""
    gone = alarms(real)["SweepGone"]

    assert (gone["TreatMissingData"], gone["ComparisonOperator"]) == ("missing", "LessThanThreshold")
    assert gone["InsufficientDataActions"] == gone["AlarmActions"]
    others = [alarm for name, alarm in alarms(real).items() if name != "SweepGone"]
    assert {alarm["TreatMissingData"] for alarm in others} == {"notBreaching"}
    assert not any("InsufficientDataActions" in alarm for alarm in others)


def test_the_topic_takes_what_our_alarms_say_and_no_other_accounts(real: Template) -> None:
    [policy] = [p for name, p in real.of_type("AWS::SNS::TopicPolicy") if name.startswith("TopicPolicy")]
    statements = policy["Properties"]["PolicyDocument"]["Statement"]

    [allowed] = [s for s in statements if "cloudwatch" in json.dumps(s.get("Principal"))]

    assert (allowed["Effect"], allowed["Action"]) == ("Allow", "sns:Publish")
    assert f":alarm:{ALARM_PREFIX}*" in json.dumps(allowed["Condition"]["ArnLike"]["aws:SourceArn"])
    assert "AWS::AccountId" in json.dumps(allowed["Condition"])


def test_an_alarm_cannot_be_made_for_a_metric_at_the_wrong_dimensions() -> None:
    with pytest.raises(ValueError, match="HandedOver has the dimensions"):
        ours(metrics.HANDED_OVER)


def test_the_dashboard_shows_only_what_is_emitted(real: Template) -> None:
    name, body = page(real)
    shown = [
        (found[1], {**dict(zip(found[2:-1:2], found[3:-1:2], strict=False))})
        for widget in json.loads(body)["widgets"]
        for found in widget["properties"].get("metrics", [])
        if found[0] == names.METRICS_NAMESPACE
    ]
    searched = re.findall(r"SEARCH\('\{nodeheal,([^}]*)\} MetricName=..?\"(\w+)", body)

    assert name == names.DASHBOARD.format(region=HERE.region)
    assert len(shown) > 20
    assert {metric: set(at) for metric, at in shown if set(at) != set(EMITTED[metric].dimensions)} == {}
    assert searched
    assert [m for dimensions, m in searched if tuple(dimensions.split(",")) != EMITTED[m].dimensions] == []


def test_every_reason_to_need_a_human_has_its_line_on_the_dashboard(real: Template) -> None:
    _, body = page(real)

    assert [code for code in Escalation if f'"{code}"' not in body] == []


def test_the_page_of_the_metrics_counts_alarms_and_words_as_they_are(real: Template) -> None:
    text = (REPOSITORY / "docs" / "metrics.md").read_text("utf-8")
    [(counted, *dollars)] = re.findall(r"\| alarms \((\d+), of 0\.10 USD\)" + r" \| ([\d.]+) USD" * 3, text)
    [words] = re.findall(r"(\d+) words, and some 30 more", text)

    [(codes, most)] = re.findall(r"fewer than ([\d,]+) codes.*? cannot cost more than (\d+) USD", text, re.DOTALL)
    known = {(family, code) for family, code, _ in catalog()}

    assert len(known) + len(Family) < int(codes.replace(",", ""))
    assert int(most) == METRIC_USD * int(codes.replace(",", ""))
    assert f"one hour of one code costs {METRIC_USD / HOURS:.4f} USD" in text
    assert f"each occur on a whole day cost {10 * 24 * METRIC_USD / HOURS:.2f} USD" in text
    assert int(counted) == len(alarms(real))
    assert {float(each) for each in dollars} == {round(0.10 * len(alarms(real)), 2)}
    assert int(words) == len(Escalation)


def test_there_is_no_dashboard_of_the_nodes_unless_the_settings_ask_for_it(real: Template) -> None:
    assert [name for name, _ in real.of_type("AWS::CloudWatch::Dashboard") if name.startswith("Nodes")] == []


def test_the_dashboard_of_the_nodes_shows_all_that_agents_send_of_whole_nodes() -> None:
    name, body = page(synthesize({"nodeheal": {"node_dashboard": True}}), "NodesDashboard")
    widgets = json.loads(body)["widgets"]
    found = [one for widget in widgets for one, *_ in widget["properties"].get("metrics", []) if isinstance(one, dict)]
    queries = [one["expression"] for one in found if one["expression"].startswith("SELECT")]

    assert name == NODES_DASHBOARD.format(region=HERE.region)
    schema = f'FROM SCHEMA("{names.NODE_METRICS_NAMESPACE}", NodeId) GROUP BY NodeId'
    assert [query for query in queries if schema not in query] == []
    assert {re.match(r"SELECT (?:MAX|MIN|AVG)\((\w+)\)", query)[1] for query in queries} == set(PUBLISHED)  # type: ignore[index]
    assert any("{nodeheal,Pool,Code}" in one["expression"] for one in found)
