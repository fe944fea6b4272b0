"""Say whether a policy document may come into force."""

from collections.abc import Iterator, Mapping

from nodeheal.contract.vocabulary import ChannelKind
from nodeheal.domain.policy.policy import PolicyRefused, RecoveryPolicy, parse_policy
from nodeheal.services.notify.channel_kinds import KINDS

_COMPLAINTS = 5


def validate_policy(text: str, channels: Mapping[str, ChannelKind]) -> RecoveryPolicy:
    """The document, parsed. `channels`: those of the deployment. Raises ValueError that names each field that is wrong,
    the first five."""
    try:
        policy = parse_policy(text)
    except PolicyRefused as refused:
        raise _refusal(refused.complaints) from None
    complaints = tuple(complaints_of_channels(policy, channels))
    if complaints:
        raise _refusal(complaints)
    return policy


def complaints_of_channels(policy: RecoveryPolicy, channels: Mapping[str, ChannelKind]) -> Iterator[str]:
    """What the policy asks of channels that this deployment does not have, or that they cannot do; the field first."""
    for name, asked in policy.channels.items():
        if name not in channels:
            yield f"channels.{name}: this deployment has no such channel; it has {', '.join(channels)}"
        elif asked.digest_hours and not KINDS[channels[name]].takes_digests:
            yield f"channels.{name}.digest_hours: a channel of kind {channels[name]} takes no digests"


def _refusal(complaints: tuple[str, ...]) -> ValueError:
    return ValueError(f"the policy document is refused: {'; '.join(complaints[:_COMPLAINTS])}")
