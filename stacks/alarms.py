"""When nodeheal itself is not well. What it says of nodes comes by email; these alarms say that it may not come."""

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
# A full budget is waited for in line for a day; an hour in which nothing moves is worth a look.
FULL_MINUTES, OPEN_MINUTES, SILENT_MINUTES = 60, 30, 10
OLD_SECONDS = 300
# One call that is refused for load is repeated by whoever made it; several in five minutes are no accident.
ERRORS, BROKEN_RECOVERIES = 5, 3
# A heartbeat that is throttled is given again a moment later; a table that is too small throttles on and on.
THROTTLED_PERIODS = 3
VALIDATOR = "validate_policy"
_MISSING, _NOT_BREACHING = cloudwatch.TreatMissingData.MISSING, cloudwatch.TreatMissingData.NOT_BREACHING


@dataclass(frozen=True)
class Watched:
    """One alarm: it rings when the metric is at `threshold` or above for so many periods."""

    name: str
    metric: cloudwatch.IMetric
    why: str  # what it means and what to do first
    threshold: float = 1
    periods: int = 1
    rings_below: bool = False
    # Rings where no data come any more. It does not ring before the first data have come: an alarm begins in the state
    # INSUFFICIENT_DATA, and only a change of state calls anybody.
    rings_without_data: bool = False


def ours(
    metric: Metric,
    at: Mapping[str, str] | None = None,
    statistic: str = "Sum",
    period: cdk.Duration = MINUTE,
    label: str | None = None,
) -> cloudwatch.Metric:
    """A metric that the functions emit, at these values of its dimensions."""
    given = dict(at or {})
    if set(given) != set(metric.dimensions):
        raise ValueError(f"{metric.name} is measured by {metric.dimensions}, not by {sorted(given)}")
    return aws(names.METRICS_NAMESPACE, metric.name, given, statistic, period, label)


def aws(
    namespace: str,
    name: str,
    at: Mapping[str, str] | None = None,
    statistic: str = "Sum",
    period: cdk.Duration = FIVE_MINUTES,
    label: str | None = None,
) -> cloudwatch.Metric:
    """A metric that a service of AWS emits."""
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
    """What is watched: deployed names, by what they are."""

    functions: Mapping[str, str]  # by stem
    event_queue: str
    dead_queues: Mapping[str, str]  # by what their messages are
    quarantine: str
    recovery_arn: str


def build_alarms(scope: Construct, parts: Parts, topic: sns.ITopic) -> list[cloudwatch.Alarm]:
    """Every alarm; each tells the operators."""
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
        Watched(f"Dead{what}", _waiting(queue), f"Messages in {queue}: their faults were not acted on. Read them.")
        for what, queue in parts.dead_queues.items()
    ]
    age = aws("AWS/SQS", "ApproximateAgeOfOldestMessage", {"QueueName": parts.event_queue}, statistic="Maximum")
    late = f"Health events wait for {OLD_SECONDS} s and more: ingest does not keep up, or fails. See its log."
    unread = f"Messages that nobody could read are in {parts.quarantine}: the attribute `why` of each says why."
    return [
        *dead,
        Watched("Quarantine", _waiting(parts.quarantine), unread),
        Watched("EventsLate", age, late, OLD_SECONDS, 2),
    ]


def _of_nodes() -> list[Watched]:
    beats = aws("AWS/DynamoDB", "WriteThrottleEvents", {"TableName": names.HEARTBEATS_TABLE})
    throttled = (
        f"Heartbeats are throttled for {5 * THROTTLED_PERIODS} minutes: nodes may look silent that are well."
        " Raise heartbeat_writes_a_second, or see the table's limits."
    )
    around = aws("AWS/SNS", "NumberOfMessagesPublished", {"TopicName": names.FALLBACK_TOPIC})
    cut_off = (
        "Nodes tell grave faults by way of SNS: the bus takes nothing from them."
        " See EventBridge's health, its quota of PutEvents, and the nodes' way to it."
    )
    return [
        Watched("BeatsThrottled", beats, throttled, periods=THROTTLED_PERIODS),
        Watched("BusAvoided", around, cut_off),
    ]


def _of_neuron_devices() -> list[Watched]:
    # One alarm each: CloudWatch bills an alarm on a sum by its metrics, and a sum does not say which error it was.
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
            f"{name} fails again and again. Its log is /nodeheal/{stem}.",
            ERRORS,
        )
        for stem, name in parts.functions.items()
        if stem != VALIDATOR  # whose every error is told, as a refusal
    ]
    calls = aws("AWS/Lambda", "Invocations", {"FunctionName": parts.functions["sweep"]}, period=MINUTE)
    gone = f"The sweep has not run for {SILENT_MINUTES} minutes: silent nodes and lost starts are not noticed."
    throttled = "Functions of this account are throttled: raise its concurrency, or see who uses it up."
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
    # Each broken recovery pages by itself; this one says that it is not one node's bad luck.
    failed = aws("AWS/States", "ExecutionsFailed", {"StateMachineArn": parts.recovery_arn}, period=HOUR)
    again = f"{BROKEN_RECOVERIES} recoveries broke within an hour: the workflow is at fault. Runbook: recovery-broke."
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
            "A policy document was refused; the one before it stays in force. `nodeheal policy check FILE` says why.",
        ),
        Watched(
            "PolicyUnusable",
            ours(metrics.POLICY_REFUSED),
            "The deployed policy cannot be read or is not valid; the last good one stays in force.",
        ),
    ]
