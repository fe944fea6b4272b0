"""Puts one file where a ticket of the control plane allows it: an S3 POST, with nothing but the standard library."""

import base64
import binascii
import http.client
import json
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

BLOCK_BYTES = 256 * 1024
ANSWER_BYTES = 2000


class BadTicket(Exception):
    """The ticket cannot be read."""


class NotUploaded(Exception):
    """The file is not where it should be; says why."""


@dataclass(frozen=True)
class Ticket:
    """Leave to write one object: where to, and the signed fields to send along."""

    url: str
    fields: dict[str, str]

    @property
    def object_key(self) -> str:
        """The only key that it is good for."""
        return self.fields["key"]


def read_ticket(text: str) -> Ticket:
    """A ticket from its one line: URL-safe Base64 of JSON. Raises BadTicket, which shows nothing of it."""
    try:
        raw = json.loads(base64.urlsafe_b64decode(text.strip() + "=" * (-len(text.strip()) % 4)))
        ticket = Ticket(str(raw["url"]), {str(name): str(value) for name, value in raw["fields"].items()})
        address = urlsplit(ticket.url)
        _ = address.port  # one that is none is found only by asking
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadTicket(f"the ticket for the upload cannot be read: {type(error).__name__}") from None
    if address.scheme not in ("http", "https") or "key" not in ticket.fields:
        raise BadTicket("the ticket for the upload names no address or no key")
    return ticket


def upload(file: Path, ticket: Ticket, seconds: float) -> None:
    """Send the file. Raises NotUploaded with the server's own words."""
    boundary = secrets.token_hex(16)
    head, tail = _form(ticket.fields, file.name, boundary)
    headers = {
        "Content-Type": f"multipart/form-data; boundary={boundary}",
        "Content-Length": str(len(head) + file.stat().st_size + len(tail)),
    }
    url = urlsplit(ticket.url)
    connection = _connect(url.scheme, url.hostname or "", url.port, seconds)
    try:
        with file.open("rb") as body:
            _send(connection, url.path or "/", headers, [head, body, tail])
        response = connection.getresponse()
        answer = response.read(ANSWER_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise NotUploaded(f"{url.hostname}: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
    if not 200 <= response.status < 300:
        raise NotUploaded(f"{url.hostname} answered {response.status}: {' '.join(answer.split())[:500]}")


def _connect(scheme: str, host: str, port: int | None, seconds: float) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=seconds)
    return http.client.HTTPSConnection(host, port, timeout=seconds, context=ssl.create_default_context())


def _send(connection: http.client.HTTPConnection, path: str, headers: dict[str, str], parts: list[object]) -> None:
    connection.putrequest("POST", path)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    for part in parts:
        if isinstance(part, bytes):
            connection.send(part)
        else:
            while block := part.read(BLOCK_BYTES):  # type: ignore[attr-defined]  # an open file
                connection.send(block)


def _form(fields: dict[str, str], name: str, boundary: str) -> tuple[bytes, bytes]:
    """What stands before the file and behind it. The file comes last: S3 ignores what follows it."""
    lines = []
    for key, value in fields.items():
        lines += [f"--{boundary}", f'Content-Disposition: form-data; name="{key}"', "", value]
    lines += [f"--{boundary}", f'Content-Disposition: form-data; name="file"; filename="{name}"']
    kind = fields.get("Content-Type", "application/octet-stream")
    lines += [f"Content-Type: {kind}", "", ""]
    return "\r\n".join(lines).encode(), f"\r\n--{boundary}--\r\n".encode()
