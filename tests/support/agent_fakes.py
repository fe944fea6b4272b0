"""A clock, a bus and a node for the agent's tests."""

import json
import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.transport.aws_client import AwsClient
from nodeheal.agent.transport.bus import EventBus
from nodeheal.agent.transport.credentials import CredentialChain
from nodeheal.agent.transport.event import EventFactory, HealthEvent, Identity
from nodeheal.agent.transport.heartbeat_client import PublicKey
from nodeheal.contract.vocabulary import Family, Provider, SchedulerKind
from nodeheal.parsers.finding import Finding
from sandbox.toml import toml

IDENTITY = Identity("mi-0a1b2c3d4e5f67890", "training", "h100", Provider.hybrid, SchedulerKind.ECS)
CONFIG = AgentConfig(
    IDENTITY.node_id, IDENTITY.cluster, IDENTITY.pool, IDENTITY.provider, IDENTITY.scheduler, "eu-central-1"
)
START = datetime(2026, 11, 21, 5, 50, 31, tzinfo=UTC)
XID_79 = "NVRM: Xid (PCI:0000:b9:00): 79, pid=<unknown>, name=<unknown>, GPU has fallen off the bus."
BANNER = "Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org)"
PATIENCE_SECONDS = 20.0


def kernel_line(message: str, tag: str = "kernel") -> str:
    """A line as a syslog daemon writes it."""
    return f"2026-11-21T05:50:31.123456+00:00 gpu-7 {tag}: [  123.456789] {message}\n"


def xid(code: int) -> str:
    """A kernel line with this XID."""
    return kernel_line(f"NVRM: Xid (PCI:0000:b9:00): {code}, pid=1, name=python, something is wrong")


def xid_event(code: int, boot_id: str = "boot-1") -> HealthEvent:
    """A finding, ready to be spooled."""
    finding = Finding(Family.xid, str(code), "0000:b9:00.0", "a message")
    return EventFactory(IDENTITY, boot_id).found(
        finding, source="kernel_log", position=str(code), at=START, evidence="line"
    )


def eventually(claim: Callable[[], object]) -> None:
    """Wait until the claim holds; fail if it does not within the patience of a test."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not claim():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@dataclass
class FakeTime:
    """A clock that only the test moves."""

    seconds: float = 0.0
    set_by_seconds: float = 0.0  # how far somebody has set the time of day

    def clock(self) -> Clock:
        """The agent's view of it."""

        def elapsed() -> float:
            return self.seconds

        return Clock(lambda: START + timedelta(seconds=self.seconds + self.set_by_seconds), elapsed, elapsed)


@dataclass
class Answer:
    """What the fake bus says to a call: a status and, at 200, an error code for each entry by its position."""

    status: int = 200
    error: str = ""
    entry_errors: dict[int, str] = field(default_factory=dict)
    hangs_up: bool = False


USER_ID = f"AROAEXAMPLEEXAMPLE00:{IDENTITY.node_id}"
PUBLIC_KEY = PublicKey("0123456789abcdef", "A" * 43 + "=", 1_700_000_000)


def public_key() -> PublicKey:
    """Some public key."""
    return PUBLIC_KEY


class Plain:
    """Signs: leaves the event as it is, for tests that are about its way and not about its proof."""

    def prepare(self) -> None:
        """There is no key."""

    def sign(self, detail_type: str, event_json: str, signed_at: float) -> str:
        return event_json

    def close(self) -> None:
        """There is no connection."""


PLAIN = Plain()


def bus_at(url: str, credentials: CredentialChain, clock: Clock) -> EventBus:
    """The agent's side of a bus, which signs nothing."""
    return EventBus("nodeheal", AwsClient("events", "eu-central-1", url, credentials, clock), PLAIN)


class FakeTable:
    """What STS, DynamoDB, SNS and CloudWatch say to a node. `refusal`: an error code of all but STS instead."""

    def __init__(self) -> None:
        self.beats: list[dict[str, Any]] = []
        self.keys: list[dict[str, Any]] = []  # publications of keys, between beats
        self.item: dict[str, Any] = {}
        self.asked_who = 0
        self.published: list[str] = []
        self.metrics: list[dict[str, Any]] = []
        self.wanted: str | None = None
        self.refusal = ""
        self.node_id = IDENTITY.node_id  # who asks, by its credentials

    def answer(self, target: str, body: bytes) -> tuple[Answer, bytes]:
        """Take one call."""
        if b"Action=Publish" in body:
            if self.refusal:
                return Answer(403), f"<ErrorResponse><Code>{self.refusal}</Code></ErrorResponse>".encode()
            self.published.append(body.decode())
            return Answer(), b"<PublishResponse/>"
        if not target:
            self.asked_who += 1
            arn = f"arn:aws:sts::111122223333:assumed-role/nodeheal-node/{self.node_id}"
            user = f"{USER_ID.partition(':')[0]}:{self.node_id}"
            return Answer(), f"<R><Arn>{arn}</Arn><UserId>{user}</UserId></R>".encode()
        if self.refusal:
            return Answer(400), json.dumps({"__type": f"com.amazon#{self.refusal}", "message": "no"}).encode()
        if target == "GraniteServiceVersion20100801.PutMetricData":
            self.metrics.append(json.loads(body))
            return Answer(), b""
        update = json.loads(body)
        (self.beats if "#boot" in update["ExpressionAttributeNames"] else self.keys).append(update)
        for name, value in update["ExpressionAttributeValues"].items():
            self.item[name.removeprefix(":")] = value
        for name in update["UpdateExpression"].partition(" REMOVE ")[2].split(", "):
            self.item.pop(name.removeprefix("#"), None)
        wanted = {"wanted": {"N": self.wanted}} if self.wanted is not None else {}
        return Answer(), json.dumps({"Attributes": {**self.item, **wanted}}).encode()


def _opened(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with the event itself for its detail, where it came signed; `calls` have it as it came."""
    try:
        return {**entry, "Detail": json.dumps(json.loads(json.loads(entry["Detail"])["signed"])["event"])}
    except (KeyError, ValueError, TypeError):
        return entry


class FakeEventBridge:
    """EventBridge's PutEvents on loopback. It accepts everything, except what `answers` says, in order.

    The same address answers for STS and DynamoDB, which are `table`. With `tls` it speaks nothing else.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.table = FakeTable()
        self.calls: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.accepted: list[dict[str, Any]] = []
        self.answers: list[Answer] = []
        self.always: Answer | None = None
        self.connections = 0
        self.date = ""  # what it says the time is; nothing by default, as tests bring their own clocks
        self.refuses_strange_times = False  # as AWS does: signed five minutes ago or more, or in as many
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen, on the same port as before."""
        self._server = _Server(("127.0.0.1", self._port), self._handler())
        self._port = self._server.server_port
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def details(self, detail_type: str = "Node Health Reported") -> list[dict[str, Any]]:
        """The accepted events of one type, without heartbeats."""
        found = [json.loads(entry["Detail"]) for entry in self.accepted if entry["DetailType"] == detail_type]
        return [detail for detail in found if detail.get("family") != "heartbeat"]

    def codes(self) -> list[str]:
        """The codes of the accepted findings, in order."""
        return [detail["code"] for detail in self.details()]

    def answer(self, headers: dict[str, str], body: bytes) -> tuple[Answer, bytes]:
        """Take one call."""
        call = json.loads(body)
        self.calls.append(call)
        self.headers.append(headers)
        answer = self.always or (self.answers.pop(0) if self.answers else Answer())
        if answer.status != 200:
            return answer, json.dumps({"__type": f"com.amazon#{answer.error}", "message": "no"}).encode()
        results = [
            {"ErrorCode": answer.entry_errors[i]} if i in answer.entry_errors else {"EventId": "id"}
            for i in range(len(call["Entries"]))
        ]
        self.accepted += [_opened(e) for i, e in enumerate(call["Entries"]) if i not in answer.entry_errors]
        return answer, json.dumps({"FailedEntryCount": len(answer.entry_errors), "Entries": results}).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        bus = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                bus.connections += 1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                target = self.headers.get("X-Amz-Target", "")
                if bus.refuses_strange_times and _is_strange(self.headers["X-Amz-Date"]):
                    bus.date = format_datetime(datetime.now(UTC), usegmt=True)
                    answer, payload = Answer(403), b'{"__type": "com.amazon#InvalidSignatureException"}'
                elif target.startswith("AWSEvents."):
                    answer, payload = bus.answer(dict(self.headers), body)
                else:
                    answer, payload = bus.table.answer(target, body)
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)
                # Without a "Connection: close": the client believes that it may go on.
                self.close_connection = answer.hangs_up

            def do_GET(self) -> None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def date_time_string(self, timestamp: float | None = None) -> str:
                return bus.date

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        return Handler


def _is_strange(signed_at: str) -> bool:
    at = datetime.strptime(signed_at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return abs(datetime.now(UTC) - at) >= timedelta(minutes=5)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        self._open: list[Any] = []
        super().__init__(*args)
        # A connection may be gone before it is accepted: the server must not wait for another one then.
        self.socket.setblocking(False)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.append(request)
        super().process_request(request, client_address)

    def server_close(self) -> None:
        """An outage also ends the connections that are open."""
        super().server_close()
        for request in self._open:
            try:
                request.shutdown(2)
            except OSError:
                continue


@dataclass
class NodeFolder:
    """What an agent finds on its node."""

    directory: Path
    bus_url: str = "http://127.0.0.1:9"
    heartbeat_seconds: float = 60.0

    def __post_init__(self) -> None:
        self.kernel_log = self.directory / "kernel.log"
        self.boot_id_file = self.directory / "boot_id"
        self.state_dir = self.directory / "state"
        self.orders_dir = self.directory / "orders"
        self.config_file = self.directory / "agent.toml"
        self.systemd_log = self.directory / "systemd.log"  # what systemd's tools were called with
        self.boot_id_file.write_text("boot-1\n")
        self.kernel_log.write_text(kernel_line(BANNER))
        self.config_file.write_text(toml(self.config()))
        # The real ones would reboot the machine that runs the tests.
        for tool in ("systemd-run", "systemctl", "reboot", "shutdown"):
            self.has_tool(tool, f'echo "{tool} $*" >> "{self.systemd_log}"')

    def config(self) -> dict[str, object]:
        """The agent's configuration."""
        return {
            "node_id": IDENTITY.node_id,
            "cluster": IDENTITY.cluster,
            "pool": IDENTITY.pool,
            "provider": "hybrid",
            "scheduler": "ECS",
            "region": "eu-central-1",
            "endpoint_url": self.bus_url,
            "kernel_log": [{"kind": "file", "path": str(self.kernel_log)}],
            "boot_id_file": str(self.boot_id_file),
            "state_dir": str(self.state_dir),
            "orders_dir": str(self.orders_dir),
            "dcgm_drills_file": str(self.directory / "run" / "dcgm-drills.json"),
            "heartbeat_seconds": self.heartbeat_seconds,
            "address": "10.0.0.7",
            "accelerators": 8,
            "checks": [],  # of the machine that runs the tests
        }

    def environment(self) -> dict[str, str]:
        """What the agent's process sees."""
        return {
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL": self.bus_url,
            "NODEHEAL_AGENT_CONFIG": str(self.config_file),
            "PATH": f"{self.directory}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }

    def has_tool(self, name: str, script: str) -> None:
        """A tool on the node's PATH, as a shell script."""
        tool = self.directory / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)

    def logs(self, line: str) -> None:
        """The kernel says something."""
        with self.kernel_log.open("a") as log:
            log.write(line)

    def rotates_its_log(self) -> None:
        """The log is renamed, and a new one begun."""
        self.kernel_log.rename(self.kernel_log.with_name("kernel.log.1"))
        self.kernel_log.touch()

    def reboots(self, boot_id: str) -> None:
        """A new boot, with a fresh log that begins with the kernel's banner."""
        self.boot_id_file.write_text(boot_id)
        self.rotates_its_log()
        self.logs(kernel_line(BANNER))


KEYS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}
