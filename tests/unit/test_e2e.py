"""`make e2e` asks before it acts, refuses what is in use, and takes away what it made."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import NoCredentialsError

from nodeheal.contract import names
from nodeheal.domain.policy.policy import parse_policy
from tests.support.command_lines import must_parse
from tools import e2e
from tools.e2e import E2e, E2eFailed, confirm, dry_run, has_recovered, refuse_where_it_is_deployed

NODE, EC2_NODE = "mi-0a1b2c3d4e5f60718", "i-0a1b2c3d4e5f60718"


def a_run(directory: Path, **changes: Any) -> E2e:
    flag: dict[str, object] = {"alert_emails": ["oncall@example.com"]}
    return E2e("training", flag, "e2e", directory, ["stage=sandbox"], look_every=0.0, settle=0.0, **changes)


@pytest.fixture
def run(tmp_path: Path) -> E2e:
    return a_run(tmp_path)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is run, one word each; all of it succeeds, and every node recovers."""
    words: list[str] = []

    def record(command: list[str], *, must: bool = True) -> bool:
        words.append(word_of(command))
        return True

    monkeypatch.setattr(e2e, "run", record)
    monkeypatch.setattr(e2e, "is_heard", lambda _: True)
    monkeypatch.setattr(e2e, "endings", lambda _: {f"inc-{len(words)}": "RECOVERED"})
    monkeypatch.setattr(e2e, "nodes_of", lambda _: [])
    return words


def word_of(command: list[str]) -> str:
    """The verb of a command, and what it is about."""
    words = [word for word in command[1:] if word not in ("-m", "tools.leftovers")]
    return " ".join(words[:3] if words[0] == "nodes" else words[:1])


def test_a_dry_run_prints_every_command_as_a_shell_takes_it(tmp_path: Path) -> None:
    said = dry_run(a_run(tmp_path / "a folder"))

    commands = [shlex.split(line) for line in said.splitlines() if not line.startswith("#")]
    ours = [command for command in commands if command[0] not in ("cd", "export", "mkdir", "rm")]
    assert [word_of(command) for command in ours] == [
        *("doctor", "list", "deploy", "doctor", "policy", "nodes enroll NODE", "doctor", "inject"),
        *("nodes retire NODE", "release", "destroy", "delete", "list"),
    ]
    [settings] = {word for command in commands for word in command if word.startswith("nodeheal=")}
    assert json.loads(settings.removeprefix("nodeheal="))["alert_emails"] == ["oncall@example.com"]
    assert ours[4][3] == str(tmp_path / "a folder" / "policy.json")
    assert "end-to-end drill" in ours[4]


def test_a_dry_run_leaves_no_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: pytest.fail("it makes a directory"))

    assert e2e.main(["--dry-run"]) == 0
    assert "deploy --require-approval" in capsys.readouterr().out


def test_its_policy_lets_it_act_on_its_own_pool_and_on_no_other(run: E2e) -> None:
    policy = parse_policy(run.document)

    assert policy.pool("e2e").mode == "act"
    assert policy.pool("e2e").drills is True
    assert policy.pool("h100").mode == "observe"


def test_only_what_the_command_line_names_is_changed_in_the_settings_of_cdk_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert e2e.main(["--dry-run"]) == 0
    assert "nodeheal=" not in capsys.readouterr().out

    assert e2e.main(["--dry-run", "--cluster", "green"]) == 0
    printed = capsys.readouterr().out
    assert """-c 'nodeheal={"cluster": "green"}'""" in printed
    assert "--cluster green" in printed


@pytest.mark.parametrize(
    "given",
    [
        ("--pool", "not/one"),
        ("--email", "nobody"),
        ("--context", "stage"),
        ("--context", "stage=elsewhere"),
        ("--context", 'nodeheal={"cluster": "blue"}'),
        ("--cluster", "not/one"),
    ],
)
def test_a_bad_argument_is_refused_by_its_name_before_anything_runs(
    given: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("boto3.client", lambda *_, **__: pytest.fail("it asks AWS"))

    with pytest.raises(SystemExit) as refused:
        e2e.main(given)

    assert refused.value.code == 2
    assert given[0].removeprefix("--") in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("typed", ["", "yes", "111122223333", "111122223333 us-east-1"])
def test_without_account_and_region_typed_nothing_is_done(typed: str) -> None:
    with pytest.raises(E2eFailed, match="nothing was done"):
        confirm("111122223333", "eu-central-1", lambda _: typed)


class Stacks:
    """CloudFormation with these stacks."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def get_paginator(self, _: str) -> "Stacks":
        return self

    def paginate(self) -> list[dict[str, Any]]:
        return [{"Stacks": [{"StackName": name} for name in self._names]}]


def test_where_nodeheal_is_deployed_it_refuses() -> None:
    refuse_where_it_is_deployed(Stacks("CDKToolkit"))

    with pytest.raises(E2eFailed, match="would remove it"):
        refuse_where_it_is_deployed(Stacks("CDKToolkit", names.STACK))


@pytest.mark.parametrize("keeps_data", [False, True])
def test_it_notes_the_history_before_it_deploys_and_deletes_the_rest_at_the_end(
    keeps_data: bool, tmp_path: Path, done: list[str]
) -> None:
    run = a_run(tmp_path, keeps_data=keeps_data)

    e2e.play(run, lambda _: NODE)

    assert done.index("list") < done.index("deploy")
    assert done[-1] == "list"
    assert done[-3:-1] == (["release", "destroy"] if keeps_data else ["destroy", "delete"])
    assert run.note()[-1] == run.tear_down([])[-1][-1] or keeps_data


def test_with_ec2_it_replaces_a_second_node_and_retires_what_was_launched(
    tmp_path: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e2e, "nodes_of", lambda _: [NODE, "i-0launched"])

    e2e.play(a_run(tmp_path, is_ec2=True), lambda question: EC2_NODE if "EC2" in question else NODE)

    nodes = [word for word in done if word.startswith("nodes")]
    assert nodes == [
        *(f"nodes enroll {NODE}", f"nodes enroll {EC2_NODE}", f"nodes replace {EC2_NODE}"),
        *(f"nodes retire {NODE}", "nodes retire i-0launched"),
    ]


def test_an_incident_of_before_is_no_recovery() -> None:
    before: dict[str, str | None] = {"inc-1": "RECOVERED", "inc-2": "ESCALATED"}

    assert not has_recovered(before, before)
    assert not has_recovered({**before, "inc-3": None}, before)
    assert has_recovered({**before, "inc-3": "RECOVERED"}, before)
    with pytest.raises(E2eFailed, match="OBSERVED_ONLY"):
        has_recovered({**before, "inc-3": "OBSERVED_ONLY"}, before)


def test_what_it_made_is_taken_away_although_the_drill_has_failed(
    run: E2e, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(command: list[str], *, must: bool = True) -> bool:
        done.append(word_of(command))
        if command[1] == "inject":
            raise E2eFailed("the node takes no drill")
        return True

    monkeypatch.setattr(e2e, "run", refuse)

    with pytest.raises(E2eFailed, match="no drill"):
        e2e.play(run, lambda _: NODE)
    assert done[-5:] == [f"nodes retire {NODE}", "release", "destroy", "delete", "list"]


def test_a_stack_that_is_left_behind_is_no_success(run: E2e, done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`cdk destroy` fails while something that is not known here holds the role of the nodes."""

    def fail(command: list[str], *, must: bool = True) -> bool:
        done.append(word_of(command))
        return command[1] != "destroy"

    monkeypatch.setattr(e2e, "run", fail)

    with pytest.raises(E2eFailed, match=r"destroy .* failed: not everything was removed"):
        e2e.play(run, lambda _: EC2_NODE)


def test_a_second_run_takes_up_what_the_first_has_left(run: E2e) -> None:
    assert "--import-existing-resources" in run.deploy()


@pytest.mark.parametrize(
    ("ends", "code", "is_kept"),
    [(None, 0, False), (KeyboardInterrupt(), e2e.INTERRUPTED, False), (E2eFailed("the drill failed"), 1, True)],
)
def test_its_folder_is_kept_only_after_a_failure_and_then_named(
    ends: BaseException | None,
    code: int,
    is_kept: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "nodeheal-e2e-x"

    def make(**_: str) -> str:
        folder.mkdir()
        return str(folder)

    def play(run: E2e, ask: Any) -> None:
        run.policy.write_text(run.document, "utf-8")
        if ends:
            raise ends

    monkeypatch.setattr("tempfile.mkdtemp", make)
    monkeypatch.setattr(e2e, "_play_where_it_may", play)

    assert e2e.main([]) == code
    assert folder.exists() == is_kept
    assert (str(folder) in capsys.readouterr().out) == is_kept


def test_ctrl_c_takes_away_what_it_made(run: E2e, done: list[str]) -> None:
    def person(_: str) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        e2e.play(run, person)
    assert done[-4:] == ["release", "destroy", "delete", "list"]


def test_a_second_ctrl_c_is_a_failure_so_that_its_folder_stays(
    run: E2e, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(_: str) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(e2e, "nodes_of", broken_off)

    with pytest.raises(E2eFailed, match="the removal was interrupted"):
        e2e.play(run, lambda _: NODE)


def test_an_account_that_cannot_be_asked_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def no_answer(*_: Any, **__: Any) -> Any:
        raise NoCredentialsError

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr("boto3.client", no_answer)

    assert e2e.main([]) == 1
    assert capsys.readouterr().out == "e2e: AWS cannot be reached, so nothing was done: Unable to locate credentials\n"
    assert list(tmp_path.iterdir()) == []


def test_a_list_that_nodeheal_refuses_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; sys.stderr.write('No such option'); sys.exit(2)"
    monkeypatch.setattr(e2e, "nodeheal", lambda *words: [sys.executable, "-c", script])

    with pytest.raises(E2eFailed, match="incidents list: No such option"):
        e2e.endings("e2e")


def test_the_lists_that_it_asks_for_are_known_to_nodeheal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def ran(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        asked.append(command[1:])
        return subprocess.CompletedProcess(command, 0, b"[]")

    monkeypatch.setattr("subprocess.run", ran)

    assert e2e.endings("e2e") == {}
    must_parse(asked[0])
