"""Lets in only the person who started the console, from its own pages, under its own address.

A browser is a door that any web page may knock at, also on loopback. So a request has to name this address (or a name
that an attacker points at 127.0.0.1 would do), carry the session's cookie, and, where it acts, come from a page of ours
and carry the session's token for forms.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SESSION_SECONDS = 12 * 3_600
ENTRANCE = "/enter"
OPEN_TO_ALL = (ENTRANCE, "/static/")
_ACTING = "POST"
_FORM_SECRET = b"form"

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
SAFE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # without one, browsers send forms with `Origin: null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Session:
    """One person's time at the console. It begins with the key that the command prints, and ends on its own.

    `port`: where it is served; cookies do not tell ports apart, so the cookie's name has it.
    """

    def __init__(self, port: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.key = secrets.token_urlsafe(24)
        self.cookie = f"nodeheal-console-{port}"
        self.addresses = (f"127.0.0.1:{port}", f"localhost:{port}")
        self._secret = secrets.token_bytes(32)
        self._clock = clock
        self._ends_at: float | None = None

    @property
    def form_token(self) -> str:
        """The token that every form carries."""
        return hmac.new(self._secret, _FORM_SECRET, sha256).hexdigest()

    def begin(self, key: str) -> str | None:
        """Return the cookie's value for the right key; None for another one."""
        if not hmac.compare_digest(key.encode(), self.key.encode()):
            return None
        self._ends_at = self._clock() + SESSION_SECONDS
        return self._value

    def end(self) -> None:
        """Let nobody in until the key is given again."""
        self._ends_at = None
        self._secret = secrets.token_bytes(32)

    def is_open(self, cookies: str) -> bool:
        """Whether these cookies are of a session that has not ended."""
        if self._ends_at is None or self._clock() >= self._ends_at:
            return False
        try:
            given = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        return given is not None and hmac.compare_digest(given.value.encode(), self._value.encode())

    def is_own_form(self, token: str) -> bool:
        """Whether a form of this session's was sent."""
        return hmac.compare_digest(token.encode(), self.form_token.encode())

    @property
    def _value(self) -> str:
        return hmac.new(self._secret, b"cookie", sha256).hexdigest()


class Gate:
    """The middleware in front of every page."""

    def __init__(self, app: ASGIApp, session: Session) -> None:
        self._app, self._session = app, session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it with the reason."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE_HEADERS.items():
                    headers[name] = value
            await send(message)

        refused = self._refusal(scope)
        if refused is None:
            await self._app(scope, receive, send_safely)
        else:
            await PlainTextResponse(refused[1], status_code=refused[0])(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers, path, session = Headers(scope=scope), scope["path"], self._session
        host = headers.get("host", "")
        if host not in session.addresses:
            return 421, f"This console answers at http://{session.addresses[0]} only.\n"
        if scope["method"] == _ACTING and headers.get("origin") not in (f"http://{host}",):
            return 403, "Only the console's own pages may act.\n"
        if path.startswith(OPEN_TO_ALL) or session.is_open(headers.get("cookie", "")):
            return None
        return 401, "Your session has ended, or has not begun: open the address that `nodeheal console` has printed.\n"
