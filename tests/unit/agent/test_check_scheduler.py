"""What of the checks' answers is news: a beginning and an end, once each, whatever comes between."""

import logging
from dataclasses import replace

import pytest

from nodeheal.agent.checks.check import NodeCheck, NodeCheckResult, Problem, State, always
from nodeheal.agent.checks.check_ipc import ProcessAnswer
from nodeheal.agent.checks.check_scheduler import (
    ABSENT_SECONDS,
    FIRST_LOOKS_WITHIN_SECONDS,
    STREAM_PATIENCE_SECONDS,
    STREAMS_WITHIN_SECONDS,
    CheckChange,
    CheckScheduler,
    Key,
    key_of,
)
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.finding import Finding

FULL = Problem(Finding(Family.host, "disk_full", "/", "no room"), "df says so")
SKEW = Problem(Finding(Family.host, "clock_skew", None, "late"))
HANG = Finding(Family.host, "nvidia_smi_hang", None, "it hangs")
CHECK = NodeCheck("disk", "a test", 60.0, 5.0, always, lambda *_: NodeCheckResult())
FINE = NodeCheckResult()


class Node:
    """A watch of one check, and the looks that it has asked for."""

    def __init__(
        self, boot_id: str = "boot-1", saved: State | None = None, uptime: float = 1e6, **changes: object
    ) -> None:
        self.check = replace(CHECK, **changes)  # type: ignore[arg-type]
        self.watch = CheckScheduler([self.check.terms], boot_id, saved or {}, uptime, now=0.0)
        self.now = 0.0
        self.asked: list[State] = []

    def ask(self) -> None:
        self.watch.ask(self.now, lambda _, state: self.asked.append(state))

    def looks(self, look: NodeCheckResult | None = None, *, hung: bool = False, broke: str = "") -> list[CheckChange]:
        """Time passes until the check is asked; its answer, and what of it is news."""
        self.now += self.watch.due_in(self.now)
        self.ask()
        return self.watch.take(ProcessAnswer("disk", look, hung, broke), self.now, 1000.0 + self.now)


def test_a_problem_is_told_when_it_begins_and_not_again() -> None:
    node = Node()

    news = [node.looks(NodeCheckResult((FULL,))) for _ in range(3)]

    assert [[(one.problem, one.is_over) for one in each] for each in news] == [[(FULL, False)], [], []]


def test_it_is_over_when_it_has_stayed_away_and_what_comes_again_is_news() -> None:
    node = Node()

    news = [node.looks(look) for look in (NodeCheckResult((FULL,)), FINE, FINE, FINE, NodeCheckResult((FULL,)))]

    assert [[one.is_over for one in each] for each in news] == [[False], [], [True], [], [False]]
    assert news[2][0].since == news[0][0].since != news[4][0].since


BROKEN, UNCLEAR = NodeCheckResult((FULL,)), NodeCheckResult(unclear="no answer")


@pytest.mark.parametrize(
    ("confirm", "looks", "news"),
    [
        (1, [BROKEN, FINE] * 4, [1] + [0] * 7),  # one that comes and goes with every look is one problem
        (3, [BROKEN, FINE, BROKEN, BROKEN, BROKEN], [0, 0, 0, 0, 1]),
        (3, [BROKEN] * 3 + [FINE] * 3, [0, 0, 1, 0, 0, 1]),
        (3, [BROKEN] * 3 + [FINE] * 3 + [BROKEN] * 3, [0, 0, 1, 0, 0, 1, 0, 0, 1]),
        (2, [BROKEN, UNCLEAR, BROKEN], [0, 0, 1]),
    ],
)
def test_a_problem_begins_and_ends_at_the_look_that_confirms_it(
    confirm: int, looks: list[NodeCheckResult], news: list[int]
) -> None:
    node = Node(confirm=confirm)

    assert [len(node.looks(look)) for look in looks] == news


def test_a_problem_that_asks_for_more_looks_gets_them_and_the_others_do_not_wait() -> None:
    node = Node()
    seen = NodeCheckResult((FULL, replace(SKEW, confirm=2)))

    assert [[one.problem.finding for one in node.looks(seen)] for _ in range(3)] == [[FULL.finding], [SKEW.finding], []]


def test_two_problems_are_two_and_end_by_themselves() -> None:
    node = Node()
    node.looks(NodeCheckResult((FULL, SKEW)))

    node.looks(NodeCheckResult((SKEW,)))
    over = node.looks(NodeCheckResult((SKEW,)))

    assert [(one.problem.finding, one.is_over) for one in over] == [(FULL.finding, True)]


def test_a_look_that_cannot_tell_takes_nothing_back_and_complains_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.looks(NodeCheckResult((FULL,)))

    with caplog.at_level(logging.WARNING):
        news = [node.looks(NodeCheckResult(unclear="an unknown layout")) for _ in range(4)]

    assert news == [[], [], [], []]
    assert [record.getMessage() for record in caplog.records] == [
        "a check could not run to its end or gave no clear result"
    ]


def test_a_look_that_hangs_is_the_finding_that_the_check_names_for_it() -> None:
    node = Node(hang=HANG)
    node.looks(NodeCheckResult((FULL,)))

    hung = node.looks(hung=True)
    after = [node.looks(NodeCheckResult((FULL,))), node.looks(NodeCheckResult((FULL,)))]

    assert [(one.problem.finding, one.problem.evidence) for one in hung] == [(HANG, "no answer within 5 s")]
    assert [[(one.problem.finding, one.is_over) for one in each] for each in after] == [[], [(HANG, True)]]


def test_a_hang_that_means_nothing_by_itself_is_no_finding() -> None:
    node = Node()

    assert node.looks(hung=True) == []


def test_a_look_that_broke_says_nothing_about_the_node_and_loses_no_state() -> None:
    node = Node(hang=HANG)
    node.looks(NodeCheckResult(state={"before": 7}))

    news = node.looks(broke="a bug")
    node.looks(FINE)

    assert news == []
    assert node.asked == [{}, {"before": 7}, {"before": 7}]


def test_what_is_less_grave_than_the_check_reports_is_left_out() -> None:
    grave, all_of_it = Node(floor=Verdict.FAILED), Node(floor=Verdict.DEGRADED)
    look = NodeCheckResult((SKEW,), happened=(SKEW,))

    assert grave.looks(look) == []
    assert len(all_of_it.looks(look)) == 2


def test_what_has_happened_is_told_each_time() -> None:
    node = Node()

    assert [len(node.looks(NodeCheckResult(happened=(FULL,)))) for _ in range(2)] == [1, 1]


def test_a_restart_on_the_same_boot_tells_nothing_twice_and_still_tells_the_end() -> None:
    before = Node()
    [told] = before.looks(NodeCheckResult((FULL,), state={"count": 3}))

    after = Node(saved=before.watch.dump())
    news = [after.looks(look) for look in (NodeCheckResult((FULL,)), FINE, FINE)]

    assert after.asked[0] == {"count": 3}
    assert [[(one.is_over, one.since) for one in each] for each in news] == [[], [], [(True, told.since)]]


def test_what_is_still_wrong_after_a_reboot_is_told_again() -> None:
    before = Node()
    before.looks(NodeCheckResult((FULL,), state={"count": 3}))

    after = Node("boot-2", saved=before.watch.dump())

    assert len(after.looks(NodeCheckResult((FULL,)))) == 1
    assert after.asked == [{}]


def test_what_cannot_be_looked_at_now_is_tried_again_later_and_takes_nothing_back() -> None:
    node = Node()
    node.looks(NodeCheckResult((FULL,)))
    node.now += node.watch.due_in(node.now)
    node.ask()

    news = node.watch.take(ProcessAnswer("disk", absent="no driver"), node.now, 0.0)

    assert news == []
    assert node.watch.due_in(node.now) == ABSENT_SECONDS
    node.now += ABSENT_SECONDS
    assert node.looks(NodeCheckResult((FULL,))) == []


def test_a_node_that_is_still_coming_up_is_left_to_settle() -> None:
    fresh, old = Node(uptime=20.0, settle_seconds=120.0), Node(settle_seconds=120.0)

    assert 100.0 <= fresh.watch.due_in(0.0) <= 100.0 + FIRST_LOOKS_WITHIN_SECONDS
    assert old.watch.due_in(0.0) <= FIRST_LOOKS_WITHIN_SECONDS


def test_a_check_is_asked_again_an_interval_after_its_answer_and_never_twice_at_once() -> None:
    node = Node()
    node.now = FIRST_LOOKS_WITHIN_SECONDS
    node.ask()
    node.now += 1000.0
    node.ask()

    node.watch.take(ProcessAnswer("disk", FINE), node.now, 0.0)

    assert len(node.asked) == 1
    assert node.watch.due_in(node.now) == 60.0


def test_a_stream_goes_on_by_itself_and_is_begun_again_when_it_ends() -> None:
    node = Node(stream=lambda *_: iter(()))
    node.looks(FINE)
    node.now += 1000.0
    node.ask()
    went_on = len(node.asked)

    node.watch.take(ProcessAnswer("disk", hung=True), node.now, 0.0)
    node.now += 1000.0
    node.ask()

    assert (went_on, len(node.asked)) == (1, 2)


def test_what_is_no_longer_measured_is_no_gauge_any_more() -> None:
    node = Node()
    seen = []
    for look in (
        NodeCheckResult(gauges={"gpu_power_watts:0": 70.0, "gpu_power_watts:1": 71.0}),
        NodeCheckResult(gauges={"x": 1.0}),
        None,
    ):
        node.looks(look, hung=look is None)
        seen.append(node.watch.gauges())

    assert seen == [{"gpu_power_watts:0": 70.0, "gpu_power_watts:1": 71.0}, {"x": 1.0}, {}]


def test_a_check_that_this_node_no_longer_supports_measures_nothing() -> None:
    node = Node()
    node.looks(NodeCheckResult(gauges={"x": 1.0}))
    node.now += node.watch.due_in(node.now)
    node.ask()

    node.watch.take(ProcessAnswer("disk", absent="the driver was unloaded"), node.now, 1000.0)

    assert node.watch.gauges() == {}


@pytest.mark.parametrize(
    "known",
    [
        7,
        [],
        {"state": 7, "active": []},
        {"state": {}, "active": [{"finding": {"family": "host", "new_key": 1}, "since": 1.0}]},
        {"state": {}, "active": [{"finding": {"family": "unheard_of"}, "since": 1.0}]},
        {"state": {}, "active": [7]},
        {"state": {}},
    ],
)
def test_what_another_version_has_kept_and_nobody_understands_is_forgotten(known: object) -> None:
    node = Node(saved={"checks": {"boot_id": "boot-1", "courses": {"disk": known}}})

    assert len(node.looks(NodeCheckResult((FULL,)))) == 1
    assert Node(saved={"checks": {"boot_id": "boot-1", "courses": known}}).looks(FINE) == []


def test_a_clock_that_stands_before_the_boot_does_not_put_looks_off() -> None:
    node = Node(uptime=-1e9, settle_seconds=120.0)

    assert node.watch.due_in(0.0) <= 120.0 + FIRST_LOOKS_WITHIN_SECONDS


def test_what_is_not_due_is_not_asked_and_what_is_overdue_is_due_now() -> None:
    node = Node()
    node.now = -1.0

    node.ask()

    assert node.asked == []
    assert node.watch.due_in(1e6) == 0.0


def test_a_check_that_is_asked_is_not_due_whatever_the_time() -> None:
    node = Node()
    node.now = FIRST_LOOKS_WITHIN_SECONDS

    node.ask()

    assert node.watch.due_in(1e6) > 0.0


def test_a_stream_begins_when_every_other_check_has_looked_once() -> None:
    first = [Node(stream=lambda *_: iter(())).watch.due_in(0.0) for _ in range(50)]

    assert all(FIRST_LOOKS_WITHIN_SECONDS <= seconds <= STREAMS_WITHIN_SECONDS for seconds in first)
    assert len(set(first)) > 1  # a rack does not begin in step


def test_a_stream_that_has_ended_is_not_begun_again_at_once() -> None:
    node = Node(stream=lambda *_: iter(()), interval_seconds=1.0)

    node.looks(broke="it ended")

    assert node.watch.due_in(node.now) == pytest.approx(STREAM_PATIENCE_SECONDS)


def test_each_time_that_a_check_can_no_longer_tell_it_complains(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()

    with caplog.at_level(logging.WARNING):
        for look in (NodeCheckResult(unclear="why"), FINE, FINE, NodeCheckResult(unclear="why")):
            node.looks(look)

    assert len(caplog.records) == 2


def test_first_looks_are_spread_also_on_a_node_that_has_long_been_up() -> None:
    old, quick = Node(settle_seconds=120.0), Node(interval_seconds=0.01)

    assert old.watch._courses["disk"].due_at > 0.0
    assert quick.watch.due_in(0.0) <= 0.01


@pytest.mark.parametrize("kept", [7, [1], "x"])
def test_a_memory_of_another_shape_is_none(kept: object) -> None:
    node = Node(saved={"checks": kept})

    assert len(node.looks(NodeCheckResult((FULL,)))) == 1


def test_of_one_component_that_cannot_be_judged_nothing_is_taken_back_and_of_the_others_all() -> None:
    other = Problem(replace(FULL.finding, component="/var"), "df says so")
    node = Node()
    node.looks(NodeCheckResult((FULL, other)))

    news = [node.looks(NodeCheckResult(doubts={"/": "no answer"})) for _ in range(3)]

    assert [[one.problem.finding.component for one in each] for each in news] == [[], ["/var"], []]


def test_a_doubt_about_one_component_does_not_begin_its_confirmation_anew() -> None:
    node = Node(confirm=2)

    news = [
        len(node.looks(look))
        for look in (NodeCheckResult((FULL,)), NodeCheckResult(doubts={"/": "no answer"}), NodeCheckResult((FULL,)))
    ]

    assert news == [0, 0, 1]


def test_what_was_told_by_a_check_that_nobody_has_chosen_is_said_once_and_stays_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = Node()
    [told] = before.looks(NodeCheckResult((FULL,)))
    with caplog.at_level(logging.WARNING):
        without = CheckScheduler([], "boot-1", before.watch.dump(), 1e6, now=0.0)

    again = Node(saved=without.dump())
    news = [again.looks(FINE) for _ in range(2)]

    [said] = caplog.records
    assert (said.getMessage(), vars(said)["problems"]) == (
        "the configuration no longer selects a check; its open problems are no longer watched and stay open",
        "disk_full",
    )
    assert [[(one.is_over, one.since) for one in each] for each in news] == [[], [(True, told.since)]]


def test_what_a_check_that_nobody_has_chosen_has_not_told_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    before = Node()
    before.looks(FINE)

    without = CheckScheduler([], "boot-1", before.watch.dump(), 1e6, now=0.0)

    assert without.dump() == CheckScheduler([], "boot-1", {}, 1e6, now=0.0).dump()
    assert caplog.records == []


def test_what_was_told_and_can_no_longer_be_looked_at_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.looks(NodeCheckResult((FULL,)))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            node.now += node.watch.due_in(node.now)
            node.ask()
            node.watch.take(ProcessAnswer("disk", absent="the driver was unloaded"), node.now, 0.0)

    assert [vars(one)["why"] for one in caplog.records] == [
        "the driver was unloaded; the problems that the check has reported stay open"
    ]


def served(node: Node, name: str) -> dict[str, float]:
    """The samples of one name, by the values of their labels without the check's."""
    found = [sample for sample in node.watch.samples(node.now) if sample.name == name]
    return {"/".join(value for key, value in one.labels.items() if key != "check"): one.value for one in found}


@pytest.mark.parametrize(
    ("look", "hung", "verdict"),
    [
        (FINE, False, "OK"),
        (NodeCheckResult((FULL,)), False, "FAILED"),
        (NodeCheckResult(unclear="df does not answer"), False, "UNKNOWN"),
        (None, True, "UNKNOWN"),
    ],
)
def test_exactly_one_verdict_of_a_check_is_served_and_doubt_is_never_ok(
    look: NodeCheckResult | None, hung: bool, verdict: str
) -> None:
    node = Node()
    assert served(node, "check_verdict") == {}

    node.looks(look, hung=hung)

    verdicts = served(node, "check_verdict")
    assert set(verdicts) == {"OK", "DEGRADED", "UNKNOWN", "FAILED"}
    assert [name for name, value in verdicts.items() if value] == [verdict]


def test_the_age_of_an_answer_grows_and_its_duration_stays() -> None:
    node = Node()
    node.now += node.watch.due_in(node.now)
    node.ask()
    node.now += 3.0
    node.watch.take(ProcessAnswer("disk", FINE), node.now, 0.0)
    node.now += 40.0

    # The first look is due at a random moment, so the sums are rounded.
    assert served(node, "check_age_seconds") == {"": pytest.approx(40.0)}
    assert served(node, "check_duration_seconds") == {"": pytest.approx(3.0)}


def test_a_stream_has_an_age_and_no_duration() -> None:
    node = Node(stream=lambda *_: iter(()))
    node.looks(FINE)

    assert (served(node, "check_age_seconds"), served(node, "check_duration_seconds")) == ({"": 0.0}, {})


def test_a_check_that_this_node_no_longer_supports_has_no_verdict() -> None:
    node = Node()
    node.looks(NodeCheckResult((FULL,), called={"gpu:0": {"pci": "0000:10:00.0"}}))
    before = served(node, "gpu_info")
    node.now += node.watch.due_in(node.now)
    node.ask()
    node.watch.take(ProcessAnswer("disk", absent="the driver was unloaded"), node.now, 1000.0)

    assert before == {"0/0000:10:00.0": 1}
    assert (served(node, "check_verdict"), served(node, "gpu_info")) == ({}, {})


def test_a_problem_lasts_until_its_end_is_told() -> None:
    node, lasting = Node(), list[list[Key]]()

    for look in (NodeCheckResult((FULL,)), FINE, FINE):
        node.looks(look)
        lasting.append(node.watch.lasting())

    assert lasting == [[key_of(FULL.finding)], [key_of(FULL.finding)], []]
