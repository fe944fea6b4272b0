"""Judges EKS's tokens for the API server, which asks it with a TokenReview as EKS's asks AWS's authenticator.

It makes the checks of aws-iam-authenticator: the token is a presigned GetCallerIdentity of STS, whose signed headers
name the cluster. Who has signed it says STS, and which groups that role has says the cluster's access entries.
"""

import base64
import binascii
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
LONGEST = 16 * 1024
VALID_FOR = timedelta(minutes=15)
_PARAMETERS = frozenset(
    {
        "action",
        "version",
        "x-amz-algorithm",
        "x-amz-credential",
        "x-amz-date",
        "x-amz-expires",
        "x-amz-security-token",
        "x-amz-signature",
        "x-amz-signedheaders",
        "x-amz-user-agent",
    }
)
Identify = Callable[[str, Mapping[str, str]], str | None]  # the ARN of who has signed this address with these headers


class Authenticator:
    """Serves TokenReviews of one cluster for as long as its `with` block. `access_entries`: groups by principal."""

    def __init__(
        self, cluster: str, sts_host: str, identify: Identify, access_entries: Mapping[str, Sequence[str]]
    ) -> None:
        self._cluster, self._sts_host, self._identify = cluster, sts_host, identify
        self.access_entries = access_entries
        self.refusals: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"authenticator": self}))
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        """Begin to serve."""
        threading.Thread(target=self._server.serve_forever, name="authenticator", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()

    def write_config(self, path: Path) -> Path:
        """Write the file by which an API server finds this authenticator, and return its path."""
        cluster = {"name": "authenticator", "cluster": {"server": f"http://127.0.0.1:{self._server.server_address[1]}"}}
        context = {"name": "authenticator", "context": {"cluster": "authenticator", "user": "api-server"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "users": [{"name": "api-server", "user": {}}],
            "contexts": [context],
            "current-context": "authenticator",
        }
        path.write_text(json.dumps(config))
        return path

    def review(self, token: str) -> dict[str, Any]:
        """Return the status of a TokenReview."""
        refusal = _why_refused(token, self._sts_host, datetime.now(UTC))
        if not refusal:
            principal = self._identify(_address(token), {CLUSTER_HEADER: self._cluster})
            groups = self.access_entries.get(principal) if principal is not None else None
            if groups is not None:
                return {"authenticated": True, "user": {"username": principal, "groups": list(groups)}}
            refusal = f"no access entry for {principal}"
        self.refusals.append(refusal)
        return {"authenticated": False, "error": refusal}


def _address(token: str) -> str:
    encoded = token.removeprefix(PREFIX)
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()


def _why_refused(token: str, sts_host: str, now: datetime) -> str:
    """Return why the token is none; empty: its signature decides."""
    if len(token) > LONGEST or not token.startswith(PREFIX) or token.endswith("="):
        return "it is no token of EKS"
    try:
        address = urlsplit(_address(token))
        given = parse_qs(address.query, strict_parsing=True)
        signed_at = datetime.strptime(given["X-Amz-Date"][0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except (binascii.Error, ValueError, KeyError) as error:
        return f"it cannot be read: {error!r}"
    query = {name.lower(): values for name, values in given.items()}
    if (address.scheme, address.netloc, address.path) != ("https", sts_host, "/"):
        return f"it is not for STS: {address.scheme}://{address.netloc}{address.path}"
    if not query.keys() <= _PARAMETERS or any(len(values) > 1 for values in query.values()):
        return "it has parameters that no such request has"
    if query.get("action") != ["GetCallerIdentity"]:
        return "it is no GetCallerIdentity"
    if CLUSTER_HEADER not in query.get("x-amz-signedheaders", [""])[0].split(";"):
        return f"{CLUSTER_HEADER} is not signed"
    if not 0 <= int(query.get("x-amz-expires", ["-1"])[0]) <= 900:
        return "X-Amz-Expires is missing, or out of bounds"
    return "" if now <= signed_at + VALID_FOR else "it is older than 15 minutes"


class _Handler(BaseHTTPRequestHandler):
    authenticator: Authenticator

    def do_POST(self) -> None:
        """Answer a TokenReview."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.authenticator.review(review["spec"]["token"])
        content = json.dumps({"apiVersion": review["apiVersion"], "kind": "TokenReview", "status": status}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # the base class names it so
        """Nothing: a token must not get into a log."""
