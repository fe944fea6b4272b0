"""Announce the digests that are due: one for each channel that takes one, for the last period that is over."""

from datetime import UTC, datetime, timedelta

from nodeheal.contract.names import INCIDENT_DIGEST
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.notify.channel_kinds import KINDS
from nodeheal.services.notify.compose_digest import compose_digest, digest_key
from nodeheal.services.operators.review_incidents import list_incidents

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def announce_digests(pools: list[str], ports: Ports, policy: RecoveryPolicy) -> list[str]:
    """Announces them, and returns their keys. A period without incidents has no digest.

    Announced again until it has gone out; `notify` sends it once at most.
    """
    announced = []
    for channel, asked in policy.channels.items():
        kind = ports.channels.get(channel)
        if not asked.digest_hours or kind is None or not KINDS[kind].takes_digests:
            continue
        period = timedelta(hours=asked.digest_hours)
        until = _EPOCH + (ports.clock() - _EPOCH) // period * period
        key = digest_key(channel, until)
        if ports.notifier.was_sent(key):
            continue
        newest_first = [
            incident
            for incident in list_incidents(ports, pools, list(IncidentState), until - period)
            if incident.opened_at < until
        ]
        if not newest_first:
            ports.notifier.mark_sent(key)  # not looked for again
            continue
        ports.notifier.announce(INCIDENT_DIGEST, compose_digest(channel, until - period, until, newest_first[::-1]))
        announced.append(key)
    return announced
