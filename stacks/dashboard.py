"""Defines the dashboards: one for the operator on call, read from the top, and one for the nodes, if the settings
enable it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from nodeheal.contract import metrics, names
from nodeheal.contract.metrics import Metric
from nodeheal.contract.vocabulary import Ending, Escalation, Family, Outcome
from nodeheal.domain.verbs import ACTING_STEPS, VERBS
from stacks.alarms import FIVE_MINUTES, MINUTE, Parts, aws, ours

NODES_DASHBOARD = "nodeheal-nodes-{region}"
# A graph of every node is not readable, and CloudWatch draws 500 at most: these are the extremes.
NODES_SHOWN = 10
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


@dataclass(frozen=True)
class NodeGraph:
    """The nodes with the highest, or lowest, values of a metric."""

    title: str
    metric: str
    statistic: str = "MAX"
    is_lowest: bool = False

    @property
    def query(self) -> str:
        """Return the query in Metrics Insights' language. The schema excludes the metrics of single GPUs."""
        order = f"{self.statistic}() {'ASC' if self.is_lowest else 'DESC'}"
        return (
            f'SELECT {self.statistic}({self.metric}) FROM SCHEMA("{names.NODE_METRICS_NAMESPACE}", NodeId)'
            f" GROUP BY NodeId ORDER BY {order} LIMIT {NODES_SHOWN}"
        )


NODE_GRAPHS = (
    (
        NodeGraph("GPUs with a problem: 0 where a node has one", "gpu_healthy", "MIN", is_lowest=True),
        NodeGraph("Hottest GPU of a node, °C", "gpu_temperature_celsius"),
        NodeGraph("Most power of a GPU, W", "gpu_power_watts"),
    ),
    (
        NodeGraph("Least busy GPUs, %", "gpu_utilisation_percent", "AVG", is_lowest=True),
        NodeGraph("Most GPU memory used, bytes", "gpu_memory_used_bytes"),
        NodeGraph("Fullest file system, %", "disk_used_percent"),
    ),
    (
        NodeGraph("Busiest processors, %", "cpu_used_percent", "AVG"),
        NodeGraph("Most memory used, %", "memory_used_percent"),
        NodeGraph("Longest wait for memory, %", "memory_stalled_percent"),
    ),
    (
        NodeGraph("Received, bytes/s", "network_receive_bytes_per_second", "AVG"),
        NodeGraph("Sent, bytes/s", "network_transmit_bytes_per_second", "AVG"),
        NodeGraph("Read from disks, bytes/s", "disk_read_bytes_per_second", "AVG"),
        NodeGraph("Written to disks, bytes/s", "disk_write_bytes_per_second", "AVG"),
    ),
)
_NODES_TOP = f"""# nodes
The {NODES_SHOWN} nodes of all pools that stand out in each graph.
Nodes report here where `cloudwatch_metrics` is `nodes` or `gpus`.
"""


def build_nodes_dashboard(scope: Construct) -> cloudwatch.Dashboard:
    """Create the dashboard nodeheal-nodes: faults by code, and the nodes with extreme values."""
    return cloudwatch.Dashboard(
        scope,
        "NodesDashboard",
        dashboard_name=NODES_DASHBOARD.format(region=cdk.Aws.REGION),
        default_interval=cdk.Duration.hours(3),
        widgets=[
            [cloudwatch.TextWidget(markdown=_NODES_TOP, width=_WIDTH, height=2)],
            _row(("Faults, by pool and code", [_each_pool(metrics.FAULTS_BY_CODE, "Sum")])),
            *(_row(*((graph.title, [_best(graph)]) for graph in row)) for row in NODE_GRAPHS),
        ],
    )


def _best(graph: NodeGraph) -> cloudwatch.MathExpression:
    return cloudwatch.MathExpression(expression=graph.query, using_metrics={}, label="", period=MINUTE)


def build_dashboard(scope: Construct, parts: Parts, alarms: Sequence[cloudwatch.IAlarm]) -> cloudwatch.Dashboard:
    """Create the dashboard nodeheal."""
    return cloudwatch.Dashboard(
        scope,
        "Dashboard",
        dashboard_name=names.DASHBOARD.format(region=cdk.Aws.REGION),
        default_interval=cdk.Duration.hours(12),
        widgets=[
            [cloudwatch.TextWidget(markdown=_TOP, width=_WIDTH, height=3)],
            [cloudwatch.AlarmStatusWidget(title="Is nodeheal well?", alarms=list(alarms), width=_WIDTH, height=4)],
            _needed(),
            _now(),
            _training(),
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
    """Graph the metric at every value of its dimensions: pools come and go without a deployment."""
    schema = ",".join([metric.namespace, *metric.dimensions])
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


def _training() -> list[cloudwatch.IWidget]:
    return _row(
        ("How good the fleet is, %, each pool", [_each_pool(metrics.FLEET_GOOD, "Minimum", MINUTE)]),
        ("Running jobs with findings, each pool", [_each_pool(metrics.JOBS_WITH_FINDINGS, "Maximum", MINUTE)]),
        ("Running jobs that show steps, each pool", [_each_pool(metrics.JOBS_SHOWING_STEPS, "Maximum", MINUTE)]),
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
    actions = [action.value for action, verb in VERBS.items() if verb.limit]
    not_done = [
        ours(metrics.STEPS_ENDED, {"Step": step.value, "Outcome": outcome.value}, label=f"{step} {outcome}")
        for step in ACTING_STEPS
        for outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
    ]
    return _row(
        ("Attempts spent", _by(metrics.ATTEMPTS_SPENT, actions)),
        ("Attempts refused", _by(metrics.ATTEMPTS_REFUSED, actions)),
        ("Steps that failed", not_done),
    )


def _plumbing(parts: Parts) -> list[cloudwatch.IWidget]:
    age = aws("AWS/SQS", "ApproximateAgeOfOldestMessage", {"QueueName": parts.queues["ingest"]}, statistic="Maximum")
    errors = [aws("AWS/Lambda", "Errors", {"FunctionName": name}) for name in parts.functions.values()]
    recovery = {"StateMachineArn": parts.recovery_arn}
    names_of = ("ExecutionsStarted", "ExecutionsFailed", "ExecutionsTimedOut")
    return _row(
        ("Age of the oldest health event, s", [age]),
        ("Errors of functions", errors),
        ("Recoveries", [aws("AWS/States", name, recovery) for name in names_of]),
        ("Emails", _by(metrics.NOTIFICATIONS_SENT, ["PAGE", "INFO"])),
    )
