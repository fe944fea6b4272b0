"""Reads the active policy document from AppConfig by Powertools, cached for a minute.

An invalid document changes nothing: the last good one stays active, here and in the table, and a metric counts that. An
alarm watches the metric.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from nodeheal.adapters.aws.calls import client
from nodeheal.adapters.aws.items import Table, to_item
from nodeheal.contract import names
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.policy.policy import PolicyRefused, RecoveryPolicy, parse_policy

KEPT_SECONDS = 60


def last_good(table: Table) -> RecoveryPolicy | None:
    """Return the copy of the newest valid policy document in the table. None: no function has stored one yet, or
    another release stored one that this release cannot parse.
    """
    kept = table.get(names.POLICY_PK, names.POLICY_SK)
    try:
        return parse_policy(kept["document"]["S"]) if kept else None
    except PolicyRefused:
        return None


def policy_copy(table: str) -> RecoveryPolicy:
    """Return the copy of the policy in force that the sweep keeps in the table: one read. The default without one."""
    return last_good(Table(client("dynamodb"), table)) or RecoveryPolicy()


class Source(Protocol):
    """The part of Powertools' AppConfigProvider that is used."""

    def get(self, name: str, max_age: int | None = None) -> object:
        """Return the deployed document. Raises GetParameterError."""


@dataclass
class PolicyReader:
    """Reads the policy. `alarm` gets the reason each time that the deployed document is not the active one."""

    connect: Callable[[], Source]
    profile: str
    table: Table
    alarm: Callable[[str], None]
    _source: Source | None = field(default=None, init=False)
    _text: str = field(default="", init=False)
    _policy: RecoveryPolicy | None = field(default=None, init=False)

    def read(self) -> RecoveryPolicy:
        """Return the active policy. Raises NotAccepted where none can be read and none is stored."""
        from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError

        self._source = self._source or self.connect()
        try:
            document = self._source.get(self.profile, max_age=KEPT_SECONDS)
        except GetParameterError as error:
            self._source = None  # its session may be broken: the next call starts a new one
            return self._last_good(f"AppConfig cannot be read: {error}")
        text = document.decode("utf-8", "replace") if isinstance(document, bytes) else str(document)
        if self._policy is not None and text == self._text:
            return self._policy
        try:
            policy = parse_policy(text)
        except PolicyRefused as refused:
            return self._last_good(f"the deployed policy is not valid: {refused.complaints[0]}", RecoveryPolicy())
        self._text, self._policy = text, policy
        self._remember(policy, text)
        return policy

    def _last_good(self, why: str, otherwise: RecoveryPolicy | None = None) -> RecoveryPolicy:
        """Return the previously active policy. `otherwise`: what applies where there never was one."""
        self.alarm(why)
        if self._policy is None:
            self._policy = last_good(self.table) or otherwise
        if self._policy is None:
            raise NotAccepted(f"no policy: {why}")
        return self._policy

    def _remember(self, policy: RecoveryPolicy, text: str) -> None:
        """Store the document for functions that start while the deployed document is invalid.

        It is stored as applied: with all defaults written out, no later release could remove a setting and still parse
        it.
        """
        item = {"pk": names.POLICY_PK, "sk": names.POLICY_SK, "version": policy.version}
        self.table.put(
            to_item({**item, "document": text}),
            "attribute_not_exists(pk) OR version <> :version",
            {":version": policy.version},
        )
