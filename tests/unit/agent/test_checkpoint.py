"""`nodeheal-agent run checkpoint`: the file that a job's tasks look for."""

import json
import time
from pathlib import Path

import pytest

from nodeheal.agent.commands.parser import EXIT_USAGE
from nodeheal.agent.main import main
from tests.support.agent_commands import ask, requests
from tests.support.agent_fakes import NodeFolder

__all__ = ["requests"]  # fixtures

REPOSITORY = Path(__file__).parents[3]


def test_a_request_is_a_file_that_every_user_can_read(node: NodeFolder, requests: Path) -> None:
    ended = ask(node)

    assert ended.returncode == 0, ended.stderr
    request = requests / "llama.json"
    assert json.loads(request.read_text())["expires_at"] > time.time()
    assert request.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in requests.iterdir()] == ["llama.json"]


def test_a_second_request_takes_the_place_of_the_first(node: NodeFolder, requests: Path) -> None:
    ask(node)
    first = json.loads((requests / "llama.json").read_text())["asked_at"]
    ask(node)

    assert json.loads((requests / "llama.json").read_text())["asked_at"] > first


@pytest.mark.parametrize(("boots", "expires_in"), [("boot-0,boot-2", 60), ("boot-1", -1)])
def test_a_stale_request_is_refused(node: NodeFolder, requests: Path, boots: str, expires_in: float) -> None:
    ended = ask(node, boots, expires_in)

    assert ended.returncode == 3
    assert not requests.exists()


def test_a_job_that_is_no_name_of_a_file_is_refused(node: NodeFolder, requests: Path) -> None:
    order = ["run", "checkpoint", "--boot-id", "boot-1", "--expires-at", "9999999999", "--job", "../../etc/passwd"]

    with pytest.raises(SystemExit) as ended:
        main([*order, "--config", str(node.config_file)])

    assert ended.value.code == EXIT_USAGE
    assert not requests.exists()
