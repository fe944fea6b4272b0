"""Which certificate authorities the agent believes: this machine's. Of those, AWS's own are enough for AWS.

The others take a megabyte and a half of memory where they lie in one file (Amazon Linux), so they are loaded when
something is met that AWS's do not vouch for. Nobody is believed whom the machine does not believe. ADR 32.
"""

import binascii
import os
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

# How Amazon Trust Services calls its roots, as a certificate spells it. Source: amazontrust.com/repository
_AWS = (b"Amazon Root CA ", b"Starfield Services Root Certificate Authority")
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class CaBundle:
    """What every connection of the process shares. Safe to use from several threads."""

    def __init__(self) -> None:
        """Nothing is loaded before it is needed."""
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._is_whole = False

    def context(self) -> ssl.SSLContext:
        """What to connect with."""
        with self._lock:
            if self._context is None:
                self._context = _aws_alone()
                self._is_whole = self._context is None
            if self._context is None:
                self._context = ssl.create_default_context()
            return self._context

    def wider(self, tried: ssl.SSLContext) -> ssl.SSLContext | None:
        """What to try after this one did not believe the other side; None: that was everybody."""
        with self._lock:
            if not self._is_whole:
                self._context, self._is_whole = ssl.create_default_context(), True
            return self._context if self._context is not tried else None

    @staticmethod
    def source() -> str:
        """Where the authorities are read, and what of it cannot be, in words."""
        paths = ssl.get_default_verify_paths()
        named = (os.environ.get(paths.openssl_cafile_env), os.environ.get(paths.openssl_capath_env))
        places = (Path(named[0] or paths.openssl_cafile), Path(named[1] or paths.openssl_capath))
        return f"believed are the certificate authorities in {' and '.join(map(_readable, places))}"


def _readable(path: Path) -> str:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return f"{path} (cannot be read: {error.strerror})"
    return str(path)


def _aws_alone() -> ssl.SSLContext | None:
    """None where they are not in one file. A folder is no burden: OpenSSL finds there by name what it needs."""
    paths = ssl.get_default_verify_paths()
    if not paths.cafile:
        return None
    try:
        found = b"".join(one for one in _certificates(Path(paths.cafile)) if any(name in one for name in _AWS))
        return ssl.create_default_context(capath=paths.capath, cadata=found) if found else None
    except (OSError, ValueError):  # what is wrong with it is said by whoever loads it whole
        return None


def _certificates(bundle: Path) -> Iterator[bytes]:
    """Each as DER, one at a time: the file is larger than all that is kept of it. Raises OSError, ValueError."""
    with bundle.open(encoding="latin-1") as lines:
        block: list[str] | None = None
        for line in lines:
            word = line.strip()
            if word == _BEGIN:
                block = []
            elif word == _END and block is not None:
                yield binascii.a2b_base64("".join(block))
                block = None
            elif block is not None:
                block.append(word)
