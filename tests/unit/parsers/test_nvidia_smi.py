"""What nvidia-smi says of a node, in each of its formats."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.nvidia_smi import parse_nvidia_smi
from tests.support.goldens import cut_off, golden, names

UUID = "GPU-0f0c4b2e-7d1a-4c35-9b6e-0a1b2c3d4e50"
EXPECTED = {
    **dict.fromkeys(names("nvidia_smi_*_h200_healthy.*"), 1),
    "nvidia_smi_xml_healthy.xml": 2,
    "nvidia_smi_log_healthy.txt": 2,
}


def found(report: ToolReport) -> list[tuple[str, str | None, str | None]]:
    return [(finding.code, finding.subcode, finding.component) for finding in report.findings]


def codes(text: str, expected: int = 0) -> list[str]:
    report = parse_nvidia_smi(text, expected)
    assert {finding.family for finding in report.findings} <= {Family.nvml}
    return [f"{finding.code}/{finding.subcode}" if finding.subcode else finding.code for finding in report.findings]


def xml(fields: str, attached: int = 1) -> str:
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
        f"<nvidia_smi_log><attached_gpus>{attached}</attached_gpus>"
        f'<gpu id="00000000:53:00.0"><uuid>{UUID}</uuid><gpu_recovery_action>None</gpu_recovery_action>{fields}</gpu>'
        "</nvidia_smi_log>\n"
    )


def csv(field: str, *values: str) -> str:
    return f"index, {field}\n" + "".join(f"{number}, {value}\n" for number, value in enumerate(values))


@pytest.mark.parametrize("name", names("nvidia_smi_*_healthy.*"))
def test_a_healthy_node_is_healthy_in_every_format(name: str) -> None:
    report = parse_nvidia_smi(golden(name), EXPECTED.get(name, 8))

    assert (report.verdict, report.findings) == (Verdict.OK, ())


@pytest.mark.parametrize("name", names("nvidia_smi_*_sick.*"))
def test_a_sick_node_is_sick_in_every_format(name: str) -> None:
    assert parse_nvidia_smi(golden(name)).verdict is Verdict.FAILED


def test_the_xml_tells_of_every_fault_of_every_gpu() -> None:
    report = parse_nvidia_smi(golden("nvidia_smi_xml_sick.xml"))

    assert found(report) == [
        ("RECOVERY_ACTION", "GPU_RESET", "0000:53:00.0"),
        ("ECC_UNCORRECTED_VOLATILE", None, "0000:53:00.0"),
        ("ECC_UNCORRECTED_AGGREGATE", None, "0000:64:00.0"),
        ("REMAP_PENDING", None, "0000:75:00.0"),
        ("SRAM_THRESHOLD_EXCEEDED", None, "0000:86:00.0"),
        ("REMAP_FAILED", None, "0000:86:00.0"),
        ("RECOVERY_ACTION", "DRAIN_P2P", "0000:97:00.0"),
        ("THERMAL_SLOWDOWN", None, "0000:97:00.0"),
        ("POWER_BRAKE", None, "0000:a8:00.0"),
        ("ERR_FIELD", None, "0000:a8:00.0"),
        ("RESET_REQUIRED", None, "0000:b9:00.0"),
        ("RETIRED_PAGES_PENDING", None, "0000:b9:00.0"),
        ("GPU_MISSING", None, None),
    ]
    assert report.failed_components == ("0000:53:00.0", "0000:86:00.0", "0000:a8:00.0", "0000:b9:00.0")


def test_the_csv_tells_of_a_lost_gpu_once() -> None:
    report = parse_nvidia_smi(golden("nvidia_smi_csv_sick.csv"))

    assert found(report)[-1] == ("GPU_LOST", None, "0000:b9:00.0")
    assert [entry for entry in found(report) if entry[2] == "0000:b9:00.0"] == [("GPU_LOST", None, "0000:b9:00.0")]


def test_the_table_tells_of_errors_and_of_unreadable_fields() -> None:
    assert found(parse_nvidia_smi(golden("nvidia_smi_table_sick.txt"))) == [
        ("ECC_UNCORRECTED_VOLATILE", None, "0000:64:00.0"),
        ("ERR_FIELD", None, "0000:75:00.0"),
    ]


def test_old_drivers_count_double_bit_errors() -> None:
    assert codes(golden("nvidia_smi_xml_old_driver_sick.xml")) == ["ECC_UNCORRECTED_VOLATILE", "RETIRED_PAGES_PENDING"]


def test_the_log_tells_what_the_xml_tells() -> None:
    assert codes(golden("nvidia_smi_log_sick.txt")) == [
        "RESET_REQUIRED",
        "RECOVERY_ACTION/GPU_RESET",
        "ECC_UNCORRECTED_VOLATILE",
        "REMAP_PENDING",
    ]


@pytest.mark.parametrize(
    ("field", "value", "verdict", "code"),
    [
        ("ecc.errors.uncorrected.volatile.total", "3", Verdict.FAILED, "ECC_UNCORRECTED_VOLATILE"),
        ("ecc.errors.uncorrected.volatile.dram", "1", Verdict.FAILED, "ECC_UNCORRECTED_VOLATILE"),
        ("ecc.errors.uncorrected.aggregate.total", "3", Verdict.DEGRADED, "ECC_UNCORRECTED_AGGREGATE"),
        ("retired_pages.pending", "Yes", Verdict.DEGRADED, "RETIRED_PAGES_PENDING"),
        ("remapped_rows.pending", "Yes", Verdict.DEGRADED, "REMAP_PENDING"),
        ("remapped_rows.failure", "Yes", Verdict.FAILED, "REMAP_FAILED"),
        ("gpu_recovery_action", "Reset", Verdict.FAILED, "RECOVERY_ACTION/GPU_RESET"),
        ("gpu_recovery_action", "Reboot", Verdict.FAILED, "RECOVERY_ACTION/NODE_REBOOT"),
        ("gpu_recovery_action", "Drain P2P", Verdict.DEGRADED, "RECOVERY_ACTION/DRAIN_P2P"),
        ("gpu_recovery_action", "Drain and Reset", Verdict.FAILED, "RECOVERY_ACTION/DRAIN_AND_RESET"),
        ("gpu_recovery_action", "Bus Reset", Verdict.FAILED, "RECOVERY_ACTION"),
        ("clocks_event_reasons.hw_thermal_slowdown", "Active", Verdict.DEGRADED, "THERMAL_SLOWDOWN"),
        ("clocks_throttle_reasons.hw_power_brake_slowdown", "Active", Verdict.DEGRADED, "POWER_BRAKE"),
        ("clocks_throttle_reasons.active", "0x0000000000000080", Verdict.DEGRADED, "POWER_BRAKE"),
        ("reset_status.reset_required", "Yes", Verdict.FAILED, "RESET_REQUIRED"),
        ("power.draw [W]", "[Unknown Error]", Verdict.DEGRADED, "UNKNOWN_ERROR"),
        ("fan.speed [%]", "ERR!", Verdict.FAILED, "ERR_FIELD"),
        ("temperature.gpu", "[GPU is lost]", Verdict.FAILED, "GPU_LOST"),
        ("temperature.gpu", "[GPU requires reset]", Verdict.FAILED, "RESET_REQUIRED"),
    ],
)
def test_a_field_of_the_query_means_a_fault(field: str, value: str, verdict: Verdict, code: str) -> None:
    text = csv(field, value)

    report = parse_nvidia_smi(text, 1)

    assert (report.verdict, codes(text, 1)) == (verdict, [code])
    assert report.failed_components == (("GPU 0",) if verdict is Verdict.FAILED else ())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ecc.errors.uncorrected.volatile.total", "0"),
        ("ecc.errors.uncorrected.volatile.total", "[N/A]"),
        ("ecc.errors.corrected.volatile.total", "17"),
        ("remapped_rows.pending", "No"),
        ("retired_pages.pending", "[Not Supported]"),
        ("gpu_recovery_action", "None"),
        ("gpu_recovery_action", "[N/A]"),
        ("clocks_event_reasons.active", "0x0000000000000001"),
        ("temperature.gpu", "86"),
        ("power.draw [W]", "[N/A]"),
    ],
)
def test_what_is_not_there_or_harmless_is_no_fault(field: str, value: str) -> None:
    assert parse_nvidia_smi(csv(field, value), 1).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ecc.errors.uncorrected.volatile.total", "three"),
        ("remapped_rows.pending", "Ye"),
        ("gpu_recovery_action", "Non"),
        ("clocks_event_reasons.active", "0x"),
        ("remapped_rows.failure", "[Insufficient Permissions]"),
    ],
)
def test_a_value_that_nobody_understands_is_not_health(field: str, value: str) -> None:
    assert parse_nvidia_smi(csv(field, value), 1).verdict is Verdict.UNKNOWN


def test_errors_since_the_reset_outweigh_those_counted_ever() -> None:
    counted = "<ecc_errors><volatile><dram_uncorrectable>1</dram_uncorrectable></volatile><aggregate>\
<dram_uncorrectable>9</dram_uncorrectable></aggregate></ecc_errors>"

    assert codes(xml(counted)) == ["ECC_UNCORRECTED_VOLATILE"]


@pytest.mark.parametrize(
    ("sentence", "verdict", "code", "component"),
    [
        ("No devices were found", Verdict.FAILED, "NO_DEVICES", None),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.",
            Verdict.FAILED,
            "DRIVER_NOT_LOADED",
            None,
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", Verdict.FAILED, "DRIVER_MISMATCH", None),
        (
            "Unable to determine the device handle for GPU 0000:5F:00.0: GPU is lost.  Reboot the system to recover "
            "this GPU",
            Verdict.FAILED,
            "GPU_LOST",
            "0000:5f:00.0",
        ),
        (
            "Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error",
            Verdict.FAILED,
            "GPU_LOST",
            "0000:5f:00.0",
        ),
        ("Unable to determine the device handle for GPU2: Unknown Error", Verdict.FAILED, "GPU_LOST", "GPU 2"),
        ("Failed to initialize NVML: Unknown Error", Verdict.UNKNOWN, "UNKNOWN_ERROR", None),
        (
            "WARNING: infoROM is corrupted at gpu 0000:00:1E.0",
            Verdict.DEGRADED,
            "INFOROM_CORRUPT",
            "0000:00:1e.0",
        ),
    ],
)
def test_a_sentence_instead_of_an_answer_is_understood(
    sentence: str, verdict: Verdict, code: str, component: str | None
) -> None:
    report = parse_nvidia_smi(sentence + "\n")

    assert (report.verdict, found(report)) == (verdict, [(code, None, component)])


def test_a_sentence_before_the_answer_counts_too() -> None:
    lost = "Unable to determine the device handle for GPU 0000:64:00.0: GPU is lost.\n"

    assert codes(lost + golden("nvidia_smi_xml_healthy.xml")) == ["GPU_LOST"]
    assert codes(lost + golden("nvidia_smi_table_healthy.txt")) == ["GPU_LOST"]


@pytest.mark.parametrize("name", names("nvidia_smi_*_healthy.*"))
def test_a_gpu_that_is_not_shown_is_missing(name: str) -> None:
    report = parse_nvidia_smi(golden(name), EXPECTED.get(name, 8) + 1)

    assert (report.verdict, found(report)) == (Verdict.FAILED, [("GPU_MISSING", None, None)])


def test_a_hole_in_the_numbers_is_a_missing_gpu() -> None:
    rows = golden("nvidia_smi_list_healthy.txt").splitlines(keepends=True)

    assert found(parse_nvidia_smi("".join(rows[:3] + rows[4:]), 8)) == [("GPU_MISSING", None, "GPU 3")]


def test_fewer_gpus_than_the_tool_counts_are_missing() -> None:
    assert codes(xml("", attached=8)) == ["GPU_MISSING"]


def test_a_list_says_when_nobody_has_said_how_long_it_should_be() -> None:
    report = parse_nvidia_smi(golden("nvidia_smi_csv_healthy.csv"))

    assert report.verdict is Verdict.OK
    assert "the expected number is not known" in report.reason
    assert "was not said" not in parse_nvidia_smi(golden("nvidia_smi_csv_counted_healthy.csv")).reason


@pytest.mark.parametrize(
    "text",
    [
        golden("nvidia_smi_list_healthy.txt"),
        "index, name, power.draw [W]\n0, NVIDIA H100, 91.2 W\n",
        "0, 00000000:53:00.0\n",
    ],
    ids=["names", "watts", "numbers only"],
)
def test_a_table_that_says_nothing_of_health_is_not_health(text: str) -> None:
    report = parse_nvidia_smi(text)

    assert report.verdict is Verdict.UNKNOWN
    assert "does not contain their health" in report.reason


def test_a_number_without_a_field_name_may_count_errors() -> None:
    nameless = f"0, {UUID}, 3\n"

    assert parse_nvidia_smi(nameless, 1).verdict is Verdict.UNKNOWN
    assert parse_nvidia_smi(nameless.replace("3\n", "0\n"), 1).verdict is Verdict.OK


def test_a_process_may_call_itself_what_it_likes() -> None:
    process = "<processes><process_info><process_name>ERR!</process_name></process_info></processes>"

    assert parse_nvidia_smi(xml(process)).verdict is Verdict.OK


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\n",
        "nvidia-smi: command not found",
        golden("nvidia_smi_says_no_access.txt"),
        "index, uuid",
        "<nvidia_smi_log></nvidia_smi_log>",
        "<nvidia_smi_log><gpu></gpu></nvidia_smi_log>",
        "<nvidia_smi_log><gpu id='00000000:53:00.0'><product_name>H100</product_name></gpu></nvidia_smi_log>",
        "<?xml version='1.0'?><something_else/>",
        "==============NVSMI LOG==============",
        "| NVIDIA-SMI 570.133.20 |",
        "<nvidia_smi_log>" + "<gpu>" * 100_000,
    ],
)
def test_silence_is_not_health(text: str) -> None:
    assert parse_nvidia_smi(text).verdict is Verdict.UNKNOWN
    assert parse_nvidia_smi(text, 8).verdict is Verdict.UNKNOWN


def test_entities_are_refused_before_they_can_grow() -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "ha"}">' for n in range(12))
    bomb = f"<?xml version='1.0'?><!DOCTYPE nvidia_smi_log [{laughs}]><nvidia_smi_log>&l11;</nvidia_smi_log>"
    outside = (
        '<!DOCTYPE nvidia_smi_log [<!ENTITY x SYSTEM "file:///etc/hostname">]><nvidia_smi_log>&x;</nvidia_smi_log>'
    )

    started = time.monotonic()
    reports = [parse_nvidia_smi(text) for text in (bomb, outside)]

    assert time.monotonic() - started < 1
    assert [report.verdict for report in reports] == [Verdict.UNKNOWN] * 2
    assert all("entity" in report.reason for report in reports)


@pytest.mark.parametrize("name", names("nvidia_smi_*"))
def test_a_recording_that_is_cut_off_is_not_health(name: str) -> None:
    should = EXPECTED.get(name, 8)

    for text in cut_off(name):
        assert parse_nvidia_smi(text, should).verdict is not Verdict.OK, text[-60:]


@given(st.binary(max_size=300))
def test_no_bytes_break_the_parser_or_pass_for_health(raw: bytes) -> None:
    assert parse_nvidia_smi(raw.decode("utf-8", "replace")).verdict is not Verdict.OK


@given(st.lists(st.sampled_from(golden("nvidia_smi_csv_sick.csv").replace("\n", ", \n").split(", ")), max_size=40))
def test_no_mixture_of_cells_breaks_the_parser(cells: list[str]) -> None:
    assert parse_nvidia_smi(", ".join(cells), 99).verdict is not Verdict.OK


def test_remapped_rows_are_told_as_words_or_as_numbers() -> None:
    head = "index, remapped_rows.pending, remapped_rows.failure\n"

    assert parse_nvidia_smi(f"{head}0, 0, 0\n").verdict is Verdict.OK
    assert codes(f"{head}0, 1, 1\n") == ["REMAP_PENDING", "REMAP_FAILED"]


def test_a_gpu_that_answers_no_question_of_health_is_not_healthy() -> None:
    text = "index, ecc.errors.uncorrected.volatile.total, remapped_rows.pending\n0, [N/A], [N/A]\n"

    assert parse_nvidia_smi(text).verdict is Verdict.UNKNOWN


# The NVLink fabric: the elements as drivers of 2025 and 2026 print them on an H100, a GB200 and an A100.

SOUND = {
    "state": "Completed",
    "status": "Success",
    "cliqueId": "2",
    "summary": "Healthy",
    "bandwidth": "Full",
    "route_recovery_in_progress": "False",
    "route_unhealthy": "False",
    "access_timeout_recovery": "False",
    "incorrect_configuration": "None",
    "partition_assigned": "True",
}
OUTSIDE_HEALTH = ("state", "status", "cliqueId")


def fabric(**said: str) -> str:
    """A GPU's element `fabric`."""
    told = {name: f"<{name}>{word}</{name}>" for name, word in (SOUND | said).items()}
    within = "".join(words for name, words in told.items() if name not in OUTSIDE_HEALTH)
    return xml(f"<fabric>{''.join(told[name] for name in OUTSIDE_HEALTH)}<health>{within}</health></fabric>")


def absent(**said: str) -> str:
    return fabric(**dict.fromkeys(SOUND, "N/A") | said)


@pytest.mark.parametrize(
    "text", [fabric(), absent(), absent(state="Completed", status="Success"), absent(state="Not Supported")]
)
def test_a_gpu_that_is_in_the_fabric_and_one_that_has_none_are_sound(text: str) -> None:
    assert parse_nvidia_smi(text).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("text", "verdict", "code"),
    [
        (fabric(summary="Unhealthy", route_unhealthy="True"), Verdict.FAILED, "FABRIC_UNHEALTHY"),
        (fabric(summary="Unhealthy"), Verdict.FAILED, "FABRIC_UNHEALTHY"),
        (absent(route_unhealthy="True"), Verdict.FAILED, "FABRIC_UNHEALTHY"),
        (absent(state="Completed", status="Failure"), Verdict.FAILED, "FABRIC_UNHEALTHY"),
        (fabric(summary="Limited Capacity"), Verdict.FAILED, "FABRIC_DEGRADED"),
        (fabric(summary="Limited Capacity", bandwidth="Degraded"), Verdict.FAILED, "FABRIC_DEGRADED"),
        (absent(bandwidth="Degraded"), Verdict.FAILED, "FABRIC_DEGRADED"),
        (fabric(access_timeout_recovery="True"), Verdict.DEGRADED, "FABRIC_RECOVERING"),
        (fabric(route_recovery_in_progress="True"), Verdict.DEGRADED, "FABRIC_RECOVERING"),
        (absent(state="In Progress"), Verdict.DEGRADED, "FABRIC_NOT_READY"),
        (absent(state="Not Started"), Verdict.DEGRADED, "FABRIC_NOT_READY"),
        (
            fabric(summary="Unhealthy", incorrect_configuration="Incorrect SysGUID"),
            Verdict.FAILED,
            "FABRIC_MISCONFIGURED",
        ),
    ],
)
def test_a_gpu_that_is_not_well_in_the_fabric_is_never_ok(text: str, verdict: Verdict, code: str) -> None:
    report = parse_nvidia_smi(text)

    assert (report.verdict, codes(text)) == (verdict, [code])


@pytest.mark.parametrize("said", [{"state": "Resting"}, {"summary": "Poorly"}, {"route_unhealthy": "Perhaps"}])
def test_a_word_of_the_fabric_that_nobody_knows_is_a_doubt(said: dict[str, str]) -> None:
    assert parse_nvidia_smi(fabric(**said)).verdict is Verdict.UNKNOWN


def test_the_csv_shows_the_fabric_too() -> None:
    text = "index, ecc.errors.uncorrected.volatile.total, fabric.state, fabric.status\n"

    assert codes(f"{text}0, 0, Completed, Success\n1, 0, In Progress, N/A\n", 2) == ["FABRIC_NOT_READY"]


def test_the_log_shows_the_fabric_too() -> None:
    plain = golden("nvidia_smi_log_healthy.txt")
    shown = "    Fabric\n        State                     : Completed\n        Status                    : Success\n"
    health = "        Health\n            Route Unhealthy       : True\n"
    sick = plain.replace("    Processes", f"{shown}{health}    Processes", 1)

    assert sick != plain
    assert codes(sick, 2) == ["FABRIC_UNHEALTHY"]


def test_a_domain_that_is_to_be_recovered_has_a_row_of_its_own() -> None:
    text = xml("").replace(">None<", ">Recover IMEX Domain<")

    assert codes(text) == ["RECOVERY_ACTION/RECOVER_IMEX_DOMAIN"]
