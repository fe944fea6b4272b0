"""The sandbox's SSM agent does as amazon-ssm-agent 3.3 was seen to do, in the same order; its seconds are scaled."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from nodeheal.agent.node_commands.reboot import DELAY_SECONDS
from nodeheal.contract import names
from sandbox.behaviour import Behaviour
from sandbox.node import Faults, Node, NodeSpec
from sandbox.ssm_agent import Invocation, SsmAgent
from sandbox.ssm_commands import summarise_invocation
from sandbox.ssm_documents import Json, parse_document

SCALE = 0.01
PATIENCE_SECONDS = 30.0
PACKAGED = Path(__file__).parents[2] / "packaging" / "ssm"


class Machine:
    """A simulated node with its SSM agent, and nothing else on it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        spec = NodeSpec("mi-1", "demo", "training", 1, "127.0.0.1", "http://127.0.0.1:9", directory, "test-ssm-agent")
        self.behaviour = Behaviour(ssm_seconds_scale=SCALE)
        self.node = Node(spec, 0.05, ["sleep", "600"], None, lambda: self.behaviour.ssm_seconds_scale)
        self.statuses: list[tuple[str, str]] = []
        self.agent = SsmAgent(self.node, self.behaviour, self._note)
        self._numbers = count(1)
        self.node.start()

    def _note(self, invocation: Invocation) -> None:
        self.statuses.append((invocation.command_id, invocation.status))

    def runs(self, script: str, parameters: Json | None = None, given: Json | None = None, **inputs: str) -> Invocation:
        """A command that runs this script is sent to it, past the service."""
        step = {"action": "aws:runShellScript", "name": "it", "inputs": {"runCommand": script.split("\n"), **inputs}}
        return self.gets({"schemaVersion": "2.2", "parameters": parameters or {}, "mainSteps": [step]}, given)

    def gets(
        self, document: Json, given: Json | None = None, delivery_seconds: int = 60, name: str = "document"
    ) -> Invocation:
        """A command with this document."""
        command, made = f"c{next(self._numbers)}", parse_document(name, document, {})
        sent = Invocation(command, "mi-1", made, given or {}, delivery_seconds, datetime.now(UTC))
        self.agent.send(sent)
        return sent

    def file(self, name: str) -> Path:
        """A file of the node that a script may write."""
        return self.node.directory / name


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "node")
    yield made
    made.node.power_off()


def until(claim: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not claim():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def ended(invocation: Invocation) -> tuple[str, int]:
    assert invocation.ended.wait(PATIENCE_SECONDS), invocation.status
    return invocation.status, invocation.response_code


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def test_no_node_is_made_where_a_reboot_would_find_the_machines_own_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.node.TOOLS", tmp_path)  # as in a checkout without links

    with pytest.raises(RuntimeError, match="would reboot this machine"):
        Machine(tmp_path / "node")


# How a script runs --------------------------------------------------------------------------------------------------


def test_nothing_is_installed_on_the_computer_that_the_sandbox_runs_on(machine: Machine) -> None:
    there = machine.file("there")
    step = {"action": "aws:runShellScript", "name": "it", "inputs": {"runCommand": [f"touch {there}"]}}

    sent = machine.gets({"schemaVersion": "2.2", "mainSteps": [step]}, name=names.INSTALL_DOCUMENT)

    assert sent.ended.wait(PATIENCE_SECONDS)
    assert "nothing is installed" in sent.errors
    assert not there.exists()


@pytest.mark.parametrize("has_details", [False, True])
def test_the_output_of_a_command_is_listed_where_its_details_are_asked_for(machine: Machine, has_details: bool) -> None:
    sent = machine.runs("echo out; echo err >&2; exit 1")
    assert sent.ended.wait(PATIENCE_SECONDS)

    listed = summarise_invocation(sent, has_details=has_details)

    outputs = [plugin["Output"] for plugin in listed.get("CommandPlugins", [])]
    assert outputs == ([f"{sent.output}\n----------ERROR-------\n{sent.errors}"] if has_details else [])
    assert all("out" in output and "err" in output for output in outputs)


def test_a_script_gets_what_a_service_gets_and_a_few_words_of_the_agents(machine: Machine) -> None:
    seen = machine.runs("env; echo cwd=$PWD; readlink /proc/self/fd/0; stat -c mode=%a $0; umask")

    assert ended(seen) == ("Success", 0)
    lines = seen.output.splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert {"AWS_SSM_INSTANCE_ID", "AWS_SSM_REGION_NAME", "SSM_COMMAND_ID", "PATH"} <= names
    assert not {"HOME", "LANG"} & names
    assert {f"cwd={machine.node.directory}/usr/bin", "/dev/null", "mode=700"} <= set(lines)
    [path] = [line for line in lines if line.startswith("PATH=")]
    assert path.endswith("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


def test_the_first_line_of_a_script_says_what_runs_it(machine: Machine) -> None:
    python = machine.runs("#!/usr/bin/env python3\nimport sys\nprint(sys.argv[0].rpartition('/')[2])")

    assert ended(python) == ("Success", 0)
    assert python.output == "_script.sh\n"


@pytest.mark.parametrize(
    ("script", "status", "code", "errors"),
    [
        ("exit 3", "Failed", 3, "failed to run commands: exit status 3"),
        ("echo why >&2; exit 3", "Failed", 3, "why\nfailed to run commands: exit status 3"),
        ("echo unheard >&2; exit 168", "Success", 168, ""),
        ("exit 169", "Failed", 169, "failed to run commands: exit status 169"),
        ("exit 137", "TimedOut", 137, ""),
    ],
)
def test_an_exit_code_means_what_it_means_to_the_agent(
    machine: Machine, script: str, status: str, code: int, errors: str
) -> None:
    it = machine.runs(script)

    assert ended(it) == (status, code)
    assert it.errors == errors


@pytest.mark.parametrize("stream", [1, 2])
def test_each_output_is_cut_with_a_mark(machine: Machine, stream: int) -> None:
    it = machine.runs(f"head -c 30000 /dev/zero | tr '\\0' x >&{stream}")
    short = machine.runs(f"head -c 23999 /dev/zero | tr '\\0' x >&{stream}")

    for each in (it, short):
        ended(each)
    cut, whole = ((each.output, each.errors)[stream - 1] for each in (it, short))
    assert (len(cut), cut[-21:]) == (24_000, "x--output truncated--")
    assert whole == "x" * 23_999


def test_a_child_that_holds_a_pipe_keeps_the_step_going(machine: Machine) -> None:
    it = machine.runs(f"while [ ! -e {machine.file('go')} ]; do sleep 0.05; done &\necho begun")
    until(lambda: machine.file("ssm").joinpath(it.command_id).exists())
    time.sleep(0.5)
    assert it.status == "InProgress"

    machine.file("go").touch()

    assert ended(it) == ("Success", 0)


# Time-outs and cancels ----------------------------------------------------------------------------------------------


def test_a_script_whose_time_is_over_is_killed_with_its_group(machine: Machine) -> None:
    it = machine.runs(f"sleep 300 &\necho $! > {machine.file('child')}\nwait", timeoutSeconds="5")
    child = pid_in(machine.file("child"))

    assert ended(it) == ("TimedOut", 137)
    assert it.details == "ExecutionTimedOut"
    until(lambda: not is_alive(child))


def test_a_child_of_another_session_fails_the_step_at_its_time_out(machine: Machine) -> None:
    it = machine.runs(f"setsid sh -c 'echo $$ > {machine.file('child')}; exec sleep 300' &", timeoutSeconds="5")
    child = pid_in(machine.file("child"))

    assert ended(it) == ("Failed", 1)
    assert it.errors == "failed to run commands: no such process"
    assert is_alive(child)


@pytest.mark.parametrize(
    ("said", "seconds"), [("3", 3600), ("5", 5), ("172801", 3600), ("soon", 3600), (None, 3600), ("{{ Time }}", 7)]
)
def test_a_time_out_below_five_seconds_is_an_hour(said: str | None, seconds: int) -> None:
    inputs = {"runCommand": ["true"]} | ({"timeoutSeconds": said} if said else {})
    step = {"action": "aws:runShellScript", "name": "it", "inputs": inputs}
    parameters = {"Time": {"type": "String", "default": "7"}}
    document = parse_document("d", {"schemaVersion": "2.2", "parameters": parameters, "mainSteps": [step]}, {})

    assert document.script({}).execution_seconds == seconds


def test_a_cancel_kills_the_group_and_nothing_of_another_session(machine: Machine) -> None:
    own, other = machine.file("own"), machine.file("other")
    it = machine.runs(
        f"setsid sh -c 'echo $$ > {other}; exec sleep 300' >/dev/null 2>&1 &\nsleep 300 &\necho $! > {own}\nwait"
    )
    child, stranger = pid_in(own), pid_in(other)

    it.cancelled.set()

    assert ended(it) == ("Cancelled", 137)
    until(lambda: not is_alive(child))
    assert is_alive(stranger)


def test_a_cancel_that_comes_with_the_delivery_holds_up_no_other_command(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes = machine.agent._takes

    def takes_as_it_is_cancelled(invocation: Invocation) -> bool:
        is_taken = takes(invocation)
        if is_taken:
            invocation.cancelled.set()
        return is_taken

    with monkeypatch.context() as patch:
        patch.setattr(machine.agent, "_takes", takes_as_it_is_cancelled)
        assert ended(machine.runs("true")) == ("Cancelled", -1)

    assert ended(machine.runs("true")) == ("Success", 0)


# How many at once ---------------------------------------------------------------------------------------------------


def test_five_run_five_more_are_held_and_the_next_is_not_taken(machine: Machine) -> None:
    begun, go = machine.file("begun"), machine.file("go")
    sent = [machine.runs(f"echo {number} >> {begun}; while [ ! -e {go} ]; do sleep 0.05; done") for number in range(12)]
    until(lambda: begun.exists() and len(begun.read_text().split()) == 5)
    until(lambda: [each.status for each in sent] == ["InProgress"] * 10 + ["Pending"] * 2)
    time.sleep(0.3)
    assert sorted(begun.read_text().split()) == ["0", "1", "2", "3", "4"]

    sent[7].cancelled.set()
    sent[11].cancelled.set()
    assert ended(sent[7]) == ended(sent[11]) == ("Cancelled", -1)
    go.touch()

    kept = [each for number, each in enumerate(sent) if number not in (7, 11)]
    assert {ended(each) for each in kept} == {("Success", 0)}
    assert sorted(map(int, begun.read_text().split())) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]


def test_a_command_begins_after_the_time_that_it_takes_to_its_node(machine: Machine) -> None:
    machine.behaviour.ssm_begin_seconds = 0.5
    began = time.monotonic()

    assert ended(machine.runs("true")) == ("Success", 0)
    assert time.monotonic() - began >= 0.5


def test_a_command_that_cannot_be_delivered_in_time_never_begins(machine: Machine) -> None:
    machine.node.stop()
    step = {"action": "aws:runShellScript", "name": "it", "inputs": {"runCommand": ["true"]}}

    it = machine.gets({"schemaVersion": "2.2", "mainSteps": [step]}, delivery_seconds=0)

    assert ended(it) == ("TimedOut", -1)
    assert it.details == "DeliveryTimedOut"


# Parameters ---------------------------------------------------------------------------------------------------------

WORD = {"type": "String", "allowedPattern": "^[a-z]+$"}


@pytest.mark.parametrize("value", ["dead\n", "a'b", "", "{{ Word }}"])
def test_the_agent_checks_a_pattern_again_before_anything_runs(machine: Machine, value: str) -> None:
    it = machine.runs(f"touch {machine.file('ran')}", {"Word": WORD}, {"Word": [value]})

    assert ended(it) == ("Failed", -1)
    assert not machine.file("ran").exists()


def test_the_agent_checks_no_list_of_values_and_ignores_what_it_does_not_know(machine: Machine) -> None:
    level = {"type": "String", "allowedValues": ["1", "2"]}

    it = machine.runs("echo {{ Level }}", {"Level": level}, {"Level": ["$((6 * 7))"], "Colour": ["red"]})

    assert ended(it) == ("Success", 0)
    assert it.output == "42\n"


# Reboots ------------------------------------------------------------------------------------------------------------


def test_a_script_that_asks_for_a_reboot_gets_it_a_minute_later_and_runs_again(machine: Machine) -> None:
    machine.behaviour.ssm_seconds_scale = 0.02  # 64.4 s are 1.3 s
    boot, ran = machine.node.boot_id, machine.file("ran")
    it = machine.runs(f"echo ran\n[ -e {ran} ] && exit 0\ntouch {ran}\nexit 194")
    until(ran.exists)
    time.sleep(0.3)
    meanwhile = machine.runs(f"cat {machine.node.directory / 'boot_id'}")
    time.sleep(0.3)
    assert (machine.node.boot_id, meanwhile.status) == (boot, "Pending")

    assert ended(it) == ("Success", 0)
    assert it.output == "ran\nran\n"
    assert ended(meanwhile) == ("Success", 0)
    assert boot not in meanwhile.output


def test_a_command_that_a_power_cut_ends_is_not_run_again_and_fails_a_minute_after_the_boot(machine: Machine) -> None:
    machine.behaviour.ssm_seconds_scale = 0.02  # 61 s are 1.2 s
    ran, go = machine.file("ran"), machine.file("go")
    cut = [machine.runs(f"echo ran >> {ran}; sleep 300") for _ in range(5)]
    until(lambda: ran.exists() and ran.read_text().count("ran") == 5)
    held = machine.runs(f"touch {go}")
    until(lambda: held.status == "InProgress")

    machine.node.reboot()
    time.sleep(0.3)
    assert {each.status for each in (*cut, held)} == {"InProgress"}  # all five workers are taken
    assert not go.exists()

    assert {ended(each) for each in cut} == {("Failed", 1)}
    assert {(each.output, each.errors) for each in cut} == {("document process failed unexpectedly", "")}
    assert ended(held) == ("Success", 0)
    assert ran.read_text().count("ran") == 5


def test_a_command_that_a_power_cut_ends_may_never_be_reported(machine: Machine) -> None:
    machine.behaviour.ssm_orphans = True
    ran = machine.file("ran")
    lost = machine.runs(f"touch {ran}; sleep 300")
    until(ran.exists)

    machine.node.reboot()

    assert ended(machine.runs("true")) == ("Success", 0)
    time.sleep(61 * SCALE + 0.3)
    assert lost.status == "InProgress"


# nodeheal's own documents -------------------------------------------------------------------------------------------


def reboot_document() -> Json:
    document: Json = json.loads((PACKAGED / "reboot-node.json").read_text())
    return document


def ordered(machine: Machine, boot_id: str, expires_in: float = 600) -> Invocation:
    given = {"BootId": [boot_id], "ExpiresAt": [str(int(time.time() + expires_in))]}
    return machine.gets(reboot_document(), given)


def test_the_reboot_command_succeeds_before_the_node_goes_down(machine: Machine) -> None:
    machine.behaviour.ssm_seconds_scale = 0.4  # 5 s are 2 s
    boot = machine.node.boot_id

    it = ordered(machine, boot)

    assert ended(it) == ("Success", 0)
    assert (machine.node.boot_id, machine.node.is_up) == (boot, True)
    assert json.loads(it.output) == {"rebooting": boot, "in_seconds": DELAY_SECONDS}
    until(lambda: machine.node.boot_id != boot and machine.node.is_up)


def test_two_commands_for_one_boot_make_one_reboot_and_a_late_one_makes_none(machine: Machine) -> None:
    machine.behaviour.ssm_seconds_scale = 0.6  # 5 s are 3 s: both come before it
    boot = machine.node.boot_id

    both = [ordered(machine, boot) for _ in range(2)]
    assert {ended(each) for each in both} == {("Success", 0)}
    until(lambda: machine.node.boot_id != boot and machine.node.is_up)
    after = machine.node.boot_id
    machine.behaviour.ssm_seconds_scale = SCALE

    late, expired = ordered(machine, boot), ordered(machine, after, expires_in=-1)
    assert ended(late) == ("Success", 0)
    assert json.loads(late.output) == {"already_rebooted": boot, "boot_id": after}
    assert ended(expired) == ("Failed", 3)
    time.sleep(155 * SCALE + 0.5)
    assert machine.node.boot_id == after


def test_a_shutdown_that_a_process_holds_up_is_forced(machine: Machine) -> None:
    machine.behaviour.ssm_seconds_scale = 0.4  # the shutdown begins after 2 s: both timers are armed by then
    config = machine.file("agent.toml")
    config.write_text("reboot_force_seconds = 10\n" + config.read_text())
    machine.node.set_faults(Faults(hangs_shutdown=True))
    boot = machine.node.boot_id

    assert ended(ordered(machine, boot)) == ("Success", 0)

    until(lambda: machine.node.boot_id != boot and machine.node.is_up)
