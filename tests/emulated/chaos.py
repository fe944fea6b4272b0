"""A proxy between the functions and the emulator, where calls fail as they fail on AWS: refused, broken, or answered to
nobody. What happens to the n-th call of an operation is the seed's to say, whatever runs beside it.

Every fault here is one that nobody may notice in the end. What has failed is spared when it is asked again, whatever
others ask between, and that keeps it so: the SDK makes three attempts, and the steps repeat what was provably not
accepted.
"""

import http.client
import json
import random
import re
import threading
import urllib.parse
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from sandbox.client import Sandbox

# What boto3 calls the services, in the variables by which a function finds each. S3 is left out: what is signed for a
# node's upload names the endpoint, and a node is no function.
SERVICES = (
    "APPCONFIGDATA",
    "AUTO_SCALING",
    "DYNAMODB",
    "EC2",
    "ECS",
    "EVENTBRIDGE",
    "SECRETS_MANAGER",
    "SFN",
    "SNS",
    "SQS",
    "SSM",
)
# Sent once, and not repeated when nobody knows whether it was taken: of these only refusals leave the story as it is.
ACTS_ONCE = frozenset({"RebootInstances", "RunInstances", "SendCommand", "StartTask", "TerminateInstances"})
# An email whose answer is lost is sent twice: better than never, and not what is looked at here.
SENT_AT_LEAST_ONCE = frozenset({"Publish"})
THROTTLED, BROKEN, UNANSWERED = "throttled", "broken", "unanswered"
_CALL_SECONDS = 30.0
_HOP = {"connection", "transfer-encoding", "content-length"}


@dataclass
class Plan:
    """Which calls fail. `rate`: how many of all, spread evenly over the kinds of fault."""

    seed: str
    rate: float = 0.1
    calls: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)  # by kind of fault
    _spared: set[tuple[str, bytes]] = field(default_factory=set)  # failed, and not asked again yet
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, operation: str, asked: bytes = b"") -> str | None:
        """What becomes of this call, known again by what is asked; None: nothing is wrong with it."""
        with self._lock:
            self.calls[operation] += 1
            chance = random.Random(f"{self.seed}/{operation}/{self.calls[operation]}")
            if (operation, asked) in self._spared or chance.random() >= self.rate:
                self._spared.discard((operation, asked))
                return None
            kind = chance.choice(_kinds(operation))
            self._spared.add((operation, asked))
            self.done[kind] += 1
            return kind


def _kinds(operation: str) -> tuple[str, ...]:
    if operation in ACTS_ONCE:
        return (THROTTLED,)
    return (THROTTLED, BROKEN) if operation in SENT_AT_LEAST_ONCE else (THROTTLED, BROKEN, UNANSWERED)


class Chaos:
    """The proxy, for as long as the `with` block lasts; after it functions reach nobody. Keeps secrets it sees."""

    def __init__(self, sandbox: Sandbox, plan: Plan) -> None:
        self._sandbox, self.plan = sandbox, plan
        self.tokens: set[str] = set()  # of tasks that were resumed
        self.parameters: list[str] = []  # of commands
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"chaos": self}))
        self._server.daemon_threads = True

    def __enter__(self) -> "Chaos":
        threading.Thread(target=self._server.serve_forever, name="chaos", daemon=True).start()
        self._lead_functions(f"http://127.0.0.1:{self._server.server_address[1]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _lead_functions(self, endpoint: str) -> None:
        """Have every function call the services there."""
        functions = self._sandbox.client("lambda")
        there = {f"AWS_ENDPOINT_URL_{service}": endpoint for service in SERVICES}
        for function in functions.list_functions(MaxItems=100)["Functions"]:
            variables = {**function.get("Environment", {}).get("Variables", {}), **there}
            functions.update_function_configuration(
                FunctionName=function["FunctionName"], Environment={"Variables": variables}
            )

    def note(self, operation: str, body: bytes) -> None:
        """Remember what must not be found anywhere else."""
        if operation == "SendTaskSuccess":
            self.tokens.add(json.loads(body)["taskToken"])
        if operation == "SendCommand":
            self.parameters.append(body.decode())

    def forward(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """The emulator's own answer. The host stays the one that was signed for."""
        connection = http.client.HTTPConnection("127.0.0.1", self._sandbox.port, timeout=_CALL_SECONDS)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    chaos: Chaos
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        operation = operation_of(self.path, self.headers.get("X-Amz-Target", ""), body)
        self.chaos.note(operation, body)
        fault = self.chaos.plan.fault(operation, self.path.encode() + body)
        if fault == THROTTLED:
            self._refuse(400, "ThrottlingException")
        elif fault == BROKEN:
            self._refuse(500, "InternalServerError")
        else:
            status, headers, content = self.chaos.forward(self.command, self.path, self.headers, body)
            if fault == UNANSWERED:  # it was done, and whoever asked will never know
                self.close_connection = True
                return
            self._answer(status, headers, content)

    def _refuse(self, status: int, code: str) -> None:
        is_query = "x-www-form-urlencoded" in self.headers.get("Content-Type", "")
        xml = f"<Response><Errors><Error><Code>{code}</Code><Message>chaos</Message></Error></Errors></Response>"
        content = xml if is_query else json.dumps({"__type": code, "message": "chaos"})
        self._answer(status, [("x-amzn-ErrorType", code)], content.encode())

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # the base class names it so
        """Nothing: the emulator has a log."""


def operation_of(path: str, target: str, body: bytes) -> str:
    """What is asked for, by its API's own name; of an API that has paths, the path."""
    if target:
        return target.rpartition(".")[2]
    asked = re.search(rb"(?:^|&)Action=(\w+)", body)
    return asked[1].decode() if asked else urllib.parse.urlsplit(path).path.strip("/").partition("/")[0]
