"""What tests of approvals are made of."""

from nodeheal.domain.recovery.approval_links import Answer


def both(first: Answer = Answer.approve) -> dict[Answer, str]:
    """A link for each answer, the one that was opened first."""
    return {answer: f"?answer={answer}&signature=s" for answer in sorted(Answer, key=lambda each: each is not first)}
