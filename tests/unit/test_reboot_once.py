"""A node is rebooted once a turn, however often its function is called, and by the way that its provider has."""

from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.results import CallAgain
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, NodeState, Outcome, Provider
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.fleet.machine import Machine
from nodeheal.domain.operation import Operation
from nodeheal.operations.verbs import conclude
from nodeheal.ports.commands import CommandStatus
from tests.support.builders import commands_in, waiting
from tests.support.incident_steps import A, Incident
from tests.support.step_functions import reboot_node


def isolated(provider: Provider) -> tuple[Incident, StepRequest]:
    it = Incident()
    it.isolate()
    it.ports.nodes.save(replace(it.node(), provider=provider))
    for machines in (it.ports.machines, it.ports.hyperpod):
        machines.machines[A] = Machine(A)  # type: ignore[attr-defined]
    return it, it.request()


def again(request: StepRequest) -> StepRequest:
    return request.model_copy(update={"task_token": "token-again"})


def rebooted(it: Incident) -> int:
    sent: Any = it.ports.commands
    machines: Any = it.ports.machines
    hyperpod: Any = it.ports.hyperpod
    return len(sent.sent) + len(machines.rebooted) + len(hyperpod.rebooted)


both = pytest.mark.parametrize("provider", list(Provider))


@both
def test_each_provider_has_its_own_way(provider: Provider) -> None:
    it, request = isolated(provider)

    reboot_node(request, it.ports)

    assert it.ports.machines.rebooted == ([A] if provider is Provider.ec2 else [])  # type: ignore[attr-defined]
    assert it.ports.hyperpod.rebooted == ([A] if provider is Provider.hyperpod else [])  # type: ignore[attr-defined]
    assert rebooted(it) == 1


@both
def test_a_call_that_is_repeated_before_the_node_is_back_waits_with_the_new_token(provider: Provider) -> None:
    it, request = isolated(provider)
    reboot_node(request, it.ports)

    reboot_node(again(request), it.ports)
    it.boots("boot-2")

    assert it.ports.workflows.resumed["token-again"].outcome is Outcome.DONE  # type: ignore[attr-defined]
    assert rebooted(it) == 1


def test_a_reboot_whose_answer_was_lost_is_not_asked_of_ec2_again() -> None:
    it, request = isolated(Provider.ec2)
    machines: Any = it.ports.machines
    power = machines.power

    def is_lost(*asked: Any) -> None:
        power(*asked)
        raise TimeoutError("read timed out")

    machines.power = is_lost
    with pytest.raises(TimeoutError):
        reboot_node(request, it.ports)

    reboot_node(again(request), it.ports)

    assert machines.rebooted == [A]


def test_a_throttled_reboot_is_asked_again() -> None:
    it, request = isolated(Provider.ec2)
    machines: Any = it.ports.machines
    power = machines.power

    def throttled(*_: Any) -> None:
        machines.power = power
        raise NotAccepted("RequestLimitExceeded")

    machines.power = throttled
    with pytest.raises(NotAccepted):
        reboot_node(request, it.ports)

    reboot_node(again(request), it.ports)

    assert machines.rebooted == [A]


def test_a_machine_that_is_gone_is_told_at_once_and_costs_no_attempt() -> None:
    it, request = isolated(Provider.ec2)
    it.ports.machines.machines.clear()  # type: ignore[attr-defined]

    reboot_node(request, it.ports)

    assert (it.resumed().outcome, A in it.resumed().reason) == (Outcome.FAILED, True)
    assert (waiting(it.ports), spent(it)) == ([], 0)


def spent(it: Incident) -> int:
    return it.ports.attempts.spent(f"node#{A}", it.policy.limits[Action.REBOOT])[Action.REBOOT]


@both
def test_a_node_that_was_given_up_since_the_attempt_was_reserved_costs_none(provider: Provider) -> None:
    it, request = isolated(provider)
    it.ports.nodes.save(replace(it.node(), state=NodeState.RETIRED, open_incident=None))

    reboot_node(request, it.ports)

    assert (it.resumed().outcome, rebooted(it), spent(it)) == (Outcome.REFUSED, 0, 0)


@both
def test_an_attempt_whose_reboot_was_sent_stays_spent_whatever_a_repeated_call_finds(provider: Provider) -> None:
    it, request = isolated(provider)
    reboot_node(request, it.ports)
    it.ports.nodes.save(replace(it.node(), state=NodeState.RETIRED, open_incident=None))

    reboot_node(again(request), it.ports)

    assert (rebooted(it), spent(it)) == (1, 1)


def test_a_node_that_ssm_does_not_know_is_told_at_once_and_costs_no_attempt() -> None:
    it, request = isolated(Provider.hybrid)
    commands: Any = it.ports.commands

    def unknown(*_: Any, **__: Any) -> str:
        raise NotFound(f"SSM knows no node {A}")

    commands.send = unknown

    reboot_node(request, it.ports)

    assert (it.resumed().outcome, "knows no node" in it.resumed().reason) == (Outcome.FAILED, True)
    assert (spent(it), waiting(it.ports)) == (0, [])


@pytest.mark.parametrize(("is_sent", "left"), [(False, 0), (True, 1)])
def test_a_look_at_a_reboot_that_never_began_gives_the_attempt_back(is_sent: bool, left: int) -> None:
    it, request = isolated(Provider.ec2)
    if is_sent:
        reboot_node(request, it.ports)

    conclude(request, it.ports)

    assert spent(it) == left


def test_at_the_deadline_ec2_says_what_it_sees() -> None:
    it, request = isolated(Provider.ec2)
    reboot_node(request, it.ports)
    it.clock.advance(request.decision.deadline_seconds)

    seen = conclude(request, it.ports)

    assert (seen.outcome, "running" in seen.reason) == (Outcome.TIMED_OUT, True)


@both
def test_a_reboot_whose_function_died_is_waited_for_and_not_given_up(provider: Provider) -> None:
    it, request = isolated(provider)
    reboot_node(request, it.ports)
    it.clock.advance(30)

    seen, repeated = conclude(request, it.ports), conclude(request, it.ports)
    reboot_node(again(request), it.ports)
    it.boots("boot-2")

    assert [one.facts for one in (seen, repeated)] == [CallAgain()] * 2
    assert it.ports.workflows.resumed["token-again"].outcome is Outcome.DONE  # type: ignore[attr-defined]
    assert rebooted(it) == 1


@both
def test_one_whose_function_dies_again_is_waited_for_until_the_first_calls_deadline(provider: Provider) -> None:
    it, request = isolated(provider)
    reboot_node(request, it.ports)
    conclude(request, it.ports)
    it.clock.advance(30)
    reboot_node(again(request), it.ports)

    early = conclude(request, it.ports)
    it.clock.advance(request.decision.deadline_seconds - 60)
    late = conclude(request, it.ports)

    assert early.facts == CallAgain()
    assert (late.outcome, late.facts) == (Outcome.TIMED_OUT, None)


@both
def test_one_that_was_provably_not_sent_is_not_waited_for(provider: Provider) -> None:
    it, request = isolated(provider)

    def throttled(*_: Any, **__: Any) -> None:
        raise NotAccepted("throttled")

    it.ports.machines.power = it.ports.hyperpod.power = throttled  # type: ignore[method-assign]
    it.ports.commands.send = throttled  # type: ignore[method-assign, assignment]
    with pytest.raises(NotAccepted):
        reboot_node(request, it.ports)

    seen = conclude(request, it.ports)

    assert (seen.outcome, seen.reason) == (Outcome.FAILED, "the reboot was not sent")


def test_a_reboot_that_its_node_refused_is_not_waited_for() -> None:
    it, request = isolated(Provider.hybrid)
    reboot_node(request, it.ports)
    it.ports.commands.statuses["command-1"] = CommandStatus("FAILED", exit_code=3)  # type: ignore[attr-defined]

    seen = conclude(request, it.ports)

    assert (seen.outcome, seen.facts) == (Outcome.FAILED, None)


@both
def test_a_node_that_is_back_when_its_deadline_passes_is_seen_to_be_and_not_replaced(provider: Provider) -> None:
    it, request = isolated(provider)
    reboot_node(request, it.ports)
    it.boots("boot-2")  # resumes a token that has just timed out, and forgets the wait

    seen = conclude(request, it.ports)

    assert (seen.outcome, seen.boot_id) == (Outcome.DONE, "boot-2")


def test_a_look_that_is_repeated_after_it_forgot_the_wait_gives_no_attempt_back() -> None:
    it, request = isolated(Provider.ec2)
    reboot_node(request, it.ports)

    for _ in range(2):
        conclude(request, it.ports)

    assert spent(it) == 1


def sent_by(it: Incident) -> list[str]:
    """What nodes were asked to do."""
    return [sent.document for sent in commands_in(it.ports).sent]


def test_a_reboot_whose_id_could_not_be_kept_is_not_sent_again() -> None:
    it = Incident()
    it.isolate()
    request, save = it.request(), it.ports.operations.save

    def throttled_afterwards(operation: Any) -> bool:
        if sent_by(it):
            raise NotAccepted("not now")
        return save(operation)

    it.ports.operations.save = throttled_afterwards  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        reboot_node(request, it.ports)
    it.ports.operations.save = save  # type: ignore[method-assign]

    reboot_node(request.model_copy(update={"task_token": "of-the-second-call"}), it.ports)

    assert sent_by(it) == ["reboot-node"]
    [asked] = waiting(it.ports)
    assert isinstance(asked, Operation) and asked.token == "of-the-second-call"


def test_a_reboot_that_was_throttled_is_sent_by_the_call_that_repeats_it() -> None:
    it = Incident()
    it.isolate()
    request, reboot = it.request(), it.ports.commands.send

    def throttled(*_: Any, **__: Any) -> str:
        raise NotAccepted("not now")

    it.ports.commands.send = throttled  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        reboot_node(request, it.ports)
    it.ports.commands.send = reboot  # type: ignore[method-assign]

    reboot_node(request, it.ports)

    assert sent_by(it) == ["reboot-node"]
