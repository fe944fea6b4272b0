"""Reads a node as its cluster has it, as the caller may read it. Only operators use it."""

from dataclasses import dataclass

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.hyperpod import (
    DEEP_CHECK,
    FAULT_DETAILS,
    FAULT_REASONS,
    FAULT_TYPES,
    HEALTH,
    labels_of,
)
from nodeheal.adapters.kubernetes.nodes import holder_of, is_in_service
from nodeheal.domain.fleet.holder import Holder
from nodeheal.domain.fleet.node import Node

_DETAILS = 500  # characters of an annotation, which may be of 256 KiB


@dataclass(frozen=True)
class NodeWords:
    """A node: its name, whether it takes pods, who keeps it from that, and what HyperPod says of it; empty: nothing."""

    name: str
    is_in_service: bool
    held_by: Holder | None = None
    health: str = ""
    deep_check: str = ""
    fault_types: str = ""
    fault_reasons: str = ""
    fault_details: str = ""


class KubernetesNodeWords:
    """Reads nodes of clusters."""

    def __init__(self, clusters: EksClusters) -> None:
        self._clusters = clusters

    def of(self, node: Node) -> NodeWords:
        """Return what the node's cluster has of it. Raises NotFound, NotAccepted; ApiError where the caller may not
        read it.
        """
        node_object = self._clusters.nodes(node.cluster.name).find(node)
        labels, notes = labels_of(node_object), node_object["metadata"].get("annotations") or {}
        return NodeWords(
            name=node_object["metadata"]["name"],
            is_in_service=is_in_service(node_object),
            held_by=holder_of(node_object),
            health=labels.get(HEALTH, ""),
            deep_check=labels.get(DEEP_CHECK, ""),
            fault_types=labels.get(FAULT_TYPES, ""),
            fault_reasons=labels.get(FAULT_REASONS, ""),
            fault_details=notes.get(FAULT_DETAILS, "")[:_DETAILS],
        )
