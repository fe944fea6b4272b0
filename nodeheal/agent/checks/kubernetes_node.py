"""Follows this node's Node object: what other agents say of the node, and whether somebody undoes its isolation.

A condition of another agent is a suspicion: it never acts by itself, and one that has been bad since before this boot
is none, since some of them stay bad for days after a repair.
"""

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State
from nodeheal.agent.identity.machine import booted_at
from nodeheal.agent.kubernetes.own_node import Object, OwnNode
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

WATCH_SECONDS = 30
_PAUSE_SECONDS = 5.0
# Of EKS's node monitoring agent, where True is good. Every other type is node-problem-detector's, where True is bad.
_GOOD_WHEN_TRUE = frozenset(
    {"AcceleratedHardwareReady", "ContainerRuntimeReady", "KernelReady", "NetworkingReady", "StorageReady"}
)
# Of Kubernetes itself: it acts on these, and the node's silence or its pods show them.
_OF_KUBERNETES = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
_TYPE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9./_-]{0,62}[A-Za-z0-9])?")
_CONDITIONS = 16  # more than all agents set together
_WORDS = 200  # of what others have written


def _why_not(_: CheckContext) -> str:
    return "" if OwnNode.of_environment() is not None else "no pod of nodeheal's chart"


def _look(place: CheckContext, _: State) -> NodeCheckResult:
    node = OwnNode.of_environment()
    assert node is not None, "`why_not` has said no"
    return judge(node.read(), booted_at(place.config))


def _follow(place: CheckContext, _: State) -> Iterator[NodeCheckResult]:
    """Yield a result at each change of the Node object, and at least twice a minute."""
    node, since = OwnNode.of_environment(), booted_at(place.config)
    assert node is not None, "`why_not` has said no"
    while True:
        try:
            node_object = node.read()
            yield judge(node_object, since)
            for changed in node.changes(str(node_object["metadata"]["resourceVersion"]), WATCH_SECONDS):
                yield judge(changed, since)
        except (OSError, KeyError) as error:
            yield NodeCheckResult(unclear=f"the API server does not show the node: {error}")
            time.sleep(_PAUSE_SECONDS)


def judge(node: Object, since: datetime) -> NodeCheckResult:
    """Judge a Node object. `since`: when this boot began."""
    conditions = node.get("status", {}).get("conditions") or ()
    suspected = [problem for each in conditions if (problem := _suspicion(each, since)) is not None]
    return NodeCheckResult(
        (*suspected[:_CONDITIONS], *_undone(node)), summary=str(node.get("metadata", {}).get("name", ""))
    )


def _suspicion(condition: Mapping[str, Any], since: datetime) -> Problem | None:
    kind = str(condition.get("type", ""))
    is_ours = kind.startswith("nodeheal.io/") or kind in _OF_KUBERNETES or not _TYPE.fullmatch(kind)
    bad = "False" if kind in _GOOD_WHEN_TRUE else "True"
    if is_ours or condition.get("status") != bad or _time(condition.get("lastTransitionTime")) < since:
        return None
    detail = f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return Problem(
        Finding(Family.host, "node_condition", kind, f"{kind} is {bad}"), f"{kind} is {bad}, {detail}"[:_WORDS]
    )


def _undone(node: Object) -> Iterator[Problem]:
    """Yield that the node has been uncordoned under our taint: nodeheal itself takes both off at once."""
    spec = node.get("spec", {})
    keys = [taint.get("key") for taint in spec.get("taints") or ()]
    if names.KUBERNETES_TAINT in keys and not spec.get("unschedulable"):
        message = f"the node was uncordoned, and has nodeheal's taint {names.KUBERNETES_TAINT} still"
        yield Problem(Finding(Family.host, "isolation_undone", None, message), message)


def _time(text: object) -> datetime:
    """Return a time as Kubernetes writes it; the earliest where it is none, so that it counts as old."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


CHECK = NodeCheck(
    name="kubernetes_node",
    about="conditions that others have set on this node, and whether its isolation was undone",
    interval_seconds=WATCH_SECONDS,
    deadline_seconds=WATCH_SECONDS + 30.0,
    why_not=_why_not,
    look=_look,
    stream=_follow,
)
