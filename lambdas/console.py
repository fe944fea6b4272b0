"""console: the console's pages for people who have signed in, each with the rights of their role and with no others.

The function itself may only assume the roles of people. IAM decides what each of them reads and has done.
"""

import os
from collections.abc import Callable
from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError
from mangum import Mangum

from lambdas.sign_in import SignIn, UserPool
from nodeheal.adapters.aws.assumed_roles import AssumedRoles
from nodeheal.adapters.aws.calls import OncePerCaller, calling_as, client
from nodeheal.adapters.aws.failures import in_words
from nodeheal.api import aws
from nodeheal.api.views import Fact
from nodeheal.console.app import Deployment, console_app
from nodeheal.console.gate import SignedInPerson
from nodeheal.console.roles import ACTS_OF_ROLE, Role
from nodeheal.contract import names

# The ways to ask schedulers of their own are the command's, which is not in the function's bundle.
_ASKED_ELSEWHERE = (Fact(label="Scheduler", text="asked by `nodeheal nodes show` on your own machine"),)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One HTTP request (API Gateway, payload format 2.0)."""
    return _app()(event, context)


@cache
def _app() -> Mangum:
    host = urlsplit(os.environ[names.CONSOLE_URL_VARIABLE]).netloc
    issuer, client_id = os.environ[names.CONSOLE_ISSUER_VARIABLE], os.environ[names.CONSOLE_CLIENT_VARIABLE]
    find_secret = cache(partial(_client_secret, os.environ[names.CONSOLE_POOL_VARIABLE], client_id))
    pool = UserPool(issuer, os.environ[names.CONSOLE_LOGIN_VARIABLE], client_id, find_secret)
    authenticator = SignIn(pool, host, partial(_make_person, AssumedRoles().caller))
    return Mangum(console_app(authenticator, (BotoCoreError, ClientError)), lifespan="off")


def _client_secret(pool_id: str, client_id: str) -> str:
    """The secret of the console's client, which stands nowhere else."""
    described = client("cognito-idp").describe_user_pool_client(UserPoolId=pool_id, ClientId=client_id)
    return str(described["UserPoolClient"]["ClientSecret"])


def _make_person(assume: Callable[[str, str], Any], person: str, role: Role, form_token: str) -> SignedInPerson:
    """The person, who calls AWS in a session of their role that has their name."""
    role_arn = os.environ[names.CONSOLE_ROLES_VARIABLE].format(role=role.value)
    calling = partial(calling_as, assume(role_arn, person))
    with calling():
        return SignedInPerson(_deployment(role_arn, person, role.value), form_token, calling)


@OncePerCaller
def _deployment(role_arn: str, person: str, role: str) -> Deployment:
    """What this person reads and acts with: made while they are the caller, and kept with their credentials."""
    table = os.environ[names.ENV_TABLE]
    return Deployment(
        aws.connect(table),
        who=f"{person} ({role})",
        where=f"account {role_arn.split(':')[4]}, {client('sts').meta.region_name}",
        in_force=aws.policy_in_force,
        in_words=lambda error: in_words(error, table),
        documents=cache(aws.policy_documents),
        scheduler_words=lambda node: _ASKED_ELSEWHERE,
        allowed=ACTS_OF_ROLE[Role(role)],
    )
