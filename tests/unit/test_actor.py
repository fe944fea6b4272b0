"""Who acts, by the ARN that AWS has authenticated."""

import pytest

from nodeheal.domain.actor import actor_of


@pytest.mark.parametrize(
    ("arn", "name"),
    [
        ("arn:aws:iam::123456789012:user/ada", "ada"),
        ("arn:aws-cn:iam::123456789012:user/ml/platform/ada", "ada"),
        ("arn:aws:sts::123456789012:assumed-role/operators/ci-7", "operators/ci-7"),
        ("arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_Ops_0a1b2c3d/ada@example.com", "ada@example.com"),
        ("arn:aws:sts::123456789012:assumed-role/nodeheal-console-operator-eu-west-1/ada", "ada"),
        (
            "arn:aws:sts::123456789012:assumed-role/x-nodeheal-console-operator-eu-west-1/ada",
            "x-nodeheal-console-operator-eu-west-1/ada",
        ),
        (
            "arn:aws:sts::123456789012:assumed-role/nodeheal-console-breakglass-eu-west-1/ada",
            "nodeheal-console-breakglass-eu-west-1/ada",
        ),
        ("arn:aws:sts::123456789012:federated-user/grace", "federated-user/grace"),
        ("arn:aws:iam::123456789012:root", "root of the account"),
    ],
)
def test_a_caller_has_a_name_that_nobody_else_can_take(arn: str, name: str) -> None:
    assert (actor_of(arn).id, actor_of(arn).name) == (arn, name)


@pytest.mark.parametrize("arn", ["", "ada", "arn:aws:iam::123456789012:"])
def test_what_names_nobody_is_refused(arn: str) -> None:
    with pytest.raises(ValueError, match="names no caller"):
        actor_of(arn)
