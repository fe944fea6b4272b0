"""Say whether a policy document may come into force."""

from pydantic import ValidationError

from nodeheal.domain.policy import RecoveryPolicy

_COMPLAINTS = 5


def validate_policy(text: str) -> RecoveryPolicy:
    """The document, parsed. Raises ValueError that names each field that is wrong, the first five."""
    try:
        return RecoveryPolicy.model_validate_json(text)
    except ValidationError as error:
        told = [f"{'.'.join(map(str, e['loc'])) or 'document'}: {e['msg']}" for e in error.errors()[:_COMPLAINTS]]
        raise ValueError(f"the policy document is refused: {'; '.join(told)}") from None
