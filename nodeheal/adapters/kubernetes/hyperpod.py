"""What HyperPod says of a Node by labels, an annotation and a taint, and what nodeheal writes of these."""

import re
from collections.abc import Mapping

from nodeheal.adapters.kubernetes.api import Object
from nodeheal.contract.vocabulary import Action

_PREFIX = "sagemaker.amazonaws.com"
HEALTH = f"{_PREFIX}/node-health-status"  # a label, and the key of the taint beside it
DEEP_CHECK = f"{_PREFIX}/deep-health-check-status"
FAULT_TYPES = f"{_PREFIX}/fault-types"
FAULT_REASONS = f"{_PREFIX}/fault-reasons"
FAULT_DETAILS = f"{_PREFIX}/fault-details"  # an annotation
SCHEDULABLE, UNSCHEDULABLE = "Schedulable", "Unschedulable"
# What HyperPod, or a person, wants done to the node.
PENDING = {"UnschedulablePendingReboot": Action.REBOOT, "UnschedulablePendingReplacement": Action.REPLACE}
_NOT_PASSED = ("InProgress", "Failed")
_PROVIDER_ID = re.compile(r"aws:///[a-z0-9-]+/sagemaker/cluster/hyperpod-[a-z0-9]+-i-[0-9a-f]{8,17}")


def is_on_hyperpod(node_object: Object) -> bool:
    """Whether the node's machine is an instance of a HyperPod cluster."""
    return _PROVIDER_ID.fullmatch(str(node_object.get("spec", {}).get("providerID", ""))) is not None


def labels_of(node_object: Object) -> Mapping[str, str]:
    """Return a node's labels."""
    return node_object["metadata"].get("labels") or {}


def unpassed_check(node_object: Object) -> str:
    """Return how HyperPod's deep health check of the node stands, as the label has it; empty: it keeps no pods off."""
    status = labels_of(node_object).get(DEEP_CHECK, "")
    return f"{DEEP_CHECK}={status}" if status in _NOT_PASSED else ""


def labels_of_isolated(node_object: Object) -> dict[str, str]:
    """Return the labels to set on a node that is isolated. The stricter words of others stay."""
    is_said = labels_of(node_object).get(HEALTH, "").startswith(UNSCHEDULABLE)
    return {HEALTH: UNSCHEDULABLE} if is_on_hyperpod(node_object) and not is_said else {}


def is_released_with_us(node_object: Object) -> bool:
    """Whether a node that nodeheal gives back is HyperPod's again as well: it does not take off its own marks where it
    repairs nothing itself. While its deep health check has not passed, they are not ours.
    """
    return is_on_hyperpod(node_object) and not unpassed_check(node_object)
