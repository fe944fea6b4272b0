"""What each foreign event says, and what no event says although it looks so."""

from typing import Any

import pytest
from pydantic import ValidationError

from lambdas.take_signal import TRANSLATORS
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Verdict
from nodeheal.domain.faults.catalog import find
from tests.support.foreign import EVERY, MACHINE, drafts, recorded

# file: what it says, and whether it may open an incident by itself.
SAYS = {
    "alarm_any": ("host/status_check_instance", True),
    "alarm_ebs": ("host/status_check_ebs", True),
    "alarm_ok": ("host/status_check_system: OK", True),
    "alarm_system": ("host/status_check_system", True),
    "auto_scaling_terminate": ("host/group_termination", True),
    "aws_health_drive": ("host/instance_store_degraded", True),
    "aws_health_issue": ("host/aws_issue/OPERATIONAL_ISSUE", True),
    "aws_health_reboot": ("host/scheduled_event/reboot", True),
    "aws_health_retirement": ("host/scheduled_event/retirement", True),
    "ec2_rebalance": ("host/rebalance_recommended", True),
    "ec2_reservation_warning": ("host/reservation_interruption", True),
    "ec2_spot_warning": ("host/spot_interruption", True),
    "ec2_state_running": (None, True),
    "ec2_state_shutting_down": ("host/instance_gone/terminated", True),
    "ec2_state_stopped": ("host/instance_gone/stopped", True),
    "ec2_state_terminated": ("host/instance_gone/terminated", True),
    "ecs_health_connectivity": ("heartbeat/agent_disconnected/impaired", False),
    "ecs_health_daemon": ("host/ecs_daemon", False),
    "ecs_health_runtime": ("host/container_runtime", True),
    "ecs_health_runtime_ok": ("host/container_runtime: OK", True),
    "ecs_health_xid": ("xid/46", True),
    "ecs_instance_connected": ("heartbeat/agent_disconnected: OK", False),
    "ecs_instance_disconnected": ("heartbeat/agent_disconnected", False),
    "ecs_task_lost": ("task/host_lost", False),
}


def said(event: dict[str, Any]) -> list[str]:
    """Every draft in short: family/code/sub-code, and the verdict where it is not the catalog's."""
    made = drafts(event)
    names = ["/".join(filter(None, (draft.family.value, draft.code, draft.subcode))) for draft in made]
    return [f"{name}: {d.verdict}" if d.verdict else name for name, d in zip(names, made, strict=True)]


def test_every_recorded_event_is_told_here() -> None:
    assert set(EVERY) == set(SAYS)
    assert {recorded(name)["detail-type"] for name in EVERY} == set(TRANSLATORS)


@pytest.mark.parametrize("name", SAYS)
def test_an_event_says_one_thing_of_one_machine(name: str) -> None:
    fact, may_open = SAYS[name]
    made = drafts(recorded(name))

    assert said(recorded(name))[:1] == ([fact] if fact else [])
    assert all(draft.is_advisory is not may_open for draft in made)
    assert not made or made[0].instance_id == MACHINE


@pytest.mark.parametrize("name", [name for name, (fact, _) in SAYS.items() if fact])
def test_every_fact_has_a_row_in_the_catalog(name: str) -> None:
    for draft in drafts(recorded(name)):
        assert find(draft.family, draft.code, draft.subcode)


@pytest.mark.parametrize("name", EVERY)
def test_a_redelivery_says_the_same(name: str) -> None:
    assert drafts(recorded(name)) == drafts(recorded(name))


@pytest.mark.parametrize("name", EVERY)
def test_an_event_without_its_detail_is_refused_by_name(name: str) -> None:
    event = recorded(name)
    parse, _ = TRANSLATORS[event["detail-type"]]

    with pytest.raises(ValidationError, match="detail"):
        parse.model_validate({**event, "detail": {}})


@pytest.mark.parametrize("missing", ["id", "time"])
@pytest.mark.parametrize("name", EVERY)
def test_an_event_that_cannot_be_told_from_others_is_refused(name: str, missing: str) -> None:
    event = recorded(name)
    parse, _ = TRANSLATORS[event["detail-type"]]

    with pytest.raises(ValidationError, match=missing):
        parse.model_validate({key: value for key, value in event.items() if key != missing})


# AWS Health ----------------------------------------------------------------------------------------------------------


def test_a_planned_change_is_told_of_every_machine_that_it_names() -> None:
    made = drafts(recorded("aws_health_retirement"))

    assert [draft.instance_id for draft in made] == [MACHINE, "i-0fedcba9876543210"]
    assert len({draft.key for draft in made}) == 2


def test_a_backup_copy_from_another_region_is_the_same_fact() -> None:
    original, copy = recorded("aws_health_drive"), recorded("aws_health_drive", backupEvent="true")

    keys = [drafts(event)[0].key for event in (original, {**copy, "id": "another", "region": "us-west-2"})]

    assert keys[0] == keys[1]


def test_a_new_communication_about_a_change_is_news() -> None:
    update = recorded("aws_health_retirement", communicationId="another-1")

    assert drafts(update)[0].key != drafts(recorded("aws_health_retirement"))[0].key


@pytest.mark.parametrize(
    ("start", "fact"),
    [
        ("Mon, 2 Mar 2026 03:00:00 GMT", "host/scheduled_event/soon/retirement"),
        ("Mon, 2 Mar 2026 03:00:01 GMT", "host/scheduled_event/retirement"),
        ("Sat, 28 Feb 2026 03:00:00 GMT", "host/scheduled_event/soon/retirement"),
        (None, "host/scheduled_event/retirement"),
    ],
)
def test_a_retirement_within_a_day_is_for_a_human(start: str | None, fact: str) -> None:
    assert said(recorded("aws_health_retirement", startTime=start))[0] == fact


def test_a_restart_within_a_day_is_only_told() -> None:
    assert said(recorded("aws_health_reboot", startTime="Sun, 1 Mar 2026 04:00:00 GMT")) == [
        "host/scheduled_event/reboot"
    ]


@pytest.mark.parametrize(
    ("code", "fact"),
    [
        ("AWS_EC2_INSTANCE_STOP_SCHEDULED", "host/scheduled_event/stop"),
        ("AWS_EC2_INSTANCE_TERMINATION_SCHEDULED", "host/scheduled_event/retirement"),
        ("AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED", "host/scheduled_event/maintenance"),
        ("AWS_EC2_PERSISTENT_INSTANCE_POWER_MAINTENANCE_SCHEDULED", "host/scheduled_event/maintenance"),
        ("AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED", "host/scheduled_event/reboot"),
        ("AWS_EC2_SOMETHING_NEW_SCHEDULED", "host/aws_issue/SOMETHING_NEW_SCHEDULED"),
    ],
)
def test_a_planned_change_is_known_by_its_type(code: str, fact: str) -> None:
    assert said(recorded("aws_health_reboot", eventTypeCode=code)) == [fact]


@pytest.mark.parametrize(
    "over", [{"statusCode": "closed"}, {"affectedEntities": [{"entityValue": MACHINE, "status": "RESOLVED"}]}]
)
def test_what_is_over_is_good_news(over: dict[str, Any]) -> None:
    assert drafts(recorded("aws_health_drive", **over))[0].verdict is Verdict.OK


@pytest.mark.parametrize(
    "other",
    [
        {"service": "RDS"},
        {"eventTypeCategory": "accountNotification"},
        {"affectedEntities": [{"entityValue": "vol-0123456789abcdef0"}]},
        {"affectedEntities": []},
    ],
)
def test_what_is_not_about_a_machine_says_nothing(other: dict[str, Any]) -> None:
    assert drafts(recorded("aws_health_drive", **other)) == []


# ECS -----------------------------------------------------------------------------------------------------------------


def test_of_ecs_checks_only_failures_and_recoveries_say_something() -> None:
    [check] = recorded("ecs_health_runtime")["detail"]["healthChecks"]
    vague = [{**check, "status": status} for status in ("INSUFFICIENT_DATA", "INITIALIZING")]

    assert drafts(recorded("ecs_health_runtime", healthChecks=[*vague, {**check, "type": "NEW_CHECK"}])) == []


@pytest.mark.parametrize(
    ("reason", "fact"),
    [
        ("XID_79", "xid/79"),
        ("XID 079", "xid/79"),
        ("device lost", "host/accelerated_compute"),
        (None, "host/accelerated_compute"),
    ],
)
def test_an_impaired_accelerator_is_its_xid_where_ecs_names_one(reason: str | None, fact: str) -> None:
    [check] = recorded("ecs_health_xid")["detail"]["healthChecks"]

    assert said(recorded("ecs_health_xid", healthChecks=[{**check, "statusReason": reason}])) == [fact]


def test_an_xid_in_the_reason_of_another_check_is_no_xid() -> None:
    [check] = recorded("ecs_health_runtime")["detail"]["healthChecks"]

    assert said(recorded("ecs_health_runtime", healthChecks=[{**check, "statusReason": "XID_79"}])) == [
        "host/container_runtime"
    ]


@pytest.mark.parametrize("name", ["ecs_health_runtime", "ecs_instance_disconnected"])
def test_capacity_without_a_machine_says_nothing(name: str) -> None:
    assert drafts(recorded(name, ec2InstanceId=None)) == []


@pytest.mark.parametrize(
    "other",
    [
        {"startedBy": names.started_by("llama", 1)},
        {"lastStatus": "RUNNING"},
        {"stoppedReason": "Essential container in task exited"},
    ],
)
def test_a_task_of_ours_or_one_that_ended_otherwise_says_nothing(other: dict[str, Any]) -> None:
    assert drafts(recorded("ecs_task_lost", **other)) == []


# CloudWatch ----------------------------------------------------------------------------------------------------------


def test_an_alarm_that_lacks_data_says_nothing() -> None:
    assert drafts(recorded("alarm_system", state={"value": "INSUFFICIENT_DATA", "reason": ""})) == []


@pytest.mark.parametrize(
    "metric",
    [
        {"name": "CPUUtilization", "namespace": "AWS/EC2", "dimensions": {"InstanceId": MACHINE}},
        {"name": "StatusCheckFailed", "namespace": "Mine", "dimensions": {"InstanceId": MACHINE}},
        {"name": "StatusCheckFailed", "namespace": "AWS/EC2", "dimensions": {"AutoScalingGroupName": "h100"}},
    ],
)
def test_an_alarm_on_anything_else_says_nothing(metric: dict[str, Any]) -> None:
    assert drafts(recorded("alarm_system", configuration={"metrics": [{"metricStat": {"metric": metric}}]})) == []


def test_an_alarm_on_several_checks_or_on_an_expression_says_nothing() -> None:
    [query] = recorded("alarm_system")["detail"]["configuration"]["metrics"]

    assert drafts(recorded("alarm_system", configuration={"metrics": [query, query]})) == []
    assert drafts(recorded("alarm_system", configuration={"metrics": [{"expression": "MAX(m1)"}]})) == []
