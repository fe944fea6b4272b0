"""Each function may do what its code can come to, and nothing else: the source is read, and held against the grants.

Whatever is taken away from a role is missed by something here, and whatever is granted beside is found.
"""

import json

import pytest

from stacks.functions import FUNCTIONS, FunctionSpec
from stacks.machine_permissions import on_hyperpod
from stacks.permission import Permission, on_kubernetes
from stacks.workflows import JOB, JOB_PERMISSIONS, PARENT, PARENT_PERMISSIONS, Workflow
from tests.infrastructure.needs import Need, needs_of, needs_on_kubernetes, needs_on_slurm
from tests.infrastructure.reach import calls_of

BY_NAME = {spec.stem: spec for spec in FUNCTIONS}
# What Lambda does in a function's name, and what lambdas.composition.queued does with what it crashes on.
TAKES_FROM_QUEUE = {
    ("sqs:SendMessage", "{quarantine}"),
    ("sqs:ChangeMessageVisibility", ""),
    ("sqs:DeleteMessage", ""),
    ("sqs:GetQueueAttributes", ""),
    ("sqs:ReceiveMessage", ""),
}
WRITES_ITS_LOG = {("logs:CreateLogStream", ""), ("logs:PutLogEvents", "")}
# What these take is of AWS or of the control plane; only what a node says itself may be of a node that is not enrolled.
_TAKE_NO_WORD_OF_NODES = ("attribute_failure", "find_checkpoint", "judge_checks", "sweep", "take_signal")
NEVER_CALLED = {stem: {"enrolment_tags.pool_of", "nodes.count_report"} for stem in _TAKE_NO_WORD_OF_NODES}
# They look for work on new nodes, and Slurm's prolog checks these.
NEVER_ON_SLURM = ("sweep", "wakeup")


def granted(spec: FunctionSpec) -> tuple[Permission, ...]:
    """What a function may do where the settings name a cluster of HyperPod, and one of EKS."""
    on_clusters = (
        *on_hyperpod(spec.permissions, ("{cluster}",)),
        *on_kubernetes(spec.permissions, ("training",), ("training",)),
    )
    return (*spec.every_permission, *on_clusters)


EVERY_PERMISSION = [(spec.stem, permission) for spec in FUNCTIONS for permission in granted(spec)]


def needs(stem: str) -> set[Need]:
    """Everything that a function asks AWS for."""
    calls = calls_of(stem) - NEVER_CALLED.get(stem, set())
    asked = {need for call in calls for need in needs_of(call)} | WRITES_ITS_LOG
    if stem not in NEVER_ON_SLURM:
        asked |= {need for call in calls for need in needs_on_slurm(call)}
    asked |= {need for call in calls for need in needs_on_kubernetes(call)}
    return asked | (TAKES_FROM_QUEUE if BY_NAME[stem].queue else set())


def covers(permission: Permission, need: Need) -> bool:
    """Whether the statement allows it. Of its conditions only their keys count: they may tell two statements apart."""
    action, on = need
    where = (*permission.resources, *(key for pairs in permission.conditions.values() for key in pairs))
    return action in permission.actions and any(on in place for place in where)


@pytest.mark.parametrize("spec", FUNCTIONS, ids=lambda spec: spec.stem)
def test_a_function_may_do_what_its_code_can_come_to(spec: FunctionSpec) -> None:
    denied = {n for n in needs(spec.stem) if not any(covers(p, n) for p in granted(spec))}

    assert denied == set()


@pytest.mark.parametrize(("stem", "permission"), EVERY_PERMISSION)
def test_without_a_permission_something_would_be_denied(stem: str, permission: Permission) -> None:
    left = [other for other in granted(BY_NAME[stem]) if other != permission]

    denied = {action for action, on in needs(stem) if not any(covers(other, (action, on)) for other in left)}

    assert denied == set(permission.actions)  # each action of it is missed, not only the statement


@pytest.mark.parametrize(("stem", "calls"), NEVER_CALLED.items())
def test_what_is_said_never_to_be_called_is_in_the_code(stem: str, calls: set[str]) -> None:
    assert calls <= calls_of(stem)


def test_the_reader_sees_calls_grants_and_values_of_the_adapters() -> None:
    assert "scheduler.drain_all" in calls_of("isolate_node")
    assert "Power.START" in calls_of("wakeup")
    assert "Power.REBOOT" not in calls_of("wakeup")
    assert needs_of("incidents.open") == {("dynamodb:PutItem", "{table}")}
    assert ("dynamodb:UpdateItem", "{table}") in needs_of("incidents.advance")
    assert ("ssm:SendCommand", ":document/nodeheal-reboot-node") in needs_of("document.reboot-node")
    assert ("dynamodb:Scan", "{heartbeats}") in needs_of("heartbeats.newest")
    assert ("sts:AssumeRole", "nodeheal-controllers-{region}") in needs_on_slurm("scheduler.undrain")
    assert needs_on_slurm("scheduler.restart_unmanaged_task") == frozenset()
    assert needs_on_slurm("scheduler.placements_of") == frozenset()
    assert ("sts:AssumeRole", "nodeheal-controllers-{region}") in needs_on_kubernetes(
        "scheduler.restart_unmanaged_task"
    )
    assert needs_on_kubernetes("scheduler.placements_of") == frozenset()
    assert "scheduler.pending" in calls_of("sweep")
    assert needs_on_kubernetes("scheduler.pending")


# What Step Functions does for each kind of task, in the name of the workflow's role.
BY_TASK = {
    "dynamodb:updateItem": {"dynamodb:UpdateItem"},
    "lambda:invoke": set[str](),  # the stack grants exactly the functions that the file names
    "lambda:invoke.waitForTaskToken": set[str](),
    "sns:publish": {"sns:Publish"},
}


@pytest.mark.parametrize(
    ("stem", "permissions"),
    [(PARENT, PARENT_PERMISSIONS), (JOB, JOB_PERMISSIONS)],
)
def test_a_workflow_may_do_what_its_states_do(stem: str, permissions: tuple[Permission, ...]) -> None:
    states = json.loads(Workflow(stem).path.read_text("utf-8"))["States"].values()

    tasks = {state["Resource"].partition(":states:::")[2] for state in states if state["Type"] == "Task"}

    granted = {action for permission in permissions for action in permission.actions}
    assert granted == {action for task in tasks for action in BY_TASK[task]}
