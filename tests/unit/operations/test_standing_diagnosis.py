"""The diagnostics that a reboot leaves on its node: the step goes on with them only where the node runs them."""

import json
from base64 import urlsafe_b64decode
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.health_event import DiagnosticsFinished
from nodeheal.contract.vocabulary import Action, Outcome, Provider, Step, VerbName, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.operation import Operation, OperationState
from nodeheal.ports.commands import CommandStatus
from nodeheal.services.intake import wakeup
from tests.support.builders import ACT, commands_in, take_diagnostics, xid
from tests.support.incident_steps import A, Incident
from tests.support.recovery_story import Story
from tests.support.step_functions import reboot_node, run_diagnostics


class Rebooted(Incident):
    """An incident whose node was rebooted by SSM; it has not booted yet."""

    def __init__(self) -> None:
        super().__init__()
        self.isolate()
        self.sent_reboot = self.request()
        reboot_node(self.sent_reboot, self.ports)

    @property
    def left(self) -> Operation:
        every = self.ports.operations.operations.values()  # type: ignore[attr-defined]
        [found] = [one for one in every if one.verb is VerbName.DIAGNOSE]
        assert isinstance(found, Operation)
        return found

    @property
    def order(self) -> dict[str, str]:
        [sent] = commands_in(self.ports).sent_of("reboot-node")
        found: dict[str, str] = json.loads(urlsafe_b64decode(f"{sent.parameters['AfterBoot']}=="))
        return found

    def comes_back(self, boot_id: str = "boot-2") -> None:
        self.boots(boot_id)
        self.resumed()

    def diagnoses(self) -> None:
        """The workflow comes to the step."""
        self.asked = self.request()
        run_diagnostics(self.asked, self.ports, ACT)

    def answers(self, boot_id: str = "boot-2", request_id: str = "", verdict: Verdict = Verdict.OK) -> None:
        fact = self._fact(boot_id, A)
        event = DiagnosticsFinished(**fact, request_id=request_id or self.order["request_id"], verdict=verdict)
        wakeup.on_answer(event, self.ports)

    @property
    def commands(self) -> list[str]:
        return [one.document for one in commands_in(self.ports).sent]


def test_the_reboots_command_brings_what_the_step_would_ask_for() -> None:
    it = Rebooted()

    assert it.order == {
        "level": str(ACT.diagnostics_level),
        "checks": "dcgm",
        "first": "none",
        "request_id": it.left.request_id,
        "expires_at": str(int(it.left.deadline_at.timestamp())),
    }
    allowed = ACT.deadlines.reboot_seconds + ACT.deadlines.diagnose_seconds
    assert (it.left.deadline_at - it.clock()).total_seconds() == allowed
    assert it.left.token == ""


def test_a_node_that_runs_them_is_sent_no_command() -> None:
    it = Rebooted()
    take_diagnostics(it.ports)
    it.comes_back()

    it.diagnoses()
    it.answers()

    assert it.commands == ["reboot-node"]
    result = it.resumed()
    assert (result.step, result.outcome, result.boot_id) == (Step.DIAGNOSE, Outcome.DONE, "boot-2")


def test_an_answer_may_be_there_before_the_step() -> None:
    it = Rebooted()
    take_diagnostics(it.ports)
    it.comes_back()
    it.answers(verdict=Verdict.FAILED)

    it.diagnoses()

    assert it.commands == ["reboot-node"]
    result = it.resumed()
    assert (result.step, result.outcome, result.boot_id) == (Step.DIAGNOSE, Outcome.FAILED, "boot-2")


@pytest.mark.parametrize(
    "status",
    [
        CommandStatus("UNKNOWN"),
        CommandStatus("SUCCEEDED", '{"rebooting": "boot-1", "in_seconds": 3}'),  # an older agent
        CommandStatus("SUCCEEDED", '{"diagnoses": "another"}'),
        CommandStatus("SUCCEEDED", "[]"),
        CommandStatus("SUCCEEDED", "what?"),
        CommandStatus("SUCCEEDED", ""),
    ],
)
def test_a_node_that_does_not_say_that_it_runs_them_is_sent_a_command(status: CommandStatus) -> None:
    it = Rebooted()
    commands_in(it.ports).statuses[it.ports.operations.open_of(it.left.owner)[0].reference or "command-1"] = status
    first = it.order["request_id"]
    it.comes_back()

    it.diagnoses()
    it.answers(request_id=first)
    assert it.is_waiting()  # what was left does not count any more
    it.answers(request_id=it.left.request_id)

    assert it.commands == ["reboot-node", "run-diagnostics"]
    assert it.left.request_id != first
    assert it.resumed().outcome is Outcome.DONE


def test_of_two_calls_at_once_the_later_does_not_undo_what_the_first_has_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Rebooted()
    it.comes_back()
    it.asked = it.request()
    look, calls = it.ports.commands.look, [1]

    def meanwhile(*given: Any) -> CommandStatus:
        if calls:
            calls.pop()
            run_diagnostics(it.asked, it.ports, ACT)
        return look(*given)

    monkeypatch.setattr(it.ports.commands, "look", meanwhile)

    run_diagnostics(it.asked, it.ports, ACT)

    assert it.commands == ["reboot-node", "run-diagnostics"]
    assert it.left.state is OperationState.STARTED


@pytest.mark.parametrize(("provider", "leaves"), [(Provider.hybrid, True), (Provider.ec2, False)])
def test_only_a_reboot_by_a_command_leaves_anything(provider: Provider, leaves: bool) -> None:
    story = Story(xid(79)).amid(provider=provider).isolated()
    reboot = story.next()

    proof = story.rebooted().next()

    assert (reboot.action, reboot.leaves is not None) == (Action.REBOOT, leaves)
    assert (proof.step, proof.continues) == (Step.DIAGNOSE, len(story.history.turns) if leaves else None)


def test_where_the_policy_has_changed_they_are_asked_for_again() -> None:
    story = Story(xid(79)).isolated().rebooted()
    story.policy = ACT.model_copy(update={"diagnostics_level": 3})

    assert story.next().continues is None


def test_where_ssm_cannot_be_asked_now_the_node_may_be_running_them(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Rebooted()
    take_diagnostics(it.ports)
    it.comes_back()

    def throttled(*_: Any) -> CommandStatus:
        raise NotAccepted("throttled")

    monkeypatch.setattr(it.ports.commands, "look", throttled)

    it.diagnoses()
    it.answers()

    assert it.commands == ["reboot-node"]
    assert it.resumed().outcome is Outcome.DONE


def test_a_node_that_has_booted_again_is_sent_a_command() -> None:
    it = Rebooted()
    take_diagnostics(it.ports)
    it.comes_back()
    it.boots("boot-3")

    it.diagnoses()

    assert it.commands == ["reboot-node", "run-diagnostics"]


def test_an_answer_that_is_stored_and_has_ended_nothing_yet_is_not_asked_for_again() -> None:
    it = Rebooted()
    it.comes_back()
    left = it.left
    it.ports.operations.save(replace(left, answer_json='{"verdict": "OK"}', boot_id="boot-2"))

    it.diagnoses()

    assert it.commands == ["reboot-node"]
    assert it.resumed().outcome is Outcome.DONE


def test_a_reboot_that_was_decided_by_an_earlier_version_leaves_nothing() -> None:
    it = Incident()
    it.isolate()
    asked = it.request()
    decision = asked.decision.model_copy(update={"leaves": None})

    reboot_node(asked.model_copy(update={"decision": decision}), it.ports)

    [sent] = commands_in(it.ports).sent_of("reboot-node")
    assert sent.parameters == {}


def test_a_reboot_whose_command_has_no_known_id_has_left_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Rebooted()
    it.comes_back()
    reboot = it.ports.operations.get(it.left.owner, f"{it.id}-{it.sent_reboot.turn}")
    assert reboot is not None and it.ports.operations.save(replace(reboot, reference=""))
    monkeypatch.setattr(it.ports.commands, "look", lambda *_: pytest.fail("nothing to look at"))

    it.diagnoses()

    assert it.commands == ["reboot-node", "run-diagnostics"]
