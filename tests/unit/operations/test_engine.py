"""The engine: sent once, ended once, delivered once, whatever breaks, repeats or comes late in between."""

from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.health_event import DiagnosticsFinished, EvidenceFrozen
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome, Step, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.operation import Operation, OperationState
from nodeheal.operations.engine import begin, reconcile
from nodeheal.operations.handler import VerbContext
from nodeheal.operations.verbs import conclude
from nodeheal.services.intake import wakeup
from tests.support.builders import ACT, commands_in, waiting
from tests.support.incident_steps import A, B, Incident
from tests.support.step_functions import run_diagnostics


class Diagnosing(Incident):
    """An incident whose node has rebooted, and is to be diagnosed."""

    def __init__(self) -> None:
        super().__init__()
        self.isolate(), self.reboot()
        asked = self.request()  # by a command, and not what the reboot has left
        self.asked = asked.model_copy(update={"decision": asked.decision.model_copy(update={"continues": None})})
        self.ports.workflows.resumed.clear()  # type: ignore[attr-defined]

    def calls(self, token: str = "first") -> None:
        run_diagnostics(self.asked.model_copy(update={"task_token": token}), self.ports, ACT)

    def answers(self, *, name: str = A, boot_id: str = "boot-2", verdict: Verdict = Verdict.OK, tail: str = "") -> None:
        operation = self.stored
        request_id = operation.request_id[: -len(tail)] + tail if tail else operation.request_id
        event = DiagnosticsFinished(**self._fact(boot_id, name), request_id=request_id, verdict=verdict)
        wakeup.on_answer(event, self.ports)

    @property
    def stored(self) -> Operation:
        every = self.ports.operations.operations.values()  # type: ignore[attr-defined]
        [found] = [one for one in every if one.operation_id == f"{self.id}-{self.turn}"]
        assert isinstance(found, Operation)
        return found

    @property
    def sent(self) -> int:
        return len(commands_in(self.ports).sent_of("run-diagnostics"))

    @property
    def heard(self) -> dict[str, Outcome]:
        """What each call was resumed with."""
        resumed = self.ports.workflows.resumed  # type: ignore[attr-defined]
        return {token: result.outcome for token, result in resumed.items()}


@pytest.fixture
def it() -> Diagnosing:
    return Diagnosing()


def breaks_once(it: Diagnosing, port: str, method: str, error: Exception, *, after: bool = False) -> None:
    """The next call of this port raises; `after`: when it has been carried out."""
    owner = getattr(it.ports, port)
    call = getattr(owner, method)

    def broken(*given: Any, **named: Any) -> Any:
        setattr(owner, method, call)
        if after:
            call(*given, **named)
        raise error

    setattr(owner, method, broken)


def test_an_operation_is_on_record_before_anything_is_sent(it: Diagnosing) -> None:
    seen: list[OperationState] = []
    send = it.ports.commands.send
    it.ports.commands.send = lambda *given: seen.append(it.stored.state) or send(*given)  # type: ignore

    it.calls()

    assert seen == [OperationState.SENDING]
    assert (it.stored.state, it.stored.reference) == (OperationState.STARTED, it.ports.commands.sent and "command-2")  # type: ignore[attr-defined]


def test_a_repeated_call_sends_nothing_and_takes_the_answer_over(it: Diagnosing) -> None:
    it.calls("first")
    it.calls("second")
    it.answers()

    assert (it.sent, it.heard) == (1, {"second": Outcome.DONE})
    assert waiting(it.ports) == []


def test_what_was_found_being_sent_is_never_sent_again(it: Diagnosing) -> None:
    breaks_once(it, "commands", "send", TimeoutError("the function is gone"), after=True)
    with pytest.raises(TimeoutError):
        it.calls("first")

    it.calls("second")
    it.answers()

    assert (it.sent, it.heard) == (1, {"second": Outcome.DONE})


def test_what_was_provably_not_taken_is_sent_by_the_repeated_call(it: Diagnosing) -> None:
    breaks_once(it, "commands", "send", NotAccepted("throttled"))
    with pytest.raises(NotAccepted):
        it.calls("first")
    assert it.stored.state is OperationState.PLANNED

    it.calls("second")

    assert (it.sent, it.stored.state) == (1, OperationState.STARTED)


def test_an_answer_may_be_quicker_than_the_reference(it: Diagnosing) -> None:
    send = commands_in(it.ports).send

    def answered_at_once(*given: Any) -> str:
        reference = send(*given)
        it.answers()
        return reference

    it.ports.commands.send = answered_at_once  # type: ignore

    it.calls("first")

    assert it.heard == {"first": Outcome.DONE}
    assert it.stored.state is OperationState.DELIVERED


@pytest.mark.parametrize(
    "other", [{"name": B}, {"boot_id": "boot-1"}, {"tail": "0" * 32}], ids=["node", "boot", "random part"]
)
def test_an_answer_of_another_node_or_boot_or_with_a_guessed_id_says_nothing(
    it: Diagnosing, other: dict[str, Any]
) -> None:
    it.calls()

    it.answers(**other)

    assert it.heard == {}


def test_an_answer_to_another_kind_of_command_says_nothing(it: Diagnosing) -> None:
    it.calls()
    fact = it._fact("boot-2", A)

    wakeup.on_answer(EvidenceFrozen(**fact, request_id=it.stored.request_id), it.ports)

    assert it.heard == {}
    assert it.stored.answer_json == ""


def test_of_two_results_the_first_that_is_stored_holds(it: Diagnosing) -> None:
    it.calls("first")
    late = it.stored
    it.answers(verdict=Verdict.FAILED)

    reconcile(replace(late, answer_json='{"verdict": "OK"}'), it.ports)
    it.calls("second")

    assert it.heard == {"first": Outcome.FAILED, "second": Outcome.FAILED}


def test_a_result_that_could_not_be_delivered_is_delivered_by_the_next_event(it: Diagnosing) -> None:
    it.calls("first")
    breaks_once(it, "workflows", "resume", NotAccepted("throttled"))
    with pytest.raises(NotAccepted):
        it.answers()
    assert it.stored.state.value == "DONE"

    it.answers()

    assert it.heard == {"first": Outcome.DONE}
    assert it.stored.state is OperationState.DELIVERED


def test_a_call_that_comes_after_the_end_gets_the_result_at_once(it: Diagnosing) -> None:
    it.calls("first")
    it.answers()

    it.calls("second")

    assert (it.sent, it.heard) == (1, {"first": Outcome.DONE, "second": Outcome.DONE})


def test_a_conclusion_that_is_repeated_says_the_same(it: Diagnosing) -> None:
    it.calls()
    first = conclude(it.asked, it.ports)

    it.answers()

    assert first.outcome is Outcome.TIMED_OUT
    assert conclude(it.asked, it.ports) == first


def test_an_operation_that_was_never_begun_is_concluded_without_a_record(it: Diagnosing) -> None:
    result = conclude(it.asked, it.ports)

    assert (result.outcome, result.reason) == (Outcome.UNKNOWN, "the diagnostics were not started")
    assert waiting(it.ports) == []


def test_a_step_that_is_no_operation_cannot_be_concluded(it: Diagnosing) -> None:
    given_back = it.asked.decision.model_copy(update={"step": Step.RETURN})

    result = conclude(it.asked.model_copy(update={"decision": given_back}), it.ports)

    assert (result.step, result.outcome) == (Step.RETURN, Outcome.UNKNOWN)


def test_a_call_without_a_token_is_an_error(it: Diagnosing) -> None:
    with pytest.raises(ValueError, match="without a task token"):
        run_diagnostics(it.asked.model_copy(update={"task_token": None}), it.ports, ACT)


def test_two_calls_at_once_send_once(it: Diagnosing) -> None:
    """The second begins while the first is about to store that it sends."""
    save = it.ports.operations.save

    def second_comes_first(operation: Operation) -> bool:
        it.ports.operations.save = save  # type: ignore[method-assign]
        it.calls("second")
        return save(operation)

    it.ports.operations.save = second_comes_first  # type: ignore[method-assign]

    it.calls("first")
    it.answers()

    assert it.sent == 1
    assert it.heard == {"second": Outcome.DONE}


def test_a_function_without_a_policy_or_a_key_says_so(it: Diagnosing) -> None:
    world = VerbContext(it.ports)

    with pytest.raises(ValueError, match="reads no policy"):
        _ = world.policy
    with pytest.raises(ValueError, match="no approval links"):
        _ = world.links


def test_an_operation_of_a_job_has_no_step(it: Diagnosing) -> None:
    it.calls()
    asked = '{"job_id": "llama", "submission": 1, "round": 0}'

    with pytest.raises(TypeError, match="operation of a job"):
        _ = replace(it.stored, request_json=asked).step
    assert isinstance(it.stored.step, StepRequest)


def test_a_record_that_is_written_by_others_all_the_time_is_left_for_later(it: Diagnosing) -> None:
    it.calls()
    it.ports.operations.save = lambda _: False  # type: ignore[method-assign, assignment]

    with pytest.raises(NotAccepted, match="written by others"):
        begin(replace(it.stored, token="another"), VerbContext(it.ports, ACT))
