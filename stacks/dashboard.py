"""One page for whoever is on call, to be read from the top: is anybody needed, what goes on, how long, is all well."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from nodeheal.contract import metrics, names
from nodeheal.contract.metrics import Metric
from nodeheal.contract.vocabulary import Action, Ending, Escalation, Family, Outcome, Step
from stacks.alarms import FIVE_MINUTES, MINUTE, Parts, aws, ours

DASHBOARD = "nodeheal-{region}"  # an account has one list of dashboards for all Regions
_WIDTH, _HEIGHT = 24, 6
_PHASES = (
    metrics.FAULT_TO_ISOLATED,
    metrics.ISOLATED_TO_PROVEN,
    metrics.FAULT_TO_RETURNED,
    metrics.FAULT_TO_JOB_RUNNING,
)
_TOP = """# nodeheal
From the top: is anybody needed; what is going on now; what came in; how long it took; is nodeheal itself well.
`nodeheal nodes list POOL` names the nodes; docs/runbooks says what to do about each word of *HandedOver*.
"""


def build_dashboard(scope: Construct, parts: Parts, alarms: Sequence[cloudwatch.IAlarm]) -> cloudwatch.Dashboard:
    """The page, named nodeheal."""
    return cloudwatch.Dashboard(
        scope,
        "Dashboard",
        dashboard_name=DASHBOARD.format(region=cdk.Aws.REGION),
        default_interval=cdk.Duration.hours(12),
        widgets=[
            [cloudwatch.TextWidget(markdown=_TOP, width=_WIDTH, height=3)],
            [cloudwatch.AlarmStatusWidget(title="Is nodeheal well?", alarms=list(alarms), width=_WIDTH, height=4)],
            _needed(),
            _now(),
            _reported(),
            _durations(),
            _done(),
            _plumbing(parts),
        ],
    )


def _row(*graphs: tuple[str, Sequence[cloudwatch.IMetric]]) -> list[cloudwatch.IWidget]:
    width = _WIDTH // len(graphs)
    return [
        cloudwatch.GraphWidget(title=title, left=list(found), width=width, height=_HEIGHT) for title, found in graphs
    ]


def _each_pool(metric: Metric, statistic: str, period: cdk.Duration = FIVE_MINUTES) -> cloudwatch.MathExpression:
    """The metric at every value of its dimensions: pools come and go without a deployment."""
    schema = ",".join([names.METRICS_NAMESPACE, *metric.dimensions])
    search = f"SEARCH('{{{schema}}} MetricName=\"{metric.name}\"', '{statistic}', {period.to_seconds()})"
    return cloudwatch.MathExpression(expression=search, using_metrics={}, label="", period=period)


def _by(metric: Metric, values: Sequence[str]) -> list[cloudwatch.IMetric]:
    [dimension] = metric.dimensions
    return [ours(metric, {dimension: value}, label=value, period=FIVE_MINUTES) for value in values]


def _needed() -> list[cloudwatch.IWidget]:
    asked = [ours(metric, period=FIVE_MINUTES) for metric in (metrics.APPROVALS_ASKED, metrics.APPROVALS_LATE)]
    return _row(
        ("Is anybody needed? Handed over, by why", _by(metrics.HANDED_OVER, [code.value for code in Escalation])),
        ("Asked for approval, and answered too late", asked),
    )


def _now() -> list[cloudwatch.IWidget]:
    return _row(
        ("Slots held, each pool", [_each_pool(metrics.SLOTS_HELD, "Maximum", MINUTE)]),
        ("Slots there are, each pool", [_each_pool(metrics.SLOTS_LIMIT, "Maximum", MINUTE)]),
        ("In line for a slot; breakers open", [ours(m, statistic="Maximum") for m in _GAUGES]),
    )


_GAUGES = (metrics.IN_LINE, metrics.BREAKERS_OPEN)


def _reported() -> list[cloudwatch.IWidget]:
    failed = [
        ours(metrics.FAULTS_REPORTED, {"Family": family.value, "Verdict": "FAILED"}, label=family.value)
        for family in Family
    ]
    return _row(
        ("Faults, by family", failed),
        ("Faults, by pool and code", [_each_pool(metrics.FAULTS_BY_CODE, "Sum")]),
        ("Incidents opened, each pool", [_each_pool(metrics.INCIDENTS_OPENED, "Sum")]),
        (f"Incidents ended ({', '.join(Ending)})".lower(), [_each_pool(metrics.INCIDENTS_ENDED, "Sum")]),
    )


def _durations() -> list[cloudwatch.IWidget]:
    return _row(*((f"{metric.name}, p90, s", [_each_pool(metric, "p90")]) for metric in _PHASES))


def _done() -> list[cloudwatch.IWidget]:
    rungs = [Action.REBOOT.value, Action.STOP_START.value, Action.REPLACE.value, Action.RESTART_WORKLOAD.value]
    acted = (Step.ISOLATE, Step.REBOOT, Step.DIAGNOSE, Step.REPLACE, Step.RETURN, Step.RESTART_WORKLOAD)
    not_done = [
        ours(metrics.STEPS_ENDED, {"Step": step.value, "Outcome": outcome.value}, label=f"{step} {outcome}")
        for step in acted
        for outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
    ]
    return _row(
        ("Attempts spent", _by(metrics.ATTEMPTS_SPENT, rungs)),
        ("Attempts refused", _by(metrics.ATTEMPTS_REFUSED, rungs)),
        ("Steps that did not work", not_done),
    )


def _plumbing(parts: Parts) -> list[cloudwatch.IWidget]:
    age = aws("AWS/SQS", "ApproximateAgeOfOldestMessage", {"QueueName": parts.event_queue}, statistic="Maximum")
    errors = [aws("AWS/Lambda", "Errors", {"FunctionName": name}) for name in parts.functions.values()]
    recovery = {"StateMachineArn": parts.recovery_arn}
    names_of = ("ExecutionsStarted", "ExecutionsFailed", "ExecutionsTimedOut")
    return _row(
        ("Age of the oldest health event, s", [age]),
        ("Errors of functions", errors),
        ("Recoveries", [aws("AWS/States", name, recovery) for name in names_of]),
        ("Emails", _by(metrics.NOTIFICATIONS_SENT, ["PAGE", "INFO"])),
    )
