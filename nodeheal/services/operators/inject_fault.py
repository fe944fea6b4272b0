"""A drill: have a healthy node report a fault that it does not have. What follows is no rehearsal: it is recovered."""

import base64
from datetime import timedelta

from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.faults.drill import DcgmDrill
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import fingerprint_of
from nodeheal.parsers.kernel_line import parse_message
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.services.operators.request_action import why_busy
from nodeheal.services.saving import node_of

# As long as an operator may look at the terminal. A drill that comes later would come as a surprise.
DRILL_SECONDS = 60
LINE_CHARACTERS = 800  # as the agent bounds it


def drill_line(xid: int | None, line: str | None) -> str:
    """The line to inject, which says that it is a drill. Raises ValueError for what would not be read as a fault."""
    if (xid is None) == (line is None):
        raise ValueError("give either --xid or --line (or --dcgm)")
    text = line if line is not None else f"NVRM: Xid (PCI:0000:b9:00): {xid}, pid=<unknown>, name=<unknown>,"
    marked = text if DRILL_MARK in text else f"{text} {DRILL_MARK}"
    if not marked.isascii() or not marked.isprintable() or len(marked) > LINE_CHARACTERS:
        raise ValueError(
            f"--line: give one line of at most {LINE_CHARACTERS - len(DRILL_MARK) - 1} printable characters"
        )
    if parse_message(marked) is None:
        raise ValueError(f"--line: nodeheal reads no fault in {text!r}; try it with `nodeheal classify`")
    return marked


def may_inject(node: Node, ports: Ports, policy: RecoveryPolicy) -> Node:
    """The node, where it may be broken now. Raises ValueError, which says why not."""
    if node.state is NodeState.UNENROLLED:
        raise ValueError(f"{node.node_id} is not enrolled: see `nodeheal nodes enroll --help`")
    if not policy.pool(node.pool).drills:
        raise ValueError(f"pool {node.pool} is not marked for drills: the policy must say `drills` for it")
    if busy := why_busy(node, ports):
        raise ValueError(busy)
    if node.state not in (NodeState.HEALTHY, NodeState.PROBATION):
        raise ValueError(f"{node.node_id} is {node.state}: a drill needs a node that is well")
    return node


def inject_fault(
    node_id: str, fault: str | DcgmDrill, why: str, ports: Ports, policy: RecoveryPolicy
) -> tuple[Node, str]:
    """Ask the node for a kernel line, or for a value in DCGM; the node, and the command's id. Only operators do: no
    function's role may send these commands.

    Not repeated by itself: each call is a drill of its own. Raises NotFound for a node that is unknown or takes no
    commands, ValueError for one that is not to be broken now.
    """
    node = may_inject(node_of(node_id, ports), ports, policy)
    return node, ports.commands.send(node, _command(fault, why), ports.clock() + timedelta(seconds=DRILL_SECONDS))


def _command(fault: str | DcgmDrill, why: str) -> Command:
    comment = f"drill, {why}"
    if isinstance(fault, DcgmDrill):
        wanted = {"Gpu": str(fault.gpu), "Field": str(fault.field), "Value": fault.value}
        return Command("inject-dcgm", wanted, comment)
    encoded = base64.urlsafe_b64encode(fault.encode()).decode().rstrip("=")
    return Command("inject-fault", {"Line": encoded}, comment)


def repeats(node: Node, line: str) -> str | None:
    """The incident that has dealt with the line's fault on this boot: what is injected repeats it, and is no news."""
    finding = parse_message(line)
    if finding is None:
        return None
    mark = fingerprint_of(finding.family, finding.code, finding.subcode, finding.component, node.boot_id)
    return node.resolved_faults.get(mark)
