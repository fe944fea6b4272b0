"""`nodeheal inject`: where the pool is marked for drills, on a node that is well, and only what reads as a fault."""

import base64
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from nodeheal.adapters.aws.ssm import SsmNodeCommands
from nodeheal.adapters.memory.world import MemoryNodeCommands, SentCommand
from nodeheal.agent.checks.dcgm import CHECK
from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.contract import names
from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.errors import NotFound
from nodeheal.domain.faults.drill import DcgmDrill, parse_dcgm_drill
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import Incident, fingerprint
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command, CommandStatus
from nodeheal.services.operators.foretell import foretell_drill
from nodeheal.services.operators.inject_fault import drill_line, inject_fault
from nodeheal.services.operators.operator_guardrails import pause_pool, trip_breaker
from nodeheal.services.saving import node_of
from nodeheal.services.steps import save_node
from tests.support.aws_world import Aws
from tests.support.builders import ACT, NOW, memory_ports, node, xid
from tests.support.fake_cluster import FakeCluster, without_job
from tests.support.incident_steps import A
from tests.support.jobs import ecs_job

NODE = node().node_id
DRILLED = RecoveryPolicy.model_validate({"pools": {"demo": {"drills": True}}})
XID_79 = f"NVRM: Xid (PCI:0000:b9:00): 79, pid=<unknown>, name=<unknown>, {names.DRILL_MARK}"


class DrillCommands(MemoryNodeCommands):
    """Takes commands whose answer is known at once."""

    answer = CommandStatus("SUCCEEDED")

    def send(self, node: Node, command: Command, expires_at: datetime) -> str:
        command_id = super().send(node, command, expires_at)
        self.statuses[command_id] = self.answer
        return command_id


@pytest.fixture
def drills(monkeypatch: pytest.MonkeyPatch) -> DrillCommands:
    monkeypatch.setattr(connect, "policy", lambda: DRILLED)
    monkeypatch.setattr("nodeheal.services.operators.inject_fault.DRILL_SECONDS", 0)
    return DrillCommands()


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch, drills: DrillCommands) -> Ports:
    world = replace(memory_ports(), commands=drills)
    world.nodes.save(node())
    monkeypatch.setattr(connect, "ports", lambda table: world)
    return world


def by_ssm(ssm: Aws) -> Ports:
    """Ports of a fleet whose node takes commands by SSM."""
    world = replace(memory_ports(), commands=SsmNodeCommands(ssm, ssm, lambda: NOW), clock=lambda: NOW)
    world.nodes.save(node())
    return world


def encoded(line: str) -> str:
    return base64.urlsafe_b64encode(line.encode()).decode().rstrip("=")


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["inject", *words])


def test_a_drill_says_what_was_injected_and_where_to_look(ports: Ports, drills: DrillCommands) -> None:
    said = run(NODE, "--xid", "79", "--why", "fire drill")

    assert said.exit_code == 0, said.output
    assert drills.sent == [SentCommand("inject-fault", NODE, "boot-1", {"Line": encoded(XID_79)})]
    assert XID_79 in said.output
    assert "nodeheal incidents list demo" in said.output


def test_a_dry_run_says_what_would_break_and_breaks_nothing(ports: Ports, drills: DrillCommands) -> None:
    said = run(NODE, "--xid", "79", "--dry-run")

    assert said.exit_code == 0, said.output
    assert f"drill   {XID_79}" in said.output
    assert (
        "then    nothing is touched. XID 79 (GPU has fallen off the bus): pool demo is in observe mode" in said.output
    )
    assert said.output.endswith("dry run: nothing was asked for\n")
    assert drills.sent == []
    assert run(NODE, "--xid", "79").exit_code == 2


def in_mode(mode: str, **more: Any) -> RecoveryPolicy:
    return RecoveryPolicy.model_validate({"pools": {"demo": {"drills": True, "mode": mode}}, **more})


def spent_on(group: str) -> dict[str, Any]:
    limits = RecoveryPolicy().model_dump(mode="json")["limits"]
    return {"limits": {**limits, group: {**limits[group], "limit": 0}}}


def nothing(ports: Ports) -> None:
    """The pool stays as it is."""


@pytest.mark.parametrize(
    ("policy", "change", "told"),
    [
        (in_mode("act"), nothing, ["what follows is real, by policy", "its first action is a reboot\n", "llama stop"]),
        (in_mode("approve"), nothing, ["you are asked first, and nothing is touched before a yes", "llama stop"]),
        (in_mode("observe"), nothing, ["nothing is touched", "pool demo is in observe mode", "job llama goes on"]),
        (
            in_mode("act"),
            lambda ports: pause_pool("demo", 600, "ada: a rack moves", ports),
            ["nothing is touched", "pool demo is paused until 2026-03-01 03:10 UTC (ada: a rack moves)", "goes on"],
        ),
        (
            in_mode("act"),
            lambda ports: trip_breaker("demo", "9 of 10 nodes fail", ports),
            [
                "nothing is touched before `nodeheal breaker reset demo --why …`, "
                "and a reset that comes more than 10 min after the fault drops it. ",
                "9 of 10 nodes fail",
            ],
        ),
        (
            in_mode("act"),
            lambda ports: ports.pools.claim("demo", "mi-other", 1),
            ["what follows is real", "before that it waits for a slot: 1 of 1 slots are taken"],
        ),
        (
            in_mode("act", **spent_on("REBOOT")),
            nothing,
            ["its first action is a replacement, because 0 of 0 reboots in 24 h are spent"],
        ),
    ],
)
def test_what_follows_is_told_as_the_pool_stands(
    ports: Ports,
    drills: DrillCommands,
    monkeypatch: pytest.MonkeyPatch,
    policy: RecoveryPolicy,
    change: Callable[[Ports], object],
    told: list[str],
) -> None:
    monkeypatch.setattr(connect, "policy", lambda: policy)
    save_node(ports, node_of(NODE, ports), job_id="llama")
    change(ports)

    dry = run(NODE, "--xid", "79", "--dry-run").output
    done = run(NODE, "--xid", "79", "--why", "fire drill").output
    by_dcgm = run(NODE, "--dcgm", "xid=79", "--dry-run").output

    assert [part for part in told if part not in dry] == []
    assert [part for part in told if part not in by_dcgm] == []
    assert [part for part in told if part not in done and "llama" not in part and part != "goes on"] == []


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            "8",
            ["is real", "a restart of the job; no node is touched", "llama stops, and starts again on the same nodes"],
        ),
        ("555", ["nothing is touched, and a human is told. XID 555", "job llama goes on"]),
    ],
)
def test_what_touches_no_node_is_told_so(
    ports: Ports, drills: DrillCommands, monkeypatch: pytest.MonkeyPatch, code: str, told: list[str]
) -> None:
    monkeypatch.setattr(connect, "policy", lambda: in_mode("act"))
    ports.jobs.save(ecs_job("llama", "demo", "training", "trainer:7", "trainer", 1))
    save_node(ports, node_of(NODE, ports), job_id="llama")

    said = run(NODE, "--xid", code, "--dry-run").output

    assert [part for part in told if part not in said] == []


@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
def test_a_fault_that_was_dealt_with_on_this_boot_is_said_to_repeat_that(
    ports: Ports, drills: DrillCommands, boot_id: str
) -> None:
    event = xid(79, component="0000:b9:00.0", boot_id=boot_id)
    ports.incidents.open(Incident("inc-7", NODE, "demo", event, NOW, "policy"), node_of(NODE, ports))
    save_node(ports, node_of(NODE, ports), resolved_faults={fingerprint(event): "inc-7"})

    said = run(NODE, "--xid", "79", "--why", "once more").output

    is_repeat = boot_id == "boot-1"
    assert ("inc-7 has dealt with this fault on this boot: a repeat of it opens no incident;" in said) is is_repeat
    assert ("pool demo is in observe mode" in said) is not is_repeat
    assert ("nodeheal incidents list demo" in said) is not is_repeat


def test_a_fault_that_a_pause_held_back_is_news_after_the_pause() -> None:
    cluster = without_job(FakeCluster())
    pause_pool("demo", 3_600, "ada: cables", cluster.ports)
    cluster.reports(xid(79, component="0000:b9:00.0"))
    during = foretell_drill(cluster.node(), drill_line(79, None), cluster.ports, ACT).lines
    cluster.clock.advance(3_601)

    after = foretell_drill(cluster.node(), drill_line(79, None), cluster.ports, ACT).lines

    assert "was kept from acting on this fault: as long as that lasts, a repeat opens no incident" in during[0]
    assert after[-1].startswith("its first action is")


@pytest.mark.parametrize("state", ["FAILED", "PENDING", "UNKNOWN"])
def test_a_node_that_takes_no_drill_is_said_to(ports: Ports, drills: DrillCommands, state: str) -> None:
    drills.answer = CommandStatus(state)

    said = run(NODE, "--xid", "79", "--why", "fire drill")

    assert (said.exit_code, f"has not taken the drill ({state})" in said.output) == (1, True)


def test_what_the_node_says_against_it_is_told(ports: Ports, drills: DrillCommands) -> None:
    drills.answer = CommandStatus("FAILED", '{"refused": "this node takes no drills"}\n')

    said = run(NODE, "--xid", "79", "--why", "fire drill")

    assert said.output == f"{NODE} has not taken the drill (FAILED): this node takes no drills\n"


def test_a_drill_in_dcgm_says_who_sees_it_and_that_an_incident_may_follow(ports: Ports, drills: DrillCommands) -> None:
    said = run(NODE, "--dcgm", "xid=79", "--gpu", "3", "--why", "does the exporter page?")

    assert said.exit_code == 0, said.output
    assert drills.sent == [SentCommand("inject-dcgm", NODE, "boot-1", {"Gpu": "3", "Field": "230", "Value": "79"})]
    assert f"injected on {NODE}: GPU 3, field 230 (the last XID): 79" in said.output
    assert CHECK.interval_seconds == 300
    assert "which reports it as DCGM_FR_FALLEN_OFF_BUS" in said.output
    assert (
        "if the node's agent runs the check `dcgm` (`checks` in its agent.toml), it asks `dcgmi health`" in said.output
    )
    assert "an incident opens then, marked as a drill; else none comes" in said.output
    assert "DCGM 4.4.1 and newer keep it until the host engine starts again" in said.output


def test_a_drill_in_dcgm_that_a_value_of_the_driver_ends_says_so(ports: Ports, drills: DrillCommands) -> None:
    said = run(NODE, "--dcgm", "ecc_dbe=4", "--why", "does the exporter page?")

    assert "it holds until the host engine asks the driver again" in said.output
    assert "POLICY_DBE" in said.output


@pytest.mark.parametrize("value", ["ecc_dbe_memory=4", "319=4"])
def test_a_drill_of_dcgms_policies_names_the_check_that_reports_it(
    ports: Ports, drills: DrillCommands, value: str
) -> None:
    said = run(NODE, "--dcgm", value, "--why", "as on HyperPod's page")

    assert "the check `dcgm_counters`" in said.output
    assert "reports it as POLICY_DBE: an incident opens then, marked as a drill" in said.output


@pytest.mark.parametrize("value", ["ecc_dbe_memory=0", "ecc_dbe=0", "xid=13", "150=40"])
def test_a_drill_in_dcgm_that_no_health_watch_reads_says_that_nothing_follows(
    ports: Ports, drills: DrillCommands, value: str
) -> None:
    said = run(NODE, "--dcgm", value, "--why", "does the exporter page?")

    assert said.exit_code == 0, said.output
    assert "nodeheal does not see it, and opens no incident" in said.output
    assert "incidents list" not in said.output
    assert "nodeheal does not see it, and opens no incident" in run(NODE, "--dcgm", value, "--dry-run").output


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--dcgm", "xid=79", "--xid", "79"), "one of --xid, --line and --dcgm"),
        (("--dcgm", "xid"), "give FIELD=NUMBER"),
        (("--dcgm", "xid=seventy"), "give FIELD=NUMBER"),
        (("--dcgm", "colour=7"), "'colour' is not a field; give one of inforom_valid (84)"),
        (("--dcgm", "70000=7"), "'70000' is not a field"),
    ],
)
def test_what_is_no_drill_in_dcgm_is_refused(
    ports: Ports, drills: DrillCommands, words: tuple[str, ...], why: str
) -> None:
    said = run(NODE, *words, "--why", "x")

    assert (said.exit_code, why in said.output) == (1, True), said.output
    assert drills.sent == []


def test_a_field_is_named_or_numbered() -> None:
    assert parse_dcgm_drill("230=79", 0) == parse_dcgm_drill("xid = 79", 0)
    assert parse_dcgm_drill("150=-3.5", 0) == DcgmDrill(0, 150, "-3.5")


def test_a_pool_that_is_not_marked_keeps_its_dcgm_too(ports: Ports, drills: DrillCommands) -> None:
    with pytest.raises(ValueError, match="pool demo is not marked for drills"):
        inject_fault(NODE, DcgmDrill(0, 230, "79"), "ada: drill", ports, RecoveryPolicy())

    assert drills.sent == []


def test_a_pool_that_is_not_marked_is_left_alone(ports: Ports, drills: DrillCommands) -> None:
    with pytest.raises(ValueError, match="pool demo is not marked for drills"):
        inject_fault(NODE, XID_79, "ada: drill", ports, RecoveryPolicy())

    assert drills.sent == []


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"open_incident": "inc-7"}, "inc-7"),
        ({"state": NodeState.QUARANTINED}, "QUARANTINED"),
        ({"state": NodeState.SUSPECT}, "SUSPECT"),
    ],
)
def test_a_node_that_is_not_well_is_left_alone(
    ports: Ports, drills: DrillCommands, record: dict[str, Any], why: str
) -> None:
    save_node(ports, node_of(NODE, ports), **record)

    with pytest.raises(ValueError, match=why):
        inject_fault(NODE, XID_79, "ada: drill", ports, DRILLED)

    assert drills.sent == []


def test_an_unknown_node_is_named(ports: Ports, drills: DrillCommands) -> None:
    assert "mi-unknown" in run("mi-unknown", "--xid", "79", "--why", "x").output


@pytest.mark.parametrize(
    ("xid", "line", "why"),
    [
        (None, None, "either --xid or --line"),
        (79, "NVRM: Xid", "either --xid or --line"),
        (None, "usb 1-1: new device", "reads no fault in"),
        (None, "NVRM: Xid (PCI:0000:b9:00): 79\nNVRM: Xid", "printable"),
        (None, "NVRM: Xid (PCI:0000:b9:00): 79, pid=<unbekannt>, name=Prüfung", "printable"),
        (None, f"NVRM: Xid (PCI:0000:b9:00): 79, {'x' * 800}", "at most"),
    ],
)
def test_what_reads_as_no_fault_is_refused(xid: int | None, line: str | None, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        drill_line(xid, line)


def test_every_line_says_that_it_is_a_drill() -> None:
    assert drill_line(79, None) == XID_79
    assert drill_line(None, XID_79) == XID_79


def test_ssm_is_asked_for_this_boot_for_a_minute_with_the_reason() -> None:
    ssm = Aws("ssm")
    asked = {
        "DocumentName": names.INJECT_DOCUMENT,
        "InstanceIds": [NODE],
        "TimeoutSeconds": 60,
        "Comment": "drill, ada: fire drill",
        "Parameters": {
            "BootId": ["boot-1"],
            "ExpiresAt": [str(int((NOW + timedelta(seconds=60)).timestamp()))],
            "Line": [encoded(XID_79)],
        },
    }
    ssm.answers("send_command", {"Command": {"CommandId": "11111111-2222-3333-4444-555555555555"}}, asked)
    ssm.stub.activate()

    sent = inject_fault(NODE, XID_79, "ada: fire drill", by_ssm(ssm), DRILLED)

    assert sent[1].startswith("11111111")


def test_ssm_is_asked_for_a_value_in_dcgm() -> None:
    ssm = Aws("ssm")
    asked = {
        "DocumentName": names.INJECT_DCGM_DOCUMENT,
        "InstanceIds": [NODE],
        "TimeoutSeconds": 60,
        "Comment": "drill, ada: fire drill",
        "Parameters": {
            "BootId": ["boot-1"],
            "ExpiresAt": [str(int((NOW + timedelta(seconds=60)).timestamp()))],
            "Gpu": ["1"],
            "Field": ["230"],
            "Value": ["79"],
        },
    }
    ssm.answers("send_command", {"Command": {"CommandId": "11111111-2222-3333-4444-555555555555"}}, asked)
    ssm.stub.activate()

    sent = inject_fault(NODE, DcgmDrill(1, 230, "79"), "ada: fire drill", by_ssm(ssm), DRILLED)

    assert sent[1].startswith("11111111")


def test_a_node_that_takes_no_commands_is_not_found() -> None:
    ssm = Aws("ssm")
    ssm.stub.add_client_error("send_command", "InvalidInstanceId")
    ssm.stub.activate()

    with pytest.raises(NotFound, match=NODE):
        inject_fault(NODE, XID_79, "ada: drill", by_ssm(ssm), DRILLED)


def test_a_drill_for_a_node_that_nobody_enrolled_says_how_to_enroll_it(three_nodes: Ports) -> None:
    assert three_nodes.nodes.save(replace(node_of(A, three_nodes), state=NodeState.UNENROLLED))

    with pytest.raises(ValueError, match="is not enrolled"):
        inject_fault(A, "NVRM: Xid", "a drill", three_nodes, ACT)
