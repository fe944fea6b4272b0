"""Implements LivenessProbes on AWS: the node's scheduler, the SSM agent's ping, and the status of its machine."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract.vocabulary import Provider, SchedulerKind
from nodeheal.domain.fleet.liveness import STOPPED, TERMINATED, ProbeAnswer
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.clock import Clock
from nodeheal.ports.compute import Machines
from nodeheal.ports.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_ssm import SSMClient

# SSM's agent pings every five minutes. An older ping says nothing about the present.
_PING = timedelta(minutes=5)
_OFF = {"stopping": STOPPED, "stopped": STOPPED, "shutting-down": TERMINATED, "terminated": TERMINATED}
_NO_SUCH_MACHINE = "InvalidInstanceID.NotFound"


def _as_far_as_known(witness: str, ask: "Callable[[Node], ProbeAnswer]", node: Node) -> ProbeAnswer:
    from botocore.exceptions import ClientError

    try:
        return ask(node)
    except ClientError as error:
        if code_of(error) == _NO_SUCH_MACHINE:
            return ProbeAnswer(witness, is_up=False, text="the machine no longer exists", gone=TERMINATED)
        # A node's id may have any form, and each service refuses it with its own error. Such a refusal is "unknown" for
        # this node, and must not end the probes of all others.
        return ProbeAnswer(witness, None, f"cannot tell ({code_of(error)})")


class AwsLivenessProbes:
    """Implements LivenessProbes. It is used only for nodes that are already silent."""

    def __init__(
        self,
        schedulers: Mapping[SchedulerKind, Scheduler],
        ssm: "Callable[[], SSMClient]",
        ec2: "Callable[[], Any]",
        hyperpod: Machines,
        clock: Clock,
    ) -> None:
        self._schedulers = schedulers
        self._ssm = ssm
        self._ec2 = ec2
        self._hyperpod = hyperpod
        self._clock = clock

    def ask(self, node: Node) -> Sequence[ProbeAnswer]:
        answers = [_as_far_as_known(node.cluster.kind, self._ask_scheduler, node)]
        if node.provider is Provider.hyperpod:
            return [*answers, _as_far_as_known("HyperPod", self._ask_hyperpod, node)]
        answers.append(_as_far_as_known("SSM", self._ask_ssm, node))
        if node.provider is Provider.ec2:
            answers.append(_as_far_as_known("EC2", self._ask_ec2, node))
        return answers

    def _ask_scheduler(self, node: Node) -> ProbeAnswer:
        scheduler = self._schedulers.get(node.cluster.kind)
        if scheduler is None:
            return ProbeAnswer(node.cluster.kind, None, "not served by this deployment")
        if scheduler.liveness is None:
            return ProbeAnswer(node.cluster.kind, None, "not queried: SSM and the machine's cloud are queried directly")
        return scheduler.liveness.liveness(node)

    def _ask_ssm(self, node: Node) -> ProbeAnswer:
        of_node = [{"Key": "InstanceIds", "Values": [node.instance_id]}]
        with throttles_named("DescribeInstanceInformation"):
            entries = self._ssm().describe_instance_information(Filters=of_node)["InstanceInformationList"]  # type: ignore[arg-type]
        if not entries:
            return ProbeAnswer("SSM", None, "not registered")
        ping, at = entries[0].get("PingStatus"), entries[0].get("LastPingDateTime")
        if ping == "ConnectionLost":
            is_hybrid = node.provider is Provider.hybrid
            return ProbeAnswer("SSM", is_up=False, text="connection lost", is_unreachable=is_hybrid)
        is_recent = at is not None and self._clock() - at <= _PING
        is_up = True if ping == "Online" and is_recent else None
        return ProbeAnswer("SSM", is_up, f"{ping}, last ping at {at:%H:%M:%S} UTC" if at else str(ping))

    def _ask_hyperpod(self, node: Node) -> ProbeAnswer:
        """Ask HyperPod, which proves nothing: `Running` may hang, and a cluster may have left the settings."""
        machine = self._hyperpod.describe(node.instance_id)
        if machine is None:
            return ProbeAnswer("HyperPod", None, "no cluster of the settings has the node")
        return ProbeAnswer("HyperPod", None, f"the node is {machine.state}")

    def _ask_ec2(self, node: Node) -> ProbeAnswer:
        with throttles_named("DescribeInstanceStatus"):
            answer = self._ec2().describe_instance_status(InstanceIds=[node.instance_id], IncludeAllInstances=True)
        if not answer["InstanceStatuses"]:
            return ProbeAnswer("EC2", None, "no status")
        status = answer["InstanceStatuses"][0]
        state = status["InstanceState"]["Name"]
        if state in _OFF:
            return ProbeAnswer("EC2", is_up=False, text=f"the machine is {state}", gone=_OFF[state])
        checks = {"system": status["SystemStatus"]["Status"], "instance": status["InstanceStatus"]["Status"]}
        text = ", ".join(f"{name} check {result}" for name, result in checks.items())
        # A machine that answers on the network may still run nothing: "ok" is not a heartbeat.
        return ProbeAnswer("EC2", False if "impaired" in checks.values() else None, text)
