"""`nodeheal-agent slurm` on a real Slurm: what it drains, requeues and resumes, and what it leaves alone."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from nodeheal.agent import slurm as agent
from nodeheal.agent.commands import carry_out
from nodeheal.agent.node_command import EXIT_REFUSED
from nodeheal.agent.slurm import EXIT_NO_ANSWER, NoAnswerError
from nodeheal.cli.main import app
from nodeheal.parsers.slurm_report import SlurmReport, unpack
from sandbox.slurm import why_missing
from tests.slurm.cluster import NAMES, PARTITION, Slurm, running

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())
INCIDENT = "inc-20261127T035044-mi-0a"


# What a cluster needs that powers nodes down. ParallelCluster has programs of its own there.
POWER_SAVING = """\
SuspendProgram={program}
ResumeProgram={program}
SuspendTime=86400
SuspendTimeout=5
"""


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with running(tmp_path_factory.mktemp("slurm")) as cluster:
        before = os.environ.get("SLURM_CONF")
        yield cluster
        os.environ.pop("SLURM_CONF", None)
        if before is not None:
            os.environ["SLURM_CONF"] = before


@pytest.fixture
def slurm(one: Slurm) -> Iterator[Slurm]:
    yield one
    one.ask("scancel", "--quiet", f"--partition={PARTITION}")
    one.wait(lambda: one.ask("squeue", "-h", "-t", "R,CG") == "", "no job runs")
    for name, state in one.states().items():
        if state != "idle":
            one.ask("scontrol", "update", f"NodeName={name}", "State=RESUME")
    one.wait(lambda: set(one.states().values()) == {"idle"}, "every node is free")


def test_a_drained_node_names_the_incident_and_is_given_back(slurm: Slurm) -> None:
    where = slurm.addresses["node1"]

    drained = slurm.controller.drain([where], INCIDENT)
    again = slurm.controller.drain([where], INCIDENT)

    assert (drained[where].name, drained[where].state) == ("node1", "drained")
    assert drained == again
    assert slurm.ask("sinfo", "-h", "-n", "node1", "-o", "%E") == f"nodeheal:{INCIDENT}"
    assert slurm.states()["node2"] == "idle"
    assert slurm.controller.resume([where])[where].is_in_service


def test_a_persons_reason_is_kept(slurm: Slurm) -> None:
    where = slurm.addresses["node2"]
    slurm.ask("scontrol", "update", "NodeName=node2", "State=DRAIN", "Reason=new riser card, ada")

    drained = slurm.controller.drain([where], INCIDENT)
    resumed = slurm.controller.resume([where])

    assert drained[where].is_by_person
    assert resumed[where].reason == "new riser card, ada"
    assert slurm.states()["node2"] == "drained"


def test_an_operators_replacement_is_a_persons_reason(slurm: Slurm) -> None:
    slurm.ask("scontrol", "update", "NodeName=node2", "State=FAIL", "Reason=Action:Replace")

    node = slurm.controller.drain([slurm.addresses["node2"]], INCIDENT)[slurm.addresses["node2"]]

    assert (node.is_by_person, node.reason) == (True, "Action:Replace")


def test_what_slurm_has_found_itself_is_replaced_by_our_reason(slurm: Slurm) -> None:
    where = slurm.addresses["node3"]
    slurm.ask("scontrol", "update", "NodeName=node3", "State=DRAIN", "Reason=Prolog error")

    assert slurm.controller.drain([where], INCIDENT)[where].reason == f"nodeheal:{INCIDENT}"


def test_a_cluster_is_told_to_replace_what_nodeheal_has_drained_and_nothing_else(slurm: Slurm) -> None:
    ours, hers = slurm.addresses["node1"], slurm.addresses["node2"]
    slurm.controller.drain([ours], INCIDENT)
    slurm.ask("scontrol", "update", "NodeName=node2", "State=DRAIN", "Reason=ada looks")

    answers = [slurm.controller.replace([ours, hers], "action_replace") for _ in range(2)]

    asked = [{where: is_asked for where, (_, is_asked) in answer.items()} for answer in answers]
    assert asked == [{ours: True, hers: False}] * 2
    assert (slurm.states()["node1"], slurm.states()["node2"]) == ("fail", "drained")
    assert slurm.ask("sinfo", "-h", "-n", "node1", "-o", "%E") == "Action:Replace"


def test_a_node_is_powered_down_so_that_its_cluster_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", "")
    program, powered = tmp_path / "power.sh", tmp_path / "powered"
    program.write_text(f"#!/bin/sh\necho $1 >> {powered}\n")
    program.chmod(0o755)
    with running(tmp_path, more=POWER_SAVING.format(program=program)) as cluster:
        where = cluster.addresses["node3"]
        cluster.controller.drain([where], INCIDENT)

        [(node, is_asked)] = cluster.controller.replace([where], "power_down").values()

        cluster.wait(lambda: powered.exists() and powered.read_text() == "node3\n", "its SuspendProgram has run")
        assert (node.name, is_asked) == ("node3", True)
        assert cluster.states()["node3"].startswith("idle")  # powering down, and not drained any more


def test_a_job_is_requeued_once_and_runs_again_elsewhere(slurm: Slurm) -> None:
    job = slurm.submit("srun sleep 600", "--nodes=2", "--requeue")
    slurm.run_until(job, "RUNNING")
    [first] = slurm.ask("squeue", "-h", "-j", job, "-o", "%B").split()
    where = slurm.addresses[first]
    assert slurm.controller.drain([where], INCIDENT)[where].state == "draining"
    [seen] = slurm.controller.jobs(list(slurm.controller.nodes_at([where]).values()))

    answers = [slurm.controller.requeue(job, where, seen.restarts) for _ in range(2)]

    assert (seen.job_id, seen.may_requeue, seen.nodes, seen.restarts) == (job, True, 2, 0)
    assert [(one.requeued, one.is_held) for one in answers] == [(True, False), (True, False)]
    slurm.run_until(job, "RUNNING")
    assert "Restarts=1 " in slurm.ask("scontrol", "-o", "show", "job", job)
    assert first not in slurm.ask("scontrol", "show", "hostnames", slurm.ask("squeue", "-h", "-j", job, "-o", "%N"))
    # The order that comes late, when the job runs elsewhere: it must not cost another start.
    assert slurm.controller.requeue(job, where, seen.restarts).requeued
    assert slurm.state_of_job(job) == "RUNNING"
    assert "Restarts=1 " in slurm.ask("scontrol", "-o", "show", "job", job)


@pytest.mark.parametrize(("ends", "restarts"), [("scontrol requeue", 1), ("scancel", 0)])
def test_a_job_that_its_owner_requeues_or_cancels_meanwhile_is_left_to_that(
    slurm: Slurm, ends: str, restarts: int
) -> None:
    # It does not go when it is told to, and so is COMPLETING for a while.
    job = slurm.submit("trap '' TERM; srun sleep 600", "--requeue")
    slurm.run_until(job, "RUNNING")
    [seen] = slurm.controller.jobs(slurm.controller.nodes())
    slurm.wait(lambda: slurm.ask("squeue", "-h", "-s", "-j", job, "-o", "%j").count("sleep") == 1, "its step has begun")
    slurm.ask(*ends.split(), job)
    slurm.run_until(job, "COMPLETING")

    answer = slurm.controller.requeue(job, slurm.addresses[seen.node_list], seen.restarts)

    assert answer.requeued is bool(restarts)
    assert slurm.controller.jobs(slurm.controller.nodes()) == []
    slurm.wait(lambda: slurm.state_of_job(job) in ("PENDING", "CANCELLED"), "it has left its node")
    assert f"Restarts={restarts} " in slurm.ask("scontrol", "-o", "show", "job", job)
    assert (slurm.state_of_job(job) == "CANCELLED") is (restarts == 0)


def test_a_job_that_was_requeued_too_often_is_held_for_a_person(slurm: Slurm) -> None:
    job = slurm.submit("sleep 600", "--nodelist=node1", "--requeue")
    slurm.run_until(job, "RUNNING")

    answer = slurm.controller.requeue(job, slurm.addresses["node1"], 0, hold=True)

    assert (answer.requeued, answer.is_held) == (True, True)
    slurm.wait(lambda: "held" in slurm.ask("squeue", "-h", "-j", job, "-o", "%r"), "the job is held")


@pytest.mark.parametrize("how", ["--no-requeue", "array"])
def test_a_job_is_requeued_only_if_its_owner_lets_it(slurm: Slurm, how: str) -> None:
    options = ["--array=0-1", "--requeue"] if how == "array" else [how]
    job = slurm.submit("sleep 600", "--nodelist=node1", *options) + ("_0" if how == "array" else "")
    slurm.run_until(job, "RUNNING")

    answer = slurm.controller.requeue(job, slurm.addresses["node1"], 0)

    assert answer.requeued is (how == "array")
    assert answer.requeued or slurm.state_of_job(job) == "RUNNING"
    assert answer.requeued or "its owner does not let it" in answer.why


def test_a_command_that_a_person_has_typed_is_left_alone(slurm: Slurm) -> None:
    script = "salloc --nodelist=node1 --no-shell --job-name=hand"
    slurm.ask(*script.split())
    [job] = slurm.controller.jobs(list(slurm.controller.nodes_at([slurm.addresses["node1"]]).values()))

    assert not job.may_requeue


def test_a_job_that_has_ended_is_not_started_again(slurm: Slurm) -> None:
    job = slurm.submit("true", "--requeue")
    slurm.run_until(job, "COMPLETED")

    answer = slurm.controller.requeue(job, slurm.addresses["node1"], 0)

    assert (answer.requeued, answer.why) == (False, "it had ended by itself, or Slurm does not know it any more")
    assert not slurm.controller.requeue("99999", slurm.addresses["node1"], 0).requeued


def test_a_job_that_has_just_failed_on_a_node_is_started_again_elsewhere(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = slurm.addresses["node1"]
    once = f"{tmp_path}/failed-once"
    script = f"test -e {once} && exec sleep 600; touch {once}; exit 3"
    job = slurm.submit(script, "--exclude=node3", "--requeue")
    other = slurm.submit("exit 3", "--nodelist=node1", "--no-requeue")
    for each in (job, other):
        slurm.run_until(each, "FAILED")
    slurm.controller.drain([where], INCIDENT)
    node = slurm.controller.nodes_at([where])[where]
    with monkeypatch.context() as patch:
        patch.setattr(agent, "FAILED_SECONDS", 0.0)
        a_while_ago = slurm.controller.jobs([node])
    [seen] = slurm.controller.jobs([node])

    answers = [slurm.controller.requeue(job, where, seen.restarts) for _ in range(2)]

    assert a_while_ago == []
    assert (seen.job_id, seen.has_failed) == (job, True)
    assert [one.requeued for one in answers] == [True, True]
    slurm.run_until(job, "RUNNING")
    assert slurm.ask("squeue", "-h", "-j", job, "-o", "%N") == "node2"
    assert "Restarts=1 " in slurm.ask("scontrol", "-o", "show", "job", job)


def test_a_job_that_has_failed_is_started_again_though_its_nodes_are_not_free_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", "")
    epilog = tmp_path / "epilog.sh"
    epilog.write_text("#!/bin/sh\nsleep 600\n")
    epilog.chmod(0o755)
    with running(tmp_path, more=f"Epilog={epilog}\n") as cluster:
        where = cluster.addresses["node1"]
        cluster.run_until(cluster.submit("exit 3", "--requeue", "--nodelist=node1"), "COMPLETING")
        cluster.controller.drain([where], INCIDENT)
        [seen] = cluster.controller.jobs(list(cluster.controller.nodes_at([where]).values()))

        assert cluster.controller.requeue(seen.job_id, where, seen.restarts).requeued
        assert cluster.controller.jobs(list(cluster.controller.nodes_at([where]).values())) == []
        assert "Restarts=1 " in cluster.ask("scontrol", "-o", "show", "job", seen.job_id)


def test_a_jobs_name_cannot_stand_for_another_job(slurm: Slurm) -> None:
    job = slurm.submit("sleep 600", "--nodelist=node1", "--job-name=x\n7|RUNNING|root|1|0|1|gpu|1|node1|x")
    slurm.run_until(job, "RUNNING")

    jobs = slurm.controller.jobs(list(slurm.controller.nodes_at([slurm.addresses["node1"]]).values()))

    assert [one.job_id for one in jobs] == [job]


def test_a_reason_with_a_line_break_hides_no_node(slurm: Slurm) -> None:
    slurm.ask("scontrol", "update", "NodeName=node3", "State=DRAIN", "Reason=first\nsecond")

    nodes = {node.name: node for node in slurm.controller.nodes()}

    assert nodes.keys() == set(NAMES)
    assert nodes["node3"].is_by_person


def report_of(capsys: pytest.CaptureFixture[str]) -> SlurmReport:
    """What the command prints, as operators read it."""
    assert carry_out(["slurm", "report"]) == 0
    return TypeAdapter(SlurmReport).validate_python(unpack(json.loads(capsys.readouterr().out)))


def test_a_report_says_who_has_taken_a_node_out_of_service_why_and_since_when(
    slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    before = int(time.time())
    slurm.ask("scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=ada looks\nnode2|x|down|root|1|nodeheal:x")
    slurm.ask("scontrol", "update", "NodeName=node3", "State=DRAIN", "Reason=Prolog error")
    slurm.controller.drain([slurm.addresses["node2"]], INCIDENT)

    nodes = {node.name: node for node in report_of(capsys).nodes}

    assert {name: (node.taken_by, node.reason, node.addresses) for name, node in nodes.items()} == {
        "node1": ("a person", "ada looks node2|x|down|root|1|nodeheal:x", (slurm.addresses["node1"],)),
        "node2": ("nodeheal", f"nodeheal:{INCIDENT}", (slurm.addresses["node2"],)),
        "node3": ("Slurm", "Prolog error", (slurm.addresses["node3"],)),
    }
    assert {node.state for node in nodes.values()} == {"drained"}
    assert {node.reason_by for node in nodes.values()} == {slurm.ask("id", "-un")}
    assert all(before <= (node.since or 0) <= time.time() for node in nodes.values())


def test_a_report_has_jobs_that_run_wait_and_have_ended(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm.controller
    forged = "x\n7|RUNNING|root|1|0|1|gpu|1|node1|x"
    failed = slurm.submit("exit 7", "--nodelist=node1", f"--job-name={forged}")
    killed = slurm.submit("kill -9 $$", "--nodelist=node1")
    array = slurm.submit("sleep 600", "--nodelist=node2", "--array=0-4", "--job-name=é|sweep", "--requeue")
    for job in (failed, killed):
        slurm.run_until(job, "FAILED")
    slurm.run_until(f"{array}_0", "RUNNING")

    report = report_of(capsys)

    jobs = {job.job_id: job for job in report.jobs}
    assert [(jobs[one].state, jobs[one].exit_code, jobs[one].signal) for one in (failed, killed)] == [
        ("FAILED", 7, 0),
        ("FAILED", 0),
    ]
    assert jobs[failed].name == " ".join(forged.split())
    assert jobs[failed].submitted_at <= jobs[failed].started_at <= jobs[failed].ended_at <= time.time()  # type: ignore[operator]
    runs, waits = jobs[f"{array}_0"], jobs[f"{array}_[1-4]"]
    assert (runs.state, runs.name, runs.node_list, runs.may_requeue) == ("RUNNING", "é|sweep", "node2", True)
    assert (runs.ended_at, runs.exit_code) == (None, None)
    assert (waits.state, waits.started_at, waits.node_list, bool(waits.reason)) == ("PENDING", None, "", True)
    assert report.jobs[0] == runs
    assert (report.more_nodes, report.more_jobs) == (0, 0)


def test_a_script_is_submitted_as_the_user_who_types_it(slurm: Slurm, tmp_path: Path) -> None:
    assert slurm.controller
    script = tmp_path / "train.sbatch"
    script.write_text(f"#!/bin/sh\n#SBATCH --no-kill\n#SBATCH --output={tmp_path}/%j.log\nsleep 600\n")
    words = ["jobs", "submit", "--slurm", str(script), "--json"]

    tried = CliRunner().invoke(app, [*words, "--dry-run", "--", "--nodelist=node1"])
    refused = CliRunner().invoke(app, [*words, "--", "--partition=nowhere"])
    said = CliRunner().invoke(app, [*words, "--", "--nodelist=node1"])

    assert (tried.exit_code, json.loads(tried.stdout)["job"]) == (0, None)
    assert "to start at" in json.loads(tried.stdout)["sbatch"]
    assert (refused.exit_code, "invalid partition" in refused.stderr) == (1, True)
    job = json.loads(said.stdout)["job"]
    slurm.run_until(job, "RUNNING")
    seen = slurm.ask("squeue", "-h", "-j", job, "--Format", "UserName:|,Requeue:|,NodeList:|,Name:|")
    assert seen == f"{slurm.ask('id', '-un')}|1|node1|train.sbatch|"


def test_a_job_whose_node_is_lost_is_reported_so(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm.controller
    job = slurm.submit("sleep 600", "--nodelist=node3", "--no-requeue")
    slurm.run_until(job, "RUNNING")

    slurm.ask("scontrol", "update", "NodeName=node3", "State=DOWN", "Reason=Not responding")

    slurm.run_until(job, "NODE_FAIL")
    [lost] = [one for one in report_of(capsys).jobs if one.job_id == job]
    assert (lost.node_list, lost.is_over, lost.may_requeue) == ("node3", True, False)


def test_an_address_that_no_node_has_is_no_node(slurm: Slurm) -> None:
    assert slurm.controller.nodes_at(["10.9.8.7"]) == {}
    assert slurm.controller.drain(["10.9.8.7"], INCIDENT) == {}
    assert set(slurm.states().values()) == {"idle"}


def test_the_command_answers_in_json(
    slurm: Slurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "FAILED_SECONDS", 0.0)  # jobs of other tests have failed here
    assert slurm.controller  # which leads the command to this cluster
    where = slurm.addresses["node1"]

    codes = [
        carry_out(["slurm", "drain", "--addresses", where, "--incident", INCIDENT]),
        carry_out(["slurm", "nodes", "--addresses", f"{where},10.9.8.7"]),
        carry_out(["slurm", "jobs", "--addresses", where]),
        carry_out(["slurm", "resume", "--addresses", where, "--expires-at", "1"]),
        carry_out(["slurm", "drain", "--addresses", where]),
        carry_out(["slurm", "resume", "--addresses", where]),
    ]

    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert codes == [0, 0, 0, EXIT_REFUSED, EXIT_REFUSED, 0]
    assert said[0]["nodes"][where] == {
        "name": "node1",
        "address": where,
        "state": "drained",
        "reason": f"nodeheal:{INCIDENT}",
        "reason_by": said[0]["nodes"][where]["reason_by"],
        "since": said[0]["nodes"][where]["since"],
        "is_in_service": False,
        "is_ours": True,
        "is_by_person": False,
        "has_jobs": False,
    }
    assert said[1]["nodes"].keys() == {where}
    assert said[2:5] == [{"jobs": []}, {"error": "the order has expired"}, {"error": "drain needs --incident"}]
    assert said[5]["nodes"][where]["is_in_service"]


def test_a_controller_that_is_down_or_hangs_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "SECONDS", 2.0)
    monkeypatch.setenv("SLURM_CONF", "")
    with running(tmp_path) as cluster:
        cluster.freeze_controller()
        began = time.monotonic()
        with pytest.raises(NoAnswerError, match=r"no answer within 2 s|Unable to contact|Socket timed out"):
            cluster.controller.drain([cluster.addresses["node1"]], INCIDENT)
        hung = time.monotonic() - began
        cluster.stop_controller()
        code = carry_out(["slurm", "nodes"])
        cluster.start_controller()
        cluster.wait(lambda: cluster.states()["node1"] == "idle", "node1 is as it was")

    assert hung < 30
    assert code == EXIT_NO_ANSWER
