"""The download of the wheelhouse: whose credentials, from where, and what is said when it fails."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeheal.agent.transport import fetch_wheelhouse
from nodeheal.agent.transport.fetch_wheelhouse import NotFetched, WheelhouseLocation, fetch, main, node_credentials
from nodeheal.agent.transport.sigv4 import Credentials

PLACE = WheelhouseLocation("wheels", "0a1b.zip", "eu-central-1", "amazonaws.com")
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret"}
NO_FILE = {"AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials"}


class Server(http.server.ThreadingHTTPServer):
    """Answers each request with the next of its answers, and keeps the last one."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, str]] = [(200, "the wheels")]
        self.seen: list[tuple[str, str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        self.server.seen.append(
            (self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
        )
        status, body = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_PUT = _answer

    def log_message(self, *_: object) -> None:
        """Not in the output of tests."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fetch_wheelhouse, "PAUSE_SECONDS", 0.0)
    running = Server()
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def test_the_object_is_asked_for_in_its_region() -> None:
    assert PLACE.url({}) == "https://wheels.s3.eu-central-1.amazonaws.com/0a1b.zip"


def test_the_object_is_downloaded_with_a_signature(server: Server, tmp_path: Path) -> None:
    fetch(PLACE, tmp_path / "wheels.zip", {**KEYS, "AWS_ENDPOINT_URL_S3": server.url})

    assert (tmp_path / "wheels.zip").read_text() == "the wheels"
    [(method, path, headers)] = server.seen
    assert (method, path) == ("GET", "/wheels/0a1b.zip")
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "/eu-central-1/s3/aws4_request" in headers["authorization"]


def test_a_hybrid_node_uses_the_file_of_its_ssm_agent(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = AKID\naws_secret_access_key = s\naws_session_token = t\n")

    assert node_credentials({"AWS_SHARED_CREDENTIALS_FILE": str(file)}) == Credentials("AKID", "s", "t")


def test_a_machine_of_ec2_uses_its_role(server: Server) -> None:
    keys = {"AccessKeyId": "AKID", "SecretAccessKey": "s", "Token": "t"}
    server.answers = [(200, "a-token"), (200, "nodeheal-node"), (200, json.dumps(keys))]

    found = node_credentials({**NO_FILE, "AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url})

    assert found == Credentials("AKID", "s", "t")
    assert [(method, path) for method, path, _ in server.seen] == [
        ("PUT", "/latest/api/token"),
        ("GET", "/latest/meta-data/iam/security-credentials/"),
        ("GET", "/latest/meta-data/iam/security-credentials/nodeheal-node"),
    ]
    assert {headers.get("x-aws-ec2-metadata-token") for _, _, headers in server.seen[1:]} == {"a-token"}


def test_a_node_without_credentials_is_told_where_they_were_looked_for(server: Server) -> None:
    server.answers = [(404, "")]

    with pytest.raises(NotFetched, match=r"/nonexistent/credentials.*instance metadata: HTTP Error 404"):
        node_credentials({**NO_FILE, "AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url})


def test_a_busy_s3_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.answers = [(503, "<Error><Code>SlowDown</Code></Error>"), (200, "the wheels")]

    fetch(PLACE, tmp_path / "wheels.zip", {**KEYS, "AWS_ENDPOINT_URL_S3": server.url})

    assert (tmp_path / "wheels.zip").read_text() == "the wheels"


def test_an_s3_that_stays_busy_is_given_up(server: Server, tmp_path: Path) -> None:
    server.answers = [(503, "<Error><Code>SlowDown</Code></Error>")]

    with pytest.raises(NotFetched, match="503 SlowDown"):
        fetch(PLACE, tmp_path / "wheels.zip", {**KEYS, "AWS_ENDPOINT_URL_S3": server.url})

    assert len(server.seen) == 3


def test_a_role_without_the_policy_is_told_which_one_it_needs(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = [(403, "<Error><Code>AccessDenied</Code></Error>")]
    monkeypatch.setattr(fetch_wheelhouse, "DENIED_FOR_SECONDS", 0.0)
    for name, value in {**KEYS, "AWS_ENDPOINT_URL_S3": server.url}.items():
        monkeypatch.setenv(name, value)

    code = main(["wheels", "0a1b.zip", "eu-central-1", "amazonaws.com", str(tmp_path / "wheels.zip")])

    assert code == 1
    told = capsys.readouterr().err
    assert "403 AccessDenied; does the role of this node have the policy AgentDownloadPolicyArn" in told
    assert "a KMS key of your own, name it under staging_key" in told
    assert "the bucket's allow the role" in told
    assert len(server.seen) == 1


def test_a_role_that_has_just_got_the_policy_is_tried_for_a_minute(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IAM is eventually consistent."""
    denied = (403, "<Error><Code>AccessDenied</Code></Error>")
    server.answers = [*[denied] * 6, (503, "<Error><Code>SlowDown</Code></Error>"), (200, "the wheels")]
    monkeypatch.setattr(fetch_wheelhouse, "DENIED_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(fetch_wheelhouse, "PAUSE_SECONDS", 0.0)

    fetch(PLACE, tmp_path / "wheels.zip", {**KEYS, "AWS_ENDPOINT_URL_S3": server.url})

    assert (tmp_path / "wheels.zip").read_text() == "the wheels"
    assert fetch_wheelhouse.DENIED_FOR_SECONDS == 60


def test_a_network_without_a_way_to_s3_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_wheelhouse, "PAUSE_SECONDS", 0.0)

    with pytest.raises(NotFetched, match=r"http://127\.0\.0\.1:9/wheels/0a1b\.zip: .*refused"):
        fetch(PLACE, tmp_path / "wheels.zip", {**KEYS, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"})
