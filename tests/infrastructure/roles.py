"""Which requests the synthesized roles allow."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from nodeheal.contract import names
from sandbox.ministack_adapter.iam import allows, parse_policy
from stacks.functions import FUNCTIONS
from stacks.workflows import JOB, PARENT, Workflow
from tests.infrastructure.filled import Place, name_of, properties
from tests.infrastructure.synthesis import Template, synthesize

HERE = Place()


VIEWER, OPERATOR, JOBS, DOCTOR, NODE = "viewer", "operator", "jobs", "doctor", "node"


PEOPLE = {
    "OperatorViewerPolicy": VIEWER,
    "OperatorPolicy": OPERATOR,
    "OperatorJobsPolicy": JOBS,
    "OperatorDoctorPolicy": DOCTOR,
}


ARN = f"arn:{HERE.partition}:{{}}:{HERE.region}:{HERE.account}:"


DYNAMO, EVENTS, SSM, STATES = (ARN.format(service) for service in ("dynamodb", "events", "ssm", "states"))


TABLE, INDEX = f"{DYNAMO}table/nodeheal", f"{DYNAMO}table/nodeheal/index/{names.INDEX}"


BEATS, BUS = f"{DYNAMO}table/{names.HEARTBEATS_TABLE}", f"{EVENTS}event-bus/{names.BUS}"


ME = f"AROA{'X' * 17}:mi-0me"


@dataclass(frozen=True)
class Request:
    """One call, as IAM sees it."""

    action: str
    resource: str
    keys: Mapping[str, str | list[str]] = field(default_factory=dict)


@cache
def documents() -> Mapping[str, list[dict[str, Any]]]:
    """The deployed policies of each role, by its name: of people, of the node, of workflows and of every function."""
    template = synthesize({})
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in ("AWS::IAM::ManagedPolicy", "AWS::IAM::Role", "AWS::IAM::Policy"):
        for logical_id, _ in template.of_type(kind):
            given = properties(template, logical_id, HERE)
            policies = [each["PolicyDocument"] for each in given.get("Policies", ())]
            policies += [given["PolicyDocument"]] if "PolicyDocument" in given else []
            for role in {role_of(holder, template) for holder in (logical_id, *given.get("Roles", ()))} - {""}:
                found.setdefault(role, []).extend(with_user(policy) for policy in policies)
    return found


@cache
def parsed(role: str) -> list[Any]:
    return [parse_policy(document) for document in documents()[role]]


def role_of(name: str, template: Template) -> str:
    """Whose a policy or role is, by its logical id or its name; empty for one of no interest here."""
    ids = {name_of(i, template, HERE): i for i, _ in template.of_type("AWS::IAM::Role")}
    bare = ids.get(name, name)[:-8]  # without what the CDK puts after it
    functions = {f"{spec.class_name}Role": spec.stem for spec in FUNCTIONS}
    workflows = {f"{Workflow(stem).class_name}WorkflowRole": stem for stem in (PARENT, JOB)}
    return {**PEOPLE, "NodeRole": NODE, **workflows, **functions}.get(bare, "")


def with_user(document: dict[str, Any]) -> dict[str, Any]:
    """With the one policy variable that ours use, filled in for a node's session."""
    found: dict[str, Any] = json.loads(json.dumps(document).replace("${aws:userid}", ME))
    return found


def may(role: str, request: Request, *attached: Any) -> bool:
    """Whether the role may; `attached`: policies that people attach to it."""
    arn = f"arn:aws:sts::{HERE.account}:assumed-role/{role}/mi-0me"
    policies = [*parsed(role), *attached]
    return allows(policies, arn, HERE.region, request.action, request.resource, request.keys)
