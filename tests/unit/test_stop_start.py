"""A machine is stopped and started again, however its calls and events are repeated, lost or late."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import NodeBooted
from nodeheal.contract.results import CallAgain
from nodeheal.contract.vocabulary import Action, NodeState, Outcome, Refusal, Step
from nodeheal.domain.errors import MachineRefused, NotAccepted
from nodeheal.domain.fleet.machine import Power
from nodeheal.operations.engine import machine_stopped
from nodeheal.operations.verbs import conclude
from nodeheal.services.intake.wakeup import on_node_booted
from tests.support.builders import waiting
from tests.support.incident_steps import A
from tests.support.step_functions import as_step, reboot_node
from tests.support.stop_start import LIMIT, Stopping, of

STOP, START = (A, Power.STOP), (A, Power.START)


@pytest.fixture
def it() -> Stopping:
    found = Stopping()
    found.ports.workflows.resumed.clear()  # type: ignore[attr-defined]
    return found


def test_it_is_stopped_then_started_and_proven_by_its_new_boot(it: Stopping) -> None:
    it.calls()
    assert it.ordered == [STOP]
    it.has_stopped()
    assert (it.ordered, it.is_open) == ([STOP, START], True)
    it.it.boots("boot-2")

    assert (it.answer().outcome, it.answer().boot_id) == (Outcome.DONE, "boot-2")
    assert it.it.node().state is NodeState.RECOVERING
    assert waiting(it.ports) == []
    assert it.spent == 1


def test_a_boot_that_is_told_late_while_it_stops_proves_nothing(it: Stopping) -> None:
    it.calls()

    it.it.boots("boot-late")
    assert it.is_open
    it.has_stopped()
    it.it.boots("boot-3")

    assert it.answer().boot_id == "boot-3"


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        ({"group": "trainers"}, "would replace it"),
        ({"root_device": "instance-store"}, "root on instance-store"),
        ({"lifecycle": "spot"}, "bought as spot"),
        ({"lifecycle": "capacity-block"}, "bought as capacity-block"),
        ({"tenancy": "host"}, "dedicated host"),
        ({"state": "stopped"}, "not by us"),
    ],
)
def test_what_may_not_be_stopped_is_left_running_and_costs_no_attempt(machine: dict[str, Any], why: str) -> None:
    it = of(**machine)

    it.calls()

    assert (it.answer().outcome, why in it.answer().reason) == (Outcome.REFUSED, True)
    assert (it.ordered, it.spent, waiting(it.ports)) == ([], 0, [])


def test_a_machine_that_is_gone_is_told_and_costs_no_attempt(it: Stopping) -> None:
    it.machines.machines.clear()

    it.calls()

    assert (it.answer().outcome, "is gone" in it.answer().reason, it.spent) == (Outcome.REFUSED, True, 0)


def test_a_stop_that_ec2_refuses_costs_no_attempt(it: Stopping) -> None:
    it.fails_once(Power.STOP, MachineRefused("StopInstances: OperationNotPermitted (it is protected from stops)"))

    it.calls()

    assert (it.answer().outcome, "protected" in it.answer().reason, it.spent) == (Outcome.REFUSED, True, 0)


@pytest.mark.parametrize("state", ["stopping", "stopped", "running"])
def test_a_call_that_is_repeated_goes_on_from_where_the_machine_is(it: Stopping, state: str) -> None:
    it.calls()
    it.becomes(state)

    it.calls("token-2")
    it.becomes("stopped", "Client.UserInitiatedShutdown: User initiated")
    it.has_stopped()
    it.it.boots("boot-2")

    assert it.ordered[0] == STOP
    assert it.ordered[-1] == START
    assert it.ordered.count(STOP) == 1
    assert it.answer("token-2").boot_id == "boot-2"
    assert it.spent == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [NotAccepted("IncorrectInstanceState"), TimeoutError("it died here")])
def test_a_start_that_broke_is_made_up_for_by_the_events_next_delivery(
    it: Stopping, error: Exception, after: bool
) -> None:
    if after and isinstance(error, NotAccepted):
        return  # that one says that nothing was done
    it.calls()
    it.fails_once(Power.START, error, after=after)
    with pytest.raises(type(error)):
        it.has_stopped()

    it.has_stopped()
    it.it.boots("boot-2")

    assert it.ordered == [STOP, START]
    assert it.answer().outcome is Outcome.DONE


def test_a_machine_that_does_not_start_is_never_left_so_in_silence(it: Stopping) -> None:
    it.calls()
    it.has_stopped()
    it.becomes("stopped", "Client.InternalError: Client error on launch")

    first = conclude(it.request, it.ports)
    it.calls("token-2")
    it.becomes("stopped", "Client.InternalError: Client error on launch")
    second = conclude(it.request, it.ports)

    assert first.facts == CallAgain()
    assert second.outcome is Outcome.FAILED
    assert "is stopped" in second.reason
    assert "Client error on launch" in second.reason
    assert waiting(it.ports) == []


@pytest.mark.parametrize(
    ("why", "missing"), [("Server.InsufficientInstanceCapacity: no room", True), ("Client.InternalError: key", False)]
)
def test_a_start_that_fails_behind_the_call_is_told_by_its_event(it: Stopping, why: str, missing: bool) -> None:
    it.calls()
    it.has_stopped()
    it.becomes("stopped", why)

    it.has_stopped()

    assert (it.answer().outcome, why in it.answer().reason) == (Outcome.FAILED, True)
    assert (it.answer().refused_for(Refusal.NO_CAPACITY) is not None) is missing
    assert it.ordered == [STOP, START]


def test_without_capacity_the_start_is_told_and_the_attempt_stays_spent(it: Stopping) -> None:
    it.calls()
    it.machines.is_full = True

    it.has_stopped()

    assert it.answer().outcome is Outcome.FAILED
    assert "is stopped, and there is no capacity" in it.answer().reason
    assert it.answer().refused_for(Refusal.NO_CAPACITY) is not None
    assert it.spent == 1


@pytest.mark.parametrize(("stage", "told"), [("stop", "has not stopped"), ("start", "no new boot id")])
def test_at_the_deadline_ec2_says_what_it_sees(it: Stopping, stage: str, told: str) -> None:
    it.calls()
    if stage == "start":
        it.has_stopped()
    it.becomes("stopping" if stage == "stop" else "running")
    it.it.clock.advance(it.request.decision.deadline_seconds)

    seen = conclude(it.request, it.ports)

    assert (seen.outcome, told in seen.reason) == (Outcome.TIMED_OUT, True)


def test_a_call_that_broke_early_is_made_again_until_the_first_deadline(it: Stopping) -> None:
    it.calls()
    it.becomes("stopping")
    it.it.clock.advance(it.request.decision.deadline_seconds - 61)

    early = conclude(it.request, it.ports)
    it.calls("token-2")  # which begins its own deadline
    it.it.clock.advance(61)
    late = conclude(it.request, it.ports)

    assert (early.outcome, early.facts, late.outcome) == (Outcome.UNKNOWN, CallAgain(), Outcome.TIMED_OUT)
    assert (it.ordered, it.spent) == ([(A, Power.STOP)], 1)


def test_a_step_that_never_began_gives_its_attempt_back(it: Stopping) -> None:
    it.ports.attempts.reserve(f"node#{A}", f"{it.request.incident_id}/{it.request.turn}", LIMIT)

    seen = conclude(it.request, it.ports)

    assert (seen.outcome, it.spent) == (Outcome.FAILED, 0)


def test_the_stop_of_a_machine_that_nobody_waits_for_starts_nothing(it: Stopping) -> None:
    it.has_stopped()
    machine_stopped("i-elsewhere", it.ports)

    assert (it.ordered, it.is_open) == ([], True)


def test_a_machine_that_is_only_rebooted_is_not_started_by_somebody_elses_stop(it: Stopping) -> None:
    reboot_node(as_step(it.request, Step.REBOOT, Action.REBOOT), it.ports)

    it.has_stopped()

    assert it.ordered == [(A, Power.REBOOT)]


# Crashes and others between


def test_a_look_whose_answer_was_lost_is_repeated_and_says_the_same(it: Stopping) -> None:
    it.calls()

    looks = [conclude(it.request, it.ports) for _ in range(2)]

    assert [seen.facts for seen in looks] == [CallAgain()] * 2


@pytest.mark.parametrize("stage", ["stop", "start"])
def test_a_look_that_is_repeated_after_it_forgot_the_wait_gives_no_attempt_back(it: Stopping, stage: str) -> None:
    it.ports.attempts.reserve(f"node#{A}", f"{it.request.incident_id}/{it.request.turn}", LIMIT)
    it.calls()
    if stage == "start":
        it.has_stopped()
    it.becomes("stopping" if stage == "stop" else "running")

    first, second = (conclude(it.request, it.ports) for _ in range(2))

    assert (second.outcome, second.reason) == (first.outcome, first.reason)
    assert it.spent == 1


@pytest.mark.parametrize("heard_by", ["event", "look", "step"])
def test_a_machine_that_somebody_stops_after_our_start_is_left_stopped(it: Stopping, heard_by: str) -> None:
    it.calls()
    it.has_stopped()
    it.becomes("stopped", "Client.UserInitiatedShutdown: User initiated (2026-03-01 03:00:00 GMT)")

    if heard_by == "event":
        it.has_stopped()
    if heard_by == "step":
        it.calls("token-2")
    seen = conclude(it.request, it.ports)

    assert it.ordered == [STOP, START]
    assert seen.outcome is Outcome.FAILED
    assert "somebody has stopped it since it was started" in seen.reason


def test_a_machine_whose_start_was_never_sent_is_not_said_to_be_stopped_by_somebody(it: Stopping) -> None:
    it.calls()
    conclude(it.request, it.ports)
    it.fails_once(Power.START, TimeoutError("it died here"))
    with pytest.raises(TimeoutError):
        it.calls("token-2")

    seen = conclude(it.request, it.ports)

    assert (seen.outcome, "was not started again" in seen.reason) == (Outcome.FAILED, True)


@pytest.mark.parametrize("told_by", ["boot", "look", "step"])
def test_a_boot_of_before_the_start_that_is_told_after_it_proves_nothing(it: Stopping, told_by: str) -> None:
    it.calls()
    it.it.clock.advance(300)
    it.has_stopped()
    old = replace(it.it.node(), boot_id="boot-of-the-reboot", booted_at=it.it.clock() - timedelta(seconds=290))
    if told_by == "boot":
        fact = it.it._fact("boot-of-the-reboot", A)
        on_node_booted(NodeBooted(**fact, booted_at=old.booted_at, address="127.0.0.1", accelerators=8), it.ports)
    else:
        it.ports.nodes.save(old)  # by a health event of that boot

    if told_by == "step":
        it.calls("token-2")
    still_open = it.is_open
    it.it.clock.advance(it.request.decision.deadline_seconds)
    seen = conclude(it.request, it.ports)

    assert (still_open, seen.outcome) == (True, Outcome.TIMED_OUT)


def test_a_repeated_call_that_finds_it_back_leaves_no_wait_that_could_start_it_later(it: Stopping) -> None:
    it.calls()
    it.has_stopped()
    it.ports.nodes.save(
        replace(it.it.node(), boot_id="boot-2", booted_at=it.it.clock())
    )  # heard by a health event; its boot's was lost

    it.calls("token-2")

    assert it.answer("token-2").outcome is Outcome.DONE
    assert waiting(it.ports) == []


def test_a_start_that_came_too_early_is_asked_again_by_whoever_calls_next(it: Stopping) -> None:
    it.calls()
    it.becomes("stopping")  # its event was quicker than EC2's own books
    with pytest.raises(NotAccepted):
        it.has_stopped()

    with pytest.raises(NotAccepted):
        it.calls("token-2")
    it.becomes("stopped", "Client.UserInitiatedShutdown: User initiated")
    it.calls("token-3")

    assert it.ordered == [STOP, START]


def throttled(it: Stopping) -> Stopping:
    """Nothing has been asked of EC2 yet."""
    it.ports.attempts.reserve(f"node#{A}", f"{it.request.incident_id}/{it.request.turn}", LIMIT)
    it.fails_once(Power.STOP, NotAccepted("RequestLimitExceeded"))
    with pytest.raises(NotAccepted):
        it.calls()
    return it


def test_a_machine_that_somebody_stops_before_us_is_not_started(it: Stopping) -> None:
    throttled(it).becomes("stopped", "Client.UserInitiatedShutdown: User initiated")

    it.has_stopped()
    seen = conclude(it.request, it.ports)

    assert (it.ordered, seen.outcome, seen.facts) == ([], Outcome.FAILED, None)
    assert (seen.reason, it.spent) == ("nothing was asked of EC2", 0)


def test_a_machine_that_is_gone_after_it_was_stopped_has_cost_its_attempt(it: Stopping) -> None:
    it.calls()
    it.machines.machines.clear()

    it.calls("token-2")

    assert (it.answer("token-2").outcome, it.spent) == (Outcome.FAILED, 1)


def test_what_an_earlier_turn_has_left_is_not_gone_on_with(it: Stopping) -> None:
    it.calls()
    it.has_stopped()
    it.request = it.request.model_copy(update={"turn": it.request.turn + 1})
    it.ports.attempts.refund(f"node#{A}", f"{it.request.incident_id}/{it.request.turn - 1}", LIMIT)

    it.calls("token-2")

    assert it.ordered == [STOP, START, STOP]


def test_a_node_whose_clock_is_some_seconds_late_proves_its_boot(it: Stopping) -> None:
    it.calls()
    it.it.clock.advance(300)
    it.has_stopped()
    fact = it.it._fact("boot-2", A)
    early = it.it.clock() - timedelta(seconds=10)

    on_node_booted(NodeBooted(**fact, booted_at=early, address="127.0.0.1", accelerators=8), it.ports)

    assert it.answer().outcome is Outcome.DONE


def test_a_node_that_a_human_has_taken_costs_no_attempt(it: Stopping) -> None:
    it.ports.attempts.reserve(f"node#{A}", f"{it.request.incident_id}/{it.request.turn}", LIMIT)
    it.ports.nodes.save(replace(it.it.node(), state=NodeState.RETIRED, open_incident=None))

    it.calls()

    assert (it.answer().outcome, it.spent) == (Outcome.REFUSED, 0)


def test_at_the_deadline_a_machine_is_gone_or_ec2_could_not_start_it_and_a_repeated_look_says_the_same(
    it: Stopping,
) -> None:
    gone = of()
    gone.calls()
    gone.machines.machines.clear()
    it.calls()
    it.has_stopped()
    it.becomes("stopped", "Client.InternalError: Client error on launch")
    conclude(it.request, it.ports)
    it.calls("token-2")
    it.becomes("stopped", "Client.InternalError: Client error on launch")

    first, again = (conclude(it.request, it.ports) for _ in range(2))

    assert "EC2 could not start it (Client.InternalError" in first.reason
    assert (again.outcome, again.reason) == (Outcome.FAILED, first.reason)
    assert conclude(gone.request, gone.ports).reason == f"{A} is gone"
