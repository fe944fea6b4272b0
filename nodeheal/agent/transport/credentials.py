"""Finds the node's AWS credentials: in the environment, the shared file that the SSM agent rotates, or IMDSv2."""

import http
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.transport.connection import BadAnswer, Connection
from nodeheal.agent.transport.profile import BadProfile, read_profile
from nodeheal.agent.transport.sigv4 import Credentials

IMDS_HOST = "169.254.169.254"
IMDS_SECONDS = 2.0
IMDS_TOKEN_SECONDS = 21600
IMDS_ROLE_PATH = "/latest/meta-data/iam/security-credentials/"
# Renewed this long before they expire, so that none expires during a request.
EXPIRY_MARGIN = timedelta(minutes=5)


class NoCredentials(Exception):
    """No credentials were found; the message lists where."""


class CredentialChain:
    """The current credentials. Rotated ones are noticed."""

    def __init__(
        self, clock: Clock, environment: Mapping[str, str] = os.environ, imds: tuple[str, int] = (IMDS_HOST, 80)
    ) -> None:
        self._clock = clock
        self._environment = environment
        self._imds = imds
        self._from_file: tuple[tuple[int, int], Credentials] | None = None
        self._why_not_file = ""
        self._from_imds: tuple[datetime, Credentials] | None = None

    def current(self) -> Credentials:
        """Return credentials from the environment, else the file, else instance metadata. Raises NoCredentials."""
        return self._in_environment() or self._in_file() or self._in_metadata()

    def forget(self) -> None:
        """Discard refused credentials; the next call looks for new ones."""
        self._from_file = None
        self._from_imds = None

    @property
    def _path(self) -> Path:
        named = self._environment.get("AWS_SHARED_CREDENTIALS_FILE")
        return Path(named) if named else Path(self._environment.get("HOME", "/root")) / ".aws" / "credentials"

    def _in_environment(self) -> Credentials | None:
        access_key = self._environment.get("AWS_ACCESS_KEY_ID")
        secret_key = self._environment.get("AWS_SECRET_ACCESS_KEY")
        if not access_key or not secret_key:
            return None
        return Credentials(access_key, secret_key, self._environment.get("AWS_SESSION_TOKEN"))

    def _in_file(self) -> Credentials | None:
        try:
            status = self._path.stat()
        except OSError as error:
            self._why_not_file = f"{self._path}: {error.strerror}"
            return None
        version = (status.st_mtime_ns, status.st_ino)
        if self._from_file is None or self._from_file[0] != version:
            found = self._read_file()
            # An unreadable file is retried: a change of its owner does not change its modification time.
            self._from_file = (version, found) if found else None
        return self._from_file[1] if self._from_file else None

    def _read_file(self) -> Credentials | None:
        try:
            return read_profile(self._path)
        except OSError as error:  # not for this client
            self._why_not_file = f"{self._path}: {error.strerror}"
        except BadProfile as error:  # read during a rotation
            self._why_not_file = str(error)
        return None

    def _in_metadata(self) -> Credentials:
        now = self._clock.utc_now()
        if self._from_imds is None or self._from_imds[0] - EXPIRY_MARGIN <= now:
            self._from_imds = self._ask_metadata()
        return self._from_imds[1]

    def _ask_metadata(self) -> tuple[datetime, Credentials]:
        if self._environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            raise NoCredentials(f"no AWS credentials in the environment or a file ({self._why_not_file})")
        connection = Connection(*self._imds, IMDS_SECONDS)
        try:
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(IMDS_TOKEN_SECONDS)}
            header = {"X-aws-ec2-metadata-token": _ask(connection, "PUT", "/latest/api/token", lifetime)}
            role = _ask(connection, "GET", IMDS_ROLE_PATH, header).split("\n")[0].strip()
            answer = json.loads(_ask(connection, "GET", IMDS_ROLE_PATH + role, header))
            ends_at = datetime.fromisoformat(str(answer["Expiration"])).astimezone(UTC)
            keys = (str(answer[key]) for key in ("AccessKeyId", "SecretAccessKey", "Token"))
            return ends_at, Credentials(*keys)
        except (OSError, BadAnswer, ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            where = f"the environment, a file ({self._why_not_file}) or the instance metadata ({error})"
            raise NoCredentials(f"no AWS credentials in {where}") from error
        finally:
            connection.close()


def _ask(connection: Connection, method: str, path: str, headers: dict[str, str]) -> str:
    response = connection.request(method, path, headers)
    if response.status != http.HTTPStatus.OK:
        raise ValueError(f"{path} answered {response.status}")
    return response.body.decode("utf-8")
