"""Checks of the operator's own: which files are run, how, and what of their answers is taken."""

import json
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.checks import own
from nodeheal.agent.checks.check import CheckBroken, CheckContext, NodeCheckResult
from nodeheal.agent.checks.check_scheduler import CheckChange, CheckScheduler
from nodeheal.agent.checks.own import Said, all_of, ask, check_of, look_of, parse_own
from nodeheal.agent.checks.own_process import ENVIRONMENT, interpreters
from nodeheal.agent.checks.registry import CHECKS, chosen
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.commands.check_now import answers_of, rows_of
from nodeheal.agent.commands.doctor import doctor
from nodeheal.agent.evidence.confirm import Accusation, confirm
from nodeheal.agent.main import main
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.config import AgentConfig, ConfigError, KernelLog, OwnCheck, load
from nodeheal.agent.transport.event import EventFactory, verdict_of
from nodeheal.contract import health_event as contract
from nodeheal.contract.vocabulary import Confirmation, Family, Verdict
from nodeheal.domain.faults.catalog import catalog
from sandbox.toml import toml
from tests.support.agent_fakes import CONFIG, IDENTITY, FakeEventBridge, NodeFolder, eventually
from tests.support.agent_process import AgentProcess

AGENT_UID, AGENT_GID, STRANGER = 64_001, 64_002, 64_003
EXAMPLES = Path(__file__).parents[3] / "examples" / "checks"
FULL = {"verdict": "FAILED", "code": "full", "component": "/scratch", "reason": "no inode is left"}
IS_ROOT = os.geteuid() == 0


@dataclass
class OwnFolder:
    """A folder of checks as an administrator makes it, and the agent's user."""

    root: Path
    config: AgentConfig

    def has(self, name: str, script: str, mode: int = 0o755) -> Path:
        """A file in the folder. One that is no script of its own is the shell's."""
        file = Path(self.config.checks_dir) / name
        file.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
        file.chmod(mode)
        return file

    def says(self, name: str, said: object) -> None:
        """A file that prints this as JSON."""
        self.has(name, f"cat <<'END'\n{json.dumps(said)}\nEND")

    def asked(self, name: str = "inodes") -> Said:
        """What the file says, run as the agent does."""
        return ask(name, self.config)

    def shared(self) -> Path:
        """A folder in which a check may write."""
        folder = self.root / "shared"
        folder.mkdir()
        folder.chmod(0o777)
        return folder

    def look(self, name: str = "inodes") -> NodeCheckResult:
        """The look of the check, as the agent takes it."""
        check = check_of(name, self.config)
        [(answer, _, _)] = answers_of([check], CheckContext(self.config, run_tool))
        assert answer.look is not None
        return answer.look


@pytest.fixture
def node_of_own() -> Iterator[OwnFolder]:
    """Not below tmp_path, where only the user of the tests can go: where that is root, checks run as another user."""
    root = Path(tempfile.mkdtemp(prefix="nodeheal-own-"))
    root.chmod(0o755)
    for name in ("checks.d", "state"):
        (root / name).mkdir(mode=0o755)
    if IS_ROOT:
        os.chown(root / "state", AGENT_UID, AGENT_GID)
    yield OwnFolder(root, replace(CONFIG, checks_dir=str(root / "checks.d"), state_dir=str(root / "state")))
    shutil.rmtree(root)


# What a check may say


@pytest.mark.parametrize(
    ("said", "understood"),
    [
        ({"verdict": "OK"}, Said(Verdict.OK)),
        ({"verdict": "OK", "reason": "all well"}, Said(Verdict.OK, reason="all well")),
        ({"verdict": "UNKNOWN", "reason": "no tool"}, Said(Verdict.UNKNOWN, reason="no tool")),
        (FULL, Said(Verdict.FAILED, "full", "/scratch", "no inode is left")),
        ({**FULL, "verdict": "DEGRADED"}, Said(Verdict.DEGRADED, "full", "/scratch", "no inode is left")),
        # A newline forges a line of a log, the last character turns the direction of text.
        ({**FULL, "reason": "a\nb\x1b[31m\u202e"}, Said(Verdict.FAILED, "full", "/scratch", "a b [31m")),
        ({**FULL, "reason": "\ud800x"}, Said(Verdict.FAILED, "full", "/scratch", "x")),
        ({**FULL, "component": "gpu 3; `reboot`"}, Said(Verdict.FAILED, "full", "gpu 3_ _reboot_", "no inode is left")),
    ],
)
def test_one_json_object_says_how_the_node_is(said: dict[str, str], understood: Said) -> None:
    assert parse_own(json.dumps(said).encode()) == understood


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        (b"", "it prints nothing"),
        (b" \n", "it prints nothing"),
        (b"disk is full", "one JSON object: Expecting value"),
        (b'{"verdict": "OK"}\n{"verdict": "OK"}', "one JSON object: Extra data"),
        (b'[{"verdict": "OK"}]', "it does not print one JSON object"),
        (b'"OK"', "it does not print one JSON object"),
        (b'{"verdict": "\xff"}', "one JSON object: 'utf-8' codec can't decode"),
        (b"[" * 100_000, "one JSON object"),
        (b'{"verdict": ' + b"9" * 5000 + b"}", "one JSON object"),
        (b'{"verdict": "OK", "verdict": "FAILED"}', "it prints a key twice"),
        (b'{"verdict": "OK", "family": "xid"}', "unknown key 'family'; known are verdict, code, component, reason"),
        (b'{"verdict": 0}', "'verdict' must be text"),
        (b'{"verdict": "OK", "reason": null}', "'reason' must be text"),
        (b'{"reason": "well"}', "'verdict' must be one of OK, DEGRADED, UNKNOWN, FAILED, not None"),
        (b'{"verdict": "ok"}', "not 'ok'"),
        (b'{"verdict": "FAILED", "reason": "full"}', "FAILED needs 'code'"),
        (b'{"verdict": "DEGRADED", "code": "full"}', "DEGRADED needs 'reason'"),
        (b'{"verdict": "UNKNOWN"}', "UNKNOWN needs 'reason'"),
        (b'{"verdict": "OK", "code": "full"}', "OK has no 'code'"),
        (b'{"verdict": "UNKNOWN", "reason": "?", "component": "gpu-3"}', "UNKNOWN has no 'component'"),
        (b'{"verdict": "FAILED", "code": "a/b", "reason": "x"}', "'code' must be of the form"),
        (b'{"verdict": "FAILED", "code": "a b", "reason": "x"}', "not 'a b'"),
        (b'{"verdict": "FAILED", "code": "a\\n", "reason": "x"}', "'code' must be of the form"),
        (b'{"verdict": "FAILED", "code": "a", "reason": "x", "component": ""}', "'component' must have 1 to 128"),
    ],
)
def test_anything_else_is_a_broken_check_which_is_told_what_is_wrong(printed: bytes, why: str) -> None:
    with pytest.raises(CheckBroken) as refused:
        parse_own(printed)

    assert why in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_reason_is_bounded() -> None:
    said = parse_own(json.dumps({**FULL, "reason": "x" * 10_000}).encode())

    assert len(said.reason) == contract.REASON_CHARACTERS


def test_no_check_of_ones_own_can_report_a_fault_that_the_catalog_knows() -> None:
    finding = look_of("79", Said(Verdict.FAILED, "79", "0000:b9:00.0", "it says so")).problems[0].finding

    assert (finding.family, finding.code, finding.subcode) == (Family.own, "79", "79")
    assert not [row for row in catalog().values() if row.family is Family.own]
    assert not [check.name for check in CHECKS if check.name.startswith(own.PREFIX)]


@pytest.mark.parametrize("verdict", [Verdict.DEGRADED, Verdict.FAILED])
def test_the_event_is_one_that_the_control_plane_takes_with_the_verdict_of_the_check(verdict: Verdict) -> None:
    problem = look_of("inodes", Said(verdict, "full", "/scratch", "no inode is left")).problems[0]
    told = EventFactory(IDENTITY, "boot-1").found(
        problem.finding, source="own/inodes", position="1", at=Clock().utc_now(), evidence=problem.evidence
    )

    event = contract.HealthEvent.model_validate_json(told.to_json())

    assert (event.source, event.family, event.code, event.subcode) == ("own/inodes", Family.own, "inodes", "full")
    assert (event.verdict, event.component, event.evidence) == (verdict, "/scratch", "no inode is left")
    assert event.is_from_node


# Which files are run


def test_what_a_file_prints_is_taken(node_of_own: OwnFolder) -> None:
    node_of_own.says("inodes", FULL)

    assert node_of_own.asked() == Said(Verdict.FAILED, "full", "/scratch", "no inode is left")


def why_refused(node: OwnFolder, name: str = "inodes") -> str:
    with pytest.raises(CheckBroken) as refused:
        node.asked(name)
    return str(refused.value)


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_file_that_others_may_write_is_not_run(node_of_own: OwnFolder, mode: int) -> None:
    file = node_of_own.has("inodes", "touch /tmp/never")
    file.chmod(mode)

    assert why_refused(node_of_own) == f"it is not run: {file} can be written by others than its owner"


@pytest.mark.parametrize("folder", [".", ".."])
@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_nor_one_in_a_folder_that_others_may_write(node_of_own: OwnFolder, folder: str, mode: int) -> None:
    place = Path(os.path.normpath(node_of_own.has("inodes", "true").parent / folder))
    place.chmod(mode)

    assert why_refused(node_of_own) == f"it is not run: {place} can be written by others than its owner"


def test_a_folder_with_the_sticky_bit_keeps_the_owners_files_in_place(node_of_own: OwnFolder) -> None:
    node_of_own.says("inodes", {"verdict": "OK"})
    node_of_own.root.chmod(0o1777)

    assert node_of_own.asked().verdict is Verdict.OK


@pytest.mark.skipif(not IS_ROOT, reason="needs root, and other users beside it")
@pytest.mark.parametrize("place", ["checks.d/inodes", "checks.d", "."])
def test_nor_one_of_another_user_nor_in_his_folder(node_of_own: OwnFolder, place: str) -> None:
    node_of_own.has("inodes", "true")
    os.chown(node_of_own.root / place, STRANGER, 0)

    assert why_refused(node_of_own) == f"it is not run: {node_of_own.root / place} belongs to user {STRANGER}"


@pytest.mark.skipif(not IS_ROOT, reason="needs root, and other users beside it")
def test_one_of_the_agents_own_user_is_run(node_of_own: OwnFolder) -> None:
    node_of_own.says("inodes", {"verdict": "OK"})
    os.chown(node_of_own.root / "checks.d" / "inodes", AGENT_UID, 0)

    assert node_of_own.asked().verdict is Verdict.OK


def test_a_link_is_not_followed_to_a_file(node_of_own: OwnFolder) -> None:
    file = node_of_own.has("inodes", "true").rename(node_of_own.root / "elsewhere")
    link = Path(node_of_own.config.checks_dir) / "inodes"
    link.symlink_to(file)

    assert why_refused(node_of_own) == f"it is not run: {link} is a link"


def test_nor_to_a_folder(node_of_own: OwnFolder) -> None:
    node_of_own.has("inodes", "true")
    link = node_of_own.root / "link"
    link.symlink_to(node_of_own.config.checks_dir)
    node_of_own.config = replace(node_of_own.config, checks_dir=str(link))

    assert why_refused(node_of_own) == f"it is not run: {link} is a link"


def test_a_folder_is_no_check(node_of_own: OwnFolder) -> None:
    folder = Path(node_of_own.config.checks_dir) / "inodes"
    folder.mkdir(mode=0o755)

    assert why_refused(node_of_own) == f"it is not run: {folder} is not a regular file"


def test_a_way_that_goes_up_again_is_not_believed(node_of_own: OwnFolder) -> None:
    node_of_own.has("inodes", "true")
    node_of_own.config = replace(node_of_own.config, checks_dir=f"{node_of_own.root}/state/../checks.d")

    assert "is not a plain absolute path" in why_refused(node_of_own)


def test_a_file_that_nobody_may_execute_is_not_run(node_of_own: OwnFolder) -> None:
    file = node_of_own.has("inodes", "true", mode=0o644)

    assert why_refused(node_of_own) == f"it is not run: {file} is not executable"


@pytest.mark.skipif(not IS_ROOT, reason="root alone has the choice")
def test_nothing_is_run_as_root(node_of_own: OwnFolder) -> None:
    node_of_own.has("inodes", "true")
    os.chown(node_of_own.config.state_dir, 0, 0)

    assert "your own checks never run as root" in why_refused(node_of_own)


@pytest.mark.skipif(not IS_ROOT, reason="root alone asks whose the folder is")
def test_where_the_agent_never_ran_it_says_which_folder_is_missing(node_of_own: OwnFolder) -> None:
    node_of_own.has("inodes", "true")
    node_of_own.config = replace(node_of_own.config, state_dir="/nowhere")

    assert why_refused(node_of_own).endswith(
        "/nowhere: No such file or directory: the owner of this folder is the user that it runs as"
    )


@pytest.mark.skipif(not IS_ROOT, reason="root alone can be somebody else")
def test_root_runs_it_as_the_agents_user_and_in_no_group_of_its_own(node_of_own: OwnFolder) -> None:
    node_of_own.has("inodes", """printf '{"verdict": "OK", "reason": "%s %s %s"}' "$(id -u)" "$(id -g)" "$(id -G)" """)
    before = os.getgroups()
    os.setgroups([STRANGER])
    try:
        said = node_of_own.asked()
    finally:
        os.setgroups(before)

    assert said.reason == f"{AGENT_UID} {AGENT_GID} {AGENT_GID}"


# How they are run


def test_it_starts_with_a_clean_environment_an_empty_stdin_and_no_way_to_more_rights(
    node_of_own: OwnFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    shared = node_of_own.shared()
    node_of_own.has(
        "inodes",
        f"""
        env | cut -d= -f1 | sort | tr '\\n' ' ' > {shared}/env
        cat | wc -c > {shared}/stdin; pwd > {shared}/cwd; umask > {shared}/umask
        ls /proc/$$/fd > {shared}/descriptors
        grep -E '^(NoNewPrivs|CapAmb)' /proc/self/status | tr -d '\\t\\n' > {shared}/rights
        printf '{{"verdict": "OK"}}'""",
    )

    with stdin_holds("what only the agent may read", node_of_own.root / "stdin"):
        node_of_own.asked()

    found = {file.name: file.read_text().strip() for file in shared.iterdir()}
    assert set(found["env"].split()) <= {"LANG", "PATH", "PWD", "OLDPWD", "SHLVL", "_"}  # the last ones are the shell's
    assert (found["stdin"], found["cwd"], found["umask"]) == ("0", "/", "0077")
    # The last three are the shell's: its script (10, or 255), and its output while it is redirected. None is ours.
    assert set(found["descriptors"].split()) <= {"0", "1", "2", "10", "11", "255"}
    assert found["rights"] == "CapAmb:0000000000000000NoNewPrivs:1"


@contextmanager
def stdin_holds(text: str, file: Path) -> Iterator[None]:
    """Standard input of this process, as a person's terminal may be."""
    file.write_text(text)
    before = os.dup(0)
    with file.open() as opened:
        os.dup2(opened.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'no such device' >&2; exit 1", "it ended with 1 and said 'no such device'"),
        ("exit 3", "it ended with 3"),
        ("""printf '{"verdict": "OK"}'; exit 1""", "it ended with 1"),
        ("kill -9 $$", "it ended with -9"),
        ("head -c 70000 /dev/zero", "it prints more than 65536 bytes"),
        ("yes", "it prints more than 65536 bytes"),
        ("true", "it prints nothing"),
        ("#!/no/such/shell\n", "it cannot be started: the interpreter in its first line does not exist"),
        ("#!\n", "it cannot be started: Exec format error"),
    ],
)
def test_a_file_that_does_not_do_its_work_is_broken_and_nothing_is_said_of_the_node(
    node_of_own: OwnFolder, script: str, why: str
) -> None:
    node_of_own.has("inodes", script)

    look = node_of_own.look()

    assert (look.problems, look.unclear) == ((), why)


def test_what_it_complains_about_is_not_kept_and_holds_up_nothing(node_of_own: OwnFolder) -> None:
    node_of_own.has("inodes", """head -c 1000000 /dev/zero >&2; printf '{"verdict": "OK"}'""")

    assert node_of_own.asked().verdict is Verdict.OK


def test_at_its_deadline_it_is_killed_with_all_that_it_has_started(node_of_own: OwnFolder) -> None:
    shared = node_of_own.shared()
    node_of_own.config = replace(node_of_own.config, own_checks={"inodes": OwnCheck(deadline_seconds=1.0)})
    node_of_own.has("inodes", f"sleep 600 & echo $! > {shared}/child; echo $$ > {shared}/parent; sleep 600")

    assert why_refused(node_of_own) == "no answer within 1 s"

    pids = [int((shared / name).read_text()) for name in ("child", "parent")]
    eventually(lambda: not any(is_alive(pid) for pid in pids))


def test_what_it_leaves_behind_is_killed_and_not_waited_for(node_of_own: OwnFolder) -> None:
    shared = node_of_own.shared()
    node_of_own.has("inodes", f"""sleep 600 & echo $! > {shared}/child; printf '{{"verdict": "OK"}}'""")

    assert node_of_own.asked().verdict is Verdict.OK  # within the deadline: the child holds the pipe open

    eventually(lambda: not is_alive(int((shared / "child").read_text())))


@pytest.mark.parametrize("generations", [1, 2])
def test_what_has_left_its_group_is_killed_and_not_waited_for_either(node_of_own: OwnFolder, generations: int) -> None:
    shared = node_of_own.shared()
    wait = f"while [ ! -s {shared}/pid ]; do sleep 0.01; done"
    daemon = f"setsid sh -c 'echo $$ > {shared}/pid; exec sleep 600' &"
    script = daemon if generations == 1 else f"setsid {shared}/daemon &"
    (shared / "daemon").write_text(f"#!/bin/sh\n{daemon}\n")
    (shared / "daemon").chmod(0o755)
    node_of_own.has("inodes", f"""{script} {wait}; printf '{{"verdict": "OK"}}'""")

    assert node_of_own.asked().verdict is Verdict.OK  # within the deadline: it holds the pipe open

    assert not is_alive(int((shared / "pid").read_text()))


def test_no_process_is_killed_that_is_not_the_checks(node_of_own: OwnFolder) -> None:
    node_of_own.says("inodes", {"verdict": "OK"})
    with subprocess.Popen(["sleep", "600"]) as other:
        node_of_own.asked()
        is_spared = other.poll() is None
        other.kill()

    assert is_spared


def test_a_script_whose_interpreter_others_may_write_is_not_run(node_of_own: OwnFolder) -> None:
    interpreter = node_of_own.root / "shell"
    shutil.copy("/bin/sh", interpreter)
    interpreter.chmod(0o777)
    file = node_of_own.has("inodes", "true")
    file.write_text(f"#!{interpreter} -e\ntrue\n")

    assert why_refused(node_of_own) == f"it is not run: {interpreter} can be written by others than its owner"


@pytest.mark.parametrize(
    ("first", "programs"),
    [
        ("#!/bin/sh", ["/bin/sh"]),
        ("#! /bin/sh -eu", ["/bin/sh"]),
        ("#!/usr/bin/env sh", ["/usr/bin/env", "sh"]),
        ("#!/usr/bin/env -S LANG=C sh -e", ["/usr/bin/env", "sh"]),
        ("#!/usr/bin/env no-such-program", ["/usr/bin/env"]),
        ("#!", []),
        ("\x7fELF", []),
    ],
)
def test_the_interpreters_of_a_script_are_those_that_its_first_line_starts(
    tmp_path: Path, first: str, programs: list[str]
) -> None:
    (tmp_path / "script").write_text(f"{first}\ntrue\n")

    found = [str(program) for program in interpreters(tmp_path / "script")]

    assert found == [str(shutil.which(name, path=ENVIRONMENT["PATH"])) for name in programs]


def test_a_disk_that_takes_nothing_more_keeps_no_check_from_its_work(node_of_own: OwnFolder) -> None:
    node_of_own.says("inodes", FULL)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        said = node_of_own.look()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert [problem.finding.subcode for problem in said.problems] == ["full"]


def test_a_look_that_is_ended_takes_its_file_along(node_of_own: OwnFolder) -> None:
    shared = node_of_own.shared()
    node_of_own.has("inodes", f"echo $$ > {shared}/pid; sleep 600")
    check = replace(check_of("inodes", node_of_own.config), deadline_seconds=1.0)

    [row] = rows_of([check], CheckContext(node_of_own.config, run_tool))

    assert (row.verdict, row.said) == ("UNKNOWN", ("no answer within 1 s",))
    eventually(lambda: not is_alive(int((shared / "pid").read_text())))


def is_alive(pid: int) -> bool:
    """Whether the process runs. A zombie, which only its parent can end, does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


# Which there are


def test_each_file_is_a_check_and_one_with_settings_has_them(node_of_own: OwnFolder) -> None:
    for name in ("inodes", "fans"):
        node_of_own.says(name, {"verdict": "OK"})
    config = replace(node_of_own.config, own_checks={"fans": OwnCheck(300.0, 60.0)})

    terms = {check.name: (check.interval_seconds, check.deadline_seconds) for check in all_of(config)}

    assert terms == {"own/fans": (300.0, 60.0 + own.MARGIN_SECONDS), "own/inodes": (60.0, 30.0 + own.MARGIN_SECONDS)}


def refused(node: OwnFolder) -> str:
    """What the check of the folder says of the files that are no checks."""
    return own.CHECK.look(CheckContext(node.config, run_tool), {}).unclear


def test_a_file_whose_name_no_check_can_have_is_named_with_the_reason(node_of_own: OwnFolder) -> None:
    for name in ("inodes", "inodes.bak", ".swp", "Fans", "x\ny"):
        node_of_own.says(name, {"verdict": "OK"})

    assert [check.name for check in all_of(node_of_own.config)] == ["own/inodes"]
    for name in ("'inodes.bak'", "'.swp'", "'Fans'", r"'x\ny'"):
        assert f"{name} is not a check name" in refused(node_of_own)


def test_a_folder_full_of_them_is_no_endless_line(node_of_own: OwnFolder) -> None:
    for number in range(100):
        node_of_own.says(f"{number}.bak", {"verdict": "OK"})

    assert len(refused(node_of_own)) == contract.REASON_CHARACTERS


def test_those_that_are_too_many_are_named_and_not_run(node_of_own: OwnFolder) -> None:
    for number in range(own.MOST + 1):
        node_of_own.says(f"one{number:02}", {"verdict": "OK"})

    assert len(all_of(node_of_own.config)) == own.MOST
    assert refused(node_of_own) == f"one{own.MOST} is not run: at most {own.MOST} checks are"


@pytest.mark.parametrize("missing", ["the folder", "a file in it"])
def test_a_node_without_the_folder_or_with_an_empty_one_has_nothing_to_look_at(
    node_of_own: OwnFolder, missing: str
) -> None:
    if missing == "the folder":
        Path(node_of_own.config.checks_dir).rmdir()

    place = CheckContext(node_of_own.config, run_tool)
    assert node_of_own.config.checks_dir in own.CHECK.why_not(place)
    assert all_of(node_of_own.config) == []


def test_the_configuration_chooses_them_by_name_or_all_at_once(node_of_own: OwnFolder) -> None:
    for name in ("inodes", "fans"):
        node_of_own.says(name, {"verdict": "OK"})

    def names(*checks: str) -> list[str]:
        return [check.name for check in chosen(replace(node_of_own.config, checks=checks))]

    assert names("disk") == ["disk"]
    assert names("disk", "own/fans") == ["disk", "own/fans"]
    assert names("own", "own/fans") == ["own", "own/fans", "own/inodes"]
    assert {"own", "own/fans", "own/inodes"} < {check.name for check in chosen(node_of_own.config)}
    with pytest.raises(ConfigError, match=r"there is no check 'own/\.\./x'; there are gpu_state"):
        names("own/../x")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"inodes": {"interval_seconds": 9}}, "'own_checks.inodes.interval_seconds' must be seconds, 10 to 86400"),
        ({"inodes": {"deadline_seconds": 301}}, "'own_checks.inodes.deadline_seconds' must be seconds, 1 to 300"),
        ({"inodes": {"every": 60}}, "unknown key 'own_checks.inodes.every'"),
        ({"inodes": 60}, "'own_checks.inodes' must be a table of tables"),
        ({"in.odes": {}}, "'own_checks' must be names of the form"),
        (60, "'own_checks' must be a table of tables"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(node: NodeFolder, table: object, why: str) -> None:
    node.config_file.write_text(toml({**node.config(), "own_checks": table}))

    with pytest.raises(ConfigError, match="own_checks") as refused:
        load(node.config_file)

    assert why in str(refused.value)


def test_settings_are_read(node: NodeFolder) -> None:
    node.config_file.write_text(toml({**node.config(), "own_checks": {"inodes": {"interval_seconds": 300}}}))

    assert load(node.config_file).own_checks == {"inodes": OwnCheck(300.0, 30.0)}


# What people see


def configured(node: NodeFolder, own_node: OwnFolder, **more: object) -> None:
    """The node's configuration, with this folder."""
    more = {"checks_dir": own_node.config.checks_dir, "state_dir": own_node.config.state_dir, **more}
    node.config_file.write_text(toml({**node.config(), **more}))


def test_check_lists_them_as_it_does_others(
    node: NodeFolder, node_of_own: OwnFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    configured(node, node_of_own, checks=["own"])
    node_of_own.says("inodes", FULL)
    node_of_own.says("fans", {"verdict": "OK", "reason": "4 fans"})
    node_of_own.has("broken", "exit 1")
    node_of_own.says("notes.txt", {"verdict": "OK"})

    code = main(["check", "--config", str(node.config_file)])

    assert code == 2
    said = capsys.readouterr().out
    assert "own/fans          OK       4 fans" in said
    assert "own/inodes        FAILED   full: no inode is left" in said
    assert "own/broken        UNKNOWN  it ended with 1" in said
    assert "own               UNKNOWN  'notes.txt' is not a check name" in said


def test_one_of_them_can_be_asked_by_name(
    node: NodeFolder, node_of_own: OwnFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    configured(node, node_of_own)
    node_of_own.says("fans", {"verdict": "OK", "reason": "4 fans"})

    codes = [main(["check", name, "--config", str(node.config_file)]) for name in ("own/fans", "own/nowhere")]

    assert codes == [0, 3]
    assert f"not checked: there is no {node_of_own.config.checks_dir}/nowhere" in capsys.readouterr().out


def test_the_doctor_runs_each_and_says_what_came_of_it(
    node_of_own: OwnFolder, capsys: pytest.CaptureFixture[str], node: NodeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in node.environment().items():
        monkeypatch.setenv(name, value)
    node_of_own.says("inodes", FULL)
    node_of_own.has("refused", "true", mode=0o777)
    node_of_own.says("notes.txt", {})
    config = replace(node_of_own.config, boot_id_file=str(node.boot_id_file), kernel_log=(), checks=("own",))

    doctor(chosen(config), CheckContext(config, run_tool), as_json=True)

    signs = {sign["what"]: sign for sign in map(json.loads, capsys.readouterr().out.splitlines())}
    told = {name: (sign["state"], sign["said"]) for name, sign in signs.items() if name.startswith("check ")}
    file = f"{config.checks_dir}/refused"
    assert told["check own/inodes"] == ("ok", "it says FAILED: full: no inode is left")
    assert told["check own/refused"] == ("poor", f"it is not run: {file} can be written by others than its owner")
    assert told["check own"][0] == "poor"
    assert "'notes.txt' is not a check name" in told["check own"][1]


# What the agent makes of it


class Course:
    """One check of one's own in the agent's hands."""

    def __init__(self, node: OwnFolder, name: str = "inodes") -> None:
        self.node, self.check, self.now = node, check_of(name, node.config), 0.0
        self.watch = CheckScheduler([self.check.terms], "boot-1", {}, 1e6, self.now)

    def looks(self) -> list[CheckChange]:
        """Time passes until it is asked; what of its answer is news."""
        self.now += self.watch.due_in(self.now)
        self.watch.ask(self.now, lambda *_: None)
        [(answer, _, _)] = answers_of([self.check], CheckContext(self.node.config, run_tool))
        return self.watch.take(answer, self.now, 1000.0 + self.now)


def verdicts(news: list[CheckChange]) -> list[str]:
    return ["over" if one.is_over else verdict_of(one.problem.finding).value for one in news]


def test_a_problem_is_told_once_again_when_it_is_graver_and_when_it_is_over(node_of_own: OwnFolder) -> None:
    course = Course(node_of_own)
    told = []
    for verdict in ("DEGRADED", "DEGRADED", "FAILED", "DEGRADED", "OK", "OK"):
        node_of_own.says("inodes", {"verdict": verdict, "reason": "x"} | ({"code": "full"} if verdict != "OK" else {}))
        told.append(verdicts(course.looks()))

    assert told == [["DEGRADED"], [], ["FAILED"], [], [], ["over"]]


def test_a_check_that_breaks_takes_nothing_back(node_of_own: OwnFolder) -> None:
    course = Course(node_of_own)
    node_of_own.says("inodes", FULL)
    course.looks()
    node_of_own.has("inodes", "exit 1")

    assert [course.looks() for _ in range(3)] == [[], [], []]
    assert course.watch.dump()["checks"]["courses"]["own/inodes"]["active"]  # type: ignore[index]


def test_what_was_told_is_known_after_a_restart_with_its_verdict(node_of_own: OwnFolder) -> None:
    course = Course(node_of_own)
    node_of_own.says("inodes", FULL)
    course.looks()
    kept = json.loads(json.dumps(course.watch.dump()))

    course.watch = CheckScheduler([course.check.terms], "boot-1", kept, 1e6, course.now)

    assert course.looks() == []


def test_its_samples_are_those_of_any_check(node_of_own: OwnFolder) -> None:
    course = Course(node_of_own)
    node_of_own.says("inodes", FULL)
    course.looks()

    samples = [one for one in course.watch.samples(course.now) if one.name == "check_verdict" and one.value]

    assert [dict(one.labels) for one in samples] == [{"check": "own/inodes", "verdict": "FAILED"}]


def test_the_agent_reports_what_a_file_finds(
    node: NodeFolder, node_of_own: OwnFolder, bus: FakeEventBridge, request: pytest.FixtureRequest
) -> None:
    configured(node, node_of_own, checks=["own"], own_checks={"inodes": {"interval_seconds": 10}})
    os.utime(node.boot_id_file, (0, 0))  # it has been up for long: the first look comes at once
    node_of_own.says("inodes", FULL)
    agent = AgentProcess(node)
    request.addfinalizer(agent.clean_up)

    agent.start()
    eventually(lambda: bus.codes() == ["inodes"])

    [told] = bus.details()
    assert (told["family"], told["subcode"], told["verdict"]) == ("own", "full", "FAILED")
    assert (told["source"], told["component"], told["evidence"]) == ("own/inodes", "/scratch", "no inode is left")


# Whether the node shows what it reported


def confirmed(node: OwnFolder, name: str = "inodes", **changes: Any) -> Confirmation:
    config = replace(node.config, kernel_log=(KernelLog("file", "/nowhere"),))
    known = {"family": "own", "code": name, "subcode": "full", "component": "/scratch"}
    accusation = {**known, "boot_id": config.boot_id(), "source": f"own/{name}", **changes}
    return confirm(Accusation(**accusation), config, 20.0).confirmation


def test_a_node_is_asked_by_running_the_check_again(node_of_own: OwnFolder) -> None:
    node_of_own.says("inodes", FULL)
    assert confirmed(node_of_own) is Confirmation.CONFIRMED
    assert confirmed(node_of_own, subcode="other") is Confirmation.DENIED

    node_of_own.says("inodes", {"verdict": "OK"})
    assert confirmed(node_of_own) is Confirmation.DENIED


@pytest.mark.parametrize("script", ["exit 1", """printf '{"verdict": "UNKNOWN", "reason": "no tool"}'"""])
def test_a_check_that_cannot_tell_confirms_and_denies_nothing(node_of_own: OwnFolder, script: str) -> None:
    node_of_own.has("inodes", script)

    assert confirmed(node_of_own) is Confirmation.UNKNOWN


def test_nor_does_one_that_is_gone(node_of_own: OwnFolder) -> None:
    assert confirmed(node_of_own) is Confirmation.UNKNOWN


@pytest.mark.parametrize("source", ["kernel_log", "own/../inodes"])
def test_nor_does_a_source_that_is_no_check(node_of_own: OwnFolder, source: str) -> None:
    assert confirmed(node_of_own, source=source) is Confirmation.UNKNOWN


# The examples


@pytest.mark.parametrize(
    ("file_nr", "said"),
    [
        ("1024 0 4096", Said(Verdict.OK, reason="1024 of 4096 file handles are in use (25 %)")),
        ("3700 0 4096", Said(Verdict.DEGRADED, "few_left", None, "3700 of 4096 file handles are in use (90 %)")),
        ("4090 0 4096", Said(Verdict.FAILED, "none_left", None, "4090 of 4096 file handles are in use (99 %)")),
    ],
)
def test_the_example_in_the_shell_reports_file_handles_that_run_out(
    node_of_own: OwnFolder, file_nr: str, said: Said
) -> None:
    (node_of_own.root / "file-nr").write_text(f"{file_nr}\n")
    script = (EXAMPLES / "file_handles").read_text()
    node_of_own.has("file_handles", script.replace("/proc/sys/fs/file-nr", f"{node_of_own.root}/file-nr"))

    assert node_of_own.asked("file_handles") == said


def test_the_example_in_the_shell_runs_on_this_machine(node_of_own: OwnFolder) -> None:
    node_of_own.has("file_handles", (EXAMPLES / "file_handles").read_text())

    assert node_of_own.asked("file_handles").reason.endswith("%)")


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        ("echo ntp is up; exit 0", Said(Verdict.OK, reason="ntp is up")),
        ('echo "ntp is \\"down\\""; exit 1', Said(Verdict.DEGRADED, "problem", None, 'ntp is "down"')),
        ("echo no systemctl; exit 2", Said(Verdict.UNKNOWN, reason="no systemctl")),
    ],
)
def test_the_example_in_python_runs_a_plugin_of_node_problem_detector(
    node_of_own: OwnFolder, plugin: str, said: Said
) -> None:
    file = node_of_own.root / "check_ntp.sh"
    file.write_text(f"#!/bin/sh\n{plugin}\n")
    file.chmod(0o755)
    node_of_own.has("ntp", (EXAMPLES / "npd_plugin").read_text().replace("/opt/plugins/check_ntp.sh", str(file)))

    assert node_of_own.asked("ntp") == said
