"""Looks up this node's AWS identity with STS, which answers every valid credential and costs nothing."""

import http
import re
from dataclasses import dataclass

from nodeheal.agent.transport.aws_client import AwsClient, RequestFailed

_BODY = b"Action=GetCallerIdentity&Version=2011-06-15"
_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}
_USER = re.compile(r"<UserId>([^<\s]{1,256})</UserId>")
_ARN = re.compile(r"<Arn>arn:([a-z-]{1,32}):sts::(\d{12}):[^<\s]{1,512}</Arn>")
_CODE = re.compile(r"<Code>([^<]{1,128})</Code>")


class IdentityError(Exception):
    """STS returned no identity. `is_refusal`: it refuses these credentials, or there are none."""

    def __init__(self, reason: str, is_refusal: bool = False) -> None:
        super().__init__(reason)
        self.is_refusal = is_refusal


@dataclass(frozen=True)
class CallerIdentity:
    """The caller. `user_id` is IAM's ${aws:userid}: ROLE-ID:SESSION, where AWS names the session."""

    user_id: str
    partition: str
    account: str


class StsIdentity:
    """Asks once, and again after `forget`: a node that gets another role has another identity."""

    def __init__(self, sts: AwsClient) -> None:
        self._sts = sts
        self._known: CallerIdentity | None = None

    def identity(self) -> CallerIdentity:
        """Return the identity. Raises IdentityError."""
        if self._known is None:
            self._known = self._ask()
        return self._known

    def forget(self) -> None:
        """Discard the cached identity, since it may have changed."""
        self._known = None
        self._sts.forget_credentials()

    def close(self) -> None:
        """Close the connection."""
        self._sts.close()

    def _ask(self) -> CallerIdentity:
        try:
            status, raw = self._sts.ask(_HEADERS, _BODY)
        except RequestFailed as error:
            raise IdentityError(str(error), error.is_refusal) from error
        answer = raw.decode("utf-8", "replace")
        user, arn = _USER.search(answer), _ARN.search(answer)
        if status == http.HTTPStatus.OK and user is not None and arn is not None:
            return CallerIdentity(user[1], arn[1], arn[2])
        code = _CODE.search(answer)
        is_refusal = status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN)
        raise IdentityError(f"STS answered {status} {code[1] if code else ''}".rstrip(), is_refusal)
