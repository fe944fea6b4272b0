"""One sandbox: the emulator with our services in it, and the nodes. Import only with the emulator's environment set."""

import hashlib
import json
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

from ministack.core.responses import request_scope

from nodeheal.contract import names
from sandbox import patches, processes
from sandbox.aws_json import AwsError, Json, JsonService
from sandbox.ecs import Ecs
from sandbox.events import Event, EventPump
from sandbox.iam import ACCOUNT, REGION, caller_of, hybrid_node_credentials
from sandbox.node import AGENT, Faults, Node, NodeSpec
from sandbox.ssm import Ssm


class Cloud:
    """The nodes and the services that speak of them."""

    def __init__(self, directory: Path, endpoint_url: str, boot_seconds: float, sandbox_id: str) -> None:
        self._directory = directory
        self._endpoint_url = endpoint_url
        self._boot_seconds = boot_seconds
        self._sandbox_id = sandbox_id
        self._nodes: dict[str, Node] = {}
        self._node_tags: dict[str, dict[str, str]] = {}
        pump = EventPump(_in_account(patches.event_sink()))
        self._ecs = Ecs(self._nodes, pump.emit)
        self._ssm = Ssm(self._nodes, self._node_tags, pump.emit)

    def install(self) -> None:
        """Put our services into the emulator."""
        ecs = JsonService(
            "ecs", self._ecs.operations(), lambda headers: caller_of("ecs", headers), "InvalidParameterException"
        )
        ssm = JsonService(
            "ssm", self._ssm.operations(), lambda headers: caller_of("ssm", headers), "ValidationException"
        )
        patches.serve_ourselves(ecs, ssm)
        patches.authorise_ourselves(ssm)
        patches.take_loopback_for_tls()
        patches.provision_documents(self._ssm)
        patches.evaluate_timeouts()
        patches.fail_callbacks_whose_function_fails()
        patches.validate_configurations()

    def add_node(self, request: Json) -> Json:
        """Register a hybrid node with SSM and ECS and boot it.

        `request`: pool, gpus, cluster; role_arn (None: no credentials), tags, agent (a command instead of the agent).
        """
        node_id = f"mi-{secrets.token_hex(9)[:17]}"
        directory = self._directory / "nodes" / node_id
        directory.mkdir(parents=True)
        spec = NodeSpec(
            node_id=node_id,
            pool=request["pool"],
            cluster=request["cluster"],
            gpus=request["gpus"],
            address=self._address(),
            endpoint_url=self._endpoint_url,
            directory=directory,
            sandbox_id=self._sandbox_id,
        )
        role = request.get("role_arn")
        credentials = (lambda: hybrid_node_credentials(role, node_id)) if role else None
        node = Node(spec, self._boot_seconds, request.get("agent") or AGENT, credentials)
        node.when_down = lambda: self._ecs.agents.node_went_down(node_id)
        node.when_up = lambda: self._ecs.agents.node_came_up(node_id)
        self._nodes[node_id], self._node_tags[node_id] = node, request["tags"]
        node.start()
        instance = self._ecs.register_node(node_id, spec.cluster, spec.gpus, dict(request["tags"]))
        return {**self._describe(node), "container_instance_arn": instance.arn}

    def nodes(self, request: Json) -> Json:
        """Every node as it is now."""
        return {"nodes": [self._describe(node) for node in self._nodes.values()]}

    def inject(self, request: Json) -> Json:
        """Break a node: its tools fail, its kernel says so, its tasks abort (kill_rank). When the line was written."""
        node = self._node(request["node_id"])
        dcgm = request.get("dcgm", "fail")
        node.set_faults(Faults(dcgm=dcgm, persists=request["persists"], line=request["line"]))
        at = node.append_kernel_line(request["line"])
        aborted = self._ecs.agents.abort_all(node.spec.node_id) if request["kill_rank"] else 0
        return {"at": at, "aborted": aborted}

    def close(self) -> None:
        """Switch every node off."""
        for node in self._nodes.values():
            node.power_off()

    def _node(self, node_id: str) -> Node:
        found = self._nodes.get(node_id)
        if found is None:
            raise AwsError("NoSuchNode", f"there is no node {node_id}", status=404)
        return found

    def _address(self) -> str:
        """An address of the node's own where the loopback net has more than one: gangs of two sandboxes never meet."""
        if sys.platform != "linux":
            return "127.0.0.1"
        digest = hashlib.sha256(f"{self._sandbox_id}/{len(self._nodes)}".encode()).digest()
        return f"127.{1 + digest[0] % 254}.{digest[1]}.{1 + digest[2] % 254}"

    def _describe(self, node: Node) -> Json:
        return {
            "node_id": node.spec.node_id,
            "pool": node.spec.pool,
            "address": node.spec.address,
            "directory": str(node.directory),
            "boot_id": node.boot_id,
            "is_up": node.is_up,
        }


def managed_tags(pool: str) -> dict[str, str]:
    """The tags of a node that an operator has enrolled."""
    return {names.MANAGED_TAG: names.MANAGED_TAG_VALUE, "nodeheal:pool": pool}


def _in_account(sink: Callable[[Event], None]) -> Callable[[Event], None]:
    def put(event: Event) -> None:
        with request_scope(ACCOUNT, REGION):
            sink(event)

    return put


class Control:
    """The sandbox's own HTTP interface, beside the emulator's: /_sandbox/<verb>, with a secret header."""

    PREFIX = "/_sandbox/"

    def __init__(self, cloud: Cloud, secret: str) -> None:
        self._secret = secret
        self._verbs: dict[str, Callable[[Json], Json]] = {
            "ready": lambda request: {},
            "add_node": cloud.add_node,
            "nodes": cloud.nodes,
            "inject": cloud.inject,
        }

    def answer(self, path: str, secret: str, body: bytes) -> tuple[int, bytes]:
        """Status and JSON body."""
        verb = self._verbs.get(path.removeprefix(self.PREFIX))
        if not secrets.compare_digest(secret, self._secret):
            return 403, b"{}"
        if verb is None:
            return 404, b"{}"
        try:
            return 200, json.dumps(verb(json.loads(body or b"{}"))).encode()
        except AwsError as error:
            return error.status, json.dumps({"error": error.message}).encode()


def end_everything(sandbox_id: str, session: int) -> None:
    """Kill every process of the sandbox but this one."""
    processes.kill_all(
        lambda: {
            process.pid: process
            for process in processes.with_mark(processes.SANDBOX_MARK, sandbox_id) + processes.in_session(session)
        }.values()
    )
