"""`nodeheal-agent slurm` on a real Slurm: what it drains, requeues and resumes, and what it leaves alone."""

import getpass
import io
import json
import subprocess
import time
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from nodeheal.agent.commands.node_command import EXIT_DONE, EXIT_REFUSED
from nodeheal.agent.commands.table import carry_out
from nodeheal.agent.slurm import controller as agent
from nodeheal.agent.slurm.controller import Controller, NoAnswerError
from nodeheal.agent.slurm.verbs import EXIT_NO_ANSWER
from nodeheal.cli.main import app
from nodeheal.parsers.slurm import SlurmJob
from nodeheal.parsers.slurm_report import SlurmReport, unpack
from tests.slurm.cluster import Alone, Slurm

CONTROLLER = Controller()
INCIDENT = "inc-20261127T035044-mi-0a-0123456789"
# What a cluster needs that powers nodes down. ParallelCluster has programs of its own there.
POWER_SAVING = """\
SuspendProgram={program}
ResumeProgram={program}
SuspendTime=86400
SuspendTimeout=5
"""


HELD = 3_500


def run(*words: str) -> dict[str, Any]:
    """One verb of the agent's command, as the SSM document runs it."""
    output = io.StringIO()
    with redirect_stdout(output):
        assert carry_out(["slurm", *words]) == EXIT_DONE
    assert len(output.getvalue()) < 24_000
    answer: dict[str, Any] = json.loads(output.getvalue())
    return answer


def jobs_at(where: str) -> list[SlurmJob]:
    """Those that are there. Jobs of other tests may have failed there just before."""
    return [job for job in CONTROLLER.jobs(list(CONTROLLER.nodes_at([where]).values())) if not job.has_failed]


def test_a_drained_node_names_the_incident_and_is_given_back(slurm: Slurm) -> None:
    node, other, _ = slurm.names
    where = slurm.addresses[node]

    drained = CONTROLLER.drain({where: INCIDENT})
    again = CONTROLLER.drain({where: INCIDENT})

    assert (drained[where].name, drained[where].state) == (node, "drained")
    assert drained == again
    assert slurm.ask("sinfo", "-h", "-n", node, "-o", "%E") == f"nodeheal:{INCIDENT}"
    assert slurm.states()[other] == "idle"
    assert CONTROLLER.resume([where])[where].is_in_service


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("DRAIN", "new riser card, ada"),
        ("FAIL", "Action:Replace"),
        ("DOWN", "Not responding to ada"),
        ("DRAIN", f"nodeheal:{INCIDENT} ADA: do not resume"),
        ("DRAIN", "Low RealMemory ada swaps DIMM"),
    ],
)
def test_a_persons_reason_is_kept(slurm: Slurm, state: str, reason: str) -> None:
    node, *_ = slurm.names
    where = slurm.addresses[node]
    slurm.ask("scontrol", "update", f"NodeName={node}", f"State={state}", f"Reason={reason}")
    before = slurm.states()[node]

    seen = [CONTROLLER.nodes_at([where]), CONTROLLER.drain({where: INCIDENT}), CONTROLLER.resume([where])]

    who = getpass.getuser()
    assert [(one[where].is_by_person, one[where].reason, one[where].reason_by) for one in seen] == [
        (True, reason, who)
    ] * 3
    assert slurm.states()[node] == before


def test_what_slurm_has_found_itself_is_replaced_by_our_reason(slurm: Slurm) -> None:
    node, *_ = slurm.names
    where = slurm.addresses[node]
    slurm.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=Prolog error")

    assert CONTROLLER.drain({where: INCIDENT})[where].reason == f"nodeheal:{INCIDENT}"


def test_a_cluster_is_told_to_replace_what_nodeheal_has_drained_and_nothing_else(alone: Alone) -> None:
    slurm = alone(2, "SuspendProgram=/bin/true\nResumeProgram=/bin/true\nSuspendTime=3600\n")
    mine, hers = slurm.names
    ours, other = slurm.addresses[mine], slurm.addresses[hers]
    CONTROLLER.drain({ours: INCIDENT})
    slurm.ask("scontrol", "update", f"NodeName={hers}", "State=DRAIN", "Reason=ada looks")

    answers = [CONTROLLER.replace([ours, other], "power_down") for _ in range(2)]

    who = getpass.getuser()
    refused = [{where: why_not for where, (_, why_not) in answer.items()} for answer in answers]
    assert refused == [{ours: "", other: f"nodeheal has not drained {hers} (drained by {who}: ada looks)"}] * 2
    # It is to be powered down, or it is; on its way down Slurm takes the drain off, and its reason with that.
    why = slurm.ask("sinfo", "-h", "-n", mine, "-o", "%E")
    assert (state := slurm.states()[mine]) in ("drained!", "drained%", "idle%")
    assert slurm.states()[hers] == "drained"
    assert why == f"nodeheal:{INCIDENT}" or state == "idle%"


def test_where_slurm_powers_nothing_down_it_is_refused_with_what_is_missing(slurm: Slurm) -> None:
    where = slurm.addresses[slurm.names[0]]
    CONTROLLER.drain({where: INCIDENT})

    [(_, why_not)] = CONTROLLER.replace([where], "power_down").values()

    assert "Invalid node state specified" in why_not
    assert "SuspendProgram" in why_not


def test_thousands_of_jobs_of_one_user_keep_no_node_from_being_drained(alone: Alone) -> None:
    """Any user may submit as many, with names of up to 1,024 characters: 9 MB of names."""
    slurm = alone(2, "MaxJobCount=20000\nMaxArraySize=20000\n")
    node, _ = slurm.names
    where = slurm.addresses[node]
    mine = slurm.submit("sleep 600", "--requeue", f"--nodelist={node}")
    slurm.run_until(mine, "RUNNING")
    held = f"sbatch --quiet --hold --job-name={'ü' * 512} --wrap true >/dev/null || exit 1"
    subprocess.run(
        ["bash", "-c", f"for i in $(seq {HELD}); do {held}; done"], env=dict(slurm.environment), check=True, timeout=120
    )

    drained = run("drain", "--addresses", where, "--incident", INCIDENT)
    jobs = run("jobs", "--addresses", where, "--incident", INCIDENT)
    report = run("report")

    [listed] = drained["nodes"].values()
    assert listed["state"] == "draining"
    assert [job["job_id"] for job in listed["jobs"]] == [job["job_id"] for job in jobs["jobs"]] == [mine]
    told = unpack(report)
    assert len(told["jobs"]) + told["more_jobs"] == HELD + 1
    assert told["jobs"][0]["job_id"] == mine


def test_a_node_that_is_drained_for_another_incident_is_not_resumed_for_this_one(slurm: Slurm) -> None:
    where = slurm.addresses[slurm.names[0]]
    CONTROLLER.drain({where: INCIDENT})

    assert not CONTROLLER.resume([where], INCIDENT.replace("mi-0a", "mi-0b"))[where].is_in_service
    assert CONTROLLER.resume([where], INCIDENT)[where].is_in_service


def test_a_node_is_powered_down_so_that_its_cluster_makes_another(alone: Alone, tmp_path: Path) -> None:
    program, powered = tmp_path / "power.sh", tmp_path / "powered"
    program.write_text(f"#!/bin/sh\necho $1 >> {powered}\n")
    program.chmod(0o755)
    slurm = alone(1, POWER_SAVING.format(program=program))
    [node] = slurm.names
    where = slurm.addresses[node]
    CONTROLLER.drain({where: INCIDENT})

    [(seen, why_not)] = CONTROLLER.replace([where], "power_down").values()

    slurm.wait(lambda: powered.exists() and powered.read_text() == f"{node}\n", "its SuspendProgram has run")
    assert (seen.name, why_not) == (node, "")
    assert slurm.states()[node].startswith("idle")  # powering down, and not drained any more


def test_a_job_is_requeued_once_and_runs_again_elsewhere(alone: Alone) -> None:
    """A job of 32 nodes, of which one breaks."""
    slurm = alone(34, "")
    job = slurm.submit(
        "srun bash -c 'echo $SLURMD_NODENAME' | sort -u | wc -l; exec sleep 600", "--nodes=32", "--requeue"
    )
    slurm.wait(lambda: slurm.output_of(job) == ["32"], "the job has counted its nodes")
    broken = slurm.nodes_of(job)[7]
    where = slurm.addresses[broken]
    assert CONTROLLER.drain({where: INCIDENT})[where].state == "draining"
    [seen] = CONTROLLER.jobs(list(CONTROLLER.nodes_at([where]).values()))

    answers = [CONTROLLER.requeue(job, where, seen.restarts) for _ in range(2)]

    assert (seen.job_id, seen.may_requeue, seen.nodes, seen.restarts) == (job, True, 32, 0)
    assert [(one.requeued, one.is_held) for one in answers] == [(True, False), (True, False)]
    slurm.wait(lambda: slurm.output_of(job).count("32") == 2, "the job has counted its nodes again")
    assert (len(slurm.nodes_of(job)), broken in slurm.nodes_of(job), slurm.job(job, "Restarts")) == (32, False, "1")
    # The command that comes late, when the job runs elsewhere: it must not cost another start.
    assert CONTROLLER.requeue(job, where, seen.restarts).requeued
    assert (slurm.job(job, "JobState"), slurm.job(job, "Restarts")) == ("RUNNING", "1")


@pytest.mark.parametrize(("ends", "restarts"), [("scontrol requeue", "1"), ("scancel", "0")])
def test_a_job_that_its_owner_requeues_or_cancels_meanwhile_is_left_to_that(
    slurm: Slurm, ends: str, restarts: str
) -> None:
    node, *_ = slurm.names
    where = slurm.addresses[node]
    # It does not go when it is told to, and so is COMPLETING for a while.
    job = slurm.submit("trap '' TERM; srun sleep 600", f"--nodelist={node}", "--requeue")
    slurm.run_until(job, "RUNNING")
    slurm.wait(lambda: slurm.ask("squeue", "-h", "-s", "-j", job, "-o", "%j").count("sleep") == 1, "its step has begun")
    slurm.ask(*ends.split(), job)
    slurm.run_until(job, "COMPLETING")

    answer = CONTROLLER.requeue(job, where, 0)

    assert answer.requeued is (restarts == "1")
    assert jobs_at(where) == []
    slurm.wait(lambda: slurm.job(job, "JobState") in ("PENDING", "CANCELLED"), "it has left its node")
    assert slurm.job(job, "Restarts") == restarts
    assert (slurm.job(job, "JobState") == "CANCELLED") is (restarts == "0")


def test_a_job_that_was_requeued_too_often_is_held_for_a_person(slurm: Slurm) -> None:
    node, *_ = slurm.names
    job = slurm.submit("exec sleep 600", f"--nodelist={node}", "--requeue")
    slurm.run_until(job, "RUNNING")

    answers = [CONTROLLER.requeue(job, slurm.addresses[node], 0, hold=True) for _ in range(3)]

    assert [(answer.requeued, answer.is_held) for answer in answers] == [(True, True)] * 3
    slurm.wait(lambda: slurm.job(job, "Reason") == "job_requeued_in_held_state", "the job is held")


@pytest.mark.parametrize("how", ["--no-requeue", "array"])
def test_a_job_is_requeued_only_if_its_owner_lets_it(slurm: Slurm, how: str) -> None:
    node, *_ = slurm.names
    options = ["--array=0-1", "--requeue"] if how == "array" else [how]
    job = slurm.submit("exec sleep 600", f"--nodelist={node}", *options) + ("_0" if how == "array" else "")
    slurm.run_until(job, "RUNNING")

    answer = CONTROLLER.requeue(job, slurm.addresses[node], 0)

    assert answer.requeued is (how == "array")
    assert answer.requeued or slurm.job(job, "JobState") == "RUNNING"
    assert answer.requeued or "its owner does not allow a requeue" in answer.why


def test_a_command_that_a_person_has_typed_is_left_alone(slurm: Slurm) -> None:
    node, *_ = slurm.names
    where = slurm.addresses[node]
    slurm.begin("salloc", ["salloc", f"--nodelist={node}", "--no-shell"])
    slurm.wait(lambda: jobs_at(where), "the node has a job")

    assert [job.may_requeue for job in jobs_at(where)] == [False]


def test_a_job_that_has_ended_is_not_started_again(slurm: Slurm) -> None:
    where = slurm.addresses[slurm.names[0]]
    job = slurm.submit("true", "--requeue")
    slurm.run_until(job, "COMPLETED")

    answer = CONTROLLER.requeue(job, where, 0)

    assert (answer.requeued, answer.why) == (False, "it had ended by itself, or Slurm no longer knows it")
    assert not CONTROLLER.requeue("99999", where, 0).requeued


def test_a_job_that_has_just_failed_on_a_node_is_started_again_elsewhere(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = f"{tmp_path}/failed-once"
    job = slurm.submit(f"test -e {once} && exec sleep 600; touch {once}; exit 3", "--requeue")
    slurm.run_until(job, "FAILED")
    [node] = slurm.nodes_of(job)
    where = slurm.addresses[node]
    slurm.run_until(slurm.submit("exit 3", f"--nodelist={node}", "--no-requeue"), "FAILED")
    found = CONTROLLER.drain({where: INCIDENT})[where]
    with monkeypatch.context() as patch:
        patch.setattr(agent, "FAILED_SECONDS", 0.0)
        a_while_ago = CONTROLLER.jobs([found])
    [seen] = [one for one in CONTROLLER.jobs([found]) if one.job_id == job]

    answers = [CONTROLLER.requeue(job, where, seen.restarts) for _ in range(2)]

    assert (a_while_ago, seen.has_failed) == ([], True)
    assert [one.requeued for one in answers] == [True, True]
    slurm.run_until(job, "RUNNING")
    assert (slurm.nodes_of(job) == [node], slurm.job(job, "Restarts")) == (False, "1")


def test_jobs_that_the_fault_has_stopped_before_the_node_is_drained_are_told(
    slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    node, other, _ = slurm.names
    where = slurm.addresses[node]
    incident = f"inc-{datetime.now(UTC):%Y%m%dT%H%M%S}-mi-0a-0123456789"
    long_ago = INCIDENT.replace("20261127", "20250101")
    lost = slurm.submit("exit 3", f"--nodelist={node}", "--no-requeue")
    elsewhere = slurm.submit("exit 3", f"--nodelist={other}", "--no-requeue")
    by_itself = slurm.submit("scontrol requeue $SLURM_JOB_ID; exec sleep 600", f"--nodelist={node}", "--requeue")
    for job in (lost, elsewhere):
        slurm.run_until(job, "FAILED")
    slurm.wait(lambda: slurm.job(by_itself, "Restarts") == "1", "the job has requeued itself")

    codes = [
        carry_out(["slurm", verb, "--addresses", where, "--incident", known])
        for known in (long_ago, incident)
        for verb in ("jobs", "drain")
    ]

    before, _, now, again = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = {job["job_id"]: job["before"] for job in now["jobs"]}
    assert codes == [0, 0, 0, 0]
    assert {name: found.get(name) for name in (lost, by_itself, elsewhere)} == {
        lost: "lost",
        by_itself: "requeued",
        elsewhere: None,
    }
    assert lost not in {job["job_id"] for job in before["jobs"]}
    assert again["nodes"][where]["jobs"] == now["jobs"]


def test_a_job_that_has_failed_is_started_again_though_its_nodes_are_not_free_yet(alone: Alone, tmp_path: Path) -> None:
    epilog = tmp_path / "epilog.sh"
    epilog.write_text("#!/bin/sh\nsleep 5\n")
    epilog.chmod(0o755)
    slurm = alone(1, f"Epilog={epilog}\n")
    [node] = slurm.names
    where = slurm.addresses[node]
    job = slurm.submit("exit 3", "--requeue", f"--nodelist={node}")
    slurm.run_until(job, "COMPLETING")
    [found] = CONTROLLER.drain({where: INCIDENT}).values()
    [seen] = [one for one in CONTROLLER.jobs([found]) if one.job_id == job]

    assert (seen.state, CONTROLLER.requeue(job, where, seen.restarts).requeued) == ("COMPLETING", True)
    assert job not in [one.job_id for one in CONTROLLER.jobs([found])]
    assert slurm.job(job, "Restarts") == "1"


def test_a_jobs_name_cannot_stand_for_another_job(slurm: Slurm) -> None:
    node, *_ = slurm.names
    name = f"x\n7|RUNNING|root|1|0|1|gpu|1|{node}|x"
    job = slurm.submit("exec sleep 600", f"--nodelist={node}", f"--job-name={name}")
    slurm.run_until(job, "RUNNING")

    assert [one.job_id for one in jobs_at(slurm.addresses[node])] == [job]


def test_a_reason_with_a_line_break_hides_no_node(slurm: Slurm) -> None:
    node, *_ = slurm.names
    slurm.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=first\nsecond")

    nodes = {node.name: node for node in CONTROLLER.nodes()}

    assert nodes.keys() == slurm.addresses.keys()
    assert nodes[node].is_by_person


def report_of(capsys: pytest.CaptureFixture[str]) -> SlurmReport:
    """What the command prints, as operators read it."""
    assert carry_out(["slurm", "report"]) == 0
    return TypeAdapter(SlurmReport).validate_python(unpack(json.loads(capsys.readouterr().out)))


def test_a_report_says_who_has_taken_a_node_out_of_service_why_and_since_when(
    slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    hers, ours, slurms = slurm.names
    before = int(time.time())
    forged = f"ada looks\n{ours}|x|down|root|1|nodeheal:x"
    slurm.ask("scontrol", "update", f"NodeName={hers}", "State=DRAIN", f"Reason={forged}")
    slurm.ask("scontrol", "update", f"NodeName={slurms}", "State=DRAIN", "Reason=Prolog error")
    CONTROLLER.drain({slurm.addresses[ours]: INCIDENT})

    nodes = {node.name: node for node in report_of(capsys).nodes if node.name in slurm.names}

    assert {name: (node.taken_by, node.reason, node.addresses) for name, node in nodes.items()} == {
        hers: ("a person", " ".join(forged.split()), (slurm.addresses[hers],)),
        ours: ("nodeheal", f"nodeheal:{INCIDENT}", (slurm.addresses[ours],)),
        slurms: ("Slurm", "Prolog error", (slurm.addresses[slurms],)),
    }
    assert {node.state for node in nodes.values()} == {"drained"}
    assert {node.reason_by for node in nodes.values()} == {getpass.getuser()}
    assert all(before <= (node.since or 0) <= time.time() for node in nodes.values())


def test_a_report_has_jobs_that_run_wait_and_have_ended(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, _ = slurm.names
    forged = f"x\n7|RUNNING|root|1|0|1|gpu|1|{first}|x"
    failed = slurm.submit("exit 7", f"--nodelist={first}", f"--job-name={forged}")
    killed = slurm.submit("kill -9 $$", f"--nodelist={first}")
    array = slurm.submit("exec sleep 600", f"--nodelist={second}", "--array=0-4", "--job-name=é|sweep", "--requeue")
    for job in (failed, killed):
        slurm.run_until(job, "FAILED")
    slurm.wait(lambda: slurm.ask("squeue", "-h", "-j", f"{array}_0", "-o", "%T") == "RUNNING", "the array runs")

    report = report_of(capsys)

    jobs = {job.job_id: job for job in report.jobs}
    assert [(jobs[one].state, jobs[one].exit_code, jobs[one].signal) for one in (failed, killed)] == [
        ("FAILED", 7, 0),
        ("FAILED", 0, 9),
    ]
    assert jobs[failed].name == " ".join(forged.split())
    assert jobs[failed].submitted_at <= jobs[failed].started_at <= jobs[failed].ended_at <= time.time()  # type: ignore[operator]
    runs, waits = jobs[f"{array}_0"], jobs[f"{array}_[1-4]"]
    assert (runs.state, runs.name, runs.node_list, runs.may_requeue) == ("RUNNING", "é|sweep", second, True)
    assert (runs.ended_at, runs.exit_code) == (None, None)
    assert (waits.state, waits.started_at, waits.node_list, bool(waits.reason)) == ("PENDING", None, "", True)
    assert report.jobs[0] == runs


def test_a_script_is_submitted_as_the_user_who_types_it(slurm: Slurm, tmp_path: Path) -> None:
    node, *_ = slurm.names
    script = tmp_path / "train.sbatch"
    script.write_text(f"#!/bin/sh\n#SBATCH --no-kill\n#SBATCH --output={tmp_path}/%j.log\nexec sleep 600\n")
    words = ["jobs", "submit", "--slurm", "--json"]

    tried = CliRunner().invoke(app, [*words, "--dry-run", "--", f"--nodelist={node}", str(script)])
    refused = CliRunner().invoke(app, [*words, "--", "--partition=nowhere", str(script)])
    said = CliRunner().invoke(app, [*words, "--", f"--nodelist={node}", str(script)])

    assert (tried.exit_code, json.loads(tried.stdout)["job"]) == (0, None)
    assert "to start at" in json.loads(tried.stdout)["sbatch"]
    assert (refused.exit_code, "invalid partition" in refused.stderr) == (1, True)
    job = json.loads(said.stdout)["job"]
    slurm.run_until(job, "RUNNING")
    seen = slurm.ask("squeue", "-h", "-j", job, "--Format", "UserName:|,Requeue:|,NodeList:|,Name:|")
    assert seen == f"{getpass.getuser()}|1|{node}|train.sbatch|"


def test_a_job_whose_node_is_lost_is_reported_so(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    node, *_ = slurm.names
    job = slurm.submit("exec sleep 600", f"--nodelist={node}", "--no-requeue")
    slurm.run_until(job, "RUNNING")

    slurm.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=Not responding")

    slurm.run_until(job, "NODE_FAIL")
    [lost] = [one for one in report_of(capsys).jobs if one.job_id == job]
    assert (lost.node_list, lost.is_over, lost.may_requeue) == (node, True, False)


def test_an_address_that_no_node_has_is_no_node(slurm: Slurm) -> None:
    assert CONTROLLER.nodes_at(["10.9.8.7"]) == {}
    assert CONTROLLER.drain({"10.9.8.7": INCIDENT}) == {}
    assert set(slurm.states().values()) == {"idle"}


def test_the_command_answers_in_json(
    slurm: Slurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "FAILED_SECONDS", 0.0)  # jobs of other tests may have failed on the node
    node, *_ = slurm.names
    where = slurm.addresses[node]

    codes = [
        carry_out(["slurm", "drain", "--addresses", where, "--incident", INCIDENT]),
        carry_out(["slurm", "nodes", "--addresses", f"{where},10.9.8.7"]),
        carry_out(["slurm", "jobs", "--addresses", where, "--incident", INCIDENT]),
        carry_out(["slurm", "resume", "--addresses", where, "--expires-at", "1"]),
        carry_out(["slurm", "drain", "--addresses", where]),
        carry_out(["slurm", "resume", "--addresses", where]),
    ]

    printed = capsys.readouterr()
    said = [json.loads(line) for line in printed.out.splitlines()]
    assert printed.err == "Slurm has no node at 10.9.8.7, or more than one\n"
    assert codes == [0, 0, 0, EXIT_REFUSED, EXIT_REFUSED, 0]
    assert said[0]["nodes"][where] == {
        "name": node,
        "address": where,
        "state": "drained",
        "reason": f"nodeheal:{INCIDENT}",
        "reason_by": said[0]["nodes"][where]["reason_by"],
        "since": said[0]["nodes"][where]["since"],
        "is_in_service": False,
        "incident": INCIDENT,
        "is_by_person": False,
        "jobs": [],
    }
    assert said[1]["nodes"].keys() == {where}
    assert said[2:5] == [
        {"jobs": []},
        {"error": "the command has expired"},
        {"error": "drain needs --incident with one incident for each of --addresses"},
    ]
    assert said[5]["nodes"][where]["is_in_service"]


def test_a_job_that_a_frozen_controller_takes_later_is_not_called_refused(alone: Alone, tmp_path: Path) -> None:
    slurm = alone(1, "MessageTimeout=2\n")
    script = tmp_path / "ghost.sbatch"
    script.write_text(f"#!/bin/sh\n#SBATCH --output={tmp_path}/%j.log\nexec sleep 600\n")
    slurm.freeze_controller()

    said = CliRunner().invoke(app, ["jobs", "submit", "--slurm", str(script)])
    slurm.thaw_controller()

    assert (said.exit_code, "it is not known whether the job is submitted" in said.stderr) == (6, True)
    look = said.stderr.rpartition(": `")[2].strip("`\n")
    slurm.wait(lambda: "ghost" in slurm.ask(*look.split()), "the job is there all the same")


def test_a_controller_that_is_down_or_hangs_is_no_answer(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = alone(1, "")
    where = slurm.addresses[slurm.names[0]]
    with monkeypatch.context() as patch:
        patch.setattr(agent, "SECONDS", 1.0)
        slurm.freeze_controller()
        began = time.monotonic()
        with pytest.raises(NoAnswerError, match=r"no answer within 1 s|Unable to contact|Socket timed out"):
            CONTROLLER.drain({where: INCIDENT})
        hung = time.monotonic() - began
        slurm.kill("slurmctld")
        code = carry_out(["slurm", "nodes"])

    assert hung < 30
    assert code == EXIT_NO_ANSWER
    slurm.forget_nodes()
    slurm.start_controller()
    # It is nobody's doing that slurmctld gives the node no work yet.
    assert CONTROLLER.nodes_at([where])[where].state == "unknown"
    CONTROLLER.drain({where: INCIDENT})
    slurm.wait(lambda: "unknown" not in slurm.states().values(), "the nodes have registered")
    found = CONTROLLER.nodes_at([where])[where]
    assert (found.state, found.reason) == ("drained", f"nodeheal:{INCIDENT}")
