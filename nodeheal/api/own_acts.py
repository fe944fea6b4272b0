"""Acts that people do with their own rights, past the control plane: pauses, drills, and the tags of an enrolment.

A brake must work when functions do not; who wants a drill sends it; and only a person lets nodeheal act on a machine.
"""

from dataclasses import dataclass
from datetime import datetime

from nodeheal.api.views import Consequences, Fact
from nodeheal.contract.acts import Enroll
from nodeheal.domain.faults.drill import DcgmDrill
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.intake.enroll_node import Marks, check_enrolment, mark_node, unmark_node
from nodeheal.services.operators import inject_fault, operator_guardrails
from nodeheal.services.operators.describe_act import describe_drill
from nodeheal.services.operators.do_act import enrolment_of
from nodeheal.services.operators.foretell import Foretold, foretell_drill
from nodeheal.services.saving import node_of

DRILL_SECONDS = inject_fault.DRILL_SECONDS  # within which a node takes a drill


@dataclass(frozen=True)
class Drill:
    """A fault that a node is to report: a kernel line, or a value in DCGM; and what follows where it does now."""

    node: Node
    fault: str | DcgmDrill
    consequences: Consequences
    foretold: Foretold


def paused_until(target: str, ports: Ports, *, is_node: bool) -> datetime | None:
    """Return until when the node or the pool is paused; None: it is not. Raises NotFound."""
    pauses, now = ports.pauses.read(), ports.clock()
    pause = pauses.of_node(node_of(target, ports).node_id, now) if is_node else pauses.of_pool(target, now)
    return pause.until if pause is not None else None


def pause(target: str, seconds: int, why: str, ports: Ports, *, is_node: bool) -> datetime:
    """Pause the node or the pool for so long, 0 ends a pause; return until when. Raises NotFound."""
    begin = operator_guardrails.pause_node if is_node else operator_guardrails.pause_pool
    return begin(target, seconds, why, ports).until


def tag_node(act: Enroll, ports: Ports, marks: Marks) -> list[str]:
    """Set the tags by which IAM lets nodeheal act on the node; return what was done. Safe to repeat.

    Raises ValueError where the enrolment cannot be, HalfDone where some tags are set.
    """
    enrolment = enrolment_of(act, act.why)
    return mark_node(check_enrolment(act.node, enrolment, ports), enrolment, marks)


def untag_node(node: Node, marks: Marks) -> list[str]:
    """Take the tags off, wherever they are; return what was done. Safe to repeat. Raises HalfDone."""
    return unmark_node(node, marks)


def kernel_line(xid: int | None, line: str | None) -> str:
    """Return the kernel line of a drill. Raises ValueError where nodeheal would read no fault in it."""
    return inject_fault.drill_line(xid, line)


def preview_drill(node_id: str, fault: str | DcgmDrill, ports: Ports, policy: RecoveryPolicy) -> Drill:
    """Return what a drill will do now. Raises NotFound, and ValueError where the node may not be broken now."""
    node = inject_fault.may_inject(node_of(node_id, ports), ports, policy)
    foretold = foretell_drill(node, fault, ports, policy)
    facts = describe_drill(node, str(fault), foretold, ports)
    consequences = Consequences(facts=tuple(Fact(label=label, text=text) for label, text in facts))
    return Drill(node, fault, consequences, foretold)


def begin_drill(drill: Drill, why: str, ports: Ports, policy: RecoveryPolicy) -> tuple[Node, str]:
    """Have the node report the fault; return it as it is now, and the command's id. Each call is a drill of its own."""
    return inject_fault.inject_fault(drill.node.node_id, drill.fault, why, ports, policy)
