"""Do the nodes of a job see one directory? By what each of them sees there, and never by a guess."""

from typing import Any

import pytest

from nodeheal.contract.health_event import Sight
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobStep, Next, Outcome, Verdict
from nodeheal.domain.jobs.shared_directory import LOCAL, is_shared
from nodeheal.ports import Ports
from nodeheal.services.jobs import see_directory
from tests.support.builders import NOW

A, B, C, D = "mi-a", "mi-b", "mi-c", "mi-d"
FSX = Sight(file_system="lustre", source="10.0.0.1@tcp:/fsx", inode=144115188193296385, device=51)
NFS = Sight(file_system="nfs4", source="fs-1:/", inode=64, device=50)
OTHER_NFS = NFS.model_copy(update={"inode": 65})
DISK = Sight(file_system="ext4", source="/dev/nvme0n1p1", inode=2, device=259, machine="machine-a")
OTHER_DISK = DISK.model_copy(update={"machine": "machine-b"})
THIRD_DISK = DISK.model_copy(update={"machine": "machine-c"})
BUCKET = Sight(file_system="fuse.s3fs", source="s3fs", inode=1, device=60)
OTHER_BUCKET = BUCKET.model_copy(update={"source": "another"})


@pytest.mark.parametrize(
    "sights",
    [
        {A: FSX, B: FSX},
        {A: NFS, B: NFS.model_copy(update={"source": "10.0.0.5:/", "device": 99})},
        {A: NFS, B: NFS.model_copy(update={"file_system": "nfs"})},
        {A: NFS.model_copy(update={"missing": "run-7"}), B: NFS.model_copy(update={"missing": "run-7"})},
        {A: DISK, B: DISK},
        {A: BUCKET, B: BUCKET.model_copy(update={"inode": 7})},
    ],
    ids=["lustre", "by another address", "by another version", "not there yet", "one machine", "numbers of the client"],
)
def test_nodes_that_see_one_folder_share_it(sights: dict[str, Sight | str]) -> None:
    found = is_shared("/ckpt", sights)

    assert (found.verdict, found.accused) == (Verdict.OK, ())
    assert found.reason.startswith("both nodes share /ckpt (")
    assert ("; run-7 is not there yet)" in found.reason) is ("run-7" in str(sights))


@pytest.mark.parametrize(
    ("sights", "accused"),
    [
        ({A: NFS, B: NFS, C: DISK}, (C,)),
        ({A: DISK, B: NFS}, (A,)),
        ({A: NFS, B: NFS, C: DISK, D: OTHER_DISK}, (C, D)),
        ({A: FSX, B: FSX, C: OTHER_NFS, D: DISK}, (D,)),
        ({A: NFS, B: NFS, C: OTHER_NFS}, (C,)),
        ({A: DISK, B: DISK, C: OTHER_DISK}, (C,)),
        ({A: DISK, B: OTHER_DISK}, ()),
        ({A: DISK, B: OTHER_DISK, C: THIRD_DISK}, ()),
        ({A: NFS, B: OTHER_NFS}, ()),
        ({A: NFS, B: DISK, C: OTHER_DISK}, ()),
        ({A: NFS, B: NFS, C: OTHER_NFS, D: OTHER_NFS}, ()),
        ({A: DISK, B: DISK, C: OTHER_DISK, D: OTHER_DISK}, ()),
    ],
    ids=[
        "one has its own disk",
        "one of two has its own disk",
        "half of them lack what the others have",
        "nobody is accused of what is not certain",
        "one has another export",
        "one is another machine",
        "each its own disk",
        "three disks",
        "two exports",
        "most have their own disks",
        "two halves",
        "two machines",
    ],
)
def test_who_stands_out_from_those_that_agree_is_accused_and_nobody_else(
    sights: dict[str, Sight | str], accused: tuple[str, ...]
) -> None:
    found = is_shared("/ckpt", sights)

    assert (found.verdict, found.accused) == (Verdict.FAILED, accused)
    assert found.reason.startswith("/ckpt is not one directory on all nodes: ")
    assert all(name in found.reason for name in sights)


def test_a_folder_that_one_of_them_does_not_see_is_not_the_same() -> None:
    found = is_shared("/ckpt", {A: NFS, B: NFS, C: NFS.model_copy(update={"inode": 2, "missing": "ckpt"})})

    assert found.accused == (C,)
    assert "where ckpt is missing" in found.reason


@pytest.mark.parametrize(
    "sights",
    [
        {A: NFS, B: "no answer in time"},
        {A: "it hangs", B: "it hangs"},
        {A: BUCKET, B: OTHER_BUCKET},
        {A: FSX, B: NFS},
        {A: BUCKET, B: NFS},
    ],
    ids=["a silent node", "only silent ones", "two names", "two kinds", "a bucket"],
)
def test_what_nobody_can_tell_is_not_known_and_accuses_nobody(sights: dict[str, Sight | str]) -> None:
    found = is_shared("/ckpt", sights)

    assert (found.verdict, found.accused) == (Verdict.UNKNOWN, ())
    assert found.reason.startswith("not known whether all nodes share /ckpt: ")


def test_a_silent_node_hides_nothing_that_is_certain() -> None:
    found = is_shared("/ckpt", {A: "no answer in time", B: DISK, C: OTHER_DISK})

    assert found.verdict is Verdict.FAILED


def test_what_is_shared_by_nature_is_no_disk_of_the_nodes_own() -> None:
    assert LOCAL.isdisjoint({"nfs", "nfs4", "lustre", "ceph", "beegfs", "gpfs", "wekafs", "gfs2", "ocfs2", "9p"})


@pytest.mark.parametrize(
    ("second", "first", "told"),
    [
        (None, NFS, NFS),
        ("it hangs", NFS, NFS),
        ("it hangs", "too old", "it hangs"),
        (None, None, see_directory._SILENT),
    ],
)
def test_the_last_time_that_a_node_could_see_the_directory_counts(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch, second: Any, first: Any, told: Any
) -> None:
    known: dict[str, Any] = {"step": JobStep.CHOOSE, "job_id": "llama", "outcome": Outcome.DONE, "finished_at": NOW}
    last = JobResult(**known, then=Next.LAUNCH, reason="so", nodes=("mi-a",))
    request = JobRequest(job_id="llama", submission=1, round=0, searches=2, last=last)
    answers = iter([second, first])
    monkeypatch.setattr(see_directory, "_look", lambda *_: None)
    monkeypatch.setattr(see_directory, "sight_of", lambda *_: next(answers))

    assert see_directory._sights(request, three_nodes) == {"mi-a": told}
