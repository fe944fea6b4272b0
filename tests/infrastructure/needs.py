"""What a call on a port needs of IAM: the calls on AWS that stand in its adapter, read from the source.

A need is `action` or `action on`, where `on` tells statements of one action apart: a document, a workflow, a table.
"""

import ast
from collections.abc import Iterator
from functools import cache

from botocore import xform_name
from botocore.session import Session

from nodeheal.contract import names
from stacks.settings import REPOSITORY

ADAPTERS = REPOSITORY / "nodeheal" / "adapters"
# Each port: its module and class there, and the services whose calls stand in it.
_CLASSES = {
    "attempts": ("limits", "DynamoAttemptLedger"),
    "commands": ("ssm", "SsmNodeCommands"),
    "enrolment_tags": ("enrolment_tags", "AwsEnrolmentTags"),
    "epoch": ("records_epoch", "DynamoRecordsEpoch"),
    "has_confirmed": ("owners", "SnsConfirmations"),
    "heartbeats": ("heartbeats", "DynamoHeartbeats"),
    "incidents": ("stores", "DynamoIncidentStore"),
    "job_notes": ("jobs", "DynamoJobNotes"),
    "job_findings": ("jobs", "DynamoJobFindings"),
    "jobs": ("jobs", "DynamoJobStore"),
    "hyperpod": ("hyperpod", "HyperPodMachines"),
    "machines": ("ec2", "Ec2Machines"),
    "notifier": ("notifier", "AwsNotifier"),
    "node_keys": ("node_keys", "DynamoNodeKeys"),
    "nodes": ("stores", "DynamoNodeStore"),
    "hardware": ("stores", "DynamoHardwareStore"),
    "policy_reader": ("policy_reader", "PolicyReader"),
    "pools": ("limits", "DynamoPoolStore"),
    "scheduler": ("ecs.scheduler", "EcsScheduler"),  # and, of a node, Slurm's
    "sign_upload": ("evidence", "S3UploadSigner"),
    "task_definitions": ("ecs.task_definitions", "EcsTaskDefinitions"),
    "operations": ("stores", "DynamoOperationStore"),
    "pauses": ("pauses", "DynamoPauseStore"),
    "fleet_index": ("fleet_index", "DynamoFleetIndex"),
    "liveness_probes": ("liveness_probes", "AwsLivenessProbes"),
    "workflows": ("workflows", "StepFunctionsWorkflows"),
}
_SERVICES = {
    "ec2": ("ec2", "autoscaling"),
    "ec2_remediators": ("ec2", "eks"),
    "ecs.container_instances": ("ecs",),
    "ecs.scheduler": ("ecs",),
    "ecs.task_definitions": ("ecs",),
    "slurm.scheduler": (),
    "slurm.controller": ("ec2", "ssm"),
    "enrolment_tags": ("ec2", "ssm"),
    "evidence": ("s3",),
    "heartbeats": ("dynamodb",),
    "hyperpod": ("sagemaker",),
    "items": ("dynamodb",),
    "jobs": ("dynamodb",),
    "notifier": ("events", "sns", "sqs"),
    "node_keys": ("dynamodb",),
    "owners": ("sns",),
    "records_epoch": ("dynamodb",),
    "ssm": ("ssm",),
    "stores": ("dynamodb",),
    "liveness_probes": ("ssm", "ec2"),
    "workflows": ("stepfunctions",),
}
# The parts of ours to which an adapter hands a call on, by how it names them.
_HELPERS = {
    "_table": ("items", "Table"),
    "_rows": ("items", "Table"),
    "table": ("items", "Table"),
    "_owners": ("ec2_remediators", "Remediators"),
}
_HELPERS |= {
    "registry": ("ecs.scheduler", "EcsScheduler"),
    "liveness": ("ecs.scheduler", "EcsScheduler"),
    "_controller": ("slurm.controller", "SlurmController"),
    "_hyperpod": ("hyperpod", "HyperPodMachines"),
}
_TRANSACTED = {
    "Put": "dynamodb:PutItem",
    "Update": "dynamodb:UpdateItem",
    "Delete": "dynamodb:DeleteItem",
    "ConditionCheck": "dynamodb:ConditionCheckItem",
}
Need = tuple[str, str]

# What AWS asks for beside the action that is called.
_IMPLIED: dict[str, tuple[Need, ...]] = {
    "ecs:StartTask": (("ecs:TagResource", ":task/"), ("iam:PassRole", names.JOB_EXECUTION_ROLE)),
    "ecs:RegisterTaskDefinition": (
        ("ecs:TagResource", ":task-definition/"),
        ("iam:PassRole", names.JOB_EXECUTION_ROLE),
    ),
    "ec2:RunInstances": (
        ("ec2:RunInstances", ":launch-template/"),
        ("ec2:RunInstances", ":instance/"),
        ("ec2:RunInstances", ":subnet/"),
        ("ec2:RunInstances", "::image/"),
        ("ec2:RunInstances", ":key-pair/"),
        ("ec2:RunInstances", ":group/"),  # of capacity reservations
        ("ec2:CreateTags", ":instance/"),
        ("ec2:CreateTags", ":network-interface/"),
        ("ec2:CreateTags", ":spot-instances-request/"),
        ("ec2:CreateTags", ":volume/"),
        ("ssm:GetParameters", "::parameter/aws/service/"),
    ),
    "ssm:SendCommand": (("ssm:SendCommand", f"ssm:resourceTag/{names.MANAGED_TAG}"),),
}
# What no code of ours calls, and a library or a service calls for it.
_BY_OTHERS: dict[str, tuple[Need, ...]] = {
    # Powertools: a record before the act, its end, and its removal where the act was not done.
    "acts.remember": tuple((f"dynamodb:{verb}Item", "") for verb in ("Get", "Put", "Update", "Delete")),
    "links": (("secretsmanager:GetSecretValue", ""),),
    "policy_reader": (("appconfig:StartConfigurationSession", ""), ("appconfig:GetLatestConfiguration", "")),
    "sign_upload": (("s3:PutObject", names.EVIDENCE_PREFIX),),  # a form can do what its signer may
    "Power.REBOOT": (("ec2:RebootInstances", ""),),
    "Power.START": (("ec2:StartInstances", ""),),
    "Power.STOP": (("ec2:StopInstances", ""),),
}
_ON = {
    "notifier.quarantine": "{quarantine}",
    "workflows.start": "{recover_node}",
    "workflows.run_job": "{run_job}",
    "workflows.runs_job": ":execution:",
}


def needs_of(call: str) -> frozenset[Need]:
    """(action, what its statement's resource holds) of everything that a call on a port asks AWS for."""
    port, _, method = call.partition(".")
    found = set(_BY_OTHERS.get(call, ()))
    if port == "document":
        found = {("ssm:SendCommand", f":document/{names.document(method)}"), *_IMPLIED["ssm:SendCommand"]}
    if port in _CLASSES:
        module, of = _CLASSES[port]
        entry = _entry(port, method)
        for action in _actions(module, of, entry):
            found |= {(action, on) for on in _targets(call, action, module, of, entry)}
            found |= set(_IMPLIED.get(action, ()))
    return frozenset(found)


def actions_of(call: str) -> frozenset[str]:
    """The IAM actions of everything that a call on a port asks AWS for."""
    return frozenset(action for action, _ in needs_of(call))


def words_of(call: str) -> frozenset[str]:
    """The names of nodeheal.contract.names that the adapter of a call on a port mentions."""
    port, _, method = call.partition(".")
    if port not in _CLASSES:
        return frozenset()
    reached = _reached(*_CLASSES[port], _entry(port, method))
    of_names = (node for _, function in reached for node in ast.walk(function) if isinstance(node, ast.Attribute))
    return frozenset(node.attr for node in of_names if isinstance(node.value, ast.Name) and node.value.id == "names")


def _entry(port: str, method: str) -> str:
    """The function of a port's class that a call comes to."""
    module, of = _CLASSES[port]
    return "read" if port == "policy_reader" else method or (port if _function(module, of, port) else "__call__")


def needs_on_slurm(call: str) -> frozenset[Need]:
    """What a call on the scheduler of a node asks AWS for besides, where that is Slurm."""
    port, _, method = call.partition(".")
    actions = _actions("slurm.scheduler", "SlurmScheduler", method) if port == "scheduler" else frozenset()
    found = {(action, "") for action in actions}
    if ("ssm:SendCommand", "") in found:
        found = found - {("ssm:SendCommand", "")} | {("sts:AssumeRole", names.CONTROLLER_ROLE)}
    return frozenset(found)


def needs_on_kubernetes(call: str) -> frozenset[Need]:
    """What a call on the scheduler of a node asks AWS for besides, where that is Kubernetes."""
    port, _, method = call.partition(".")
    asked = (
        ("gate", "KubernetesGate"),
        ("workloads", "KubernetesWorkloads"),
        ("machines", "KarpenterMachines"),
        ("orders", "KubernetesOrders"),
        ("agent_pods", "KubernetesAgentPods"),
        ("conditions", "KubernetesConditions"),
    )
    is_asked = port == "scheduler" and any(_function(f"kubernetes.{module}", of, method) for module, of in asked)
    is_asked |= port in ("commands", "liveness_probes")  # of a node there the cluster is asked in the place of SSM
    return frozenset({("sts:AssumeRole", names.CONTROLLER_ROLE)} if is_asked else ())


@cache
def _module(name: str) -> ast.Module:
    """A module of the cloud's adapters by its name, one of a scheduler's with its folder before it."""
    folder, _, stem = name.rpartition(".")
    return ast.parse((ADAPTERS / (folder or "aws") / f"{stem}.py").read_text("utf-8"))


@cache
def _operations(module: str) -> dict[str, str]:
    """What botocore calls each operation of the module's services, and the IAM action that it needs."""
    models = [Session().get_service_model(service) for service in _SERVICES.get(module, ())]
    return {
        xform_name(operation): f"{model.signing_name}:{operation}"
        for model in models
        for operation in model.operation_names
    }


def _function(module: str, of: str, name: str) -> ast.FunctionDef | None:
    """A class's method, or with `of` empty a function of the module."""
    within: list[ast.stmt] = _module(module).body
    if of:
        within = next(each.body for each in within if isinstance(each, ast.ClassDef) and each.name == of)
    return next((each for each in within if isinstance(each, ast.FunctionDef) and each.name == name), None)


def _reached(module: str, of: str, name: str) -> list[tuple[str, ast.FunctionDef]]:
    """The function and those of the adapters that it calls, with their modules."""
    found: dict[tuple[str, str, str], ast.FunctionDef] = {}
    waiting = [(module, of, name)]
    while waiting:
        place = waiting.pop()
        function = _function(*place) if place not in found else None
        if function is not None:
            found[place] = function
            waiting += [next_one for node in ast.walk(function) for next_one in _next(place, node)]
    return [(place[0], function) for place, function in found.items()]


def _next(place: tuple[str, str, str], node: ast.AST) -> list[tuple[str, str, str]]:
    module, of, _ = place
    if isinstance(node, ast.Name):
        return [(_imported(module).get(node.id, module), "", node.id)]
    if not isinstance(node, ast.Attribute):
        return []
    holder = node.value
    name = holder.attr if isinstance(holder, ast.Attribute) else holder.id if isinstance(holder, ast.Name) else ""
    helper = _HELPERS.get(name)
    return [(*helper, node.attr)] if helper else [(module, of, node.attr)] if of and name == "self" else []


@cache
def _imported(module: str) -> dict[str, str]:
    """The other adapters' modules that a module takes names from, by name."""
    package = "nodeheal.adapters."
    return {
        alias.name: str(node.module).removeprefix(package).removeprefix("aws.")
        for node in ast.walk(_module(module))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(package)
        for alias in node.names
    }


@cache
def _actions(module: str, of: str, name: str) -> frozenset[str]:
    """The IAM action of every operation of AWS that is mentioned."""
    found = set()
    for where, function in _reached(module, of, name):
        known = _operations(where)
        words = set(_words(function))
        found |= {known[word] for word in words & known.keys()}
        found |= {action for word, action in _TRANSACTED.items() if word in words and "dynamodb" in _SERVICES[where]}
    # A transaction is allowed by what is in it.
    return frozenset(found - {"dynamodb:TransactWriteItems"})


def _words(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # the name of a paginator


def _targets(call: str, action: str, module: str, of: str, name: str) -> Iterator[str]:
    if action == "ssm:SendCommand":
        return  # to which document says the command
    if module == "records_epoch":
        yield from {"PutItem": ["{table}"], "UpdateItem": ["{heartbeats}"]}.get(
            action.partition(":")[2], ["{table}", "{heartbeats}"]
        )
    elif action.startswith("dynamodb:"):
        yield "{heartbeats}" if module in ("heartbeats", "node_keys") else "{table}"
    elif action == "ssm:ListTagsForResource":
        yield ":managed-instance/"
    elif action.startswith("ecs:") and action.lower().endswith("tagresource"):
        yield ":container-instance/"
    else:
        yield _ON.get(call, "")
