"""Controls the sandbox from another process: for the demo and the tests."""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any

import boto3
from botocore.config import Config

from nodeheal.adapters.aws.owners import SnsOwners, filter_for
from nodeheal.contract import names
from nodeheal.domain.jobs.owner import Owner
from sandbox import deployment, processes
from sandbox.machine_orders import MachineOrders
from sandbox.mailbox import EVERY_OWNER, OWNERS, Mailbox
from sandbox.voices import Voices

Json = dict[str, Any]
REPOSITORY = Path(__file__).resolve().parent.parent
DEFAULT_CLUSTER = "training"  # as in cdk.json
START_SECONDS = 60.0
STOP_SECONDS = 8.0
CALL_SECONDS = 60.0
LOCK = "running.lock"
_LINK = re.compile(r"https://(?P<api>[a-z0-9]+)\.execute-api\.[^/\s]+(?P<path>/[^\s]*)")
_API = re.compile(r"https://(?P<api>[a-z0-9]+)\.execute-api\.")
PORTS_TRIED = 5  # between the search for a free port and the emulator's start, another process may take it


class SandboxError(Exception):
    """The sandbox cannot do what was requested; the message says why and where to look."""


class _PortTaken(SandboxError):
    """Another process has begun to listen there since the search."""


@dataclass(frozen=True)
class NodeHandle:
    """A simulated node."""

    node_id: str
    pool: str
    address: str
    directory: Path
    container_instance_arn: str


def is_running(directory: Path) -> bool:
    """Whether a cloud lives in this folder: it holds the folder's lock until it ends, however it ends."""
    try:
        with (directory / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


class Sandbox(MachineOrders):
    """An embedded cloud with simulated nodes, for the duration of the `with` block.

    `port`: None picks a free one; a busy one is refused by name. `directory` is never emptied: give a new one.
    """

    # Finds a synthesized app for an environment. Tests set it, because they deploy the same stack many times.
    assembly: Callable[[dict[str, str]], str] | None = None

    def __init__(
        self, directory: Path, port: int | None = None, boot_seconds: float = 3.0, cluster: str = DEFAULT_CLUSTER
    ) -> None:
        self.directory = directory.resolve()
        self._may_move = port is None
        self.port = free_port() if port is None else port
        self.cluster = cluster
        self.outputs: dict[str, str] = {}
        self._boot_seconds = boot_seconds
        self._secret = secrets.token_hex(16)
        self._id = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None
        self._mailbox: Mailbox | None = None
        self._owners_mailbox: Mailbox | None = None
        self._every_owner: Mailbox | None = None
        self.client = cache(self._client)
        self.voices = Voices(self)

    @property
    def endpoint_url(self) -> str:
        """The URL of every AWS service."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """The emulator's log."""
        return self.directory / "emulator.log"

    def __enter__(self) -> "Sandbox":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self.sweep()

    def sweep(self) -> None:
        """Delete each function's unpacked copy of the bundle, and the data of Kubernetes. Logs and nodes stay."""
        for folder in (self.directory / "tmp", self.directory / "s3", *self.directory.glob("*/etcd")):
            shutil.rmtree(folder, ignore_errors=True)

    def start(self) -> None:
        """Start the emulator and wait until it serves. Raises SandboxError."""
        for _ in range(PORTS_TRIED if self._may_move else 0):
            try:
                self._start()
                return
            except _PortTaken:
                self.port = free_port()
        self._start()

    def _start(self) -> None:
        if not _is_free(self.port):
            raise _PortTaken(f"port {self.port} on 127.0.0.1 is in use; choose another one")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = (self.directory / LOCK).open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "sandbox.emulator", "--port", str(self.port), "--dir", str(self.directory)]
        with (self.directory / "emulator.out").open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "--boot-seconds", str(self._boot_seconds)],
                cwd=REPOSITORY,
                env=self._emulator_environment(),
                # Closed at the end of this process, in every case: then the emulator ends everything.
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every process of the sandbox. Raises TimeoutError if one cannot be ended."""
        process, self._process = self._process, None
        if process is None:
            return
        # A second Ctrl-C must not leave half of it behind.
        with processes.no_interrupt():
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=STOP_SECONDS)
            processes.kill_all(lambda: processes.in_session(process.pid))
            processes.kill_all(lambda: processes.with_mark(processes.SANDBOX_MARK, self._id))
            process.wait()
            self._lock.close()

    def deploy(self, *options: str) -> float:
        """Deploy the stack as a user does, with `cdk deploy`; returns its seconds. The stack's outputs are in
        `outputs`.
        """
        started = time.monotonic()
        deployment.bootstrap(self.client("s3"), self.client("ssm"))
        environment = self.environment()
        app = "" if self.assembly is None or "-c" in options else self.assembly(environment)
        self.outputs = deployment.deploy(REPOSITORY, self.directory, environment, *options, app=app)
        return time.monotonic() - started

    def destroy(self) -> None:
        """Remove the stack with `cdk destroy`."""
        deployment.destroy(REPOSITORY, self.directory, self.environment())

    def add_node(
        self,
        pool: str = "demo",
        gpus: int = 2,
        *,
        tags: dict[str, str] | None = None,
        agent: list[str] | None = None,
        heartbeat_seconds: float = 60.0,
        checks: Sequence[str] = (),
    ) -> NodeHandle:
        """Register a simulated node with SSM and ECS and boot it. Its role is the deployed node role, if there is one.

        `tags`: instead of the tag that permits nodeheal to act. `agent`: a command to run instead of the agent, for
        tests. `checks`: those of its agent.
        """
        managed = {names.MANAGED_TAG: names.MANAGED_TAG_VALUE}
        request = {
            "pool": pool,
            "gpus": gpus,
            "cluster": self.cluster,
            "role_arn": self.outputs.get("NodeRoleArn"),
            "tags": managed if tags is None else tags,
            "agent": agent,
            "heartbeat_seconds": heartbeat_seconds,
            "checks": list(checks),
        }
        made = self._call("add_node", request)
        return NodeHandle(
            made["node_id"], made["pool"], made["address"], Path(made["directory"]), made["container_instance_arn"]
        )

    def add_slurm(
        self, pool: str, count: int, gpus: int = 2, *, checks: Sequence[str] = (), hyperpod: bool = False
    ) -> tuple[list[NodeHandle], Path]:
        """Create a Slurm cluster `slurm-POOL` with its controller and nodes; returns the nodes and its slurm.conf."""
        request = {
            "pool": pool,
            "gpus": gpus,
            "cluster": f"slurm-{pool}",
            "count": count,
            "role_arn": self.outputs.get("NodeRoleArn"),
            "tags": {names.MANAGED_TAG: names.MANAGED_TAG_VALUE},
            "checks": list(checks),
            "hyperpod": hyperpod,
        }
        made = self._call("add_slurm", request)
        nodes = [NodeHandle(one["node_id"], pool, one["address"], Path(one["directory"]), "") for one in made["nodes"]]
        return nodes, Path(made["configuration"])

    def create_eks_cluster(self, name: str) -> None:
        """Create an EKS cluster; its control plane starts in the background, in some ten seconds."""
        self._call("create_eks_cluster", {"name": name})

    def add_kubernetes(
        self,
        cluster: str,
        pool: str,
        count: int,
        gpus: int = 2,
        *,
        checks: Sequence[str] = (),
        is_unchecked: bool = False,
        hyperpod: bool = False,
    ) -> tuple[list[NodeHandle], Path]:
        """Give an EKS cluster nodes with the agent, in a group of EC2 or as instances of HyperPod; returns the nodes,
        which boot in the background, and an administrator's kubeconfig.

        `is_unchecked`: they register with the taint of new nodes.
        """
        request = {
            "pool": pool,
            "gpus": gpus,
            "cluster": cluster,
            "count": count,
            "role_arn": self.outputs.get("NodeRoleArn"),
            "tags": {names.MANAGED_TAG: names.MANAGED_TAG_VALUE},
            "checks": list(checks),
            "data": {"InstanceType": "p5.48xlarge"},
            "is_unchecked": is_unchecked,
            "hyperpod": hyperpod,
        }
        made = self._call("add_kubernetes", request)
        nodes = [NodeHandle(one["node_id"], pool, one["address"], Path(one["directory"]), "") for one in made["nodes"]]
        return nodes, Path(made["kubeconfig"])

    def nodes(self) -> list[Json]:
        """Return every node as it is now: node_id, pool, address, directory, boot_id, is_up."""
        found: list[Json] = self._call("nodes", {})["nodes"]
        return found

    def inject(self, node: NodeHandle, line: str, *, persists: bool, kill_rank: bool, of_host: bool = False) -> float:
        """Break a node; returns the time (seconds since the epoch) of the line in its kernel log.

        `persists`: a reboot does not help; `of_host`: but another host does. `kill_rank`: the node's tasks abort, as
        CUDA processes do.
        """
        request = {"node_id": node.node_id, "line": line, "persists": persists, "of_host": of_host}
        return float(self._call("inject", {**request, "kill_rank": kill_rank})["at"])

    def subscribe_mailbox(self) -> None:
        """Subscribe a queue to the alerts topic, in the place of a person's email; once."""
        if self._mailbox is not None:
            return
        self._mailbox = Mailbox(self.client("sqs"))
        self._mailbox.subscribe(self.client("sns"), self.outputs["TopicArn"])

    def subscribe_owner(self, owner: Owner) -> None:
        """Subscribe a queue for the owner of a job, with the filter of `nodeheal owners subscribe`; only the first call
        counts.
        """
        if self._owners_mailbox is not None:
            return
        # What `nodeheal owners subscribe` asks for; in the sandbox every address confirms at once.
        SnsOwners(self.client("sns"), self.outputs["OwnersTopicArn"]).subscribe(owner)
        self._owners_mailbox = Mailbox(self.client("sqs"), OWNERS)
        self._owners_mailbox.subscribe(self.client("sns"), self.outputs["OwnersTopicArn"], filter_for(owner))

    def mails(self) -> list[tuple[str, str]]:
        """Return (subject, body) of every email to the operators so far, in order of arrival."""
        return self._mailbox.read() if self._mailbox else []

    def owner_mails(self) -> list[tuple[str, str]]:
        """Return (subject, body) of every email to the owner so far."""
        return self._owners_mailbox.read() if self._owners_mailbox else []

    def gets_emails(self, owner: str) -> bool:
        """Whether the owner of a job is subscribed, with this address."""
        return SnsOwners(self.client("sns"), self.outputs["OwnersTopicArn"]).is_confirmed(Owner(owner))

    def all_mails(self) -> list[tuple[str, str, str]]:
        """Every email to the operators and to the owners of jobs, in order of their sending: subject, body, and the
        owner's address, if it is to one. Links lead to this cloud.

        Emails to owners are collected from the first call on.
        """
        if self._every_owner is None:
            self._every_owner = Mailbox(self.client("sqs"), EVERY_OWNER)
            self._every_owner.subscribe(self.client("sns"), self.outputs["OwnersTopicArn"])
        boxes = filter(None, (self._mailbox, self._owners_mailbox, self._every_owner))
        mails = sorted(mail for box in boxes for mail in box.read_dated())
        found = dict.fromkeys((subject, body, owner) for _, subject, body, owner in mails)
        return [(subject, _LINK.sub(self._local, body), owner) for subject, body, owner in found]

    def _local(self, link: "re.Match[str]") -> str:
        """The address at which the emulator serves what the link names, for a browser on this machine."""
        return f"{self.endpoint_url}/_aws/execute-api/{link['api']}{link['path']}"

    def open_link(self, link: str, form: dict[str, str] | None = None) -> tuple[int, str]:
        """Open a link of an email as a browser does, or send its page's form; returns status and page."""
        parts = urllib.parse.urlsplit(link)
        api = (parts.hostname or "").partition(".")[0]
        # The link has the real domain of API Gateway; here the emulator answers for it.
        headers = {"Host": f"{api}.execute-api.127.0.0.1:{self.port}"}
        data = urllib.parse.urlencode(form).encode() if form is not None else None
        call = urllib.request.Request(f"{self.endpoint_url}{parts.path}?{parts.query}", data, headers)
        try:
            with _no_proxy.open(call, timeout=CALL_SECONDS) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")

    def fire_schedules(self, *, is_waiting: bool = False) -> None:
        """Send the pings of the deployed schedules now: EventBridge would some minutes after the deployment.

        `is_waiting`: wait until each function has answered.
        """
        events, functions = self.client("events"), self.client("lambda")
        kind = "RequestResponse" if is_waiting else "Event"
        for rule in events.list_rules()["Rules"]:
            targets = events.list_targets_by_rule(Rule=rule["Name"])["Targets"] if "ScheduleExpression" in rule else []
            for target in targets:
                payload = target.get("Input", "{}").encode()
                functions.invoke(FunctionName=target["Arn"], InvocationType=kind, Payload=payload)

    def environment(self) -> dict[str, str]:
        """Return the environment in which AWS tools use the sandbox, as its root user."""
        # Compiled modules are kept: functions start cold, several a second, and compiling is half of a start.
        foreign = ("AWS_", "CDK_", "PYTHONDONTWRITEBYTECODE")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        return {
            **kept,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            **self._acts_url(),
        }

    def _acts_url(self) -> dict[str, str]:
        """Where this cloud serves the API of acts, once it is deployed: no name server knows the host of its output."""
        found = _API.match(self.outputs.get(names.ACTS_OUTPUT, ""))
        return {names.ACTS_URL_VARIABLE: f"{self.endpoint_url}/_aws/execute-api/{found['api']}"} if found else {}

    def _client(self, service: str) -> Any:
        return boto3.client(
            service,  # type: ignore[call-overload]  # any service: the stubs know each name apart
            endpoint_url=self.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            # The emulator refuses what AWS would; in a test, the request must get that far.
            config=Config(
                retries={"max_attempts": 2},
                connect_timeout=5,
                read_timeout=CALL_SECONDS,
                parameter_validation=False,
            ),
        )

    def _emulator_environment(self) -> dict[str, str]:
        own = {"NODEHEAL_SANDBOX_SECRET": self._secret, processes.SANDBOX_MARK: self._id}
        return {**self.environment(), **own, "PYTHONPATH": str(REPOSITORY)}

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                if not _is_free(self.port):
                    raise _PortTaken(f"port {self.port} on 127.0.0.1 is in use; choose another one")
                raise SandboxError(f"the emulator ended at start; see {self.directory / 'emulator.out'} and {self.log}")
            with contextlib.suppress(OSError):
                self._call("ready", {})
                return
            time.sleep(0.05)
        raise SandboxError(f"the emulator did not serve within {START_SECONDS:.0f} s; see {self.log}")

    def _call(self, verb: str, request: Json) -> Json:
        headers = {"X-Sandbox-Secret": self._secret, "Content-Type": "application/json"}
        url = f"{self.endpoint_url}/_sandbox/{verb}"
        call = urllib.request.Request(url, json.dumps(request).encode(), headers, method="POST")
        try:
            with _no_proxy.open(call, timeout=CALL_SECONDS) as response:
                answer: Json = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.FORBIDDEN:
                raise _PortTaken(f"another sandbox serves on port {self.port} of 127.0.0.1") from error
            raise SandboxError(f"{verb}: {error.read().decode(errors='replace')}") from error


# The sandbox is on this machine: requests must not go through a proxy of the environment.
_no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
