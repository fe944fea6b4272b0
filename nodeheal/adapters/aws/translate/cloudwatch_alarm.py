"""CloudWatch Alarm State Change, of an alarm on EC2's status checks of one machine.

EC2 sends no event for a failed status check; an operator's alarm does. Delivery is guaranteed.
"""

from pydantic import AwareDatetime, Field

from nodeheal.adapters.aws.translate.foreign import Foreign, ForeignEvent, dated, milliseconds
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.ports.signals import Draft

# The metric for either check counts as the instance's: its ladder contains both remedies.
METRICS = {
    "StatusCheckFailed": "status_check_instance",
    "StatusCheckFailed_Instance": "status_check_instance",
    "StatusCheckFailed_System": "status_check_system",
    "StatusCheckFailed_AttachedEBS": "status_check_ebs",
}
NAMESPACE = "AWS/EC2"
_VERDICTS = {"ALARM": None, "OK": Verdict.OK}


class _Metric(Foreign):
    name: str
    namespace: str = ""
    dimensions: dict[str, str] = Field(default_factory=dict)


class _Stat(Foreign):
    metric: _Metric


class _Query(Foreign):
    stat: _Stat | None = Field(default=None, alias="metricStat")  # absent in an expression over others


class _Configuration(Foreign):
    queries: tuple[_Query, ...] = Field(default=(), alias="metrics")


class _State(Foreign):
    value: str
    reason: str = ""
    timestamp: AwareDatetime | None = None


class _Detail(Foreign):
    alarm: str = Field(alias="alarmName", min_length=1)
    state: _State
    configuration: _Configuration = Field(default_factory=_Configuration)


class AlarmEvent(ForeignEvent):
    """The event."""

    detail: _Detail


def from_cloudwatch_alarm(event: AlarmEvent) -> list[Draft]:
    """Return one draft where the alarm watches one check of one machine; none for an alarm without data."""
    state = event.detail.state
    watched = [query.stat.metric for query in event.detail.configuration.queries if query.stat is not None]
    known = [metric for metric in watched if metric.namespace == NAMESPACE and metric.name in METRICS]
    if state.value not in _VERDICTS or len(known) != 1 or "InstanceId" not in known[0].dimensions:
        return []
    return [_draft(event, known[0])]


def _draft(event: AlarmEvent, metric: _Metric) -> Draft:
    state, alarm = event.detail.state, event.detail.alarm
    at, skew = dated(event, state.timestamp)
    return Draft(
        instance_id=metric.dimensions["InstanceId"],
        source="aws.cloudwatch",
        family=Family.host,
        code=METRICS[metric.name],
        verdict=_VERDICTS[state.value],
        key=event.event_id,
        observed_at=at,
        evidence=f"alarm {alarm}, {metric.name}: {state.value}. {state.reason}{skew}",
        topic=f"alarm/{alarm}",
        version=milliseconds(at),
    )
