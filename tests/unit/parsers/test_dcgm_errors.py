"""DCGM's error ids and sentences."""

import pytest

from nodeheal.contract.vocabulary import Action, Family, Verdict
from nodeheal.domain.faults.catalog import find
from nodeheal.parsers.dcgm_errors import NAMES, ErrorKind, kind_of, name_of, names_in, names_of
from nodeheal.parsers.nvlinks import NvLinks


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (1, "UNKNOWN"),
        (4, "VOLATILE_DBE_DETECTED"),
        (10, "CLOCKS_EVENT_THERMAL"),
        (23, "DENYLISTED_DRIVER"),
        (29, "PERSISTENCE_MODE"),
        (43, "CLOCKS_EVENT_VIOLATION"),
        (52, "FAULTY_MEMORY"),
        (69, "TOO_MANY_ERRORS"),
        (80, "ROW_REMAP_FAILURE"),
        (95, "EUD_TEST_FAILED"),
        (101, "XID_ERROR"),
        (111, "NAN_VALUE"),
        (116, "BROKEN_P2P_NVLINK_WRITER_DEVICE"),
        (120, "FALLEN_OFF_BUS"),
        (128, "GPU_RECOVERY_DRAIN_RESET"),
        (130, "RETEST_REQUESTED"),
        (131, "CONTAINED_ERROR"),
        (132, "UNCORRECTABLE_ROW_REMAP_LIMIT"),
    ],
)
def test_an_id_has_the_name_of_dcgms_header(number: int, name: str) -> None:
    assert name_of(number) == f"DCGM_FR_{name}"


@pytest.mark.parametrize("number", [0, -1, 133, 9999, True, "4", None, 4.0])
def test_what_is_no_error_id_has_no_name(number: object) -> None:
    assert name_of(number) is None


def test_no_name_stands_twice() -> None:
    assert len(set(NAMES)) == len(NAMES) == 133


def test_only_errors_of_the_hardware_lead_to_an_act() -> None:
    acts = set(Action) - {Action.OBSERVE, Action.ESCALATE}

    for name in NAMES:
        row = find(Family.dcgm, name)
        assert row is not None, name
        if kind_of(name, NvLinks.UP) is not ErrorKind.HARDWARE:
            assert not acts & set(row.ladder), name
            assert row.verdict is not Verdict.FAILED, name


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("GPU 3 has fallen off the bus", "FALLEN_OFF_BUS"),
        ("GPU 3 had memory errors and row remappings are pending", "PENDING_ROW_REMAP"),
        ("GPU 3 had uncorrectable memory errors and row remapping failed.", "ROW_REMAP_FAILURE"),
        ("GPU 3 had uncorrectable memory errors and 2 rows were remapped", "UNCORRECTABLE_ROW_REMAP"),
        ("GPU 3 exceeded uncorrectable row remap limit with 512 remapped rows", "UNCORRECTABLE_ROW_REMAP_LIMIT"),
        ("GPU had a contained error.", "CONTAINED_ERROR"),
        ("GPU had an uncontained error.", "UNCONTAINED_ERROR"),
        ("Unknown GPU recovery action 5 for GPU 3", "GPU_RECOVERY_IMEX_DOMAIN"),
        ("Detected clock throttling due to thermal violation in GPU 1.", "CLOCKS_EVENT_THERMAL"),
        ("Detected nonfatal errors on NvSwitch 2 link 5", "NVSWITCH_NON_FATAL_ERROR"),
        ("Detected fatal errors on NvSwitch 2 link 5", "NVSWITCH_FATAL_ERROR"),
        ("Detected 7 nvlink_flit_crc_error NvLink errors on GPU 2's NVLink (should be 0)", "NVLINK_ERROR_CRITICAL"),
        ("Detected 3 ecc_dbe_volatile_total for GPU 0", "FIELD_VIOLATION"),
        ("Skipping test memory because ECC is not enabled on GPU 1", "ECC_DISABLED"),
        ("Unable to run concurrent pair bandwidth test without 2 or more gpus. Skipping", "CONCURRENT_GPUS"),
        ("The Targeted Power test is skipped.", "TEST_DISABLED"),
        ("API call cuInit failed for GPU 1: 'no device'", "API_FAIL_GPU"),
        (
            "Thermal violations totaling 4.0 seconds started at 2.5 seconds into the test for GPU 0",
            "THERMAL_VIOLATIONS_TS",
        ),
        ("error DCGM_FR_NCCL_ERROR came up", "NCCL_ERROR"),
        ("DCGM_FR_CLOCK_THROTTLE_POWER", "CLOCKS_EVENT_POWER"),
    ],
)
def test_a_sentence_betrays_its_error(sentence: str, name: str) -> None:
    assert names_in(sentence) == (f"DCGM_FR_{name}",)


def test_two_sentences_tell_of_two_errors_in_their_order() -> None:
    found = names_in("A pending retired page has been detected in GPU 3., GPU 3's NvLink link 5 is currently down")

    assert found == ("DCGM_FR_PENDING_PAGE_RETIREMENTS", "DCGM_FR_NVLINK_DOWN")


@pytest.mark.parametrize("text", ["", "the guards wear blue", "DCGM_FR_NEVER_HEARD_OF", "DCGM_FR_OK"])
def test_other_text_tells_of_none(text: str) -> None:
    assert names_in(text) == ()


@pytest.mark.parametrize(
    ("number", "text", "found"),
    [
        (1, "Unknown GPU recovery action 5 for GPU 3", ("DCGM_FR_GPU_RECOVERY_IMEX_DOMAIN",)),
        (1, "something else", ("DCGM_FR_UNKNOWN",)),
        (131, "Detected XID 94", ("DCGM_FR_CONTAINED_ERROR",)),
        (None, "GPU 3 has fallen off the bus", ("DCGM_FR_FALLEN_OFF_BUS",)),
        (None, "", ()),
    ],
)
def test_an_id_counts_unless_it_says_less_than_the_sentence(number: object, text: str, found: tuple[str, ...]) -> None:
    assert names_of(number, text) == found
