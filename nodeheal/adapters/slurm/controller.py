"""Runs commands on the machine of a Slurm controller, by SSM: the function sends one command and waits for its output.

The machine has the tag `nodeheal:slurm-controller` with the cluster's name. Of several, the first one that SSM reaches
is used: Slurm's own commands find the active controller.
"""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.adapters.aws.ssm import SHORTEST_DELIVERY_SECONDS, STATES, invocation
from nodeheal.contract import names
from nodeheal.contract.json_text import read_json
from nodeheal.contract.type_adapters import adapter_of
from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.errors import NotAccepted, NotEnrolled, NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.parsers.slurm import SlurmNode
from nodeheal.parsers.slurm_report import SlurmReport, unpack
from nodeheal.ports.clock import Clock
from nodeheal.ports.compute import Machines

if TYPE_CHECKING:
    from types_boto3_ssm import SSMClient

DOCUMENT = "slurm"
EVERY_NODE = "none"  # where the document expects an address
Read = TypeVar("Read")
# A function waits for so long. After that the machine itself refuses the command.
ANSWER_SECONDS = 15.0
_POLL_SECONDS = 0.25


class SlurmController:
    """Queries the controllers of Slurm clusters. `once` sends a call that acts a single time."""

    def __init__(
        self,
        client: "Callable[[], SSMClient]",
        once: "Callable[[], SSMClient]",
        ec2: "Callable[[], Any]",
        hyperpod: Machines,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._once, self._ec2, self._clock, self._sleep = client, once, ec2, clock, sleep
        self._hyperpod = hyperpod

    def address_of(self, node: Node) -> str:
        """Return the node's address; empty: not known. The node's own report is not used, since it could name another
        node's address.

        EC2 and HyperPod know it for their machines. For a hybrid node SSM has the SSM agent's report, which root there
        can change: docs/security.md describes the consequences.
        """
        if node.provider is Provider.ec2:
            of_machine = [{"Name": "instance-id", "Values": [node.instance_id]}]
            with throttles_named("DescribeInstances"):
                reservations = self._ec2().describe_instances(Filters=of_machine)["Reservations"]
            return str(reservations[0]["Instances"][0].get("PrivateIpAddress", "")) if reservations else ""
        if node.provider is Provider.hyperpod:
            machine = self._hyperpod.describe(node.instance_id)
            return machine.address if machine is not None else ""
        known = self._described("InstanceIds", [node.instance_id])
        return str(known[0].get("IPAddress", "")) if known else ""

    def about(self, node: Node, verb: str, **options: str) -> Mapping[str, Any]:
        """Return Slurm's state of the node. Raises NotFound, NotAccepted."""
        return self.about_address(node, self.address_of(node), verb, **options)

    def about_address(self, node: Node, address: str, verb: str, **options: str) -> Mapping[str, Any]:
        """Return Slurm's state of a node at a known address. Raises NotFound, NotAccepted."""
        nodes: Mapping[str, Mapping[str, Any]] = {}
        if address:
            nodes = self.ask(node.cluster.name, verb, address, **options)["nodes"]
        if address not in nodes:
            raise self.not_at(node, address)
        return nodes[address]

    @staticmethod
    def not_at(node: Node, address: str) -> NotFound:
        """Return the error that names a node which its cluster does not have at this address; empty: none is known."""
        where = f"at {address}, the address of {node.instance_id}" if address else f"like {node.instance_id}"
        problem = f"Slurm cluster {node.cluster.name} has no node {where}, or more than one"
        return NotFound(f"{problem}: there `sinfo --Node --format='%N %o'` shows its addresses")

    def node_at(self, cluster: str, address: str) -> SlurmNode | None:
        """Return Slurm's node at the address. None: it has none, or more than one. Raises NotFound, NotAccepted."""
        entry = self.ask(cluster, "nodes", address)["nodes"].get(address)
        return None if entry is None else _read(SlurmNode, entry, cluster)

    def report(self, cluster: str) -> SlurmReport:
        """Return the nodes out of service, and the jobs that Slurm knows, by one command. Raises NotFound,
        NotAccepted.
        """
        answer = self.ask(cluster, "report", EVERY_NODE)
        try:
            named = unpack(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise NotAccepted(f"the answer of the Slurm controller of {cluster} is not valid: {error!r}") from error
        return _read(SlurmReport, named, cluster)

    def ask(self, cluster: str, verb: str, address: str, **options: str) -> Mapping[str, Any]:
        """Run the command and return the agent's answer. Raises NotFound, NotAccepted (a retry is harmless)."""
        machine = self._machine(cluster)
        expires_at = self._clock() + timedelta(seconds=ANSWER_SECONDS)
        parameters = {
            "Verb": verb,
            "Addresses": address,
            "ExpiresAt": str(int(expires_at.timestamp())),
            **options,
        }
        command = self._send(machine, parameters)
        waited = 0.0
        while waited < ANSWER_SECONDS:
            self._sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
            answer = invocation(self._client(), command, machine)
            if answer is not None and STATES.get(answer["Status"]) != "PENDING":
                return _answer(answer, cluster, verb)
        raise NotAccepted(f"the Slurm controller of {cluster} ({machine}) has not answered within {ANSWER_SECONDS:g} s")

    def machines(self, cluster: str) -> Mapping[str, bool]:
        """Return the machines with the cluster's tag, by id, and whether SSM reaches each."""
        tagged = self._described(f"tag:{names.SLURM_CONTROLLER_TAG}", [cluster])
        return {known["InstanceId"]: known.get("PingStatus") == "Online" for known in tagged}

    def _machine(self, cluster: str) -> str:
        tagged = self.machines(cluster)
        online = sorted(machine for machine, is_online in tagged.items() if is_online)
        if online:
            return online[0]
        if tagged:
            raise NotAccepted(f"SSM does not reach the Slurm controller of {cluster}: {', '.join(sorted(tagged))}")
        raise NotFound(
            f"no machine has the tag of the Slurm controller of cluster {cluster}: tag it with "
            f"{names.SLURM_CONTROLLER_TAG} = {cluster} (docs/slurm.md)"
        )

    def _described(self, key: str, values: list[str]) -> list[Any]:
        with throttles_named("DescribeInstanceInformation"):
            pages = self._client().get_paginator("describe_instance_information")
            filters: Any = [{"Key": key, "Values": values}]
            return [machine for page in pages.paginate(Filters=filters) for machine in page["InstanceInformationList"]]

    def _send(self, machine: str, parameters: Mapping[str, str]) -> str:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("SendCommand"):
                answer = self._once().send_command(
                    DocumentName=names.document(DOCUMENT),
                    InstanceIds=[machine],
                    TimeoutSeconds=SHORTEST_DELIVERY_SECONDS,
                    Parameters={name: [value] for name, value in parameters.items()},
                )
        except ClientError as error:
            if code_of(error) == "AccessDeniedException":
                raise NotEnrolled(
                    f"SSM denies a command to {machine}: docs/slurm.md says which tag it needs"
                ) from error
            if code_of(error) != "InvalidInstanceId":
                raise
            raise NotAccepted(f"SSM accepts no command for the Slurm controller {machine}: not connected") from error
        return answer["Command"]["CommandId"]


def _read(kind: type[Read], answer: Mapping[str, Any], cluster: str) -> Read:
    try:
        read: Read = adapter_of(kind).validate_python(dict(answer))
        return read
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"]))
        raise NotAccepted(f"the answer of the Slurm controller of {cluster} is not valid: {where}") from error


def _answer(result: Any, cluster: str, verb: str) -> Mapping[str, Any]:
    output = result.get("StandardOutputContent", "").strip()
    try:
        answer = read_json(output)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and "error" not in answer and result.get("ResponseCode") == 0:
        return answer
    why = answer["error"] if isinstance(answer, dict) and "error" in answer else _last_words(result)
    raise NotAccepted(f"the Slurm controller of {cluster} could not run `{verb}`: {why}")


def _last_words(result: Any) -> str:
    words = result.get("StandardErrorContent", "").strip() or result.get("StandardOutputContent", "").strip()
    return f"{result['Status']}, exit code {result.get('ResponseCode')}{': ' if words else ''}{words[-300:]}"
