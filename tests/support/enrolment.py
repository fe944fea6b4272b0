"""Enrolling and retiring as the commands do both: the person changes the tags, and the control plane the record."""

from nodeheal.domain.fleet.enrolment import Enrolment
from nodeheal.domain.fleet.node import Node
from nodeheal.ports import Ports
from nodeheal.services.intake.enroll_node import Marks, check_enrolment, mark_node, record_enrolment, unmark_node
from nodeheal.services.operators.retire_node import retire_node
from nodeheal.services.saving import node_of


def enroll(node_id: str, enrolment: Enrolment, ports: Ports, marks: Marks) -> tuple[Node, tuple[str, ...]]:
    """The node as recorded, and what was done for it."""
    marked = mark_node(check_enrolment(node_id, enrolment, ports), enrolment, marks)
    node, changes = record_enrolment(node_id, enrolment, ports)
    return node, (*marked, *changes)


def retire(node_id: str, why: str, ports: Ports, marks: Marks) -> tuple[Node, list[str]]:
    """The retired node, and where its mark was taken off."""
    known = node_of(node_id, ports)
    return retire_node(node_id, why, ports), unmark_node(known, marks)


SAID = Enrolment("demo", "ada: new rack")
