"""What breaks around a node of a real Slurm, and what `nodeheal-agent slurm` then says and does."""

import pytest

from nodeheal.agent.slurm.controller import Controller
from sandbox.slurm import why_missing
from tests.slurm.cluster import Alone, Slurm
from tests.slurm.two_controllers import TwoControllers

CONTROLLER = Controller()
INCIDENT = "inc-20261127T035044-mi-0a-0123456789"


def test_a_job_that_slurm_holds_after_its_prolog_has_failed_is_told_and_stays_held(alone: Alone) -> None:
    slurm = alone(1, "SchedulerParameters=sched_interval=1,bf_interval=1\n")  # without nohold_on_prolog_fail
    [node] = slurm.names
    where = slurm.addresses[node]
    slurm.prolog(node, "exit 1")
    job = slurm.submit("exec sleep 600", f"--nodelist={node}", "--requeue")
    slurm.wait(lambda: slurm.job(job, "Reason") == "launch_failed_requeued_held", "the job is held")

    drained = CONTROLLER.drain({where: INCIDENT})
    answer = CONTROLLER.requeue(job, where, 0)
    CONTROLLER.resume([where])

    assert (drained[where].is_by_person, drained[where].reason) == (False, f"nodeheal:{INCIDENT}")
    assert (answer.requeued, answer.is_held) == (True, True)
    assert (slurm.job(job, "Priority"), slurm.job(job, "Restarts")) == ("0", "1")


def test_a_node_that_vanishes_during_its_prolog_loses_no_job(slurm: Slurm) -> None:
    node, *_ = slurm.names
    where = slurm.addresses[node]
    slurm.prolog(node, f"touch {slurm.folder}/began; exec sleep 600")
    job = slurm.submit("exec sleep 600", "--requeue")
    slurm.wait(lambda: (slurm.folder / "began").exists(), "the prolog runs")
    slurm.vanish(node)
    # Jobs of other tests may have failed there just before.
    [seen] = [one for one in CONTROLLER.jobs(list(CONTROLLER.nodes_at([where]).values())) if one.job_id == job]

    drained = CONTROLLER.drain({where: INCIDENT})
    answer = CONTROLLER.requeue(job, where, seen.restarts)

    assert seen.may_requeue
    assert (drained[where].state, answer.requeued) == ("draining", True)
    # Slurm lets the job wait for the node, which may only be slow: until it boots, or until SlurmdTimeout.
    assert slurm.job(job, "JobState") == "COMPLETING"
    slurm.prolog(node, "exit 0")
    slurm.start_node(node)
    slurm.run_until(job, "RUNNING")
    assert (node in slurm.nodes_of(job), slurm.job(job, "Restarts")) == (False, "1")
    found = CONTROLLER.nodes_at([where])[where]
    assert (found.state, found.reason) == ("drained", f"nodeheal:{INCIDENT}")
    assert CONTROLLER.resume([where])[where].is_in_service


def test_an_order_for_the_address_that_a_nodes_name_had_before_touches_nothing(slurm: Slurm) -> None:
    node, *_ = slurm.names
    old, new = slurm.addresses[node], slurm.addresses[node].replace("127.77.", "127.78.")
    slurm.ask("scontrol", "update", f"NodeName={node}", f"NodeAddr={new}")
    try:
        job = slurm.submit("exec sleep 600", f"--nodelist={node}", "--requeue")
        slurm.run_until(job, "RUNNING")

        assert CONTROLLER.drain({old: INCIDENT}) == {}
        assert not CONTROLLER.requeue(job, old, 0).requeued
        assert (slurm.states()[node], slurm.job(job, "JobState")) == ("allocated", "RUNNING")
        assert CONTROLLER.drain({new: INCIDENT})[new].name == node
        assert CONTROLLER.requeue(job, new, 0).requeued
    finally:
        slurm.ask("scontrol", "update", f"NodeName={node}", f"NodeAddr={old}")


@pytest.mark.skipif(bool(why_missing()), reason=why_missing())
def test_the_backup_answers_when_the_primary_controller_is_gone(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = TwoControllers(tmp_path_factory.mktemp("two"), 2)
    monkeypatch.setenv("SLURM_CONF", str(pair.cluster.configuration))
    try:
        pair.start()
        node = pair.take(2)[0]
        where = pair.addresses[node]
        job = pair.submit("exec sleep 600", f"--nodelist={node}", "--requeue")
        pair.run_until(job, "RUNNING")
        pair.wait(lambda: CONTROLLER.jobs(list(CONTROLLER.nodes_at([where]).values())), "the node has its job")
        [seen] = CONTROLLER.jobs(list(CONTROLLER.nodes_at([where]).values()))
        pair.wait_until_saved(job)
        pair.lose_primary()
        pair.wait(pair.answers, "the backup is in charge")

        drained = CONTROLLER.drain({where: INCIDENT})
        answer = CONTROLLER.requeue(job, where, seen.restarts)

        assert (drained[where].is_ours, answer.requeued) == (True, True)
        assert pair.job(job, "Restarts") == "1"
    finally:
        pair.close()
