"""An order is one file: it is found, its arguments are parsed, and its answer may be an event of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nodeheal.agent import node_commands
from nodeheal.agent.commands.command_line import EXIT_BROKEN
from nodeheal.agent.commands.node_command import REQUEST_ID
from nodeheal.agent.commands.parser import EXIT_USAGE
from nodeheal.agent.main import main
from nodeheal.agent.node_commands import all_commands
from tests.support.agent_documents import DOCUMENTS
from tests.support.agent_fakes import FakeEventBridge, NodeFolder

# What somebody writes who adds an order.
COUNT = '''"""`nodeheal-agent run count`: counts to a number."""

from dataclasses import dataclass
from typing import ClassVar

from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.compose import event_bus, open_spool
from nodeheal.agent.transport.event import NodeFact, EventFactory
from nodeheal.agent.commands.node_command import EXIT_DONE, NodeCommand, report


@dataclass(frozen=True, kw_only=True)
class Counted(NodeFact):
    detail_type: ClassVar[str] = "Counted"

    request_id: str
    numbers: tuple[int, ...]


def add_arguments(parser):
    parser.add_argument("--request-id", required=True)
    parser.add_argument("--to", type=int, default=3)


def carry_out(arguments, config):
    clock = Clock()
    events = EventFactory(config.identity, arguments.boot_id)
    header = events.header("counted", arguments.request_id, at=clock.utc_now())
    event = Counted(**header, request_id=arguments.request_id, numbers=tuple(range(arguments.to)))
    report(event, open_spool(config), event_bus(config, clock))
    return EXIT_DONE


COMMAND = NodeCommand(help="count to a number", add_arguments=add_arguments, carry_out=carry_out)
'''
BROKEN_OPTIONS = """
from nodeheal.agent.commands.node_command import NodeCommand
COMMAND = NodeCommand("breaks", lambda parser: parser.nothing_like_this(), lambda arguments, config: 0)
"""
WITH_FOLDER = """
import sys
from nodeheal.agent import node_commands
node_commands.__path__.append(sys.argv.pop(1))
from nodeheal.agent.main import main
sys.exit(main())
"""


def test_a_new_order_is_one_file(node: NodeFolder, bus: FakeEventBridge, tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    folder.mkdir()
    (folder / "count.py").write_text(COUNT)
    words = ["run", "count", "--boot-id", "boot-1", "--expires-at", "9999999999", "--request-id", "r/1", "--to", "2"]

    ended = subprocess.run(
        [sys.executable, "-c", WITH_FOLDER, str(folder), *words],
        env=node.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    [event] = bus.details("Counted")
    assert (event["request_id"], event["numbers"], event["boot_id"]) == ("r/1", [0, 1], "boot-1")
    assert event["node_id"] == node.config()["node_id"]


def test_every_file_of_the_folder_is_an_order_of_its_own() -> None:
    files = {path.stem for path in Path(node_commands.__file__).parent.glob("*.py")} - {"__init__"}

    assert {command.carry_out.__module__.rpartition(".")[2] for command in all_commands().values()} == files
    assert len(all_commands()) == len(files)


@pytest.mark.parametrize(
    "broken",
    ["import nothing_like_this", "def (", "", "COMMAND = 5", BROKEN_OPTIONS],
    ids=["import", "syntax", "none", "another thing", "options"],
)
def test_a_command_that_is_broken_takes_no_other_with_it(node: NodeFolder, tmp_path: Path, broken: str) -> None:
    (tmp_path / "broken.py").write_text(broken)

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", WITH_FOLDER, str(tmp_path), "run", *words],
            env=node.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    order = ["--boot-id", "boot-1", "--expires-at", "9999999999"]
    asked, other = run("broken", *order, "--level", "3"), run("checkpoint", "--job", "llama", *order)

    assert (asked.returncode, asked.stdout) == (EXIT_BROKEN, "")
    assert "the command cannot be loaded" in asked.stderr
    assert "Traceback" not in asked.stderr
    assert other.returncode == 0


REPORT = ["--request-id", "r-1"]
FABRIC = ["fabric", *REPORT, "--peer", "none"]
LOOK = ["find-checkpoint", *REPORT, "--directory", "/fsx/llama"]
DCGM = ["inject-dcgm", "--value", "79"]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["reboot"], "--expires-at inf"),
        (["reboot"], "--expires-at nan"),
        (["reboot"], "--expires-at -1"),
        (FABRIC, "--request-id "),
        (FABRIC, "--request-id a b"),
        (FABRIC, "--request-id " + "r" * 129),
        (FABRIC, "--port 0"),
        (FABRIC, "--port 65536"),
        (FABRIC, "--port eight"),
        (FABRIC, "--seconds 0.5"),
        (FABRIC, "--seconds 601"),
        (FABRIC, "--min-mb-per-second nan"),
        (FABRIC, "--min-all-reduce-mb-per-second -1"),
        (LOOK, "--sight-after nan"),
        (LOOK, "--sight-after -1"),
        (LOOK, "--sight-after inf"),
        (["evidence", *REPORT, "--upload", "none"], "--max-bytes -5"),
        (["evidence", *REPORT, "--upload", "none"], "--max-bytes 0"),
        ([*DCGM, "--field", "230"], "--gpu -1"),
        ([*DCGM, "--gpu", "0"], "--field 123456"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_by_name(
    words: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, _, given = option.partition(" ")

    with pytest.raises(SystemExit) as ended:
        main(["run", words[0], "--boot-id", "boot-1", "--expires-at", "9999999999", *words[1:], f"{name}={given}"])

    assert (ended.value.code, f"argument {name}: {given!r}: give" in capsys.readouterr().err) == (EXIT_USAGE, True)


def test_every_request_id_that_a_document_takes_is_taken() -> None:
    documents = [json.loads(path.read_text("utf-8"))["parameters"] for path in DOCUMENTS.glob("*.json")]

    patterns = {about["RequestId"]["allowedPattern"] for about in documents if "RequestId" in about}

    assert patterns == {f"^{REQUEST_ID.pattern}$"}


def test_every_order_of_a_document_is_one_that_the_agent_has() -> None:
    scripts = [
        line
        for path in DOCUMENTS.glob("*.json")
        for line in json.loads(path.read_text("utf-8"))["mainSteps"][0]["inputs"]["runCommand"]
    ]

    ordered = {line.partition("nodeheal-agent run ")[2].split()[0] for line in scripts if "nodeheal-agent run " in line}

    assert ordered == set(all_commands())


def test_an_unknown_order_is_refused_by_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "dance"])

    assert ended.value.code == EXIT_USAGE
    assert "invalid choice: 'dance'" in capsys.readouterr().err
