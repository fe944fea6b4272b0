"""Calls of AWS as people: a role for each, in a session that has their name."""

import re
import time
from collections.abc import Callable
from hashlib import sha256

from nodeheal.adapters.aws.calls import Caller, client

SECONDS = 3_600  # the longest that a role may assume another one for
SPARE_SECONDS = 300  # no request may begin with credentials that end while it is answered
_LONGEST, _DIGITS = 64, 16
# Of what STS takes in the name of a session; but for "=", which marks a name that was changed.
_UNSAFE = re.compile(r"[^\w+,.@-]", re.ASCII)


class AssumedRoles:
    """Callers with the credentials of a role, one for each person and role. They are kept until shortly before they
    end.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, str], tuple[Caller, float]] = {}

    def caller(self, role_arn: str, person: str) -> Caller:
        """Return the caller for this person in this role. Raises ClientError where the role may not be assumed."""
        now, key = self._clock(), (role_arn, session_name(person))
        self._kept = {each: kept for each, kept in self._kept.items() if kept[1] > now + SPARE_SECONDS}
        if key not in self._kept:
            self._kept[key] = _assume(*key)
        return self._kept[key][0]


def session_name(person: str) -> str:
    """Return the name of the person's session: their own where STS takes it, else one that no other person has."""
    safe = _UNSAFE.sub("-", person)
    if safe == person and 2 <= len(safe) <= _LONGEST:
        return safe
    digest = sha256(person.encode()).hexdigest()[:_DIGITS]
    return f"{safe[: _LONGEST - _DIGITS - 1]}={digest}"


def _assume(role_arn: str, name: str) -> tuple[Caller, float]:
    import boto3

    sts = client("sts")
    given = sts.assume_role(RoleArn=role_arn, RoleSessionName=name, DurationSeconds=SECONDS)["Credentials"]
    session = boto3.Session(
        given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"], region_name=sts.meta.region_name
    )
    return Caller(session), given["Expiration"].timestamp()
