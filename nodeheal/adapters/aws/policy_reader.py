"""The policy document that is in force: AppConfig's, read through Powertools, kept for a minute.

A document that cannot be used changes nothing: the last good one stays in force, here and in the table, and a metric
says so. An alarm watches that metric.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from nodeheal.adapters.aws.items import Table, to_item
from nodeheal.contract import names
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.policy.policy import PolicyRefused, RecoveryPolicy, parse_policy

KEPT_SECONDS = 60


def last_good(table: Table) -> RecoveryPolicy | None:
    """The copy of the newest valid policy document in the table. None: no function has stored one yet, or a release
    wrote it whose policies this one cannot read."""
    kept = table.get(names.POLICY_PK, names.POLICY_SK)
    try:
        return parse_policy(kept["document"]["S"]) if kept else None
    except PolicyRefused:
        return None


class Source(Protocol):
    """Powertools' AppConfigProvider, as far as it is used."""

    def get(self, name: str, max_age: int | None = None) -> object:
        """The deployed document. Raises GetParameterError."""


@dataclass
class PolicyReader:
    """Reads the policy. `alarm` is told why, each time that the deployed document is not the one in force."""

    connect: Callable[[], Source]
    profile: str
    table: Table
    alarm: Callable[[str], None]
    _source: Source | None = field(default=None, init=False)
    _text: str = field(default="", init=False)
    _policy: RecoveryPolicy | None = field(default=None, init=False)

    def read(self) -> RecoveryPolicy:
        """The policy in force. Raises NotAccepted where none can be read and none is remembered."""
        from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError

        self._source = self._source or self.connect()
        try:
            found = self._source.get(self.profile, max_age=KEPT_SECONDS)
        except GetParameterError as error:
            self._source = None  # its session may be what is broken: the next call begins a new one
            return self._last_good(f"AppConfig cannot be read: {error}")
        text = found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
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
        """What was in force before. `otherwise`: what holds where nothing ever was."""
        self.alarm(why)
        if self._policy is None:
            self._policy = last_good(self.table) or otherwise
        if self._policy is None:
            raise NotAccepted(f"no policy: {why}")
        return self._policy

    def _remember(self, policy: RecoveryPolicy, text: str) -> None:
        """For the functions that start cold while the deployed document cannot be used.

        As it was applied: with every default written out, no later release could drop a knob and still read it.
        """
        item = {"pk": names.POLICY_PK, "sk": names.POLICY_SK, "version": policy.version}
        self.table.put(
            to_item({**item, "document": text}),
            "attribute_not_exists(pk) OR version <> :version",
            {":version": policy.version},
        )
