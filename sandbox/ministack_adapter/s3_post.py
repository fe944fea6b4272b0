"""Implements S3's POST of a form with a signed policy, which MiniStack lacks.

The policy is checked as in S3: its signer, the expiry, the exact fields, the size, and the signer's permission to write
the object.
"""

import base64
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from ministack import app
from ministack.core import iam_evaluator, sigv4
from ministack.core.responses import request_scope
from ministack.services import s3

from sandbox.aws_emulator import Application, Receive, Send
from sandbox.aws_json import AwsError
from sandbox.iam import ACCOUNT, REGION
from sandbox.ministack_adapter.iam import authorize

_BUCKET = re.compile(r"/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/?")
_NAME = re.compile(rb'name="([^"]*)"')
# Fields that a form may have without the policy naming them.
_UNNAMED = ("policy", "x-amz-signature", "file", "content-length-range")


@dataclass(frozen=True)
class Form:
    """A posted form."""

    bucket: str
    fields: dict[str, str]
    body: bytes


def serve_posts(emulator: Application) -> Application:
    """Wrap the emulator's application: forms that are posted to a bucket are handled here."""

    async def both(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        kind = headers.get(b"content-type", b"")
        bucket = _BUCKET.fullmatch(scope.get("path", ""))
        is_form = scope["type"] == "http" and scope["method"] == "POST" and kind.startswith(b"multipart/form-data")
        if not is_form or bucket is None:
            await emulator(scope, receive, send)
            return
        status, content = await _take(bucket[1], kind, await _read(receive))
        answer = [(b"content-type", b"application/xml"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": answer})
        await send({"type": "http.response.body", "body": content})

    return both


async def _read(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _take(bucket: str, kind: bytes, raw: bytes) -> tuple[int, bytes]:
    try:
        with request_scope(ACCOUNT, REGION):
            app.pin_request_origin("127.0.0.1", True)  # plain HTTP on loopback counts as TLS; see condition_keys
            form = _form(bucket, kind, raw)
            _must_be_allowed(form)
            headers = {"content-type": form.fields.get("Content-Type", "binary/octet-stream"), "host": "127.0.0.1"}
            path = f"/{bucket}/{form.fields['key']}"
            status, _, body = await s3.handle_request("PUT", path, headers, form.body, {}, internal=True)
    except AwsError as error:
        code = escape(error.code)
        return error.status, f"<Error><Code>{code}</Code><Message>{escape(error.message)}</Message></Error>".encode()
    return (204, b"") if status < 300 else (status, body if isinstance(body, bytes) else str(body).encode())


def _form(bucket: str, kind: bytes, raw: bytes) -> Form:
    boundary = b"--" + kind.partition(b"boundary=")[2].strip(b'"')
    fields: dict[str, bytes] = {}
    for part in raw.split(boundary)[1:-1]:
        head, _, value = part.partition(b"\r\n\r\n")
        name = _NAME.search(head)
        if name is not None:
            fields[name[1].decode()] = value.removesuffix(b"\r\n")
    missing = [name for name in ("key", "policy", "x-amz-signature", "x-amz-credential", "file") if name not in fields]
    if missing:
        raise AwsError("InvalidArgument", f"POST requires the field {missing[0]}")
    body = fields.pop("file")
    return Form(bucket, {name: value.decode() for name, value in fields.items()}, body)


def _must_be_allowed(form: Form) -> None:
    """Raises AwsError unless the policy is genuine and valid now, and its signer may write the object."""
    fields = form.fields
    access_key, day, region, service, _ = fields["x-amz-credential"].split("/")
    known = iam_evaluator.resolve_credential(access_key, ACCOUNT, fields.get("x-amz-security-token", ""))
    secret = getattr(known, "secret_access_key", None)
    if secret is None:
        raise AwsError("InvalidAccessKeyId", "The AWS Access Key Id does not exist in our records.", 403)
    wanted = sigv4.calculate_signature(secret, day, region, service, fields["policy"])
    if wanted != fields["x-amz-signature"]:
        raise AwsError("SignatureDoesNotMatch", "The request signature does not match.", 403)
    policy = json.loads(base64.b64decode(fields["policy"]))
    if datetime.fromisoformat(policy["expiration"]) <= datetime.now(UTC):
        raise _broken("Policy expired.")
    _must_hold(policy["conditions"], form)
    arn = f"arn:aws:s3:::{form.bucket}/{fields['key']}"
    try:
        authorize(access_key, "s3", "s3:PutObject", arn, {})
    except AwsError as error:
        raise AwsError("AccessDenied", error.message, 403) from error


def _must_hold(conditions: list[Any], form: Form) -> None:
    given, named = {**form.fields, "bucket": form.bucket}, set()
    for condition in conditions:
        if isinstance(condition, list) and condition[0] == "content-length-range":
            _must_fit(len(form.body), int(condition[1]), int(condition[2]))
            continue
        pairs = condition.items() if isinstance(condition, dict) else [(condition[1].lstrip("$"), condition[2])]
        is_prefix = isinstance(condition, list) and condition[0] == "starts-with"
        for name, value in pairs:
            named.add(name)
            found = given.get(name, "")
            if not (found.startswith(value) if is_prefix else found == value):
                raise _broken(f"Policy Condition failed: {json.dumps(condition)}")
    extra = [name for name in form.fields if name not in named and name not in _UNNAMED]
    if extra:
        raise _broken(f"Extra input fields: {extra[0]}")


def _must_fit(size: int, least: int, most: int) -> None:
    if size > most:
        raise AwsError("EntityTooLarge", "Your proposed upload exceeds the maximum allowed size", 400)
    if size < least:
        raise AwsError("EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size", 400)


def _broken(why: str) -> AwsError:
    return AwsError("AccessDenied", f"Invalid according to Policy: {why}", 403)
