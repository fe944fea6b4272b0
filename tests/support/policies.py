"""The policy that acts, with changes."""

from typing import Any

from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Fabric
from tests.support.builders import ACT


def with_policy(**changes: Any) -> RecoveryPolicy:
    """The acting policy, changed."""
    return RecoveryPolicy.model_validate({**ACT.model_dump(mode="json"), **changes})


WITH_FABRIC = ACT.model_copy(
    update={"default_pool": ACT.default_pool.model_copy(update={"fabric": Fabric(tests=True, min_mb_per_second=900)})}
)
