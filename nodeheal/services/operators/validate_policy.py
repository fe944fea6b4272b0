"""Say whether a policy document may come into force."""

from nodeheal.domain.policy.policy import PolicyRefused, RecoveryPolicy, parse_policy

_COMPLAINTS = 5


def validate_policy(text: str) -> RecoveryPolicy:
    """The document, parsed. Raises ValueError that names each field that is wrong, the first five."""
    try:
        return parse_policy(text)
    except PolicyRefused as refused:
        raise ValueError(f"the policy document is refused: {'; '.join(refused.complaints[:_COMPLAINTS])}") from None
