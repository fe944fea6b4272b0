"""The agent's loop: what the checks find becomes events, one each, whatever they have in common."""

import json
import logging
import math
import os
import tracemalloc
from dataclasses import replace

import psutil
import pytest

from nodeheal.agent.checks.check import NodeCheckResult, Problem
from nodeheal.agent.checks.check_ipc import ProcessAnswer
from nodeheal.agent.checks.check_scheduler import FIRST_LOOKS_WITHIN_SECONDS, LOOKS_TO_BE_OVER
from nodeheal.agent.checks.kernel_log import KernelLogCheck
from nodeheal.agent.identity.hardware_report import AGAIN_SECONDS, DAILY_SECONDS
from nodeheal.agent.runtime.eventfd_event import EventfdEvent
from nodeheal.agent.runtime.loop import FILE_POLL_SECONDS, KEEP_SECONDS
from nodeheal.agent.transport import fault_counts
from nodeheal.agent.transport.event import Accelerator
from nodeheal.agent.transport.spool import Spool
from nodeheal.contract.training import NodeTraining
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from tests.support.agent_fakes import NodeFolder, xid
from tests.support.agent_loop import CHECK, REMAP, Run

GPU = Accelerator(0, "0000:b9:00.0", "NVIDIA H100", rows_remapped=0, temperature_celsius=41.0)
XID_31 = Problem(Finding(Family.xid, "31", "0000:b9:00.0", "the driver says so"))


class QuietSender:
    """Notes what was on disk when it was started, and sends nothing."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.begun_with: dict[str, object] = {}

    def start(self) -> None:
        self.begun_with = self._spool.state()

    def wake(self) -> None:
        """It sleeps on."""

    def stop(self, _patience_seconds: float) -> None:
        """Nothing is under way."""


class OnceWaited(EventfdEvent):
    """Is set once it was waited for, and knows for how long."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.set()
        return True


@pytest.fixture
def run(node: NodeFolder) -> Run:
    return Run(node)


def test_two_problems_that_begin_and_end_together_are_two_beginnings_and_two_ends(run: Run) -> None:
    run.look(NodeCheckResult(tuple(REMAP)))
    begun = (run.told_of("a"), run.told_of("b"))

    run.look(NodeCheckResult(), LOOKS_TO_BE_OVER)

    assert begun == (1, 1)
    assert (run.told_of("a"), run.told_of("b")) == (2, 2)


def test_what_has_happened_twice_in_the_same_words_is_two_events(run: Run) -> None:
    run.look(NodeCheckResult(happened=(REMAP[0], REMAP[0])))

    assert run.told_of("a") == 2


def test_what_the_kernel_has_just_said_is_not_said_again_but_its_end_is(run: Run, node: NodeFolder) -> None:
    run.look(NodeCheckResult((XID_31,)))
    run.time.seconds += 60
    node.logs(xid(31))
    run.agent.step()
    before = len(run.told())
    run.looks.look = NodeCheckResult(happened=(XID_31,))
    run.agent._watch._courses["gpus"].due_at = run.time.seconds
    run.agent.step()
    repeated = len(run.told()) - before

    course = run.agent._watch._courses["gpus"]
    course.streaks, course.due_at, run.looks.look = dict.fromkeys(course.active, 1), run.time.seconds, NodeCheckResult()
    run.agent.step()

    assert repeated == 0
    assert sum("it is over" in detail for detail in run.told()) == 1


def test_names_that_are_no_text_are_told_all_the_same(run: Run) -> None:
    strange = replace(REMAP[0].finding, component="job-\udcff")

    run.look(NodeCheckResult((Problem(strange, "\udcff stands still"),)))

    assert run.told_of("job-_") == 1


def test_the_loop_waits_for_news_no_longer_than_until_something_is_due(run: Run) -> None:
    course = run.agent._watch._courses["gpus"]
    course.due_at = run.time.seconds + FILE_POLL_SECONDS / 2
    before = run.agent._patience_seconds()

    course.due_at = run.time.seconds + 1000.0
    for_a_file = run.agent._patience_seconds()
    run.looks.due_in_seconds = FILE_POLL_SECONDS / 4

    assert (before, for_a_file) == (FILE_POLL_SECONDS / 2, FILE_POLL_SECONDS)
    assert run.agent._patience_seconds() == FILE_POLL_SECONDS / 4


def test_in_a_storm_lines_are_let_gather(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.agent._sender = QuietSender(run.spool)  # type: ignore[assignment]
    monkeypatch.setattr(KernelLogCheck, "breath_seconds", 0.25)
    run.looks.descriptor, writer = os.pipe()
    stop = OnceWaited()

    run.agent.run(stop)

    assert stop.waited == [0.25]
    for descriptor in (run.looks.descriptor, writer):
        os.close(descriptor)


def test_an_agent_that_stops_has_kept_where_it_began_and_where_it_ends_and_lets_go(run: Run) -> None:
    sender = run.agent._sender = QuietSender(run.spool)  # type: ignore[assignment]
    run.looks.descriptor, writer = os.pipe()
    stop = EventfdEvent()
    stop.set()
    run.agent._watch._courses["gpus"].state = {"seen": 1}

    run.agent.run(stop)

    assert sender.begun_with == run.spool.state()
    assert '"seen": 1' in json.dumps(sender.begun_with)
    assert run.looks.is_closed
    assert run.agent._kernel_log._logs[0].cursor()["files"] == []
    for descriptor in (run.looks.descriptor, writer):
        os.close(descriptor)


def test_what_was_learnt_last_is_kept_at_the_stop(run: Run) -> None:
    run.agent._sender = QuietSender(run.spool)  # type: ignore[assignment]
    run.looks.descriptor, writer = os.pipe()
    stop = EventfdEvent()
    run.agent.step = lambda: learns()  # type: ignore[method-assign]

    def learns() -> bool:
        run.agent._watch._courses["gpus"].state = {"seen": 2}
        stop.set()
        return True

    run.agent.run(stop)

    assert '"seen": 2' in json.dumps(run.spool.state())
    for descriptor in (run.looks.descriptor, writer):
        os.close(descriptor)


def test_what_checks_remember_is_kept_now_and_then_also_where_nothing_is_found(run: Run) -> None:
    run.look(NodeCheckResult(state={"seen": 3}))

    run.time.seconds += KEEP_SECONDS
    run.agent.step()

    assert '"seen": 3' in json.dumps(run.spool.state())


def test_hardware_is_reported_once_a_boot_and_when_it_changes(run: Run) -> None:
    run.look(NodeCheckResult(accelerators=(GPU,)))
    run.look(NodeCheckResult(accelerators=(replace(GPU, temperature_celsius=80.0),)), 20)
    as_it_was = run.hardware()
    run.look(NodeCheckResult(accelerators=(replace(GPU, rows_remapped=1),)), 20)
    run.look(NodeCheckResult(), 20)

    assert as_it_was == [{"rows_remapped": 0, "temperature_celsius": 41.0}]
    assert run.hardware() == [*as_it_was, {"rows_remapped": 1, "temperature_celsius": 41.0}]


def test_a_link_that_comes_and_goes_is_reported_every_ten_minutes_at_most(run: Run) -> None:
    for number in range(20):
        run.look(NodeCheckResult(accelerators=(replace(GPU, rows_remapped=number),)))

    seconds = 20 * (CHECK.interval_seconds + FIRST_LOOKS_WITHIN_SECONDS)
    assert len(run.hardware()) == 1 + int(seconds // AGAIN_SECONDS)


def test_hardware_that_has_been_reported_is_not_reported_by_the_next_agent_of_the_boot(
    run: Run, node: NodeFolder
) -> None:
    run.look(NodeCheckResult(accelerators=(GPU,)))
    run.time.seconds += KEEP_SECONDS
    run.agent.step()
    next_run = Run(node)

    next_run.look(NodeCheckResult(accelerators=(GPU,)), 20)
    before = len(next_run.hardware())
    next_run.time.seconds += DAILY_SECONDS
    next_run.agent.step()

    assert (before, len(next_run.hardware())) == (1, 2)


def test_what_is_found_wakes_the_sender(run: Run) -> None:
    run.look(NodeCheckResult())
    run.agent._sender._news.clear()

    run.look(NodeCheckResult(tuple(REMAP)))

    assert run.agent._sender._news.is_set()


@pytest.mark.parametrize("years", [-30, 30])
def test_a_clock_that_is_set_neither_hurries_looks_nor_puts_them_off(run: Run, years: int) -> None:
    run.look(NodeCheckResult(), 3)
    before = run.looks.asked_ever
    run.time.set_by_seconds = years * 365 * 86_400.0
    for _ in range(50):
        run.agent.step()
    at_once = run.looks.asked_ever - before

    run.look(NodeCheckResult(tuple(REMAP)))
    run.look(NodeCheckResult(), LOOKS_TO_BE_OVER)

    assert (at_once, run.looks.asked_ever - before) == (0, 1 + LOOKS_TO_BE_OVER)
    assert (run.told_of("a"), run.told_of("b")) == (2, 2)


def test_a_full_disk_keeps_no_check_from_telling_and_is_said_once(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.look(NodeCheckResult())
    run.spool._database.execute("PRAGMA max_page_count = 1")  # SQLite raises this to what it has: the disk is full now

    run.look(NodeCheckResult(tuple(REMAP), state={"seen": "y" * 60_000}), 30)
    run.look(NodeCheckResult(), LOOKS_TO_BE_OVER)

    assert (run.told_of("a"), run.told_of("b")) == (2, 2)
    assert run.looks.asked_ever == 1 + 30 + LOOKS_TO_BE_OVER
    assert sum("events are kept in memory" in record.getMessage() for record in caplog.records) == 1


def test_thousands_of_looks_leave_nothing_behind_but_what_the_last_one_says(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        logging.getLogger("nodeheal.agent.checks.check_scheduler"), "disabled", True
    )  # pytest keeps every line

    def looks(count: int) -> int:
        for number in range(count):
            odd = Problem(replace(REMAP[0].finding, component=f"disk-{number % 50}"), "no room")
            look = NodeCheckResult(
                (odd,) * (number % 3), state={"seen": number}, unclear="no answer" * (number % 7 == 0)
            )
            run.agent._watch.ask(run.time.seconds, run.looks.ask)
            run.time.seconds += CHECK.interval_seconds
            run.agent._watch.take(ProcessAnswer("gpus", look), run.time.seconds, run.time.seconds)
        return len(json.dumps(run.agent._watch.dump())) // 1000

    run.time.seconds += FIRST_LOOKS_WITHIN_SECONDS
    looks(1_000)
    tracemalloc.start()
    descriptors, before = psutil.Process().num_fds(), tracemalloc.get_traced_memory()[0]

    sizes = {looks(1_000) for _ in range(9)}
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert psutil.Process().num_fds() == descriptors
    assert grown < 200_000
    assert max(sizes) - min(sizes) <= 1


def faults(run: Run) -> dict[tuple[str, str, str], float]:
    """How many faults are served, by code, component and training job."""
    found = [sample for sample in run.agent.samples() if sample.name == "faults_total"]
    assert all(sample.labels["family"] and sample.labels["verdict"] for sample in found)
    return {(at["code"], at["component"], at["training_job"]): one.value for one in found for at in [one.labels]}


def test_faults_are_counted_by_code_and_component_and_their_ends_are_not(run: Run, node: NodeFolder) -> None:
    run.look(NodeCheckResult(tuple(REMAP)))
    run.look(NodeCheckResult(), LOOKS_TO_BE_OVER)
    run.look(NodeCheckResult((REMAP[0],)))
    node.logs(xid(31))
    run.agent.step()

    counted = faults(run)
    assert (counted[("disk_full", "a", "")], counted[("disk_full", "b", "")]) == (2, 1)
    assert [value for (code, _, _), value in counted.items() if code == "31"] == [1]


def test_a_fault_counts_for_the_job_that_trains_on_the_node(run: Run) -> None:
    run.look(NodeCheckResult(gauges={"training_step_age_seconds:llama/3": 1.0}))
    run.look(NodeCheckResult((REMAP[0],), gauges={"training_step_age_seconds:llama/3": 1.0}))

    assert faults(run) == {("disk_full", "a", "llama"): 1}


def test_beyond_so_many_kinds_of_faults_their_details_are_left_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_counts, "MOST_KINDS", 1)
    run.look(NodeCheckResult(tuple(REMAP)))

    assert faults(run) == {("disk_full", "a", ""): 1, ("other", "", ""): 1}


def test_what_waits_in_the_spool_is_served(run: Run) -> None:
    run.look(NodeCheckResult((REMAP[0],)))

    found = {sample.name: sample.value for sample in run.agent.samples()}
    assert found["spool_events"] == len(run.spool.oldest(100)) > 0
    assert found["spool_bytes"] >= 4096
    assert found["spool_dropped_total"] == found["events_sent_total"] == 0


def test_each_standstill_of_a_run_is_an_event_of_its_own(run: Run) -> None:
    for _ in range(2):
        run.agent.report_alert(NodeTraining("llama/2", 7, idle_seconds=41.5))
        run.time.seconds += 100

    stalls = [event for event in map(json.loads, run.told()) if event["code"] == "training_alert"]
    assert [(event["family"], event["component"], event["verdict"]) for event in stalls] == [
        ("host", "llama/2", "DEGRADED")
    ] * 2
    assert stalls[0]["evidence"] == "llama/2 has taken no step after 7 for 42 s"
    run.agent.report_alert(NodeTraining("llama/2", 8, loss=math.nan))
    assert json.loads(run.told()[-1])["evidence"] == "the loss of llama/2 is not a number at step 8"
    assert len({event["event_id"] for event in stalls}) == 2


def test_a_fault_that_slows_the_node_is_known_while_it_lasts(run: Run) -> None:
    def gpu(code: str) -> Problem:
        return Problem(Finding(Family.nvml, code, "0000:b9:00.0", "it is slow"))

    faults = [run.agent.slowed_by()]
    for problems in ((REMAP[0],), (REMAP[0], gpu("THERMAL_SLOWDOWN"), gpu("CLOCKS_LOW"))):
        run.look(NodeCheckResult(problems))
        faults.append(run.agent.slowed_by())
    run.look(NodeCheckResult(), LOOKS_TO_BE_OVER)

    assert (faults, run.agent.slowed_by()) == ([None, None, "nvml/CLOCKS_LOW"], None)
