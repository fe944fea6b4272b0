"""Passes on requests of signed-in people only, from the console's own pages, under its own address.

Any web page can have a browser send requests, also to loopback. So a request has to name this address (or a name that
an attacker points at 127.0.0.1 would do), carry a session's cookie, and, where it acts, come from a page of ours and
carry the session's token for forms. How a session begins, an authenticator decides: `Session` on loopback, and
lambdas/sign_in.py where the console is a function.
"""

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from nodeheal.console.app import Deployment

SESSION_SECONDS = 12 * 3_600
ENTRANCE = "/enter"
STATIC = "/static/"
_ACTING = "POST"
_FORM_SECRET = b"form"
_WANTED_SECONDS = 600
_SIGNED_OUT = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Signed out · nodeheal</title>'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<link rel="stylesheet" href="/static/console.css"></head><body><main><h1>Nobody is signed in</h1>'
    "<p>Your session has ended, or has not begun. Open the address that <code>nodeheal console</code> has printed: it "
    "leads on to this page.</p></main></body></html>"
)


def safe_headers(*form_targets: str) -> dict[str, str]:
    """Return the headers of every answer. `form_targets`: where a form may lead, beside the console itself."""
    forms = " ".join(("'self'", *form_targets))
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        f"form-action {forms}; frame-ancestors 'none'; base-uri 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        # Not no-referrer: by the Fetch standard a form would then be sent with `Origin: null`.
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


@dataclass(frozen=True)
class SignedInPerson:
    """A person with a session: with what they read and act, and the token that their forms carry.

    `calling`: the context in which AWS is called with their credentials.
    """

    deployment: "Deployment"
    form_token: str
    calling: Callable[[], AbstractContextManager[None]] = nullcontext


_PERSON: ContextVar[SignedInPerson | None] = ContextVar("person", default=None)


def signed_in_person() -> SignedInPerson | None:
    """Return who is being answered; None: nobody has signed in, as for a script."""
    return _PERSON.get()


class Authenticator(Protocol):
    """Begins and ends the sessions of people, and says whose a request is."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the console answers, as in the header Host; the first is named to people."""

    @property
    def scheme(self) -> str:
        """http or https."""

    @property
    def public_paths(self) -> tuple[str, ...]:
        """Beginnings of paths that need no session."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of every answer."""

    def routes(self) -> list[Route]:
        """Return the routes by which a session begins."""

    async def authenticate(self, cookies: str) -> SignedInPerson | None:
        """Return the person of these cookies. None: they are of no session, or of one that has ended."""

    def challenge(self, request: Request) -> Response:
        """Answer a request without a session."""

    def sign_out(self) -> Response:
        """End the session of the person who asks."""


class Session:
    """One person's time at the console on loopback. It begins with the key that the command prints, and ends on its
    own.

    `host`, `port`: where it is served. Browsers send a host's cookies to each of its ports, so that a name that nobody
    else knows keeps the session from whatever else listens on this machine.
    """

    scheme = "http"
    public_paths = (ENTRANCE, STATIC)
    headers = safe_headers()

    def __init__(
        self, host: str, port: int, deployment: "Deployment", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.key = secrets.token_urlsafe(24)
        self.cookie, self.wanted = f"nodeheal-console-{port}", f"nodeheal-wanted-{port}"
        self.addresses = (f"{host}:{port}",)
        self._deployment = deployment
        self._secret = secrets.token_bytes(32)
        self._clock = clock
        self._ends_at: float | None = None

    @property
    def form_token(self) -> str:
        """The token that every form carries."""
        return hmac.new(self._secret, _FORM_SECRET, sha256).hexdigest()

    def routes(self) -> list[Route]:
        """Return the entrance."""
        return [Route(ENTRANCE, self._enter)]

    async def authenticate(self, cookies: str) -> SignedInPerson | None:
        """Return the person of the session's cookie, until it ends."""
        if self._ends_at is None or self._clock() >= self._ends_at:
            return None
        given = cookie_of(cookies, self.cookie)
        if not hmac.compare_digest(given.encode(), self._value.encode()):
            return None
        return SignedInPerson(self._deployment, self.form_token)

    def challenge(self, request: Request) -> Response:
        """Say how a session begins."""
        if request.method != "GET" or "hx-request" in request.headers:
            return PlainTextResponse("Your session has ended.\n", 401)
        answer = HTMLResponse(_SIGNED_OUT, 401)
        wanted = quote(request.url.path + (f"?{request.url.query}" if request.url.query else ""), safe="")
        answer.set_cookie(self.wanted, wanted, _WANTED_SECONDS, httponly=True, samesite="lax", path=ENTRANCE)
        return answer

    def sign_out(self) -> Response:
        """Let nobody in until the key is given again."""
        self._ends_at = None
        self._secret = secrets.token_bytes(32)
        return PlainTextResponse("You are signed out. The address that `nodeheal console` has printed lets you in.\n")

    def _enter(self, request: Request) -> Response:
        """Begin the session with the key of the printed address, and go on to a page of ours."""
        given = request.query_params.get("key", "")
        if not hmac.compare_digest(given.encode(), self.key.encode()):
            return PlainTextResponse("This key is not of this console. Open the address that it has printed.\n", 403)
        self._ends_at = self._clock() + SESSION_SECONDS
        before = unquote(cookie_of(request.headers.get("cookie", ""), self.wanted)) or "/"
        answer = RedirectResponse(own_address(request.query_params.get("next", before)), 303)
        answer.delete_cookie(self.wanted, path=ENTRANCE)
        answer.set_cookie(self.cookie, self._value, SESSION_SECONDS, httponly=True, samesite="lax", path="/")
        return answer

    @property
    def _value(self) -> str:
        return hmac.new(self._secret, b"cookie", sha256).hexdigest()


class Gate:
    """The middleware in front of every page. `errors`: what AWS raises where a authenticator asks it."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, errors: tuple[type[Exception], ...] = ()) -> None:
        self._app, self._authenticator, self._errors = app, authenticator, errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a signed-in person's request on, or refuse it with the reason."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._authenticator.headers.items():
                    headers[name] = value
            await send(message)

        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, send_safely)
            return
        if scope["path"].startswith(self._authenticator.public_paths):
            await self._app(scope, receive, send_safely)
            return
        try:
            person = await self._authenticator.authenticate(Headers(scope=scope).get("cookie", ""))
        except self._errors:
            unavailable = PlainTextResponse("AWS does not let you in now. Load the page again in a minute.\n", 503)
            await unavailable(scope, receive, send_safely)
            return
        if person is None:
            await self._authenticator.challenge(Request(scope))(scope, receive, send_safely)
            return
        token = _PERSON.set(person)
        try:
            with person.calling():
                await self._app(scope, receive, send_safely)
        finally:
            _PERSON.reset(token)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, authenticator = Headers(scope=scope), self._authenticator
        host = headers.get("host", "")
        if host not in authenticator.addresses:
            return PlainTextResponse("This console answers only at its own address.\n", 421)
        if scope["method"] == _ACTING and headers.get("origin") != f"{authenticator.scheme}://{host}":
            return PlainTextResponse("Only the console's own pages may act.\n", 403)
        return None


def cookie_of(cookies: str, name: str) -> str:
    """Return the value of a cookie; empty: there is none."""
    try:
        given = SimpleCookie(cookies).get(name)
    except CookieError:
        return ""
    return given.value if given is not None else ""


def own_address(wanted: str) -> str:
    """Return an address of the console itself: `/` for any other, which would lead people elsewhere."""
    parts = urlsplit(wanted)
    is_own = not parts.scheme and not parts.netloc and wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    return wanted if is_own and wanted.isprintable() else "/"
