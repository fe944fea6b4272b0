"""The operator's command: what it says, and how it says that something is wrong."""

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nodeheal import __version__
from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.cli import connect
from nodeheal.cli.main import COMMANDS, ELSEWHERE, Commands, app
from nodeheal.contract.vocabulary import Family, NodeState
from nodeheal.domain.faults.catalog import find
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool
from tests.support.acts import MemoryControlPlane
from tests.support.builders import memory_ports, node

RUN = CliRunner()
NODE = node().node_id


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> Ports:
    world = memory_ports()
    monkeypatch.setattr(connect, "ports", lambda table: world)
    monkeypatch.setattr(connect, "marks", MemoryMarks)
    monkeypatch.setattr(connect, "policy_copy", lambda table: RecoveryPolicy())
    monkeypatch.setattr(connect, "control_plane", lambda: MemoryControlPlane(world, RecoveryPolicy()))
    return world


@pytest.fixture
def acting(tmp_path: Path) -> Path:
    """A document with which nodeheal acts, in every pool but one."""
    document = tmp_path / "acting.json"
    document.write_text('{"default_pool": {"mode": "act"}, "pools": {"quiet": {"mode": "observe"}}}')
    return document


def explained(*words: object) -> dict[str, Any]:
    result = RUN.invoke(app, ["explain", *map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer


def test_the_version_is_told() -> None:
    assert RUN.invoke(app, ["--version"]).output == f"nodeheal {__version__}\n"


def test_explain_says_what_and_why() -> None:
    said = RUN.invoke(app, ["explain", "XID", "79"]).output

    assert "GPU has fallen off the bus" in said
    assert "REBOOT, then REPLACE" in said
    assert "observe mode" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("gpu_lost",), "did you mean `nodeheal explain nvml gpu_lost` or `nodeheal explain nvrm_other gpu_lost`?"),
        (("foo",), "'foo' is not one of xid, sxid, dcgm, "),
        (("foo", "1"), "'foo' is not one of xid, sxid, dcgm, "),
        (("xid",), "xid takes one code: nodeheal explain xid CODE"),
        (("xid", "79", "80"), "xid takes one code"),
    ],
)
def test_explain_says_which_words_it_takes(words: tuple[str, ...], told: str) -> None:
    said = RUN.invoke(app, ["explain", *words])

    assert said.exit_code == 2
    assert told in " ".join(said.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        ("79", "XID 79"),
        ("7999", "XID 7999"),
        ("13", "XID 13"),
        ("145/RLW_RXPIPE", "XID 145"),
        ("dcgm_fr_nvlink_down", "DCGM DCGM_FR_NVLINK_DOWN"),
    ],
)
def test_explain_takes_a_code_alone_where_it_is_clear(word: str, fault: str) -> None:
    said = RUN.invoke(app, ["explain", word])

    assert said.exit_code == 0
    assert said.output.startswith(fault)


@pytest.mark.parametrize(
    ("word", "ours"), [("get", "nodes list"), ("version", "--version"), ("cordon", "nodes drain NODE")]
)
def test_a_command_of_another_tool_is_refused_with_ours(word: str, ours: str) -> None:
    said = RUN.invoke(app, [word, "nodes"])

    assert said.exit_code == 2
    assert f"Here it is: nodeheal {ours}" in " ".join(said.output.replace("│", " ").split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_helps_line_on_a_command_is_what_the_command_says_first(name: str) -> None:
    first, *_ = (Commands()[name].help or "").split("\n\n")

    assert COMMANDS[name][-1] == first.replace("\n", " ")


def test_no_command_of_ours_is_said_to_be_elsewhere() -> None:
    assert not ELSEWHERE.keys() & COMMANDS.keys()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("status", "--every", "soon"), "Invalid value for '--every': \"soon\" is not a number"),
        (("status", "--every", "0"), "Invalid value for '--every': \"0\" is too small; give at least 1.0"),
        (("simulate", "--nodes", "1.5"), "Invalid value for '--nodes': \"1.5\" is not a whole number"),
        (("incidents", "export", "--format", "xml"), "'xml' is not one of 'markdown', 'json', 'events'."),
    ],
)
def test_an_argument_is_refused_in_plain_words(words: tuple[str, ...], told: str) -> None:
    said = RUN.invoke(app, [*words])

    assert said.exit_code == 2
    assert told in " ".join(said.output.replace("│", " ").split())


def test_explain_says_by_whose_policy_it_decides(acting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_force = RecoveryPolicy.model_validate_json(acting.read_text())
    built_in = RUN.invoke(app, ["explain", "xid", "79"]).output
    file = RUN.invoke(app, ["explain", "xid", "79", "--policy", str(acting)]).output
    monkeypatch.setattr(connect, "policy", lambda: in_force)

    deployed = RUN.invoke(app, ["explain", "xid", "79", "--deployed"]).output

    assert "decided by   the built-in policy, not your deployment's (see --deployed)\n" in built_in
    assert f"decided by   {acting}\n" in file
    assert "decided by   your deployment's policy\n" in deployed
    assert f"default (act mode, policy {in_force.version})" in deployed
    assert "next step    ISOLATE: " in deployed
    assert [explained("xid", "79", *more)["policy"] for more in ((), ("--deployed",))] == ["built-in", "deployed"]


def test_explain_says_that_a_pool_is_not_there(acting: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    ports.nodes.save(node())
    policy = RecoveryPolicy.model_validate({"pools": {"next": {"mode": "act"}}})
    monkeypatch.setattr(connect, "policy", lambda: policy)

    pools = ("demo", "dmeo", "next")
    said = {pool: RUN.invoke(app, ["explain", "xid", "79", "--deployed", "--pool", pool]) for pool in pools}
    offline = RUN.invoke(app, ["explain", "xid", "79", "--pool", "dmeo"])

    refused = "no pool dmeo is known; did you mean demo? Known pools: demo\n"
    assert (said["dmeo"].exit_code, said["dmeo"].output) == (1, refused)
    assert "note: no pool next is known (known: demo)" in said["next"].output
    assert "note: " not in said["demo"].output
    assert offline.exit_code == 0
    assert "its default_pool holds (whether there is such a pool, --deployed asks)" in offline.output


def test_explain_decides_by_one_policy(acting: Path) -> None:
    said = RUN.invoke(app, ["explain", "xid", "79", "--deployed", "--policy", str(acting)])

    assert (said.exit_code, said.output) == (2, "--policy and --deployed: give one of them\n")


@pytest.mark.parametrize(("no_colour", "is_plain"), [("1", True), ("", False)])
@pytest.mark.parametrize("words", ["-h", "explain foo"])
def test_what_a_terminal_gets_is_plain_where_no_colour_is_wanted(words: str, no_colour: str, is_plain: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "NO_COLOR": no_colour, "TERM": "xterm", "COLUMNS": "80"}
    program = [sys.executable, "-c", "from nodeheal.cli.entry import main; main()", *words.split()]

    with subprocess.Popen(program, stdin=theirs, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        said = b"".join(iter(lambda: read_of(ours), b""))

    os.close(ours)
    assert b"explain" in said
    assert (b"\x1b" not in said) == is_plain


def read_of(terminal: int) -> bytes:
    """What it has been sent; empty at the end."""
    try:
        return os.read(terminal, 65_536)
    except OSError:  # as Linux says that nobody writes any more
        return b""


def test_explain_speaks_to_programs() -> None:
    said = explained("xid", "555")

    assert (said["is_known"], said["action"]) == (False, "ESCALATE")


def test_an_unknown_code_goes_to_a_human_and_says_so() -> None:
    said = RUN.invoke(app, ["explain", "xid", "555"]).output

    assert "nobody has described this fault" in said
    assert "asks for     ESCALATE" in said


def test_explain_tells_what_act_mode_would_do_beside_what_this_pool_does() -> None:
    answer = explained("xid", "79")

    assert (answer["next_step"], answer["in_act_mode"]["next_step"]) == ("CLOSE", "ISOLATE")
    assert "if it acted  ISOLATE: " in RUN.invoke(app, ["explain", "xid", "79"]).output


def test_where_the_pool_acts_there_is_nothing_beside(acting: Path) -> None:
    said = RUN.invoke(app, ["explain", "xid", "79", "--policy", str(acting)]).output

    assert "next step    ISOLATE: " in said
    assert "if it acted" not in said


def test_explain_says_where_a_pool_is_not_named_and_that_nothing_follows_on_nothing() -> None:
    said = RUN.invoke(app, ["explain", "xid", "79", "--pool", "llama", "--after", "reboot"]).output

    assert "llama (observe mode, policy " in said
    assert "not named in the policy, so that its default_pool holds" in said
    assert "next step    none: in observe mode nothing would have been tried" in said
    assert "if it acted  REPLACE: " in said


@pytest.mark.parametrize(
    ("fault", "title"),
    [
        (("xid", "79"), "XID 79 (GPU has fallen off the bus)"),
        (("xid", "79/FOO"), "XID 79/FOO (GPU has fallen off the bus)"),
        (("xid", "145/RLW_RXPIPE"), "XID 145 (NVLink RLW_RXPIPE: status not listed)"),
        (("xid", "145/RLW_RXPIPE/0x1"), "XID 145/RLW_RXPIPE/0x1 (NVLink RLW_RXPIPE: status not listed)"),
        (("xid", "7999/FOO"), "XID 7999/FOO"),
        (("host", "operator_request/REBOOT"), "Reboot asked for by hand"),
    ],
)
def test_a_title_keeps_the_sub_code_unless_the_name_is_its_own(fault: tuple[str, str], title: str) -> None:
    assert explained(*fault)["fault"] == title


def test_explain_answers_for_the_pool(acting: Path) -> None:
    modes = {pool: explained("xid", "79", "--policy", acting, "--pool", pool)["mode"] for pool in ("quiet", "other")}

    assert modes == {"quiet": "observe", "other": "act"}


@pytest.mark.parametrize(
    ("after", "step"), [("", "ISOLATE"), ("reboot", "REPLACE"), (" Reboot , REPLACE", "ESCALATE"), (",", "ISOLATE")]
)
def test_explain_goes_on_from_what_was_tried(acting: Path, after: str, step: str) -> None:
    answer = explained("xid", "79", "--policy", acting, "--after", after)

    assert answer["next_step"] == step
    assert answer["after"] == [word.strip().upper() for word in after.split(",") if word.strip()]


def test_a_word_that_cannot_have_been_tried_is_refused() -> None:
    result = RUN.invoke(app, ["explain", "xid", "79", "--after", "reboot,pray"])

    assert result.exit_code == 2
    assert result.output == "--after: 'pray' is not one of reset_gpu, reboot, stop_start, replace\n"


@pytest.mark.parametrize(
    ("after", "step", "told"),
    [
        ("reboot", "REBOOT", "next is a stop and start, which moves it to another host"),
        ("reboot,stop_start", "REPLACE", "the stop and start did not help (diagnostics failed); next is a replacement"),
    ],
)
def test_explain_shows_the_stop_and_start_of_a_pool_that_has_it(
    tmp_path: Path, after: str, step: str, told: str
) -> None:
    document = tmp_path / "policy.json"
    document.write_text('{"default_pool": {"mode": "act", "stop_start": true}, "evidence": {"enabled": false}}')

    answer = explained("xid", "79", "--policy", document, "--after", after)

    assert (answer["next_step"], told in answer["reason"]) == (step, True)


def test_a_code_that_is_known_for_other_products_goes_to_a_human(acting: Path) -> None:
    row = find(Family.xid, "74")
    assert row is not None
    assert row.products == ("A100", "H100")

    steps = {
        product: explained("xid", "74", "--policy", acting, "--product", product)["next_step"]
        for product in ("NVIDIA H100 80GB HBM3", "NVIDIA GB200", "something that nobody tells apart")
    }

    assert list(steps.values()) == ["ISOLATE", "ESCALATE", "ISOLATE"]


def test_a_sub_code_is_looked_up_before_its_code(acting: Path) -> None:
    answer = explained("xid", "154/NODE_REBOOT", "--policy", acting)

    assert (answer["code"], answer["subcode"]) == ("154", "NODE_REBOOT")
    assert answer["ladder"][0] == "REBOOT"
    assert answer["ladder"] != explained("xid", "154/NONE", "--policy", acting)["ladder"]


def test_an_override_is_explained_with_its_own_reason(tmp_path: Path) -> None:
    document = tmp_path / "policy.json"
    override = {"fault": "xid/79", "ladder": ["REPLACE"], "why": "they never come back"}
    document.write_text(json.dumps({"overrides": [override]}))

    answer = explained("xid", "79", "--policy", document)

    assert answer["ladder"] == ["REPLACE"]
    assert "they never come back" in answer["why"]


@pytest.mark.parametrize(
    ("words", "field"), [(["xid", ""], "code"), (["xid", "79", "--product", ""], "product"), (["zid", "1"], "zid")]
)
def test_what_cannot_be_a_fault_is_refused_without_a_traceback(words: list[str], field: str) -> None:
    result = RUN.invoke(app, ["explain", *words])

    assert result.exit_code == 2
    assert field in result.output
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("family", [family for family in Family if family is not Family.heartbeat])
def test_explain_has_an_answer_for_every_family(family: Family) -> None:
    unknown = "9999" if family in (Family.xid, Family.sxid) else "SOMETHING-NEW"

    assert explained(family.value, unknown)["next_step"] in ("CLOSE", "ESCALATE")


@pytest.mark.parametrize("code", ["abc", "-1", "٧٩"])
def test_an_xid_is_a_number(code: str) -> None:
    result = RUN.invoke(app, ["explain", "xid", "--", code])

    assert result.exit_code == 2
    assert "xid codes are numbers" in result.output


def test_a_number_may_have_zeros_before_it() -> None:
    assert explained("xid", "079")["code"] == "79"


def test_explain_guesses_what_was_meant() -> None:
    assert (
        "did you mean DCGM_FR_VOLATILE_DBE_DETECTED"
        in RUN.invoke(app, ["explain", "dcgm", "FR_VOLATILE_DBE_DETECTED"]).output
    )


def test_nodes_are_listed_with_their_state(ports: Ports) -> None:
    ports.nodes.save(node(state=NodeState.QUARANTINED, state_reason="no spare"))

    said = RUN.invoke(app, ["nodes", "list", "demo"]).output

    assert NODE in said
    assert "QUARANTINED" in said
    assert "no spare" in said


def test_nodes_are_listed_for_programs(ports: Ports) -> None:
    ports.nodes.save(node(job_id="llama"))
    ports.nodes.save(node("mi-elsewhere", pool="other"))

    [row] = json.loads(RUN.invoke(app, ["nodes", "list", "demo", "--json"]).output)

    assert (row["node"], row["state"], row["job"], row["incident"]) == (NODE, "HEALTHY", "llama", None)


def test_a_pause_of_the_pool_stands_above_its_nodes_and_that_of_a_node_beside_it(ports: Ports) -> None:
    ports.nodes.save(node(state_reason="it is new"))
    ports.nodes.save(node("mi-other"))
    quiet = RUN.invoke(app, ["nodes", "list", "demo"]).output
    pause_node(NODE, 3_600, "ada: new riser", ports)
    pause_pool("demo", 60, "ada: new switch", ports)

    said = RUN.invoke(app, ["nodes", "list", "demo"]).output.splitlines()
    rows = json.loads(RUN.invoke(app, ["nodes", "list", "demo", "--json"]).output)

    assert "paused" not in quiet
    assert said[0] == "pool demo is paused until 2026-03-01 03:01 UTC (ada: new switch)"
    [marked] = [line for line in said[1:] if "paused" in line]
    assert marked.startswith(NODE)
    assert "paused until 2026-03-01 04:00:00 UTC (ada: new riser); it is new" in marked
    assert [(row["node"], row["paused_why"]) for row in rows] == [(NODE, "ada: new riser"), ("mi-other", None)]


def test_a_pool_that_nobody_has_heard_of_is_an_error_that_names_the_others(ports: Ports) -> None:
    nobody = RUN.invoke(app, ["nodes", "list", "demo"])
    ports.nodes.save(node())

    said = RUN.invoke(app, ["nodes", "list", "dmeo"])

    assert (nobody.exit_code, nobody.output) == (
        1,
        "no pool demo: no node of any pool has reported yet, or was enrolled\n",
    )
    assert (said.exit_code, said.output) == (1, "no pool dmeo is known; did you mean demo? Known pools: demo\n")


@pytest.mark.parametrize(("verb", "state"), [("release", NodeState.HEALTHY), ("retire", NodeState.RETIRED)])
def test_a_quarantined_node_is_given_back_or_given_up(
    ports: Ports, verb: str, state: NodeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    ports.nodes.save(node(state=NodeState.QUARANTINED))
    ports.pools.claim("demo", NODE, 1)

    result = RUN.invoke(app, ["nodes", verb, NODE, "--why", "seen to"])

    after = ports.nodes.get(NODE)
    assert result.exit_code == 0
    assert after is not None
    assert after == replace(after, state=state, state_reason="ada: seen to", open_incident=None)
    assert list(ports.pools.holders("demo")) == []


def test_a_release_of_a_retired_node_says_that_it_is_retired(ports: Ports) -> None:
    ports.nodes.save(node(state=NodeState.RETIRED))

    result = RUN.invoke(app, ["nodes", "release", NODE, "--why", "it is back"])

    assert result.exit_code == 1
    assert result.output == f"{NODE} is retired: there is no way back; a machine comes back under another id\n"


def test_a_node_that_is_in_service_is_refused_in_one_line(ports: Ports) -> None:
    ports.nodes.save(node())

    result = RUN.invoke(app, ["nodes", "release", NODE, "--why", "by mistake"])

    assert result.exit_code == 1
    assert "nodeheal has not taken it out of service" in result.output


# Files of others ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("brackets", ["[" * 20_000, '{"a":' * 20_000])
@pytest.mark.parametrize(
    "words",
    [
        ("policy", "check"),
        ("policy", "diff"),
        ("policy", "apply", "--why", "a test"),
        ("explain", "xid", "79", "--policy"),
        ("replay", "--policy"),
        ("simulate", "--policy"),
        ("parse", "dcgm-diag"),
        ("parse", "dcgm-health"),
        ("parse", "neuron"),
        ("jobs", "validate"),
        ("jobs", "submit"),
    ],
    ids=" ".join,
)
def test_a_deeply_nested_file_is_refused_or_read_and_never_a_traceback(
    words: tuple[str, ...], brackets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    file = tmp_path / "deep.json"
    file.write_text(brackets)
    more = (str(file),) if words[0] == "replay" else ()

    result = CliRunner().invoke(app, [*words, str(file), *more])

    assert result.exit_code != 0
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception


def test_deeply_nested_contexts_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("[" * 20_000)
    monkeypatch.setenv("NODEHEAL_CONFIG", str(file))

    result = CliRunner().invoke(app, ["contexts", "list"])

    assert result.exit_code == 2
    assert str(file) in result.output.replace("\n", "")
