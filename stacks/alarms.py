"""Defines alarms about nodeheal itself. Emails report about nodes; these alarms report that emails may not come."""

from collections.abc import Mapping
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from nodeheal.contract import metrics, names
from nodeheal.contract.metrics import Metric

MINUTE, FIVE_MINUTES, HOUR = cdk.Duration.minutes(1), cdk.Duration.minutes(5), cdk.Duration.hours(1)
ALARM_PREFIX = "nodeheal-"
# Incidents wait in the queue for a full budget for a day; an hour without any progress needs a look.
FULL_MINUTES, OPEN_MINUTES, SILENT_MINUTES = 60, 30, 10
OLD_SECONDS = 300
# A single throttled call is retried by its caller; several in five minutes are a problem.
ERRORS, BROKEN_RECOVERIES = 5, 3
# A throttled heartbeat is sent again a moment later; a table that is too small throttles permanently.
THROTTLED_PERIODS = 3
VALIDATOR = "validate_policy"
_LATE = {"ingest": "EventsLate", "take_signal": "SignalsLate", "notify": "NotificationsLate"}
_MISSING, _NOT_BREACHING = cloudwatch.TreatMissingData.MISSING, cloudwatch.TreatMissingData.NOT_BREACHING


@dataclass(frozen=True)
class Watched:
    """One alarm: it fires when the metric is at `threshold` or above for this many periods."""

    name: str
    metric: cloudwatch.IMetric
    why: str  # what it means and what to do first
    threshold: float = 1
    periods: int = 1
    rings_below: bool = False
    # Fires when data stop. It does not fire before the first data: an alarm begins in the state INSUFFICIENT_DATA, and
    # only a change of state notifies anybody.
    rings_without_data: bool = False


def ours(
    metric: Metric,
    at: Mapping[str, str] | None = None,
    statistic: str = "Sum",
    period: cdk.Duration = MINUTE,
    label: str | None = None,
) -> cloudwatch.Metric:
    """Return a metric of the functions, at these values of its dimensions."""
    given = dict(at or {})
    if set(given) != set(metric.dimensions):
        raise ValueError(f"{metric.name} has the dimensions {metric.dimensions}, not {sorted(given)}")
    return aws(metric.namespace, metric.name, given, statistic, period, label)


def aws(
    namespace: str,
    name: str,
    at: Mapping[str, str] | None = None,
    statistic: str = "Sum",
    period: cdk.Duration = FIVE_MINUTES,
    label: str | None = None,
) -> cloudwatch.Metric:
    """Return a metric of an AWS service."""
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dict(at) if at else None,
        statistic=statistic,
        period=period,
        label=label,
    )


@dataclass(frozen=True)
class Parts:
    """The monitored resources: deployed names, by what they are."""

    functions: Mapping[str, str]  # by stem
    queues: Mapping[str, str]  # of the functions that SQS feeds, by stem
    dead_queues: Mapping[str, str]  # by the content of their messages
    quarantine: str
    recovery_arn: str


def build_alarms(scope: Construct, parts: Parts, topic: sns.ITopic) -> list[cloudwatch.Alarm]:
    """Create every alarm; each notifies the operators."""
    built = []
    for watched in _watched(parts):
        below = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
        above = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
        alarm = cloudwatch.Alarm(
            scope,
            f"{watched.name}Alarm",
            alarm_name=f"{ALARM_PREFIX}{watched.name}",
            alarm_description=watched.why,
            metric=watched.metric,
            threshold=watched.threshold,
            evaluation_periods=watched.periods,
            comparison_operator=below if watched.rings_below else above,
            treat_missing_data=_MISSING if watched.rings_without_data else _NOT_BREACHING,
        )
        alarm.add_alarm_action(actions.SnsAction(topic))
        if watched.rings_without_data:
            alarm.add_insufficient_data_action(actions.SnsAction(topic))
        built.append(alarm)
    return built


def _watched(parts: Parts) -> list[Watched]:
    return [
        *_of_messages(parts),
        *_of_nodes(),
        *_of_neuron_devices(),
        *_of_functions(parts),
        *_of_recoveries(parts),
        *_of_policy(parts),
    ]


def _waiting(queue: str) -> cloudwatch.Metric:
    return aws("AWS/SQS", "ApproximateNumberOfMessagesVisible", {"QueueName": queue}, statistic="Maximum")


def _of_messages(parts: Parts) -> list[Watched]:
    dead = [
        Watched(
            f"Dead{what}", _waiting(queue), f"Messages in {queue}: nodeheal has not acted on their faults. Read them."
        )
        for what, queue in parts.dead_queues.items()
    ]
    late = [
        Watched(
            _LATE[stem],
            aws("AWS/SQS", "ApproximateAgeOfOldestMessage", {"QueueName": queue}, statistic="Maximum"),
            f"Messages of {queue} have waited for {OLD_SECONDS} s or more: {stem} is too slow, or a service that it"
            f" calls does not answer. They are taken once it does. See the log /nodeheal/{stem}.",
            OLD_SECONDS,
            2,
        )
        for stem, queue in parts.queues.items()
    ]
    unread = f"Unreadable messages are in {parts.quarantine}: the attribute `why` of each gives the reason."
    return [
        *dead,
        Watched("Quarantine", _waiting(parts.quarantine), unread),
        *late,
    ]


def _of_nodes() -> list[Watched]:
    beats = aws("AWS/DynamoDB", "WriteThrottleEvents", {"TableName": names.HEARTBEATS_TABLE})
    throttled = (
        f"Heartbeats have been throttled for {5 * THROTTLED_PERIODS} minutes: healthy nodes may look silent."
        " Raise heartbeat_writes_a_second, or check the table's limits."
    )
    around = aws("AWS/SNS", "NumberOfMessagesPublished", {"TopicName": names.FALLBACK_TOPIC})
    cut_off = (
        "Nodes publish grave faults to SNS, because the bus accepts nothing from them."
        " Check EventBridge's health, its quota of PutEvents, and the nodes' network path to it."
    )
    return [
        Watched("BeatsThrottled", beats, throttled, periods=THROTTLED_PERIODS),
        Watched("BusAvoided", around, cut_off),
    ]


def _of_neuron_devices() -> list[Watched]:
    # One alarm each: CloudWatch bills an alarm on a sum by its metrics, and a sum does not show which error it was.
    return [
        Watched(
            metric.name,
            ours(metric, period=FIVE_MINUTES),
            f"A Neuron device reported {code}. nodeheal's own email names the node. Runbook: docs/reference/faults.md.",
        )
        for code, metric in metrics.NEURON_HAS_ERROR.items()
    ]


def _of_functions(parts: Parts) -> list[Watched]:
    errors = [
        Watched(
            f"{''.join(word.title() for word in stem.split('_'))}Errors",
            aws("AWS/Lambda", "Errors", {"FunctionName": name}),
            f"{name} fails repeatedly. Its log is /nodeheal/{stem}.",
            ERRORS,
        )
        for stem, name in parts.functions.items()
        if stem != VALIDATOR  # every error of it counts, since it is a refusal
    ]
    calls = aws("AWS/Lambda", "Invocations", {"FunctionName": parts.functions["sweep"]}, period=MINUTE)
    gone = f"The sweep has not run for {SILENT_MINUTES} minutes: silent nodes and lost starts are not detected."
    throttled = "Functions of this account are throttled: raise its concurrency, or find what uses it up."
    return [
        *errors,
        Watched("Throttled", aws("AWS/Lambda", "Throttles"), throttled, ERRORS),
        Watched(
            "SweepGone",
            calls,
            gone,
            periods=SILENT_MINUTES,
            rings_below=True,
            rings_without_data=True,
        ),
    ]


def _of_recoveries(parts: Parts) -> list[Watched]:
    # Each failed recovery pages by itself; this alarm shows that the cause is not a single node.
    failed = aws("AWS/States", "ExecutionsFailed", {"StateMachineArn": parts.recovery_arn}, period=HOUR)
    again = f"{BROKEN_RECOVERIES} recoveries failed within an hour: the workflow is at fault. Runbook: recovery-broke."
    full = f"Incidents have waited for a slot of a disruption budget for {FULL_MINUTES} minutes. Runbook: budget-full."
    is_open = (
        f"A pool's breaker has been open for {OPEN_MINUTES} minutes: nothing is healed there. Runbook: breaker-open."
    )
    return [
        Watched("RecoveriesBreak", failed, again, BROKEN_RECOVERIES),
        Watched("BudgetFull", ours(metrics.IN_LINE, statistic="Maximum"), full, periods=FULL_MINUTES),
        Watched("BreakerOpen", ours(metrics.BREAKERS_OPEN, statistic="Maximum"), is_open, periods=OPEN_MINUTES),
    ]


def _of_policy(parts: Parts) -> list[Watched]:
    refused = aws("AWS/Lambda", "Errors", {"FunctionName": parts.functions[VALIDATOR]}, period=MINUTE)
    return [
        Watched(
            "PolicyRefused",
            refused,
            "A policy document was refused; the previous one stays active. `nodeheal policy check FILE` says why.",
        ),
        Watched(
            "PolicyUnusable",
            ours(metrics.POLICY_REFUSED),
            "The deployed policy cannot be read or is not valid; the last good one stays active.",
        ),
    ]
