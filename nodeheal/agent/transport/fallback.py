"""Publishes grave findings to SNS when the bus has accepted nothing for a while."""

import http
import logging
import re
from collections.abc import Sequence
from urllib.parse import urlencode

from nodeheal.agent.identity.signing import NotPublished, Signs
from nodeheal.agent.identity.sts_identity import IdentityError, StsIdentity
from nodeheal.agent.runtime.log_once import LogOnce
from nodeheal.agent.transport.aws_client import ACCESS_ERRORS, AwsClient, RequestFailed
from nodeheal.agent.transport.clock_correction import redated
from nodeheal.agent.transport.event import Entry
from nodeheal.agent.transport.spool import Spool
from nodeheal.contract import names

EVENTS_A_TRY = 10
_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}
_CODE = re.compile(r"<Code>([^<]{1,128})</Code>")

logger = logging.getLogger(__name__)


class PublishFailed(Exception):
    """SNS did not accept it."""


class Fallback:
    """Publishes every grave finding once. The event stays in the spool, and the bus gets it later under the same id.

    Not safe to share between threads.
    """

    def __init__(self, sns: AwsClient, caller: StsIdentity, signer: Signs) -> None:
        self._sns = sns
        self._caller = caller
        self._signer = signer
        self._last_told = ""
        self._reasons = LogOnce()

    def tell(self, spool: Spool) -> None:
        """Publish some of the findings that were not published yet. Each failure is logged once."""
        try:
            for entry in self._untold(spool):
                self._publish(entry)
                self._last_told = entry.event_id
                logger.info(
                    "grave findings were published to SNS, because the bus does not accept them",
                    extra={"event": entry.event_id},
                )
        except PublishFailed as error:
            if self._reasons.is_news(error):
                logger.error("SNS does not accept grave findings either; retrying", extra={"why": error})

    def begin_anew(self) -> None:
        """Reset, because the bus accepts events again."""
        self._last_told = ""
        self._reasons.forget()

    def close(self) -> None:
        """Close the connection."""
        self._sns.close()
        self._caller.close()

    def _untold(self, spool: Spool) -> Sequence[Entry]:
        return spool.failed(self._last_told, EVENTS_A_TRY)

    def _publish(self, entry: Entry) -> None:
        try:
            caller = self._caller.identity()
            topic = f"arn:{caller.partition}:sns:{self._sns.region}:{caller.account}:{names.FALLBACK_TOPIC}"
            self._signer.prepare()
            status, raw = self._sns.ask(_HEADERS, lambda: self._message(topic, redated(entry, self._sns.zero())))
        except (IdentityError, RequestFailed, NotPublished) as error:
            raise PublishFailed(str(error)) from error
        if status == http.HTTPStatus.OK:
            return
        code = _CODE.search(raw.decode("utf-8", "replace"))
        if code is not None and code[1] in ACCESS_ERRORS:
            self._caller.forget()
            self._sns.forget_credentials()
        raise PublishFailed(f"SNS answered {status} {code[1] if code else ''}".rstrip())

    def _message(self, topic: str, entry: Entry) -> bytes:
        signed = self._signer.sign(entry.detail_type, entry.detail, self._sns.now())
        fields = {"Action": "Publish", "Version": "2010-03-31", "TopicArn": topic, "Message": signed}
        return urlencode(fields).encode()
