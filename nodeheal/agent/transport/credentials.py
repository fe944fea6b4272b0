"""Finds the node's AWS credentials: in the environment, in the shared file that the SSM agent rotates, or by EKS Pod
Identity or IMDSv2.
"""

import http
import json
import os
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.transport.connection import BadAnswer, Connection
from nodeheal.agent.transport.profile import BadProfile, read_profile
from nodeheal.agent.transport.sigv4 import Credentials

# Set by EKS in pods whose service account has a Pod Identity association: where its agent on the node answers, and the
# file with the pod's token.
ENV_CONTAINER_URI, ENV_CONTAINER_TOKEN = "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
# The token goes to no other host: EKS's own addresses, and this machine.
_CONTAINER_HOSTS = ("169.254.170.23", "fd00:ec2::23", "127.0.0.1")
_TOKEN_BYTES = 16_384
IMDS_HOST = "169.254.169.254"
IMDS_SECONDS = 2.0
IMDS_TOKEN_SECONDS = 21600
IMDS_ROLE_PATH = "/latest/meta-data/iam/security-credentials/"
# Renewed this long before they expire, so that none expires during a request.
EXPIRY_MARGIN = timedelta(minutes=5)


_NO_ANSWER = (OSError, BadAnswer, ValueError, LookupError, TypeError, OverflowError, RecursionError)


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
        self._from_service: tuple[datetime, Credentials] | None = None

    def current(self) -> Credentials:
        """Return credentials from the environment, else the file, else a pod's own, else instance metadata. Raises
        NoCredentials.
        """
        return self._in_environment() or self._in_file() or self._from_a_service()

    def forget(self) -> None:
        """Discard refused credentials; the next call looks for new ones."""
        self._from_file = None
        self._from_service = None

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
            credentials = self._read_file()
            # An unreadable file is retried: a change of its owner does not change its modification time.
            self._from_file = (version, credentials) if credentials else None
        return self._from_file[1] if self._from_file else None

    def _read_file(self) -> Credentials | None:
        try:
            return read_profile(self._path)
        except OSError as error:  # not for this client
            self._why_not_file = f"{self._path}: {error.strerror}"
        except BadProfile as error:  # read during a rotation
            self._why_not_file = str(error)
        return None

    def _from_a_service(self) -> Credentials:
        """Return what EKS Pod Identity has given until it expires; the instance metadata, where this is no such pod."""
        now = self._clock.utc_now()
        if self._from_service is None or self._from_service[0] - EXPIRY_MARGIN <= now:
            uri = self._environment.get(ENV_CONTAINER_URI)
            self._from_service = self._ask_pod_identity(uri) if uri else self._ask_metadata()
        return self._from_service[1]

    def _ask_pod_identity(self, uri: str) -> tuple[datetime, Credentials]:
        try:
            address = urlsplit(uri)
            if address.scheme != "http" or address.hostname not in _CONTAINER_HOSTS:
                raise ValueError("it is no address of EKS Pod Identity")
            with Path(self._environment[ENV_CONTAINER_TOKEN]).open(encoding="ascii") as file:
                token = file.read(_TOKEN_BYTES).strip()
            with closing(Connection(address.hostname, address.port or 80, IMDS_SECONDS)) as connection:
                return _read_answer(_ask(connection, "GET", address.path, {"Authorization": token}))
        except _NO_ANSWER as error:
            raise NoCredentials(f"no AWS credentials from EKS Pod Identity at {uri[:128]} ({error})") from error

    def _ask_metadata(self) -> tuple[datetime, Credentials]:
        if self._environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            raise NoCredentials(f"no AWS credentials in the environment or a file ({self._why_not_file})")
        connection = Connection(*self._imds, IMDS_SECONDS)
        try:
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(IMDS_TOKEN_SECONDS)}
            header = {"X-aws-ec2-metadata-token": _ask(connection, "PUT", "/latest/api/token", lifetime)}
            role = _ask(connection, "GET", IMDS_ROLE_PATH, header).split("\n")[0].strip()
            return _read_answer(_ask(connection, "GET", IMDS_ROLE_PATH + role, header))
        except _NO_ANSWER as error:
            where = f"the environment, a file ({self._why_not_file}) or the instance metadata ({error})"
            raise NoCredentials(f"no AWS credentials in {where}") from error
        finally:
            connection.close()


def _read_answer(text: str) -> tuple[datetime, Credentials]:
    """Return credentials and when they expire, as both services write them."""
    answer = json.loads(text)
    ends_at = datetime.fromisoformat(str(answer["Expiration"])).astimezone(UTC)
    return ends_at, Credentials(*(str(answer[key]) for key in ("AccessKeyId", "SecretAccessKey", "Token")))


def _ask(connection: Connection, method: str, path: str, headers: dict[str, str]) -> str:
    response = connection.request(method, path, headers)
    if response.status != http.HTTPStatus.OK:
        raise ValueError(f"{path} answered {response.status}")
    return response.body.decode("utf-8")
