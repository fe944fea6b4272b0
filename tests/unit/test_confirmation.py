"""Nothing that nobody undoes rests on one report: the node confirms its fault first, or a witness does, or a human."""

from typing import Any

import pytest

from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.results import EvidenceSaved, Isolated, StepResult
from nodeheal.contract.steps import DecideRequest, StepRequest
from nodeheal.contract.vocabulary import Action, Confirmation, Ending, Escalation, Family, Outcome, Step
from nodeheal.domain.faults.catalog import catalog
from nodeheal.domain.fleet.liveness import ProbeAnswer
from nodeheal.domain.policy.policy_models import Evidence
from nodeheal.domain.recovery.confirmation import confirmations_in
from nodeheal.operations.verbs import conclude
from nodeheal.services.recovery.decide_next_step import decide_next_step
from tests.support.builders import ACT, xid
from tests.support.fake_cluster import FakeCluster
from tests.support.incident_steps import A, Incident
from tests.support.recovery_story import Story, steps_of
from tests.support.step_functions import freeze_evidence

SAVES = ACT.model_copy(update={"evidence": Evidence()})
DOWN = "ECS: agent not connected"
AT_ONCE = (Action.REPLACE, Action.ISOLATE)
ASKED_AT_ONCE = [row for row in catalog().values() if row.ladder[0] in AT_ONCE and row.code != "operator_request"]


def isolated(code: int = 74, /, **changes: Any) -> Story:
    """Drained, and not asked about anything yet."""
    return Story(xid(code, **changes)).then(Outcome.DONE, facts=Isolated(is_drained=True))


@pytest.mark.parametrize("code", [74, 54])
def test_the_node_is_asked_about_its_fault_before_it_is_replaced_or_stays_isolated(code: int) -> None:
    asked = isolated(code).next()

    assert asked.step is Step.FREEZE_EVIDENCE
    assert asked.accused is not None
    assert asked.accused.about == f"xid/{code} on 0000:b9:00.0"
    assert (asked.accused.boot_id, asked.accused.source) == ("boot-1", "kernel_log")


@pytest.mark.parametrize("row", ASKED_AT_ONCE, ids=lambda row: row.key)
def test_no_ladder_of_the_catalog_goes_on_before_a_node_has_confirmed_what_it_reported(row: Any) -> None:
    changes = {"family": row.family, "code": row.code, "subcode": row.subcode or None, "verdict": row.verdict}
    told = xid(**{**changes, "product": None})
    decided = Story(told).then(Outcome.DONE, facts=Isolated(is_drained=True)).next()

    assert decided.step is Step.FREEZE_EVIDENCE


@pytest.mark.parametrize(("code", "next_step"), [(74, Step.REPLACE), (54, Step.ESCALATE)])
def test_a_fault_that_the_node_confirms_takes_its_course(code: int, next_step: Step) -> None:
    assert isolated(code).answers(Confirmation.CONFIRMED).next().step is next_step


@pytest.mark.parametrize("code", [74, 54])
def test_a_node_that_denies_its_fault_is_diagnosed_and_goes_back_to_service_when_it_passes(code: int) -> None:
    story = isolated(code).answers(Confirmation.DENIED)

    assert story.next().step is Step.DIAGNOSE
    assert "the node says DENIED" in story.next().reason
    back = story.passed()
    assert back.next().step is Step.RETURN
    assert "the node says DENIED; and it passed its diagnostics" in back.next().reason
    assert back.then(Outcome.DONE).then(Outcome.DONE).next().ending is Ending.RECOVERED


def test_a_node_that_denies_its_fault_and_fails_its_diagnostics_is_replaced() -> None:
    assert isolated().answers(Confirmation.DENIED).failed().next().step is Step.REPLACE


def test_a_node_that_denies_its_fault_and_does_not_answer_its_diagnostics_is_a_humans() -> None:
    story = isolated().answers(Confirmation.DENIED).then(Outcome.TIMED_OUT, "diagnostics did not answer")

    assert story.next().escalation is Escalation.NOT_CONFIRMED
    assert "diagnostics did not answer" in story.next().reason


@pytest.mark.parametrize("code", [74, 54])
def test_a_node_that_cannot_tell_is_a_humans(code: int) -> None:
    decided = isolated(code).answers(Confirmation.UNKNOWN).next()

    assert (decided.ending, decided.escalation) == (Ending.HANDED_TO_A_HUMAN, Escalation.NOT_CONFIRMED)


@pytest.mark.parametrize(("code", "next_step"), [(74, Step.REPLACE), (54, Step.ESCALATE)])
def test_a_witness_confirms_for_a_node_that_does_not_answer(code: int, next_step: Step) -> None:
    decided = isolated(code).answers(Confirmation.UNKNOWN, witness=DOWN).next()

    assert decided.step is next_step
    assert decided.escalation is not Escalation.NOT_CONFIRMED


def test_no_witness_outweighs_a_node_that_denies_its_fault() -> None:
    assert isolated().answers(Confirmation.DENIED, witness=DOWN).next().step is Step.DIAGNOSE


def test_a_reboot_is_undone_by_itself_and_waits_for_no_confirmation() -> None:
    assert isolated(79).next().step is Step.REBOOT


def test_a_reboot_that_did_not_help_speaks_for_the_fault() -> None:
    assert isolated(79).rebooted().failed().next().step is Step.REPLACE


def test_a_reboot_that_was_not_possible_speaks_for_nothing() -> None:
    assert isolated(79).then(Outcome.FAILED, "SSM takes no command for it").next().step is Step.FREEZE_EVIDENCE


def test_the_evidence_that_is_saved_anyway_carries_the_question() -> None:
    story = Story(xid(79), policy=SAVES).then(Outcome.DONE, facts=Isolated(is_drained=True))

    assert story.next().accused is not None
    assert steps_of(story.answers(Confirmation.CONFIRMED)) == ["ISOLATE", "FREEZE_EVIDENCE", "REBOOT"]
    assert story.answers(Confirmation.CONFIRMED).then(Outcome.FAILED, "not sent").next().step is Step.REPLACE


def test_a_graver_fault_than_the_one_that_was_confirmed_is_asked_about_by_itself() -> None:
    story = Story(xid(79), policy=SAVES).then(Outcome.DONE, facts=Isolated(is_drained=True))
    graver = story.answers(Confirmation.CONFIRMED).reports(xid(64, event_id="graver"))

    asked = graver.next()

    assert asked.accused is not None
    assert asked.accused.code == "64"
    assert graver.answers(Confirmation.CONFIRMED).next().step is Step.REPLACE


@pytest.mark.parametrize("source", ["aws.ec2", "nodeheal.operator", "nodeheal.jobs"])
def test_what_only_aws_or_nodeheal_can_say_needs_no_confirmation(source: str) -> None:
    assert isolated(74, source=source).next().step is Step.REPLACE


def test_of_a_node_that_has_booted_since_its_diagnostics_are_asked_and_not_its_log() -> None:
    story = isolated(54).amid(boot_id="boot-2")
    asked = story.next()

    assert asked.step is Step.DIAGNOSE
    assert "booted by itself since" in asked.reason


def test_the_answer_is_told_in_one_line() -> None:
    unheard = isolated().answers(Confirmation.UNKNOWN, witness=DOWN)

    assert confirmations_in(isolated().history) == []
    assert confirmations_in(unheard.history) == [f"UNKNOWN: xid/74 on 0000:b9:00.0 ({DOWN})"]


# The witnesses


def asked(it: Incident) -> StepRequest:
    """The incident's node is isolated, and has just been asked about its fault."""
    it.policy = SAVES
    it.isolate()
    request = it.request()
    assert request.decision.accused is not None
    freeze_evidence(request, it.ports, SAVES)
    return request


def decided_after(it: Incident, result: StepResult) -> Any:
    request = DecideRequest(incident_id=it.id, turn=it.turn, result=result)
    return decide_next_step(request, it.ports, SAVES)


@pytest.mark.parametrize(
    ("said", "next_step"),
    [
        ((ProbeAnswer("ECS", is_up=False, text="agent not connected"),), Step.REPLACE),
        (
            (
                ProbeAnswer("EC2", is_up=False, text="system check impaired"),
                ProbeAnswer("SSM", is_up=True, text="Online"),
            ),
            Step.REPLACE,
        ),
        ((ProbeAnswer("SSM", is_up=False, text="connection lost"),), Step.REPLACE),
        ((ProbeAnswer("ECS", is_up=True, text="agent connected"),), Step.ESCALATE),
        ((ProbeAnswer("EC2", is_up=None, text="cannot tell"),), Step.ESCALATE),
        ((), Step.ESCALATE),
    ],
)
def test_who_says_that_a_silent_node_is_down_is_asked_and_kept(said: tuple[ProbeAnswer, ...], next_step: Step) -> None:
    it = Incident(74)
    request = asked(it)
    it.ports.liveness_probes.says[A] = said  # type: ignore[attr-defined]

    decision = decided_after(it, conclude(request, it.ports))

    assert decision.step is next_step
    kept = it.ports.incidents.history(it.id).turns[-2].result
    assert kept is not None
    assert bool(kept.down_reported_by) == (next_step is Step.REPLACE)


def test_no_witness_is_asked_about_a_node_that_answers() -> None:
    it = Incident(74)
    request = asked(it)
    answer = conclude(request, it.ports).model_copy(
        update={"outcome": Outcome.DONE, "facts": EvidenceSaved(confirmation=Confirmation.CONFIRMED)}
    )

    decided_after(it, answer)

    assert it.ports.liveness_probes.asked == []  # type: ignore[attr-defined]


def test_what_an_operator_asks_for_needs_no_confirmation() -> None:
    asked = xid(79).model_copy(
        update={"family": Family.host, "code": OPERATOR_REQUEST, "subcode": "REPLACE", "source": "operator"}
    )

    assert Story(asked).isolated().next().step is not Step.FREEZE_EVIDENCE


def test_the_isolation_has_the_node_asked_about_its_fault_while_the_gang_stops() -> None:
    isolation = Story(xid(74), policy=SAVES).next()
    asked = Story(xid(74), policy=SAVES).isolated().next()

    assert (isolation.accused, isolation.evidence_seconds) == (asked.accused, Evidence().seconds + 15)
    assert (asked.step, asked.continues) == (Step.FREEZE_EVIDENCE, 1)


def test_what_the_isolation_has_asked_about_another_fault_is_no_answer() -> None:
    graver = xid(79)
    asked = Story(xid(74), policy=SAVES).isolated().reports(graver).next()

    assert (asked.step, asked.continues) == (Step.FREEZE_EVIDENCE, None)


@pytest.mark.parametrize(
    "story",
    [Story(xid(74)), Story(xid(79, family=Family.heartbeat, code="silent", subcode="confirmed"), policy=SAVES)],
    ids=["no evidence", "silent"],
)
def test_a_node_is_not_asked_meanwhile_where_nothing_is_saved_or_nothing_heard(story: Story) -> None:
    assert (story.next().step, story.next().evidence_seconds) == (Step.ISOLATE, 0)


def test_an_email_tells_once_what_the_node_has_answered_though_the_isolation_asks_ahead() -> None:
    cluster = FakeCluster(ACT.model_copy(update={"evidence": Evidence()}))

    cluster.reports(xid(79))

    told = confirmations_in(cluster.ports.incidents.history(cluster.incident_id))
    assert [line.partition(":")[0] for line in told] == ["CONFIRMED"]
