"""`nodeheal-agent slurm` on a real Slurm: what it drains, requeues and resumes, and what it leaves alone."""

import getpass
import json
import time

import pytest

from nodeheal.agent import slurm as agent
from nodeheal.agent.commands import carry_out
from nodeheal.agent.node_command import EXIT_REFUSED
from nodeheal.agent.slurm import EXIT_NO_ANSWER, Controller, NoAnswerError
from tests.slurm.cluster import Slurm

CONTROLLER = Controller()
INCIDENT = "inc-20261127T035044-mi-0a"


def test_a_drained_node_names_the_incident_and_is_given_back(slurm: Slurm) -> None:
    node, other, _ = slurm.names
    where = slurm.addresses[node]

    drained = CONTROLLER.drain([where], INCIDENT)
    again = CONTROLLER.drain([where], INCIDENT)

    assert (drained[where].name, drained[where].state, drained[where].has_jobs) == (node, "drained", False)
    assert drained == again
    assert slurm.ask("sinfo", "-h", "-n", node, "-o", "%E") == f"nodeheal:{INCIDENT}"
    assert slurm.states()[other] == "idle"
    assert CONTROLLER.resume([where])[where].is_in_service


@pytest.mark.parametrize(
    ("state", "reason"),
    [("DRAIN", "new riser card, ada"), ("FAIL", "Action:Replace"), ("DOWN", "Not responding to ada")],
)
def test_a_persons_reason_is_kept(slurm: Slurm, state: str, reason: str) -> None:
    node, *_ = slurm.names
    where = slurm.addresses[node]
    slurm.ask("scontrol", "update", f"NodeName={node}", f"State={state}", f"Reason={reason}")
    before = slurm.states()[node]

    seen = [CONTROLLER.nodes_at([where]), CONTROLLER.drain([where], INCIDENT), CONTROLLER.resume([where])]

    who = getpass.getuser()
    assert [(one[where].is_by_person, one[where].reason, one[where].reason_by) for one in seen] == [
        (True, reason, who)
    ] * 3
    assert slurm.states()[node] == before


def test_what_slurm_has_found_itself_is_replaced_by_our_reason(slurm: Slurm) -> None:
    node, *_ = slurm.names
    where = slurm.addresses[node]
    slurm.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=Prolog error")

    assert CONTROLLER.drain([where], INCIDENT)[where].reason == f"nodeheal:{INCIDENT}"


def test_a_job_is_requeued_once_and_runs_again_elsewhere(cluster: Slurm, slurm: Slurm) -> None:
    """A job of 32 nodes, of which one breaks."""
    cluster.take(36)
    job = slurm.submit(
        "srun bash -c 'echo $SLURMD_NODENAME' | sort -u | wc -l; exec sleep 600", "--nodes=32", "--requeue"
    )
    slurm.wait(lambda: slurm.output_of(job) == ["32"], "the job has counted its nodes")
    broken = slurm.nodes_of(job)[7]
    where = slurm.addresses[broken]
    assert CONTROLLER.drain([where], INCIDENT)[where].has_jobs
    [seen] = CONTROLLER.jobs(list(CONTROLLER.nodes_at([where]).values()))

    answers = [CONTROLLER.requeue(job, where, seen.restarts, 9) for _ in range(2)]

    assert (seen.job_id, seen.may_requeue, seen.nodes, seen.restarts) == (job, True, 32, 0)
    assert [(one.requeued, one.is_held) for one in answers] == [(True, False), (True, False)]
    slurm.wait(lambda: slurm.output_of(job).count("32") == 2, "the job has counted its nodes again")
    assert (len(slurm.nodes_of(job)), broken in slurm.nodes_of(job), slurm.job(job, "Restarts")) == (32, False, "1")
    # The order that comes late, when the job runs elsewhere: it must not cost another start.
    assert CONTROLLER.requeue(job, where, seen.restarts, 9).requeued
    assert (slurm.job(job, "JobState"), slurm.job(job, "Restarts")) == ("RUNNING", "1")


def test_a_job_that_was_requeued_too_often_is_held_for_a_person(slurm: Slurm) -> None:
    node, *_ = slurm.names
    job = slurm.submit("exec sleep 600", f"--nodelist={node}", "--requeue")
    slurm.run_until(job, "RUNNING")

    answer = CONTROLLER.requeue(job, slurm.addresses[node], 0, 0)

    assert (answer.requeued, answer.is_held) == (True, True)
    slurm.wait(lambda: slurm.job(job, "Reason") == "job_requeued_in_held_state", "the job is held")


@pytest.mark.parametrize("how", ["--no-requeue", "array"])
def test_a_job_is_requeued_only_if_its_owner_lets_it(slurm: Slurm, how: str) -> None:
    node, *_ = slurm.names
    options = ["--array=0-1", "--requeue"] if how == "array" else [how]
    job = slurm.submit("exec sleep 600", f"--nodelist={node}", *options) + ("_0" if how == "array" else "")
    slurm.run_until(job, "RUNNING")

    answer = CONTROLLER.requeue(job, slurm.addresses[node], 0, 9)

    assert answer.requeued is (how == "array")
    assert answer.requeued or slurm.job(job, "JobState") == "RUNNING"
    assert answer.requeued or "its owner does not let it" in answer.why


def test_a_command_that_a_person_has_typed_is_left_alone(slurm: Slurm) -> None:
    node, *_ = slurm.names
    found = CONTROLLER.nodes_at([slurm.addresses[node]])
    slurm.begin("salloc", ["salloc", f"--nodelist={node}", "--no-shell"])
    slurm.wait(lambda: CONTROLLER.jobs(list(found.values())), "the node has a job")

    assert [job.may_requeue for job in CONTROLLER.jobs(list(found.values()))] == [False]


def test_a_job_that_has_ended_is_not_started_again(slurm: Slurm) -> None:
    where = slurm.addresses[slurm.names[0]]
    job = slurm.submit("true", "--requeue")
    slurm.run_until(job, "COMPLETED")

    answer = CONTROLLER.requeue(job, where, 0, 9)

    assert (answer.requeued, answer.why) == (False, "it had ended by itself, or Slurm does not know it any more")
    assert not CONTROLLER.requeue("99999", where, 0, 9).requeued


def test_a_jobs_name_cannot_stand_for_another_job(slurm: Slurm) -> None:
    node, *_ = slurm.names
    name = f"x\n7|RUNNING|root|1|0|1|gpu|1|{node}|x"
    job = slurm.submit("exec sleep 600", f"--nodelist={node}", f"--job-name={name}")
    slurm.run_until(job, "RUNNING")

    jobs = CONTROLLER.jobs(list(CONTROLLER.nodes_at([slurm.addresses[node]]).values()))

    assert [one.job_id for one in jobs] == [job]


def test_a_reason_with_a_line_break_hides_no_node(slurm: Slurm) -> None:
    node, *_ = slurm.names
    slurm.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=first\nsecond")

    nodes = {node.name: node for node in CONTROLLER.nodes()}

    assert nodes.keys() == slurm.addresses.keys()
    assert nodes[node].is_by_person


def test_an_address_that_no_node_has_is_no_node(slurm: Slurm) -> None:
    assert CONTROLLER.nodes_at(["10.9.8.7"]) == {}
    assert CONTROLLER.drain(["10.9.8.7"], INCIDENT) == {}
    assert set(slurm.states().values()) == {"idle"}


def test_the_command_answers_in_json(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    node, *_ = slurm.names
    where = slurm.addresses[node]

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
        "name": node,
        "address": where,
        "state": "drained",
        "reason": f"nodeheal:{INCIDENT}",
        "reason_by": said[0]["nodes"][where]["reason_by"],
        "is_in_service": False,
        "is_ours": True,
        "is_by_person": False,
        "has_jobs": False,
    }
    assert said[1]["nodes"].keys() == {where}
    assert said[2:5] == [{"jobs": []}, {"error": "the order has expired"}, {"error": "drain needs --incident"}]
    assert said[5]["nodes"][where]["is_in_service"]


def test_a_controller_that_is_down_or_hangs_is_no_answer(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    where = slurm.addresses[slurm.names[0]]
    with monkeypatch.context() as patch:
        patch.setattr(agent, "SECONDS", 1.0)
        slurm.freeze_controller()
        began = time.monotonic()
        with pytest.raises(NoAnswerError, match=r"no answer within 1 s|Unable to contact|Socket timed out"):
            CONTROLLER.drain([where], INCIDENT)
        hung = time.monotonic() - began
        slurm.kill("slurmctld")
        code = carry_out(["slurm", "nodes"])

    assert hung < 30
    assert code == EXIT_NO_ANSWER
    slurm.forget_nodes()
    slurm.start_controller()
    # It is nobody's doing that slurmctld gives the node no work yet.
    assert CONTROLLER.nodes_at([where])[where].state == "unknown"
    CONTROLLER.drain([where], INCIDENT)
    slurm.wait(lambda: "unknown" not in slurm.states().values(), "the nodes have registered")
    found = CONTROLLER.nodes_at([where])[where]
    assert (found.state, found.reason) == ("drained", f"nodeheal:{INCIDENT}")
