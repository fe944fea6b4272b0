"""Patches the emulator, in-process. Each change is small, gives its reason, and fails at the start if its target is
gone.

Written for the MiniStack version that requirements-dev.in pins; docs/fidelity.md lists the effects.
"""

import base64
import contextvars
import json
import re
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from ministack import app
from ministack.core import concurrency, iam_actions, router
from ministack.services import appconfig, eks, eventbridge, stepfunctions, sts
from ministack.services.cloudformation import changesets, provisioners, stacks

from sandbox.aws_json import Json, JsonService, Response
from sandbox.aws_query import QueryService
from sandbox.behaviour import Behaviour
from sandbox.events import Event
from sandbox.ssm import Ssm

Headers = dict[str, str]

# The task token of the function being invoked, while a callback task is in its sending half.
_sending: contextvars.ContextVar[str | None] = contextvars.ContextVar("sending", default=None)


class EmulatorChanged(Exception):
    """The emulator is not the one that these patches were written for."""


def serve_ourselves(ecs: JsonService, ssm: JsonService) -> None:
    """Serve ECS and the node operations of SSM by the sandbox: the emulator has neither external instances nor hybrid
    nodes.
    """
    theirs = _present(app.SERVICE_HANDLERS, "ssm")
    _present(app.SERVICE_HANDLERS, "ecs")

    async def ssm_of_both(method: str, path: str, headers: Headers, body: bytes, query: Json) -> Response:
        handler = ssm.handle if ssm.serves(headers) else theirs
        answer: Response = await handler(method, path, headers, body, query)
        return answer

    app.SERVICE_HANDLERS["ecs"] = ecs.handle
    app.SERVICE_HANDLERS["ssm"] = ssm_of_both


def serve_queries(*services: QueryService) -> None:
    """Serve EC2's instances and Auto Scaling's groups by the sandbox: the emulator's boot nothing. It serves
    the rest.
    """
    for service in services:
        theirs = _present(app.SERVICE_HANDLERS, service.name)
        app.SERVICE_HANDLERS[service.name] = _of_both(service, theirs)


def serve_quotas(quotas: JsonService) -> None:
    """Serve Service Quotas by the sandbox: the emulator has no such service, and its router needs the name."""
    if "servicequotas" in app.SERVICE_HANDLERS:
        raise EmulatorChanged("the emulator serves Service Quotas itself")
    router.SERVICE_PATTERNS["servicequotas"] = {"target_prefixes": ["ServiceQuotasV20190624"]}
    app.SERVICE_HANDLERS["servicequotas"] = quotas.handle


def serve_hyperpod(hyperpod: JsonService) -> None:
    """Serve HyperPod's clusters by the sandbox: the emulator has no SageMaker, and its router needs the name."""
    if "sagemaker" in app.SERVICE_HANDLERS:
        raise EmulatorChanged("the emulator serves SageMaker itself")
    router.SERVICE_PATTERNS["sagemaker"] = {"target_prefixes": ["SageMaker"]}
    app.SERVICE_HANDLERS["sagemaker"] = hyperpod.handle


def _of_both(service: QueryService, theirs: Any) -> Any:
    async def handle(method: str, path: str, headers: Headers, body: bytes, query: Json) -> Response:
        handler = service.handle if service.serves(body) else theirs
        answer: Response = await handler(method, path, headers, body, query)
        return answer

    return handle


def authorise_ourselves(ssm: JsonService, *queries: QueryService) -> None:
    """Let the sandbox's operations authorize each real resource; the emulator, which does not have them, only
    authenticates.
    """
    original = attribute(iam_actions, "extract_iam_action")

    def action(service: str, method: str, path: str, headers: Headers, body: bytes, query: Json) -> str | None:
        if service in ("ecs", "sagemaker") or (service == "ssm" and ssm.serves(headers)):
            return None
        if any(service == ours.name and ours.serves(body) for ours in queries):
            return None
        found: str | None = original(service, method, path, headers, body, query)
        return found

    iam_actions.extract_iam_action = action


def know_event_sources() -> None:
    """Add the condition keys of PutEvents (events:source, events:detail-type), Subscribe and PutMetricData."""
    original = attribute(iam_actions, "request_tag_context")

    def context(service: str, action: str, body: bytes, parameters: Json) -> Json:
        found: Json = original(service, action, body, parameters)
        if action == "sns:Subscribe":
            protocol = parameters.get("Protocol", "")
            return {**found, "sns:Protocol": protocol[0] if isinstance(protocol, list) else protocol}
        if action == "cloudwatch:PutMetricData":  # as JSON, as agents send it
            return {**found, "cloudwatch:namespace": str(json.loads(body).get("Namespace"))}
        if action != "events:PutEvents":
            return found
        entries = json.loads(body or b"{}").get("Entries", [])
        for key, field in (("events:source", "Source"), ("events:detail-type", "DetailType")):
            said = {str(entry.get(field)) for entry in entries}
            # AWS checks each entry; here all entries of a call are checked at once, and mixed ones match nothing.
            found[key] = said.pop() if len(said) == 1 else "several"
        return found

    iam_actions.request_tag_context = context


def know_log_streams() -> None:
    """Authorize actions on a log stream on the stream, as in the Service Authorization Reference; the emulator uses the
    group.
    """
    original = attribute(iam_actions, "extract_resource_arn")

    def resource(service: str, method: str, path: str, headers: Headers, body: bytes, *more: Any, **named: Any) -> str:
        found: str = original(service, method, path, headers, body, *more, **named)
        stream = json.loads(body or b"{}").get("logStreamName") if service == "logs" else None
        return f"{found}:log-stream:{stream}" if stream else found

    iam_actions.extract_resource_arn = resource


def keep_expired_sessions() -> None:
    """Keep a session that has expired: the emulator searches for such while other threads add theirs, which fails, and
    refuses them whether they are kept or not.
    """
    attribute(sts, "_evict_expired_sessions")
    sts._evict_expired_sessions = lambda: None


def take_loopback_for_tls() -> None:
    """Treat every request as sent over TLS (aws:SecureTransport): policies that require it are deployed as they are."""
    original = attribute(app, "pin_request_origin")
    app.pin_request_origin = lambda source_ip, is_secure: original(source_ip, True)


def provision_documents(ssm: Ssm) -> None:
    """Add CloudFormation's AWS::SSM::Document, which the emulator lacks."""
    handlers = attribute(provisioners, "_RESOURCE_HANDLERS")
    if "AWS::SSM::Document" in handlers:
        raise EmulatorChanged("it provisions AWS::SSM::Document itself now: use that")

    def create(logical_id: str, properties: Json, stack_name: str) -> tuple[str, Json]:
        name = properties.get("Name") or f"{stack_name}-{logical_id}"
        tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}
        ssm.put_document(name, properties["Content"], tags)
        return name, {}

    def update(name: str, old: Json, new: Json, stack_name: str) -> tuple[str, Json]:
        return create(name, {**new, "Name": name}, stack_name)

    def delete(name: str, properties: Json) -> None:
        ssm.documents.pop(name, None)

    handlers["AWS::SSM::Document"] = {"create": create, "update": update, "delete": delete}
    attribute(provisioners, "_STACK_TAG_PROPERTY")["AWS::SSM::Document"] = ("Tags", "list")


def provision_access_entries() -> None:
    """Add CloudFormation's AWS::EKS::AccessEntry: the emulator has the resource, but not the type."""
    handlers = attribute(provisioners, "_RESOURCE_HANDLERS")
    if "AWS::EKS::AccessEntry" in handlers:
        raise EmulatorChanged("it provisions AWS::EKS::AccessEntry itself now: use that")
    create_entry, entries = attribute(eks, "_create_access_entry"), attribute(eks, "_access_entries")
    key_of = attribute(eks, "_ae_key")

    def create(logical_id: str, properties: Json, stack_name: str) -> tuple[str, Json]:
        cluster, principal = properties["ClusterName"], properties["PrincipalArn"]
        body = {
            "principalArn": principal,
            "kubernetesGroups": properties.get("KubernetesGroups", []),
            "type": properties.get("Type", "STANDARD"),
        }
        status, _, answer = create_entry(cluster, body)
        if status != HTTPStatus.OK:
            raise ValueError(f"CreateAccessEntry: {json.loads(answer).get('message')}")
        return f"{principal}|{cluster}", {"AccessEntryArn": json.loads(answer)["accessEntry"]["accessEntryArn"]}

    def update(name: str, old: Json, new: Json, stack_name: str) -> tuple[str, Json]:
        delete(name, old)
        return create("", new, stack_name)

    def delete(name: str, properties: Json) -> None:
        principal, _, cluster = name.rpartition("|")
        entries.pop(key_of(cluster, principal), None)

    handlers["AWS::EKS::AccessEntry"] = {"create": create, "update": update, "delete": delete}


def provision_pod_identity_associations() -> None:
    """Add CloudFormation's AWS::EKS::PodIdentityAssociation: the emulator has the resource, but not the type."""
    handlers = attribute(provisioners, "_RESOURCE_HANDLERS")
    if "AWS::EKS::PodIdentityAssociation" in handlers:
        raise EmulatorChanged("it provisions AWS::EKS::PodIdentityAssociation itself now: use that")
    associate, delete_one = (attribute(eks, f"_{verb}_pod_identity_association") for verb in ("create", "delete"))

    def create(logical_id: str, properties: Json, stack_name: str) -> tuple[str, Json]:
        body = {
            "namespace": properties["Namespace"],
            "serviceAccount": properties["ServiceAccount"],
            "roleArn": properties["RoleArn"],
        }
        status, _, answer = associate(properties["ClusterName"], body)
        if status != HTTPStatus.OK:
            raise ValueError(f"CreatePodIdentityAssociation: {json.loads(answer).get('message')}")
        made = json.loads(answer)["association"]
        return made["associationId"], {"AssociationArn": made["associationArn"], "AssociationId": made["associationId"]}

    def update(name: str, old: Json, new: Json, stack_name: str) -> tuple[str, Json]:
        delete(name, old)
        return create("", new, stack_name)

    def delete(name: str, properties: Json) -> None:
        delete_one(properties["ClusterName"], name)

    handlers["AWS::EKS::PodIdentityAssociation"] = {"create": create, "update": update, "delete": delete}


def provision_api_destinations() -> None:
    """Add CloudFormation's AWS::Events::Connection and ApiDestination: the emulator has both resources, but not the
    types.
    """
    handlers = attribute(provisioners, "_RESOURCE_HANDLERS")
    for kind, stem, answered in (
        ("AWS::Events::Connection", "connection", "ConnectionArn"),
        ("AWS::Events::ApiDestination", "api_destination", "ApiDestinationArn"),
    ):
        if kind in handlers:
            raise EmulatorChanged(f"it provisions {kind} itself now: use that")
        handlers[kind] = _by_calls(stem, answered)


def _by_calls(stem: str, answered: str) -> Json:
    """Return handlers that call EventBridge's own operations for a resource that has a name."""
    calls = {verb: attribute(eventbridge, f"_{verb}_{stem}") for verb in ("create", "update", "delete")}

    def call(verb: str, properties: Json) -> Json:
        status, _, body = calls[verb](properties)
        answer: Json = json.loads(body)
        if status != HTTPStatus.OK:
            raise ValueError(f"{verb} {stem}: {answer.get('message')}")
        return answer

    def create(logical_id: str, properties: Json, stack_name: str) -> tuple[str, Json]:
        return properties["Name"], {"Arn": call("create", properties)[answered]}

    def update(name: str, old: Json, new: Json, stack_name: str) -> tuple[str, Json]:
        return name, {"Arn": call("update", {**new, "Name": name})[answered]}

    def delete(name: str, properties: Json) -> None:
        call("delete", {"Name": name})

    return {"create": create, "update": update, "delete": delete}


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


def evaluate_timeouts() -> None:
    """Evaluate TimeoutSeconds and HeartbeatSeconds in JSONata; the emulator takes the expression for a number."""
    original = attribute(stepfunctions, "_execute_task")
    field = attribute(stepfunctions, "_jsonata_state_field")

    def execute(state: Json, raw_input: Any, execution: Json, context: Json) -> Any:
        evaluated = {
            name: field(state, name, "number", raw_input, context)
            for name in ("TimeoutSeconds", "HeartbeatSeconds")
            if isinstance(state.get(name), str)
        }
        return original({**state, **evaluated}, raw_input, execution, context)

    stepfunctions._execute_task = execute


def fail_callbacks_whose_function_fails() -> None:
    """Fail a task under lambda:invoke.waitForTaskToken at once when its function fails, as in AWS.

    The emulator ignores the error and waits for a callback that never comes.
    """
    invoke = attribute(stepfunctions, "_invoke_with_callback")
    call = attribute(stepfunctions, "_call_lambda")
    error_type = attribute(stepfunctions, "_ExecutionError")
    tokens = attribute(stepfunctions, "_task_tokens")

    def invoke_with_callback(resource: str, data: Any, token: str, state: Json) -> Any:
        sending = _sending.set(token)
        try:
            return invoke(resource, data, token, state)
        finally:
            _sending.reset(sending)

    def call_lambda(function: str, event: Any) -> Any:
        try:
            return call(function, event)
        except error_type as error:
            waiting = tokens.get(_sending.get())
            if waiting is not None and not waiting["event"].is_set():
                waiting["error"] = {"Error": error.error, "Cause": error.cause}
                waiting["event"].set()
            raise

    stepfunctions._invoke_with_callback = invoke_with_callback
    stepfunctions._call_lambda = call_lambda


def validate_configurations() -> None:
    """Call the profile's validators in StartDeployment, and return their refusal, as in AWS.

    The emulator stores validators and never calls them. CloudFormation's own deployment is not validated.
    """
    theirs = _present(app.SERVICE_HANDLERS, "appconfig")
    start = re.compile(r"/applications/([^/]+)/environments/[^/]+/deployments")
    answer_with_error, run = attribute(appconfig, "_error"), attribute(concurrency, "run_reentrant")
    for needed in ("_config_profiles", "_hosted_versions"):
        attribute(appconfig, needed)

    async def validated(method: str, path: str, headers: Headers, body: bytes, query: Json) -> Response:
        place = start.fullmatch(path) if method == "POST" else None
        # On a thread of its own: a function may call the emulator while the emulator waits for it.
        refusal = await run(_refusal, place[1], json.loads(body)) if place else None
        if refusal is not None:
            error: Response = answer_with_error(400, "BadRequestException", refusal)
            return error
        answer: Response = await theirs(method, path, headers, body, query)
        return answer

    app.SERVICE_HANDLERS["appconfig"] = validated


def _refusal(application: str, asked: Json) -> str | None:
    """Return the error of the first validator that refuses the version."""
    profile, version = asked.get("ConfigurationProfileId"), asked.get("ConfigurationVersion")
    known = appconfig._config_profiles.get(f"{application}/{profile}") or {}
    stored = appconfig._hosted_versions.get(f"{application}/{profile}/{version}") or {"Content": b""}
    content = stored["Content"] if isinstance(stored["Content"], bytes) else stored["Content"].encode()
    event = {
        "applicationId": application,
        "configurationProfileId": profile,
        "configurationVersion": version,
        "content": base64.b64encode(content).decode(),
        "uri": known.get("LocationUri", "hosted"),
    }
    for validator in known.get("Validators", []):
        if validator["Type"] == "LAMBDA":
            try:
                stepfunctions._call_lambda(validator["Content"], event)
            except stepfunctions._ExecutionError as error:
                return f"{validator['Content']} refused the configuration: {error.cause}"
    return None


def event_sink() -> Callable[[Event], None]:
    """Put events of AWS services on the default bus, which PutEvents refuses from callers."""
    put = attribute(eventbridge, "_put_events")

    def sink(event: Event) -> None:
        entry = {
            "Source": event.source,
            "DetailType": event.detail_type,
            "Detail": json.dumps(event.detail),
            "Resources": list(event.resources),
        }
        put({"Entries": [entry]}, allow_aws_source=True)

    return sink


def delay_events(behaviour: Behaviour) -> None:
    """Delay an event between the bus and a target; the emulator delivers it within the call that puts it."""
    invoke = attribute(eventbridge, "_invoke_target")

    def invoke_later(*asked: Any, **more: Any) -> None:
        if not behaviour.event_seconds:
            invoke(*asked, **more)
            return
        context = contextvars.copy_context()
        later = threading.Timer(behaviour.event_seconds, lambda: context.run(invoke, *asked, **more))
        later.daemon = True
        later.start()

    eventbridge._invoke_target = invoke_later


def attribute(module: Any, name: str) -> Any:
    """Return the emulator's attribute of this name. Raises EmulatorChanged."""
    if not hasattr(module, name):
        raise EmulatorChanged(f"{module.__name__} no longer has {name}")
    return getattr(module, name)


def _present(mapping: dict[str, Any], key: str) -> Any:
    if key not in mapping:
        raise EmulatorChanged(f"it no longer serves {key}")
    return mapping[key]
