"""AWS Signature Version 4 for requests without a query. Pure; a test compares it with botocore's."""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime

ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class Credentials:
    """The keys that sign a request."""

    access_key: str
    secret_key: str
    token: str | None = None


@dataclass(frozen=True)
class CredentialScope:
    """The date, Region and service that a signature is valid for."""

    region: str
    service: str


def signed_headers(
    headers: dict[str, str],
    body: bytes,
    path: str,
    credentials: Credentials,
    scope: CredentialScope,
    now: datetime,
    method: str = "POST",
) -> dict[str, str]:
    """Return the headers (which must contain the host) with date, token and authorization added. `path` is already
    encoded.
    """
    stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {**headers, "X-Amz-Date": stamp}
    if credentials.token:
        headers["X-Amz-Security-Token"] = credentials.token
    canonical = sorted((name.lower(), " ".join(value.split())) for name, value in headers.items())
    names = ";".join(name for name, _ in canonical)
    lines = "".join(f"{name}:{value}\n" for name, value in canonical)
    request = "\n".join((method, path, "", lines, names, hashlib.sha256(body).hexdigest()))
    credential_scope = f"{stamp[:8]}/{scope.region}/{scope.service}/aws4_request"
    to_sign = "\n".join((ALGORITHM, stamp, credential_scope, hashlib.sha256(request.encode()).hexdigest()))
    signature = hmac.new(_key(credentials.secret_key, stamp[:8], scope), to_sign.encode(), hashlib.sha256).hexdigest()
    headers["Authorization"] = (
        f"{ALGORITHM} Credential={credentials.access_key}/{credential_scope}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    return headers


def _key(secret: str, day: str, scope: CredentialScope) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, scope.region, scope.service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
