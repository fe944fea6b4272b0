"""`nodeheal-agent run reset-gpu`: one GPU is reset where nothing uses any, and what monitored them runs again."""

import json
import time as wall
from collections.abc import Sequence

import pytest

from nodeheal.agent.checks.check import CheckContext
from nodeheal.agent.checks.nvidia_services import FABRIC_MANAGER, PERSISTENCE
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.node_commands import reset_gpu as command
from nodeheal.agent.node_commands.reset_gpu import CLIENTS, ResetGpuCommand, reset_gpu
from nodeheal.agent.runtime import probe
from nodeheal.agent.runtime.compose import event_bus, open_spool
from nodeheal.agent.runtime.config import load
from nodeheal.contract import words
from nodeheal.operations import reset_gpu as verb
from tests.support.agent_documents import DOCUMENTS, run_document
from tests.support.agent_fakes import START, FakeEventBridge, FakeTime, NodeFolder

# The driver's own words: issue 118 of NVIDIA/gpu-operator, issue 1690 of NVIDIA/NVSentinel, and the MIG User Guide.
RESET = "GPU 00000000:B9:00.0 was successfully reset.\nAll done.\n"
IN_USE = """The following GPUs could not be reset:
  GPU 00000000:B9:00.0: In use by another client

1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics
"""
UNSUPPORTED = "Resetting GPU 00000000:B9:00.0 is not supported.\n"
MODES = {"0": "Disabled", "1": "Enabled"}
GPU, UUID = "0000:b9:00.0", "GPU-0000000b-1111-4222-8333-0123456789ab"
LISTED = f"00000000:B8:00.0, GPU-0000000a-1111-4222-8333-0123456789ab, Disabled\n00000000:B9:00.0, {UUID}, Disabled\n"
DCGM = "nvidia-dcgm.service"
DONE, REFUSED = 0, 3
LIFE_SECONDS = 300.0


class GpuNode:
    """A node with two GPUs; its systemd, its driver's tool and its /proc are the test's."""

    def __init__(self, node: NodeFolder, time: FakeTime, capsys: pytest.CaptureFixture[str]) -> None:
        self.node, self._time, self._capsys = node, time, capsys
        self.active = {"nodeheal-agent.service", DCGM}
        self.listed, self.answer, self.exit_code, self.error = LISTED, RESET, 0, ""
        self.stop_fails = self.persistence_stays = False
        self.persistence = "Disabled"  # the legacy mode, without the daemon
        self.persistence_at_reset = ""
        self.calls: list[list[str]] = []
        self.at_reset: set[str] = set()  # the units that ran while it was reset
        for name in ("proc", "sys", "dev"):
            (node.directory / name).mkdir()
        (node.directory / "dev" / "nvidia0").touch()
        self.has_open("1", "systemd", "/dev/null")

    @property
    def place(self) -> CheckContext:
        root = self.node.directory
        return CheckContext(load(self.node.config_file), self.run, root / "proc", root / "sys", root / "dev")

    def has_open(self, pid: str, name: str, device: str) -> None:
        """A process has this open."""
        folder = self.node.directory / "proc" / pid
        (folder / "fd").mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n")
        (folder / "fd" / "3").symlink_to(device)

    def has_nvswitches(self) -> None:
        """Its driver lists one."""
        (self.node.directory / "proc/driver/nvidia-nvswitch/devices/0000:c1:00.0").mkdir(parents=True)

    def run(self, words: Sequence[str], seconds: float) -> Output:
        """What a tool says."""
        self.calls.append(list(words))
        tool, verb, *units = words
        if tool == "systemctl" and verb == "is-active":
            return _said("".join(f"{'active' if unit in self.active else 'inactive'}\n" for unit in units), 3)
        if tool == "systemctl":
            self.active = self.active | set(units) if verb == "start" else self.active - set(units)
            return _said("", int(verb == "stop" and self.stop_fails))
        if "-pm" in words:
            self.persistence = self.persistence if self.persistence_stays else MODES[words[-1]]
            return _said("", int(self.persistence_stays))
        if verb == "--query-gpu=persistence_mode":
            return _said(f"{'Enabled' if PERSISTENCE in self.active else self.persistence}\n", 0)
        if verb == "--gpu-reset":
            self.at_reset, self.persistence_at_reset = set(self.active), self.persistence
            return _said(self.answer, self.exit_code, self.error)
        return _said(self.listed, 0)

    def is_ordered(self, gpu: str = GPU, boot_id: str = "boot-1", left: float = LIFE_SECONDS) -> int:
        """The order comes; the exit code."""
        order = ResetGpuCommand(gpu, "req-1", boot_id, START.timestamp() + left)
        config, clock = load(self.node.config_file), self._time.clock()
        return reset_gpu(order, self.place, open_spool(config), event_bus(config, clock), clock)

    @property
    def says(self) -> tuple[str, str]:
        """(outcome, reason) of the line that it printed."""
        told = json.loads(self._capsys.readouterr().out.splitlines()[-1])
        return told["outcome"], told["reason"]

    @property
    def resets(self) -> list[list[str]]:
        """The resets that the driver's tool was asked for."""
        return [words for words in self.calls if "--gpu-reset" in words]


def _said(text: str, exit_code: int, error: str = "") -> Output:
    return Output(text, "", probe.Ran(exit_code=None if error else exit_code, error=error))


@pytest.fixture
def it(
    node: NodeFolder, time: FakeTime, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> GpuNode:
    for name, value in node.environment().items():
        monkeypatch.setenv(name, value)
    return GpuNode(node, time, capsys)


@pytest.mark.parametrize("named", [GPU, UUID])
def test_a_gpu_that_nothing_uses_is_reset_while_what_monitors_it_is_stopped(
    it: GpuNode, bus: FakeEventBridge, named: str
) -> None:
    before = set(it.active)

    assert it.is_ordered(named) == DONE

    assert it.resets == [["nvidia-smi", "--gpu-reset", "-i", "00000000:B9:00.0"]]
    assert (it.at_reset, it.active) == (set(), before)
    assert it.says == ("DONE", "GPU 00000000:B9:00.0 was reset")
    [event] = bus.details(verb.GpuResetFinished.detail_type)
    told = verb.GpuResetFinished.model_validate(event)
    assert (told.outcome, told.request_id, told.boot_id) == ("DONE", "req-1", "boot-1")


@pytest.mark.parametrize(
    ("answer", "exit_code", "error", "said"),
    [
        (IN_USE, 255, "", "In use by another client"),
        (UNSUPPORTED, 3, "", "is not supported"),
        ("", 0, "", "it ended with 0"),  # nothing that says that it was reset
        (RESET.replace("B9", "B8"), 0, "", "00000000:B8:00.0"),  # another one was
        ("", 0, "no answer within 90 s", "no answer within 90 s"),
    ],
)
def test_what_the_driver_does_not_call_a_success_is_none_and_all_runs_again(
    it: GpuNode, answer: str, exit_code: int, error: str, said: str
) -> None:
    before, it.answer, it.exit_code, it.error = set(it.active), answer, exit_code, error

    it.is_ordered()

    outcome, reason = it.says
    assert (outcome, said in reason, "\n" in reason, it.active) == ("FAILED", True, False, before)


@pytest.mark.parametrize("device", ["/dev/nvidia0", "/dev/nvidia7", "/dev/nvidia-uvm", "/dev/infiniband/uverbs0"])
def test_where_a_process_has_any_accelerator_open_no_gpu_is_reset(it: GpuNode, device: str) -> None:
    it.has_open("4711", "python", device)

    assert it.is_ordered() == DONE

    assert it.says == ("REFUSED", "1 processes have accelerators open: python (4711)")
    assert (it.resets, it.active) == ([], {"nodeheal-agent.service", DCGM})


def test_what_runs_the_fabric_may_have_it_open(it: GpuNode) -> None:
    """Without the Fabric Manager no GPU could be reset alone."""
    it.has_open("20", "nv-fabricmanage", "/dev/nvidia-nvswitchctl")
    it.has_open("21", "nvlsm", "/dev/infiniband/umad0")

    it.is_ordered()

    assert it.says[0] == "DONE"


def test_where_nobody_can_tell_who_uses_a_gpu_none_is_reset(it: GpuNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "holds_accelerator", lambda *_: None)

    it.is_ordered()

    assert it.says == ("REFUSED", "it is not known whether 1 processes have an accelerator open")


@pytest.mark.parametrize(
    ("listed", "named", "said"),
    [
        (LISTED, "0000:c9:00.0", "lists no GPU 0000:c9:00.0"),
        (LISTED, "GPU-ffffffff-1111-4222-8333-0123456789ab", "lists no GPU GPU-ffffffff"),
        (LISTED.splitlines()[0], GPU, "lists no GPU 0000:b9:00.0"),  # the driver has lost it
        ("Failed to initialize NVML: Driver/library version mismatch\n", GPU, "lists no GPU"),
        (LISTED.replace("Disabled", "Enabled"), GPU, "MIG instances"),
    ],
)
def test_only_a_whole_gpu_of_the_drivers_own_list_is_reset(it: GpuNode, listed: str, named: str, said: str) -> None:
    it.listed = listed

    it.is_ordered(named)

    outcome, reason = it.says
    assert (outcome, said in reason, it.resets, it.calls[-1][1] == "stop") == ("REFUSED", True, [], False)


@pytest.mark.parametrize("answer", [RESET, IN_USE])
def test_persistence_is_off_during_the_reset_and_on_again_after_it(it: GpuNode, answer: str) -> None:
    """The daemon, and the legacy mode that is left without it: each keeps the GPU in use."""
    it.active.add(PERSISTENCE)
    it.persistence, it.answer = "Enabled", answer
    before = set(it.active)

    it.is_ordered()

    assert (it.at_reset, it.persistence_at_reset) == (set(), "Disabled")
    assert (it.active, it.persistence) == (before, "Enabled")


def test_where_only_the_daemon_kept_persistence_nothing_is_switched(it: GpuNode) -> None:
    it.active.add(PERSISTENCE)

    it.is_ordered()

    assert not [words for words in it.calls if "-pm" in words]
    assert it.says[0] == "DONE"


def test_where_the_persistence_mode_stays_on_the_gpu_is_not_reset(it: GpuNode) -> None:
    it.persistence, it.persistence_stays = "Enabled", True

    it.is_ordered()

    assert (it.says[0], it.resets) == ("REFUSED", [])


@pytest.mark.parametrize(("manager", "outcome"), [(True, "DONE"), (False, "REFUSED")])
def test_behind_nvswitches_a_gpu_is_reset_alone_only_while_the_fabric_manager_runs(
    it: GpuNode, manager: bool, outcome: str
) -> None:
    it.has_nvswitches()
    it.active |= {FABRIC_MANAGER} if manager else set()

    it.is_ordered()

    assert it.says[0] == outcome
    assert it.at_reset == ({FABRIC_MANAGER} if manager else set())  # it is not stopped


def test_what_does_not_stop_is_started_again_and_nothing_is_reset(it: GpuNode) -> None:
    it.stop_fails = True

    it.is_ordered()

    assert it.says[0] == "REFUSED"
    assert (it.resets, it.active) == ([], {"nodeheal-agent.service", DCGM})


def test_it_is_started_again_where_the_command_is_ended_in_the_middle(
    it: GpuNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminated(*_: object) -> None:
        raise SystemExit(143)

    monkeypatch.setattr(command, "_run_reset", terminated)

    with pytest.raises(SystemExit):
        it.is_ordered()

    assert it.active == {"nodeheal-agent.service", DCGM}


@pytest.mark.parametrize("left", [-1.0, 0.0])
def test_a_stale_order_does_nothing_at_all(it: GpuNode, left: float) -> None:
    assert (it.is_ordered(left=left), it.calls) == (REFUSED, [])


def test_an_order_for_another_boot_does_nothing_at_all(it: GpuNode) -> None:
    assert (it.is_ordered(boot_id="boot-2"), it.calls) == (REFUSED, [])


def test_one_that_could_not_be_answered_in_time_is_not_begun(it: GpuNode) -> None:
    it.is_ordered(left=command.AFTERWARDS_SECONDS + command.LEAST_SECONDS - 1)

    assert (it.says[0], it.resets) == ("REFUSED", [])


def test_the_document_has_the_node_do_it(node: NodeFolder, bus: FakeEventBridge) -> None:
    """Without systemd's word no unit is stopped; the stand-in of the driver's tool says what it was asked."""
    node.has_tool("nvidia-smi", f'case "$1" in --gpu-reset) echo "{RESET}" ;; *) echo "{LISTED}" ;; esac')
    parameters = {"BootId": "boot-1", "ExpiresAt": str(int(wall.time() + 300)), "RequestId": "req-1", "Gpu": GPU}

    ended = run_document(node, "reset-gpu", parameters)

    assert (ended.returncode, ended.stderr) == (DONE, "")
    [event] = bus.details(verb.GpuResetFinished.detail_type)
    assert event["outcome"] in ("DONE", "REFUSED")  # REFUSED where this machine's own processes cannot be looked into
    assert verb._read_output(ended.stdout) == verb.GpuResetAnswer(outcome=event["outcome"], reason=event["reason"])


@pytest.mark.parametrize("named", ["0", "all", "0000:b9:00", "0000:b9:00.0,0000:b8:00.0", "--help", ""])
def test_what_is_no_address_and_no_uuid_is_no_option(node: NodeFolder, named: str) -> None:
    parameters = {"BootId": "boot-1", "ExpiresAt": str(int(wall.time() + 300)), "RequestId": "req-1", "Gpu": named}

    assert run_document(node, "reset-gpu", parameters).returncode == 64


def test_the_document_takes_the_same_gpus_as_the_control_plane_and_the_node() -> None:
    pattern = json.loads((DOCUMENTS / "reset-gpu.json").read_text())["parameters"]["Gpu"]["allowedPattern"]

    assert pattern.replace("[.]", r"\.") == words.GPU
    assert set(CLIENTS) & {FABRIC_MANAGER} == set()
