"""Corrects MiniStack's AppConfig."""

import base64
import json
import re

from ministack import app
from ministack.core import concurrency
from ministack.services import appconfig, stepfunctions

from sandbox.aws_json import Json, Response
from sandbox.ministack_adapter.private_names import attribute


def install() -> None:
    """Call the profile's validators in StartDeployment, and return their refusal, as in AWS.

    The emulator stores validators and never calls them. CloudFormation's own deployment is not validated.
    """
    theirs = app.SERVICE_HANDLERS["appconfig"]
    start = re.compile(r"/applications/([^/]+)/environments/[^/]+/deployments")
    answer_with_error, run = attribute(appconfig, "_error"), attribute(concurrency, "run_reentrant")
    for needed in ("_config_profiles", "_hosted_versions"):
        attribute(appconfig, needed)

    async def validated(method: str, path: str, headers: dict[str, str], body: bytes, query: Json) -> Response:
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
