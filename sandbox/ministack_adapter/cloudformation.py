"""Adds to MiniStack's CloudFormation the types that our stack has, and corrects its imports."""

import contextvars
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from ministack.services import eks, eventbridge
from ministack.services.cloudformation import changesets, provisioners, stacks

from sandbox.aws_json import Json
from sandbox.ministack_adapter.private_names import EmulatorChanged, attribute


def install() -> None:
    """Add all types of which the emulator has the resource, and correct its imports."""
    provision_access_entries()
    provision_pod_identity_associations()
    _add_by_calls("AWS::Events::Connection", "connection", "ConnectionArn")
    _add_by_calls("AWS::Events::ApiDestination", "api_destination", "ApiDestinationArn")
    take_up_buckets()


def _called(operation: Any, *arguments: Any) -> Json:
    """Return the answer of one of the emulator's operations. Raises ValueError for a refusal."""
    status, _, body = operation(*arguments)
    answer: Json = json.loads(body)
    if status != HTTPStatus.OK:
        raise ValueError(f"{operation.__name__}: {answer.get('message')}")
    return answer


def _add_type(kind: str, create: Any, delete: Any, update: Any = None) -> None:
    """Add a type. `update`: None: of a resource that an update replaces."""
    handlers = attribute(provisioners, "_RESOURCE_HANDLERS")
    if kind in handlers:
        raise EmulatorChanged(f"it provisions {kind} itself now: use that")

    def replace(name: str, old: Json, new: Json, stack_name: str) -> tuple[str, Json]:
        delete(name, old)
        made: tuple[str, Json] = create("", new, stack_name)
        return made

    handlers[kind] = {"create": create, "update": update or replace, "delete": delete}


def provision(kind: str, put: Callable[[str, Json], None], delete: Callable[[str], None]) -> None:
    """Add a type of resources with a name and tags."""

    def create(logical_id: str, properties: Json, stack_name: str) -> tuple[str, Json]:
        name = properties.get("Name") or f"{stack_name}-{logical_id}"
        put(name, properties)
        return name, {}

    def update(name: str, old: Json, new: Json, stack_name: str) -> tuple[str, Json]:
        return create("", {**new, "Name": name}, stack_name)

    _add_type(kind, create, lambda name, properties: delete(name), update)
    attribute(provisioners, "_STACK_TAG_PROPERTY")[kind] = ("Tags", "list")


def provision_access_entries() -> None:
    """Add CloudFormation's AWS::EKS::AccessEntry: the emulator has the resource, but not the type."""
    create_entry, entries = attribute(eks, "_create_access_entry"), attribute(eks, "_access_entries")
    key_of = attribute(eks, "_ae_key")

    def create(logical_id: str, properties: Json, stack_name: str) -> tuple[str, Json]:
        cluster, principal = properties["ClusterName"], properties["PrincipalArn"]
        body = {
            "principalArn": principal,
            "kubernetesGroups": properties.get("KubernetesGroups", []),
            "type": properties.get("Type", "STANDARD"),
        }
        made = _called(create_entry, cluster, body)["accessEntry"]
        return f"{principal}|{cluster}", {"AccessEntryArn": made["accessEntryArn"]}

    def delete(name: str, properties: Json) -> None:
        principal, _, cluster = name.rpartition("|")
        entries.pop(key_of(cluster, principal), None)

    _add_type("AWS::EKS::AccessEntry", create, delete)


def provision_pod_identity_associations() -> None:
    """Add CloudFormation's AWS::EKS::PodIdentityAssociation: the emulator has the resource, but not the type."""
    associate, delete_one = (attribute(eks, f"_{verb}_pod_identity_association") for verb in ("create", "delete"))

    def create(logical_id: str, properties: Json, stack_name: str) -> tuple[str, Json]:
        body = {
            "namespace": properties["Namespace"],
            "serviceAccount": properties["ServiceAccount"],
            "roleArn": properties["RoleArn"],
        }
        made = _called(associate, properties["ClusterName"], body)["association"]
        return made["associationId"], {"AssociationArn": made["associationArn"], "AssociationId": made["associationId"]}

    def delete(name: str, properties: Json) -> None:
        delete_one(properties["ClusterName"], name)

    _add_type("AWS::EKS::PodIdentityAssociation", create, delete)


def _add_by_calls(kind: str, stem: str, answered: str) -> None:
    """Add a type of EventBridge by its operations, which the emulator has."""
    calls = {verb: attribute(eventbridge, f"_{verb}_{stem}") for verb in ("create", "update", "delete")}

    def create(logical_id: str, properties: Json, stack_name: str) -> tuple[str, Json]:
        return properties["Name"], {"Arn": _called(calls["create"], properties)[answered]}

    def update(name: str, old: Json, new: Json, stack_name: str) -> tuple[str, Json]:
        return name, {"Arn": _called(calls["update"], {**new, "Name": name})[answered]}

    def delete(name: str, properties: Json) -> None:
        _called(calls["delete"], {"Name": name})

    _add_type(kind, create, delete, update)


def take_up_buckets() -> None:
    """Let CloudFormation import an existing bucket; the emulator takes it for a name conflict."""
    imported: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("imported", default=frozenset())
    deploy, errors = attribute(changesets, "_deploy_stack_async"), attribute(stacks, "_validation_errors")

    async def deployed(*arguments: Any, imports: Json | None = None, **options: Any) -> None:
        imported.set(frozenset(imports or {}))
        await deploy(*arguments, imports=imports, **options)

    def without_imported(*arguments: Any) -> list[Any]:
        return [error for error in errors(*arguments) if error[0] not in imported.get()]

    changesets._deploy_stack_async, stacks._validation_errors = deployed, without_imported
