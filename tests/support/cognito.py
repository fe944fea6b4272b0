"""A stand-in of Cognito's user pool endpoints, on loopback, with a real RSA key.

By the Amazon Cognito Developer Guide (authorize, token and logout endpoints; ID token) and by RFC 6749 and RFC 7636. It
signs by itself and shares no code with what reads its tokens. What it refuses, it refuses with the code of the page.
"""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

POOL = "eu-west-1_Aa1Bb2Cc3"


@cache
def key(number: int) -> rsa.RSAPrivateKey:
    """0: the key of the pool; another number: one that is not the pool's."""
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


@dataclass
class Person:
    """Who sits at the sign-in."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass
class Cognito:
    """A user pool with one confidential client. `claims`: what tokens say otherwise than they should."""

    address: str
    callback: str
    logout: str
    client_id: str = "1example23456789"
    client_secret: str = "9example87654321"
    person: Person | None = None
    seconds: int = 3_600
    claims: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)

    @property
    def issuer(self) -> str:
        """The address of the pool."""
        return f"{self.address}/{POOL}"

    def id_token(self, **changes: Any) -> str:
        """A signed ID token of the person at the sign-in. A claim that is changed to None is left out."""
        assert self.person is not None
        now = int(time.time())
        claims = {
            "sub": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
            "cognito:groups": list(self.person.groups) or None,
            "iss": self.issuer,
            "cognito:username": self.person.name,
            "nonce": "n",
            "origin_jti": secrets.token_hex(16),
            "aud": self.client_id,
            "event_id": secrets.token_hex(16),
            "token_use": "id",
            "auth_time": now,
            "exp": now + self.seconds,
            "iat": now,
            "jti": secrets.token_hex(16),
            **changes,
        }
        return signed({name: value for name, value in claims.items() if value is not None})

    def access_token(self) -> str:
        """A signed access token of the person: it has `client_id`, and neither `aud` nor `nonce`."""
        changes = {"aud": None, "nonce": None, "client_id": self.client_id, "scope": "openid"}
        return self.id_token(**changes, token_use="access", username="ada")

    def authorize(self, query: Mapping[str, str]) -> str:
        """Where the browser is sent to. Raises ValueError with the error that is shown at Cognito's own page."""
        if query.get("client_id") != self.client_id or query.get("redirect_uri") != self.callback:
            raise ValueError("redirect_mismatch")
        state = {"state": query["state"]} if "state" in query else {}
        is_whole = query.get("response_type") == "code" and query.get("code_challenge_method") == "S256"
        if not is_whole or not query.get("code_challenge") or "openid" not in query.get("scope", "").split():
            return f"{self.callback}?{urlencode({'error': 'invalid_request', **state})}"
        code = secrets.token_hex(16)
        self.codes[code] = dict(query)
        return f"{self.callback}?{urlencode({'code': code, **state})}"

    def token(self, authorization: str, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """The answer of the token endpoint. A code is good once."""
        basic = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        if authorization != f"Basic {basic}":
            return 400, {"error": "invalid_client"}
        if form.get("grant_type") != "authorization_code":
            return 400, {"error": "unsupported_grant_type"}
        asked = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if (
            asked is None
            or asked["redirect_uri"] != form.get("redirect_uri")
            or asked["code_challenge"] != _base64(digest)
        ):
            return 400, {"error": "invalid_grant"}
        tokens = {
            "id_token": self.id_token(**{"nonce": asked.get("nonce"), **self.claims}),
            "access_token": self.access_token(),
        }
        return 200, {**tokens, "token_type": "Bearer", "expires_in": self.seconds}


def signed(claims: Mapping[str, Any], by: int = 0, alg: str = "RS256", **header: str) -> str:
    """A token. `by`: the number of the key; `alg`: none has no signature; HS256 is signed with the public key."""
    head = {"kid": "key-0", "alg": alg, **header}
    text = ".".join(_base64(json.dumps(part).encode()) for part in (head, claims))
    if alg == "RS256":
        return f"{text}.{_base64(key(by).sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"
    if alg == "none":
        return f"{text}."
    public = json.dumps(jwks()).encode()
    return f"{text}.{_base64(hashlib.sha256(public + text.encode()).digest())}"


def jwks() -> dict[str, Any]:
    """The public keys of the pool."""
    numbers = key(0).public_key().public_numbers()
    n, e = (_base64(value.to_bytes((value.bit_length() + 7) // 8, "big")) for value in (numbers.n, numbers.e))
    return {"keys": [{"kid": "key-0", "alg": "RS256", "kty": "RSA", "use": "sig", "n": n, "e": e}]}


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


@contextmanager
def cognito(callback: str, logout: str) -> Iterator[Cognito]:
    """Serve a pool whose client has this callback and this sign-out address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    pool = Cognito(f"http://127.0.0.1:{server.server_address[1]}", callback, logout)
    server.pool = pool  # type: ignore[attr-defined]
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield pool
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pool: Cognito = self.server.pool  # type: ignore[attr-defined]
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        if address.path == f"/{POOL}/.well-known/jwks.json":
            pool.fetched.append(self.path)
            return self._answer(200, json.dumps(jwks()))
        if address.path == "/oauth2/authorize":
            try:
                return self._answer(302, "", pool.authorize(query))
            except ValueError as error:
                return self._answer(400, str(error))
        if address.path == "/logout" and query == {"client_id": pool.client_id, "logout_uri": pool.logout}:
            pool.person = None
            return self._answer(302, "", pool.logout)
        return self._answer(400, "")

    def do_POST(self) -> None:
        pool: Cognito = self.server.pool  # type: ignore[attr-defined]
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(text).items()}
        status, answer = pool.token(self.headers.get("Authorization", ""), form)
        self._answer(status if self.path == "/oauth2/token" else 404, json.dumps(answer))

    def _answer(self, status: int, text: str, location: str = "") -> None:
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
