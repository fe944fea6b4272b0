"""Uploads one file with a ticket from the control plane: an S3 POST, with the standard library only."""

import base64
import binascii
import contextlib
import http.client
import secrets
import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from nodeheal.agent.runtime.eventfd_event import EventfdEvent
from nodeheal.contract.json_text import read_json

BLOCK_BYTES = 256 * 1024
ANSWER_BYTES = 2000


class BadTicket(Exception):
    """The ticket is not valid."""


class NotUploaded(Exception):
    """The file was not uploaded; the message says why."""


@dataclass(frozen=True)
class Ticket:
    """Permission to write one object: the URL, and the signed fields to send."""

    url: str
    fields: dict[str, str]

    @property
    def object_key(self) -> str:
        """The only key that it permits."""
        return self.fields["key"]


def read_ticket(text: str) -> Ticket:
    """Parse a ticket from its line: URL-safe Base64 of JSON. Raises BadTicket, which quotes nothing of it."""
    try:
        raw = read_json(base64.urlsafe_b64decode(text.strip() + "=" * (-len(text.strip()) % 4)))
        ticket = Ticket(str(raw["url"]), {str(name): str(value) for name, value in raw["fields"].items()})
        address = urlsplit(ticket.url)
        _ = address.port  # an invalid port is found only by reading it
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError) as error:
        why = "it is not URL-safe Base64 of JSON" if isinstance(error, ValueError) else type(error).__name__
        raise BadTicket(f"the ticket for the upload cannot be read: {why}") from None
    if address.scheme not in ("http", "https") or "key" not in ticket.fields:
        raise BadTicket("the ticket for the upload lacks a URL or a key")
    return ticket


def upload(file: Path, ticket: Ticket, seconds: float) -> None:
    """Send the file within the seconds. Raises NotUploaded with the server's error."""
    sending = _Sending(file, ticket, seconds)
    sending.start()
    if not sending.has_ended.wait(seconds):
        sending.hang_up()
        raise NotUploaded(f"{sending.host}: given up after {seconds:.0f} s, {sending.came_to()}")
    if sending.error is not None:
        raise sending.error


class _Sending(threading.Thread):
    """Sends the file in a thread of its own. Each read and write has a limit, but a server that handles a byte now and
    then keeps within every limit, so another thread measures the total. It holds nothing that the process needs to end.
    """

    def __init__(self, file: Path, ticket: Ticket, seconds: float) -> None:
        super().__init__(name="upload", daemon=True)
        self._file, self._ticket, self._url = file, ticket, urlsplit(ticket.url)
        # Twice the time: the measuring thread gives up first, and reports the progress.
        self._connection = _connect(self._url.scheme, self.host, self._url.port, 2 * seconds)
        self._sent_bytes = 0
        self._size_bytes = file.stat().st_size
        self.error: Exception | None = None
        self.has_ended = EventfdEvent()

    @property
    def host(self) -> str:
        """The host of the upload."""
        return self._url.hostname or ""

    def run(self) -> None:
        """Send the file, and read the answer."""
        try:
            self._send()
        except (OSError, http.client.HTTPException) as error:
            self.error = NotUploaded(f"{self.host}: {str(error) or type(error).__name__}")
        except Exception as error:
            self.error = error
        finally:
            self._connection.close()
            self.has_ended.set()

    def came_to(self) -> str:
        """Describe the progress, in words."""
        if self._sent_bytes < self._size_bytes:
            return f"{self._sent_bytes} of {self._size_bytes} bytes were taken"
        return "all was sent and no whole answer came"

    def hang_up(self) -> None:
        """Close the connection: an upload that was given up must not complete later."""
        opened = self._connection.sock
        with contextlib.suppress(OSError, AttributeError):  # it has ended, or is not connected yet
            opened.shutdown(socket.SHUT_RDWR)

    def _send(self) -> None:
        boundary = secrets.token_hex(16)
        head, tail = _form(self._ticket.fields, self._file.name, boundary)
        self._connection.putrequest("POST", self._url.path or "/")
        self._connection.putheader("Content-Type", f"multipart/form-data; boundary={boundary}")
        self._connection.putheader("Content-Length", str(len(head) + self._size_bytes + len(tail)))
        self._connection.endheaders()
        self._connection.send(head)
        with self._file.open("rb") as body:
            while block := body.read(BLOCK_BYTES):
                self._connection.send(block)
                self._sent_bytes += len(block)
        self._connection.send(tail)
        response = self._connection.getresponse()
        answer = response.read(ANSWER_BYTES).decode("utf-8", "replace")
        if not 200 <= response.status < 300:
            raise NotUploaded(f"{self.host} answered {response.status}: {' '.join(answer.split())[:500]}")


def _connect(scheme: str, host: str, port: int | None, seconds: float) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=seconds)
    return http.client.HTTPSConnection(host, port, timeout=seconds, context=ssl.create_default_context())


def _form(fields: dict[str, str], name: str, boundary: str) -> tuple[bytes, bytes]:
    """Return the parts before and after the file. The file comes last: S3 ignores the fields after it."""
    lines = []
    for key, value in fields.items():
        lines += [f"--{boundary}", f'Content-Disposition: form-data; name="{key}"', "", value]
    lines += [f"--{boundary}", f'Content-Disposition: form-data; name="file"; filename="{name}"']
    kind = fields.get("Content-Type", "application/octet-stream")
    lines += [f"Content-Type: {kind}", "", ""]
    return "\r\n".join(lines).encode(), f"\r\n--{boundary}--\r\n".encode()
