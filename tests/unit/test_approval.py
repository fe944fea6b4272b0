"""A human is asked, and answers: once, in time, with a link that only nodeheal can make, and on the record."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.steps import AttemptLimit, Decision
from nodeheal.contract.vocabulary import Action, Awaited, Escalation, IncidentState, NodeState, Outcome, Provider, Step
from nodeheal.domain.operation import OperationState, incident_owner
from nodeheal.domain.recovery.approval_links import Answer, LinkRefused, Question
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.domain.recovery.incident import short_id
from nodeheal.domain.recovery.timeline import ApprovalAnswered, TimelineEntry, decision_entry
from nodeheal.operations.questions import find_question
from nodeheal.operations.steps import wait_for_approval
from nodeheal.operations.verbs import conclude
from nodeheal.services.notify.compose_waiting import compose_question
from nodeheal.services.operators import approval_page
from nodeheal.services.operators.answer_approval import _at_the_last_moment, answer_approval, open_question
from nodeheal.services.operators.describe_answer import describe_answer
from nodeheal.services.operators.needed_now import needed_now
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool
from nodeheal.services.steps import save_node
from tests.support.approvals import APPROVE, DUE, LINKS, Asked, both
from tests.support.builders import NOW, memory_ports, xid
from tests.support.guardrails import waited
from tests.support.incident_steps import A, B, Incident
from tests.support.recovery_story import Story

QUESTION = Question("inc-1", 3)


def test_where_a_console_is_deployed_the_link_is_its_page_and_has_no_signature() -> None:
    links = replace(LINKS, console_url="https://console.example")

    assert {links.link(QUESTION, answer, DUE) for answer in Answer} == {
        "https://console.example/incidents/inc-1#answer"
    }
    assert "signature" in LINKS.link(QUESTION, Answer.approve, DUE)


def paused(it: Incident) -> None:
    pause_pool("demo", 7_200, "bob: new driver", it.ports)


def test_a_yes_in_a_paused_pool_is_not_used_up_and_can_be_given_after_the_pause() -> None:
    it = Asked()
    paused(it)

    page = approval_page.question(it.ports.incidents.history(it.id), it.question.turn, both(), it.ports)
    taken, text = it.answer(Answer.approve, why="go")
    pause_pool("demo", 0, "bob: done", it.ports)

    assert not taken
    assert text.startswith(
        "pool demo is paused until 2026-03-01 05:00 UTC (bob: new driver), so a yes would do nothing"
    )
    assert "the question stays open until 2026-03-01 04:00:00 UTC" in text
    assert "Nothing while it lasts: pool demo is paused until" in page
    assert it.answer(Answer.approve, why="go") == (True, "approved by ada: go")


def test_a_yes_for_a_node_that_is_paused_is_not_taken_either() -> None:
    it = Asked()
    pause_node(A, 3_600, "bob: new riser", it.ports)

    taken, text = it.answer(Answer.approve)

    assert not taken
    assert text.startswith(f"{A} is paused until 2026-03-01 04:00 UTC (bob: new riser), so a yes would do nothing now")


def test_a_question_that_was_answered_before_its_function_broke_off_is_not_mailed_again() -> None:
    it = Asked()
    it.dies_after_recording(Answer.approve)
    [operation] = it.ports.operations.open_of(incident_owner(it.id))
    it.ports.operations.save(replace(operation, state=OperationState.SENDING))

    wait_for_approval(it.asked.model_copy(update={"task_token": "again"}), it.ports, LINKS)

    assert it.mail  # one
    assert it.ports.workflows.resumed["again"].outcome is Outcome.DONE  # type: ignore[attr-defined]


def test_a_no_in_a_paused_pool_is_as_good_as_ever() -> None:
    it = Asked()
    paused(it)

    assert it.answer(Answer.refuse) == (True, "refused by ada")


def test_a_yes_that_a_pause_annuls_leaves_the_broken_node_to_a_human() -> None:
    it = Asked()
    it.answer(Answer.approve, why="go")
    paused(it)
    it.resumed()

    decided = it.request().decision

    assert decided.escalation is Escalation.RECOVERY_BLOCKED
    assert "approved by ada: go, but pool demo is paused until 2026-03-01 05:00 UTC (bob: new driver)" in decided.reason
    assert "in act mode" not in decided.reason


# Links


def query_of(link: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(link).query))


def test_a_link_says_what_it_answers_until_it_expires() -> None:
    query = query_of(LINKS.link(QUESTION, Answer.refuse, DUE))

    assert LINKS.read(query, NOW) == (QUESTION, Answer.refuse)
    assert LINKS.read(query, DUE - timedelta(seconds=1)) == (QUESTION, Answer.refuse)
    with pytest.raises(LinkRefused, match="expired"):
        LINKS.read(query, DUE)


@pytest.mark.parametrize(
    "changed",
    [
        {"incident": "inc-2"},
        {"turn": "4"},
        {"answer": "approve"},
        {"expires": str(int(DUE.timestamp()) + 9_999)},
        {"signature": "0" * 64},
        {"signature": "é"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_link_that_was_changed_is_refused(changed: dict[str, str]) -> None:
    query = query_of(LINKS.link(QUESTION, Answer.refuse, DUE))

    with pytest.raises(LinkRefused, match="not made by nodeheal"):
        LINKS.read({**query, **changed}, NOW)


@pytest.mark.parametrize("missing", ["incident", "turn", "answer", "expires", "signature"])
def test_a_link_that_was_cut_is_refused(missing: str) -> None:
    query = query_of(LINKS.link(QUESTION, Answer.refuse, DUE))

    with pytest.raises(LinkRefused, match="not whole"):
        LINKS.read({name: value for name, value in query.items() if name != missing}, NOW)


def test_a_link_of_another_deployment_is_refused() -> None:
    query = query_of(replace(LINKS, key=b"another").link(QUESTION, Answer.approve, DUE))

    with pytest.raises(LinkRefused, match="not made by nodeheal"):
        LINKS.read(query, NOW)


# The question


def test_the_question_comes_with_a_link_for_each_answer_and_the_command() -> None:
    it = Asked()

    links = re.findall(r"https://\S+", it.mail)

    assert [LINKS.read(query_of(link), NOW) for link in links] == [
        (it.question, Answer.approve),
        (it.question, Answer.refuse),
    ]
    assert it.mail.startswith("[nodeheal] approve? mi-0a1b2c3d4e5f60718, llama: XID 79 (GPU has fallen off the bus)")
    assert f"nodeheal approve {short_id(it.id)} --why ..." in it.mail
    assert "your answer by 2026-03-01 04:00:00 UTC" in it.mail


def on_one_line(it: Asked) -> str:
    return " ".join(it.mail.split())


def test_the_question_says_whose_work_a_yes_stops_and_what_a_no_leaves() -> None:
    told = on_one_line(Asked())

    assert f"If yes: {A} is isolated, then rebooted and proven by diagnostics. Both ranks of llama (run 1," in told
    assert f"stop, on {A}, {B}. What it has computed and not saved in a checkpoint is lost;" in told
    assert "it starts again when the node is healed, or another has its place." in told
    assert f"If no: {A} stays in service, with whatever runs on it, and the incident goes to a human." in told


def dies(*ranks: int) -> Callable[[Incident], None]:
    """These ranks die of the fault before anybody is asked."""

    def prepare(it: Incident) -> None:
        for rank in ranks:
            it.task_is("STOPPED", rank, exit_code=134)

    return prepare


def test_a_question_does_not_promise_a_reboot_of_which_none_is_left() -> None:
    limit = AttemptLimit(group=Action.REBOOT, limit=1, window_seconds=86_400)
    it = Asked(prepare=lambda it: it.ports.attempts.reserve(node_scope(A), "by hand", limit))

    assert f"\nIf yes: {A} is isolated, then replaced." in it.mail
    assert "because 1 of 1 reboots in 24 h are spent" in it.mail


def test_a_question_about_a_job_that_is_gone_says_that_nothing_is_left_to_stop() -> None:
    told = on_one_line(Asked(prepare=dies(0, 1)))

    assert "No rank of llama is left to stop." in told


def test_a_rank_that_died_is_not_counted_among_those_that_stop() -> None:
    told = on_one_line(Asked(prepare=dies(0)))

    assert f"1 of 2 ranks of llama (run 1, since 2026-03-01 03:00 UTC) stop, on {B}." in told


def test_a_question_about_the_program_touches_no_node() -> None:
    told = on_one_line(Asked(31))

    assert "If yes: No node is touched. Both ranks of llama" in told
    assert "it starts again at once." in told


def test_a_question_about_an_isolation_says_that_nobody_starts_the_job_again() -> None:
    told = on_one_line(Asked(54))

    assert f"If yes: {A} is isolated, then left to a human. Both ranks of llama" in told
    assert "is lost; it goes on elsewhere where nodes are free; otherwise nobody starts it again." in told


def test_a_question_about_a_node_without_a_job_says_so() -> None:
    def without_job(it: Incident) -> None:
        incident = it.ports.incidents.incidents[it.id]  # type: ignore[attr-defined]
        it.ports.incidents.incidents[it.id] = replace(incident, job_id=None)  # type: ignore[attr-defined]

    assert "No job of ours runs on it." in on_one_line(Asked(prepare=without_job))


@pytest.mark.parametrize(("answer", "word"), list(zip(Answer, ("Approve", "Refuse"), strict=True)))
def test_the_page_says_what_its_button_does(answer: Answer, word: str) -> None:
    it = Asked()

    page = approval_page.question(it.ports.incidents.history(it.id), it.asked.turn, both(answer), it.ports)

    does = {"Approve": "Both ranks of llama", "Refuse": "stays in service, with whatever runs on it"}
    assert f"What “{word}” does" in page
    assert does[word] in page


def test_the_wait_is_there_before_the_question_goes_out() -> None:
    it = Incident(policy=APPROVE)
    seen: list[bool] = []
    request = it.request()

    class Watched:
        def announce(self, *_: object) -> None:
            seen.append(open_question(it.id, it.ports) == Question(it.id, request.turn))

    wait_for_approval(request, replace(it.ports, notifier=Watched()), LINKS)  # type: ignore[arg-type]

    assert seen == [True]


# The answer


@pytest.mark.parametrize(
    ("answer", "outcome", "said"),
    [(Answer.approve, Outcome.DONE, "approved by ada: go"), (Answer.refuse, Outcome.REFUSED, "refused by ada: go")],
)
def test_an_answer_resumes_the_workflow_with_who_and_why(answer: Answer, outcome: Outcome, said: str) -> None:
    it = Asked()

    assert it.answer(answer, "ada", "go") == (True, said)

    assert (it.resumed().outcome, it.resumed().reason) == (outcome, said)
    assert it.told() == [said]


def test_the_first_answer_counts_and_the_second_is_refused_and_on_record() -> None:
    it = Asked()

    it.answer(Answer.refuse)
    taken, why = it.answer(Answer.approve, "bob")

    assert not taken
    assert "it was answered before: refused by ada" in why
    assert it.resumed().outcome is Outcome.REFUSED
    assert it.told() == [
        "refused by ada",
        "an answer of bob (approve) was refused: it was answered before: refused by ada",
    ]


def test_a_thousand_further_answers_under_any_name_add_one_entry_a_day() -> None:
    it = Asked()
    it.answer(Answer.refuse)

    for number in range(1_000):
        taken, why = it.answer(Answer.approve, f"bob {number}", f"reason {number}")
        assert (taken, "it was answered before" in why) == (False, True)

    assert it.told() == [
        "refused by ada",
        "an answer of bob 0 (approve) was refused: it was answered before: refused by ada",
    ]


def test_an_answer_whose_write_was_not_answered_and_repeated_is_not_taken_for_a_second_one() -> None:
    it = Asked()

    class Unanswered:
        history, incident = it.ports.incidents.history, it.ports.incidents.incident

        def append(self, incident_id: str, entry: TimelineEntry) -> bool:
            it.ports.incidents.append(incident_id, entry)
            return it.ports.incidents.append(incident_id, entry)

    ports = replace(it.ports, incidents=Unanswered())  # type: ignore[arg-type]
    answered = answer_approval(it.question, Answer.approve, "ada", "", ports)

    assert (answered.is_taken, answered.text) == (True, "approved by ada")
    assert it.told() == ["approved by ada"]


def test_an_answer_that_died_before_it_resumed_is_carried_on_by_the_next_one() -> None:
    it = Asked()

    class Down:
        def resume(self, *_: object) -> bool:
            raise ConnectionError("the call is lost")

    with pytest.raises(ConnectionError):
        answer_approval(it.question, Answer.refuse, "ada", "", replace(it.ports, workflows=Down()))  # type: ignore[arg-type]
    it.answer(Answer.approve, "bob")

    assert (it.resumed().outcome, it.resumed().reason) == (Outcome.REFUSED, "refused by ada")


def test_an_answer_to_a_question_that_was_withdrawn_says_why_it_no_longer_counts() -> None:
    it = Asked()
    save_node(it.ports, it.node(), open_incident=None)
    it.last = conclude(it.asked, it.ports)
    it.request()

    taken, why = it.answer(Answer.approve)

    assert not taken
    assert why == f"the question is no longer open: {A} was given back or retired by hand"


def test_an_answer_after_the_deadline_is_refused_and_on_record() -> None:
    it = Asked()
    it.clock.advance(3_600)

    taken, why = it.answer(Answer.approve)

    assert (taken, why) == (False, "the time to answer is over")
    assert it.is_waiting()
    assert it.told() == ["an answer of ada (approve) was refused: the time to answer is over"]


def test_an_answer_that_comes_as_the_workflow_gives_up_is_found_when_it_looks() -> None:
    it = Asked()
    it.ports.workflows.expired.add(f"token-{it.turn}")  # type: ignore[attr-defined]

    taken, why = it.answer(Answer.approve)
    following = it.request()  # its deadline has passed: it looks once

    assert (taken, following.decision.step) == (True, Step.ISOLATE)
    assert why.startswith("approved by ada, at the last moment: `nodeheal incidents show inc-")


def test_an_answer_that_the_workflow_has_found_by_itself_is_told_to_count() -> None:
    it = Asked()
    it.dies_after_recording(Answer.approve)
    it.ports.workflows.expired.add(f"token-{it.turn}")  # type: ignore[attr-defined]
    it.request()
    said = next(entry for entry in it.ports.incidents.history(it.id).timeline if entry.kind == "answer")

    taken, why = vars(_at_the_last_moment(it.question, said, Answer.approve, "ada", it.ports)).values()

    assert (taken, "at the last moment" in why) == (True, True)


def test_an_answer_with_a_text_that_results_cut_is_told_to_count_as_well() -> None:
    it = Asked()
    it.dies_after_recording(Answer.approve, why="because " * 300)
    it.ports.workflows.expired.add(f"token-{it.turn}")  # type: ignore[attr-defined]
    it.request()
    said = next(entry for entry in it.ports.incidents.history(it.id).timeline if entry.kind == "answer")

    assert _at_the_last_moment(it.question, said, Answer.approve, "ada", it.ports).is_taken


def test_an_answer_that_the_workflow_did_not_see_is_told_to_be_late() -> None:
    it = Asked()
    it.ports.workflows.expired.add(f"token-{it.turn}")  # type: ignore[attr-defined]
    asked = find_question(it.question, it.ports)
    assert asked is not None
    escalated = it.request()
    ended = it.ports.operations.get(asked.owner, asked.operation_id)
    assert ended is not None
    assert it.ports.operations.save(replace(asked, version=ended.version))  # it was read just before

    taken, why = it.answer(Answer.approve)

    assert escalated.decision.escalation is Escalation.APPROVAL_IGNORED
    assert (taken, why) == (False, "the workflow had given up waiting a moment before")
    assert it.told()[-1].startswith("an answer of ada (approve) was refused")


@pytest.mark.parametrize(("answer", "outcome"), [(Answer.approve, Outcome.DONE), (Answer.refuse, Outcome.REFUSED)])
def test_an_answer_whose_wake_up_was_lost_is_found_at_the_deadline(answer: Answer, outcome: Outcome) -> None:
    it = Asked()
    it.dies_after_recording(answer)

    found = conclude(it.asked, it.ports)

    assert (found.outcome, found.reason) == (outcome, it.told()[0])
    assert find_question(it.question, it.ports) is None


def test_a_question_that_is_asked_again_after_a_crash_finds_the_answer_to_the_first() -> None:
    it = Asked()
    it.dies_after_recording(Answer.approve)

    wait_for_approval(it.asked.model_copy(update={"task_token": "a new one"}), it.ports, LINKS)

    resumed = it.ports.workflows.resumed["a new one"]  # type: ignore[attr-defined]
    assert (resumed.outcome, resumed.reason) == (Outcome.DONE, "approved by ada")
    assert len(it.ports.notifier.announced) == 1  # type: ignore[attr-defined]


def test_nobody_asked_again_means_nobody_answered() -> None:
    it = Asked()

    assert conclude(it.asked, it.ports).outcome is Outcome.TIMED_OUT


def test_an_incident_that_asks_nothing_says_so() -> None:
    it = Asked()
    it.answer(Answer.approve)

    with pytest.raises(ValueError, match="waits for no approval"):
        open_question(it.id, it.ports)


@pytest.mark.parametrize(
    ("awaited", "told"),
    [
        (
            Awaited.BREAKER,
            "waits for the breaker's reset (`nodeheal breaker show demo`, then `nodeheal breaker reset demo",
        ),
        (Awaited.CAPACITY, "waits for capacity (`nodeheal incidents show "),
    ],
)
def test_an_incident_that_waits_for_something_else_says_for_what_and_the_next_step(awaited: Awaited, told: str) -> None:
    it = Incident(79)
    waits = Decision(step=Step.WAIT, awaits=awaited, reason="it waits", node_id=A)
    head = it.ports.incidents.incident(it.id)
    entry = decision_entry(head.turn, waits, NOW)
    assert it.ports.incidents.advance(replace(head, turn=head.turn + 1, state=IncidentState.WAITING), [entry])

    with pytest.raises(ValueError) as refused:
        open_question(it.id, it.ports)

    assert told in str(refused.value)
    commands = [line.strip() for _, lines in needed_now(it.id, it.ports, lambda: it.policy) for line in lines]
    assert ("nodeheal breaker reset demo --why ..." in commands) is (awaited is Awaited.BREAKER)


# The page


def test_the_page_shows_what_is_asked_and_escapes_what_a_node_has_said() -> None:
    it = Asked()
    history = it.ports.incidents.history(it.id)
    evil = history.incident.root.model_copy(update={"evidence": "<script>alert(1)</script>"})

    page = approval_page.question(
        replace(history, incident=replace(history.incident, root=evil)), it.asked.turn, both(Answer.approve), it.ports
    )

    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert '<form method="post">' in page
    assert "asks for approval first; nodeheal would isolate the node" in page


def page_of(it: Asked, answer: Answer = Answer.approve) -> str:
    return approval_page.question(it.ports.incidents.history(it.id), it.question.turn, both(answer), it.ports)


def test_the_page_says_until_when_to_answer_and_whether_it_is_a_drill() -> None:
    it = Asked()
    real = page_of(it)
    history = it.ports.incidents.history(it.id)
    drilled = history.incident.root.model_copy(update={"evidence": f"Xid 79 {DRILL_MARK}"})
    drill = replace(history, incident=replace(history.incident, root=drilled), events=(drilled,))

    assert "<dt>Answer by</dt><dd>2026-03-01 04:00:00 UTC; silence is no" in real
    assert "Drill" not in real
    page = approval_page.question(drill, it.question.turn, both(Answer.approve), it.ports)
    assert "<dt>Drill</dt><dd>an operator has injected this fault. What is done about it is real.</dd>" in page


def test_the_page_of_an_answered_question_says_what_was_decided_and_by_whom() -> None:
    it = Asked()
    it.answer(Answer.refuse, why="it trains")

    page = page_of(it)

    assert "<dt>What was decided</dt><dd>refused by ada: it trains</dd>" in page
    assert "<form" not in page
    assert "Nothing has been decided yet" not in page


def test_an_answer_that_is_on_record_is_shown_before_the_workflow_has_it() -> None:
    it = Asked()
    it.dies_after_recording(Answer.approve)

    assert find_question(it.question, it.ports) is not None
    assert "<dt>What was decided</dt><dd>approved by ada</dd>" in page_of(it)


def test_the_page_of_a_question_that_nobody_answered_says_so() -> None:
    it = Asked()
    it.last = conclude(it.asked, it.ports)
    it.request()

    page = page_of(it)

    assert "<dt>What was decided</dt><dd>nobody answered within 3600 s</dd>" in page
    assert "<form" not in page


def test_the_page_of_an_incident_that_has_ended_has_no_form() -> None:
    it = Asked()
    incident = it.ports.incidents.incident(it.id)
    ended = replace(incident, state=IncidentState.CLOSED, summary="closed by hand")
    it.ports.incidents.incidents[it.id] = ended  # type: ignore[attr-defined]

    page = page_of(it)

    assert "<dt>What was decided</dt><dd>nothing: the question is no longer open</dd>" in page
    assert "<dt>How it ended</dt><dd>closed by hand</dd>" in page
    assert "<form" not in page


def test_a_form_without_a_name_is_refused() -> None:
    with pytest.raises(approval_page.FormRefused, match="say who you are"):
        approval_page.read_form(approval_page.FORM, urlencode({"who": "  ", "why": "because"}))


def test_what_a_person_types_is_kept_short_and_on_one_line() -> None:
    who, why = approval_page.read_form(approval_page.FORM, urlencode({"who": "ada\nlovelace", "why": "x" * 1_000}))

    assert (who, len(why)) == ("ada lovelace", 300)


def test_who_is_asked_for_a_stop_and_start_is_told_what_it_loses() -> None:
    it = Asked()
    incident = it.ports.incidents.history(it.id).incident

    does = describe_answer(it.asked.decision.model_copy(update={"action": Action.STOP_START}), incident, it.ports)

    assert "then stopped and started on another host, which loses what is on its local disks." in does[Answer.approve]


def test_who_is_asked_in_the_middle_is_not_told_that_the_node_is_isolated_first() -> None:
    it = Asked()
    it.ports.nodes.save(replace(it.node(), state=NodeState.ISOLATED))
    incident = it.ports.incidents.history(it.id).incident

    does = describe_answer(it.asked.decision, incident, it.ports)

    assert does[Answer.approve].startswith(f"{A} is rebooted and proven by diagnostics.")
    assert does[Answer.refuse].startswith(f"{A} stays isolated")


def test_a_replacement_says_who_takes_the_nodes_place_and_whether_anybody_can() -> None:
    it = Asked()
    incident = it.ports.incidents.history(it.id).incident
    replacement = it.asked.decision.model_copy(update={"action": Action.REPLACE})
    taken = describe_answer(replacement, incident, it.ports)[Answer.approve]
    for other in it.ports.nodes.in_pool("demo"):
        it.ports.nodes.save(replace(other, state=NodeState.QUARANTINED))

    alone = describe_answer(replacement, incident, it.ports)[Answer.approve]

    assert "No node of pool demo is free to take its place now" in alone
    assert (
        "A free node of pool demo takes its place. mi-0a1b2c3d4e5f60718 stays out of service until a human acts."
        in taken
    )
    assert "its place now" not in describe_answer(it.asked.decision, incident, it.ports)[Answer.approve]


def test_who_is_asked_about_a_node_of_hyperpod_is_told_what_is_lost_and_what_proves_nothing() -> None:
    it = Asked()
    it.ports.nodes.save(replace(it.node(), provider=Provider.hyperpod))
    incident = it.ports.incidents.history(it.id).incident
    replacement = it.asked.decision.model_copy(update={"action": Action.REPLACE})

    does = describe_answer(replacement, incident, it.ports)[Answer.approve]

    lost = f"HyperPod terminates {A} and destroys all its volumes, and makes a new machine in its place."
    rebooted = describe_answer(it.asked.decision, incident, it.ports)[Answer.approve]
    assert lost in does
    assert lost not in rebooted
    assert f"HyperPod takes no diagnostics: {A} stays out of service until a human gives it back." in rebooted


def test_a_question_about_a_job_says_what_becomes_of_the_job() -> None:
    it = Asked()
    incident = it.ports.incidents.history(it.id).incident
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=1)
    restart = it.asked.decision.model_copy(update={"action": Action.RESTART_WORKLOAD})

    does = describe_answer(restart, incident, it.ports)

    assert does[Answer.approve].endswith("llama starts again at once.")
    assert does[Answer.refuse] == "llama stays down, and the incident goes to a human."


def test_an_open_breaker_holds_what_a_yes_does() -> None:
    it = Asked()
    pool = it.ports.pools.get("demo")
    it.ports.pools.save(pool.tripped("9 of 10 nodes failed", NOW))
    incident = it.ports.incidents.history(it.id).incident

    asked = describe_answer(it.asked.decision, incident, it.ports)[Answer.approve]
    _, answered = it.answer(Answer.approve)

    assert asked.startswith("Nothing before a human resets the breaker of pool demo")
    assert answered.endswith("Nothing before a human resets the breaker of pool demo")


LATER = NOW + timedelta(hours=1)


def test_an_old_link_shows_the_question_that_it_answers() -> None:
    story = waited(Story(xid(79), policy=APPROVE), Outcome.DONE).isolated().rebooted().failed()
    story.then(Outcome.UNKNOWN)

    page = approval_page.question(story.history, 1, both(), memory_ports())

    assert "isolate the node, reboot it" in page
    assert "go on with a replacement" not in page


def test_who_answers_second_is_told_so_even_where_only_that_call_reached_the_workflow() -> None:
    it = Asked()
    first = TimelineEntry(
        NOW, f"answer-{it.asked.turn:04d}", "refused by ada", ApprovalAnswered(Answer.refuse), it.asked.turn - 1
    )
    it.ports.incidents.append(it.id, first)  # the call died before it could resume
    it.clock.advance(60)

    taken, why = it.answer(Answer.approve, "bob")

    assert (taken, why) == (False, "it was answered before: refused by ada")
    assert (it.resumed().outcome, it.resumed().finished_at) == (Outcome.REFUSED, it.clock())


def test_no_line_of_a_node_looks_like_one_of_ours_in_the_email_that_asks() -> None:
    it = Incident(policy=APPROVE)
    request, history = it.request(), it.ports.incidents.history(it.id)
    evil = history.incident.root.model_copy(update={"evidence": "Xid 79\n\nApprove: https://evil.example"})
    links = dict.fromkeys(Answer, "https://approve.example")

    mail = compose_question(replace(history, incident=replace(history.incident, root=evil)), request, links, LATER)

    lines = mail.body.splitlines()
    assert lines[:5] == ["Approve:", "https://approve.example", "", "Refuse:", "https://approve.example"]
    assert mail.body.count("Approve:") == 1
