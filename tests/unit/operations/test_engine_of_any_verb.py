"""What the engine does for a verb that says so of itself: a verb of the tests' own, in the place of DIAGNOSE."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import DiagnosticsFinished
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.results import CallAgain
from nodeheal.contract.steps import DecidedResult, DecideRequest, Decision
from nodeheal.contract.vocabulary import JobStep, Next, Outcome, Step, VerbName, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.operation import Operation, OperationState, node_owner
from nodeheal.operations import engine
from nodeheal.operations.handler import Handler, OperationFacts, Result, VerbContext, read_time, step_result
from nodeheal.operations.record import start_waiting
from nodeheal.operations.verbs import conclude
from nodeheal.services.jobs.job_steps import job_step_result
from tests.support.builders import ACT, NOW, SHARED_FACTS, FrozenClock, memory_ports, under_way, xid

NODE = xid().node_id
NEXT = Decision(step=Step.DIAGNOSE, reason="so", node_id=NODE)


@dataclass
class Verb:
    """It is done as soon as it has an answer, and counts what it is asked for."""

    ports: Any = field(default_factory=lambda: memory_ports(FrozenClock()))
    calls: list[str] = field(default_factory=list)

    def start(self, operation: Operation, world: VerbContext) -> Operation:
        self.calls.append("start")
        return start_waiting(operation, world.ports)

    def observe(self, operation: Operation, facts: OperationFacts) -> Result | None:
        self.calls.append("observe")
        if not operation.answer_json and not facts.is_final:
            return None
        if operation.request_json.startswith('{"job_id"'):
            asked = operation.job_request
            return job_step_result(asked, facts.now, JobStep.CHECK, Next.CHECK, operation.answer_json)
        return step_result(operation, facts.now, Outcome.DONE, operation.answer_json or "nothing")

    def refresh(self, operation: Operation, ports: Any) -> Operation:
        self.calls.append("refresh")
        return operation

    def counted(self, call: Callable[[], object]) -> list[str]:
        """What the verb is asked for while this is called."""
        self.calls.clear()
        call()
        return [*self.calls]

    def resumed(self) -> Any:
        return self.ports.workflows.resumed.get("token")


@pytest.fixture
def verb() -> Verb:
    return Verb()


@pytest.fixture
def install(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Verb]:
    def installed(name: VerbName = VerbName.DIAGNOSE, **says: Any) -> Verb:
        handler = Handler(verb.start, verb.observe, read_time, verb.refresh, **says)
        monkeypatch.setattr(f"nodeheal.operations.{name.value.lower()}.HANDLER", handler)
        return verb

    return installed


Install = Callable[..., Verb]


def planned(it: Verb, **changes: Any) -> Operation:
    """One that is not stored yet."""
    made = under_way(memory_ports(), VerbName.DIAGNOSE)
    return replace(made, version=0, state=OperationState.PLANNED, deadline_at=NOW + timedelta(hours=1), **changes)


@pytest.mark.parametrize("may_repeat", [True, False])
def test_a_start_that_broke_off_is_made_again_where_the_verb_allows_it(install: Install, may_repeat: bool) -> None:
    it = install(may_repeat=may_repeat)
    under_way(it.ports, VerbName.DIAGNOSE, state=OperationState.SENDING)

    called = it.counted(lambda: engine.begin(planned(it), VerbContext(it.ports, ACT)))

    assert called.count("start") == may_repeat


def test_a_start_that_is_through_is_not_made_again(install: Install) -> None:
    it = install(may_repeat=True)
    under_way(it.ports, VerbName.DIAGNOSE)

    assert it.counted(lambda: engine.begin(planned(it), VerbContext(it.ports, ACT))) == ["observe"]


@pytest.mark.parametrize("refreshes", [True, False])
def test_a_repeated_call_asks_the_authority_where_the_verb_says_so(install: Install, refreshes: bool) -> None:
    it = install(refreshes_when_repeated=refreshes)
    under_way(it.ports, VerbName.DIAGNOSE)

    called = it.counted(lambda: engine.begin(planned(it), VerbContext(it.ports, ACT)))

    assert called.count("refresh") == refreshes


def test_what_was_begun_ahead_is_begun_once(install: Install) -> None:
    it = install()
    for _ in range(2):
        engine.begin_ahead(planned(it), VerbContext(it.ports, ACT))

    assert it.calls.count("start") == 1


@pytest.mark.parametrize("state", [OperationState.PLANNED, OperationState.DELIVERED])
def test_an_event_does_not_look_at_what_is_not_begun_or_is_delivered(install: Install, state: OperationState) -> None:
    it = install()
    operation = under_way(it.ports, VerbName.DIAGNOSE, state=state, answer_json="yes", result_json="{}")

    assert it.counted(lambda: engine.reconcile(operation, it.ports)) == []
    assert it.resumed() is None


def test_the_first_answer_holds(install: Install) -> None:
    it = install()
    operation = under_way(it.ports, VerbName.DIAGNOSE, answer_json="the first")

    engine.signal(operation, "the second", it.ports)

    assert it.resumed().reason == "the first"


def test_an_answer_changes_nothing_of_what_is_over(install: Install) -> None:
    it = install()
    operation = under_way(it.ports, VerbName.DIAGNOSE)
    operation = engine.end(operation, it.ports)

    engine.signal(operation, "too late", it.ports)

    [stored] = it.ports.operations.operations.values()
    assert stored.answer_json == ""
    assert it.resumed() is None


def test_an_event_delivers_what_is_over_and_observes_nothing(install: Install) -> None:
    it = install()
    operation = under_way(it.ports, VerbName.DIAGNOSE, answer_json="another than at its end")
    result = step_result(operation, NOW, Outcome.FAILED, "as it was")
    over = replace(operation, state=OperationState.DONE, result_json=result.model_dump_json())

    assert it.counted(lambda: engine.reconcile(over, it.ports)) == []
    assert it.resumed() == result


def test_a_conclusion_of_what_is_over_asks_nobody(install: Install) -> None:
    it = install()
    operation = under_way(it.ports, VerbName.DIAGNOSE)
    result = step_result(operation, NOW, Outcome.FAILED, "as it was")
    over = replace(operation, state=OperationState.DONE, result_json=result.model_dump_json())
    it.ports.operations.save(over)
    concluded: list[object] = []

    assert it.counted(lambda: concluded.append(conclude(operation.step, it.ports))) == []
    assert concluded == [result]


@pytest.mark.parametrize(
    ("outcome", "goes_on"), [(Outcome.DONE, True), (Outcome.FAILED, False), (Outcome.TIMED_OUT, False)]
)
def test_half_of_a_step_that_is_done_has_the_step_called_again(
    install: Install, outcome: Outcome, goes_on: bool
) -> None:
    it = install(is_half_of_step=True)
    operation = under_way(it.ports, VerbName.DIAGNOSE)
    result = step_result(operation, NOW, outcome, "so").model_dump_json()
    it.ports.operations.save(replace(operation, state=OperationState.DONE, result_json=result))

    concluded = conclude(operation.step, it.ports)

    assert isinstance(concluded.facts, CallAgain) is goes_on
    assert concluded.outcome is (Outcome.UNKNOWN if goes_on else outcome)


def test_a_verb_whose_node_is_sent_no_command_takes_no_answer(install: Install) -> None:
    it = install(answers=None)
    operation = under_way(it.ports, VerbName.DIAGNOSE, nonce="0" * 32)
    told = xid().model_dump(include=SHARED_FACTS | {"observed_at"})
    told |= {"event_id": "e", "node_id": NODE, "instance_id": NODE, "boot_id": "boot-1"}
    event = DiagnosticsFinished(**told, request_id=operation.request_id, verdict=Verdict.OK)

    assert not engine.answered(event, it.ports)


@pytest.mark.parametrize(
    ("name", "says", "is_decided"),
    [
        (VerbName.DIAGNOSE, {}, True),
        (VerbName.DIAGNOSE, {"is_half_of_step": True}, False),
        (VerbName.WAIT, {}, False),  # news finds it by the incident's turn, which must not move before it ends
    ],
    ids=["a step", "half of one", "a wait"],
)
def test_the_end_of_a_step_comes_with_the_next_decision(
    install: Install, name: VerbName, says: dict[str, Any], is_decided: bool
) -> None:
    it = install(name, **says)
    asked: list[DecideRequest] = []

    def decide(request: DecideRequest) -> Decision:
        asked.append(request)
        return NEXT

    ports = replace(it.ports, decide=decide)

    engine.signal(under_way(ports, name), "yes", ports)

    assert isinstance(it.resumed(), DecidedResult) is is_decided
    assert len(asked) == is_decided


@pytest.mark.parametrize(("error", "level"), [(NotAccepted("throttled"), "INFO"), (KeyError("a policy"), "ERROR")])
def test_a_decision_that_cannot_be_made_now_is_left_to_the_workflow(
    install: Install, caplog: pytest.LogCaptureFixture, error: Exception, level: str
) -> None:
    it = install()
    caplog.set_level("INFO")

    def decide(_: DecideRequest) -> Decision:
        raise error

    ports = replace(it.ports, decide=decide)

    engine.signal(under_way(ports, VerbName.DIAGNOSE), "yes", ports)

    assert it.resumed().outcome is Outcome.DONE
    assert not isinstance(it.resumed(), DecidedResult)
    assert [(one.levelname, one.message) for one in caplog.records] == [
        (level, "no decision yet; the workflow asks for it")
    ]


def test_the_end_of_a_jobs_step_is_decided_by_its_workflow(install: Install) -> None:
    it = install()
    ports = replace(it.ports, decide=lambda _: NEXT)
    request = JobRequest(job_id="llama", submission=1, round=0).model_dump_json(exclude={"task_token"})
    operation = under_way(ports, VerbName.DIAGNOSE, request_json=request)

    engine.signal(operation, "yes", ports)

    assert it.resumed().then is Next.CHECK


def test_a_part_that_was_delivered_is_not_looked_at_again(install: Install) -> None:
    it = install()
    whole = under_way(it.ports, VerbName.DIAGNOSE, node_id="mi-whole")
    part = replace(whole, owner=node_owner(NODE), parent=(whole.owner, whole.operation_id), version=0)
    result = step_result(part, NOW, Outcome.DONE, "so")
    over = replace(part, state=OperationState.DELIVERED, result_json=result.model_dump_json())

    assert it.counted(lambda: engine.deliver(over, it.ports)) == []
