"""Credentials are found where AWS puts them, and again when they rotate."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from nodeheal.agent.transport.credentials import CredentialChain, NoCredentials
from nodeheal.agent.transport.sigv4 import Credentials
from tests.support.agent_fakes import KEYS, FakeTime


class FakeMetadata:
    """IMDSv2: no token, no answer."""

    def __init__(self) -> None:
        self.access_key = "ASIA1"
        self.asked = 0
        metadata = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                self._answer("imds-token" if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else None)

            def do_GET(self) -> None:
                if self.headers["X-aws-ec2-metadata-token"] != "imds-token":
                    self._answer(None)
                elif self.path.endswith("/security-credentials/"):
                    self._answer("nodeheal-node\n")
                else:
                    self._answer(metadata.credentials(self.path.rpartition("/")[2]))

            def _answer(self, text: str | None) -> None:
                body = (text or "").encode()
                self.send_response(401 if text is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def credentials(self, role: str) -> str:
        assert role == "nodeheal-node"
        self.asked += 1
        return json.dumps(
            {
                "AccessKeyId": self.access_key,
                "SecretAccessKey": "s",
                "Token": "t",
                "Expiration": "2026-11-21T11:50:31Z",
            }
        )


@pytest.fixture
def metadata() -> Iterator[FakeMetadata]:
    fake = FakeMetadata()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def credentials_file(path: Path, access_key: str, age_seconds: int = 0) -> None:
    path.write_text(
        f"[default]\naws_access_key_id = {access_key}\naws_secret_access_key = 50%off\naws_session_token = t=\n"
    )
    moment = 1_800_000_000 - age_seconds
    os.utime(path, (moment, moment))


def test_the_environment_comes_first(tmp_path: Path, time: FakeTime) -> None:
    credentials_file(tmp_path / "credentials", "FILE")
    chain = CredentialChain(time.clock(), {**KEYS, "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")})

    assert chain.current() == Credentials("AKID", "secret", "token")


def test_the_shared_file_is_read_again_when_it_rotates(tmp_path: Path, time: FakeTime) -> None:
    path = tmp_path / ".aws" / "credentials"
    path.parent.mkdir()
    credentials_file(path, "OLD", age_seconds=60)
    chain = CredentialChain(time.clock(), {"HOME": str(tmp_path)})
    assert chain.current() == Credentials("OLD", "50%off", "t=")

    credentials_file(path, "NEW")

    assert chain.current().access_key == "NEW"


def test_instance_metadata_is_asked_once_until_shortly_before_the_end(
    tmp_path: Path, time: FakeTime, metadata: FakeMetadata
) -> None:
    chain = CredentialChain(time.clock(), {"HOME": str(tmp_path)}, ("127.0.0.1", metadata.server.server_port))
    assert chain.current() == Credentials("ASIA1", "s", "t")
    metadata.access_key = "ASIA2"
    assert chain.current().access_key == "ASIA1"

    time.seconds = 6 * 3600 - 60

    assert chain.current().access_key == "ASIA2"
    assert metadata.asked == 2


@pytest.mark.parametrize(
    "answer",
    [
        "[]",
        '"no"',
        "[" * 20_000,
        '{"AccessKeyId": "A", "SecretAccessKey": "s", "Token": "t", "Expiration": 5}',
        '{"AccessKeyId": "A", "SecretAccessKey": "s", "Token": "t", "Expiration": "0001-01-01T00:00:00+23:00"}',
    ],
)
def test_instance_metadata_that_makes_no_sense_is_no_credentials(
    tmp_path: Path, time: FakeTime, metadata: FakeMetadata, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(metadata, "credentials", lambda role: answer)
    chain = CredentialChain(time.clock(), {"HOME": str(tmp_path)}, ("127.0.0.1", metadata.server.server_port))

    with pytest.raises(NoCredentials):
        chain.current()


def test_the_end_that_instance_metadata_tells_may_lack_its_zone(
    tmp_path: Path, time: FakeTime, metadata: FakeMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"AccessKeyId": "A", "SecretAccessKey": "s", "Token": "t", "Expiration": "2027-11-21T11:50:31"}
    monkeypatch.setattr(metadata, "credentials", lambda role: json.dumps(answer))
    chain = CredentialChain(time.clock(), {"HOME": str(tmp_path)}, ("127.0.0.1", metadata.server.server_port))

    assert chain.current().access_key == "A"
    assert chain.current().access_key == "A"


def test_refused_credentials_are_found_anew(tmp_path: Path, time: FakeTime, metadata: FakeMetadata) -> None:
    chain = CredentialChain(time.clock(), {"HOME": str(tmp_path)}, ("127.0.0.1", metadata.server.server_port))
    chain.current()
    metadata.access_key = "ASIA2"

    chain.forget()

    assert chain.current().access_key == "ASIA2"


class PodIdentity:
    """The agent of EKS Pod Identity on a node: credentials for a pod's token."""

    def __init__(self, folder: Path) -> None:
        self.access_key, self.tokens = "ASIAPOD", list[str]()
        identity = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                identity.tokens.append(self.headers["Authorization"])
                is_right = (self.path, self.headers["Authorization"]) == ("/v1/credentials", "pod-token")
                answer = {"AccessKeyId": identity.access_key, "SecretAccessKey": "s", "Token": "t"}
                body = json.dumps({**answer, "Expiration": "2026-11-21T11:50:31Z"}).encode()
                self.send_response(200 if is_right else 400)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        (folder / "token").write_text("pod-token\n")
        self.environment = {
            "HOME": str(folder),
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{self.server.server_port}/v1/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(folder / "token"),
        }


@pytest.fixture
def pod_identity(tmp_path: Path) -> Iterator[PodIdentity]:
    identity = PodIdentity(tmp_path)
    yield identity
    identity.server.shutdown()
    identity.server.server_close()


def test_a_pods_own_credentials_are_asked_for_with_its_token_until_shortly_before_they_end(
    time: FakeTime, pod_identity: PodIdentity, metadata: FakeMetadata
) -> None:
    chain = CredentialChain(time.clock(), pod_identity.environment, ("127.0.0.1", metadata.server.server_port))
    assert [chain.current() for _ in range(2)] == [Credentials("ASIAPOD", "s", "t")] * 2
    assert pod_identity.tokens == ["pod-token"]
    pod_identity.access_key = "ASIAPOD2"

    time.seconds = 6 * 3600 - 60

    assert chain.current().access_key == "ASIAPOD2"
    assert metadata.asked == 0


def test_where_a_pods_own_credentials_fail_those_of_its_node_are_not_taken(
    tmp_path: Path, time: FakeTime, pod_identity: PodIdentity, metadata: FakeMetadata
) -> None:
    (tmp_path / "token").write_text("expired")
    chain = CredentialChain(time.clock(), pod_identity.environment, ("127.0.0.1", metadata.server.server_port))

    with pytest.raises(NoCredentials, match=r"EKS Pod Identity at .* answered 400"):
        chain.current()
    assert metadata.asked == 0


@pytest.mark.parametrize(
    "uri",
    ["http://example.com/v1/credentials", "https://127.0.0.1/v1/credentials", "file:///etc/passwd", "http://[::1"],
)
def test_a_pods_token_goes_to_no_other_host(time: FakeTime, pod_identity: PodIdentity, uri: str) -> None:
    environment = {**pod_identity.environment, "AWS_CONTAINER_CREDENTIALS_FULL_URI": uri}

    with pytest.raises(NoCredentials):
        CredentialChain(time.clock(), environment).current()
    assert pod_identity.tokens == []


def test_without_any_it_is_said_where_was_looked(tmp_path: Path, time: FakeTime) -> None:
    chain = CredentialChain(time.clock(), {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"})

    with pytest.raises(NoCredentials, match=str(tmp_path / ".aws" / "credentials")):
        chain.current()


def test_a_file_in_the_middle_of_its_rotation_is_no_credentials(tmp_path: Path, time: FakeTime) -> None:
    path = tmp_path / "credentials"
    path.write_text("[default]\naws_access_key_id = AKID\n")
    environment = {"AWS_SHARED_CREDENTIALS_FILE": str(path), "AWS_EC2_METADATA_DISABLED": "true"}

    with pytest.raises(NoCredentials, match=f"{path}: .*'aws_secret_access_key'.* is missing"):
        CredentialChain(time.clock(), environment).current()


def test_a_file_that_may_not_be_read_is_told_and_read_as_soon_as_it_may(
    tmp_path: Path, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "credentials"
    credentials_file(path, "AKID1")
    chain = CredentialChain(
        time.clock(), {"AWS_SHARED_CREDENTIALS_FILE": str(path), "AWS_EC2_METADATA_DISABLED": "true"}
    )

    def refuses(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", refuses)
        with pytest.raises(NoCredentials, match=f"{path}: Permission denied"):
            chain.current()

    assert chain.current().access_key == "AKID1"
