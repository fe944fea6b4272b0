"""The authenticator of the console's function: people sign in at Cognito, by the authorization code flow with PKCE.

Nothing is kept here between two requests. What a sign-in needs until it comes back is in one cookie, and the session is
the ID token in another one: Cognito has signed it, and neither scripts nor other sites can read it.
"""

import hmac
import json
import secrets
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode
from urllib.request import Request as Call
from urllib.request import urlopen

import jwt
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from nodeheal.console.gate import STATIC, SignedInPerson, cookie_of, own_address, safe_headers
from nodeheal.console.roles import Role, strongest

# Of `__Host-` cookies a browser takes only those that this very host has set, over TLS, for all its paths.
SESSION, PENDING = "__Host-nodeheal-session", "__Host-nodeheal-sign-in"
CALLBACK, SIGNED_OUT = "/signed-in", "/signed-out"
SIGN_IN_SECONDS = 600
_ADDRESS_CHARACTERS = 2_000  # a cookie has 4,096
_WAIT_SECONDS = 5
_CLOCK_SECONDS = 10  # that the clocks of Cognito and of a function may differ by
_NEEDED = ["aud", "cognito:username", "exp", "iat", "iss", "nonce", "sub", "token_use"]
_AGAIN = "Open the console again to sign in.\n"


@dataclass(frozen=True)
class UserPool:
    """Where people sign in. `login`: the address of its managed login; `client_secret`: finds that of our client."""

    issuer: str
    login: str
    client_id: str
    client_secret: Callable[[], str]


class SignIn:
    """Authenticates people who have signed in and are in a group. `host`: where the console answers; `make_person`:
    makes the person of a name, a role and the token of their forms.
    """

    scheme = "https"
    public_paths = (CALLBACK, SIGNED_OUT, STATIC)

    def __init__(self, pool: UserPool, host: str, make_person: Callable[[str, Role, str], SignedInPerson]) -> None:
        self.addresses = (host,)
        # A sign-out goes on from its form to Cognito's page.
        self.headers = safe_headers(pool.login) | {"Strict-Transport-Security": "max-age=31536000"}
        self._pool, self._make_person = pool, make_person
        self._keys = jwt.PyJWKClient(f"{pool.issuer}/.well-known/jwks.json", timeout=_WAIT_SECONDS)

    def routes(self) -> list[Route]:
        """Return where Cognito sends people back to."""
        return [Route(CALLBACK, self._take_code), Route(SIGNED_OUT, self._say_signed_out)]

    async def authenticate(self, cookies: str) -> SignedInPerson | None:
        """Return the person of the token in the session's cookie, while it lasts."""
        return await run_in_threadpool(self._authenticate, cookie_of(cookies, SESSION))

    def challenge(self, request: Request) -> Response:
        """Send a person to the sign-in. A part of a page, or a form, cannot go there."""
        if request.method != "GET" or "hx-request" in request.headers:
            return PlainTextResponse("Your session has ended. Load the page again to sign in.\n", 401)
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._pool.client_id,
            "redirect_uri": self._own(CALLBACK),
            "scope": "openid",
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        wanted = quote(request.url.path + (f"?{request.url.query}" if request.url.query else ""), safe="")
        pending = ".".join((state, nonce, verifier, wanted if len(wanted) <= _ADDRESS_CHARACTERS else ""))
        answer = RedirectResponse(f"{self._pool.login}/oauth2/authorize?{urlencode(query)}", 303)
        _set(answer, PENDING, pending, SIGN_IN_SECONDS)
        return answer

    def sign_out(self) -> Response:
        """Forget the token, and have Cognito end its own session."""
        query = urlencode({"client_id": self._pool.client_id, "logout_uri": self._own(SIGNED_OUT)})
        answer = RedirectResponse(f"{self._pool.login}/logout?{query}", 303)
        _set(answer, SESSION, "", 0)
        return answer

    def _own(self, path: str) -> str:
        return f"{self.scheme}://{self.addresses[0]}{path}"

    def _authenticate(self, token: str) -> SignedInPerson | None:
        try:
            claims = self._claims(token)
        except jwt.PyJWTError:
            return None
        role = strongest(claims.get("cognito:groups"))
        if role is None:
            return None
        # The token is known to this browser and to us: a form that carries what is made of it is of this session.
        form_token = hmac.new(token.encode(), b"form", sha256).hexdigest()
        return self._make_person(claims["cognito:username"], role, form_token)

    def _claims(self, token: str) -> Mapping[str, Any]:
        """Return what Cognito says of the person. Raises PyJWTError for what is no valid ID token for this client."""
        claims: dict[str, Any] = jwt.decode(
            token,
            self._keys.get_signing_key_from_jwt(token),
            algorithms=["RS256"],
            audience=self._pool.client_id,
            issuer=self._pool.issuer,
            leeway=_CLOCK_SECONDS,
            options={"require": _NEEDED, "strict_aud": True},
        )
        if claims["token_use"] != "id":
            raise jwt.InvalidTokenError("it is no ID token")
        return claims

    def _take_code(self, request: Request) -> Response:
        """Take the code that Cognito has sent, if the sign-in was pending in this browser."""
        pending = cookie_of(request.headers.get("cookie", ""), PENDING).split(".", 3)
        given = request.query_params.get("state", "")
        if len(pending) != 4 or not hmac.compare_digest(given.encode(), pending[0].encode()):
            # Another window's sign-in may be under way: its cookie stays.
            why = "This sign-in was not pending in this browser, was overtaken, or took longer than ten minutes."
            return PlainTextResponse(f"{why} {_AGAIN}", 403)
        _, nonce, verifier, wanted = pending
        token = self._redeem(request.query_params.get("code", ""), verifier)
        try:
            claims = self._claims(token)
        except jwt.PyJWTError:
            return _refused("Cognito has not signed you in.")
        if not hmac.compare_digest(str(claims["nonce"]).encode(), nonce.encode()):
            return _refused("This sign-in was pending elsewhere.")
        if strongest(claims.get("cognito:groups")) is None:
            who, groups = claims["cognito:username"], ", ".join(Role)
            return _refused(f"You are {who!a}, who is in none of the groups {groups}, and so has no access here.")
        answer = RedirectResponse(own_address(unquote(wanted)), 303)
        _set(answer, SESSION, token, int(claims["exp"]) - int(claims["iat"]))
        _set(answer, PENDING, "", 0)
        return answer

    def _redeem(self, code: str, verifier: str) -> str:
        """Return the ID token for the code; empty: Cognito does not take it, as when it was used before."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._own(CALLBACK),
            "code_verifier": verifier,
        }
        who = b64encode(f"{self._pool.client_id}:{self._pool.client_secret()}".encode()).decode()
        headers = {"Authorization": f"Basic {who}", "Content-Type": "application/x-www-form-urlencoded"}
        call = Call(f"{self._pool.login}/oauth2/token", urlencode(form).encode(), headers)
        try:
            with urlopen(call, timeout=_WAIT_SECONDS) as answer:
                return str(json.load(answer)["id_token"])
        except HTTPError:
            return ""

    def _say_signed_out(self, request: Request) -> Response:
        return PlainTextResponse(f"You are signed out. {_AGAIN}")


def _refused(why: str) -> Response:
    answer = PlainTextResponse(f"{why} {_AGAIN}", 403)
    _set(answer, PENDING, "", 0)
    return answer


def _set(answer: Response, name: str, value: str, seconds: int) -> None:
    """Set a cookie of ours; for no seconds: take it away."""
    answer.set_cookie(name, value, seconds, path="/", secure=True, httponly=True, samesite="lax")
