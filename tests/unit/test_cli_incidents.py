"""`nodeheal incidents`: list, show, export."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nodeheal.adapters.aws.console import execution_arn, execution_url
from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.cli.report import plain
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Action, Verdict
from nodeheal.domain.recovery.incident import History, incident_id_of, short_id
from nodeheal.services.steps import save_node
from stacks.workflows import PARENT, Workflow
from tests.support.acts import MemoryControlPlane, requested
from tests.support.builders import NOW, stored_job, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE, FakeCluster

RUN = CliRunner()
CALLER = "arn:aws-us-gov:sts::111122223333:assumed-role/ops/ada"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A pool in which one recovery has gone through."""
    it = FakeCluster()
    save_node(it.ports, it.node(), accelerators=8)
    monkeypatch.setattr(connect, "ports", lambda table: it.ports)
    monkeypatch.setattr(connect, "policy_copy", lambda table: it.policy)
    monkeypatch.setattr(connect, "control_plane", lambda: MemoryControlPlane(it.ports, it.policy))
    monkeypatch.setattr(connect, "execution_url", lambda incident: f"https://console.example/{incident}")
    it.reports(xid(79, node_id=BROKEN, instance_id=BROKEN))
    return it


def run(*words: str) -> Any:
    answer = RUN.invoke(app, ["incidents", *words])
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exception
    return answer


def listed(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("list", "--json", *words).output)
    return found


def test_a_list_says_where_what_and_how_it_ended(cluster: FakeCluster) -> None:
    [found] = listed()

    said = run("list").output
    assert (found["node"], found["pool"], found["ending"], found["state"]) == (BROKEN, "demo", "RECOVERED", "CLOSED")
    assert found["incident"].rpartition("-")[2] in said
    assert found["incident"] in run("list", "-o", "wide").output
    assert "recovered" in said
    assert said.endswith("\n1 incident within 7d\n")


def test_a_drill_is_called_one(cluster: FakeCluster) -> None:
    drill = xid(79, node_id=PEER, instance_id=PEER, event_id="drill", evidence=f"NVRM: Xid 79 {names.DRILL_MARK}")
    cluster.reports(drill)

    assert {one["node"]: one["began_as_drill"] for one in listed()} == {PEER: True, BROKEN: False}
    assert run("list").output.count("XID 79 (GPU has fallen off the bus) (drill)\n") == 1
    assert "This is a drill.\n" in run("show", incident_id_of(drill)).output


def test_a_list_is_narrowed_by_pool_state_and_time(cluster: FakeCluster) -> None:
    assert len(listed("demo")) == 1
    assert listed("--state", "open", "--state", "waiting") == []
    assert len(listed("--state", "recovered")) == 1
    words = ("list", "--state", "open", "--state", "waiting")
    assert run(*words).output == "no incident within 7d is open or waiting; in other states: 1\n"
    cluster.clock.advance(3_600)
    assert run(*words, "--since", "30m").output == "no incident within 30m\n"
    assert listed("--since", "30m") == []
    assert run("list", "--since", "30m").output == "no incident within 30m\n"


@pytest.mark.parametrize("verb", ["list", "export"])
@pytest.mark.parametrize("pool", ["dmeo", ""])
def test_a_pool_that_nobody_knows_is_told_with_those_that_there_are(cluster: FakeCluster, verb: str, pool: str) -> None:
    said = run(verb, pool)

    assert said.exit_code == 1
    assert f"no pool {pool} is known" in said.output
    assert "Known pools: demo" in said.output


def test_the_newest_comes_first(cluster: FakeCluster) -> None:
    cluster.clock.advance(90_000)
    cluster.reports(xid(999, node_id=PEER, instance_id=PEER, event_id="later", observed_at=cluster.clock()))

    assert [found["node"] for found in listed()] == [PEER, BROKEN]


@pytest.mark.parametrize("words", [("--since", "soon"), ("--state", "lost")])
def test_what_is_no_time_or_state_is_refused_by_name(cluster: FakeCluster, words: tuple[str, str]) -> None:
    said = RUN.invoke(app, ["incidents", "list", *words])

    assert (said.exit_code, words[1] in said.output) == (2, True)


@pytest.mark.parametrize("verb", ["list", "export"])
@pytest.mark.parametrize("since", ["999999d", "3651d", "99999999h"])
def test_what_is_longer_than_anything_is_told_how_long_it_may_be(cluster: FakeCluster, verb: str, since: str) -> None:
    said = run(verb, "--since", since)

    assert (said.exit_code, said.output) == (2, f"'{since}' is too long; give at most 3650d\n")
    assert run(verb, "--since", "3650d").exit_code == 0


def test_a_story_is_shown_whole(cluster: FakeCluster) -> None:
    [found] = listed()

    said = run("show", found["incident"]).output

    assert said.startswith(f"recovered: {BROKEN}, ")
    for part in ("attempt reserved: 1 of 1", "Policy     ", "REBOOT DONE: ", "diagnosed", "accelerator-hours"):
        assert part in said
    assert f"{BROKEN} reports XID 79" in said.partition("Timeline")[2].splitlines()[1]
    assert f"Workflow    https://console.example/{found['incident']}" in said


def test_a_story_says_why_each_step_was_taken(cluster: FakeCluster) -> None:
    said = run("show", "latest").output
    steps = [line[13:] for line in said.partition("Timeline")[2].splitlines() if line[13:14].isupper()]

    assert [step for step in steps if ": " not in step] == []
    assert "REBOOT: same reason as ISOLATE" in steps
    assert "DIAGNOSE DONE: diagnostics passed" in steps
    assert "CLOSE: see Summary" in steps


def test_a_story_says_no_reason_in_full_twice(cluster: FakeCluster) -> None:
    said = run("show", "latest").output

    assert said.count("(GPU has fallen off the bus)") == 1
    assert said.count("One reboot brings most of these GPUs back") == 1
    assert said.count("rebooted; diagnostics passed; llama restarted as run 2") == 1
    assert said.count("attempt reserved: 1 of 1 reboots") == 1


def test_a_story_for_programs_has_the_same(cluster: FakeCluster) -> None:
    [found] = listed()

    told = json.loads(run("show", found["incident"], "--json").output)

    assert told["subject"].startswith("recovered: ")
    assert told["phase_seconds"].keys() >= {"detected", "isolated", "rebooted", "diagnosed", "returned"}
    assert told["execution"].endswith(found["incident"])
    assert told["fault_at"].startswith(NOW.strftime("%Y-%m-%dT%H:%M:%S"))


def test_an_unknown_incident_is_named(cluster: FakeCluster) -> None:
    said = run("show", "inc-unknown")

    assert (said.exit_code, "inc-unknown" in said.output) == (1, True)


def test_what_a_node_says_reaches_no_terminal_and_no_page_as_more_than_text(cluster: FakeCluster) -> None:
    cluster.clock.advance(90_000)
    evil = "\x1b[2J](http://evil.example)<img src=x>\n# owned"
    event = xid(node_id=PEER, instance_id=PEER, event_id="evil", evidence=evil, observed_at=cluster.clock())
    cluster.reports(event)

    page = run("export", "--since", "1h").output

    assert "\x1b" not in run("list").output + page
    assert "\n# owned" not in page
    assert "](http" not in page
    assert "<img" not in page.replace("\\<img", "")


def test_an_export_adds_up(cluster: FakeCluster) -> None:
    page = run("export", "demo").output
    told = json.loads(run("export", "--format", "json").output)

    assert page.startswith("# Incidents: Pool demo, last 30d\n")
    assert "| RECOVERED | 1 |" in page
    assert told["tally"]["by_ending"] == {"RECOVERED": 1}
    assert told["tally"]["time_to_recover"]["incidents"] == 1
    assert [one["node_id"] for one in told["incidents"]] == [BROKEN]


def test_a_node_that_waits_for_a_human_is_lost_by_the_hour(cluster: FakeCluster) -> None:
    cluster.clock.advance(90_000)
    again = {"event_id": "b", "boot_id": cluster.node().boot_id, "observed_at": cluster.clock()}
    cluster.hangs = {BROKEN}
    cluster.reports(xid(79, node_id=BROKEN, instance_id=BROKEN, **again))
    newest = listed()[0]["incident"]
    before = json.loads(run("show", newest, "--json").output)

    cluster.clock.advance(3_600)

    after = json.loads(run("show", newest, "--json").output)
    assert before["ending"] == "HANDED_TO_A_HUMAN"
    assert after["lost_accelerator_hours"] - before["lost_accelerator_hours"] == pytest.approx(8)


def test_the_console_is_the_partitions_own() -> None:
    arn = execution_arn(CALLER, "us-gov-west-1", names.RECOVERY_WORKFLOW, "inc-1")

    assert arn == "arn:aws-us-gov:states:us-gov-west-1:111122223333:execution:nodeheal-recover-node:inc-1"
    assert execution_url(arn) == (
        "https://us-gov-west-1.console.amazonaws-us-gov.com/states/home?region=us-gov-west-1"
        f"#/v2/executions/details/{arn}"
    )


def test_the_workflow_is_called_what_links_call_it() -> None:
    assert Workflow(PARENT).deployed_name == names.RECOVERY_WORKFLOW


def test_plain_text_means_nothing() -> None:
    assert plain("a | b\r\n`c` [d](e)") == r"a \| b \`c\` \[d\]\(e)"
    assert plain("_a_ __b__ *c* ~~d~~ <b> &lt; &#60;") == (r"\_a\_ \_\_b\_\_ \*c\* \~\~d\~\~ \<b> \&lt; \&\#60;")
    assert plain("http://evil www.evil @ada ada@evil #7") == r"http\://evil www\.evil \@ada ada\@evil \#7"


@pytest.mark.parametrize(
    "text",
    [
        "HOST operator_request (Reboot asked for by hand): done!",
        "0000:b9:00.0, 03:15:00 UTC, {a}, C#, R&D, a -> b, 5 # owned",
        "XID 79 (GPU has fallen off the bus)",
    ],
)
def test_what_means_nothing_is_left_as_it_is(text: str) -> None:
    assert plain(text) == text


def riddle_on(node_id: str, cluster: FakeCluster) -> str:
    """The id of an incident that a human has, whose node is in service."""
    cluster.reports(xid(999, node_id=node_id, instance_id=node_id, event_id="riddle", observed_at=cluster.clock()))
    [found] = listed("--state", "handed-over")
    return str(found["incident"])


def test_what_a_human_has_seen_to_is_closed_in_their_name(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.clock.advance(60)
    riddle = riddle_on(PEER, cluster)

    assert "  handed over  " in run("list").output
    assert run("show", riddle).output.startswith("handed to a human (not closed): ")
    first, second = (run("close", riddle, "--why", "harmless").output for _ in range(2))

    assert first == f"{riddle} is closed\n"
    assert "closed already" in second
    assert "closed by hand: ada: harmless" in run("show", riddle).output
    assert listed("--state", "handed-over") == []
    assert "  closed  " in run("list").output


def test_a_node_says_which_of_its_incidents_a_human_still_has(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "policy", lambda: cluster.policy)
    cluster.clock.advance(60)
    riddle = riddle_on(PEER, cluster)
    seen, other = (RUN.invoke(app, ["nodes", "show", node_id]).output for node_id in (PEER, BROKEN))

    run("close", riddle, "--why", "harmless")

    assert f"Handed over  not closed: nodeheal incidents show {short_id(riddle)}" in seen
    assert "Handed over" not in other
    assert "Handed over" not in RUN.invoke(app, ["nodes", "show", PEER]).output


def test_what_was_asked_for_by_hand_says_by_whom_and_why(cluster: FakeCluster) -> None:
    found = requested(SPARE, Action.ISOLATE, "ada: a new riser", cluster.ports)
    cluster.reports(found)

    asked, other = incident_id_of(found), next(one["incident"] for one in listed() if one["node"] == BROKEN)

    assert "\nAsked by    ada: a new riser\n" in run("show", asked).output
    assert json.loads(run("show", asked, "--json").output)["asked_by_hand"] == "ada: a new riser"
    assert "Asked by" not in run("show", other).output


def test_what_is_exported_as_events_is_replayed(cluster: FakeCluster, tmp_path: Path) -> None:
    events, policy = tmp_path / "past.jsonl", tmp_path / "policy.json"
    events.write_text(run("export", "--format", "events").output)
    policy.write_text('{"default_pool": {"mode": "act"}}')

    said = RUN.invoke(app, ["replay", str(events), "--policy", str(policy), "--json"])

    told = json.loads(said.output)
    assert (told["events"], told["nodes_touched"]) == (1, [BROKEN])
    assert json.loads(events.read_text())["job_id"] == "llama"


def needed_of(incident: str) -> dict[str, list[str]]:
    """What the incident needs, for programs: the commands of each thing to do."""
    told = json.loads(run("show", incident, "--json").output)
    return {one["text"]: one["commands"] for one in told["needed"]}


def test_what_was_handed_over_says_what_is_needed_until_it_is_closed(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.clock.advance(60)
    riddle = riddle_on(PEER, cluster)
    close = f"nodeheal incidents close {short_id(riddle)} --why ..."

    said = run("show", riddle).output

    assert f"\nNeeded      look at {PEER}. nodeheal has left it and its job as they were.\n" in said
    assert f"\n              {close}\n" in said
    assert list(needed_of(riddle).values()) == [[f"nodeheal nodes show {PEER}"], [close]]
    run("close", riddle, "--why", "harmless")
    assert needed_of(riddle) == {}
    assert "Needed" not in run("show", riddle).output


def test_a_node_that_is_kept_out_is_released_or_retired(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    found = requested(SPARE, Action.ISOLATE, "ada: a new riser", cluster.ports)
    cluster.reports(found)

    [commands] = needed_of(incident_id_of(found)).values()

    assert commands == [f"nodeheal nodes {verb} {SPARE} --why ..." for verb in ("release", "retire")]


def test_a_job_that_runs_again_since_needs_nothing_more(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.clock.advance(90_000)
    cluster.hangs, cluster.diagnoses = {BROKEN}, {SPARE: Verdict.FAILED}
    again = xid(79, node_id=BROKEN, instance_id=BROKEN, event_id="b", observed_at=cluster.clock())
    cluster.reports(again.model_copy(update={"boot_id": cluster.node().boot_id}))
    newest = listed()[0]["incident"]
    assert any("llama is stopped" in text for text in needed_of(newest))

    job = stored_job(cluster.ports, "llama")
    cluster.ports.jobs.save(replace(job, submitted_at=cluster.clock() + timedelta(seconds=1)))

    assert not any("llama" in text for text in needed_of(newest))


def test_an_incident_whose_workflow_broke_says_how_to_end_it(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.clock.advance(60)
    riddle = riddle_on(PEER, cluster)
    monkeypatch.setattr(cluster.ports.incidents, "history", broken_off(cluster.ports.incidents.history))

    assert list(needed_of(riddle).values())[1] == [f"nodeheal incidents close {short_id(riddle)} --why ..."]


def broken_off(read: Callable[[str], History]) -> Callable[[str], History]:
    """As `read`, but the incident has no ending."""

    def history(incident_id: str) -> History:
        found = read(incident_id)
        return replace(found, incident=replace(found.incident, ending=None))

    return history
