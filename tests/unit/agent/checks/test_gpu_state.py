"""GPUs through NVML: the real Python side over a library that a test tells what to answer."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nodeheal.agent.checks import gpu_state
from nodeheal.agent.checks.gpu_processes import gpu_users
from nodeheal.agent.runtime.thresholds import GPU_FABRIC
from tests.fakes.nvml import FakeGpus, build
from tests.unit.agent.checks.places import Node

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the fake library is built with gcc")
ROOT = Path(__file__).parents[4]
FIRST, SECOND = "0000:10:00.0", "0000:11:00.0"
XID, DOUBLE_BIT = 8, 2
LONG = 60.0  # longer than any test waits: a look that comes sooner was called for


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="module")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("old"), "-DOLD_DRIVER")


@pytest.fixture
def gpus(library: Path, tmp_path: Path) -> FakeGpus:
    return FakeGpus(library, tmp_path / "gpus").set(gpus=2)


@contextmanager
def stream(
    gpus: FakeGpus, count: int | str = 9, seconds: float = 0.05, *more: str
) -> "Iterator[Iterator[dict[str, Any]]]":
    """The looks of a process that has been started on these GPUs."""
    command = [sys.executable, "-m", "tests.fakes.nvml.looks", str(count), str(seconds), *more]
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **gpus.environment}, stdout=subprocess.PIPE, text=True
    )
    try:
        yield (json.loads(line) for line in process.stdout or ())
    finally:
        process.kill()
        process.communicate()


def look(gpus: FakeGpus, *more: str) -> dict[str, Any]:
    """The first look."""
    with stream(gpus, 1, LONG, *more) as looks:
        return next(looks)


def found(look: dict[str, Any], kind: str = "problems") -> list[tuple[str, str | None]]:
    findings = [problem["finding"] for problem in look[kind]]
    return [(finding["code"], finding["component"]) for finding in findings]


def until(looks: "Iterator[dict[str, Any]]", code: str) -> dict[str, Any]:
    return next(look for look in looks if code in [one for one, _ in found(look)])


def test_healthy_gpus_have_no_problem_and_are_measured(gpus: FakeGpus) -> None:
    gpus.set(gpu1_temperature=61, gpu1_utilisation=97, gpu1_memory_used=3 << 30, gpu1_power=412_000)

    seen = look(gpus)

    assert (seen["problems"], seen["unclear"], seen["summary"]) == ([], "", "2 GPUs")
    assert seen["gauges"] == {
        **{"gpu_healthy:0": 1, "gpu_healthy:1": 1},
        **{"gpu_utilisation_percent:0": 0, "gpu_memory_used_bytes:0": 1 << 20, "gpu_temperature_celsius:0": 45},
        **{"gpu_power_watts:0": 70.5, "gpu_utilisation_percent:1": 97, "gpu_memory_used_bytes:1": 3 << 30},
        **{"gpu_temperature_celsius:1": 61, "gpu_power_watts:1": 412},
    }
    assert seen["called"] == {
        "gpu:0": {"pci": FIRST, "uuid": "GPU-00000000-0000-0000-0000-000000000001", "serial": "1651323000001"},
        "gpu:1": {"pci": SECOND, "uuid": "GPU-00000000-0000-0000-0000-000000000002", "serial": "1651323000002"},
    }


def test_a_gpu_is_described_by_its_model_serial_memory_errors_rows_and_links(gpus: FakeGpus) -> None:
    gpus.set(gpu1_field__6=2, gpu1_field__142=3, gpu1_field__143=1, gpu1_links=4, gpu1_link__3=0)

    _, second = look(gpus)["accelerators"]

    assert second == {
        "index": 1,
        "component": SECOND,
        "model": "NVIDIA H100 80GB HBM3",
        "serial": "1651323000002",
        "uuid": "GPU-00000000-0000-0000-0000-000000000002",
        "memory_mib": 81_920,
        "ecc_uncorrected": 2,
        "rows_remapped": 4,
        "links": 4,
        "links_up": 3,
        "temperature_celsius": 45,
    }


def test_accelerators_are_not_described_while_one_of_them_is_lost(gpus: FakeGpus) -> None:
    assert look(gpus.set(gpu1_error=15))["accelerators"] == []


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"gpu1_field__4": 1}, "ECC_UNCORRECTED_VOLATILE"),
        ({"gpu1_field__6": 3}, "ECC_UNCORRECTED_AGGREGATE"),
        ({"gpu1_field__31": 1}, "RETIRED_PAGES_PENDING"),
        ({"gpu1_field__144": 1}, "REMAP_PENDING"),
        ({"gpu1_field__145": 1}, "REMAP_FAILED"),
        ({"gpu1_field__230": 2}, "RECOVERY_ACTION"),
        ({"gpu1_sram_exceeded": 1}, "SRAM_THRESHOLD_EXCEEDED"),
        ({"gpu1_channel_repair": 1}, "CHANNEL_REPAIR_PENDING"),
        ({"gpu1_tpc_repair": 1}, "TPC_REPAIR_PENDING"),
        ({"gpu1_unrepairable": 1}, "UNREPAIRABLE_MEMORY"),
        ({"gpu1_fabric_state": 1}, "FABRIC_NOT_READY"),
        ({"gpu1_fabric_state": 2, "gpu1_fabric_status": 999}, "FABRIC_NOT_READY"),
        ({"gpu1_fabric_status": 999}, "FABRIC_UNHEALTHY"),
        ({"gpu1_fabric_summary": 2}, "FABRIC_UNHEALTHY"),
        ({"gpu1_fabric_summary": 3}, "FABRIC_DEGRADED"),
        ({"gpu1_fabric_mask": 0x1A9}, "FABRIC_DEGRADED"),
        ({"gpu1_fabric_mask": 0x1A6}, "FABRIC_RECOVERING"),
        ({"gpu1_fabric_mask": 0x19A}, "FABRIC_UNHEALTHY"),
        ({"gpu1_fabric_mask": 0x16A}, "FABRIC_RECOVERING"),
        ({"gpu1_fabric_mask": 0x2AA, "gpu1_fabric_summary": 2}, "FABRIC_MISCONFIGURED"),
        ({"fabric_version": 2, "gpu1_fabric_mask": 0x19A}, "FABRIC_UNHEALTHY"),
        ({"gpu1_clock_reasons": 0x40}, "THERMAL_SLOWDOWN"),
        ({"gpu1_clock_reasons": 0x80}, "POWER_BRAKE"),
        ({"gpu1_error": 15}, "GPU_LOST"),
        ({"gpu1_error": 16}, "RESET_REQUIRED"),
    ],
)
def test_what_the_driver_says_of_one_gpu_is_told_of_that_one(gpus: FakeGpus, said: dict[str, int], code: str) -> None:
    before = json.dumps({"known": [FIRST, SECOND], "since": {f"{code} {SECOND}": -GPU_FABRIC.default}})

    assert found(look(gpus.set(**said), before)) == [(code, SECOND)]


@pytest.mark.parametrize("said", [{"gpu0_fabric_state": 0, "gpu0_fabric_mask": 0}, {"fabric_version": 1}])
def test_a_gpu_without_a_fabric_and_a_driver_that_tells_of_none_are_no_problem(
    gpus: FakeGpus, said: dict[str, int]
) -> None:
    assert (look(gpus.set(**said))["problems"], look(gpus.set(**said))["unclear"]) == ([], "")


@pytest.mark.parametrize(
    ("action", "subcode"),
    [
        *((1, "GPU_RESET"), (3, "DRAIN_P2P"), (4, "DRAIN_AND_RESET"), (5, "RECOVER_IMEX_DOMAIN"), (7, "NODE_REBOOT")),
    ],
)
def test_the_recovery_action_is_told_as_the_catalog_spells_it(gpus: FakeGpus, action: int, subcode: str) -> None:
    (problem,) = look(gpus.set(gpu0_field__230=action))["problems"]

    assert problem["finding"]["subcode"] == subcode


def test_a_recovery_action_that_nobody_knows_makes_the_look_unclear(gpus: FakeGpus) -> None:
    assert "number 42 is not understood" in look(gpus.set(gpu0_field__230=42))["unclear"]


@pytest.mark.parametrize("broken", ["handle", "error"])
def test_a_gpu_lost_before_the_agent_came_is_named_and_hides_no_other(gpus: FakeGpus, broken: str) -> None:
    seen = look(gpus.set(**{f"gpu0_{broken}": 15, "gpu1_field__144": 1}))

    assert found(seen) == [("GPU_LOST", "GPU 0"), ("REMAP_PENDING", SECOND)]
    assert seen["unclear"] == "GPU 0: no answer"


def test_a_gpu_lost_while_the_agent_runs_keeps_its_address(gpus: FakeGpus) -> None:
    with stream(gpus) as looks:
        assert next(looks)["problems"] == []

        gpus.set(gpu0_error=15)

        assert found(until(looks, "GPU_LOST")) == [("GPU_LOST", FIRST)]


def test_an_xid_is_told_at_once_with_how_often_it_came(gpus: FakeGpus) -> None:
    with stream(gpus, 2, LONG) as looks:
        next(looks)

        gpus.tell(1, XID, 94).tell(1, XID, 94).tell(0, XID, 79)

        seen = next(looks)
    assert found(seen, "happened") == [("94", SECOND), ("79", FIRST)]
    assert [one["count"] for one in seen["happened"]] == [2, 1]
    assert {one["finding"]["family"] for one in seen["happened"]} == {"xid"}


def test_a_storm_of_events_is_a_few_looks_and_each_event_is_counted(gpus: FakeGpus) -> None:
    with stream(gpus, 99, LONG) as looks:
        next(looks)

        gpus.events += [f"event {number} 0 {XID} 94" for number in range(1, 400)]
        gpus.tell(1, XID, 79)

        seen = [next(looks)]
        while ("79", SECOND) not in found(seen[-1], "happened"):
            seen.append(next(looks))
    assert sum(one["count"] for look in seen for one in look["happened"]) == 400
    assert len(seen) <= 5


def test_where_the_kernel_log_tells_xids_they_are_not_told_twice_but_call_for_a_look(
    gpus: FakeGpus, tmp_path: Path
) -> None:
    log = tmp_path / "messages"
    log.touch()
    with stream(gpus, 2, LONG, "{}", str(log)) as looks:
        next(looks)

        gpus.set(gpu0_field__4=1).tell(0, XID, 48)

        seen = next(looks)
    assert (seen["happened"], found(seen)) == ([], [("ECC_UNCORRECTED_VOLATILE", FIRST)])


def test_a_double_bit_error_calls_for_a_look(gpus: FakeGpus) -> None:
    with stream(gpus, 2, LONG) as looks:
        next(looks)

        gpus.set(gpu1_field__4=1).tell(1, DOUBLE_BIT)

        seen = next(looks)
    assert (found(seen), seen["happened"]) == ([("ECC_UNCORRECTED_VOLATILE", SECOND)], [])


@pytest.mark.parametrize("said", [{"wait": 15}, {"wait": 10}, {"gpu0_events": 0, "gpu1_events": 0}])
def test_looks_go_on_at_their_own_pace_where_no_event_can_be_heard(gpus: FakeGpus, said: dict[str, int]) -> None:
    with stream(gpus.set(**said), 4, 0.3) as looks:
        _, *at = [seen["state"]["links_read_at"] for seen in looks]

    assert len(at) == 3
    assert at[2] - at[0] >= 0.5


@pytest.mark.parametrize(("answer", "code"), [(9, "DRIVER_NOT_LOADED"), (18, "DRIVER_MISMATCH")])
def test_a_driver_that_is_not_there_counts_the_second_time(gpus: FakeGpus, answer: int, code: str) -> None:
    with stream(gpus.set(init=answer), 2) as looks:
        first, second = looks

    assert (first["problems"], bool(first["unclear"])) == ([], True)
    assert [one for one, _ in found(second)] == [code]


def test_a_driver_that_comes_back_is_used_again(gpus: FakeGpus) -> None:
    with stream(gpus.set(count=9), 99) as looks:
        assert next(looks)["unclear"]

        gpus.set(count=0)

        assert next(seen for seen in looks if not seen["unclear"])["summary"] == "2 GPUs"


def test_a_driver_without_any_gpu_is_told(gpus: FakeGpus) -> None:
    assert found(look(gpus.set(gpus=0))) == [("NO_DEVICES", None)]


def test_what_an_older_driver_does_not_know_is_no_problem(old_library: Path, tmp_path: Path) -> None:
    gpus = FakeGpus(old_library, tmp_path / "gpus").set(gpus=2, gpu0_clock_reasons=0x40, gpu0_links=12)

    seen = look(gpus, json.dumps({"since": {f"THERMAL_SLOWDOWN {FIRST}": 0.0}}))

    assert (found(seen), seen["unclear"]) == ([("THERMAL_SLOWDOWN", FIRST)], "")
    assert seen["gauges"]["gpu_temperature_celsius:1"] == 45


def test_a_gpu_that_is_lost_keeps_its_names_and_is_not_healthy(gpus: FakeGpus) -> None:
    with stream(gpus) as looks:
        before = next(looks)
        gpus.set(gpu1_error=15)
        lost = until(looks, "GPU_LOST")

    assert lost["called"] == before["called"]
    assert (before["gauges"]["gpu_healthy:1"], lost["gauges"]["gpu_healthy:1"]) == (1, 0)


def test_what_a_product_does_not_have_is_no_problem(gpus: FakeGpus) -> None:
    nothing = dict.fromkeys(("utilisation", "power", "limit", "slowdown", "memory_limit", "mig", "sram_exceeded"), -1)
    nothing |= dict.fromkeys(("channel_repair", "unrepairable"), -1)
    fields = {f"field__{number}": -1 for number in (4, 6, 31, 38, 45, 52, 59, 82, 144, 145, 230)}

    seen = look(gpus.set(gpus=1, **{f"gpu0_{name}": value for name, value in {**nothing, **fields}.items()}))

    assert (seen["problems"], seen["unclear"]) == ([], "")
    assert seen["gauges"] == {"gpu_healthy:0": 1, "gpu_memory_used_bytes:0": 1 << 20, "gpu_temperature_celsius:0": 45}


def test_a_value_with_all_its_bits_set_is_none(gpus: FakeGpus) -> None:
    assert look(gpus.set(gpu0_field__4=-2, gpu0_field__230=-2))["problems"] == []


def test_a_gpu_whose_temperature_is_an_unknown_error_has_lost_touch(gpus: FakeGpus) -> None:
    known = json.dumps({"known": [FIRST, SECOND]})

    assert found(look(gpus.set(gpu0_error=999), known)) == [("UNKNOWN_ERROR", FIRST)]


def test_no_library_is_unclear_and_not_healthy(tmp_path: Path) -> None:
    gpus = FakeGpus(tmp_path / "none" / "libnvidia-ml.so.1", tmp_path / "gpus").set(gpus=1)
    if any(Path(folder, "libnvidia-ml.so.1").exists() for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")):
        pytest.skip("this machine has the real library")

    seen = look(gpus)

    assert (seen["problems"], "NVML:" in seen["unclear"]) == ([], True)


def test_a_link_that_goes_down_and_a_gpu_that_is_slow_are_seen_through_the_library(gpus: FakeGpus) -> None:
    up = {
        "links_up": {FIRST: list(range(18))},
        "since": {f"PCIE_WIDTH_REDUCED {SECOND}": 0.0, f"NVLINK_DOWN {FIRST}": 0.0},
    }
    gpus.set(gpu0_links=18, gpu0_link__7=0, gpu1_utilisation=99, gpu1_width=8)

    seen = look(gpus, json.dumps(up))

    assert found(seen) == [("PCIE_WIDTH_REDUCED", SECOND), ("NVLINK_DOWN", FIRST)]


def test_links_are_not_judged_on_a_gpu_cut_into_instances(gpus: FakeGpus) -> None:
    up = json.dumps({"links_up": {FIRST: [0, 1]}})

    assert look(gpus.set(gpu0_links=2, gpu0_link__1=0, gpu0_mig=1), up)["problems"] == []


def test_a_library_that_hangs_is_a_finding_and_holds_nobody(gpus: FakeGpus) -> None:
    with stream(gpus, "probed", 1.0) as answers:
        first = next(answers)

        gpus.set(hang=1)

        hung = next(answer for answer in answers if answer["hung"])
    assert first["look"]["summary"] == "2 GPUs"
    assert (hung["look"], gpu_state.CHECK.hang and gpu_state.CHECK.hang.code) == (None, "NVML_HANG")


@pytest.mark.parametrize("gpus_there", [0, 1])
def test_only_nodes_with_gpus_are_watched(tmp_path: Path, gpus_there: int) -> None:
    node = Node(tmp_path).gpus(gpus_there)

    assert bool(gpu_state.why_not(node.place)) is not bool(gpus_there)


@pytest.mark.parametrize(
    ("said", "users"),
    [
        ({"gpu0_pid": 41, "gpu1_pid": 42}, "[41, 42]"),
        ({}, "[]"),
        ({"gpu1_error": 15, "gpu1_pid": 42}, "None"),
        ({"gpu0_pid": -1}, "None"),
        ({"init": 9}, "None"),
    ],
)
def test_who_uses_a_gpu_the_driver_tells_or_nobody_knows(
    gpus: FakeGpus, tmp_path: Path, said: dict[str, int], users: str
) -> None:
    gpus.set(**said)
    Node(tmp_path).gpus(2, 2)
    code = (
        "import sys; from pathlib import Path; from tests.unit.agent.checks.places import Node;"
        "from nodeheal.agent.checks.gpu_processes import gpu_users; users = gpu_users(Node(Path(sys.argv[1])).place);"
        "print(users if users is None else sorted(users))"
    )

    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, **gpus.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert ran.stdout.strip() == users


def test_where_there_is_no_gpu_nobody_tells_who_uses_one(tmp_path: Path) -> None:
    assert gpu_users(Node(tmp_path).place) is None
