"""`nodeheal-agent doctor`: what works here, tried as the agent would do it, and never waited for without end."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, always
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.commands import doctor_probes
from nodeheal.agent.commands.doctor import Sign, Trial, doctor, trial_of, tried
from nodeheal.agent.main import main
from nodeheal.contract import names
from sandbox.toml import toml
from tests.support.agent_fakes import CONFIG, IDENTITY, USER_ID, FakeEventBridge, NodeFolder
from tests.support.agent_fakes import Answer as BusAnswer

PLACE = CheckContext(CONFIG, run_tool)


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch, node: NodeFolder) -> None:
    for name, value in node.environment().items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("credentials")
def test_the_doctor_tries_whether_the_bus_takes_events(
    node: NodeFolder, bus: FakeEventBridge, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["doctor"])

    told = capsys.readouterr().out
    assert code == 0
    assert [entry["DetailType"] for entry in bus.accepted] == ["Agent Doctor"]
    assert "bus                     ok     takes events of this node" in told
    assert f"kernel log (file)       ok     {node.kernel_log}" in told


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("error", ["InternalFailure", "MalformedDetail"])
def test_a_bus_that_takes_the_call_and_not_the_event_is_no_bus(
    bus: FakeEventBridge, capsys: pytest.CaptureFixture[str], error: str
) -> None:
    bus.answers = [BusAnswer(entry_errors={0: error})]

    assert main(["doctor", "--json"]) == 1

    sign = signs(capsys)["bus"]
    assert (sign.state, sign.said) == ("WRONG", error)


@pytest.mark.usefixtures("credentials")
def test_the_doctor_says_what_keeps_the_agent_from_its_work(
    node: NodeFolder, bus: FakeEventBridge, capsys: pytest.CaptureFixture[str]
) -> None:
    bus.always = BusAnswer(400, "AccessDeniedException")
    node.kernel_log.unlink()

    code = main(["doctor", "--json"])

    signs = {sign["what"]: sign for sign in map(json.loads, capsys.readouterr().out.splitlines())}
    assert code == 1
    assert [what for what, sign in signs.items() if sign["state"] == "WRONG"] == ["kernel log (file)", "bus"]
    assert "AccessDeniedException" in signs["bus"]["said"]
    assert "Let it speak" in signs["bus"]["said"]


def test_a_configuration_that_cannot_be_used_is_all_that_the_doctor_says(
    node: NodeFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    node.config_file.write_text("nodes = 1\n")

    code = main(["doctor", "--config", str(node.config_file)])

    told = capsys.readouterr().out
    assert code == 1
    assert told.startswith(f"configuration           WRONG  {node.config_file}: unknown key 'nodes'")
    assert "systemctl restart nodeheal-agent" in told


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.usefixtures("credentials")
def test_a_spool_that_cannot_be_written_is_found(node: NodeFolder, capsys: pytest.CaptureFixture[str]) -> None:
    Path(node.state_dir).mkdir(mode=0o500)

    assert main(["doctor"]) == 1
    assert "spool                   WRONG" in capsys.readouterr().out


@pytest.mark.usefixtures("credentials", "bus")
@pytest.mark.parametrize(("flags", "state"), [(0, "ok"), (os.ST_NOEXEC, "poor"), (None, "-")])
def test_the_doctor_finds_a_folder_of_the_ssm_agent_where_no_script_runs(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    flags: int | None,
    state: str,
) -> None:
    """The mount's flags are the only thing that is made up: a test may not mount."""
    known = os.statvfs(tmp_path)
    monkeypatch.setattr(
        "nodeheal.agent.commands.doctor.SSM_FOLDER", tmp_path if flags is not None else tmp_path / "nowhere"
    )
    mounted = os.statvfs_result((*known[:8], flags or 0, *known[9:]))
    monkeypatch.setattr(os, "statvfs", lambda folder: mounted)

    assert main(["doctor", "--json"]) == 0

    sign = signs(capsys)["SSM commands"]
    assert sign.state == state
    assert ("exit code 126" in sign.said) is (state == "poor")


@pytest.mark.usefixtures("credentials", "bus")
def test_the_doctor_makes_no_folder_which_would_be_roots(node: NodeFolder, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])

    assert "does not exist yet" in capsys.readouterr().out
    assert not node.state_dir.exists()


@pytest.mark.usefixtures("credentials", "bus")
def test_a_spool_that_can_never_be_made_is_found(node: NodeFolder, capsys: pytest.CaptureFixture[str]) -> None:
    node.config_file.write_text(toml({**node.config(), "state_dir": str(node.boot_id_file / "nodeheal")}))

    code = main(["doctor"])

    assert code == 1
    assert "spool                   WRONG" in capsys.readouterr().out


@pytest.mark.usefixtures("credentials", "bus")
def test_a_boot_id_that_is_empty_keeps_the_doctor_from_nothing_else(
    node: NodeFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    node.boot_id_file.write_text("")

    assert main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert f"boot id                 WRONG  {node.boot_id_file}: contains no boot id" in told
    assert "spool                   ok" in told


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(("folder", "state"), [("tools", "ok"), ("nowhere", "WRONG")])
def test_the_doctor_misses_the_tool_that_reads_the_journal(
    node: NodeFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: str, state: str
) -> None:
    tool = node.directory / "tools" / "journalctl"
    tool.parent.mkdir()
    tool.touch(0o755)
    node.config_file.write_text(toml(node.config() | {"kernel_log": [{"kind": "journald"}]}))
    monkeypatch.setenv("PATH", str(node.directory / folder))

    main(["doctor", "--json"])

    signs = {sign["what"]: sign["state"] for sign in map(json.loads, capsys.readouterr().out.splitlines())}
    assert signs["kernel log (journald)"] == state


def signs(capsys: pytest.CaptureFixture[str]) -> dict[str, Sign]:
    """What the doctor has told, by what it is about."""
    told = [Sign(**json.loads(line)) for line in capsys.readouterr().out.splitlines()]
    return {sign.what: sign for sign in told}


@pytest.mark.usefixtures("credentials")
def test_the_doctor_gives_a_true_heartbeat(bus: FakeEventBridge, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])

    assert (code, signs(capsys)["heartbeats"].state) == (0, "ok")
    [heartbeat] = bus.table.beats
    assert heartbeat["Key"] == {names.HEARTBEAT_KEY: {"S": USER_ID}}
    assert heartbeat["ExpressionAttributeValues"][":boot"] == {"S": "boot-1"}


@pytest.mark.usefixtures("credentials")
def test_a_heartbeat_says_the_interval_that_the_control_plane_wants(
    bus: FakeEventBridge, capsys: pytest.CaptureFixture[str]
) -> None:
    bus.table.wanted = "300"

    main(["doctor", "--json"])

    assert signs(capsys)["heartbeats"].said == "accepted, every 300 s"
    assert [heartbeat["ExpressionAttributeValues"][":every"] for heartbeat in bus.table.beats] == [
        {"N": "60"},
        {"N": "300"},
    ]


@pytest.mark.usefixtures("credentials")
def test_a_role_that_may_not_write_the_nodes_item_is_wrong_and_what_the_agent_can_do_without_is_poor(
    node: NodeFolder, bus: FakeEventBridge, capsys: pytest.CaptureFixture[str]
) -> None:
    bus.table.refusal = "AccessDeniedException"
    node.config_file.write_text(toml({**node.config(), "cloudwatch_metrics": "nodes", "checks": ["host_load"]}))

    code = main(["doctor", "--json"])

    told = signs(capsys)
    assert (code, told["bus"].state, told["heartbeats"].state, told["CloudWatch"].state) == (
        1,
        "WRONG",
        "WRONG",
        "poor",
    )
    assert "the signing key is not published: 400 AccessDeniedException" in told["bus"].said
    assert told["heartbeats"].said.endswith("see 'Let it speak' in docs/agent.md")
    assert "AccessDeniedException" in told["CloudWatch"].said


@pytest.mark.usefixtures("credentials", "bus")
def test_the_way_around_the_bus_is_reached_and_not_used(
    bus: FakeEventBridge, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor", "--json"])

    way = signs(capsys)["way around the bus"]
    assert (way.state, "permission to publish is not tested" in way.said, bus.table.published) == ("?", True, [])


@pytest.mark.usefixtures("credentials")
def test_a_way_around_the_bus_that_is_out_of_reach_is_poor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SNS", "http://127.0.0.1:9")

    main(["doctor", "--json"])

    sign = signs(capsys)["way around the bus"]
    assert (sign.state, sign.said) == ("poor", "127.0.0.1:9: [Errno 111] Connection refused")


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(("level", "state", "count"), [("gpus", "ok", 1), ("off", "-", 0)])
def test_cloudwatch_gets_a_true_number_where_it_is_told_any(
    node: NodeFolder, bus: FakeEventBridge, capsys: pytest.CaptureFixture[str], level: str, state: str, count: int
) -> None:
    node.config_file.write_text(toml({**node.config(), "cloudwatch_metrics": level, "checks": ["host_load"]}))

    main(["doctor", "--json"])

    assert signs(capsys)["CloudWatch"].state == state
    assert len(bus.table.metrics) == count
    for call in bus.table.metrics:
        [datum] = call["MetricData"]
        assert datum["Dimensions"] == [{"Name": "NodeId", "Value": IDENTITY.node_id}]
        assert 0 < datum["StatisticValues"]["Sum"] <= 100


def test_what_hangs_is_said_and_holds_up_nothing_else() -> None:
    def hangs() -> str:
        time.sleep(60)
        return "never"

    began = time.monotonic()
    told = tried([Trial(trial_of("bus", hangs, 0.3)), Trial(trial_of("spool", lambda: "fine"))], PLACE)

    assert [(sign.what, sign.state, sign.said) for sign in told] == [
        ("bus", "WRONG", "no answer within 0.3 s"),
        ("spool", "ok", "fine"),
    ]
    assert time.monotonic() - began < 10


@pytest.mark.usefixtures("credentials")
def test_a_driver_that_hangs_while_it_is_asked_whether_it_is_there_holds_up_nothing(
    node: NodeFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(_: CheckContext) -> str:
        time.sleep(60)
        return ""

    def breaks(_: CheckContext) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr("nodeheal.agent.commands.doctor.LOCAL_SECONDS", 0.3)
    config = replace(CONFIG, boot_id_file=str(node.boot_id_file), state_dir=str(node.state_dir), kernel_log=())
    named = {"hangs": hangs, "breaks": breaks, "fine": always, "absent": lambda _: "no GPU"}
    checks = [
        NodeCheck(name, "GPUs", 60.0, 5.0, why_not, lambda *_: NodeCheckResult()) for name, why_not in named.items()
    ]

    doctor(checks, CheckContext(config, run_tool), as_json=True)

    told = {name: signs_ for name, signs_ in signs(capsys).items() if name.startswith("check")}
    assert {name: sign.state for name, sign in told.items()} == {
        "check hangs": "poor",
        "check breaks": "poor",
        "check fine": "ok",
        "check absent": "-",
    }
    assert told["check absent"].said == "no GPU"


@pytest.mark.usefixtures("credentials")
def test_two_kernel_logs_are_two_signs(node: NodeFolder, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [{"kind": "file", "path": path} for path in (str(node.kernel_log), "/nowhere/messages")]
    node.config_file.write_text(toml({**node.config(), "kernel_log": logs}))

    main(["doctor", "--json"])

    told = signs(capsys)
    assert [told[f"kernel log (file){more}"].state for more in ("", " 2")] == ["ok", "WRONG"]


def test_memory_that_is_not_understood_is_no_number(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: many")

    with pytest.raises(OSError, match="not understood"):
        doctor_probes.measures(replace(PLACE, proc=tmp_path))
