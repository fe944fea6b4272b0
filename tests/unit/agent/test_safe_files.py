"""S13: no order follows a link, whoever made it, in a folder where others can write."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeheal.agent.checks import progress
from nodeheal.agent.checks.check import CheckContext
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.commands.copy_credentials import copy_credentials
from nodeheal.agent.evidence import host_snapshot
from nodeheal.agent.evidence.evidence_commands import evidence_commands
from nodeheal.agent.runtime.config import load
from nodeheal.agent.transport.spool import Spool
from tests.support.agent_commands import ask, inject, log_of
from tests.support.agent_commands import requests as requests
from tests.support.agent_config import ME, profile
from tests.support.agent_fakes import FakeTime, NodeFolder

SECRET = "aws_secret_access_key = of root"
AGENT = Path(host_snapshot.__file__).parents[1]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "credentials"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


@pytest.fixture
def crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the kernel's last words are saved, and everybody can write."""
    folder = tmp_path / "crash"
    folder.mkdir(mode=0o1777)
    monkeypatch.setattr(host_snapshot, "LAST_BOOT", (str(folder), str(tmp_path / "missing")))
    return folder


def a_link(crash: Path, secret: Path) -> None:
    (crash / "vmcore").symlink_to(secret)


def a_link_in_a_folder(crash: Path, secret: Path) -> None:
    (crash / "mine").mkdir()
    (crash / "mine" / "vmcore").symlink_to(secret)


def a_linked_folder(crash: Path, secret: Path) -> None:
    (crash / "mine").symlink_to(secret.parent)


def a_hard_link(crash: Path, secret: Path) -> None:
    (crash / "vmcore").hardlink_to(secret)


def a_pipe(crash: Path, secret: Path) -> None:
    os.mkfifo(crash / "vmcore")


@pytest.mark.parametrize("plant", [a_link, a_link_in_a_folder, a_linked_folder, a_hard_link, a_pipe])
@pytest.mark.timeout(20)
def test_evidence_of_the_last_boot_has_nothing_that_a_link_leads_to(
    crash: Path, secret: Path, plant: Callable[[Path, Path], None]
) -> None:
    """S13: a user's link in /var/crash put root's credentials into the evidence."""
    (crash / "dmesg").write_text("Kernel panic")
    (crash / "2026").mkdir()
    (crash / "2026" / "dmesg").write_text("Oops")
    plant(crash, secret)

    assert list(host_snapshot.last_boot()) == [f"{crash}/2026/dmesg: Oops", f"{crash}/dmesg: Kernel panic"]


def test_evidence_of_the_last_boot_has_no_file_of_another_user(crash: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S13: the kernel's files are root's. All others are left out."""
    (crash / "mine").mkdir()
    (crash / "mine" / "vmcore").write_text("of a user")
    (crash / "dump").write_text("of a user")
    assert len(list(host_snapshot.last_boot())) == 2

    me = os.geteuid()
    monkeypatch.setattr("nodeheal.agent.runtime.safe_files.os.geteuid", lambda: me + 1)

    assert list(host_snapshot.last_boot()) == []


def test_evidence_of_a_kernel_log_does_not_follow_a_link(
    node: NodeFolder, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S13: the folder of a log belongs to the program that writes the log, not to root."""
    log = log_of(node)
    line = "Nov 21 05:50:31 gpu-7 kernel: NVRM: Xid 79"
    log.write_text(line)
    (commands := [one.command for one in evidence_commands(load(node.config_file), False) if "kernel-log" in one.name])[
        0
    ]
    for command in commands:
        assert command[1:4] == ("-m", "nodeheal.agent.evidence.host_snapshot", "log-end")
        host_snapshot.main(*command[3:])
    assert capsys.readouterr().out == f"{line}\n(No such file or directory)\n"

    log.unlink()
    log.symlink_to(secret)
    host_snapshot.main(*commands[0][3:])

    assert SECRET not in capsys.readouterr().out


def test_evidence_of_a_log_has_the_kernels_lines_and_no_programs(tmp_path: Path) -> None:
    """U5: a password typed at sudo, a token in a line of cron."""
    kernels = [
        "Nov 21 05:50:31 gpu-7 kernel: [  12.345678] NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.",
        "2026-11-21T05:50:31.123456+00:00 gpu-7 kernel: mlx5_core 0000:9a:00.0: link down",
        "<3>1 2026-11-21T05:50:31.123Z gpu-7 kernel - - - EDAC MC0: 1 UE",
    ]
    others = [
        f"Nov 21 05:50:31 gpu-7 sudo: ada : COMMAND=/bin/login {SECRET}",
        f"Nov 21 05:50:31 gpu-7 CRON[812]: (root) CMD (curl -H 'Authorization: {SECRET}')",
        f"Nov 21 05:50:31 gpu-7 app[7]: kernel: {SECRET}",
        f"<86>1 2026-11-21T05:50:31.123Z gpu-7 kernel - - - {SECRET}",
        SECRET,
    ]
    (tmp_path / "log").write_text(
        "\n".join(line for pair in zip(others, [*kernels, "", ""], strict=True) for line in pair)
    )

    assert list(host_snapshot.log_end(str(tmp_path / "log"))) == kernels


def test_a_long_log_is_cut_at_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"Nov 21 05:50:31 gpu-7 kernel: line {number}" for number in range(3)]
    monkeypatch.setattr(host_snapshot, "LOG_BYTES", len(lines[-1]))
    (tmp_path / "log").write_text("\n".join(lines))

    assert list(host_snapshot.log_end(str(tmp_path / "log"))) == lines[-1:]


def test_a_request_for_a_checkpoint_writes_no_other_file(node: NodeFolder, requests: Path, secret: Path) -> None:
    """S13: tasks may be able to write where the request is left."""
    requests.mkdir(parents=True)
    (requests / ".llama.json.new").symlink_to(secret)
    (requests / ".llama.new").symlink_to(secret)
    (requests / "llama.json").symlink_to(secret)

    assert ask(node).returncode == 0

    assert secret.read_text() == SECRET
    assert secret.stat().st_mode & 0o777 == 0o600
    assert not (requests / "llama.json").is_symlink()


def test_a_request_for_a_checkpoint_goes_into_no_linked_folder(
    node: NodeFolder, requests: Path, tmp_path: Path
) -> None:
    """S13: the folder itself may be a link, too."""
    (elsewhere := tmp_path / "elsewhere").mkdir()
    requests.parent.mkdir(parents=True)
    requests.symlink_to(elsewhere)

    assert ask(node).returncode != 0
    assert list(elsewhere.iterdir()) == []


def test_copied_credentials_go_into_no_linked_folder(tmp_path: Path) -> None:
    """S13: the copy's folder is root's. A link in its place is refused."""
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(elsewhere)
    (source := tmp_path / "source").write_text(profile("ASIA1"))

    with pytest.raises(OSError, match="run"):
        copy_credentials(source, tmp_path / "run" / "credentials", ME)

    assert list(elsewhere.iterdir()) == []


def test_a_drill_is_written_through_no_link(node: NodeFolder, secret: Path) -> None:
    """S13: root appends to a log whose folder is the log writer's."""
    log = log_of(node)
    log.unlink()
    log.symlink_to(secret)

    ended = inject(node)

    assert (ended.returncode, secret.read_text()) == (3, SECRET)
    assert "cannot be written" in ended.stdout


def test_steps_of_a_job_are_read_through_no_link(node: NodeFolder, tmp_path: Path) -> None:
    """S13: `nodeheal-agent check` runs as root, too, and jobs own this folder."""
    (tmp_path / "other").write_text('{"limit_seconds": 60}')
    (folder := tmp_path / "progress").mkdir()
    (folder / "llama.json").symlink_to(tmp_path / "other")
    place = CheckContext(replace(load(node.config_file), progress_dir=str(folder)), run_tool)

    look = progress.CHECK.look(place, {})

    assert look.state == {}
    assert list(look.doubts) == ["llama"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, and another user beside it")
def test_a_spool_that_is_opened_again_follows_no_link(time: FakeTime, tmp_path: Path) -> None:
    """S13: the spool's folder is the agent's user's. Root opened it as root once the disk could be written again."""
    (state := tmp_path / "state").mkdir()
    (state / "spool.db").mkdir()  # cannot be opened now
    spool = Spool(state, 1, time.clock(), "boot-1")
    (state / "spool.db").rmdir()
    os.chown(state, 64_001, 64_002)
    (state / "spool.db").symlink_to(tmp_path / "roots.db")
    spool._again_at = 0.0

    spool.state()

    assert not (tmp_path / "roots.db").exists()


def test_files_that_others_may_write_are_opened_in_one_place() -> None:
    """S13: these modules run as root on others' folders, and have no way of their own to open a file."""
    for name in (
        "node_commands/checkpoint.py",
        "commands/copy_credentials.py",
        "runtime/training_files.py",
        "checks/progress.py",
        "node_commands/inject.py",
    ):
        text = (AGENT / name).read_text(encoding="utf-8")
        assert not re.search(r"os\.open\(|\bopen\(\"[ra]|write_text|read_text", text), name
