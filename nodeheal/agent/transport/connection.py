"""One HTTP/1.1 connection that is kept open, by the standard library."""

import contextlib
import http.client
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

BODY_BYTES = 16 * 1024 * 1024  # no service that the agent uses answers nearly as much


class BadAnswer(Exception):
    """The answer is not HTTP, too long, or incomplete; or the request has an invalid header."""


@dataclass(frozen=True)
class Response:
    """An HTTP response. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """A connection to one host. Opened at the first request, and reopened after it was closed. Not safe to share
    between threads.
    """

    def __init__(self, host: str, port: int | None, seconds: float, *, has_tls: bool = False) -> None:
        """`seconds`: the limit of each read and write. With `has_tls` the host's certificate must match its name."""
        self._http = (
            http.client.HTTPSConnection(host, port, timeout=seconds, context=_context())
            if has_tls
            else http.client.HTTPConnection(host, port, timeout=seconds)
        )

    @property
    def is_open(self) -> bool:
        """Whether it has answered before, and the server has not announced that it closes."""
        return self._http.sock is not None

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Response:
        """Send a request, and wait for the whole answer. Raises OSError, BadAnswer; the connection is then closed."""
        try:
            self._http.request(method, path, body or None, dict(headers))
            response = self._http.getresponse()
            content = response.read(BODY_BYTES + 1)
            if len(content) > BODY_BYTES:
                raise BadAnswer(f"more than {BODY_BYTES} bytes")
            if response.length:  # `read` with a limit does not raise where the body ends too early
                raise BadAnswer(f"{response.length} bytes of the body are missing")
            return Response(response.status, {name.lower(): value for name, value in response.getheaders()}, content)
        except ssl.SSLCertVerificationError as error:  # OpenSSL's error does not name the file to repair
            self.close()
            raise ssl.SSLCertVerificationError(error.errno, f"{error.verify_message}; {_authorities()}") from error
        except (OSError, BadAnswer):
            self.close()
            raise
        except http.client.HTTPException as error:
            self.close()
            raise BadAnswer(
                f"the answer is not HTTP, or incomplete: {str(error)[:100] or type(error).__name__}"
            ) from error
        except (ValueError, AttributeError):
            # An invalid header, which may be a secret and is not quoted; or another thread closed the connection.
            self.close()
            raise BadAnswer("the host or a header is not valid, or the connection was closed") from None

    def close(self) -> None:
        """Close it, from any thread: a thread that waits for an answer gets an error."""
        opened = self._http.sock
        if opened is not None:
            with contextlib.suppress(OSError):  # the server closed it first
                opened.shutdown(socket.SHUT_RDWR)
        self._http.close()


@lru_cache(maxsize=1)
def _context() -> ssl.SSLContext:
    """Create one TLS context for all connections: the certificate authorities take memory and some milliseconds each
    time.
    """
    return ssl.create_default_context()


def _authorities() -> str:
    """Describe where the certificate authorities are read, and which places are not readable."""
    paths = ssl.get_default_verify_paths()
    named = (os.environ.get(paths.openssl_cafile_env), os.environ.get(paths.openssl_capath_env))
    places = (Path(named[0] or paths.openssl_cafile), Path(named[1] or paths.openssl_capath))
    return f"trusted are the certificate authorities in {' and '.join(map(_readable, places))}"


def _readable(path: Path) -> str:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return f"{path} (cannot be read: {error.strerror})"
    return str(path)
