"""Implements AwsEmulator by MiniStack."""

import json
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ministack import app
from ministack.core import iam_actions, router
from ministack.core.responses import request_scope
from ministack.services import cloudwatch_logs, eks, eventbridge

from sandbox.aws_emulator import Check, OwnService
from sandbox.aws_json import Json
from sandbox.behaviour import Behaviour
from sandbox.events import Event
from sandbox.iam import ACCOUNT, REGION
from sandbox.ministack_adapter import appconfig, cloudformation, condition_keys, functions, iam, step_functions
from sandbox.ministack_adapter.eventbridge import delay_events
from sandbox.ministack_adapter.private_names import attribute
from sandbox.ministack_adapter.s3_post import serve_posts
from sandbox.request_rules import service_model

_EXISTS = "ResourceAlreadyExistsException"


class MiniStack:
    """One emulator. Each method has the meaning that AwsEmulator gives it."""

    provision = staticmethod(cloudformation.provision)
    authorize = staticmethod(iam.authorize)
    assume_role = staticmethod(iam.assume_role)

    def __init__(self, port: int, unpacked: Path) -> None:
        self._port, self._unpacked = port, unpacked
        self._put_events = attribute(eventbridge, "_put_events")
        self._create_stream = attribute(cloudwatch_logs, "_create_log_stream")
        self._put_logs = attribute(cloudwatch_logs, "_put_log_events")
        self.application = serve_posts(app.app)

    def install(self, behaviour: Behaviour) -> None:
        """Correct what differs from AWS."""
        for module in (condition_keys, iam, cloudformation, step_functions, appconfig):
            module.install()
        delay_events(behaviour)
        functions.share_environments(behaviour)
        functions.unpack_once(self._unpacked)
        functions.parse_once()
        functions.tell_errors_apart()

    def serve(self, whole: Sequence[OwnService], partial: Sequence[OwnService]) -> None:
        """The emulator has neither external instances nor hybrid nodes, and its instances boot nothing. A service that
        it lacks needs a name in its router. Of requests to ours it only authenticates the signer.
        """
        original = attribute(iam_actions, "extract_iam_action")
        names = {service.name for service in whole}

        def action(
            service: str, method: str, path: str, headers: dict[str, str], body: bytes, query: Json
        ) -> str | None:
            if service in names or any(service == ours.name and ours.serves(headers, body) for ours in partial):
                return None
            iam_action: str | None = original(service, method, path, headers, body, query)
            return iam_action

        iam_actions.extract_iam_action = action
        for service in whole:
            if service.name not in app.SERVICE_HANDLERS:
                prefix = service_model(service.name).metadata["targetPrefix"]
                router.SERVICE_PATTERNS[service.name] = {"target_prefixes": [prefix]}
            app.SERVICE_HANDLERS[service.name] = service.handle
        for service in partial:
            app.SERVICE_HANDLERS[service.name] = _of_both(service, app.SERVICE_HANDLERS[service.name])

    def check_requests(self, services: Iterable[str], check: Check) -> None:
        """Wrap each service. Raises KeyError where the emulator has no such service."""
        for service in services:
            app.SERVICE_HANDLERS[service] = _checked(service, check, app.SERVICE_HANDLERS[service])

    def emit(self, event: Event) -> None:
        """PutEvents refuses sources of AWS from callers, but not in-process."""
        entry = {
            "Source": event.source,
            "DetailType": event.detail_type,
            "Detail": json.dumps(event.detail),
            "Resources": list(event.resources),
        }
        with request_scope(ACCOUNT, REGION):
            self._put_events({"Entries": [entry]}, allow_aws_source=True)

    def write_logs(self, group: str, stream: str, events: list[Json]) -> None:
        """Without IAM: on AWS the task's execution role is checked, which the emulator does not assume."""
        where = {"logGroupName": group, "logStreamName": stream}
        with request_scope(ACCOUNT, REGION):
            status, _, body = self._create_stream(where)
            refusal = "" if status < 300 else body.decode() if isinstance(body, bytes) else str(body)
            if refusal and _EXISTS not in refusal:
                raise OSError(f"failed to initialize logging driver: {refusal}")
            if events:
                self._put_logs({**where, "logEvents": events})

    def register_cluster(self, cluster: Json, admins: str) -> str:
        """Keep a record of a control plane that the emulator has not made, and the access entry of its creator."""
        name, secret = cluster["name"], secrets.token_urlsafe(32)
        cluster["_auth_token"] = secret
        creator = {"principalArn": f"arn:aws:iam::{ACCOUNT}:root", "kubernetesGroups": [admins]}
        with request_scope(ACCOUNT, REGION):
            attribute(eks, "_clusters")[name] = cluster
            attribute(eks, "_create_access_entry")(name, creator)
        return f"http://127.0.0.1:{self._port}/_ministack/eks-auth/{ACCOUNT}/{REGION}/{name}/{secret}"

    def pod_identity_associations(self, cluster: str) -> list[Json]:
        """Read them without IAM, as EKS itself does."""
        with request_scope(ACCOUNT, REGION):
            known = list(attribute(eks, "_pod_identity_associations").values())
        return [each for each in known if each["clusterName"] == cluster]


def _of_both(service: OwnService, theirs: Any) -> Any:
    async def handle(method: str, path: str, headers: dict[str, str], body: bytes, query: Json) -> Any:
        handler = service.handle if service.serves(headers, body) else theirs
        return await handler(method, path, headers, body, query)

    return handle


def _checked(service: str, check: Check, handler: Any) -> Any:
    async def handle(*request: Any) -> Any:
        return check(service, *request) or await handler(*request)

    return handle
