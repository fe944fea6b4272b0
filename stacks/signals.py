"""Defines the routes of AWS's events about nodes, on the default bus: see docs/foreign-signals.md.

ECS events are those of the configured cluster. EC2, Auto Scaling and AWS Health have no cluster: every machine's events
come, and those of machines that are no nodes are ignored after one read.
"""

from typing import Any

from aws_cdk import aws_events as events

from nodeheal.contract import names
from stacks.route import Route

FUNCTION = "take_signal"
_STATUS_CHECKS = {"metric": {"namespace": ["AWS/EC2"], "name": [{"prefix": "StatusCheckFailed"}]}}


def signals(cluster_arn: str) -> tuple[Route, ...]:
    """Return one route for each source."""
    return (*_of_ecs(cluster_arn), *_of_machines(), *_of_health())


def _route(
    construct_id: str, description: str, source: str, kinds: tuple[str, ...], detail: dict[str, Any] | None = None
) -> Route:
    pattern = events.EventPattern(source=[source], detail_type=list(kinds), detail=detail)
    return Route(construct_id, description, FUNCTION, False, pattern)


def _of_ecs(cluster_arn: str) -> tuple[Route, ...]:
    ours = {"clusterArn": [cluster_arn]}
    # A task that nodeheal started wakes its workflow; of others only those whose machine was lost are read.
    lost = {
        **ours,
        "lastStatus": ["STOPPED"],
        "startedBy": [{"exists": False}, {"anything-but": {"prefix": f"{names.STARTED_BY_PREFIX}/"}}],
        "stoppedReason": [{"prefix": "Host EC2 (instance "}],
    }
    # ECS's events about an instance that is drained and connected come at every drain by nodeheal, and add nothing.
    connected = {**ours, "$or": [{"agentConnected": [False]}, {"status": ["ACTIVE"]}]}
    connection = (
        "The ECS agent of a node was connected or disconnected: normal by itself, and evidence when the node is silent"
    )
    health = "ECS's own checks on a node failed, or pass again"
    return (
        _route("NodeConnected", connection, "aws.ecs", (names.ECS_INSTANCE_STATE_CHANGE,), connected),
        _route("NodeHealthChanged", health, "aws.ecs", (names.ECS_INSTANCE_HEALTH_CHANGE,), ours),
        _route("TaskLost", "A task ended because its node is gone", "aws.ecs", (names.ECS_TASK_STATE_CHANGE,), lost),
    )


def _of_machines() -> tuple[Route, ...]:
    down = ("stopping", "stopped", "shutting-down", "terminated")
    return (
        _route(
            "MachineDown",
            "A machine was stopped or terminated",
            "aws.ec2",
            (names.EC2_STATE_CHANGE,),
            {"state": list(down)},
        ),
        _route(
            "MachineTakenBack",
            "EC2 reclaims a machine in two minutes, or expects to",
            "aws.ec2",
            (names.EC2_SPOT_WARNING, names.EC2_REBALANCE, names.EC2_RESERVATION_WARNING),
        ),
        _route(
            "MachineLeavesGroup",
            "An Auto Scaling group is about to take a machine away",
            "aws.autoscaling",
            (names.AUTO_SCALING_TERMINATE,),
        ),
    )


def _of_health() -> tuple[Route, ...]:
    return (
        _route(
            "HealthOfMachines",
            "AWS has planned something for EC2 machines, or has an issue with them",
            "aws.health",
            (names.AWS_HEALTH,),
            {"service": ["EC2"], "eventTypeCategory": ["issue", "scheduledChange"]},
        ),
        _route(
            "StatusCheckAlarm",
            "An operator's alarm on EC2's status checks changed its state",
            "aws.cloudwatch",
            (names.ALARM_STATE_CHANGE,),
            {"configuration": {"metrics": {"metricStat": _STATUS_CHECKS}}},
        ),
    )
