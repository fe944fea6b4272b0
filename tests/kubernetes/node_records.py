"""Records of nodes in a Kubernetes cluster."""

from typing import Any

from nodeheal.domain.fleet.node import Node
from sandbox.kubernetes.kubelet import Kubelet
from tests.kubernetes import eks

INCIDENT = "inc-20261129T030000-i-0a1b2c3d4e5f60718-1e531b3728"


def record_of(kubelet: Kubelet, **changes: Any) -> Node:
    """nodeheal's record of the node."""
    return eks.record(kubelet.machine.provider_id.rpartition("/")[2], open_incident=INCIDENT, **changes)
