"""Before a job's first start its nodes say whether they see one checkpoint directory; what follows from that."""

from typing import Any

import pytest

from nodeheal.adapters.memory.world import SentCommand
from nodeheal.contract.health_event import Sight
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.vocabulary import JobState, NodeState
from nodeheal.services.jobs.find_checkpoint import find_checkpoint
from nodeheal.services.jobs.job_steps import save_job
from nodeheal.services.jobs.see_directory import AGAIN_SECONDS
from nodeheal.services.jobs.submit_job import submit_job
from nodeheal.services.steps import save_node
from tests.support.builders import searches_in
from tests.support.job_cluster import NODES, SHARED, JobCluster, finishes
from tests.support.jobs import ecs_job_of

A, B, C, D = NODES
DIRECTORY = "/mnt/llama"
DISK = Sight(file_system="ext4", source="/dev/nvme0n1", inode=2, device=259, machine="machine-a")
OTHER_DISK = DISK.model_copy(update={"machine": "machine-b"})
STALE = SHARED.model_copy(update={"inode": 7})


def training(**spec: Any) -> JobCluster:
    it = JobCluster(**{"nodes": 3, "checkpoints": {"directory": DIRECTORY}, "preflight": {"level": 0}, **spec})
    it.happenings = [finishes]
    it.checkpoints = [(f"{DIRECTORY}/iter_0000007", 7)]
    return it


def looks(it: JobCluster) -> list[tuple[str, int]]:
    """Who was asked what it sees, and after how many seconds."""
    return [(sent.node_id, int(sent.parameters["SightAfter"])) for sent in it.asked_for_sights()]


def searches(it: JobCluster) -> list[str]:
    return [sent.node_id for sent in searches_in(it.ports)]


def left_of_looks(it: JobCluster) -> list[tuple[str, str]]:
    found = it.ports.operations.all_open()  # type: ignore[attr-defined]
    return [(one.verb, one.node_id) for one in found if "-look" in one.operation_id]


def test_nodes_that_share_it_are_asked_once_and_one_of_them_searches() -> None:
    it = training()

    seen = it.submit()

    assert seen.end == "Completed"
    assert seen.path.count("Find checkpoint") == 2
    assert looks(it) == [(A, 0), (B, 0), (C, 0)]
    assert searches(it) == [A]
    assert it.run.resumed_step == 7
    assert it.job.directory_seen == f"all 3 nodes share {DIRECTORY} (nfs4 fs-1:/)"
    assert left_of_looks(it) == []


def test_a_job_of_one_node_shares_with_nobody() -> None:
    it = training(nodes=1)

    it.submit()

    assert (looks(it), it.job.directory_seen) == ([], "")
    assert searches(it) == [A]


def test_a_node_with_a_disk_of_its_own_is_a_humans_and_the_job_starts_on_others() -> None:
    it = training()
    it.sees = {B: DISK}

    seen = it.submit()

    assert seen.end == "Completed"
    assert looks(it)[:6] == [(A, 0), (B, 0), (C, 0), *((name, AGAIN_SECONDS) for name in (A, B, C))]
    assert [task.node_id for task in it.run.tasks] == [A, C, D]
    incident = it.ports.incidents.history(str(it.node(B).open_incident)).incident
    assert (incident.root.code, incident.root.node_id) == ("preflight_directory", B)
    assert f"{B}: a disk of its own, ext4 /dev/nvme0n1" in incident.root.evidence
    assert it.node(B).claimed_by is None
    assert all(it.node(name).open_incident is None for name in (A, C, D))
    assert it.is_clean


def test_where_each_has_its_own_disk_the_job_file_is_wrong_and_no_node_is_accused() -> None:
    it = training()
    it.sees = {A: DISK, B: OTHER_DISK, C: DISK.model_copy(update={"machine": "machine-c"})}

    seen = it.submit()

    assert seen.end == "Escalated"
    assert it.job.state is JobState.FAILED
    assert it.job.summary.startswith(f"{DIRECTORY} is not one directory on all nodes: {A}: a disk of its own")
    assert all(name in it.job.summary for name in (A, B, C))
    assert "must be on a file system that all its nodes share" in it.job.summary
    assert it.job.current_run == 0
    assert all(it.node(name).open_incident is None for name in NODES)
    assert it.is_clean
    assert left_of_looks(it) == []


def test_what_a_client_remembers_of_a_folder_that_is_new_deceives_nobody() -> None:
    it = training()
    it.sees, it.sees_later = {C: STALE}, {C: SHARED}

    seen = it.submit()

    assert seen.end == "Completed"
    assert seen.path.count("Find checkpoint") == 3
    assert [task.node_id for task in it.run.tasks] == [A, B, C]
    assert it.job.directory_seen.startswith("all 3 nodes share")
    assert searches(it) == [A]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("too old", "agents do that which are older"),
        ("hangs", "no answer in time"),
        ("cannot tell", "the file system did not answer within 40 s"),
        ("takes no commands", "takes no commands"),
    ],
)
def test_who_cannot_say_holds_nobody_up_and_that_is_told(how: str, why: str) -> None:
    it = training()
    it.too_old |= {B} if how == "too old" else set()
    it.hangs |= {B} if how == "hangs" else set()
    it.sees = {B: "the file system did not answer within 40 s"} if how == "cannot tell" else {}
    if how == "takes no commands":
        it.ports.commands.unknown_nodes.add(B)  # type: ignore[attr-defined]

    seen = it.submit()

    assert seen.end == "Completed"
    assert it.job.directory_seen.startswith(f"not known whether all nodes share {DIRECTORY}: {B}: ")
    assert why in it.job.directory_seen
    assert it.run.resumed_step == 7
    assert left_of_looks(it) == []
    told = [one.body for _, one in it.ports.notifier.announced if "has started" in one.subject]  # type: ignore[attr-defined]
    assert ["Directory: not known whether" in body for body in told] == [True]


def test_a_silent_node_does_not_excuse_the_others() -> None:
    it = training()
    it.hangs.add(A)
    it.sees = {B: DISK, C: OTHER_DISK}

    assert it.submit().end == "Escalated"


def test_a_job_that_is_stopped_meanwhile_is_stopped_and_accuses_nobody() -> None:
    it = training()
    it.sees = {B: DISK}
    looked: list[str] = []

    def stops_at_the_second_look(sent: SentCommand) -> None:
        if sent.parameters["SightAfter"] != "0" and not looked:
            looked.append(sent.node_id)
            save_job(it.ports, "llama", stop_wanted="ada: wrong data")
        says(sent)

    says, it._says_what_it_sees = it._says_what_it_sees, stops_at_the_second_look  # type: ignore[method-assign]

    seen = it.submit()

    assert seen.end == "Stopped"
    assert it.node(B).open_incident is None
    assert it.is_clean


def test_an_answer_of_another_boot_is_not_taken() -> None:
    it = training()
    submit_job(ecs_job_of(it.spec, "training", "trainer:1", it.clock()), it.ports)
    asks(it, "first")
    save_node(it.ports, it.node(B), boot_id="boot-2", state=NodeState.HEALTHY)

    it._somebody_looks()

    assert left_of_looks(it) == [("FAN_OUT", ""), ("LOOK_AT_DIRECTORY", B)]
    assert "first" not in it.ports.workflows.resumed  # type: ignore[attr-defined]


def test_a_repeated_call_asks_nobody_twice_and_the_answers_go_to_the_newer_one() -> None:
    it = training()
    submit_job(ecs_job_of(it.spec, "training", "trainer:1", it.clock()), it.ports)
    asks(it, "first")
    it._says_what_it_sees(it.asked_for_sights()[0])

    asks(it, "second")
    it._sights_answered = 1
    it._somebody_looks()

    assert looks(it) == [(A, 0), (B, 0), (C, 0)]
    assert list(it.ports.workflows.resumed) == ["second"]  # type: ignore[attr-defined]
    assert left_of_looks(it) == []


def asks(it: JobCluster, token: str) -> None:
    """The step is called for the first time in this round."""
    last: dict[str, Any] = {"step": "CHOOSE", "job_id": "llama", "outcome": "DONE", "then": "LAUNCH", "reason": "r"}
    last |= {"finished_at": it.clock(), "nodes": (A, B, C)}
    given: dict[str, Any] = {"job_id": "llama", "submission": 1, "round": 1, "last": last, "task_token": token}
    find_checkpoint(JobRequest.model_validate(given), it.ports, it.policy)
