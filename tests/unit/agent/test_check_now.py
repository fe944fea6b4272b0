"""`nodeheal-agent check`: what a person and a prolog read."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, always
from nodeheal.agent.checks.check_ipc import ProcessAnswer
from nodeheal.agent.checks.registry import CHECKS
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.commands.check_now import check_now, row_of
from nodeheal.agent.commands.command_line import EXIT_BROKEN, EXIT_CANNOT_START, EXIT_CONFIG
from nodeheal.agent.commands.parser import EXIT_USAGE
from nodeheal.agent.main import main
from nodeheal.agent.node_commands.reboot import EXIT_REBOOT
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.tool_report import EXIT_CODES
from sandbox.toml import toml
from tests.support.agent_fakes import CONFIG, NodeFolder

FULL = Problem(Finding(Family.host, "disk_full", "/", "no room"), "/ is 99.9 % full\nand more")
SKEW = Problem(Finding(Family.host, "clock_skew", None, "late by a minute"))
HANG = Finding(Family.host, "nvidia_smi_hang", None, "it hangs")
PLACE = CheckContext(CONFIG, run_tool)

WITHOUT_CRYPTOGRAPHY = """
import sys
sys.modules["cryptography"] = None
from nodeheal.agent.main import main
sys.exit(main())
"""


def check(name: str, look: NodeCheckResult, **changes: object) -> NodeCheck:
    return NodeCheck(name, "a test", 60.0, 5.0, always, lambda *_: look, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("looks", "code"),
    [
        ([NodeCheckResult()], 0),
        ([NodeCheckResult(), NodeCheckResult((SKEW,))], 1),
        ([NodeCheckResult((FULL,)), NodeCheckResult((SKEW,)), NodeCheckResult()], 2),
        ([NodeCheckResult(unclear="an unknown layout"), NodeCheckResult((SKEW,))], 3),
        ([NodeCheckResult((FULL,), unclear="an unknown layout")], 2),
        ([NodeCheckResult(doubts={"/fsx": "a stale file handle"})], 3),
        ([], 3),
    ],
)
def test_the_exit_code_is_that_of_the_worst_verdict(looks: list[NodeCheckResult], code: int) -> None:
    checks = [check(str(number), look) for number, look in enumerate(looks)]

    assert check_now(checks, PLACE, as_json=False) == code


def test_a_reader_sees_each_check_and_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    absent = NodeCheck("gpu", "GPUs", 60.0, 5.0, lambda _: "no NVIDIA driver", lambda *_: NodeCheckResult())

    check_now(
        [check("disk", NodeCheckResult((FULL, SKEW))), absent, check("fine", NodeCheckResult(summary="8 of them"))],
        PLACE,
        as_json=False,
    )

    assert capsys.readouterr().out.splitlines() == [
        "disk              FAILED   disk_full: / is 99.9 % full",
        "                           clock_skew: late by a minute",
        "gpu               -        not checked: no NVIDIA driver",
        "fine              OK       8 of them",
    ]


def test_a_program_reads_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    check_now([check("disk", NodeCheckResult((FULL,)))], PLACE, as_json=True)

    row = json.loads(capsys.readouterr().out)
    assert (row["check"], row["verdict"], row["said"]) == ("disk", "FAILED", ["disk_full: / is 99.9 % full"])


@pytest.mark.parametrize(
    ("answer", "hang", "verdict", "said"),
    [
        (ProcessAnswer("one", hung=True), HANG, Verdict.FAILED, "no answer within 5 s"),
        (ProcessAnswer("one", hung=True), None, Verdict.UNKNOWN, "no answer within 5 s"),
        (ProcessAnswer("one", broke="a bug"), HANG, Verdict.UNKNOWN, "a bug"),
    ],
)
def test_a_look_without_an_end_is_never_fine(
    answer: ProcessAnswer, hang: Finding | None, verdict: Verdict, said: str
) -> None:
    row = row_of(answer, check("one", NodeCheckResult(), hang=hang).terms)

    assert (row.verdict, row.said) == (verdict, (said,))


def test_every_verdict_has_a_code_and_no_two_share_one() -> None:
    assert set(EXIT_CODES) == set(Verdict)
    assert len(set(EXIT_CODES.values())) == len(Verdict)
    assert not {EXIT_USAGE, EXIT_BROKEN, EXIT_CANNOT_START, EXIT_CONFIG} & set(EXIT_CODES.values())


def test_checks_are_known_by_one_name_each_and_their_tools_end_before_them() -> None:
    names = [one.name for one in CHECKS]

    assert len(set(names)) == len(names)
    assert all(one.about and one.interval_seconds >= 1 and one.deadline_seconds >= 1 for one in CHECKS)


def test_a_name_that_is_no_check_is_wrong_usage_and_told_with_those_that_are(
    node: NodeFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "dsik", "--config", str(node.config_file)])

    assert ended.value.code == EXIT_USAGE
    assert "there is no check 'dsik'; there are gpu_state, gpu_count" in capsys.readouterr().err


def test_a_usage_error_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "--jsn"])

    assert ended.value.code == EXIT_USAGE
    assert "--jsn" in capsys.readouterr().err


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """One that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def said_to_nobody(
    node: NodeFolder, pipe: int, *words: str, unbuffered: str = ""
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "nodeheal.agent.main", *words],
        env={**os.environ, **node.environment(), "PYTHONUNBUFFERED": unbuffered},
        stdout=pipe,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_who_has_had_enough_ends_it_without_a_word(
    node: NodeFolder, closed_pipe: int, unbuffered: str
) -> None:
    ended = said_to_nobody(node, closed_pipe, "check", "memory", unbuffered=unbuffered)

    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize("words", [["config"], ["--version"], ["check", "--help"]], ids=lambda words: words[-1])
def test_what_was_done_before_nobody_read_of_it_is_done(node: NodeFolder, closed_pipe: int, words: list[str]) -> None:
    ended = said_to_nobody(node, closed_pipe, *words)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_order_that_nobody_reads_the_answer_of_keeps_its_code(node: NodeFolder, closed_pipe: int) -> None:
    for tool in ("systemd-run", "systemctl"):
        node.has_tool(tool, "exit 1")
    order = ["--boot-id", "boot-1", "--expires-at", "9999999999"]

    ended = said_to_nobody(node, closed_pipe, "run", "reboot", *order)

    assert ended.returncode == EXIT_REBOOT
    [line] = ended.stderr.splitlines()  # and nothing of the broken pipe
    assert line.startswith("WARNING systemd does not schedule the reboot")


def test_a_pipe_that_breaks_elsewhere_is_still_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(_: object) -> int:
        raise BrokenPipeError("of a service")

    monkeypatch.setattr("nodeheal.agent.commands.command_line._command", breaks)

    assert main(["check"]) == EXIT_CANNOT_START
    assert str(vars(caplog.records[-1])["why"]) == "of a service"


@pytest.mark.parametrize(("words", "code"), [(["check", "memory"], 0), (["config"], 0), (["check", "--jsn"], 64)])
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_change_no_verdict(node: NodeFolder, words: list[str], code: int, closed: str) -> None:
    command = " ".join([sys.executable, "-m", "nodeheal.agent.main", *words, closed])

    ended = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, **node.environment()},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False)


def test_a_name_that_the_reader_has_no_characters_for_costs_no_verdict(node: NodeFolder) -> None:
    node.config_file.write_text(toml({**node.config(), "checks": ["mounts"], "mounts": ["/nowhere/ä"]}))

    ended = subprocess.run(
        [sys.executable, "-m", "nodeheal.agent.main", "check"],
        env={**os.environ, **node.environment(), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (EXIT_CODES[Verdict.FAILED], "")
    assert "mount_missing: /nowhere/\\xe4 is not mounted" in ended.stdout


def test_a_package_that_is_missing_is_named() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_CRYPTOGRAPHY, "run", "--help"], capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stdout) == (EXIT_BROKEN, "")
    assert "the package cryptography is not installed; install the agent again" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_fault_of_ours_is_no_verdict(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def breaks(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("nodeheal.agent.commands.command_line._command", breaks)

    assert main(["check"]) == EXIT_BROKEN == 70
    assert caplog.records[-1].exc_info is not None
