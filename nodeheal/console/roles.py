"""What each role of the console may do. IAM decides it; pages hide what it would refuse."""

from collections.abc import Mapping
from enum import StrEnum

from nodeheal.contract.vocabulary import ActKind


class Role(StrEnum):
    """What a person is at the console, the weakest first. The names are those of the groups at Cognito."""

    viewer = "viewer"
    researcher = "researcher"
    operator = "operator"


class OwnAct(StrEnum):
    """What people do with their own rights, past the API of acts."""

    DRILL = "DRILL"
    POLICY = "POLICY"


AnyAct = ActKind | OwnAct
EVERYTHING: frozenset[AnyAct] = frozenset({*ActKind, *OwnAct})
ACTS_OF_ROLE: Mapping[Role, frozenset[AnyAct]] = {
    Role.viewer: frozenset(),
    Role.researcher: frozenset({ActKind.SUBMIT_JOB, ActKind.STOP_JOB, ActKind.RESTART_JOB}),
    Role.operator: EVERYTHING,
}


def strongest(groups: object) -> Role | None:
    """Return the strongest role among these names. None: they give none."""
    given = groups if isinstance(groups, list) else []
    return next((role for role in reversed(Role) if role.value in given), None)
