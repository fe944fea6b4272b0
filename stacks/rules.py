"""Defines which events reach which target. Every target has a dead-letter queue."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from nodeheal.contract import names
from nodeheal.operations.verbs import ANSWERS
from stacks.functions import FUNCTIONS
from stacks.route import Route
from stacks.signals import signals

TARGETS_OF_A_RULE = 5  # EventBridge's quota
KEEP_WARM_EVERY = cdk.Duration.minutes(5)  # Lambda keeps an idle environment for longer than this
SWEEP_EVERY = cdk.Duration.minutes(1)  # the longest delay until a silence is detected, or a lost start is repeated
RETRY_FOR = cdk.Duration.hours(2)  # by then every deadline of a workflow has passed, and it has observed by itself
_NOT_FAILED = ["Pending", "InProgress", "Delayed", "Success"]  # the node itself reports a command's result


def routes(cluster_arn: str) -> tuple[Route, ...]:
    """Return every route to a function."""
    return (
        *signals(cluster_arn),
        Route(
            "NodeSpoke",
            "A node has booted, tells its hardware, or answers a command: an operation may wait for that",
            "wakeup",
            True,
            events.EventPattern(
                source=[names.AGENT_SOURCE],
                detail_type=[names.NODE_BOOTED, names.NODE_HARDWARE_REPORTED, *sorted(ANSWERS)],
            ),
        ),
        Route(
            "TaskChanged",
            "A task that nodeheal started runs or has stopped",
            "wakeup",
            False,
            events.EventPattern(
                source=["aws.ecs"],
                detail_type=[names.ECS_TASK_STATE_CHANGE],
                detail={
                    "clusterArn": [cluster_arn],
                    "lastStatus": ["RUNNING", "STOPPED"],
                    "startedBy": [{"prefix": f"{names.STARTED_BY_PREFIX}/"}],
                },
            ),
        ),
        Route(
            "CommandEnded",
            "One of nodeheal's commands failed on a node",
            "wakeup",
            False,
            events.EventPattern(
                source=["aws.ssm"],
                detail_type=[names.SSM_INVOCATION_CHANGE],
                detail={
                    "document-name": [{"prefix": names.DOCUMENT_PREFIX}],
                    "status": [{"anything-but": _NOT_FAILED}],
                },
            ),
        ),
        Route(
            "GroupLaunched",
            "An Auto Scaling group has launched a machine, or could not: a replacement may wait for it",
            "wakeup",
            False,
            events.EventPattern(
                source=["aws.autoscaling"], detail_type=[names.GROUP_LAUNCHED, names.GROUP_LAUNCH_FAILED]
            ),
        ),
        Route(
            "MachineGone",
            "An instance has stopped and may have to start, or is terminated and its successor waits for its place",
            "wakeup",
            False,
            events.EventPattern(
                source=["aws.ec2"],
                detail_type=[names.MACHINE_STATE_CHANGE],
                detail={"state": ["stopped", "terminated"]},
            ),
        ),
        Route(
            "IncidentTold",
            "An incident ended, waits or asks: notify the operators. A job was stopped or runs again: notify its owner",
            "notify",
            True,
            events.EventPattern(
                source=[names.CONTROL_SOURCE],
                detail_type=[
                    names.APPROVAL_REQUESTED,
                    names.INCIDENT_CLOSED,
                    names.INCIDENT_DIGEST,
                    names.INCIDENT_ESCALATED,
                    names.INCIDENT_WAITING,
                    names.JOB_NEWS,
                ],
            ),
        ),
    )


def connect_routes(
    scope: Construct,
    functions: Mapping[str, lambda_.IFunction],
    queues: Mapping[str, sqs.IQueue],
    bus: events.IEventBus,
    dead: sqs.IQueue,
    cluster_arn: str,
) -> None:
    """Create one rule for each route, to the function's queue where it has one. `queues`: by the function's stem."""
    for route in routes(cluster_arn):
        queue = queues.get(route.function)
        events.Rule(
            scope,
            route.construct_id,
            description=route.description,
            event_bus=bus if route.on_our_bus else None,
            event_pattern=route.pattern,
            targets=[
                _function_target(functions[route.function], dead)
                if queue is None
                else targets.SqsQueue(queue, dead_letter_queue=dead)
            ],
        )


def keep_warm(scope: Construct, functions: Mapping[str, lambda_.IFunction], dead: sqs.IQueue) -> None:
    """Ping the functions between a fault and the resumed job, so that few of their starts are cold."""
    ping = events.RuleTargetInput.from_object(names.KEEP_WARM)
    warm = [function.stem for function in FUNCTIONS if function.keep_warm]
    for first in range(0, len(warm), TARGETS_OF_A_RULE):
        events.Rule(
            scope,
            f"KeepWarm{first // TARGETS_OF_A_RULE or ''}",
            description="Keeps the functions between a fault and the resumed job warm",
            schedule=events.Schedule.rate(KEEP_WARM_EVERY),
            targets=[_function_target(functions[stem], dead, ping) for stem in warm[first : first + TARGETS_OF_A_RULE]],
        )


def sweep_regularly(scope: Construct, sweep: lambda_.IFunction, dead: sqs.IQueue) -> None:
    """Run the sweep by the clock, since silent nodes and lost starts send no event."""
    events.Rule(
        scope,
        "Sweep",
        description="Detects silent nodes, and starts what a crash kept from being started",
        schedule=events.Schedule.rate(SWEEP_EVERY),
        targets=[_function_target(sweep, dead)],
    )


@dataclass(frozen=True)
class BrokenWorkflow:
    """A workflow whose executions page when they end without a page from within."""

    construct_id: str
    what: str  # the name of an execution in words
    arn: str
    advice: str
    runbook: str


def page_on_broken_workflow(scope: Construct, workflow: BrokenWorkflow, topic: sns.ITopic, dead: sqs.IQueue) -> None:
    """Page when an execution ends without a page from within."""
    ended: dict[str, Any] = {
        "stateMachineArn": [workflow.arn],
        "$or": [
            {"status": ["TIMED_OUT", "ABORTED"]},
            {"status": ["FAILED"], "error": [{"anything-but": [names.ERROR_ALREADY_PAGED]}]},
        ],
    }
    text = events.RuleTargetInput.from_multiline_text(
        f"nodeheal: {workflow.what} ended as {events.EventField.from_path('$.detail.status')}, "
        "and has not notified anybody.\n"
        "Needed: look at the execution's last state in the Step Functions console, then finish by hand what it had "
        f"begun. {workflow.advice}\n"
        f"Execution: {events.EventField.from_path('$.detail.executionArn')}\n"
        f"Runbook: {workflow.runbook}"
    )
    events.Rule(
        scope,
        workflow.construct_id,
        description=f"{workflow.what.capitalize()} failed without paging, timed out, or was stopped: page",
        event_pattern=events.EventPattern(
            source=["aws.states"], detail_type=["Step Functions Execution Status Change"], detail=ended
        ),
        targets=[targets.SnsTopic(topic, message=text, dead_letter_queue=dead, max_event_age=RETRY_FOR)],
    )


def _function_target(
    function: lambda_.IFunction, dead: sqs.IQueue, event: events.RuleTargetInput | None = None
) -> targets.LambdaFunction:
    return targets.LambdaFunction(function, event=event, dead_letter_queue=dead, max_event_age=RETRY_FOR)
