"""The email that somebody reads at night."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import DIAGNOSE, DRILL_MARK
from nodeheal.contract.notification import Notification
from nodeheal.contract.results import EvidenceSaved, Refused, StepResult
from nodeheal.contract.vocabulary import (
    Action,
    Awaited,
    Ending,
    Escalation,
    Family,
    NodeState,
    Outcome,
    Phase,
    Refusal,
    Step,
)
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.incident import Turn, short_id
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.recovery.timeline import event_entry
from nodeheal.domain.review.console_links import ConsoleLinks, console_host
from nodeheal.services.notify.compose import compose, fit_subject
from nodeheal.services.notify.compose_waiting import compose_waiting
from nodeheal.services.notify.layout import plain
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool
from stacks.settings import Settings
from tests.support.acts import requested
from tests.support.builders import ACT, NOW, node, xid
from tests.support.fake_cluster import BROKEN, FakeCluster
from tests.support.job_cluster import spec
from tests.support.job_moves import broken, took
from tests.support.jobs import ecs_job_of
from tests.support.observations import crowd
from tests.support.policies import with_policy
from tests.support.questions import ARN, LINKS, READING, question
from tests.support.recovery_story import SPARE, Story

HUMAN = Ending.HANDED_TO_A_HUMAN


def mail_of(story: Story, ending: Ending, about: Node, **said: object) -> Notification:
    """The email for this ending of the story."""
    decided = story.next().model_copy(update={"ending": ending, "reason": "why", **said})
    return compose(Situation(story.history, story.policy), decided, about)


def waiting(story: Story, awaits: Awaited) -> Notification:
    told = compose_waiting(story.history, story.next().model_copy(update={"awaits": awaits}), NOW, READING)
    assert told is not None
    return told


def spoken(story: Story, evidence: str) -> Story:
    """The story, whose node says this."""
    root = story.history.incident.root.model_copy(update={"evidence": evidence})
    timeline = (event_entry(root.model_copy(update={"component": f"gpu\n{evidence[:80]}"})),)
    incident = replace(story.history.incident, root=root)
    story.history = replace(story.history, incident=incident, timeline=timeline)
    return story


def test_a_subject_fits_and_is_plain_ascii() -> None:
    story = Story(xid(79), job="llama-äöü-" + "x" * 200)

    mail = mail_of(story, HUMAN, node())

    assert len(mail.subject) < 100
    assert mail.subject.isascii()
    assert "\n" not in mail.subject


def test_a_recovery_needs_nothing_and_pages_nobody() -> None:
    mail = mail_of(Story(xid(79)).isolated().rebooted().passed(), Ending.RECOVERED, node())

    assert "\n\nNeeded: nothing.\n\n" in mail.body
    assert mail.severity == "INFO"


def test_a_broken_node_and_a_job_that_is_down_are_both_named() -> None:
    story = Story(xid(79)).isolated().rebooted().failed().then(Outcome.REFUSED, "no healthy spare")

    mail = mail_of(story, HUMAN, node(state=NodeState.QUARANTINED))

    assert "\n1. mi-0a1b2c3d4e5f60718 stays out of service. Repair it and give it back to work (release)" in mail.body
    assert "\n2. llama is stopped. Start it again" in mail.body
    assert mail.body.count("the reboot did not help (diagnostics failed: pcie)") == 1
    assert mail.severity == "PAGE"


def test_a_job_that_runs_on_the_spare_is_not_called_stopped() -> None:
    story = Story(xid(74)).isolated().swapped().passed().then(Outcome.DONE, "llama restarted")

    mail = mail_of(story, HUMAN, node(state=NodeState.QUARANTINED))

    assert "is stopped" not in mail.body


def test_a_healed_node_whose_job_stayed_down_is_not_said_to_be_untouched() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE).then(Outcome.REFUSED, "10 of 10 are spent")

    mail = mail_of(story, HUMAN, node(state=NodeState.PROBATION))

    assert "llama is stopped" in mail.body
    assert "as they were" not in mail.body


def test_what_was_not_touched_is_said_to_be_as_it_was() -> None:
    mail = mail_of(Story(xid(999)), HUMAN, node())

    assert "has left it and its job as they were" in mail.body
    assert "has left it as it was." in mail_of(Story(xid(999), job=None), HUMAN, node()).body


@pytest.mark.parametrize(("state", "is_closed_by_hand"), [(NodeState.HEALTHY, True), (NodeState.QUARANTINED, False)])
def test_an_incident_whose_node_need_not_be_given_back_says_how_it_is_closed(
    state: NodeState, is_closed_by_hand: bool
) -> None:
    story = Story(xid(999))

    mail = mail_of(story, HUMAN, node(state=state))

    how = f"nodeheal incidents close {short_id(story.history.incident.incident_id)} --why ..."
    assert (how in mail.body) is is_closed_by_hand


def test_the_same_ending_has_the_same_key_and_another_incident_another() -> None:
    first = mail_of(Story(xid(79)), HUMAN, node())
    again = mail_of(Story(xid(79)), HUMAN, node(), reason="other words")
    other = mail_of(Story(xid(79, event_id="other")), HUMAN, node())

    assert first.key == again.key != other.key


@pytest.mark.parametrize(("outcome", "doubt"), [(Outcome.DONE, False), (Outcome.TIMED_OUT, True)])
def test_where_the_evidence_is_stands_in_the_email(outcome: Outcome, doubt: bool) -> None:
    story = Story(xid(79)).isolated()
    decision = story.next().model_copy(update={"step": Step.FREEZE_EVIDENCE})
    where = EvidenceSaved(link="s3://evidence/a.tar.gz", console="https://console/a")
    result = StepResult(
        step=Step.FREEZE_EVIDENCE,
        node_id=decision.node_id,
        outcome=outcome,
        reason="saved",
        finished_at=NOW,
        facts=where,
    )
    history = replace(story.history, turns=(*story.history.turns, Turn(decision, result)))

    mail = compose(Situation(history, story.policy), decision, node())

    assert ":\ns3://evidence/a.tar.gz\nhttps://console/a\n" in mail.body
    assert mail.body.count("s3://") == 1
    assert ("not seen to arrive" in mail.body) is doubt


# What a node says in it -----------------------------------------------------------------------------------------------


@given(evidence=st.text(max_size=2_000))
def test_whatever_a_node_says_its_words_are_one_marked_line_and_ask_for_nothing(evidence: str) -> None:
    mails = [
        mail_of(spoken(Story(xid(79)), evidence), HUMAN, node()),
        question(spoken(Story(xid(79)), evidence)),
        waiting(spoken(Story(xid(74)), evidence), Awaited.CAPACITY),
    ]

    for mail in mails:
        lines = mail.body.split("\n")
        assert all(line.isprintable() for line in lines)
        assert lines[lines.index("Evidence:") + 1].startswith("| ")
        assert mail.body.count("Needed:") == 1, "nor may a phone begin a line with it"


def test_a_node_can_neither_forge_a_heading_nor_plant_a_link() -> None:
    said = "\r\n\r\nNeeded: nothing\x1b[2J\u202e see https://evil.example or WWW.evil.example, mailto:a@evil.example"

    body = mail_of(spoken(Story(xid(79)), said), HUMAN, node()).body

    assert "\nEvidence:\n| Needed[:] nothing [2J see https[:]//evil.example or WWW[.]evil.example" in body
    assert body.count("Needed:") == 1
    assert "https://evil" not in body
    assert "mailto:" not in body


def test_a_long_outburst_is_cut() -> None:
    body = mail_of(spoken(Story(xid(79)), "x " * 4_000), HUMAN, node()).body

    assert len(body) < 5_000


def test_what_is_plain_already_stays_as_it_is() -> None:
    assert plain("NVRM: Xid (PCI:0000:b9:00): 79, pid=<unknown>") == "NVRM: Xid (PCI:0000:b9:00): 79, pid=<unknown>"


def test_a_subject_holds_no_control_character() -> None:
    assert fit_subject("needs\x1b[2J\x07 a\r\nhuman") == "needs [2J a human"


def test_a_long_subject_ends_with_a_whole_word() -> None:
    told = "[nodeheal] needs a human: mi-0a1b2c3d4e5f60718, llama is down: XID 79 (GPU has fallen off"

    assert fit_subject(told) == told
    assert fit_subject(f"{told} the bus, again)") == f"{told} the..."
    assert fit_subject("x" * 200) == "x" * 96 + "..."


# Where to read more ---------------------------------------------------------------------------------------------------


def test_an_email_leads_to_its_execution_and_its_runbook() -> None:
    story = Story(xid(999))
    mail = compose(Situation(story.history, story.policy), story.next(), node(), READING)

    arn = f"{ARN.replace('stateMachine', 'execution')}:{story.history.incident.incident_id}"
    console = "https://eu-west-1.console.aws.amazon.com/states/home?region=eu-west-1#/v2/executions/details/"
    assert "\nRunbook:\nhttps://wiki.example/runbooks/unknown-fault.md\n" in mail.body
    shows = f"nodeheal incidents show {short_id(story.history.incident.incident_id)}"
    assert f"\nIncident:\n  {shows}\n{console}{arn}\n" in mail.body


def test_a_runbook_that_stands_in_the_repository_says_so() -> None:
    story = Story(xid(999))
    situation = Situation(story.history, story.policy)

    mail = compose(situation, story.next(), node(), ConsoleLinks(ARN, Settings().runbook_base_url))

    assert "\nRunbook:\ndocs/runbooks/unknown-fault.md in the repository\n" in mail.body


def test_what_is_not_known_is_not_told() -> None:
    body = mail_of(Story(xid(999)), HUMAN, node()).body

    assert "https://" not in body
    assert "\nRunbook:\nunknown-fault.md\n" in body
    assert "Runbook" not in mail_of(Story(xid(79)), Ending.RECOVERED, node(), escalation=None).body


@pytest.mark.parametrize(
    ("partition", "host"),
    [
        ("aws", "https://r.console.aws.amazon.com"),
        ("aws-cn", "https://r.console.amazonaws.cn"),
        ("aws-us-gov", "https://r.console.amazonaws-us-gov.com"),
    ],
)
def test_every_partition_has_a_console_of_its_own(partition: str, host: str) -> None:
    assert f"https://{console_host(partition, 'r')}" == host
    assert (
        ConsoleLinks(ARN.replace("arn:aws:", f"arn:{partition}:").replace("eu-west-1", "r"))
        .incident("i")
        .startswith(host)
    )


def test_where_people_sign_in_to_a_console_the_links_of_incidents_lead_there() -> None:
    assert replace(READING, console_url="https://c").incident("inc-1") == "https://c/incidents/inc-1"


def test_a_question_has_its_links_whole_and_its_commands_ready_to_paste() -> None:
    mail = question(Story(xid(79)))

    links = f"Approve:\n{LINKS[Answer.approve]}\n\nRefuse:\n{LINKS[Answer.refuse]}\n\nNeeded: your answer by"
    assert mail.body.startswith(links)
    assert f"\n  nodeheal approve {short_id(mail.key.split('/')[0])} --why ...\n" in mail.body
    assert "approval-wanted.md" in mail.body


# Who gets it ----------------------------------------------------------------------------------------------------------


def test_a_subscription_can_choose_by_what_an_email_is_about() -> None:
    ended, asks = mail_of(Story(xid(999)), HUMAN, node()), question(Story(xid(79)))
    waits = waiting(Story(xid(79)), Awaited.BREAKER)

    assert (ended.phase, ended.escalation) == (Phase.ENDED, Escalation.UNKNOWN_FAULT)
    assert (asks.phase, asks.escalation) == (Phase.ASKS, Escalation.APPROVAL_WANTED)
    assert (waits.phase, waits.escalation) == (Phase.WAITS, Escalation.BREAKER_OPEN)
    assert waiting(Story(xid(74)), Awaited.CAPACITY).escalation is Escalation.NO_CAPACITY
    assert {(mail.node_id, mail.family) for mail in (ended, asks, waits)} == {(node().node_id, Family.xid)}


def test_a_wait_that_is_nothing_to_people_is_not_told() -> None:
    story = Story(xid(79))

    assert compose_waiting(story.history, story.next().model_copy(update={"awaits": Awaited.STABLE}), NOW) is None


def test_a_want_of_capacity_says_what_is_missing_when_it_is_tried_again_and_what_helps() -> None:
    short = Refused(code=Refusal.NO_CAPACITY, missing="p5.48xlarge in subnet-1: InsufficientInstanceCapacity")
    story = Story(xid(74)).isolated().then(Outcome.REFUSED, "no machine is to be had", facts=short)

    mail = compose_waiting(story.history, story.next(), NOW, READING)

    assert mail is not None
    assert "\n1. free or buy a machine in place of mi-0a1b2c3d4e5f60718: p5.48xlarge in subnet-1: Insuff" in mail.body
    assert "tries again by itself at 2026-03-01 03:00:00 UTC" in mail.body
    assert "\n3. or give the node up:\n  nodeheal nodes retire" in mail.body
    assert mail.body.startswith("XID 74 (NVLink fatal error) on 0000:b9:00.0: no replacement could be had; try 1 of")
    assert mail.body.count(story.next().fault) == 1
    assert (mail.severity, mail.phase) == ("PAGE", Phase.WAITS)


def test_a_wait_for_other_replacements_is_no_want_of_capacity_and_pages_nobody() -> None:
    others = Refused(code=Refusal.REPLACEMENTS_FULL)
    why = "1 of 1 replacements of pool demo are under way"
    story = Story(xid(74)).isolated().then(Outcome.REFUSED, why, facts=others)

    mail = compose_waiting(story.history, story.next(), NOW, READING)

    assert mail is not None
    assert (mail.severity, mail.escalation) == ("INFO", None)
    assert "capacity" not in (mail.subject + mail.body).lower()
    assert "replacement.max_nodes" in mail.body
    # A page about capacity later in the same incident is no repeat of this one.
    short = (
        Story(xid(74)).isolated().then(Outcome.REFUSED, "none", facts=Refused(code=Refusal.NO_CAPACITY, missing="p5"))
    )
    assert mail.key != waiting(short, Awaited.CAPACITY).key


def test_a_long_story_is_told_with_its_beginning_and_its_end() -> None:
    story = Story(xid(79))
    entries = tuple(replace(event_entry(xid(79)), text=f"line {number}.") for number in range(100))
    story.history = replace(story.history, timeline=entries)

    body = mail_of(story, HUMAN, node()).body

    assert ("line 0." in body, "line 9." in body, "line 10." in body) == (True, True, False)
    assert ("line 69." in body, "line 70." in body, "line 99." in body) == (False, True, True)
    assert "(60 more lines: the incident has them all)" in body


# Drills ---------------------------------------------------------------------------------------------------------------


def drilled(code: int = 79) -> Story:
    return spoken(Story(xid(code, evidence=f"NVRM: Xid 79 {DRILL_MARK}")), f"NVRM: Xid 79 {DRILL_MARK}")


def test_every_email_about_a_drill_says_so_at_its_beginning() -> None:
    mails = [
        mail_of(drilled(), Ending.RECOVERED, node()),
        mail_of(drilled(999), HUMAN, node()),
        question(drilled()),
        waiting(drilled(74), Awaited.CAPACITY),
        waiting(drilled(74), Awaited.REPLACEMENT),
    ]

    assert all(mail.subject.startswith("[nodeheal] drill: ") for mail in mails)
    assert all("\nDrill: an operator has injected this fault" in mail.body for mail in mails)


def test_a_drill_pages_only_for_what_it_has_really_left_behind() -> None:
    untouched = mail_of(drilled(999), HUMAN, node())
    gone = mail_of(drilled().isolated().then(Outcome.TIMED_OUT, "no new boot id"), HUMAN, node())

    assert (untouched.severity, question(drilled()).severity, gone.severity) == ("INFO", "INFO", "PAGE")
    assert question(Story(xid(79))).severity == "PAGE"


def test_a_fault_that_nobody_injected_beside_a_drill_is_the_real_thing() -> None:
    mail = mail_of(drilled(999).reports(xid(999, event_id="real")), HUMAN, node())

    assert mail.subject.startswith("[nodeheal] needs a human")
    assert mail.severity == "PAGE"


def storm(*, injected: int, root: Story | None = None) -> Notification:
    """The page about three nodes that fail together. `injected`: how many of the other two faults were injected."""
    others = crowd(2)
    drills = tuple(replace(one, is_drill=number < injected) for number, one in enumerate(others))
    return waiting((root or drilled()).amid(observations=drills, pool_nodes=10), Awaited.BREAKER)


def test_the_page_of_a_storm_is_a_drill_only_if_every_fault_was_injected_and_it_names_the_nodes() -> None:
    drill, mixed, real = storm(injected=2), storm(injected=1), storm(injected=0, root=Story(xid(79)))
    opened = " breaker open: pool demo: 3 nodes of the pool fail together, "

    assert drill.subject.startswith(f"[nodeheal] drill:{opened}")
    assert mixed.subject.startswith(f"[nodeheal]{opened}")
    assert "\nDrill: every fault was injected. The open breaker is real.\n" in drill.body
    assert "Drill" not in mixed.body
    nodes = "(within 1 s: mi-00000000000000000, mi-00000000000000001, mi-0a1b2c3d4e5f60718"
    assert f"{nodes}; all are drills)" in drill.body
    assert f"{nodes}; 2 of 3 are drills)" in mixed.body
    assert f"{nodes})" in real.body
    assert {drill.severity, mixed.severity} == {"PAGE"}


def test_a_real_fault_that_finds_the_breaker_open_for_drills_is_a_page_of_its_own() -> None:
    opened = Pool("demo", breaker_opened_at=NOW, breaker_why="3 nodes fail together (mi-1, mi-2, mi-3; all are drills)")
    drill = waiting(drilled().amid(pool=opened), Awaited.BREAKER)
    real = waiting(Story(xid(79)).amid(pool=opened), Awaited.BREAKER)

    assert drill.subject.startswith("[nodeheal] drill: breaker open")
    assert real.subject.startswith("[nodeheal] breaker open")
    assert drill.key != real.key


# How the job is -------------------------------------------------------------------------------------------------------


def test_a_recovered_node_whose_job_another_incident_brings_back_is_not_told_as_a_job_that_runs() -> None:
    left = Refused(code=Refusal.LEFT_TO_INCIDENT, incident_id="inc-2")
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE).then(Outcome.REFUSED, facts=left)

    mail = compose(Situation(story.history, story.policy, job_is_down=True), story.next(), node())

    assert mail.subject.startswith("[nodeheal] recovered: mi-0a1b2c3d4e5f60718, llama still down: XID 79")


def test_a_broken_node_that_is_left_while_its_job_runs_again_says_where_it_runs() -> None:
    story = Story(xid(74)).isolated().swapped().passed().then(Outcome.DONE, "llama restarted")

    mail = mail_of(story, HUMAN, node(state=NodeState.QUARANTINED))

    assert mail.subject.startswith("[nodeheal] needs a human: mi-0a1b2c3d4e5f60718, llama runs again: XID 74")
    assert f"\nJob: llama, which runs again, with {SPARE} in place of mi-0a1b2c3d4e5f60718\n" in mail.body


def test_a_job_that_went_on_elsewhere_is_not_said_to_run_on_the_same_nodes() -> None:
    story = broken(free_nodes=2, recovery_seconds=took(400, 420, 500, 430, 410)).then(Outcome.DONE, "it moved")

    mail = mail_of(story, HUMAN, node(state=NodeState.QUARANTINED))

    assert "\nJob: llama, which runs again, on other nodes\n" in mail.body


def test_a_job_that_has_stopped_once_more_is_not_said_to_run() -> None:
    story = Story(xid(74)).isolated().swapped().passed().then(Outcome.DONE, "llama restarted")

    mail = compose(
        Situation(story.history, story.policy, job_is_down=True), story.next(), node(state=NodeState.QUARANTINED)
    )

    assert "runs again" not in mail.subject


def test_a_want_of_capacity_that_never_ended_says_what_was_tried_what_is_missing_and_how_the_job_runs_again() -> None:
    once = with_policy(capacity={"tries": 2})
    short = Refused(code=Refusal.NO_CAPACITY, missing="p5.48xlarge in subnet-1: InsufficientInstanceCapacity")
    story = Story(xid(74), policy=once).isolated().then(Outcome.REFUSED, "no machine is to be had", facts=short)
    story = story.then(Outcome.TIMED_OUT).then(Outcome.REFUSED, "no machine is to be had", facts=short)

    decided = story.next()
    mail = compose(Situation(story.history, once), decided, node(state=NodeState.QUARANTINED), READING)

    assert decided.escalation is Escalation.NO_CAPACITY
    assert ": no replacement could be had, tried 2 times; the broken node is held, isolated.\n\nNeeded:\n" in mail.body
    machine = "p5.48xlarge in subnet-1: InsufficientInstanceCapacity"
    assert f"\n1. free or buy a machine in place of mi-0a1b2c3d4e5f60718: {machine}.\n" in mail.body
    assert mail.body.count(machine) == 1
    assert "\n3. llama is stopped. Start it again, the way it was first started" in mail.body
    assert "\n  nodeheal nodes list demo" in mail.body
    assert "Tried" not in mail.body


# Who starts the job again ---------------------------------------------------------------------------------------------

SUBMITTED = ecs_job_of(spec(owner="Ada <ada@example.com>"), "training", "trainer:1", NOW)


def stopped(job: Job | None, story: Story | None = None, **more: Any) -> str:
    """What is needed where the job is down."""
    story = story or Story(xid(79)).isolated().rebooted().failed().then(Outcome.REFUSED, "no healthy spare")
    situation = Situation(story.history, story.policy, job=job, job_is_down=True, **more)
    mail = compose(situation, story.next(), node(state=NodeState.QUARANTINED), READING)
    return mail.body.partition("\n\nNode: ")[0]


GIVEN_UP = "\nIf it stays down:\n  nodeheal jobs stop llama --why ..."


def test_a_submitted_job_is_restarted_by_its_command_and_the_owner_is_said_to_know() -> None:
    told = stopped(SUBMITTED)

    assert "Ada <ada@example.com>, if subscribed, has been told that you do." in told
    assert told.endswith(f"\n  nodeheal nodes list demo\n  nodeheal jobs restart llama{GIVEN_UP}")
    assert "has been told" not in stopped(replace(SUBMITTED, owner=None))


def test_a_job_whose_program_fails_is_its_owners_and_without_one_the_log_is_named() -> None:
    ranks = tuple(GangTask(f"mi-{rank}", rank, "b", f"mi-{rank}", f"t{rank}", "STOPPED", rank) for rank in (0, 1))
    failed = Story(xid(31)).then(Outcome.FAILED, "rank 1 died")
    own: dict[str, Any] = {"story": failed, "run": Run("llama", 3, NOW, "", ranks)}

    theirs = (
        "Ada <ada@example.com> looks at the program, and starts it again. Tell its owner, unless this says that the "
        "owner gets emails:\n  nodeheal jobs show llama"
    )
    assert stopped(SUBMITTED, **own).endswith(theirs)
    assert stopped(replace(SUBMITTED, owner=None), **own).endswith(
        f"\n  nodeheal jobs logs llama --rank 1 --run 3\n  nodeheal jobs restart llama{GIVEN_UP}"
    )


# What is only observed ------------------------------------------------------------------------------------------------


def observed(policy: RecoveryPolicy = ACT, event: HealthEvent | None = None, pause: str = "") -> str:
    """The email of a fault that nodeheal must not act on."""
    it = FakeCluster(policy)
    if pause == "demo":
        pause_pool(pause, 3_600, "ada: cables", it.ports)
    elif pause:
        pause_node(pause, 3_600, "ada: cables", it.ports)
    it.reports(event or xid(79))
    [(_, mail)] = it.ports.notifier.announced  # type: ignore[attr-defined]
    assert mail.ending is Ending.OBSERVED_ONLY
    return str(mail.body)


SHOW, REBOOT = f"  nodeheal nodes show {BROKEN}", f"  nodeheal nodes reboot {BROKEN} --why ..."


def test_a_fault_in_a_pool_that_is_only_observed_asks_for_a_look_and_names_what_may_be_requested() -> None:
    body = observed(RecoveryPolicy())

    assert f"\n1. look at the node, for nobody acts on it:\n{SHOW}\n2. " in body
    assert f"ask for a reboot:\n{REBOOT}\n" in body
    assert "unpause" not in body


@pytest.mark.parametrize("pause", ["demo", BROKEN])
def test_a_pause_is_ended_before_anything_is_requested(pause: str) -> None:
    body = observed(pause=pause)

    assert f"\n2. to let nodeheal act again, end the pause:\n  nodeheal unpause {pause}\n3. " in body
    assert f"would have done after that, ask for a reboot:\n{REBOOT}\n" in body
    assert body.count("unpause") == 1


def test_a_diagnosis_that_a_pause_holds_back_is_no_reason_to_isolate_the_node() -> None:
    asked = requested(BROKEN, Action.ISOLATE, "ada: it is slow", FakeCluster().ports, kind=DIAGNOSE)

    body = observed(event=asked, pause="demo")

    assert "nodeheal unpause demo" in body
    assert "nodes isolate" not in body
    assert "in act mode" not in body


def test_a_node_that_operators_may_not_touch_either_is_only_looked_at() -> None:
    body = observed(with_policy(opted_out={BROKEN: "a customer's own"}))

    assert f"\n\nNeeded: look at the node, for nobody acts on it:\n{SHOW}\n\n" in body


def test_what_waits_for_the_jobs_end_is_requested_after_it() -> None:
    assert f"ask for a reboot, once its job has ended:\n{REBOOT}\n" in observed(RecoveryPolicy(), xid(63))


def test_a_fault_that_asks_for_nothing_needs_nothing() -> None:
    assert "\n\nNeeded: nothing; nodeheal has touched nothing.\n\n" in observed(event=xid(45))
