"""The disk check: what became read-only, and what has no room."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.agent.checks.check import CheckContext, NodeCheckResult
from nodeheal.agent.checks.disk import CHECK, MountEntry, judge, parse_mountinfo, parse_mounts
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.runtime.thresholds import DISK_FULL
from tests.support.agent_fakes import CONFIG

ROOT = "22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 {}"


def place(folder: Path, mounts: str, fstab: str | None = None) -> CheckContext:
    (folder / "self").mkdir(exist_ok=True)
    (folder / "self/mountinfo").write_text(mounts)
    if fstab is not None:
        (folder / "fstab").write_text(fstab)
    return CheckContext(CONFIG, run_tool, proc=folder, etc=folder)


def codes(look: NodeCheckResult) -> list[str]:
    return [problem.finding.code for problem in look.problems if problem.finding.code != "disk_full"]


def test_a_file_system_that_has_become_read_only_is_a_problem(tmp_path: Path) -> None:
    before = CHECK.look(place(tmp_path, ROOT.format("rw,relatime")), {})

    after = CHECK.look(place(tmp_path, ROOT.format("ro,relatime")), before.state)
    and_then = CHECK.look(place(tmp_path, ROOT.format("ro,relatime")), after.state)

    assert [codes(look) for look in (before, after, and_then)] == [[], ["disk_read_only"], ["disk_read_only"]]
    assert "/dev/nvme0n1p1 on / has become read-only" in [problem.evidence for problem in after.problems]


@pytest.mark.parametrize(
    ("fstab", "expected"),
    [
        (None, []),
        ("LABEL=root / ext4 ro 0 1", []),
        ("LABEL=root / ext4 ro 0 1\n# / is a comment\nLABEL=x /", []),
        ("# / is a comment\nLABEL=root / ext4 defaults 0 1", ["disk_read_only"]),
    ],
)
def test_one_that_was_so_at_the_first_look_is_one_only_where_fstab_says_otherwise(
    tmp_path: Path, fstab: str | None, expected: list[str]
) -> None:
    first = CHECK.look(place(tmp_path, ROOT.format("ro"), fstab), {})

    second = CHECK.look(place(tmp_path, ROOT.format("ro"), fstab), first.state)

    assert (codes(first), codes(second)) == (expected, expected)


@pytest.mark.parametrize(("used", "count"), [(97.9, 0), (98.0, 1)])
def test_one_without_room_is_a_problem(used: float, count: int) -> None:
    mounts = [MountEntry("/dev/sda1", "/", "ext4", frozenset({"rw"}))]

    assert len(list(judge(mounts, (), {"/": used}, DISK_FULL.default))) == count


def test_what_others_mount_is_their_affair(tmp_path: Path) -> None:
    seen = (("/mnt/a\\040b", "ext4"), ("/tmp", "tmpfs"), ("/home", "nfs4"))
    other = "\n".join(f"30 22 8:1 / {point} ro - {kind} /dev/sdb ro" for point, kind in seen)

    look = CHECK.look(place(tmp_path, other), {"writable": ["/mnt/a b", "/home", "/tmp"]})

    assert (look.problems, look.gauges) == ((), {})


def test_the_room_of_this_machine_is_measured(tmp_path: Path) -> None:
    look = CHECK.look(place(tmp_path, ROOT.format("rw")), {})

    assert 0.0 <= look.gauges["disk_used_percent:/"] <= 100.0


@pytest.mark.parametrize(("blocks_left", "inodes_left", "used"), [(50, 1, 99.0), (1, 50, 99.0), (50, 40, 60.0)])
def test_what_runs_out_first_is_what_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks_left: int, inodes_left: int, used: float
) -> None:
    room = os.statvfs_result((4096, 4096, 100, blocks_left, blocks_left, 100, inodes_left, inodes_left, 0, 255))
    monkeypatch.setattr("nodeheal.agent.checks.disk.os.statvfs", lambda _: room)

    look = CHECK.look(place(tmp_path, ROOT.format("rw")), {})

    assert look.gauges["disk_used_percent:/"] == pytest.approx(used)


@given(st.binary())
def test_any_bytes_are_read_without_a_word(content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    for mount in (*parse_mounts(text), *parse_mountinfo(text), *parse_mountinfo(f"1 2 3 / /x ro - {text}")):
        assert mount.point


@pytest.mark.parametrize(
    ("view", "superblock", "expected"),
    [
        ("ro,relatime", "rw,errors=continue", []),  # as ProtectSystem= makes it
        ("rw,relatime", "ro", ["disk_read_only"]),
        ("rw,relatime", "rw,emergency_ro", ["disk_read_only"]),
        ("rw,relatime", "rw,shutdown", ["disk_read_only"]),
    ],
)
def test_the_file_system_is_judged_and_not_this_service_s_view_of_it(
    tmp_path: Path, view: str, superblock: str, expected: list[str]
) -> None:
    mounts = f"22 1 259:1 / / {view} shared:1 master:2 - ext4 /dev/sda1 {superblock}"

    look = CHECK.look(place(tmp_path, mounts), {"writable": ["/"]})

    assert codes(look) == expected


@pytest.mark.parametrize(
    "line", ["22 1 259:1 / / - ext4 /dev/sda1 rw", "22 1 259:1 / / rw shared:1 - ext4 /dev/sda1", "22 1 259:1 / / rw"]
)
def test_a_line_without_all_of_its_words_is_no_mount(line: str) -> None:
    assert parse_mountinfo(line) == []


@pytest.mark.parametrize(("line", "count"), [("/dev/sda / ext4", 0), ("/dev/sda / ext4 rw", 1), ("# / ext4 rw", 0)])
def test_a_line_of_fstab_has_four_words_at_least(line: str, count: int) -> None:
    assert len(parse_mounts(line)) == count


def test_a_file_system_that_counts_no_inodes_has_room_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = os.statvfs_result((4096, 4096, 100, 50, 50, 0, 0, 0, 0, 255))
    monkeypatch.setattr("nodeheal.agent.checks.disk.os.statvfs", lambda _: room)

    look = CHECK.look(place(tmp_path, ROOT.format("rw")), {})

    assert (look.gauges, look.summary, look.unclear) == ({"disk_used_percent:/": 50.0}, "local file systems: /", "")
    assert CHECK.look(place(tmp_path, ROOT.format("rw").replace("ext4", "nfs4")), {}).summary.endswith(": none")


def test_a_list_of_mounts_that_is_not_understood_is_not_taken_for_health(tmp_path: Path) -> None:
    assert CHECK.look(place(tmp_path, "nonsense"), {}).unclear


def test_of_several_on_one_point_the_last_is_seen_and_blanks_are_read() -> None:
    lines = [f"22 1 8:1 / /a\\040b rw - ext4 /dev/sda {options}" for options in ("rw", "ro")]

    assert parse_mountinfo("\n".join(lines)) == [MountEntry("/dev/sda", "/a b", "ext4", frozenset({"ro"}))]
