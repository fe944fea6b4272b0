"""Puts the API together for a deployment on AWS, with the caller's own credentials."""

from functools import partial

from nodeheal.adapters.aws.acts import deployed_acts
from nodeheal.adapters.aws.calls import client
from nodeheal.adapters.aws.own_ports import own_ports
from nodeheal.adapters.aws.policy_documents import PolicyDocuments, deployed_place
from nodeheal.adapters.aws.policy_reader import policy_copy
from nodeheal.api.client import Client
from nodeheal.contract import names
from nodeheal.domain.policy.policy import RecoveryPolicy, parse_policy


def connect(table: str = names.TABLE) -> Client:
    """Return the API of the deployment in the Region and account of the caller's credentials."""
    return Client(own_ports(table), partial(policy_copy, table), deployed_acts())


def policy_documents() -> PolicyDocuments:
    """Return the policy documents of the deployed stack."""
    return PolicyDocuments(client("appconfig"), deployed_place(client("cloudformation")))


def policy_in_force() -> RecoveryPolicy:
    """Return the policy document of the deployed stack that is in force."""
    return parse_policy(policy_documents().in_force().text)
