"""The agent's user gets the rotated credentials, and nobody else, and nothing else."""

import os
import pwd
import stat
from pathlib import Path

import pytest

from nodeheal.agent.commands.copy_credentials import copy_credentials
from nodeheal.agent.main import main
from nodeheal.agent.transport.credentials import CredentialChain
from nodeheal.agent.transport.sigv4 import Credentials
from tests.support.agent_config import ME, profile
from tests.support.agent_fakes import FakeTime

DONE, NOT_COPIED = 0, 1


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "credentials"
    path.write_text(profile("ASIA1"))
    return path


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "run" / "credentials"


def test_the_agent_finds_every_rotation_in_the_copy(source: Path, copy: Path, time: FakeTime) -> None:
    copy_credentials(source, copy, ME)
    chain = CredentialChain(time.clock(), {"AWS_SHARED_CREDENTIALS_FILE": str(copy)})
    assert chain.current() == Credentials("ASIA1", "50%off", "t=")

    source.write_text(profile("ASIA2"))
    copy_credentials(source, copy, ME)

    assert chain.current().access_key == "ASIA2"


def test_keys_that_do_not_rotate_have_no_session(source: Path, copy: Path, time: FakeTime) -> None:
    source.write_text("[default]\naws_access_key_id = AKID\naws_secret_access_key = s\n")

    copy_credentials(source, copy, ME)

    chain = CredentialChain(time.clock(), {"AWS_SHARED_CREDENTIALS_FILE": str(copy)})
    assert chain.current() == Credentials("AKID", "s", None)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_only_its_owner_can_read_the_copy(source: Path, copy: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        copy_credentials(source, copy, ME)
    finally:
        os.umask(before)

    assert stat.S_IMODE(copy.stat().st_mode) == 0o400
    assert [path.name for path in copy.parent.iterdir()] == ["credentials"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_gives_the_copy_to_the_agents_user(source: Path, copy: Path) -> None:
    copy_credentials(source, copy, "nobody")

    nobody = pwd.getpwnam("nobody")
    assert (copy.stat().st_uid, copy.stat().st_gid) == (nobody.pw_uid, nobody.pw_gid)
    assert copy.parent.stat().st_uid == 0  # so that he can put nothing in its place


def test_an_administrators_other_keys_are_not_copied(source: Path, copy: Path) -> None:
    source.write_text(profile("ASIA1") + profile("ADMIN", "prod"))

    copy_credentials(source, copy, ME)

    assert "ADMIN" not in copy.read_text()


@pytest.mark.parametrize(
    "content", [b"", b"[default]\naws_access_key_id = A\n", b"\xff", b"secret-key-without-a-section"]
)
def test_in_the_middle_of_a_rotation_the_last_copy_stays(
    source: Path, copy: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    copy_credentials(source, copy, ME)
    source.write_bytes(content)

    assert copy_credentials(source, copy, ME) == NOT_COPIED
    assert "ASIA1" in copy.read_text()
    assert str(source) in str(vars(caplog.records[-1])["why"])
    assert "secret-key" not in str(vars(caplog.records[-1]))


def test_credentials_that_are_gone_leave_no_copy(source: Path, copy: Path) -> None:
    copy_credentials(source, copy, ME)
    source.unlink()

    assert copy_credentials(source, copy, ME) == DONE
    assert not copy.exists()


def test_a_copy_that_was_killed_half_way_is_made_again(source: Path, copy: Path) -> None:
    copy.parent.mkdir()
    (copy.parent / ".credentials.new").write_text("half")

    assert copy_credentials(source, copy, ME) == DONE
    assert "ASIA1" in copy.read_text()


def test_a_user_who_is_not_there_is_named(source: Path, copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert (
        main(["copy-credentials", "--source", str(source), "--to", str(copy), "--owner", "nobody-here"]) == NOT_COPIED
    )
    assert vars(caplog.records[-1])["why"] == "there is no user 'nobody-here'"
