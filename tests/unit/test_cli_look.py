"""One look at everything: status, tables that fit, names as people type them, contexts, and acts that tell first."""

import json
import os
import re
import sys
import termios
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from moto import mock_aws
from typer.testing import CliRunner

from nodeheal.adapters.aws import calls
from nodeheal.adapters.slurm.scheduler import OWN_TOOLS
from nodeheal.api import queries
from nodeheal.cli import complete, connect, node_acts, say
from nodeheal.cli.incidents import STATES
from nodeheal.cli.main import app
from nodeheal.cli.say import wrapped
from nodeheal.cli.status_view import as_lines
from nodeheal.cli.table import fitted
from nodeheal.cli.watch import Screen, drawn, press, typed
from nodeheal.contract import names
from nodeheal.contract.acts import Act, ActDone, RecoveryRequested
from nodeheal.contract.vocabulary import Action, Availability, JobState, NodeState, SchedulerKind, Trouble, Verdict
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.fleet.node import moved
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.fleet.pool import Census, RunningJobs
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.domain.records_epoch import Epoch
from nodeheal.domain.recovery.incident import short_id
from nodeheal.domain.review.review import StateWord
from nodeheal.services.operators import do_act
from nodeheal.services.operators.operator_guardrails import pause_pool, trip_breaker
from nodeheal.services.recovery.pool_size import note_running_jobs
from nodeheal.services.steps import save_node
from tests.support.acts import MemoryControlPlane, requested
from tests.support.builders import ACT, behave_as, node, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE, FakeCluster

RUN = CliRunner()
FREE = "mi-0ddddddddddddddddd"


class ActingCluster(MemoryControlPlane):
    """What is asked for by hand is walked to its end at once."""

    def __init__(self, it: FakeCluster) -> None:
        super().__init__(it.ports, it.policy)
        self._cluster = it

    def do(self, act: Act, key: str) -> ActDone:
        done = super().do(act, key)
        if isinstance(done, RecoveryRequested):
            self._cluster.walks(done.incident)
        return done


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A job on two nodes and a spare. What is asked for by hand is walked to its end at once."""
    it = FakeCluster(ACT.model_copy(update={"move_job_seconds": 120}))
    monkeypatch.setattr(connect, "ports", lambda table: it.ports)
    monkeypatch.setattr(connect, "policy", lambda: it.policy)
    monkeypatch.setattr(connect, "policy_copy", lambda table: it.policy)
    monkeypatch.setattr(connect, "control_plane", lambda: ActingCluster(it))
    monkeypatch.setattr(connect, "execution_url", lambda incident: f"https://console.example/{incident}")
    monkeypatch.setattr(connect, "job_execution_url", lambda job, number: f"https://console.example/{job}-{number}")
    return it


def run(*words: str, code: int = 0) -> str:
    answer = RUN.invoke(app, [*words])
    assert answer.exit_code == code, (answer.output, answer.exception)
    return answer.output


def handed_over(cluster: FakeCluster, evidence: str = "NVRM: Xid 79") -> str:
    cluster.diagnoses[BROKEN] = Verdict.FAILED
    cluster.reports(xid(79, node_id=BROKEN, instance_id=BROKEN, evidence=evidence))
    return cluster.incident_id


def test_what_a_drill_leaves_for_a_human_is_marked(cluster: FakeCluster) -> None:
    handed_over(cluster, f"NVRM: Xid 79 {names.DRILL_MARK}")

    assert "drill: XID 79" in run("status").partition("Waits for you")[2]


# The overview


def test_the_status_says_how_the_pools_stand_what_waits_and_which_jobs_there_are(cluster: FakeCluster) -> None:
    quiet = run("status")
    incident = handed_over(cluster)

    said = run("status")

    assert "Nothing waits for you." in quiet
    assert f"nodeheal incidents show {short_id(incident)}" in said.partition("Waits for you")[2]
    [pool] = [line.split() for line in said.splitlines() if line.startswith("demo")]
    assert pool[:11] == ["demo", "act", "3", "0", "2", "0", "0", "1", "0", "1", "of"]
    assert "1 QUARANTINED" in said


def good_of(cluster: FakeCluster, jobs: RunningJobs | None) -> list[str]:
    """The first lines of the status, on nodes of which one of three is broken."""
    for name in (BROKEN, PEER, SPARE):
        is_broken = name == BROKEN
        state = NodeState.QUARANTINED if is_broken else NodeState.HEALTHY
        cluster.ports.nodes.save(replace(cluster.node(name), accelerators=8, state=state))
    if jobs is not None:
        note_running_jobs("demo", jobs, cluster.ports)
    return run("status").partition("\n\n")[0].splitlines()


def test_the_status_says_in_one_number_how_good_the_fleet_is_and_which_part_pulls_it_down(
    cluster: FakeCluster,
) -> None:
    lines = good_of(cluster, RunningJobs(accelerators=16, as_usual=12, not_shown=4))
    data = json.loads(run("status", "--json"))["good"]

    assert lines == [
        "Fleet good: 50 %",
        "  66.6 % of accelerators are in service: 16 of 24",
        "  75 % of those of running jobs train as usual: 12 of 16, 4 of them without steps",
    ]
    assert data == {
        "percent": 50.0,
        "in_service": 66.6,
        "as_usual": 75.0,
        "accelerators": 24,
        "accelerators_in_service": 16,
        "accelerators_of_jobs": 16,
        "accelerators_as_usual": 12,
        "accelerators_not_shown": 4,
    }


@pytest.mark.parametrize(
    ("jobs", "head", "line"),
    [
        (RunningJobs(), "Fleet good: 66.6 %", "  no running job takes accelerators"),
        (None, "Fleet good: ?", "  how jobs train: not known, since nobody has looked for ten minutes"),
    ],
)
def test_without_running_jobs_or_a_look_at_them_the_status_says_so(
    cluster: FakeCluster, jobs: RunningJobs | None, head: str, line: str
) -> None:
    lines = good_of(cluster, jobs)

    assert (lines[0], lines[2]) == (head, line)


def test_the_status_reads_nothing_of_a_job_to_say_how_good_the_fleet_is(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for store, read in ((cluster.ports.job_findings, "of"), (cluster.ports.jobs, "get_run")):
        monkeypatch.setattr(store, read, lambda *_: pytest.fail("a job was read"))

    assert good_of(cluster, RunningJobs(accelerators=16, as_usual=16))[0] == "Fleet good: 66.6 %"


def test_the_status_sums_up_the_last_day(cluster: FakeCluster) -> None:
    quiet = run("status")
    handed_over(cluster)

    said, data = run("status"), json.loads(run("status", "--json"))
    cluster.clock.advance(25 * 3_600)
    later = run("status")

    assert "Last 24 hours: no incident has ended." in quiet
    [line] = [line for line in said.splitlines() if line.startswith("Last 24 hours: ")]
    lost = data["last_24_hours"]["lost_accelerator_hours"]
    assert (
        line == f"Last 24 hours: 1 handed over, {lost:.1f} accelerator-hours lost (nodeheal incidents list --since 1d)"
    )
    assert data["last_24_hours"]["ended"] == {"handed over": 1}
    assert "Last 24 hours: no incident has ended." in later


def test_a_node_whose_incident_waits_for_an_approval_is_suspect_and_says_what_it_waits_for(
    cluster: FakeCluster,
) -> None:
    policy = ACT.pool("demo").model_copy(update={"modes": {Action.REBOOT: Mode.approve}})
    cluster.policy = ACT.model_copy(update={"default_pool": policy})
    shown: list[str] = []
    cluster.on_question = lambda _: shown.extend(
        [run("nodes", "list"), run("nodes", "list", "--json"), run("status"), run("incidents", "list", "--json")]
    )

    cluster.reports(xid(79, node_id=BROKEN, instance_id=BROKEN))

    nodes, data, status, incidents = shown
    [line] = [line for line in nodes.splitlines() if line.startswith(BROKEN)]
    [row] = [row for row in json.loads(data) if row["node"] == BROKEN]
    [pool] = [line.split() for line in status.splitlines() if line.startswith("demo")]
    [incident] = json.loads(incidents)
    since = f"{cluster.clock():%Y-%m-%d}"
    assert line.split()[2] == "SUSPECT"
    assert f"XID 79 (GPU has fallen off the bus); waits: approval, since {since}" in line
    assert (row["state"], row["availability"]) == ("HEALTHY", "SUSPECT")
    assert pool[:8] == ["demo", "act", "3", "1", "1", "1", "0", "0"]
    assert (incident["word"], incident["waits_for"]) == ("waiting", "APPROVAL")
    assert "waits: approval" in status.partition("Under way")[2]


def test_a_drain_is_draining_and_then_drained_by_whom_and_why(cluster: FakeCluster) -> None:
    shown: list[str] = []
    ends = cluster.on_wait

    def look() -> object:
        shown.append(run("nodes", "list", "--json"))
        return ends()

    cluster.on_wait = look
    request = requested(BROKEN, Action.ISOLATE, "ada: new cables", cluster.ports, kind=names.DRAIN)

    cluster.reports(request)

    [waiting] = [row for row in json.loads(shown[0]) if row["node"] == BROKEN]
    [ended] = [row for row in json.loads(run("nodes", "list", "--json")) if row["node"] == BROKEN]
    assert (waiting["availability"], waiting["held"]) == ("DRAINING", "ada: new cables; waits: job end")
    assert (ended["availability"], ended["held"]) == ("DRAINED", "ada: new cables")


def test_every_word_of_the_incidents_lists_can_be_asked_for() -> None:
    assert list(STATES) == [word.value for word in StateWord]


def test_more_slots_while_a_node_is_quarantined_are_explained_in_one_line(cluster: FakeCluster) -> None:
    budget = {"max_nodes": 1, "max_percent": 100, "quarantine_percent": 50}
    cluster.policy = RecoveryPolicy.model_validate(
        {**ACT.model_dump(), "default_pool": {"mode": "act", "budget": budget}}
    )
    quiet = run("pools", "list")
    handed_over(cluster)
    data = json.loads(run("pools", "list", "--json"))[0]

    screens = [run("status"), run("pools", "list")]

    assert "1 of 1+1" not in quiet
    assert "BUDGET: " not in quiet
    assert [data[key] for key in ("slots_held", "slots", "extra")] == [1, 2, 1]
    assert all("  1 of 1+1  " in said and said.count("BUDGET: ") == 1 for said in screens)


def test_the_status_for_programs_has_the_same_and_yaml_is_json_in_another_form(cluster: FakeCluster) -> None:
    incident = handed_over(cluster)

    told = json.loads(run("status", "--json"))

    assert yaml.safe_load(run("status", "-o", "yaml")) == told
    assert [one["incident"] for one in told["handed_over"]] == [incident]
    assert told["pools"][0]["nodes"] == {"HEALTHY": 2, "QUARANTINED": 1}
    assert [told["pools"][0][key] for key in ("slots_held", "slots", "extra")] == [1, 1, 0]


def test_a_question_an_open_breaker_and_a_pause_are_shown_with_what_to_do(cluster: FakeCluster) -> None:
    policy = ACT.pool("demo").model_copy(update={"modes": {Action.REBOOT: Mode.approve}})
    cluster.policy = RecoveryPolicy.model_validate({**ACT.model_dump(), "default_pool": policy.model_dump(mode="json")})
    shown: list[str] = []
    cluster.on_question = lambda _: shown.extend(
        [run("status"), run("incidents", "show", "latest"), run("incidents", "show", "latest", "--json")]
    )
    pool = cluster.ports.pools.get("demo")
    cluster.ports.pools.save(pool.tripped("9 of 10 nodes failed", cluster.clock()))
    tripped = run("status")
    cluster.ports.pools.save(cluster.ports.pools.get("demo").reset("ada: well", cluster.clock()))
    pause_ends = f"{cluster.clock() + timedelta(seconds=600):%Y-%m-%d %H:%M:%S} UTC"
    pause_pool("demo", 600, "ada: a rack moves", cluster.ports)
    paused = run("pools", "list")
    assert json.loads(run("pools", "list", "--json"))[0]["paused_why"] == "ada: a rack moves"
    pause_pool("demo", 0, "ada: moved", cluster.ports)

    cluster.reports(xid(79, node_id=BROKEN, instance_id=BROKEN))

    assert "nodeheal breaker reset demo" in tripped
    assert "9 of 10 nodes failed" in tripped
    assert "open" in next(line for line in tripped.splitlines() if line.startswith("demo ")).split()
    assert f"paused until {pause_ends} (ada: a rack moves)" in paused
    status, story, data = shown
    short, until = short_id(cluster.incident_id), json.loads(data)["asked"]["deadline_at"]
    assert f"answer it by {until[:10]} {until[11:19]} UTC: nodeheal approve {short} --why" in status
    assert f"\nAnswer by   {until[:10]} {until[11:19]} UTC; silence is no" in story
    assert f"\nIf yes      {BROKEN} is isolated, then rebooted" in story
    assert f"\nIf no       {BROKEN} stays in service" in story
    assert story.count("One reboot brings most of these GPUs back") == 1
    assert f"\nApprove     nodeheal approve {short} --why …\nRefuse      nodeheal refuse {short} --why …\n" in story
    assert "Answer by" not in run("incidents", "show", "latest")


def test_the_status_says_first_that_the_records_went_back(cluster: FakeCluster) -> None:
    before = json.loads(run("status", "--json"))["records_lost_since"]
    now = cluster.ports.clock()
    cluster.ports.epoch.renew(Epoch(), now - timedelta(hours=1))
    cluster.ports.epoch.outside = now  # type: ignore[attr-defined]  # the table was restored to an hour ago

    first, command, *_ = run("status").splitlines()

    since = now - timedelta(hours=1)
    assert first.endswith(f"knows nothing of what was done since {since:%Y-%m-%d %H:%M:%S} UTC.")
    assert command == "  nodeheal reconcile --dry-run"
    assert before is None
    assert json.loads(run("status", "--json"))["records_lost_since"] == since.isoformat(timespec="seconds")


@pytest.mark.parametrize(
    "act", ["nodes reboot {node} --yes", "nodes release {node} --yes", "approve latest", "incidents close latest"]
)
def test_nothing_is_asked_for_while_the_records_went_back(cluster: FakeCluster, act: str) -> None:
    handed_over(cluster)
    cluster.ports.epoch.renew(Epoch(), cluster.ports.clock() - timedelta(hours=1))
    cluster.ports.epoch.outside = cluster.ports.clock()  # type: ignore[attr-defined]  # the table was restored
    before = len(cluster.walked)

    told = " ".join(run(*act.format(node=BROKEN).split(), "--why", "it smells", code=1).split())

    assert "the records went back to" in told
    assert "nodeheal does nothing before `nodeheal reconcile`" in told
    assert len(cluster.walked) == before


def test_without_a_pool_the_status_says_where_to_look(cluster: FakeCluster) -> None:
    view = queries.fleet([], cluster.ports, cluster.policy)

    assert as_lines(view, 80) == [
        "No pool yet: no node has reported. `nodeheal doctor` says whether anything is missing."
    ]


def test_every_pool_is_listed_and_nodes_are_listed_with_and_without_their_pool(cluster: FakeCluster) -> None:
    cluster.ports.nodes.save(node("mi-other", pool="other"))

    assert [line.split()[0] for line in run("pools", "list").splitlines()] == ["POOL", "demo", "other"]
    assert {row["pool"] for row in json.loads(run("nodes", "list", "--json"))} == {"demo", "other"}
    assert "4 nodes: 2 BUSY, 2 FREE" in run("nodes", "list")
    assert run("nodes", "list", "other").splitlines()[1].split()[:5] == ["mi-other", "FREE", "-", "-", "-"]
    assert "1 node: 1 FREE" in run("nodes", "list", "other")


def test_of_a_large_pool_the_screens_say_when_it_was_counted(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeheal.services.recovery.pool_size.LARGE_POOL", 2)
    before = [run("status"), run("pools", "list")]
    census = Census({NodeState.HEALTHY: 90_000, NodeState.RETIRED: 7}, {Availability.FREE: 80_000}, 5)
    counted = replace(cluster.ports.pools.get("demo"), census=census, counted_at=cluster.clock())
    cluster.ports.pools.save(counted)
    cluster.clock.advance(40)

    after = [run("status"), run("pools", "list")]

    for screens, cells, note in (
        (before, ["-", "-", "-", "-", "-", "-", "-", "0", "of", "?"], "not counted yet"),
        (after, ["90000", "80000", "0", "0", "0", "0", "5", "0", "of"], "counted 40s ago"),
    ):
        for said in screens:
            [line] = [line for line in said.splitlines() if line.startswith("demo ")]
            assert line.split()[2 : 2 + len(cells)] == cells
            assert note in said


def test_a_node_that_sends_no_heartbeats_any_more_is_marked(cluster: FakeCluster) -> None:
    for name, ago in ((PEER, 60), (SPARE, 360)):
        beat = Heartbeat(f"role:{name}", "boot-1", cluster.clock() - timedelta(seconds=ago), 60.0)
        cluster.ports.heartbeats.beats[beat.who] = beat  # type: ignore[attr-defined]

    said = {line.split()[0]: line for line in run("nodes", "list", "demo").splitlines()}

    assert "(silent)" in said[SPARE]
    assert "(silent)" not in said[PEER] + said[BROKEN]


def test_watch_needs_a_terminal(cluster: FakeCluster) -> None:
    assert "--watch: it needs a terminal" in run("status", "--watch", code=2)
    assert "--watch: not with --json" in run("status", "--watch", "--json", code=2)


def test_keys_choose_an_incident_show_it_and_answer_it(cluster: FakeCluster) -> None:
    first = handed_over(cluster)
    cluster.clock.advance(90_000)
    cluster.reports(xid(999, node_id=PEER, instance_id=PEER, event_id="later", observed_at=cluster.clock()))
    screen = Screen(queries.fleet(["demo"], cluster.ports, cluster.policy))
    second = cluster.incident_id

    down, _ = press(screen, "j")
    again, _ = press(down, "j")

    assert (screen.incident.incident, down.incident.incident) == (second, first)  # type: ignore[union-attr]
    assert again.chosen == down.chosen == 1
    assert [press(down, key)[1] for key in ("\r", "a", "r", "l", "q", "x")] == [
        "show",
        "approve",
        "refuse",
        "log",
        "quit",
        "",
    ]
    assert any(line.startswith("\x1b[7m" + short_id(first)) for line in drawn(down, 100, 40))
    assert len(drawn(down, 100, 12)) == 11
    assert "more lines" in "\n".join(drawn(down, 100, 12))


@pytest.mark.parametrize(
    ("line", "why"), [("the job\tis done", "the job is done"), ("", ""), ("  ", ""), ("rk\x1b", ""), (EOFError, "")]
)
def test_what_is_typed_is_a_reason_and_nothing_or_escape_goes_back(
    monkeypatch: pytest.MonkeyPatch, line: Any, why: str
) -> None:
    def typed_line(question: str) -> str:
        if line is EOFError:
            raise EOFError
        return str(line)

    flushed: list[int] = []
    monkeypatch.setattr("termios.tcflush", lambda stream, queue: flushed.append(queue))
    monkeypatch.setattr("builtins.input", typed_line)

    assert typed("why? ") == why
    assert flushed == [termios.TCIFLUSH]  # keys from before the question are no answer


def test_a_story_is_scrolled_and_left(cluster: FakeCluster) -> None:
    view = queries.fleet(["demo"], cluster.ports, cluster.policy)
    screen = Screen(view, story=("one", "two", "three"))

    down, act = press(screen, "j")

    assert (drawn(down, 80, 24)[0], act) == ("two", "")
    assert press(down, "a") == (down, "")
    assert press(down, "q") == (Screen(view), "")


# Tables

ROWS = [
    ("NODE", "STATE", "WHY"),
    ("mi-0a1b2c3d4e5f60718", "QUARANTINED", "the GPU has fallen off the bus and the reboot did not help it"),
    ("mi-0bbbbbbbbbbbbbbbb", "HEALTHY", "-"),
]


def bare(lines: list[str]) -> list[str]:
    return [re.sub(r"\x1b\[\d+m", "", line) for line in lines]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_table_fits_the_terminal_and_loses_no_word_of_the_reason(width: int) -> None:
    lines = bare(fitted(ROWS, width))

    assert max(map(len, lines)) <= width
    assert ROWS[1][2].replace(" ", "") in "".join(lines).replace(" ", "").replace(ROWS[1][1], "").replace("…", "")


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("State       a b c d", ["State       a b c d"]),
        ("Reason      it has fallen off", ["Reason      it has", "       fallen off"]),
        ("see https://a.example/very/long/address", ["see", "  https://a.example/very/long/address"]),
    ],
)
def test_a_long_line_is_wrapped_below_its_label_and_no_address_is_broken(line: str, parts: list[str]) -> None:
    assert wrapped(line, 22) == parts
    assert wrapped(line, 0) == [line]


def test_a_list_is_read_in_parts(cluster: FakeCluster) -> None:
    whole = json.loads(run("nodes", "list", "--json"))
    first = json.loads(run("nodes", "list", "--json", "--limit", "1"))
    said = run("nodes", "list", "--limit", "1")

    rest = json.loads(run("nodes", "list", "--json", "--after", first["next"]))

    assert [*first["rows"], *rest["rows"]] == whole
    assert (len(first["rows"]), rest["next"]) == (1, None)
    assert said.endswith(f"There are more: the same command with --after {first['next']}\n")
    assert "There are more" not in run("nodes", "list")


@pytest.mark.parametrize("kind", ["nodes", "incidents", "jobs"])
def test_a_cursor_that_is_none_is_named(cluster: FakeCluster, kind: str) -> None:
    assert run(kind, "list", "--after", "mi-1", code=1) == (
        f"'mi-1' is no cursor of this list of {kind}; give that of the page before\n"
    )


def test_a_terminal_shows_the_first_rows_and_what_goes_elsewhere_is_whole(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(say, "ON_A_TERMINAL", 1)
    piped = run("nodes", "list")
    monkeypatch.setattr(sys, "stdout", Terminal())
    pages = [say.page_of(None, "", form) for form in (None, say.Form.wide, say.Form.json, say.Form.yaml)]

    assert "There are more" not in piped
    assert [page.limit for page in pages] == [1, 1, None, None]
    assert say.page_of(7, "", None).limit == 7


def test_without_a_terminal_a_table_is_never_cut_and_has_no_colour() -> None:
    assert fitted(ROWS, None)[1] == "  ".join([*ROWS[1]])


def test_states_have_a_colour_unless_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = "\n".join(fitted(ROWS, 100))
    monkeypatch.setenv("NO_COLOR", "1")

    assert "\x1b[31mQUARANTINED\x1b[0m" in coloured
    assert "\x1b[32mHEALTHY\x1b[0m" in coloured
    assert "\x1b" not in "".join(fitted(ROWS, 100))


def test_ids_are_cut_last_for_they_are_typed_again() -> None:
    job = "pretrain-of-the-large-model-2026"
    head, line, *_ = bare(fitted([("NODE", "JOB", "WHY"), ("mi-0a1b2c3d4e5f60718", job, "it is slow")], 40))

    assert (len(head) <= 40, line.split()[0]) == (True, "mi-0a1b2c3d4e5f60718")
    assert job not in line


def test_columns_that_cannot_fit_are_cut_with_a_mark() -> None:
    lines = bare(fitted([("A" * 50, "B" * 50, "why")], 40))

    assert max(map(len, lines)) <= 40
    assert "…" in lines[0]


# Names


def test_an_incident_is_found_by_its_end_its_beginning_and_as_the_latest(cluster: FakeCluster) -> None:
    incident = handed_over(cluster)

    for name in (incident, incident[:20], short_id(incident), short_id(incident)[:4], "latest"):
        assert json.loads(run("incidents", "show", name, "--json"))["incident_id"] == incident


def test_a_name_that_fits_several_or_none_is_refused_with_what_there_is(cluster: FakeCluster) -> None:
    handed_over(cluster)
    cluster.reports(xid(999, node_id=PEER, instance_id=PEER, event_id="later"))

    several = run("incidents", "show", "inc-2026", code=1)
    none = run("incidents", "show", "ffffffffff", code=1)

    assert "may be any of inc-" in several
    assert "no incident ffffffffff is known" in none
    assert run("incidents", "show", "in", code=1)


def test_a_node_is_shown_by_its_beginning_and_acted_on_by_its_whole_name_only(cluster: FakeCluster) -> None:
    assert json.loads(run("nodes", "show", BROKEN[:8], "--json"))["node"] == BROKEN
    assert "may be any of" in run("nodes", "show", "mi-0", code=1)

    run("nodes", "reboot", BROKEN[:8], "--why", "x", code=1)
    assert cluster.commands == []


def test_of_the_nodes_that_a_beginning_fits_a_few_are_named(cluster: FakeCluster) -> None:
    for number in range(8):
        cluster.ports.nodes.save(node(f"i-0abc{number}", pool="other"))

    several = run("nodes", "show", "i-0a", code=1)
    whole = run("nodes", "reboot", "i-0a", "--why", "x", code=1)

    assert "i-0a may be any of i-0abc0, i-0abc1, i-0abc2, i-0abc3, i-0abc4 and more: give more of it" in several
    assert "an act takes the whole id: i-0abc0, i-0abc1, i-0abc2, i-0abc3, i-0abc4" in whole


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("nodes", "show", "mi-0b"), [PEER]),
        (("nodes", "list", "d"), ["demo"]),
        (("pause", "de"), ["demo"]),
        (("jobs", "show", "l"), ["llama"]),
        (("incidents", "show", "la"), ["latest"]),
        (("incidents", "list", "d"), ["demo"]),
    ],
)
def test_the_shell_completes_what_there_is(cluster: FakeCluster, words: tuple[str, ...], completed: list[str]) -> None:
    handed_over(cluster)
    given = {"_NODEHEAL_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(("nodeheal", *words))}

    said = RUN.invoke(app, [], env={**given, "COMP_CWORD": str(len(words))}, prog_name="nodeheal")

    assert said.output.split() == completed


def test_where_aws_cannot_be_asked_nothing_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(table: str) -> Any:
        raise ValueError("no network")

    monkeypatch.setattr(connect, "ports", fail)

    assert complete.targets("") == complete.jobs("") == complete.incidents("") == []


# Contexts


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    file = tmp_path / "nodeheal" / "config.yaml"
    monkeypatch.setenv("NODEHEAL_CONFIG", str(file))
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "NODEHEAL_TABLE", "NODEHEAL_ACCOUNT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return file


def test_the_current_context_gives_what_the_environment_does_not(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str | None, str]] = []
    monkeypatch.setattr(connect, "ports", lambda table: seen.append((table, os.environ["AWS_REGION"])))
    run("contexts", "set", "prod", "--region", "eu-central-1", "--table", "healing")
    run("contexts", "set", "lab", "--region", "us-east-1", "--account", "111122223333")

    RUN.invoke(app, ["pools", "list"])
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("NODEHEAL_TABLE")
    RUN.invoke(app, ["--context", "lab", "pools", "list"])
    RUN.invoke(app, ["pools", "list"], env={"AWS_REGION": "ap-south-1", "NODEHEAL_TABLE": "mine"})

    assert seen == [("healing", "eu-central-1"), ("nodeheal", "us-east-1"), ("mine", "ap-south-1")]
    assert [line.split()[:2] for line in run("contexts", "list").splitlines()[1:]] == [["lab", "-"], ["*", "prod"]]


def test_a_context_is_used_and_forgotten(config: Path) -> None:
    for name in ("one", "two"):
        run("contexts", "set", name, "--region", "eu-central-1")

    run("contexts", "use", "two")
    run("contexts", "delete", "one")

    assert "current: two" in config.read_text("utf-8")
    assert "one" not in config.read_text("utf-8")
    assert "no context one" in run("contexts", "use", "one", code=2)
    assert "no context three" in run("--context", "three", "pools", "list", code=2)


def test_the_deployed_policy_is_that_of_the_context(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def policy() -> RecoveryPolicy:
        seen.append(os.environ["AWS_DEFAULT_REGION"])
        return RecoveryPolicy()

    monkeypatch.setattr(connect, "policy", policy)
    run("contexts", "set", "prod", "--region", "eu-central-1")
    run("contexts", "set", "lab", "--region", "us-west-2")

    run("explain", "xid", "79", "--deployed")
    monkeypatch.delenv("AWS_REGION")
    run("--context", "lab", "explain", "xid", "79", "--deployed")

    assert seen == ["eu-central-1", "us-west-2"]


def test_a_file_that_cannot_be_read_stops_no_command_that_asks_no_account(config: Path) -> None:
    config.parent.mkdir()
    config.write_text("contexts: [")

    assert "GPU has fallen off the bus" in run("explain", "xid", "79")


@pytest.mark.parametrize("text", ["current: [", "contexts: {a: {regoin: x}}", "contexts: {a: {account: '12'}}"])
def test_a_file_that_cannot_be_read_is_refused_by_its_name(config: Path, text: str) -> None:
    config.parent.mkdir()
    config.write_text(text)

    assert str(config) in run("pools", "list", code=2)


def test_with_credentials_of_another_account_nothing_is_asked(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Sts:
        def get_caller_identity(self) -> dict[str, str]:
            return {"Account": "999988887777"}

    monkeypatch.setattr(connect, "client", lambda service: Sts())
    run("contexts", "set", "lab", "--account", "111122223333")

    for words in (["pools", "list"], ["policy", "show"], ["explain", "xid", "79", "--deployed"]):
        said = run(*words, code=1)

        assert "these credentials are for account 999988887777, and the context is for 111122223333" in said


@pytest.mark.parametrize(
    ("words", "missing"),
    [(["pools", "list"], names.TABLE), (["nodes", "list", "--table", "helaing"], "helaing")],
)
def test_a_table_that_is_not_there_is_named(config: Path, words: list[str], missing: str) -> None:
    run("contexts", "set", "here", "--region", "eu-west-1")
    with mock_aws():
        calls.client.cache_clear()  # a client keeps the credentials of its beginning
        said = copy_context().run(run, *words, code=1)
        calls.client.cache_clear()

    assert said.startswith(f"deployment: there is no table {missing} in eu-west-1; look at your account")


# Acts


def test_a_dry_run_says_whose_work_stops_and_what_it_spends_and_asks_for_nothing(cluster: FakeCluster) -> None:
    said = run("nodes", "reboot", BROKEN, "--dry-run")

    assert "both ranks of job llama stop; it starts again; 1 node of the pool is free" in said
    assert "0 of 1 slots are taken" in said
    assert "spends  1 reboot; this node has 1 left" in said
    assert said.endswith("dry run: nothing was asked for\n")
    assert (cluster.commands, cluster.heard["fault"]) == ([], 0)


def test_the_preview_of_a_replacement_names_the_node_and_the_pool_afterwards(cluster: FakeCluster) -> None:
    save_node(cluster.ports, cluster.node(SPARE), is_spare=False)
    free = run("nodes", "replace", BROKEN, "--dry-run")
    save_node(cluster.ports, cluster.node(SPARE), is_spare=True)

    kept = run("nodes", "replace", BROKEN, "--dry-run")

    assert f"then    {SPARE} (a free node, not kept as a spare) takes its place" in free
    assert f"then    {SPARE} (kept as a spare) takes its place" in kept
    assert "Until then 2 nodes of pool demo can serve, of 3" in kept


@pytest.mark.parametrize("mode", [Mode.approve, Mode.observe])
def test_an_act_by_hand_says_that_nobody_is_asked_whatever_the_pools_mode_is(cluster: FakeCluster, mode: Mode) -> None:
    acting = run("nodes", "reboot", BROKEN, "--dry-run")
    cluster.policy = ACT.model_copy(update={"default_pool": ACT.pool("demo").model_copy(update={"mode": mode})})

    said = run("nodes", "reboot", BROKEN, "--dry-run")

    assert "asks    " not in acting
    assert f"asks    nobody: you decide, though pool demo is in mode {mode} by itself" in said


def test_a_drain_says_that_the_job_ends_first_and_is_not_started_again(cluster: FakeCluster) -> None:
    said = run("nodes", "drain", BROKEN, "--dry-run")

    waits = "job llama ends first; until then the node gets no new work"
    assert f"work    {waits}; where its program fails meanwhile, it is not started again by itself\n" in said


def test_where_no_node_is_free_those_on_probation_are_named(cluster: FakeCluster) -> None:
    later = cluster.clock() + timedelta(hours=1)
    save_node(cluster.ports, cluster.node(SPARE), state=NodeState.PROBATION, probation_until=later)

    said = run("nodes", "isolate", BROKEN, "--dry-run")

    proves = f"`nodeheal nodes diagnose {SPARE} --why …` proves one now"
    assert f"no other node is free now (1 on probation: {proves}), so it may stay" in said
    assert f"until `nodeheal nodes release {BROKEN} --why …` or `nodeheal nodes retire {BROKEN} --why …`\n" in said


def test_what_would_end_without_what_it_asks_for_is_refused_before_anything_is_done(cluster: FakeCluster) -> None:
    cluster.diagnoses[BROKEN] = Verdict.FAILED
    cluster.reports(xid(79, node_id=BROKEN, instance_id=BROKEN))
    run("nodes", "release", BROKEN, "--why", "swapped a riser")
    spent = run("nodes", "reboot", BROKEN, "--why", "x", "--dry-run", code=1)
    cluster.ports.nodes.save(node(FREE))
    run("pause", FREE, "--for", "2h", "--why", "a new riser")

    paused = run("nodes", "diagnose", FREE, "--why", "x", code=1)

    assert "no reboot is left for" in spent
    assert f"`nodeheal nodes isolate {BROKEN} --why …` does that" in spent
    assert f"`nodeheal unpause {FREE}` first" in paused
    assert cluster.node(FREE).state is cluster.node(BROKEN).state is NodeState.HEALTHY


def test_a_retirement_is_said_to_be_for_good_before_it_is_asked_for(cluster: FakeCluster) -> None:
    said = run("nodes", "retire", SPARE, "--dry-run")

    assert "for good, there is no way back" in said
    assert f"`nodeheal nodes enroll` refuses {SPARE} then" in said
    assert cluster.node(SPARE).state is NodeState.HEALTHY


def test_a_release_says_that_nothing_is_checked(cluster: FakeCluster) -> None:
    handed_over(cluster)

    said = run("nodes", "release", BROKEN, "--dry-run")

    assert f"it serves again at once, and nothing checks it; `nodeheal nodes diagnose {BROKEN} --why …` does" in said
    assert cluster.node(BROKEN).state is NodeState.QUARANTINED


def test_a_release_of_a_node_in_service_is_refused_by_its_dry_run_too_and_says_what_ends_a_probation(
    cluster: FakeCluster,
) -> None:
    until = cluster.clock() + timedelta(hours=1)
    save_node(cluster.ports, cluster.node(SPARE), state=NodeState.PROBATION, probation_until=until)

    dry = run("nodes", "release", SPARE, "--dry-run", code=1)
    done = run("nodes", "release", SPARE, "--why", "it is fine", code=1)

    assert dry == done
    assert f"`nodeheal nodes diagnose {SPARE} --why …` ends its probation if it passes" in done
    run("nodes", "diagnose", SPARE, "--why", "to use it now")
    assert cluster.node(SPARE).is_available(cluster.clock(), NO_PAUSES)
    assert "probation" not in run("nodes", "release", SPARE, "--dry-run", code=1)


@pytest.mark.parametrize("why", ["...", "…", " "])
def test_the_dots_of_an_email_are_no_reason(cluster: FakeCluster, why: str) -> None:
    assert "--why: " in run("nodes", "isolate", SPARE, "--why", why, code=2)


@pytest.mark.parametrize(
    ("trouble", "needed", "owners_is"),
    [
        (Trouble.NODES_FAIL, "When the pool has enough healthy ones: nodeheal jobs restart llama", "see to the nodes"),
        (Trouble.CANNOT_START, "it is the job that has to change. To see it: nodeheal jobs show llama", "its image"),
    ],
)
def test_a_job_that_is_down_waits_for_a_human_until_one_gives_it_up(
    cluster: FakeCluster, trouble: Trouble, needed: str, owners_is: str
) -> None:
    job = cluster.ports.jobs.get("llama")
    assert job is not None
    why = "run 3 has failed"
    down = replace(job, state=JobState.FAILED, summary=why, trouble=trouble, submitted_at=cluster.clock())
    cluster.ports.jobs.save(down)

    said, shown = run("status"), run("jobs", "show", "llama")
    listed = json.loads(run("status", "--json"))["failed_jobs"]
    stopped = run("jobs", "stop", "llama", "--why", "not worth it")

    assert f"run 3 has failed. Needed: {'look' if trouble is Trouble.NODES_FAIL else 'find'}" in said
    assert f"{needed}. If it stays down: nodeheal jobs stop llama --why" in said
    assert owners_is in shown.partition("Needed ")[2].partition("\n")[0]
    assert [(one["job"], one["trouble"]) for one in listed] == [("llama", trouble)]
    assert "llama is FAILED already: run 3 has failed; given up: `nodeheal status` no longer shows it" in stopped
    assert "Nothing waits for you." in run("status")
    assert "Needed" not in run("jobs", "show", "llama")
    assert re.search("Given up    by .*: not worth it", run("jobs", "show", "llama"))


def test_a_job_that_is_down_is_as_old_as_the_end_of_its_last_run(cluster: FakeCluster) -> None:
    job, now = cluster.ports.jobs.get("llama"), cluster.clock()
    assert job is not None
    run_of_it = cluster.ports.jobs.get_run("llama", job.current_run)
    assert run_of_it is not None
    submitted, ended = now - timedelta(hours=9), now - timedelta(minutes=7)
    down = replace(job, state=JobState.FAILED, summary="run 1 has failed", submitted_at=submitted)
    cluster.ports.jobs.save(down)

    began = run("status")
    cluster.ports.jobs.save_run(replace(run_of_it, ended_at=ended))
    said = run("status")

    ages = [re.search(r"^llama +(\S+) ", text.partition("Waits for you")[2], re.M) for text in (began, said)]
    assert [age and age[1] for age in ages] == ["9h", "7m"]


def test_a_node_with_an_open_incident_is_refused_with_the_way_on(cluster: FakeCluster) -> None:
    incident = handed_over(cluster)
    show = f"{BROKEN} has an open incident, {incident}: see `nodeheal incidents show {short_id(incident)}`"

    isolated = run("nodes", "isolate", BROKEN, "--dry-run", code=1)
    save_node(cluster.ports, cluster.node(BROKEN), state=NodeState.HEALTHY)
    save_node(cluster.ports, cluster.node(BROKEN), job_id=None)
    well = [run("nodes", act, BROKEN, "--why", "x", code=1) for act in ("isolate", "retire")]

    given_back = f"then `nodeheal nodes release {BROKEN} --why …`, or `nodeheal nodes retire {BROKEN} --why …`"
    assert isolated == f"{show}; {given_back}\n"
    assert well == [f"{show}; then `nodeheal incidents close {short_id(incident)} --why …`\n"] * 2


def test_an_act_on_a_node_whose_incident_is_under_way_is_told_to_wait(cluster: FakeCluster) -> None:
    policy = ACT.pool("demo").model_copy(update={"mode": Mode.approve})
    cluster.policy = RecoveryPolicy.model_validate({**ACT.model_dump(), "default_pool": policy.model_dump(mode="json")})
    shown: list[str] = []
    cluster.on_question = lambda _: shown.append(run("nodes", "isolate", BROKEN, "--dry-run", code=1))

    cluster.reports(xid(79, node_id=BROKEN, instance_id=BROKEN))

    assert (
        f"see `nodeheal incidents show {short_id(cluster.incident_id)}`; it waits, and that says for what" in shown[0]
    )


def test_of_a_state_only_what_is_known_is_said(cluster: FakeCluster) -> None:
    save_node(cluster.ports, cluster.node(SPARE), healthy_since=None, state_reason="", state_changes=())
    unknown = run("nodes", "show", SPARE)
    cluster.ports.nodes.save(moved(cluster.node(SPARE), NodeState.RETIRED, "ada: sold", cluster.clock()))

    said = run("nodes", "show", SPARE)

    assert "\nState        HEALTHY\n" in unknown
    assert re.search(rf"\nState        RETIRED since {cluster.clock():%Y-%m-%d %H:%M:%S} UTC: ada: sold\n", said)


def test_an_incident_that_has_left_only_a_job_down_is_shown_by_the_jobs_line_alone(cluster: FakeCluster) -> None:
    incident = handed_over(cluster)
    job = cluster.ports.jobs.get("llama")
    assert job is not None
    why = f"{incident} was handed to a human: not approved"
    down = replace(job, state=JobState.FAILED, summary=why, left_down_by=incident, submitted_at=cluster.clock())
    cluster.ports.jobs.save(down)
    shows, held = f"nodeheal incidents show {short_id(incident)}", run("status")
    save_node(cluster.ports, cluster.node(BROKEN), open_incident=None)

    said = run("status")
    run("jobs", "stop", "llama", "--why", "not worth it")

    assert shows in held, "the node is a human's as well"
    assert shows not in said
    assert f"{why}. Needed:" in said
    assert shows in run("status"), "the job waits for nobody, and the incident is not closed"


def test_on_a_terminal_it_asks_first_and_no_means_no(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal())
    answers: list[bool] = [False, True]
    monkeypatch.setattr(typer, "confirm", lambda text: answers.pop(0))

    refused = [code_of(node_acts.retire, SPARE), code_of(node_acts.isolate, SPARE)]

    assert refused[0] == 1
    assert cluster.node(SPARE).state is NodeState.QUARANTINED  # the second was confirmed
    assert answers == []


class Terminal:
    def isatty(self) -> bool:
        return True


def code_of(act: Any, name: str) -> int:
    try:
        act(name, "it smells")
    except typer.Exit as left:
        return left.exit_code
    return 0


def test_a_node_that_is_isolated_by_hand_sends_its_job_elsewhere(cluster: FakeCluster) -> None:
    said = run("nodes", "isolate", BROKEN, "--why", "it smells")

    assert f"nodeheal incidents show {short_id(cluster.incident_id)}" in said
    assert sorted(cluster.job_nodes) == sorted([PEER, SPARE])


def test_a_node_with_a_job_is_diagnosed_only_where_that_is_meant(cluster: FakeCluster) -> None:
    refused = run("nodes", "diagnose", BROKEN, "--why", "it is slow", code=1)

    run("nodes", "diagnose", SPARE, "--why", "it is slow", "--level", "3")

    assert "runs job llama: give --anyway" in refused
    assert cluster.node(SPARE).state is NodeState.HEALTHY
    assert [verb for verb, name in cluster.commands if name == SPARE][-1] == "run-diagnostics"


def test_a_sweep_diagnoses_the_free_nodes_in_turn_and_fails_where_one_does_not_pass(cluster: FakeCluster) -> None:
    cluster.ports.nodes.save(node(FREE))
    cluster.diagnoses[FREE] = Verdict.FAILED

    said = run("pools", "sweep", "demo", "--why", "before the big run", code=1)

    assert f"1 of 2  {SPARE}  passed" in said
    assert "2 of 2  mi-0ddddddddddddddddd  Diagnosis asked for by hand" in said
    assert said.endswith("2 free nodes of pool demo, 1 passed, 1 did not\n")
    assert sorted(cluster.job_nodes) == sorted([BROKEN, PEER])


def test_a_sweep_of_a_pool_in_which_nothing_may_be_touched_is_refused(cluster: FakeCluster) -> None:
    pause_pool("demo", 600, "ada: a rack moves", cluster.ports)
    paused = [run("pools", "sweep", "demo", *more, code=1) for more in (("--dry-run",), ("--why", "x"))]
    diagnosed = run("nodes", "diagnose", SPARE, "--dry-run", code=1)
    pause_pool("demo", 0, "ada: moved", cluster.ports)
    trip_breaker("demo", "9 of 10 nodes failed", cluster.ports)

    tripped = [run("pools", "sweep", "demo", *more, code=1) for more in (("--dry-run",), ("--why", "x"))]

    assert paused == [diagnosed] * 2
    assert "(ada: a rack moves): `nodeheal unpause demo` first" in diagnosed
    told = "the breaker of pool demo is open (9 of 10 nodes failed): `nodeheal breaker reset demo --why …` first\n"
    assert tripped == [told] * 2
    assert cluster.commands == []


@pytest.mark.parametrize(
    ("words", "seconds", "told", "of_all"),
    [
        ((), 1_200, "checks  level 2: about 2 min on a healthy node, 20 min at most", "4 min"),
        (("--level", "3"), 1_200, "checks  level 3: about 30 min on a healthy node, 1 h at most", "1 h"),
        ((), 45, "checks  level 2: 45 s at most", "1 min 30 s"),
    ],
)
def test_a_diagnosis_and_a_sweep_say_the_level_and_how_long_it_takes(
    cluster: FakeCluster, words: tuple[str, ...], seconds: int, told: str, of_all: str
) -> None:
    cluster.policy = RecoveryPolicy.model_validate({"deadlines": {"diagnose_seconds": seconds}})
    cluster.ports.nodes.save(node(FREE))

    one = run("nodes", "diagnose", SPARE, "--dry-run", *words)
    all_free = run("pools", "sweep", "demo", "--dry-run", *words)

    assert f"{told}\n" in one
    assert f"{told}, so about {of_all} for all\n" in all_free
    assert "checks  " not in run("nodes", "isolate", SPARE, "--dry-run")


@pytest.mark.parametrize("verb", ["isolate", "drain", "reboot", "replace", "diagnose"])
def test_an_act_says_that_it_waits_for_the_reset_of_an_open_breaker(cluster: FakeCluster, verb: str) -> None:
    cluster.ports.nodes.save(node(FREE))
    quiet = run("nodes", verb, SPARE, "--dry-run")
    trip_breaker("demo", "9 of 10 nodes failed", cluster.ports)

    said = run("nodes", verb, SPARE, "--dry-run")

    waits = "this waits for `nodeheal breaker reset demo --why …` before anything is touched"
    ends = f"no reset drops it; `nodeheal nodes release {SPARE} --why …` withdraws it"
    assert f"breaker it is open (9 of 10 nodes failed): {waits}; {ends}\n" in said
    assert "breaker" not in quiet


def test_a_sweep_goes_on_where_a_request_is_not_taken(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(do_act, "ingest", lambda *asked: None)

    said = run("pools", "sweep", "demo", "--why", "x", code=1)

    assert f"1 of 1  {SPARE}  {SPARE} was changed by others in this moment" in said


def test_a_drain_waits_for_the_end_of_the_job(cluster: FakeCluster) -> None:
    seen: list[tuple[NodeState, bool]] = []

    def ends() -> None:
        seen.append((cluster.node().state, cluster.node(BROKEN).is_available(cluster.clock(), NO_PAUSES)))
        cluster._gang_finishes()

    cluster.on_wait = ends

    run("nodes", "drain", BROKEN, "--why", "a new riser")

    assert seen == [(NodeState.HEALTHY, False)]
    assert cluster.node(BROKEN).state is NodeState.QUARANTINED


def test_slurm_drains_its_own_nodes(cluster: FakeCluster) -> None:
    save_node(cluster.ports, cluster.node(SPARE), cluster=Cluster(SchedulerKind.SLURM, "training"))
    behave_as(cluster.ports, own_tools=OWN_TOOLS)

    assert "scontrol update" in run("nodes", "drain", SPARE, "--why", "x", code=1)
