"""Orders run as root and the agent does not; they share one spool."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeheal.agent.runtime.compose import open_spool
from nodeheal.agent.runtime.config import AgentConfig, load
from nodeheal.agent.runtime.file_owner import as_owner_of
from nodeheal.agent.transport.spool import FILE_NAME
from tests.support.agent_fakes import NodeFolder, xid_event

AGENT_UID, AGENT_GID = 64_001, 64_002

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, and another user beside it")


@pytest.fixture
def config(node: NodeFolder) -> Iterator[AgentConfig]:
    """With a state folder as systemd makes it: the agent's alone. Not below tmp_path, where only root can go."""
    folder = Path(tempfile.mkdtemp(prefix="nodeheal-state-"))
    folder.chmod(0o700)
    os.chown(folder, AGENT_UID, AGENT_GID)
    boot_id_file = AgentConfig.boot_id_file  # the kernel's, which both may read
    yield AgentConfig(**{**vars(load(node.config_file)), "state_dir": str(folder), "boot_id_file": boot_id_file})
    shutil.rmtree(folder, ignore_errors=True)


def as_agent(work: Callable[[], object]) -> None:
    """Do this as the agent's user, in another process; fails where that fails."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(AGENT_GID)
            os.setuid(AGENT_UID)
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def keep(config: AgentConfig, code: int) -> None:
    spool = open_spool(config)
    spool.put([xid_event(code)])
    spool.close()


def kept(config: AgentConfig) -> int:
    with sqlite3.connect(Path(config.state_dir) / FILE_NAME) as database:
        return int(database.execute("SELECT count(*) FROM events").fetchone()[0])


def test_an_order_that_comes_before_the_agent_leaves_it_a_spool_to_write(config: AgentConfig) -> None:
    keep(config, 1)

    as_agent(lambda: keep(config, 2))

    assert kept(config) == 2
    assert {path.stat().st_uid for path in Path(config.state_dir).iterdir()} == {AGENT_UID}


def test_the_agent_goes_on_in_the_spool_that_an_order_has_written(config: AgentConfig) -> None:
    as_agent(lambda: keep(config, 1))
    keep(config, 2)

    as_agent(lambda: keep(config, 3))

    assert kept(config) == 3


def test_while_an_order_has_the_spool_open_the_agent_can_write_it(config: AgentConfig) -> None:
    order = open_spool(config)
    order.put([xid_event(1)])

    as_agent(lambda: keep(config, 2))

    order.put([xid_event(3)])
    order.close()
    assert kept(config) == 3


def test_a_corrupt_spool_that_an_order_finds_is_replaced_by_one_of_the_agents(config: AgentConfig) -> None:
    (Path(config.state_dir) / FILE_NAME).write_bytes(b"not a database, but long enough to be read as one" * 100)
    keep(config, 1)

    as_agent(lambda: keep(config, 2))

    assert kept(config) == 2


def test_the_agents_user_cannot_lead_root_astray_with_a_link(config: AgentConfig, tmp_path: Path) -> None:
    target = tmp_path / "roots.db"
    (Path(config.state_dir) / FILE_NAME).symlink_to(target)

    keep(config, 1)

    assert not target.exists()


def test_afterwards_root_is_root_again(config: AgentConfig) -> None:
    with as_owner_of(Path(config.state_dir)):
        assert (os.geteuid(), os.getegid()) == (AGENT_UID, AGENT_GID)

    assert (os.geteuid(), os.getegid()) == (0, 0)
