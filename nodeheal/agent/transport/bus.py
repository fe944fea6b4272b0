"""Puts events on EventBridge with the standard library only."""

import http
import json
from collections.abc import Sequence
from dataclasses import dataclass

from nodeheal.agent.identity.signing import NotPublished, Signs
from nodeheal.agent.transport.aws_client import ACCESS_ERRORS, AwsClient, RequestFailed
from nodeheal.agent.transport.clock_correction import redated
from nodeheal.agent.transport.event import Entry
from nodeheal.contract import names
from nodeheal.contract.json_text import read_json

ENTRIES_A_CALL = 10  # PutEvents takes no more
CALL_BYTES = 200 * 1024  # PutEvents takes 256 KiB in all; the rest is for envelope and arithmetic

ENVELOPE_BYTES = 512  # signer, key and signature
ANSWER_BYTES = 100  # how much of an unreadable answer is quoted

# Errors of the entry itself, which no retry can fix.
_ENTRY_ERRORS = ("InvalidArgument", "MalformedDetail", "ValidationException", "RequestEntityTooLargeException")
_HEADERS = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "AWSEvents.PutEvents"}


class BusUnavailable(Exception):
    """The call was not accepted; keep all events and retry. `is_refusal`: an operator must change permissions."""

    def __init__(self, reason: str, is_refusal: bool = False) -> None:
        super().__init__(reason)
        self.is_refusal = is_refusal


@dataclass(frozen=True)
class Receipt:
    """The result of one call, by entry."""

    accepted: tuple[str, ...]
    hopeless: tuple[tuple[str, str], ...] = ()  # (event id, reason): the bus refuses it for good
    later: tuple[tuple[str, str], ...] = ()  # (event id, reason): to be sent again
    is_refusal: bool = False  # an operator must change permissions before the bus accepts those

    @property
    def why_later(self) -> str:
        """The reasons for the entries to be sent again, each once."""
        return "; ".join(sorted({why for _, why in self.later}))


def batch(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return as many of the first entries as fit into one call; at least one."""
    size = 0
    for index, entry in enumerate(entries[:ENTRIES_A_CALL]):
        size += len(json.dumps(entry.detail, ensure_ascii=False).encode()) + ENVELOPE_BYTES
        if index and size > CALL_BYTES:
            return entries[:index]
    return entries[:ENTRIES_A_CALL]


class EventBus:
    """A connection to one bus, kept open. Not safe to share between threads."""

    def __init__(self, bus: str, service: AwsClient, signer: Signs) -> None:
        self._bus = bus
        self._service = service
        self._signer = signer

    def put(self, entries: Sequence[Entry]) -> Receipt:
        """Sign and send one batch. Raises BusUnavailable if the call as a whole was not accepted.

        Each event is signed when it is sent, since an event may wait in the spool for longer than a key is valid.
        """

        def body() -> bytes:
            zero = self._service.zero()  # which the service may have reported in this call
            signed_entries = [self._entry(redated(entry, zero)) for entry in entries]
            return json.dumps({"Entries": signed_entries}, ensure_ascii=False).encode()

        try:
            self._signer.prepare()
        except NotPublished as error:
            raise BusUnavailable(str(error), error.is_refusal) from error
        try:
            status, raw = self._service.ask(_HEADERS, body)  # safe to send twice: event ids are stable
        except RequestFailed as error:
            raise BusUnavailable(str(error), error.is_refusal) from error
        answer = _parsed(raw)
        if status == http.HTTPStatus.OK:
            receipt = _receipt(entries, answer)
            if receipt.is_refusal:
                self._service.forget_credentials()
            return receipt
        code = _error_code(answer)
        # An answer without an error code may come from a proxy.
        detail = f"{code} {_text(answer, 'message')}" if code else f"{raw[:ANSWER_BYTES]!r} of {self._service.host}"
        reason = f"{status} {detail}".rstrip()
        if status == http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE or code in _ENTRY_ERRORS:
            return self._one_by_one(entries, reason, code in _ENTRY_ERRORS)
        is_refusal = code in ACCESS_ERRORS or status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN)
        if is_refusal:
            self._service.forget_credentials()
        raise BusUnavailable(reason, is_refusal)

    def close(self) -> None:
        """Close the connection."""
        self._service.close()
        self._signer.close()

    def _one_by_one(self, entries: Sequence[Entry], reason: str, is_the_bus: bool) -> Receipt:
        """Send entries one by one to find which one made the bus refuse the call. An entry that a proxy calls too large
        is kept: none of ours is too large for the bus.
        """
        if len(entries) == 1:
            refused = ((entries[0].event_id, reason),)
            return Receipt((), refused) if is_the_bus else Receipt((), (), refused)
        receipts = [self.put([entry]) for entry in entries]
        return Receipt(
            tuple(event_id for receipt in receipts for event_id in receipt.accepted),
            tuple(loss for receipt in receipts for loss in receipt.hopeless),
            tuple(wait for receipt in receipts for wait in receipt.later),
            any(receipt.is_refusal for receipt in receipts),
        )

    def _entry(self, entry: Entry) -> dict[str, object]:
        return {
            "Source": names.AGENT_SOURCE,
            "DetailType": entry.detail_type,
            "Detail": self._signer.sign(entry.detail_type, entry.detail, self._service.now()),
            "EventBusName": self._bus,
            "Time": entry.observed_at,
        }


def _parsed(raw: bytes) -> object:
    try:
        return read_json(raw)
    except ValueError:
        return {}


def _receipt(entries: Sequence[Entry], answer: object) -> Receipt:
    results = answer.get("Entries") if isinstance(answer, dict) else None
    if not isinstance(results, list) or len(results) != len(entries):
        raise BusUnavailable("the answer has no result for the entries")
    accepted, hopeless, later, is_refusal = [], [], [], False
    for entry, result in zip(entries, results, strict=True):
        code = _text(result, "ErrorCode")
        refusal = (entry.event_id, f"{code} {_text(result, 'ErrorMessage')}".rstrip())
        if not code and not _text(result, "EventId"):
            later.append((entry.event_id, "the answer has no result for the entry"))
        elif not code:
            accepted.append(entry.event_id)
        elif code in _ENTRY_ERRORS:
            hopeless.append(refusal)
        else:
            later.append(refusal)
            is_refusal = is_refusal or code in ACCESS_ERRORS
    return Receipt(tuple(accepted), tuple(hopeless), tuple(later), is_refusal)


def _error_code(answer: object) -> str:
    return _text(answer, "__type").rpartition("#")[2] or _text(answer, "code")


def _text(answer: object, key: str) -> str:
    if not isinstance(answer, dict):
        return ""
    return str(answer.get(key) or answer.get(key.capitalize()) or "")
