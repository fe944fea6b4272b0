"""What a node's diagnostics run, and what the answers of the tools come to."""

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from nodeheal.agent.diagnostics import dcgm, efa, neuron, stress
from nodeheal.agent.diagnostics.bench import Bench, Output
from nodeheal.agent.runtime import probe
from nodeheal.contract.check_seconds import LONGEST_SECONDS
from nodeheal.contract.vocabulary import Check, Verdict
from tests.support.goldens import dcgm_4, document_4, results_4

GOLDEN = Path(__file__).parents[2] / "golden" / "tools"
ABSENT = probe.Ran(error=probe.NOT_INSTALLED)
HUNG = probe.Ran(seconds=9.0, exit_code=-9, error="no answer within 9 s")
NCCOM = """\
     size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)
    33554432        33554432    uint8         768          40.69          40.69
Avg bus bandwidth:      40.6901GB/s
"""
PORTS = "/sys/class/infiniband/rdmap16s27/ports/1/state: 4: ACTIVE\n"
HEAT = """\
stress-ng: info:  [4711] cpu:
stress-ng: info:  [4711]         x86_pkg_temp   71.25 C (344.40 K)
stress-ng: info:  [4711]               acpitz   16.80 C (289.95 K)
"""


@dataclass(frozen=True)
class FakeBench(Bench):
    """A bench whose tools answer what a test wants, by the last words of their command; others are not installed."""

    answers: dict[str, Output] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    def run(self, command: Sequence[str], seconds: float) -> Output:
        self.ran.append(" ".join(command))
        found = [answer for words, answer in self.answers.items() if words in self.ran[-1].replace("-", "_")]
        return found[0] if found else Output("", "", ABSENT)


def says(text: str, exit_code: int = 0) -> Output:
    return Output(text, "", probe.Ran(1.0, exit_code))


def bench(level: int = 2, accelerators: int = 2, first: tuple[str, ...] = (), **answers: Output) -> FakeBench:
    return FakeBench(Path("unused"), level, accelerators, first, answers=answers)


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()


# DCGM ---------------------------------------------------------------------------------------------------------------


def test_what_failed_before_is_rerun_alone_and_first() -> None:
    made = bench(first=("pcie", "software", "rm_rf"), dcgmi=says(dcgm_4(pcie="Pass")))

    report, _ = dcgm.check(made)

    assert made.ran == ["dcgmi diag -r pcie -j", "dcgmi diag -r 2 -j"]
    assert report.verdict is Verdict.OK


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            Output("", "Error: no engine\nmore", probe.Ran(1.0, 0)),
            "it ended with 0 and said 'Error: no engine'",
        ),
        (Output("a\x00b", "", probe.Ran(1.0, 139)), r"it ended with 139 and said 'a\x00b'"),
        (Output('{"DCGM', "", probe.Ran(1.0, -9)), "it ended with -9"),
    ],
)
def test_an_answer_that_nobody_understands_is_shown(output: Output, words: str) -> None:
    report, _ = dcgm.check(bench(dcgmi=output))

    assert (report.verdict, report.reason.partition("; ")[2]) == (Verdict.UNKNOWN, words)


def test_what_fails_again_is_enough() -> None:
    made = bench(first=("pcie",), dcgmi=says(dcgm_4(pcie="Fail")))

    report, _ = dcgm.check(made)

    assert made.ran == ["dcgmi diag -r pcie -j"]
    assert (report.verdict, report.failed_tests) == (Verdict.FAILED, ("pcie",))
    assert report.reason.endswith("(again)")


BUSY = "The utilization of GPU 1 is greater than 20%. This may affect the results of the memory bandwidth test."


def undone(test: str, text: str) -> Output:
    """A diagnostic one of whose tests failed with these words."""
    return says(document_4([results_4(test, "Fail", warnings=[{"warning": text}])]), 226)


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        (says(dcgm_4(memory_bandwidth="Pass")), Verdict.OK),
        (undone("memory_bandwidth", BUSY), Verdict.UNKNOWN),
        (says(dcgm_4(memory_bandwidth="Fail")), Verdict.FAILED),
    ],
)
def test_a_test_that_was_not_done_runs_once_more(second: Output, verdict: Verdict) -> None:
    made = bench(3)
    made.answers.update({"_r 3": undone("Memory Bandwidth", BUSY), "_r memory_bandwidth": second})

    report, _ = dcgm.check(made)

    assert made.ran == ["dcgmi diag -r 3 -j", "dcgmi diag -r memory_bandwidth -j"]
    assert (report.verdict, report.reason.endswith("(once more: Memory Bandwidth)")) == (verdict, True)


def test_where_there_is_one_deadline_for_all_nothing_runs_again() -> None:
    made = replace(bench(2, dcgmi=undone("pcie", BUSY)), deadline_seconds=30.0)

    report, _ = dcgm.check(made)

    assert (made.ran, report.verdict) == (["dcgmi diag -r 2 -j"], Verdict.UNKNOWN)


def test_a_test_that_cannot_run_by_name_runs_again_with_its_level() -> None:
    made = bench(2, dcgmi=undone("software", "something new"))

    report, _ = dcgm.check(made)

    assert made.ran == ["dcgmi diag -r 2 -j", "dcgmi diag -r 2 -j"]
    assert (report.verdict, report.undone_tests) == (Verdict.UNKNOWN, ("software",))


@pytest.mark.parametrize(
    ("links", "verdict"), [("up", Verdict.FAILED), ("absent", Verdict.UNKNOWN), ("training", Verdict.UNKNOWN)]
)
def test_what_dcgm_says_of_links_counts_at_the_second_run_and_where_they_are_up(
    monkeypatch: pytest.MonkeyPatch, links: str, verdict: Verdict
) -> None:
    monkeypatch.setattr(dcgm, "FABRIC_POLL_SECONDS", 100.0)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    down = "GPU 1's NvLink link 4 is currently down"
    made = bench(2, dcgmi=undone("pcie", down), read_nvlinks=says(f"{links}\n"))

    report, _ = dcgm.check(made)

    assert report.verdict is verdict
    assert [command.split()[0] for command in made.ran].count("dcgmi") == 2


def test_the_slowest_gpus_bandwidth_is_what_is_measured() -> None:
    told = (
        dcgm_4(pcie="Pass")
        + '"info": "GPU 0 GPU to Host bandwidth:\\t\\t24.02 GB/s, GPU 1 GPU to Host bandwidth:  13.5 GB/s"'
    )

    report, _ = dcgm.check(bench(dcgmi=says(told)))

    assert report.measured == {"pcie_gpu_to_host_gb_per_s": 13.5}


# Neuron -------------------------------------------------------------------------------------------------------------


def healthy_neuron(**more: Output) -> FakeBench:
    listed, tree = golden("neuron_ls_healthy.json"), golden("neuron_sysfs_healthy.txt")
    made = bench(accelerators=0)
    made.answers.update({"neuron_ls": says(listed), "host_snapshot neuron": says(tree), **more})
    return made


def test_a_list_that_was_not_told_how_many_to_expect_proves_nothing() -> None:
    report, _ = neuron.check(healthy_neuron(nccom_test=says(NCCOM)))

    assert report.verdict is Verdict.UNKNOWN
    assert report.measured == {"neuron_all_reduce_gb_per_s": 40.6901}


def test_neuron_counters_that_have_seen_errors_fail_the_node() -> None:
    report, _ = neuron.check(healthy_neuron(**{"host_snapshot neuron": says(golden("neuron_sysfs_sick.txt"))}))

    assert report.verdict is Verdict.FAILED
    assert report.failed_tests


@pytest.mark.parametrize(
    ("collective", "verdict"),
    [(HUNG, Verdict.FAILED), (probe.Ran(1.0, 1), Verdict.UNKNOWN), (probe.Ran(1.0, 0), Verdict.UNKNOWN)],
)
def test_a_collective_that_gives_no_bandwidth_is_no_proof_and_one_that_hangs_has_failed(
    collective: probe.Ran, verdict: Verdict
) -> None:
    report, _ = neuron.check(healthy_neuron(nccom_test=Output("", "", collective)))

    assert report.verdict is verdict


def test_no_program_is_run_at_the_level_of_seconds() -> None:
    made = bench(level=1, neuron_ls=says(golden("neuron_ls_healthy.json")))

    neuron.check(made)

    assert not [command for command in made.ran if "nccom" in command]


# MIG ----------------------------------------------------------------------------------------------------------------

# What dcgmi prints: NVIDIA/DCGM issue 94, and nvvs/src/NvidiaValidationSuite.cpp.
MIG = [
    "GPU 0's MIG configuration is incompatible with the diagnostic because it prevents access to the entire GPU.",
    "Cannot run diagnostic: CUDA does not support enumerating GPUs with MIG mode enabled, yet GPU 0 is MIG enabled and "
    "the diagnostic is attempting to run on 8 GPUs.",
    "Cannot run diagnostic: MIG is enabled, but no compute instances are configured. CUDA needs to execute on a "
    "compute instance if MIG is enabled.",
    "Cannot run diagnostic: CUDA does not support enumerating GPUs when one more GPUs has MIG mode enabled and one or "
    "more GPUs has MIG mode disabled.",
]


@pytest.mark.parametrize("said", MIG)
@pytest.mark.parametrize(
    ("shown", "verdict"),
    [
        (says(golden("nvidia_smi_xml_healthy.xml")), Verdict.OK),
        (says(golden("nvidia_smi_xml_sick.xml")), Verdict.FAILED),
        (says("", 9), Verdict.UNKNOWN),
        (Output("", "", HUNG), Verdict.FAILED),
    ],
)
def test_of_gpus_in_mig_mode_the_driver_is_asked_instead_of_dcgm(said: str, shown: Output, verdict: Verdict) -> None:
    error = json.dumps({"DCGM Diagnostic": {"version": "4.6.0", "runtime_error": said}})

    for dcgmi in (says(error, 1), Output("", said, probe.Ran(1.0, 1))):
        report, _ = dcgm.check(bench(2, 2, dcgmi=dcgmi, nvidia_smi=shown))

        assert report.verdict is verdict
        assert report.reason.startswith("DCGM cannot diagnose GPUs in MIG mode")


# EFA ----------------------------------------------------------------------------------------------------------------


def test_efa_needs_its_provider_and_an_active_port() -> None:
    report, _ = efa.check(bench(fi_info=says(golden("efa_fi_info_healthy.txt")), host_snapshot=says(PORTS)))

    assert report.verdict is Verdict.OK, report.reason


@pytest.mark.parametrize(
    ("provider", "ports", "verdict"),
    [
        ("efa_fi_info_none_sick.txt", PORTS, Verdict.FAILED),
        ("efa_fi_info_healthy.txt", PORTS.replace("4: ACTIVE", "1: DOWN"), Verdict.FAILED),
        ("efa_fi_info_healthy.txt", "", Verdict.UNKNOWN),
    ],
)
def test_efa_without_one_of_them_is_not_healthy(provider: str, ports: str, verdict: Verdict) -> None:
    report, _ = efa.check(bench(fi_info=says(golden(provider)), host_snapshot=says(ports)))

    assert report.verdict is verdict


# Stress -------------------------------------------------------------------------------------------------------------


def test_load_that_checks_out_is_healthy_and_tells_its_heat() -> None:
    made = bench(stress_ng=says(HEAT))

    report, _ = stress.check(made)

    assert (report.verdict, report.measured) == (Verdict.OK, {"hottest_zone_celsius": 71.25})
    assert [command for command in made.ran if "stress-ng" in command and "--verify" in command] == made.ran[1:2]
    for part in ("--cpu 0", "--vm 2", "--hdd 1", "--hdd-opts fsync --temp-path /var/tmp"):
        assert part in made.ran[1]
    assert "--timeout 60s" in made.ran[1]


@pytest.mark.parametrize(("code", "verdict"), [(2, Verdict.FAILED), (1, Verdict.UNKNOWN), (3, Verdict.UNKNOWN)])
def test_only_a_stressor_that_failed_is_the_hosts_fault(code: int, verdict: Verdict) -> None:
    report, _ = stress.check(bench(stress_ng=says("stress-ng: fail:  [4711] cpu: wrong sum", code)))

    assert report.verdict is verdict


CPU = "/sys/devices/system/cpu/cpu3/thermal_throttle/package_throttle_count: "
ECC = "/sys/devices/system/edac/mc/mc0/ue_count: "
ZONE = """\
/sys/class/thermal/thermal_zone0/type: x86_pkg_temp
/sys/class/thermal/thermal_zone0/temp: {now}
/sys/class/thermal/thermal_zone0/trip_point_0_type: passive
/sys/class/thermal/thermal_zone0/trip_point_0_temp: 80000
/sys/class/thermal/thermal_zone0/trip_point_1_type: critical
/sys/class/thermal/thermal_zone0/trip_point_1_temp: 100000
"""


@dataclass(frozen=True)
class LoadedBench(FakeBench):
    """A bench whose host tells one thing before the load and another after it."""

    host: list[str] = field(default_factory=list)

    def run(self, command: Sequence[str], seconds: float) -> Output:
        return says(self.host.pop(0)) if "host_snapshot" in " ".join(command) else super().run(command, seconds)


@pytest.mark.parametrize(
    ("before", "after", "verdict", "failed"),
    [
        (ECC + "0", ECC + "0", Verdict.OK, ()),
        (ECC + "4", ECC + "4", Verdict.OK, ()),
        (ECC + "4", ECC + "5", Verdict.FAILED, ("memory_uncorrected",)),
        (CPU + "7", CPU + "7", Verdict.OK, ()),
        (CPU + "7", CPU + "9", Verdict.DEGRADED, ()),
        ("", CPU + "9\n" + ECC + "3", Verdict.OK, ()),
        (ZONE.format(now=45000), ZONE.format(now=99000), Verdict.OK, ()),
        (ZONE.format(now=45000), ZONE.format(now=100000), Verdict.FAILED, ("temperature",)),
        (ZONE.format(now=45000), ZONE.format(now=999999), Verdict.OK, ()),
        (ZONE.format(now=45000), ZONE.format(now=-274000), Verdict.OK, ()),
        (ECC + "(Input/output error)", ECC + "many", Verdict.OK, ()),
    ],
)
def test_errors_and_heat_that_come_with_the_load_are_the_hosts_fault(
    before: str, after: str, verdict: Verdict, failed: tuple[str, ...]
) -> None:
    made = LoadedBench(Path("unused"), 2, 0, answers={"stress_ng": says(HEAT)}, host=[before, after])

    report, _ = stress.check(made)

    assert (report.verdict, report.failed_tests) == (verdict, failed), report.reason
    assert report.measured == {"hottest_zone_celsius": 71.25}


def test_a_stressor_that_fails_is_worse_than_a_warm_host() -> None:
    answers = {"stress_ng": says("stress-ng: fail:  [4711] cpu: wrong sum", 2)}
    made = LoadedBench(Path("unused"), 2, 0, answers=answers, host=[CPU + "1", CPU + "2"])

    report, _ = stress.check(made)

    assert (report.verdict, report.failed_tests) == (Verdict.FAILED, ("stress",))


@pytest.mark.skipif(not shutil.which("stress-ng"), reason="this machine has no stress-ng")
def test_the_real_stress_ng_takes_what_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stress.LOAD_SECONDS, 1, 1)

    report, output = stress.check(Bench(tmp_path, 1, 0))

    assert output.ran.exit_code == 0, output.errors
    assert report.verdict in (Verdict.OK, Verdict.DEGRADED), report.reason


# All of them --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [dcgm.check, neuron.check, efa.check, stress.check])
def test_a_node_without_the_tools_is_not_healthy(check: object) -> None:
    report, _ = check(bench())  # type: ignore[operator]

    assert report.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("check", [dcgm.check, neuron.check, efa.check, stress.check])
def test_a_tool_that_hangs_has_failed(check: object) -> None:
    hung = Output("", "", HUNG)
    made = bench(dcgmi=hung, neuron_ls=hung, fi_info=hung, stress_ng=hung)

    report, _ = check(made)  # type: ignore[operator]

    assert (report.verdict, report.failed_tests) == (Verdict.FAILED, ("timeout",))


# How long it may take at most --------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_what_a_job_waits_for_a_check_is_what_the_agent_gives_its_tools(level: int) -> None:
    collective = neuron.COLLECTIVE_SECONDS if level >= neuron.COLLECTIVE_LEVEL else 0
    host = 2 * stress.HOST_SECONDS

    assert {check: seconds[level] for check, seconds in LONGEST_SECONDS.items() if check is not Check.dcgm} == {
        Check.neuron: neuron.LIST_SECONDS + neuron.COUNTERS_SECONDS + collective,
        Check.efa: 2 * efa.SECONDS,
        Check.stress: stress.LOAD_SECONDS[level] + stress.GRACE_SECONDS + host,
    }
