"""Names of version 0.1 that others may still use: each is read as the new one, until version 0.3."""

import pytest
from pydantic import TypeAdapter

from nodeheal.contract.old_words import ESCALATIONS
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Escalation, Step
from nodeheal.domain.fleet.machine import Machine, Remediator
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Correlation
from tests.simulation.test_command import _run


@pytest.mark.parametrize(("old", "new"), ESCALATIONS.items())
def test_an_old_escalation_word_is_read_as_the_new_one(old: str, new: str) -> None:
    assert Escalation(old) is Escalation[new]
    assert old not in Escalation.__members__


def test_a_word_of_no_version_is_refused() -> None:
    with pytest.raises(ValueError, match="GONE_FISHING"):
        Escalation("GONE_FISHING")


def test_a_decision_that_version_0_1_stored_is_read() -> None:
    decision = Decision(
        step=Step.ESCALATE, reason="paused", node_id="i-1", policy_version="1", escalation=Escalation.RECOVERY_BLOCKED
    )
    stored = decision.model_dump_json().replace("RECOVERY_BLOCKED", "HELD_IN_THE_MIDDLE")

    assert Decision.model_validate_json(stored) == decision


def test_a_machine_that_version_0_1_recorded_keeps_its_remediator() -> None:
    stored = '{"machine_id": "i-1", "other_owner": "ec2_auto_recovery", "owner_detail": "as its options say"}'

    found = TypeAdapter(Machine).validate_json(stored)

    assert (found.external_remediator, found.remediator_detail) == (Remediator.ec2_auto_recovery, "as its options say")
    assert TypeAdapter(Machine).validate_json(TypeAdapter(Machine).dump_json(found)) == found


def test_an_old_key_of_the_policy_is_read_as_the_new_one() -> None:
    old = RecoveryPolicy.model_validate({"correlation": {"echoes": ["xid/43"]}})

    assert old.correlation.secondary_faults == ("xid/43",)
    assert old.model_dump()["correlation"].keys() == Correlation.model_fields.keys()


def test_the_old_option_of_a_simulation_does_the_same() -> None:
    old, new = (
        _run("--schedule", "17", option, "60:dies-after", "--json") for option in ("--blow", "--inject-failure")
    )

    assert old.exit_code == new.exit_code
    assert old.stdout == new.stdout


def test_the_old_option_is_not_offered() -> None:
    assert "--blow" not in _run("--help").stdout
