"""`nodeheal-agent prolog`: which nodes it keeps jobs from, and that nothing else of it stops a cluster."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State, always
from nodeheal.agent.evidence.confirm import Accusation, confirm
from nodeheal.agent.main import main
from nodeheal.agent.node_commands import diag
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.compose import open_spool
from nodeheal.agent.runtime.config import AgentConfig, load
from nodeheal.agent.slurm import prolog
from nodeheal.agent.transport.event import EventFactory
from nodeheal.contract import health_event as contract
from nodeheal.contract.vocabulary import Confirmation, Family, Verdict
from nodeheal.parsers.finding import Finding, ToolReport
from nodeheal.services.intake.ingest import Ingested, ingest
from sandbox.toml import toml
from tests.support.agent_fakes import IDENTITY, START, FakeEventBridge, NodeFolder, eventually
from tests.support.builders import ACT, FrozenClock, memory_ports
from tests.support.builders import node as a_node
from tests.support.goldens import dcgm_4

FULL = NodeCheckResult((Problem(Finding(Family.host, "disk_full", "/", "no room")),))
SKEW = NodeCheckResult((Problem(Finding(Family.host, "clock_skew", None, "late by a minute")),))


@dataclass
class SlurmNode:
    """A GPU node on which Slurm runs the prolog."""

    node: NodeFolder
    looks: list[NodeCheck] = field(default_factory=list)

    @property
    def config(self) -> AgentConfig:
        return load(self.node.config_file)

    @property
    def kept(self) -> Path:
        return Path(self.config.orders_dir) / prolog.PASS_FILE

    @property
    def diagnostics(self) -> list[str]:
        """What dcgmi was asked for, each time."""
        asked = self.node.directory / "asked"
        return asked.read_text().splitlines() if asked.exists() else []

    def dcgmi_says(self, output: str) -> None:
        (self.node.directory / "output").write_text(output)
        self.dcgmi(f"cat {self.node.directory}/output")

    def dcgmi(self, script: str) -> None:
        self.node.has_tool("dcgmi", f'echo "$*" >> {self.node.directory}/asked\n{script}')

    def check(self, name: str, look: Callable[[], NodeCheckResult], seconds: float = 20.0) -> None:
        def looked(_: CheckContext, __: State) -> NodeCheckResult:
            return look()

        self.looks.append(NodeCheck(name, "a test", 60.0, seconds, always, looked))

    def prolog(self, *words: str) -> int:
        return main(["prolog", "--config", str(self.node.config_file), *words])


@pytest.fixture
def slurm(node: NodeFolder, monkeypatch: pytest.MonkeyPatch) -> SlurmNode:
    """One that is well."""
    node.config_file.write_text(toml(node.config() | {"accelerators": 2}))
    for name, value in {**node.environment(), "SLURM_JOB_ID": "4711"}.items():
        monkeypatch.setenv(name, value)
    it = SlurmNode(node)
    monkeypatch.setattr(prolog, "has_nvidia", lambda _: True)
    monkeypatch.setattr(prolog, "chosen", lambda _: it.looks)
    node.has_tool("nvidia-smi", "echo Disabled; echo Disabled")
    it.dcgmi_says(dcgm_4(pcie="Pass"))
    return it


def logged(caplog: pytest.LogCaptureFixture) -> str:
    return str(vars(caplog.records[-1])["found"])


def test_a_job_starts_on_a_node_that_is_well(slurm: SlurmNode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    slurm.check("disk", NodeCheckResult)

    assert slurm.prolog() == 0

    assert slurm.diagnostics == ["diag -r 1 -j"]
    [record] = caplog.records
    assert (record.levelname, vars(record)["job"], vars(record)["verdict"]) == ("INFO", "4711", "OK")


def test_a_chain_of_short_jobs_pays_once(slurm: SlurmNode) -> None:
    assert [slurm.prolog() for _ in range(3)] == [0, 0, 0]

    assert len(slurm.diagnostics) == 1
    assert slurm.kept.stat().st_mode & 0o777 == 0o600
    assert slurm.kept.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("words", [["--valid-seconds", "0"], ["--level", "2"], ["--valid-seconds", "0.001"]])
def test_a_pass_is_good_for_its_time_and_its_level_only(slurm: SlurmNode, words: list[str]) -> None:
    slurm.prolog()
    slurm.prolog("--seconds", "300", *words)

    assert len(slurm.diagnostics) == 2


def test_a_pass_ends_with_its_boot(slurm: SlurmNode) -> None:
    slurm.prolog()
    slurm.node.reboots("boot-2")
    slurm.prolog()

    assert len(slurm.diagnostics) == 2


def change(slurm: SlurmNode, **changes: object) -> None:
    slurm.kept.write_text(json.dumps({**json.loads(slurm.kept.read_text()), **changes}))


@pytest.mark.parametrize("at", [1e12, -1e12, "soon", None, True, float("nan")])
def test_a_pass_of_the_future_is_none(slurm: SlurmNode, at: object) -> None:
    """Its age is counted from the boot: nobody can set that clock, but somebody may have written the file."""
    slurm.prolog()
    change(slurm, at=at)
    slurm.prolog()

    assert len(slurm.diagnostics) == 2


def of_a_link(slurm: SlurmNode, _: pytest.MonkeyPatch) -> None:
    slurm.kept.rename(slurm.kept.with_name("else"))
    slurm.kept.symlink_to("else")


def of_another_user(_: SlurmNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prolog, "is_own", lambda _: False)


def of_nothing_that_can_be_read(slurm: SlurmNode, _: pytest.MonkeyPatch) -> None:
    slurm.kept.write_text("[" * 3_000)


@pytest.mark.parametrize("is_made", [of_a_link, of_another_user, of_nothing_that_can_be_read])
def test_what_root_has_not_written_is_no_pass(
    slurm: SlurmNode, monkeypatch: pytest.MonkeyPatch, is_made: Callable[[SlurmNode, pytest.MonkeyPatch], None]
) -> None:
    slurm.prolog()
    is_made(slurm, monkeypatch)

    assert slurm.prolog() == 0
    assert len(slurm.diagnostics) == 2


def test_a_job_does_not_start_where_a_check_fails(
    slurm: SlurmNode, bus: FakeEventBridge, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent that watches reports what a check finds. The diagnostic is not waited for."""
    slurm.prolog()
    slurm.check("disk", lambda: FULL)

    assert slurm.prolog("--valid-seconds", "0") == 1

    assert logged(caplog) == "disk: disk_full: no room"
    assert (len(slurm.diagnostics), bus.accepted, slurm.kept.exists()) == (1, [], False)


def unclear() -> NodeCheckResult:
    return NodeCheckResult(unclear="an unknown layout")


@pytest.mark.parametrize(("look", "verdict"), [(lambda: SKEW, "DEGRADED"), (unclear, "UNKNOWN"), (int, "UNKNOWN")])
def test_what_is_not_proven_stops_no_job(
    slurm: SlurmNode, caplog: pytest.LogCaptureFixture, look: Callable[[], NodeCheckResult], verdict: str
) -> None:
    slurm.check("disk", look)

    assert slurm.prolog() == 0

    [record] = caplog.records
    assert (record.levelname, vars(record)["verdict"]) == ("WARNING", verdict)
    assert slurm.kept.exists() is (verdict == "DEGRADED")  # what could not be checked is checked again


def test_a_node_without_dcgm_runs_jobs(
    slurm: SlurmNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (slurm.node.directory / "dcgmi").unlink()
    monkeypatch.setenv("PATH", str(slurm.node.directory))

    assert slurm.prolog() == 0
    assert "dcgmi cannot be run: not installed" in logged(caplog)


def test_a_node_without_gpus_is_not_diagnosed(
    slurm: SlurmNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prolog, "has_nvidia", lambda _: False)

    assert slurm.prolog() == 0
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (slurm.diagnostics, warned) == ([], [])


def test_level_0_is_no_diagnostic(slurm: SlurmNode) -> None:
    assert slurm.prolog("--level", "0") == 0
    assert slurm.diagnostics == []


def test_under_mig_only_the_checks_run(slurm: SlurmNode) -> None:
    slurm.node.has_tool("nvidia-smi", f"echo $* >> {slurm.node.directory}/smi; echo Disabled; echo ' Enabled'")
    assert slurm.prolog() == 0
    slurm.check("disk", lambda: FULL)

    assert slurm.prolog() == 1

    assert slurm.diagnostics == []
    asked = (slurm.node.directory / "smi").read_text()
    assert asked == "--query-gpu=mig.mode.current --format=csv,noheader\n"


def test_a_level_that_cannot_end_in_time_drains_no_node(slurm: SlurmNode, caplog: pytest.LogCaptureFixture) -> None:
    assert slurm.prolog("--level", "3") == 0
    assert "give more --seconds" in logged(caplog)
    assert slurm.diagnostics == []


def test_checks_of_jobs_and_of_aws_are_left_out(slurm: SlurmNode) -> None:
    for name in ("progress", "clock_skew", "mounts"):
        slurm.check(name, lambda: FULL)

    assert slurm.prolog("--without", "mounts,own/lustre") == 0


def test_own_leaves_out_all_checks_of_ones_own(slurm: SlurmNode) -> None:
    for name in ("own", "own/lustre"):
        slurm.check(name, lambda: FULL)

    assert (slurm.prolog("--without", "own"), slurm.prolog()) == (0, 1)


def test_a_check_to_be_left_out_that_is_none_is_an_error_of_usage(
    slurm: SlurmNode, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="64"):
        slurm.prolog("--without", "mount")

    assert "there is no check 'mount'; there are gpu_state," in capsys.readouterr().err


def test_a_diagnostic_that_fails_keeps_the_job_away_and_is_reported(slurm: SlurmNode, bus: FakeEventBridge) -> None:
    slurm.dcgmi_says(dcgm_4(pcie="Fail"))

    assert slurm.prolog() == 1

    [event] = bus.details()
    assert (event["source"], event["family"], event["code"]) == ("dcgm", "dcgm", "DCGM_FR_LOW_BANDWIDTH")
    assert (event["verdict"], event["boot_id"]) == ("FAILED", "boot-1")
    assert event["evidence"].startswith("dcgmi diag in the prolog of job 4711: pcie")
    ports = memory_ports(FrozenClock(Clock().utc_now()))
    told = contract.HealthEvent.model_validate(event)
    ports.nodes.save(a_node(node_id=told.node_id, instance_id=told.node_id, pool=told.pool, cluster=told.cluster))
    assert ingest(told, ports, ACT) is Ingested.OPENED


def test_a_bus_that_hangs_changes_no_answer_and_the_agent_sends_it(
    slurm: SlurmNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(*_: object) -> None:
        time.sleep(60)

    monkeypatch.setattr(prolog, "event_bus", hangs)
    monkeypatch.setattr(prolog, "REPORT_SECONDS", 2.0)
    slurm.dcgmi_says(dcgm_4(pcie="Fail"))
    began = time.monotonic()

    assert slurm.prolog() == 1

    assert time.monotonic() - began < 15
    assert [json.loads(one.detail)["code"] for one in open_spool(slurm.config).oldest(9)] == ["DCGM_FR_LOW_BANDWIDTH"]


def events(report: ToolReport) -> list[str]:
    return [one.code for one in prolog.events_of(report, EventFactory(IDENTITY, "boot-1"), "4711", START)]


def test_only_what_made_the_diagnostic_fail_is_reported() -> None:
    grave, mild = (
        Finding(Family.dcgm, code, "GPU 1", "a") for code in ("DCGM_FR_LOW_BANDWIDTH", "DCGM_FR_PERSISTENCE_MODE")
    )
    many = tuple(Finding(Family.dcgm, "DCGM_FR_LOW_BANDWIDTH", f"GPU {number}", "a") for number in range(40))

    assert events(ToolReport(Verdict.FAILED, findings=(mild, grave))) == ["DCGM_FR_LOW_BANDWIDTH"]
    assert events(ToolReport(Verdict.FAILED, findings=(mild,))) == ["DCGM_FR_PERSISTENCE_MODE"]
    assert events(ToolReport(Verdict.FAILED, ("timeout",), reason="dcgmi: no answer")) == ["DIAG_UNNAMED"]
    assert len(set(events(ToolReport(Verdict.FAILED, findings=many)))) == 1
    assert len(events(ToolReport(Verdict.FAILED, findings=many))) == prolog.FINDINGS


def test_a_node_denies_what_only_a_diagnostic_shows(slurm: SlurmNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Denied, its diagnostics decide. Of an unknown source it could say nothing, and a human would have to."""
    monkeypatch.setattr("nodeheal.agent.checks.dcgm.has_nvidia", lambda _: True)
    slurm.node.has_tool("dcgmi", """echo '{"body": {"Overall Health": {"value": "Healthy"}}}'""")
    accused = Accusation("dcgm", "DCGM_FR_LOW_BANDWIDTH", "boot-1", "dcgm", None, "GPU 1")

    assert confirm(accused, slurm.config, 20.0).confirmation is Confirmation.DENIED


SHORT = ("--seconds", "6")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six seconds are enough for a prolog."""
    monkeypatch.setattr(prolog, "LEAST_SECONDS", 1.0)
    monkeypatch.setattr(prolog, "END_SECONDS", 2.0)
    monkeypatch.setattr(prolog, "HEALTHY_SECONDS", {1: 0.1})


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("name", "code"), [("disk", 1), ("own/lustre", 0)])
def test_a_check_that_hangs_fails_the_node_but_for_one_of_the_sites_own(
    slurm: SlurmNode, caplog: pytest.LogCaptureFixture, name: str, code: int
) -> None:
    def hangs() -> NodeCheckResult:
        time.sleep(60)
        return NodeCheckResult()

    slurm.check(name, hangs)
    began = time.monotonic()

    assert slurm.prolog(*SHORT) == code
    assert time.monotonic() - began < 7
    assert logged(caplog).startswith(f"{name}: no answer within")


@pytest.mark.usefixtures("hasty")
def test_a_diagnostic_that_hangs_fails_the_node_and_is_ended(slurm: SlurmNode, bus: FakeEventBridge) -> None:
    slurm.dcgmi(f"echo $$ > {slurm.node.directory}/pid; exec sleep 60")
    began = time.monotonic()

    assert slurm.prolog(*SHORT) == 1

    assert time.monotonic() - began < 7
    assert bus.codes() == ["DIAG_UNNAMED"]
    assert is_gone(int((slurm.node.directory / "pid").read_text()))


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("ignored", [(), (signal.SIGTERM,)])
def test_a_look_that_cannot_even_begin_fails_the_node(
    slurm: SlurmNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ignored: Sequence[int]
) -> None:
    def hangs(_: object) -> AgentConfig:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        (slurm.node.directory / "pid").write_text(str(os.getpid()))
        while True:
            time.sleep(60)

    monkeypatch.setattr(prolog, "given", hangs)

    assert slurm.prolog(*SHORT) == 1

    assert logged(caplog) == "it hangs: the checks gave no answer in time"
    assert is_gone(int((slurm.node.directory / "pid").read_text()))


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.usefixtures("hasty")
def test_diagnostics_beside_it_drain_no_node(slurm: SlurmNode, caplog: pytest.LogCaptureFixture) -> None:
    clock, config = Clock(), slurm.config
    order = diag.DiagnoseCommand(1, "inc-1", config.boot_id(), clock.utc_now().timestamp() + 60)

    with diag.alone(Path(config.orders_dir), order, config, clock):
        assert slurm.prolog(*SHORT) == 0

    assert "other diagnostics run here" in logged(caplog)


def test_two_prologs_at_once_pay_once(slurm: SlurmNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a node that jobs share: the second one waits, and finds the pass of the first."""
    slurm.dcgmi(f"sleep 0.5; cat {slurm.node.directory}/output")
    first = os.fork()
    if first == 0:
        os._exit(slurm.prolog())
    eventually(lambda: slurm.diagnostics)

    assert slurm.prolog() == 0
    assert os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) == 0
    assert len(slurm.diagnostics) == 1


def raises(*_: object) -> AgentConfig:
    raise RuntimeError("a bug")


def dies(*_: object) -> AgentConfig:
    os._exit(9)


@pytest.mark.parametrize("breaks", [raises, dies])
def test_a_fault_of_our_own_drains_no_node(
    slurm: SlurmNode, monkeypatch: pytest.MonkeyPatch, breaks: Callable[[object], AgentConfig]
) -> None:
    monkeypatch.setattr(prolog, "given", breaks)

    assert slurm.prolog() == 0


def test_no_process_left_drains_no_node(slurm: SlurmNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise OSError("no process left")

    monkeypatch.setattr(os, "fork", full)

    assert slurm.prolog() == 0


@pytest.mark.parametrize("text", ["node_id = 7", "what?", None])
def test_a_configuration_that_cannot_be_used_drains_no_node(
    slurm: SlurmNode, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    slurm.node.config_file.unlink()
    if text is not None:
        slurm.node.config_file.write_text(text)

    assert slurm.prolog() == 0
    assert "ConfigError" in logged(caplog)


def test_a_disk_that_takes_no_pass_stops_no_job(slurm: SlurmNode) -> None:
    slurm.node.orders_dir.write_text("no folder")

    assert [slurm.prolog(), slurm.prolog()] == [0, 0]


@pytest.mark.parametrize("killed_with", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_prolog_that_slurm_ends(slurm: SlurmNode, killed_with: signal.Signals) -> None:
    folder = slurm.node.directory
    slurm.dcgmi(f"echo $$ > {folder}/pid; exec sleep 60")
    program = f"""
import sys
from nodeheal.agent.slurm import prolog
from nodeheal.agent.main import main
prolog.has_nvidia = lambda _: True
sys.exit(main(["prolog", "--config", {str(slurm.node.config_file)!r}]))
"""
    process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **slurm.node.environment()})
    eventually((folder / "pid").exists)
    eventually(lambda: (folder / "pid").read_text().strip())

    process.send_signal(killed_with)

    assert process.wait(10) == -killed_with
    eventually(lambda: is_gone(int((folder / "pid").read_text())))


def test_slurm_waits_for_no_process_that_cannot_be_ended(slurm: SlurmNode) -> None:
    """slurmd reads the prolog's words to their end: what is left behind must not hold its pipe."""

    def streams() -> NodeCheckResult:
        names = {os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)}  # noqa: PTH115  # no path
        return FULL if names != {os.devnull} else NodeCheckResult()

    slurm.check("streams", streams)

    assert slurm.prolog() == 0
