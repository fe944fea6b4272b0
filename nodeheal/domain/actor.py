"""Names who acts, by the ARN that AWS has authenticated."""

import re

from nodeheal.contract import names
from nodeheal.contract.acts import Actor

# Of IAM Identity Center and of the console, which name a session after who has signed in; the roles of both trust
# nobody else. Anybody else may choose the name of a session.
_CONSOLE = names.CONSOLE_ROLE.format(role="(?:viewer|researcher|operator)", region="[a-z0-9-]+")
_SIGNED_ON = re.compile(rf"assumed-role/(AWSReservedSSO_[^/]+|{_CONSOLE})/(?P<user>[^/]+)")


def actor_of(arn: str) -> Actor:
    """Return the caller: a user, a session of a role as role/session, anybody else with the kind. Raises ValueError."""
    parts = arn.split(":", 5)
    if len(parts) != 6 or parts[0] != "arn" or not parts[5]:
        raise ValueError(f"{arn!r} names no caller")
    identity = parts[5]
    if signed_on := _SIGNED_ON.fullmatch(identity):
        return Actor(id=arn, name=signed_on["user"])
    kind, _, name = identity.partition("/")
    if kind == "user":  # its path is not a part of the name
        return Actor(id=arn, name=name.rpartition("/")[2])
    if kind == "assumed-role":
        return Actor(id=arn, name=name)
    return Actor(id=arn, name=f"{kind}/{name}" if name else f"{kind} of the account")
