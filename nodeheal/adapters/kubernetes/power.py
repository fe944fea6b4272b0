"""Whether a node's machine is off for certain: EC2's word, and no one else's."""

from collections.abc import Callable
from typing import Any

from nodeheal.adapters.aws.calls import throttles_named
from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.fleet.node import Node

_OFF = ("stopped", "terminated")


def is_proven_off(node: Node, ec2: Callable[[], Any]) -> bool:
    """Whether EC2 says that the machine is stopped or terminated. Of one that EC2 does not know nothing is proven.

    Raises NotAccepted.
    """
    if node.provider is not Provider.ec2:
        return False
    with throttles_named("DescribeInstances"):
        answer = ec2().describe_instances(Filters=[{"Name": "instance-id", "Values": [node.instance_id]}])
    states = [instance["State"]["Name"] for each in answer["Reservations"] for instance in each["Instances"]]
    return len(states) == 1 and states[0] in _OFF
