"""Whether a job waits for its node or goes on elsewhere: what is sooner, by what was measured in its pool."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Confirmation, Ending, JobState, Outcome, Provider, Step
from nodeheal.domain.faults.assessment import assess_faults
from nodeheal.domain.policy.policy_models import Mode, Override, PoolPolicy
from nodeheal.domain.recovery.decision_builder import DecisionBuilder
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.domain.recovery.incident import History, Incident, Turn
from nodeheal.domain.recovery.job_move import _upper_bound
from nodeheal.ports import Ports
from nodeheal.services.jobs import job_replacement_node
from nodeheal.services.saving import node_of
from tests.support.builders import ACT, NOW, xid
from tests.support.incident_steps import LLAMA, A
from tests.support.job_moves import MOVES, broken, took
from tests.support.recovery_story import SPARE, Story

FREE = "mi-0free"
LINK = xid(74)  # asks for a replacement at once


def is_move(story: Story) -> bool:
    decision = story.next()
    return decision.is_move and decision.step is Step.RESTART_WORKLOAD


def test_a_job_whose_node_would_take_longer_than_it_may_wait_goes_on_at_once_and_is_told_why() -> None:
    story = broken(free_nodes=2, recovery_seconds=took(400, 420, 500, 430, 410))

    assert is_move(story)
    assert story.next().reason == (
        "llama goes on elsewhere at once: a reboot here takes 7 min by the last 5, "
        "and 2 free nodes of the pool have passed diagnostics"
    )


@pytest.mark.parametrize(("usual", "moves"), [(120, False), (121, True)])
def test_what_counts_is_the_median_of_that_step(usual: float, moves: bool) -> None:
    times = {**took(10, usual, 9_000), **took(9_000, rung=Action.REPLACE)}

    assert is_move(broken(free_nodes=1, recovery_seconds=times)) is moves


def test_one_that_was_measured_is_worth_more_than_what_the_policy_allows() -> None:
    assert not is_move(broken(free_nodes=1, recovery_seconds=took(90)))
    assert "by the last one" in broken(free_nodes=1, recovery_seconds=took(190)).next().reason


def test_until_one_was_measured_it_may_take_as_long_as_the_policy_allows() -> None:
    decision = broken(free_nodes=1).next()

    assert decision.is_move
    assert "a reboot here may take 40 min" in decision.reason


@pytest.mark.parametrize(
    ("provider", "told"),
    [
        (Provider.hybrid, "a replacement here may take 20 min"),
        (Provider.ec2, "a replacement here may take 50 min"),
    ],
)
def test_a_replacement_takes_its_own_time(provider: Provider, told: str) -> None:
    assert told in broken(LINK, free_nodes=1, provider=provider).next().reason


def test_without_a_free_node_it_waits() -> None:
    assert broken().next().step is Step.REBOOT


def test_a_free_node_that_has_not_passed_lately_is_diagnosed_first_where_that_is_sooner_still() -> None:
    decision = broken(replacement_node=FREE, recovery_seconds=took(420), proof_seconds=(60.0, 80.0, 70.0)).next()

    assert (decision.step, decision.node_id, decision.is_move, decision.reserve) == (Step.DIAGNOSE, FREE, True, ())
    assert decision.reason == (
        "a reboot here takes 7 min by the last one; a diagnosis here takes 1 min 10 s by the last 3, and "
        f"{FREE} is free: it is to pass its diagnostics, so that llama can go on there"
    )


@pytest.mark.parametrize(("healed", "seconds"), [(420, 300), (9_000, 1_200)])
def test_one_that_is_silent_is_not_waited_for_longer_than_it_could_save(healed: float, seconds: int) -> None:
    story = broken(replacement_node=FREE, recovery_seconds=took(healed), proof_seconds=(60.0,))

    assert story.next().deadline_seconds == seconds


@pytest.mark.parametrize(("healed", "step"), [(240, Step.REBOOT), (241, Step.DIAGNOSE)])
def test_what_its_diagnosis_takes_is_taken_off_what_is_saved(healed: float, step: Step) -> None:
    assert broken(replacement_node=FREE, recovery_seconds=took(healed), proof_seconds=(120.0,)).next().step is step


def test_a_proof_that_was_measured_as_negative_leaves_no_negative_deadline() -> None:
    """Of two clocks that differ. The repair takes less than a move is worth."""
    story = broken(replacement_node=FREE, recovery_seconds=took(110), proof_seconds=(-300.0,))

    assert story.next().step is Step.REBOOT


def test_when_it_has_passed_the_job_goes_on_there() -> None:
    story = (
        broken(replacement_node=FREE, recovery_seconds=took(420), proof_seconds=(60.0,))
        .passed()
        .amid(replacement_node="")
    )

    assert is_move(story)
    assert f"{FREE} has passed its diagnostics" in story.next().reason


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.UNKNOWN, Outcome.REFUSED, Outcome.TIMED_OUT])
def test_one_that_proves_nothing_costs_the_broken_node_nothing(outcome: Outcome) -> None:
    story = broken(replacement_node=FREE, recovery_seconds=took(420), proof_seconds=(60.0,)).then(
        outcome, "memory is bad"
    )

    assert story.next().step is Step.REBOOT
    assert f"{FREE} could not stand in for it: memory is bad" in story.next().reason


def test_the_proof_of_another_node_is_none_of_the_broken_one() -> None:
    story = broken(replacement_node=FREE, recovery_seconds=took(420), proof_seconds=(60.0,)).passed().then(Outcome.DONE)

    assert story.next().step is Step.REBOOT


def test_a_reboot_that_did_not_help_does_not_keep_the_job_where_a_node_is_free() -> None:
    story = broken(LINK if False else xid(79), free_nodes=0).rebooted().failed().amid(free_nodes=1)

    assert is_move(story)
    assert story.then(Outcome.DONE).next().step is Step.ESCALATE, "no spare is taken for a node whose job is elsewhere"


def test_while_its_repair_waits_for_proof_and_once_it_is_proven_nothing_is_moved() -> None:
    rebooted = broken(free_nodes=0).rebooted().amid(free_nodes=1)

    assert rebooted.next().step is Step.DIAGNOSE
    assert not rebooted.next().is_move
    assert rebooted.passed().next().step is Step.RETURN


def test_a_node_that_only_a_human_can_help_does_not_keep_the_job() -> None:
    unclear = broken().rebooted().then(Outcome.UNKNOWN, "no result").amid(free_nodes=1)
    spent = broken(free_nodes=1, spent={(node_scope(xid(79).node_id), a): 9 for a in (Action.REBOOT, Action.REPLACE)})

    for story in (unclear, spent):
        assert is_move(story)
        assert "a human has to look at this node first" in story.next().reason
        moved = story.then(Outcome.DONE)
        confirmed = moved if moved.next().accused is None else moved.answers(Confirmation.CONFIRMED)
        assert confirmed.next().step is Step.ESCALATE


def test_a_move_that_was_refused_is_not_tried_again() -> None:
    story = broken(free_nodes=1).then(Outcome.REFUSED).rebooted().failed()

    assert story.next().step is Step.REPLACE


@pytest.mark.parametrize(("outcome", "step"), [(Outcome.REFUSED, Step.RESTART_WORKLOAD), (Outcome.DONE, Step.CLOSE)])
def test_a_job_is_brought_back_once_elsewhere_or_when_its_node_is_healed(outcome: Outcome, step: Step) -> None:
    story = broken(free_nodes=1).then(outcome).rebooted().passed().then(Outcome.DONE, "it serves")

    assert story.next().step is step


def test_a_policy_may_have_jobs_wait_for_their_nodes_whatever_it_takes() -> None:
    unclear = Story(xid(79), policy=ACT).isolated().rebooted().then(Outcome.UNKNOWN, "no result").amid(free_nodes=1)

    assert unclear.next().step is Step.ESCALATE


def test_an_ec2_pool_that_stops_and_starts_reckons_with_that() -> None:
    pool = PoolPolicy(mode=Mode.act, stop_start=True, budget=ACT.default_pool.budget)
    policy = MOVES.model_copy(update={"default_pool": pool})
    story = Story(xid(79), policy=policy).amid(provider=Provider.ec2).isolated().rebooted().failed()

    told = story.amid(free_nodes=1, recovery_seconds=took(timedelta(hours=1).seconds, rung=Action.STOP_START)).next()

    assert "a stop and start here takes 1 h" in told.reason


def test_where_the_replacement_node_breaks_when_the_job_is_there_the_job_is_elsewhere_still() -> None:
    """It came while the job was launched there, to the incident that held the replacement node then."""
    story = broken(replacement_node=FREE, recovery_seconds=took(420), proof_seconds=(60.0,)).then(
        Outcome.DONE, boot_id="boot-5"
    )
    moved = (
        story.amid(replacement_node="")
        .then(Outcome.DONE)
        .reports(xid(79, node_id=FREE, boot_id="boot-5", event_id="late"))
    )

    assert moved.rebooted().failed().next().step is Step.ESCALATE, "no spare is taken for a node whose job is elsewhere"


def test_a_job_goes_on_elsewhere_where_its_node_is_only_to_be_isolated() -> None:
    isolate = Override(fault="xid/79", ladder=(Action.ISOLATE,), why="we look at these ourselves")
    policy = MOVES.model_copy(update={"overrides": (isolate,)})
    story = Story(xid(79), policy=policy).isolated().amid(free_nodes=1)

    move = story.next()

    assert (move.step, move.is_move) == (Step.RESTART_WORKLOAD, True)
    assert "a human has to look at this node first" in move.reason
    assert story.then(Outcome.DONE).next().ending is Ending.HANDED_TO_A_HUMAN


def test_where_there_is_no_job_nothing_is_moved() -> None:
    assert Story(xid(79), job=None, policy=MOVES).isolated().amid(free_nodes=1).next().step is Step.REBOOT


def test_a_restart_that_was_refused_is_not_tried_elsewhere() -> None:
    """Its replacement node breaks when the restart on it was refused."""
    story = Story(LINK, policy=MOVES).isolated().swapped().passed().then(Outcome.REFUSED, "10 of 10 are spent")
    story.reports(xid(79, node_id=SPARE, boot_id="boot-9", event_id="late"))

    assert story.amid(free_nodes=1).next().step is Step.ESCALATE


def test_a_node_that_fails_when_it_is_back_is_a_humans_and_so_is_its_job() -> None:
    story = broken().rebooted().passed().then(Outcome.DONE, "it serves")
    story.reports(xid(79, boot_id="boot-2", event_id="again"))

    assert story.amid(free_nodes=1).next().step is Step.ESCALATE


@pytest.mark.parametrize(("action", "waits"), [(Action.REBOOT, True), (Action.REPLACE, False)])
def test_a_machine_that_comes_back_has_to_run_before_it_is_trusted(action: Action, waits: bool) -> None:
    history = Story(xid(79)).amid(provider=Provider.ec2).history
    patient = ACT.model_copy(update={"stable_seconds": 500})
    assert not ACT.stable_seconds

    def at_most(policy: Any) -> float:
        return _upper_bound(DecisionBuilder(history, policy, assess_faults(history, policy), NOW), action)

    assert at_most(patient) - at_most(ACT) == (500 if waits else 0)


def moving(step: Step, ports: Ports) -> History:
    """An incident of A in which a step of a move was about B."""
    decision = Decision(step=step, reason="so", node_id=A, is_move=True)
    incident = Incident("inc-1", A, "demo", xid(79, node_id=A), NOW, "1", job_id="llama")
    return History(incident, (incident.root,), (Turn(decision),))


@pytest.mark.parametrize(("step", "is_released"), [(Step.DIAGNOSE, True), (Step.RESTART_WORKLOAD, False)])
def test_only_a_node_that_was_to_be_proven_for_a_move_is_released(
    three_nodes: Ports, step: Step, is_released: bool
) -> None:
    assert three_nodes.nodes.save(replace(node_of(A, three_nodes), open_incident="inc-1"))

    job_replacement_node.release_candidates(moving(step, three_nodes), None, three_nodes)

    assert (node_of(A, three_nodes).open_incident is None) is is_released


@pytest.mark.parametrize(
    ("step", "state", "is_released"),
    [
        (Step.RESTART_WORKLOAD, JobState.STOPPED, True),
        (Step.RESTART_WORKLOAD, JobState.SUBMITTED, False),
        (Step.DIAGNOSE, JobState.STOPPED, False),
    ],
)
def test_what_a_move_that_broke_off_has_claimed_is_let_go_of(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch, step: Step, state: JobState, is_released: bool
) -> None:
    released: list[str] = []
    monkeypatch.setattr(job_replacement_node, "release_claims", lambda job, _: released.append(job.job_id))
    assert three_nodes.jobs.save(replace(LLAMA, state=state))

    job_replacement_node.release_claims_of_move(moving(step, three_nodes), three_nodes)

    assert bool(released) is is_released
