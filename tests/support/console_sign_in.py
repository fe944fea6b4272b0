"""A browser that signs in to the console."""

import re
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

HOST = "a1b2c3d4e5.execute-api.eu-west-1.amazonaws.com"


OWN = f"https://{HOST}"


KEY = "0" * 32


@dataclass
class Answer:
    """An answer of the function's."""

    status: int
    headers: dict[str, str]
    text: str
    cookies: dict[str, str] = field(default_factory=dict)  # by name, with their attributes


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """A browser of ours goes on by itself."""


@dataclass
class Browser:
    """A browser: it keeps the cookies of the console, and follows where the two sites send it."""

    handler: Any
    cookies: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, address: str, body: str = "", **headers: str) -> Answer:
        """Send one request to the function, as API Gateway does in payload format 2.0."""
        parts = urlsplit(address)
        event = {
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": parts.path,
            "rawQueryString": parts.query,
            "cookies": [f"{name}={value}" for name, value in self.cookies.items()],
            "headers": {"host": HOST, **headers},
            "requestContext": {"http": {"method": method, "path": parts.path, "sourceIp": "192.0.2.1"}},
            "body": body,
            "isBase64Encoded": False,
        }
        sent = self.handler({name: value for name, value in event.items() if value or name == "isBase64Encoded"}, None)
        text = b64decode(sent["body"]).decode() if sent["isBase64Encoded"] else sent["body"]
        set_now = dict(cookie.split("=", 1) for cookie in sent.get("cookies", ()))
        for name, value in set_now.items():
            self.cookies[name] = value.partition(";")[0].strip('"')
            if "Max-Age=0" in value:
                del self.cookies[name]
        return Answer(sent["statusCode"], sent["headers"], text, set_now)

    def get(self, address: str, **headers: str) -> Answer:
        """Ask for a page of the console."""
        return self.ask("GET", address, **headers)

    def post(self, path: str, form: dict[str, str], *, origin: str = OWN, token: str | None = None) -> Answer:
        """Send a form with the token of the last page."""
        fields = {"token": self.token() if token is None else token, **form}
        return self.ask("POST", path, urlencode(fields), origin=origin)

    def token(self) -> str:
        """The token that a page has in its forms."""
        found = re.search(r'name="token" value="(\w+)"', self.get("/").text)
        return found[1] if found else ""

    def at_cognito(self, address: str) -> str:
        """Ask the other site, and return where it sends one to; empty: nowhere."""
        try:
            build_opener(_Stay).open(Request(address), timeout=10)
        except HTTPError as answer:
            return str(answer.headers.get("Location", ""))
        return ""

    def sign_in(self, wanted: str = "/") -> Answer:
        """Go through the sign-in, and return the answer to the way back."""
        return self.get(self.at_cognito(self.get(wanted).headers["location"]))
