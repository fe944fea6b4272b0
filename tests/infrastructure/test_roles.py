"""S2: every command of every role, played against the power of every other role.

The deployed policies are judged by the emulator's IAM evaluator, on the requests that each command makes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from nodeheal.contract import names
from nodeheal.contract.vocabulary import ActKind
from sandbox.ministack_adapter.iam import parse_policy
from stacks.functions import FUNCTIONS
from stacks.operator import COMMANDS, DOCTOR_COMMANDS, JOB_COMMANDS, NODE_COMMANDS, VIEW_COMMANDS
from stacks.workflows import JOB, PARENT
from tests.infrastructure.iam_statements import as_list
from tests.infrastructure.roles import (
    ARN,
    BEATS,
    BUS,
    DOCTOR,
    HERE,
    INDEX,
    JOBS,
    ME,
    NODE,
    OPERATOR,
    SSM,
    STATES,
    TABLE,
    VIEWER,
    Request,
    documents,
    may,
)

ACTS_API = "a1b2c3d4e5"  # as tests/infrastructure/filled.py has it
TAGGED = {f"ssm:resourceTag/{names.MANAGED_TAG}": names.MANAGED_TAG_VALUE}


def item(verb: str, *keys: str, on: str = TABLE) -> Request:
    return Request(f"dynamodb:{verb}", on, {"dynamodb:LeadingKeys": list(keys)})


def event(source: str, detail_type: str) -> Request:
    return Request("events:PutEvents", BUS, {"events:source": source, "events:detail-type": detail_type})


def act(kind: ActKind) -> Request:
    return Request("execute-api:Invoke", f"{ARN.format('execute-api')}{ACTS_API}/$default/POST{kind.path}")


RESUME = Request("states:SendTaskSuccess", "*")
READ_NODE, WRITE_NODE = item("GetItem", "node#mi-0a1"), item("PutItem", "node#mi-0a1")
READ_POOLS, LIST_POOL = item("Query", names.POOLS_PK), item("Query", "pool#train", on=INDEX)
READ_INCIDENT, WRITE_INCIDENT = item("Query", "incident#inc-1"), item("PutItem", "incident#inc-1")
READ_QUESTION = item("GetItem", "wait#approval#inc-1/2")
READ_JOB, WRITE_JOB = item("GetItem", "job#llama"), item("PutItem", "job#llama")
STAND_IN_LINE = item("Query", "line#NODES/train", on=INDEX)
WRITE_POOL = item("PutItem", "pool#train")
READ_PAUSES, WRITE_PAUSE = item("Query", names.PAUSES_PK), item("PutItem", names.PAUSES_PK)
APP = ARN.format("appconfig") + "application/abc1234"
SEE_POLICY = Request("appconfig:GetHostedConfigurationVersion", f"{APP}/configurationprofile/abc1234")
APPLY_POLICY = Request("appconfig:StartDeployment", f"{APP}/environment/abc1234")
HYBRID = f"{SSM}managed-instance/mi-0a1"
TAG = Request("ssm:AddTagsToResource", HYBRID, {"aws:TagKeys": [names.MANAGED_TAG]})
RUN_JOB = Request("states:StartExecution", f"{STATES}stateMachine:{names.JOB_WORKFLOW}")
INJECT = Request("ssm:SendCommand", f"{SSM}document/{names.INJECT_DOCUMENT}")
SUBSCRIBE = Request("sns:Subscribe", ARN.format("sns") + names.OWNERS_TOPIC, {"sns:Protocol": "email"})
CONFIRM = Request("sns:ConfirmSubscription", ARN.format("sns") + names.ALERTS_TOPIC)
SUBSCRIBERS = Request("sns:ListSubscriptionsByTopic", ARN.format("sns") + names.OWNERS_TOPIC)
LOG = Request("logs:GetLogEvents", f"{ARN.format('logs')}log-group:{names.JOB_LOG_GROUP}:log-stream:llama/main/1")
FAMILIES = f"{ARN.format('ecs')}task-definition"
REGISTER = Request("ecs:RegisterTaskDefinition", f"{FAMILIES}/nodeheal-llama:1")
CHECKED = Request("cloudwatch:DescribeAlarms", "*")

# What each command asks AWS for that tells it from others. Whoever lacks one of its requests cannot play it.
PLAYED: Mapping[str, tuple[Request, ...]] = {
    "approve": (READ_INCIDENT, READ_QUESTION, act(ActKind.APPROVE)),
    "refuse": (READ_INCIDENT, READ_QUESTION, act(ActKind.REFUSE)),
    "pause": (READ_NODE, WRITE_PAUSE),
    "unpause": (READ_POOLS, READ_PAUSES, WRITE_PAUSE),
    "breaker show": (item("Query", "line#BREAKER/train", on=INDEX),),
    "breaker reset": (READ_POOLS, act(ActKind.RESET_BREAKER)),
    "incidents list": (READ_POOLS, LIST_POOL),
    "incidents show": (READ_INCIDENT,),
    "incidents close": (READ_INCIDENT, act(ActKind.CLOSE_INCIDENT)),
    "incidents export": (READ_POOLS, LIST_POOL, READ_INCIDENT),
    "incidents rma": (READ_POOLS, LIST_POOL, READ_INCIDENT),
    "inject": (READ_NODE, INJECT, Request("ssm:SendCommand", HYBRID, TAGGED)),
    "nodes list": (READ_POOLS, LIST_POOL, Request("dynamodb:Scan", BEATS)),
    "nodes show": (
        READ_NODE,
        SEE_POLICY,
        Request("dynamodb:GetItem", BEATS, {"dynamodb:LeadingKeys": f"AROA{'X' * 17}:mi-0a1"}),
        Request("cloudformation:DescribeStacks", f"{ARN.format('cloudformation')}stack/{names.STACK}/1"),
    ),
    "nodes unenrolled": (item("Query", names.UNENROLLED_PK, on=INDEX),),
    "nodes enroll": (READ_NODE, act(ActKind.ENROLL), TAG),
    "nodes release": (READ_NODE, act(ActKind.RELEASE)),
    "nodes retire": (READ_NODE, act(ActKind.RETIRE), TAG),
    "nodes isolate": (READ_NODE, act(ActKind.ISOLATE)),
    "nodes drain": (READ_NODE, act(ActKind.DRAIN)),
    "nodes diagnose": (READ_NODE, act(ActKind.DIAGNOSE)),
    "nodes reboot": (READ_NODE, act(ActKind.REBOOT)),
    "nodes replace": (READ_NODE, act(ActKind.REPLACE)),
    "pools list": (
        READ_POOLS,
        LIST_POOL,
        item("GetItem", names.POLICY_PK),
        item("Query", "line#BUDGET/train", on=INDEX),
    ),
    "reconcile": (act(ActKind.RECONCILE),),
    "pools sweep": (LIST_POOL, act(ActKind.DIAGNOSE), READ_INCIDENT),
    "status": (
        READ_POOLS,
        LIST_POOL,
        item("GetItem", names.POLICY_PK),
        READ_QUESTION,
        item("GetItem", names.SWEEP_PK),
        Request("dynamodb:GetItem", BEATS, {"dynamodb:LeadingKeys": names.EPOCH_KEY}),
    ),
    "owners subscribe": (SUBSCRIBE,),
    "emails confirm": (CONFIRM,),
    "policy show": (SEE_POLICY,),
    "policy apply": (APPLY_POLICY,),
    "policy edit": (SEE_POLICY, APPLY_POLICY),
    "policy diff": (SEE_POLICY,),
    "policy rollback": (APPLY_POLICY,),
    "jobs submit": (READ_POOLS, LIST_POOL, READ_PAUSES, READ_JOB, act(ActKind.SUBMIT_JOB), SEE_POLICY, SUBSCRIBERS),
    "jobs list": (READ_POOLS, LIST_POOL, Request("dynamodb:Scan", BEATS)),
    "jobs top": (READ_POOLS, LIST_POOL, Request("dynamodb:Scan", BEATS)),
    "jobs show": (READ_JOB, LIST_POOL, STAND_IN_LINE, SUBSCRIBERS),
    "jobs stop": (READ_JOB, act(ActKind.STOP_JOB)),
    "jobs restart": (READ_JOB, act(ActKind.RESTART_JOB)),
    "jobs wait": (READ_JOB,),
    "jobs logs": (READ_JOB, LOG),
    "doctor": (READ_POOLS, LIST_POOL, SEE_POLICY, CHECKED),
}
# Beside the role that a command is made for. An operator reads and writes the whole table; all may look at pools.
ALSO = {
    "incidents list": {JOBS, DOCTOR},
    "jobs list": {VIEWER, OPERATOR, DOCTOR},
    "jobs top": {VIEWER, OPERATOR, DOCTOR},
    "jobs wait": {VIEWER, OPERATOR},
    "nodes list": {DOCTOR, JOBS},
    "nodes unenrolled": {DOCTOR},
    "policy diff": {JOBS, DOCTOR},
    "policy show": {JOBS, DOCTOR},
}
# A word of the node itself, and what a program with another's credentials would like to do.
NODES_OWN = (
    event(names.AGENT_SOURCE, names.NODE_HEALTH_REPORTED),
    item("UpdateItem", ME, on=BEATS),
)
NOBODYS = {
    "the heartbeat of another node": item("UpdateItem", f"AROA{'X' * 17}:mi-0other", on=BEATS),
    "a heartbeat of no key": Request("dynamodb:UpdateItem", BEATS),
    "a word of an operator": event(names.OPERATOR_SOURCE, names.NODE_HEALTH_REPORTED),
    "a function, past the API": Request("lambda:InvokeFunction", f"{ARN.format('lambda')}function:nodeheal-do-act"),
    "an answer, past the functions": RESUME,
    "a word of the control plane": event(names.CONTROL_SOURCE, names.APPROVAL_REQUESTED),
    "a scan of the table": Request("dynamodb:Scan", TABLE),
    "the key of approval links": Request(
        "secretsmanager:GetSecretValue", f"{ARN.format('secretsmanager')}secret:nodeheal/approval-key-AbCdEf"
    ),
    "a reboot by command": Request("ssm:SendCommand", f"{SSM}document/{names.document('reboot-node')}"),
    "a recovery of one's own": Request("states:StartExecution", f"{STATES}stateMachine:{names.RECOVERY_WORKFLOW}"),
    "another tag": Request("ec2:CreateTags", f"{ARN.format('ec2')}instance/i-1", {"aws:TagKeys": ["Owner"]}),
    "every tag of an instance at once": Request("ec2:DeleteTags", f"{ARN.format('ec2')}instance/i-1"),
    "an email to the operators": Request("sns:Publish", ARN.format("sns") + names.ALERTS_TOPIC),
}
# What who submits jobs must not see or write: each was in her reach before.
NOT_OF_JOBS = {
    "a question and its task token": READ_QUESTION,
    "an answer": WRITE_INCIDENT,
    "the story of an incident": READ_INCIDENT,
    "a node": WRITE_NODE,
    "a pool's breaker": WRITE_POOL,
    "a queue for budget, with its tokens": item("Query", "line#BUDGET/train", on=INDEX),
    "the policy in force": item("GetItem", names.POLICY_PK),
    "a job": WRITE_JOB,
    "a run of a job, or an answer to its checks": item("UpdateItem", "job#llama"),
    "the workflow of a job": RUN_JOB,
    "a task definition": REGISTER,
    "a role for a program": Request(
        "iam:PassRole",
        f"arn:aws:iam::{HERE.account}:role/{names.JOB_EXECUTION_ROLE.format(region=HERE.region)}",
        {"iam:PassedToService": "ecs-tasks.amazonaws.com"},
    ),
    "a lease": item("PutItem", names.lease_pk("/data/ckpt")),
    "a deletion": item("DeleteItem", "job#llama"),
    "a query without a key": Request("dynamodb:Query", TABLE),
    "jobs and a node in one call": item("PutItem", "job#llama", "node#mi-0a1"),
    "an act on a node": act(ActKind.DRAIN),
    "an answer to a question, as an act": act(ActKind.APPROVE),
    "a function, past the API": Request(
        "lambda:InvokeFunction", f"{ARN.format('lambda')}function:nodeheal-request-job"
    ),
}


def players(requests: tuple[Request, ...]) -> set[str]:
    """Of people and nodes, who may make all of these."""
    return {role for role in (VIEWER, OPERATOR, JOBS, DOCTOR, NODE) if all(may(role, request) for request in requests)}


HOLDERS = ((VIEWER, VIEW_COMMANDS), (OPERATOR, NODE_COMMANDS), (JOBS, JOB_COMMANDS), (DOCTOR, DOCTOR_COMMANDS))


def test_every_command_is_played_and_every_role_is_there() -> None:
    roles = documents()

    assert set(PLAYED) == set(COMMANDS)
    assert set(roles) == {VIEWER, OPERATOR, JOBS, DOCTOR, NODE, PARENT, JOB, *(spec.stem for spec in FUNCTIONS)}
    assert all(roles.values())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_for_its_roles_and_for_those_that_are_named_and_for_nobody_else(command: str) -> None:
    made_for = {role for role, commands in HOLDERS if command in commands}

    assert players(PLAYED[command]) == made_for | ALSO.get(command, set())


@pytest.mark.parametrize("request_", NODES_OWN, ids=lambda request: request.action)
def test_a_node_speaks_for_itself_and_no_person_speaks_for_it(request_: Request) -> None:
    assert players((request_,)) == {NODE}


@pytest.mark.parametrize("what", NOBODYS)
def test_no_person_and_no_node_may_do_what_only_functions_do(what: str) -> None:
    assert players((NOBODYS[what],)) == set()


# Of what AWS allows the ECS agent on everything, in its policy AmazonEC2ContainerServiceforEC2Role. People attach that
# to the role of the nodes, as docs/ec2.md and docs/ecs-anywhere.md have it.
ECS_AGENT = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": [
                "ecs:DeregisterContainerInstance",
                "ecs:RegisterContainerInstance",
                "ecs:Submit*",
                "ecs:UpdateContainerInstancesState",
            ],
            "Resource": "*",
        }
    ],
}


@pytest.mark.parametrize(
    ("verb", "is_allowed"),
    [
        ("UpdateContainerInstancesState", False),
        ("DeregisterContainerInstance", False),
        ("RegisterContainerInstance", True),
        ("SubmitTaskStateChange", True),
    ],
)
def test_a_node_drains_no_other_whatever_the_ecs_agent_may_do(verb: str, is_allowed: bool) -> None:
    other = Request(f"ecs:{verb}", f"{ARN.format('ecs')}container-instance/training/0a1")

    assert may(NODE, other, parse_policy(ECS_AGENT)) is is_allowed


@pytest.mark.parametrize("what", NOT_OF_JOBS)
def test_who_submits_jobs_can_do_no_more_than_that(what: str) -> None:
    assert not may(JOBS, NOT_OF_JOBS[what])


@pytest.mark.parametrize("what", [READ_QUESTION, READ_INCIDENT, READ_NODE, STAND_IN_LINE], ids=str)
def test_the_doctor_counts_nodes_and_reads_no_question(what: Request) -> None:
    assert not may(DOCTOR, what)


# Of what people and nodes ask for, the functions that may ask for it, too. They share the table and its task tokens.
FUNCTIONS_TOO: tuple[tuple[Request, set[str]], ...] = (
    (NODES_OWN[0], set()),
    (NODES_OWN[1], {"sweep"}),  # it writes there which interval it wants
    (APPLY_POLICY, set()),
    (SEE_POLICY, set()),
    (TAG, set()),
    (INJECT, set()),
    (SUBSCRIBE, set()),
    (SUBSCRIBERS, {"notify"}),
    (LOG, set()),
    (REGISTER, {"request_job"}),
    (Request("ecs:RegisterTaskDefinition", f"{FAMILIES}/billing:8"), set()),
    (act(ActKind.DRAIN), set()),
    (CHECKED, set()),
    (RUN_JOB, {"request_job", "sweep"}),
)


def _spelled(given: Request | set[str]) -> str:
    return str(given if isinstance(given, Request) else sorted(given))  # a set has another order in each process


@pytest.mark.parametrize(("request_", "functions"), FUNCTIONS_TOO, ids=_spelled)
def test_a_function_plays_no_person_and_no_node(request_: Request, functions: set[str]) -> None:
    assert {spec.stem for spec in FUNCTIONS if may(spec.stem, request_)} == functions


def test_no_person_and_no_node_may_do_what_a_function_may() -> None:
    """Each statement of every function, asked with the values that it wants."""
    taken: dict[str, set[str]] = {}
    for spec in FUNCTIONS:
        for statement in (one for document in documents()[spec.stem] for one in document["Statement"]):
            for request in _requests(statement):
                taken.setdefault(request.action, set()).update(players((request,)))

    assert len(taken) > 40
    acting = {action: who for action, who in taken.items() if who and not _only_looks(action)}
    assert acting == {  # of the table's items: test_item_writers.py
        "ssm:SendCommand": {OPERATOR},  # on a node: without a document of theirs it is nothing
        "sts:AssumeRole": {OPERATOR},  # of the role that asks controllers
    }


def _only_looks(action: str) -> bool:
    verb = action.partition(":")[2]
    return verb.startswith(("BatchGet", "Describe", "Get", "List", "Query", "Scan"))


def _requests(statement: Mapping[str, Any]) -> Iterator[Request]:
    keys: dict[str, str | list[str]] = {}
    for operator, pairs in statement.get("Condition", {}).items():
        keys |= {key: as_list(value)[0] for key, value in pairs.items() if operator != "Null"}
    keys.setdefault("aws:TagKeys", [names.LAUNCH_TAG])
    for action in as_list(statement["Action"]):
        for resource in as_list(statement["Resource"]):
            asked: dict[str, str | list[str]] = (
                {"dynamodb:LeadingKeys": ["wait#approval#inc-1/2"]} if action.startswith("dynamodb:") else keys
            )
            yield Request(action, str(resource).replace("*", "x"), asked)
