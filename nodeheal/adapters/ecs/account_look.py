"""What nodes lack in their ECS cluster, for `nodeheal doctor`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodeheal.adapters.aws.account import ENROLL, NodeProblem
from nodeheal.adapters.ecs.container_instances import tags_by_machine
from nodeheal.contract import names
from nodeheal.domain.fleet.node import Node

NOT_REGISTERED = NodeProblem(
    "not registered in its ECS cluster",
    "on the node: systemctl status ecs; compare ECS_CLUSTER in /etc/ecs/ecs.config",
)
NO_TAG = NodeProblem(
    f"the container instance lacks the tag {names.MANAGED_TAG}", f"{ENROLL}; new EC2 machines: docs/ec2.md, user data"
)


def unregistered(make: Callable[[str], Any], nodes: Sequence[Node]) -> Mapping[str, NodeProblem]:
    """Return the problems by node id, with a few calls for each cluster."""
    tags = {cluster: tags_by_machine(make("ecs"), cluster) for cluster in {node.cluster.name for node in nodes}}
    problems: dict[str, NodeProblem] = {}
    for node in nodes:
        of_node = tags[node.cluster.name].get(node.instance_id)
        if of_node is None:
            problems[node.node_id] = NOT_REGISTERED
        elif of_node.get(names.MANAGED_TAG) != names.MANAGED_TAG_VALUE:
            problems[node.node_id] = NO_TAG
    return problems
