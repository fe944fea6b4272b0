"""Our signature is AWS's signature."""

import hashlib
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from nodeheal.agent.transport.sigv4 import Credentials, CredentialScope, signed_headers

NOW = datetime(2026, 11, 21, 5, 50, 31, tzinfo=UTC)


@pytest.mark.parametrize("token", [None, "a/session+token=="])
@pytest.mark.parametrize("body", [b"", '{"Entries": ["é"]}'.encode()])
@pytest.mark.parametrize("host", ["events.eu-central-1.amazonaws.com", "127.0.0.1:4566"])
def test_a_request_is_signed_as_botocore_signs_it(token: str | None, body: bytes, host: str) -> None:
    headers = {"Host": host, "Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "AWSEvents.PutEvents"}
    request = AWSRequest("POST", f"https://{host}/", dict(headers), body)
    signer = auth.SigV4Auth(BotoCredentials("AKIDEXAMPLE", "secret", token), "events", "eu-central-1")
    with patch.object(auth, "get_current_datetime", _frozen):
        signer.add_auth(request)

    ours = signed_headers(
        headers, body, "/", Credentials("AKIDEXAMPLE", "secret", token), CredentialScope("eu-central-1", "events"), NOW
    )

    assert ours["Authorization"] == request.headers["Authorization"]
    assert ours["X-Amz-Date"] == request.headers["X-Amz-Date"]


@pytest.mark.parametrize("token", [None, "a/session+token=="])
def test_a_download_from_s3_is_signed_as_botocore_signs_it(token: str | None) -> None:
    host, path = "wheels.s3.eu-central-1.amazonaws.com", "/b974b33e.zip"
    headers = {"Host": host, "X-Amz-Content-Sha256": hashlib.sha256(b"").hexdigest()}
    request = AWSRequest("GET", f"http://{host}{path}", {"Host": host})
    signer = auth.S3SigV4Auth(BotoCredentials("AKIDEXAMPLE", "secret", token), "s3", "eu-central-1")
    with patch.object(auth, "get_current_datetime", _frozen):
        signer.add_auth(request)

    credentials, scope = Credentials("AKIDEXAMPLE", "secret", token), CredentialScope("eu-central-1", "s3")
    ours = signed_headers(headers, b"", path, credentials, scope, NOW, method="GET")

    assert ours["Authorization"] == request.headers["Authorization"]
    assert ours["X-Amz-Content-Sha256"] == request.headers["X-Amz-Content-SHA256"]


def _frozen(*_: Any, **__: Any) -> datetime:
    return NOW.replace(tzinfo=None)
