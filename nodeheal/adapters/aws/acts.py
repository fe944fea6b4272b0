"""Has acts done by the API of the stack, in the name of the person whose credentials sign the request."""

import os
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from pydantic import ValidationError

from nodeheal.adapters.aws.calls import client, session
from nodeheal.adapters.aws.policy_documents import deployed_acts_url
from nodeheal.contract import names
from nodeheal.contract.acts import ACT_RESULT, KEY_HEADER, Act, ActDone, ActRefused
from nodeheal.contract.vocabulary import ActRefusal
from nodeheal.domain.errors import NotAccepted, NotPermitted
from nodeheal.domain.refusals import raise_refusal

if TYPE_CHECKING:
    import boto3
    from botocore.awsrequest import AWSResponse
    from botocore.credentials import ReadOnlyCredentials

_SERVICE = "execute-api"
# API Gateway waits 30 s for a function, which may take 55 s: the act is asked for again until then, with its key.
_GIVE_UP_SECONDS = 75.0
_AGAIN_AFTER_SECONDS = 1.0
_ANSWER_SECONDS = 35
_UNANSWERED = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


class ActsApi:
    """Implements ControlPlane. `find_url` finds the address of the API, `session` the caller's credentials."""

    def __init__(
        self,
        find_url: Callable[[], str],
        session: "Callable[[], boto3.Session]",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._find_url, self._session, self._sleep = find_url, session, sleep

    def do(self, act: Act, key: str) -> ActDone:
        """Have the act done. Asked again with the same key, it is not done again.

        Raises what the control plane raises: NotFound, Conflict, ValueError, HalfDone, NotAccepted; NotPermitted where
        IAM does not permit this caller the route; botocore's errors where there are no credentials, or no network.
        """
        from botocore.exceptions import NoCredentialsError, NoRegionError

        url, session = f"{self._find_url()}{act.kind.path}", self._session()
        # Of one session: a role that is assumed again has another name, and a key is of one caller.
        credentials = session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        if not session.region_name:
            raise NoRegionError
        give_up_at = time.monotonic() + _GIVE_UP_SECONDS
        while True:
            frozen = credentials.get_frozen_credentials()
            answer = _send(url, act.model_dump_json(), key, frozen, session)
            result = _read(answer, act) if answer is not None else None
            waits = result.code is ActRefusal.IN_PROGRESS if isinstance(result, ActRefused) else result is None
            if not waits or time.monotonic() > give_up_at:
                break
            self._sleep(_AGAIN_AFTER_SECONDS)
        if result is None:
            raise NotAccepted("the API of acts has not answered: it may have been done; look, and try again")
        if isinstance(result, ActRefused):
            raise_refusal(result)
        return result


def deployed_acts() -> ActsApi:
    """Return what does acts for the caller in the deployed stack."""
    return ActsApi(_acts_url, session)


def _acts_url() -> str:
    """Return the address of the API of acts, as the stack names it."""
    return os.environ.get(names.ACTS_URL_VARIABLE) or deployed_acts_url(client("cloudformation"))


def _send(
    url: str, body: str, key: str, credentials: "ReadOnlyCredentials", session: "boto3.Session"
) -> "AWSResponse | None":
    """Return the answer to the signed request. None: it was sent, and no answer came."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
    from botocore.httpsession import URLLib3Session
    from botocore.utils import get_environ_proxies

    headers = {"Content-Type": "application/json", KEY_HEADER: key}
    request = AWSRequest(method="POST", url=url, data=body.encode(), headers=headers)
    SigV4Auth(credentials, _SERVICE, session.region_name).add_auth(request)
    # As the SDK's own clients take both.
    bundle = session._session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE") or True
    http = URLLib3Session(
        timeout=_ANSWER_SECONDS,
        verify=bundle,  # type: ignore[arg-type]  # a path is taken, too
        proxies=get_environ_proxies(url),
    )
    try:
        return http.send(request.prepare())
    except (ConnectionClosedError, ReadTimeoutError):
        return None


def _read(answer: "AWSResponse", act: Act) -> ActDone | ActRefused | None:
    """Return what a function has answered. None: none has, or not yet."""
    try:
        return ACT_RESULT.validate_json(answer.content)
    except ValidationError:
        pass  # it is API Gateway's own answer
    status = answer.status_code
    if status in _UNANSWERED:
        return None
    if status in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
        needed = f"your role needs {_SERVICE}:Invoke for POST {act.kind.path}, and credentials that have not expired"
        raise NotPermitted(f"AWS does not let you do this: {needed}")
    if status == HTTPStatus.NOT_FOUND:
        raise NotPermitted("the deployed stack does not know this act: deploy the version of this command")
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        what = f"what answers at {answer.url} ({status}) is no control plane of this version"
        raise NotAccepted(f"{what}: look at what was done, and deploy the version of this command")
    raise NotAccepted(f"the function broke ({status}); its log says where; look at what was done, and try again")
