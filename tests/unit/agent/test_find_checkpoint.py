"""`nodeheal-agent run find-checkpoint`, as the SSM document runs it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nodeheal.agent.commands.node_command import EXIT_DONE, EXIT_REFUSED
from nodeheal.agent.node_commands.find_checkpoint import LONGEST_SECONDS, _as_agent
from nodeheal.agent.transport import event as said
from nodeheal.checkpoints.place import PATH_CHARACTERS, why_not_plain
from nodeheal.contract import health_event, job_spec
from nodeheal.contract.health_event import CheckpointFound
from nodeheal.contract.vocabulary import CheckpointFormat
from nodeheal.operations.find_checkpoint import ANSWER_SECONDS
from nodeheal.operations.look_at_directory import ANSWER_SECONDS as SIGHT_SECONDS
from nodeheal.services.jobs.see_directory import AGAIN_SECONDS
from sandbox.toml import toml
from tests.support import checkpoint_trees as trees
from tests.support.agent_fakes import FakeEventBridge, NodeFolder

DOCUMENT = json.loads((Path(__file__).parents[3] / "packaging" / "ssm" / "find-checkpoint.json").read_text())
Ended = subprocess.CompletedProcess[str]


def ask(node: NodeFolder, directory: Path | str, expires_in: float = 60, **changed: str) -> Ended:
    agent = node.directory / "nodeheal-agent"
    agent.write_text(f'#!/bin/sh\nexec {sys.executable} -m nodeheal.agent.main "$@"\n')
    agent.chmod(0o755)
    script = "\n".join(DOCUMENT["mainSteps"][0]["inputs"]["runCommand"])
    values = {"BootId": "boot-1", "ExpiresAt": str(int(time.time() + expires_in)), "RequestId": "llama-1-1-c0"}
    values |= {"Directory": str(directory), "Format": "auto", "SightAfter": "no", "Progress": "none"}
    values |= {"DistrustedStep": "no", "DistrustedUntil": "no", **changed}
    assert sorted(DOCUMENT["parameters"]) == sorted(values)
    for name, value in values.items():
        script = script.replace("{{ " + name + " }}", value)
    return subprocess.run(
        ["sh", "-c", script],
        env={**node.environment(), "PATH": f"{node.directory}:{os.defpath}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def reported(bus: FakeEventBridge) -> CheckpointFound:
    [event] = bus.details("Checkpoint Found")
    return CheckpointFound.model_validate(event)


def test_the_newest_whole_one_is_reported_with_what_was_skipped(
    node: NodeFolder, bus: FakeEventBridge, tmp_path: Path
) -> None:
    where = trees.megatron(tmp_path / "llama", 1000, 2000, tracked="1000")

    ended = ask(node, where)

    assert ended.returncode == EXIT_DONE, ended.stderr
    event = reported(bus)
    assert (event.path, event.step, event.reason) == (f"{where}/iter_0001000", 1000, "")
    assert (event.format, event.request_id) == (CheckpointFormat.megatron, "llama-1-1-c0")
    assert [told.partition(":")[0] for told in event.skipped] == ["iter_0002000"]
    assert json.loads(ended.stdout.splitlines()[-1])["path"] == event.path


def test_what_is_not_trusted_is_left_out_until_it_is_written_again(
    node: NodeFolder, bus: FakeEventBridge, tmp_path: Path
) -> None:
    where = trees.megatron(tmp_path / "llama", 1000, 2000, 3000)
    written_at = int((where / "iter_0003000").stat().st_mtime)

    ask(node, where, DistrustedStep="2000", DistrustedUntil=str(written_at + 60))
    event = reported(bus)

    assert event.step == 1000
    assert [skipped.partition(": ")[2] for skipped in event.skipped] == ["written when the loss was not a number"] * 2
    ask(node, where, DistrustedStep="2000", DistrustedUntil=str(written_at - 60))
    assert [answer["step"] for answer in bus.details("Checkpoint Found")] == [1000, 3000]


def test_a_directory_that_is_not_there_is_something_that_the_node_cannot_tell(
    node: NodeFolder, bus: FakeEventBridge, tmp_path: Path
) -> None:
    assert ask(node, tmp_path / "gone").returncode == EXIT_DONE

    event = reported(bus)
    assert event.path is None
    assert "cannot be listed" in event.reason


def test_a_node_says_what_it_sees_there_and_searches_nothing(
    node: NodeFolder, bus: FakeEventBridge, tmp_path: Path
) -> None:
    where = trees.megatron(tmp_path / "llama", 1000)

    ended = ask(node, where, SightAfter="0")

    assert ended.returncode == EXIT_DONE, ended.stderr
    event = reported(bus)
    assert (event.path, event.reason) == (None, "")
    assert event.sight is not None
    assert (event.sight.inode, event.sight.device) == (where.stat().st_ino, where.stat().st_dev)
    assert (bool(event.sight.file_system), event.sight.missing) == (True, "")


def test_of_what_is_not_there_yet_the_nearest_folder_is_seen(
    node: NodeFolder, bus: FakeEventBridge, tmp_path: Path
) -> None:
    ask(node, tmp_path / "not" / "yet", SightAfter="0")

    seen = reported(bus).sight
    assert seen is not None
    assert (seen.inode, seen.missing) == (tmp_path.stat().st_ino, "not/yet")


def test_what_is_no_folder_is_something_that_the_node_cannot_tell(
    node: NodeFolder, bus: FakeEventBridge, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")

    assert ask(node, tmp_path / "file", SightAfter="0").returncode == EXIT_DONE

    assert reported(bus).sight is None
    assert "is not a folder" in reported(bus).reason


@pytest.mark.parametrize(
    ("name", "content"),
    [("llama.3.900.json", '{"step": 1037}'), ("llama.3.steps", '{"step":1037}  \n{"step":974}  \n')],
)
def test_the_last_step_of_the_run_before_is_told_with_the_checkpoint(
    node: NodeFolder, bus: FakeEventBridge, tmp_path: Path, name: str, content: str
) -> None:
    where = trees.megatron(tmp_path / "llama", 1000)
    shows(node, name, content)

    ended = ask(node, where, Progress=name)

    assert ended.returncode == EXIT_DONE, ended.stderr
    event = reported(bus)
    assert (event.step, event.last_step) == (1000, 1037)
    assert event.written_at is not None
    assert abs(event.written_at.timestamp() - (where / "iter_0001000").stat().st_mtime) < 0.001


@pytest.mark.parametrize("content", ["", "touched", '{"step": -1}', '{"step": true}', "[1]", '{"step": 1e3}'])
def test_what_is_no_step_is_not_known(node: NodeFolder, bus: FakeEventBridge, tmp_path: Path, content: str) -> None:
    shows(node, "llama.3.900.json", content)

    ask(node, trees.megatron(tmp_path / "llama", 1000), Progress="llama.3.900.json")

    assert (reported(bus).step, reported(bus).last_step) == (1000, None)


@pytest.mark.parametrize("name", ["none", "gone.1.900.json", "gone.1.steps", ".."])
def test_a_file_that_is_not_there_or_not_one_of_those_is_not_read(
    node: NodeFolder, bus: FakeEventBridge, tmp_path: Path, name: str
) -> None:
    ask(node, trees.megatron(tmp_path / "llama", 1000), Progress=name)

    assert (reported(bus).step, reported(bus).last_step) == (1000, None)


def test_a_link_in_its_place_is_not_followed(node: NodeFolder, bus: FakeEventBridge, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"step": 5}')
    shows(node, "other", "")
    (progress_of(node) / "llama.3.900.json").symlink_to(tmp_path / "secret")

    ask(node, trees.megatron(tmp_path / "llama", 1000), Progress="llama.3.900.json")

    assert reported(bus).last_step is None


def progress_of(node: NodeFolder) -> Path:
    return node.directory / "progress"


def shows(node: NodeFolder, name: str, content: str) -> None:
    """A run has written this into its file."""
    node.config_file.write_text(toml({**node.config(), "progress_dir": str(progress_of(node))}))
    progress_of(node).mkdir()
    (progress_of(node) / name).write_text(content)


def test_a_search_says_nothing_of_that(node: NodeFolder, bus: FakeEventBridge, tmp_path: Path) -> None:
    ask(node, tmp_path)

    assert reported(bus).sight is None


def test_an_empty_directory_is_an_answer(node: NodeFolder, bus: FakeEventBridge, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    ask(node, tmp_path / "empty")

    assert (reported(bus).path, reported(bus).reason) == (None, "")


@pytest.mark.parametrize("directory", ["relative", "/a/../etc", "/a b", "/a$(id)"])
def test_what_is_no_plain_absolute_path_is_refused(node: NodeFolder, bus: FakeEventBridge, directory: str) -> None:
    assert ask(node, directory).returncode == EXIT_REFUSED

    assert bus.details("Checkpoint Found") == []


@pytest.mark.parametrize(("boot", "expires_in"), [("boot-0", 60), ("boot-1", -1)])
def test_a_stale_order_is_refused(
    node: NodeFolder, bus: FakeEventBridge, tmp_path: Path, boot: str, expires_in: float
) -> None:
    assert ask(node, tmp_path, expires_in, BootId=boot).returncode == EXIT_REFUSED

    assert bus.details("Checkpoint Found") == []


def test_what_is_reported_is_bounded_however_much_is_torn(
    node: NodeFolder, bus: FakeEventBridge, tmp_path: Path
) -> None:
    for step in range(40):
        (tmp_path / f"epoch_{step}_{'x' * 200}.pt").write_bytes(b"PK\x03\x04")

    ask(node, tmp_path)

    assert len(reported(bus).skipped) == health_event.SKIPPED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_as_root_it_is_read_as_the_agents_own_user(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 12_345, 12_346)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _as_agent(state)()
        os.write(writer, f"{os.getresuid()} {os.getresgid()} {os.getgroups()}".encode())
        os._exit(0)
    os.waitpid(pid, 0)

    assert os.read(reader, 1_000).decode() == "(12345, 12345, 12345) (12346, 12346, 12346) []"


def test_the_same_paths_are_plain_everywhere() -> None:
    pattern = DOCUMENT["parameters"]["Directory"]["allowedPattern"]
    for path in ["/mnt/fsx", "/" + "a" * (PATH_CHARACTERS - 1)]:
        assert why_not_plain(path) == ""
        assert job_spec.Checkpoints(directory=path).directory == path
    assert set(pattern) == set(job_spec.PLAIN)
    assert DOCUMENT["parameters"]["Format"]["allowedValues"] == list(CheckpointFormat)
    assert said.SKIPPED == health_event.SKIPPED
    assert (said.SOURCE_CHARACTERS, said.PATH_CHARACTERS) == (
        health_event.SOURCE_CHARACTERS,
        health_event.PATH_CHARACTERS,
    )


def test_a_node_answers_before_the_control_plane_asks_another() -> None:
    assert LONGEST_SECONDS < ANSWER_SECONDS < 60
    assert AGAIN_SECONDS < SIGHT_SECONDS < 60
    assert f"{AGAIN_SECONDS}".isdigit(), "as the SSM document takes it"
