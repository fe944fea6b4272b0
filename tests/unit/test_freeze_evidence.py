"""Evidence before the first destructive step: asked for once, and never waited for long."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.adapters.memory.world import MemoryNodeCommands
from nodeheal.contract.health_event import EvidenceFrozen
from nodeheal.contract.results import EvidenceSaved, StepResult
from nodeheal.contract.steps import Accusation, StepRequest
from nodeheal.contract.vocabulary import Confirmation, Family, Outcome, Step
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Evidence
from nodeheal.operations.verbs import conclude
from nodeheal.ports.commands import CommandStatus
from nodeheal.services.intake import wakeup
from tests.support import builders
from tests.support.builders import EVIDENCE, commands_in, facts_of, waiting
from tests.support.incident_steps import A, B, Incident
from tests.support.step_functions import freeze_evidence, isolate_node

COMMAND = "command-1"

ACT = builders.ACT.model_copy(update={"evidence": Evidence()})


class Freezing(Incident):
    """An isolated node whose evidence is wanted next."""

    def __init__(self) -> None:
        super().__init__()
        self.isolate()
        asked = self.request()
        decision = asked.decision.model_copy(update={"step": Step.FREEZE_EVIDENCE, "deadline_seconds": 120})
        self.asked = asked.model_copy(update={"decision": decision})

    @property
    def key(self) -> str:
        return f"incidents/{self.id}/evidence-{self.turn}.tar.gz"

    def freeze(self, policy: RecoveryPolicy = ACT, **changes: Any) -> StepRequest:
        request = self.asked.model_copy(update=changes)
        freeze_evidence(request, self.ports, policy)
        return request

    def answers(self, name: str = A, boot_id: str = "boot-1", **saved: Any) -> None:
        told = {"object_key": self.key, "size_bytes": 4_711, "items": 12, **saved}
        event = EvidenceFrozen(
            **self._fact(boot_id, name),
            request_id=builders.named(EVIDENCE, f"{self.id}-{self.turn}", self.ports),
            **told,
        )
        wakeup.on_answer(event, self.ports)

    @property
    def commands(self) -> Any:
        return self.ports.commands

    @property
    def is_told_to_save(self) -> bool:
        """Whether people read that it was asked to."""
        told = [entry.text for entry in self.ports.incidents.history(self.id).timeline]
        return f"{A} saves its state first, within {ACT.evidence.seconds} s" in told


def test_the_node_is_asked_for_one_upload_within_the_time_that_policy_gives() -> None:
    it = Freezing()

    it.freeze(RecoveryPolicy(evidence=Evidence(seconds=30, max_mb=2)))

    [sent] = it.commands.sent
    assert (sent.document, sent.node_id, sent.boot_id) == ("freeze-evidence", A, "boot-1")
    expires_at = it.clock() + timedelta(seconds=30)
    assert sent.parameters["Upload"] == f"{it.key} until {expires_at.isoformat()}"
    assert sent.parameters["MaxBytes"] == str(2 * 1024 * 1024)


def test_the_time_of_the_decision_bounds_the_time_of_the_policy() -> None:
    it = Freezing()

    it.freeze(RecoveryPolicy(evidence=Evidence(seconds=600)))

    [sent] = it.commands.sent
    assert sent.parameters["Upload"].endswith((it.clock() + timedelta(seconds=120)).isoformat())


def test_the_nodes_own_answer_resumes_with_where_the_evidence_is() -> None:
    it = Freezing()
    it.freeze()

    it.answers(failed=("nvidia-smi.xml",))

    result = it.resumed()
    assert (result.step, result.outcome) == (Step.FREEZE_EVIDENCE, Outcome.DONE)
    assert result.facts == EvidenceSaved(
        link=f"s3://evidence/{it.key}", console=f"https://console/evidence/{it.key}", size_bytes=4711
    )
    assert result.reason == f"12 files saved at s3://evidence/{it.key}; not whole: nvidia-smi.xml"
    assert waiting(it.ports) == []


@pytest.mark.parametrize("forged", [{"name": B}, {"boot_id": "boot-2"}])
def test_an_answer_of_another_node_or_boot_is_none(forged: dict[str, Any]) -> None:
    it = Freezing()
    it.freeze()

    it.answers(**forged)

    assert it.is_waiting()


def test_a_place_that_nobody_gave_leave_for_is_not_believed() -> None:
    it = Freezing()
    it.freeze()

    it.answers(object_key="incidents/other/1.tar.gz")

    assert it.resumed().outcome is Outcome.FAILED
    assert it.resumed().facts is None


def test_evidence_that_could_not_be_uploaded_is_a_failure_that_says_why() -> None:
    it = Freezing()
    it.freeze()

    it.answers(object_key=None, reason="s3 answered 403")

    assert it.resumed().outcome is Outcome.FAILED
    assert "s3 answered 403" in it.resumed().reason


def test_a_node_that_takes_no_commands_holds_nothing_up() -> None:
    it = Freezing()
    it.commands.unknown_nodes.add(A)

    it.freeze()

    assert it.resumed().outcome is Outcome.FAILED
    assert "not registered" in it.resumed().reason
    assert waiting(it.ports) == []
    assert not it.is_told_to_save


def test_a_command_that_fails_on_the_node_ends_the_wait_at_once() -> None:
    it = Freezing()
    it.freeze()

    wakeup.on_command_failed(A, COMMAND, it.ports)

    assert it.resumed().outcome is Outcome.FAILED


def test_it_is_sent_once_however_often_it_is_asked_for_and_waits_with_the_newest_token() -> None:
    it = Freezing()
    it.freeze()
    it.freeze(task_token="token-of-the-retry")

    it.answers()

    assert it.is_told_to_save
    assert len(it.commands.sent) == 1
    assert "token-of-the-retry" in it.ports.workflows.resumed  # type: ignore[attr-defined]


def throttled(*_: object, **__: object) -> str:
    raise NotAccepted("SendCommand: ThrottlingException")


@pytest.mark.parametrize("why", ["off", "not ours", "unknown"])
def test_what_may_not_be_asked_is_refused_and_nothing_is_sent(why: str) -> None:
    it = Freezing()
    policy = RecoveryPolicy(evidence=Evidence(enabled=False)) if why == "off" else ACT
    if why == "not ours":
        it.ports.nodes.save(replace(it.node(), open_incident="inc-other"))
    if why == "unknown":
        del it.ports.nodes.nodes[A]  # type: ignore[attr-defined]

    it.freeze(policy)

    assert it.resumed().outcome is Outcome.REFUSED
    assert it.commands.sent == []


# At the deadline ----------------------------------------------------------------------------------------------------


def look(it: Freezing, request: StepRequest, state: str, output: str = "") -> StepResult:
    it.commands.statuses[COMMAND] = CommandStatus(state, output)
    return conclude(request, it.ports)


def printed(it: Freezing, **changes: Any) -> str:
    saved = {"object_key": it.key, "size_bytes": 9, "items": 3, "failed": [], "reason": ""}
    saved |= {"confirmation": "UNKNOWN", "confirmed_by": "", **changes}
    return f"noise\n{json.dumps(saved)}\n"


def test_an_answer_whose_event_was_lost_is_read_from_the_commands_output() -> None:
    it = Freezing()
    request = it.freeze()

    result = look(it, request, "SUCCEEDED", printed(it))

    assert (result.outcome, facts_of(result, EvidenceSaved).size_bytes) == (Outcome.DONE, 9)


@pytest.mark.parametrize(
    ("state", "output"), [("PENDING", ""), ("UNKNOWN", ""), ("SUCCEEDED", ""), ("SUCCEEDED", '{"object_key": 1}')]
)
def test_silence_is_a_timeout_that_tells_where_the_evidence_may_still_arrive(state: str, output: str) -> None:
    it = Freezing()
    request = it.freeze()

    result = look(it, request, state, output)

    assert result.outcome is Outcome.TIMED_OUT
    assert facts_of(result, EvidenceSaved).link == f"s3://evidence/{it.key}"
    assert waiting(it.ports) == []


def test_what_a_command_has_printed_that_did_not_succeed_is_not_believed() -> None:
    it = Freezing()
    request = it.freeze()

    assert look(it, request, "FAILED", printed(it)).outcome is Outcome.TIMED_OUT


def test_what_was_never_asked_is_unknown() -> None:
    it = Freezing()

    assert conclude(it.asked, it.ports).outcome is Outcome.UNKNOWN


class AskedAhead(Incident):
    """A node that saves its evidence while its gang stops."""

    def __init__(self) -> None:
        super().__init__(policy=ACT)
        isolate_node(self.request(), self.ports, ACT)
        self.isolation = self.turn

    def answers(self, **changes: Any) -> None:
        key = f"incidents/{self.id}/evidence-{self.isolation}.tar.gz"
        told = {"object_key": key, "size_bytes": 1, "items": 12, **changes}
        request_id = builders.named(EVIDENCE, f"{self.id}-{self.isolation}", self.ports)
        wakeup.on_answer(EvidenceFrozen(**self._fact("boot-1", A), request_id=request_id, **told), self.ports)

    def goes_on(self) -> None:
        """The gang stops, and the workflow takes the step of its own."""
        for rank in (0, 1):
            self.task_is("STOPPED", rank, exit_code=143)
        self.resumed()
        freeze_evidence(self.request(), self.ports, ACT)

    @property
    def documents(self) -> list[str]:
        return [one.document for one in commands_in(self.ports).sent]


def test_the_node_is_asked_while_its_gang_stops_and_the_step_waits_for_that_answer() -> None:
    it = AskedAhead()
    assert it.documents == ["freeze-evidence"]

    it.goes_on()
    assert it.is_waiting()
    it.answers(confirmation=Confirmation.CONFIRMED)

    assert it.resumed().outcome is Outcome.DONE
    assert facts_of(it.resumed(), EvidenceSaved).confirmation is Confirmation.CONFIRMED
    assert it.documents == ["freeze-evidence"]
    assert waiting(it.ports) == []


def test_a_node_that_could_not_be_asked_meanwhile_is_asked_by_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(MemoryNodeCommands, "send", throttled)
        it = AskedAhead()
    assert it.documents == []

    it.goes_on()

    assert it.documents == ["freeze-evidence"]


def test_a_node_that_has_booted_since_its_isolation_is_asked_again() -> None:
    it = AskedAhead()
    it.boots("boot-2")

    it.goes_on()

    assert [(one.document, one.boot_id) for one in commands_in(it.ports).sent] == [
        ("freeze-evidence", "boot-1"),
        ("freeze-evidence", "boot-2"),
    ]


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_node_may_be_asked_to_confirm_its_fault_where_no_evidence_is_wanted(is_enabled: bool) -> None:
    it = Freezing()
    accused = Accusation(family=Family.xid, code="79", component="", boot_id="boot-1", source="kernel_log")
    it.asked = it.asked.model_copy(update={"decision": it.asked.decision.model_copy(update={"accused": accused})})

    it.freeze(RecoveryPolicy(evidence=Evidence(enabled=is_enabled)))
    it.answers(object_key=None, confirmation=Confirmation.CONFIRMED)

    [sent] = it.commands.sent
    assert (sent.parameters["Upload"] != "none") is is_enabled
    assert (sent.parameters["MaxBytes"] != "0") is is_enabled
    [asked] = [one.text for one in it.ports.incidents.history(it.id).timeline if one.entry_id.startswith("evidence-")]
    assert "is asked whether it shows xid/79" in asked
    assert ("saves its state first" in asked) is is_enabled
    assert it.resumed().outcome is (Outcome.FAILED if is_enabled else Outcome.DONE)
    assert facts_of(it.resumed(), EvidenceSaved).confirmation is Confirmation.CONFIRMED
