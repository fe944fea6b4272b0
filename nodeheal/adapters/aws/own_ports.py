"""Assembles all ports on AWS for a person or a program, with the caller's own credentials."""

from functools import cache
from typing import Any

from nodeheal.adapters.aws.calls import client, client_once_as, own_role_arn
from nodeheal.adapters.aws.notifier import Destinations
from nodeheal.adapters.aws.policy_documents import deployed_node_roles
from nodeheal.adapters.aws.ports import aws_ports
from nodeheal.contract import names
from nodeheal.ports import Ports


def own_ports(table: str) -> Ports:
    """Return the real world, through the table."""
    to = Destinations(names.BUS, "", "")
    return aws_ports(table, "", to, controllers_once=controllers_once, find_node_roles=cache(_node_roles))


def controllers_once(service: str) -> Any:
    """Return a client of the role that asks clusters' controllers."""
    return client_once_as(own_role_arn(names.CONTROLLER_ROLE), service)


def _node_roles() -> list[str]:
    """Return the roles of nodes, as the stack names them; none where the caller cannot read the stack."""
    return deployed_node_roles(client("cloudformation"))
