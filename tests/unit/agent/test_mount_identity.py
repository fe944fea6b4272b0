"""What a node sees at a path: by the kernel's own list of mounts."""

import os
from pathlib import Path

import pytest

from nodeheal.agent.identity.mount_identity import see, see_apart

ROOT = "22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw"
TMP = "40 22 0:51 / {point} rw,relatime shared:9 - {kind} {source} rw,vers=4.1"


def mounts(proc: Path, *lines: str) -> Path:
    (proc / "self").mkdir(parents=True)
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "self/mountinfo").write_text("\n".join(lines))
    (proc / "sys/kernel/random/boot_id").write_text("machine-a\n")
    return proc


def test_the_innermost_mount_that_has_the_path_is_it(tmp_path: Path) -> None:
    shared = tmp_path / "fsx"
    (shared / "llama").mkdir(parents=True)
    proc = mounts(
        tmp_path / "proc",
        ROOT,
        TMP.format(point=tmp_path, kind="xfs", source="/dev/sdb"),
        TMP.format(point=shared, kind="nfs4", source="fs-1.efs:/a"),
        TMP.format(point=f"{shared}2", kind="tmpfs", source="tmpfs"),
    )

    seen = see(str(shared / "llama"), proc)

    assert (seen.file_system, seen.source, seen.machine) == ("nfs4", "fs-1.efs:/a", "machine-a")
    assert seen.inode == (shared / "llama").stat().st_ino


def test_a_path_that_is_a_link_is_seen_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to(tmp_path / "there")
    proc = mounts(tmp_path / "proc", ROOT)

    assert see(str(tmp_path / "here"), proc) == see(str(tmp_path / "there"), proc)


def test_without_a_list_of_mounts_the_file_system_is_not_known(tmp_path: Path) -> None:
    assert see(str(tmp_path), mounts(tmp_path / "proc", "nonsense")).file_system == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_folder_that_may_not_be_entered_is_something_that_nobody_can_tell(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "llama").mkdir(parents=True)
    closed.chmod(0)

    told = see_apart(str(closed / "llama"), 0, 5, lambda: None)

    assert told == f"{closed / 'llama'} cannot be read: Permission denied"


def test_a_look_that_hangs_is_over_at_its_deadline(tmp_path: Path) -> None:
    import time

    told = see_apart(str(tmp_path), 0, 0.2, lambda: time.sleep(30))

    assert told == "the file system did not answer within 0.2 s"


def test_a_look_that_breaks_says_so(tmp_path: Path) -> None:
    def breaks() -> None:
        raise RuntimeError("no such user")

    assert see_apart(str(tmp_path), 0, 5, breaks) == "the search process ended without an answer"
