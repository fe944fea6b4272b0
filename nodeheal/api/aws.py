"""Puts the API together for a deployment on AWS, with the caller's own credentials."""

import os
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from nodeheal.contract import names

if TYPE_CHECKING:
    from nodeheal.adapters.aws.acts import ActsApi
    from nodeheal.adapters.aws.policy_documents import PolicyDocuments
    from nodeheal.api.client import Client
    from nodeheal.contract.vocabulary import ChannelKind
    from nodeheal.domain.policy.policy import RecoveryPolicy
    from nodeheal.ports import Ports


def connect(table: str = names.TABLE) -> "Client":
    """Return the API of the deployment in the Region and account of the caller's credentials."""
    from nodeheal.api.client import Client

    return Client(ports(table), partial(policy_copy, table), control_plane())


def ports(table: str) -> "Ports":
    """Return the real world, through the table."""
    from nodeheal.adapters.aws.notifier import Destinations
    from nodeheal.adapters.aws.ports import aws_ports

    to = Destinations(names.BUS, "", "")
    return aws_ports(table, "", to, controllers_once=controllers_once, find_node_roles=cache(_node_roles))


def _node_roles() -> list[str]:
    """Return the roles of nodes, as the stack names them; none where the caller cannot read the stack."""
    from nodeheal.adapters.aws.calls import client
    from nodeheal.adapters.aws.policy_documents import deployed_node_roles

    return deployed_node_roles(client("cloudformation"))


def controllers_once(service: str) -> Any:
    """Return a client of the role that asks clusters' controllers."""
    from nodeheal.adapters.aws.calls import client_once_as, own_role_arn

    return client_once_as(own_role_arn(names.CONTROLLER_ROLE), service)


def policy_copy(table: str) -> "RecoveryPolicy":
    """Return the copy of the policy in force that the sweep keeps in the table: one read. The default without one."""
    from nodeheal.adapters.aws.calls import client
    from nodeheal.adapters.aws.items import Table
    from nodeheal.adapters.aws.policy_reader import last_good
    from nodeheal.domain.policy.policy import RecoveryPolicy

    return last_good(Table(client("dynamodb"), table)) or RecoveryPolicy()


def policy_documents() -> "PolicyDocuments":
    """Return the policy documents of the deployed stack."""
    from nodeheal.adapters.aws.calls import client
    from nodeheal.adapters.aws.policy_documents import PolicyDocuments, deployed_place

    return PolicyDocuments(client("appconfig"), deployed_place(client("cloudformation")))


def policy_in_force() -> "RecoveryPolicy":
    """Return the policy document of the deployed stack that is in force."""
    from nodeheal.domain.policy.policy import parse_policy

    return parse_policy(policy_documents().in_force().text)


def channels() -> "dict[str, ChannelKind]":
    """Return the channels of the deployed stack."""
    from nodeheal.adapters.aws.calls import client
    from nodeheal.adapters.aws.policy_documents import deployed_channels
    from nodeheal.services.notify.channel_kinds import read_channels

    return read_channels(deployed_channels(client("cloudformation")))


def refuse_restored(ports: "Ports") -> None:
    """Raises NotAccepted while the table is an older copy of itself, so that nobody decides by it."""
    from nodeheal.services.records_epoch import refuse_if_gone_back

    refuse_if_gone_back(ports)


def control_plane() -> "ActsApi":
    """Return what does acts for the caller."""
    from nodeheal.adapters.aws.acts import ActsApi
    from nodeheal.adapters.aws.calls import session

    return ActsApi(_acts_url, session)


def _acts_url() -> str:
    """Return the address of the API of acts, as the stack names it."""
    if given := os.environ.get(names.ACTS_URL_VARIABLE):
        return given
    from nodeheal.adapters.aws.calls import client
    from nodeheal.adapters.aws.policy_documents import deployed_acts_url

    return deployed_acts_url(client("cloudformation"))


def in_words(error: Exception, table: str) -> str | None:
    """Return the line for an error that an operator is to read. None for one that is a fault of nodeheal."""
    from botocore.exceptions import BotoCoreError, ClientError
    from pydantic import ValidationError

    from nodeheal.adapters.aws.failures import explain
    from nodeheal.domain.complaints import complaints_of
    from nodeheal.domain.errors import NodehealError

    if isinstance(error, ValidationError):  # before ValueError, which it is
        return f"not a valid {error.title}: {'; '.join(map(str, complaints_of(error)))}"
    if isinstance(error, (BotoCoreError, ClientError)):  # before ValueError, which some of the SDK's errors are
        return f"{explain(error, table)}"
    return f"{error}" if isinstance(error, (NodehealError, ValueError)) else None
