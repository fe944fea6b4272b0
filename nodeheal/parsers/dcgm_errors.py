"""Lists DCGM's error ids, and recognises its sentences where it gives no id.

The numbers are those of `dcgm_errors.h` of DCGM 4.6 (0 to 132, all read there); DCGM only ever appends, so they are
valid for DCGM 3. Names that DCGM has changed (CLOCK_THROTTLE_THERMAL, BLACKLISTED_DRIVER, …) are the present ones.
"""

import re

_BY_NUMBER = """
OK UNKNOWN UNRECOGNIZED PCI_REPLAY_RATE VOLATILE_DBE_DETECTED VOLATILE_SBE_DETECTED PENDING_PAGE_RETIREMENTS
RETIRED_PAGES_LIMIT RETIRED_PAGES_DBE_LIMIT CORRUPT_INFOROM CLOCKS_EVENT_THERMAL POWER_UNREADABLE CLOCKS_EVENT_POWER
NVLINK_ERROR_THRESHOLD NVLINK_DOWN NVSWITCH_FATAL_ERROR NVSWITCH_NON_FATAL_ERROR NVSWITCH_DOWN NO_ACCESS_TO_FILE
NVML_API DEVICE_COUNT_MISMATCH BAD_PARAMETER CANNOT_OPEN_LIB DENYLISTED_DRIVER NVML_LIB_BAD GRAPHICS_PROCESSES
HOSTENGINE_CONN FIELD_QUERY BAD_CUDA_ENV PERSISTENCE_MODE LOW_BANDWIDTH HIGH_LATENCY CANNOT_GET_FIELD_TAG
FIELD_VIOLATION FIELD_THRESHOLD FIELD_VIOLATION_DBL FIELD_THRESHOLD_DBL UNSUPPORTED_FIELD_TYPE FIELD_THRESHOLD_TS
FIELD_THRESHOLD_TS_DBL THERMAL_VIOLATIONS THERMAL_VIOLATIONS_TS TEMP_VIOLATION CLOCKS_EVENT_VIOLATION INTERNAL
PCIE_GENERATION PCIE_WIDTH ABORTED TEST_DISABLED CANNOT_GET_STAT STRESS_LEVEL CUDA_API FAULTY_MEMORY
CANNOT_SET_WATCHES CUDA_UNBOUND ECC_DISABLED MEMORY_ALLOC CUDA_DBE MEMORY_MISMATCH CUDA_DEVICE ECC_UNSUPPORTED
ECC_PENDING MEMORY_BANDWIDTH TARGET_POWER API_FAIL API_FAIL_GPU CUDA_CONTEXT DCGM_API CONCURRENT_GPUS TOO_MANY_ERRORS
NVLINK_CRC_ERROR_THRESHOLD NVLINK_ERROR_CRITICAL ENFORCED_POWER_LIMIT MEMORY_ALLOC_HOST GPU_OP_MODE NO_MEMORY_CLOCKS
NO_GRAPHICS_CLOCKS HAD_TO_RESTORE_STATE L1TAG_UNSUPPORTED L1TAG_MISCOMPARE ROW_REMAP_FAILURE UNCONTAINED_ERROR
EMPTY_GPU_LIST DBE_PENDING_PAGE_RETIREMENTS UNCORRECTABLE_ROW_REMAP PENDING_ROW_REMAP BROKEN_P2P_MEMORY_DEVICE
BROKEN_P2P_WRITER_DEVICE NVSWITCH_NVLINK_DOWN EUD_BINARY_PERMISSIONS EUD_NON_ROOT_USER EUD_SPAWN_FAILURE EUD_TIMEOUT
EUD_ZOMBIE EUD_NON_ZERO_EXIT_CODE EUD_TEST_FAILED FILE_CREATE_PERMISSIONS PAUSE_RESUME_FAILED PCIE_H_REPLAY_VIOLATION
GPU_EXPECTED_NVLINKS_UP NVSWITCH_EXPECTED_NVLINKS_UP XID_ERROR SBE_VIOLATION DBE_VIOLATION PCIE_REPLAY_VIOLATION
SBE_THRESHOLD_VIOLATION DBE_THRESHOLD_VIOLATION PCIE_REPLAY_THRESHOLD_VIOLATION CUDA_FM_NOT_INITIALIZED SXID_ERROR
GFLOPS_THRESHOLD_VIOLATION NAN_VALUE FABRIC_MANAGER_TRAINING_ERROR BROKEN_P2P_PCIE_MEMORY_DEVICE
BROKEN_P2P_PCIE_WRITER_DEVICE BROKEN_P2P_NVLINK_MEMORY_DEVICE BROKEN_P2P_NVLINK_WRITER_DEVICE TEST_SKIPPED
SRAM_THRESHOLD NVLINK_EFFECTIVE_BER_THRESHOLD FALLEN_OFF_BUS NVLINK_SYMBOL_BER_THRESHOLD IMEX_UNHEALTHY
FABRIC_PROBE_STATE BINARY_PERMISSIONS GPU_RECOVERY_RESET GPU_RECOVERY_REBOOT GPU_RECOVERY_DRAIN_P2P
GPU_RECOVERY_DRAIN_RESET NCCL_ERROR RETEST_REQUESTED CONTAINED_ERROR UNCORRECTABLE_ROW_REMAP_LIMIT
"""
_NUMBERED = tuple(f"DCGM_FR_{name}" for name in _BY_NUMBER.split())
# DCGM has no id for recovery actions that are newer than its own table, only a sentence: this name follows its style.
NAMES = (*_NUMBERED, "DCGM_FR_GPU_RECOVERY_IMEX_DOMAIN")
# Ids that contain less than the sentence beside them.
_SAY_NOTHING = ("DCGM_FR_UNKNOWN", "DCGM_FR_UNRECOGNIZED")

_RENAMED = {
    "DCGM_FR_BLACKLISTED_DRIVER": "DCGM_FR_DENYLISTED_DRIVER",
    "DCGM_FR_CLOCK_THROTTLE_POWER": "DCGM_FR_CLOCKS_EVENT_POWER",
    "DCGM_FR_CLOCK_THROTTLE_THERMAL": "DCGM_FR_CLOCKS_EVENT_THERMAL",
    "DCGM_FR_THROTTLING_VIOLATION": "DCGM_FR_CLOCKS_EVENT_VIOLATION",
}
_NAME = re.compile(r"\bDCGM_FR_[A-Z0-9_]{2,60}\b")

# Distinctive parts of DCGM's sentences, in the wordings of both generations, in lower case. The first match at a place
# wins.
_PHRASES = (
    ("FALLEN_OFF_BUS", r"has fallen off the bus"),
    ("GPU_RECOVERY_DRAIN_RESET", r"operating at reduced capacity"),
    ("GPU_RECOVERY_RESET", r"requires a reset to recover"),
    ("GPU_RECOVERY_REBOOT", r"left the os in an inconsistent state"),
    ("GPU_RECOVERY_DRAIN_P2P", r"requires peer-to-peer traffic to be quiesced"),
    ("GPU_RECOVERY_IMEX_DOMAIN", r"unknown gpu recovery action 5\b"),
    ("GPU_RECOVERY_RESET", r"unknown gpu recovery action 6\b"),  # a reset of the bus
    ("GPU_RECOVERY_REBOOT", r"unknown gpu recovery action 7\b"),
    ("UNCONTAINED_ERROR", r"uncontained error"),
    ("CONTAINED_ERROR", r"\bcontained error"),
    ("ROW_REMAP_FAILURE", r"row remapping failed"),
    ("PENDING_ROW_REMAP", r"row remappings? (?:are|is) pending"),
    ("UNCORRECTABLE_ROW_REMAP_LIMIT", r"exceeded uncorrectable row remap limit"),
    ("UNCORRECTABLE_ROW_REMAP", r"rows were remapped"),
    ("DBE_PENDING_PAGE_RETIREMENTS", r"pending page retirements together with a dbe"),
    ("PENDING_PAGE_RETIREMENTS", r"pending retired page"),
    ("RETIRED_PAGES_DBE_LIMIT", r"retired pages due to dbes"),
    ("RETIRED_PAGES_LIMIT", r"or more retired pages"),
    ("VOLATILE_DBE_DETECTED", r"volatile double-bit ecc error"),
    ("VOLATILE_SBE_DETECTED", r"single-bit ecc error\(s\) detected"),
    ("CUDA_DBE", r"indicated that a double-bit ecc error"),
    ("SRAM_THRESHOLD", r"sram threshold count exceeded"),
    ("FAULTY_MEMORY", r"faulty memory elements"),
    ("NAN_VALUE", r"nan-value memory elements"),
    ("MEMORY_MISMATCH", r"memory mismatch was detected"),
    ("L1TAG_MISCOMPARE", r"miscompare failure in the l1 cache"),
    ("CORRUPT_INFOROM", r"corrupt inforom"),
    ("XID_ERROR", r"detected xid \d"),
    ("SXID_ERROR", r"fatal nvswitch sxid"),
    ("PCI_REPLAY_RATE", r"pcie replays per minute"),
    ("PCIE_H_REPLAY_VIOLATION", r"host-side pcie replay"),
    ("PCIE_GENERATION", r"running at pci link generation"),
    ("PCIE_WIDTH", r"running at pci link width"),
    ("CLOCKS_EVENT_THERMAL", r"clock(?:s event| throttling) due to thermal violation"),
    ("CLOCKS_EVENT_POWER", r"clock(?:s event| throttling) due to power violation"),
    ("CLOCKS_EVENT_VIOLATION", r"because of clocks? (?:event|throttling)"),
    ("THERMAL_VIOLATIONS_TS", r"thermal violations totaling [\d.]{1,20} \w{1,10} started"),
    ("THERMAL_VIOLATIONS", r"thermal violations totaling"),
    ("TEMP_VIOLATION", r"exceeded user-specified maximum allowed temperature"),
    ("POWER_UNREADABLE", r"cannot reliably read the power"),
    ("ENFORCED_POWER_LIMIT", r"enforced power limit on gpu"),
    ("TARGET_POWER", r"did not reach desired power minimum"),
    ("STRESS_LEVEL", r"did not reach desired stress level"),
    ("NVLINK_CRC_ERROR_THRESHOLD", r"nvlink errors found occurr?ing per second"),
    ("NVLINK_ERROR_CRITICAL", r"nvlink errors on gpu \d{1,4}'s nvlink \(should be 0\)"),
    ("NVLINK_ERROR_THRESHOLD", r"nvlink errors on (?:gpu \d{1,4}'s )?nvlink(?: \d{1,4})? which exceeds"),
    ("NVLINK_EFFECTIVE_BER_THRESHOLD", r"effective ber"),
    ("NVLINK_SYMBOL_BER_THRESHOLD", r"symbol ber"),
    ("NVLINK_DOWN", r"nvlink link \d{1,4} is currently down"),
    ("NVSWITCH_EXPECTED_NVLINKS_UP", r"nvswitch \d{1,4} - only \d{1,4} nvlinks are up"),
    ("GPU_EXPECTED_NVLINKS_UP", r"only \d{1,4} nvlinks are up out of"),
    ("NVSWITCH_NON_FATAL_ERROR", r"non-?fatal errors on nvswitch"),
    ("NVSWITCH_FATAL_ERROR", r"fatal errors on nvswitch"),
    ("NVSWITCH_DOWN", r"nvswitch physical id \d{1,6}'s nvlink port"),
    ("NVSWITCH_NVLINK_DOWN", r"nvswitch \d{1,4}'s nvlink \d{1,4} is down"),
    ("BROKEN_P2P_PCIE_MEMORY_DEVICE", r"was unsuccessfully written to by gpu \d{1,4} over pcie"),
    ("BROKEN_P2P_NVLINK_MEMORY_DEVICE", r"was unsuccessfully written to by gpu \d{1,4} over nvlink"),
    ("BROKEN_P2P_MEMORY_DEVICE", r"was unsuccessfully written to by"),
    ("BROKEN_P2P_PCIE_WRITER_DEVICE", r"unsuccessfully wrote data to gpu \d{1,4} over pcie"),
    ("BROKEN_P2P_NVLINK_WRITER_DEVICE", r"unsuccessfully wrote data to gpu \d{1,4} over nvlink"),
    ("BROKEN_P2P_WRITER_DEVICE", r"unsuccessfully wrote data to"),
    ("LOW_BANDWIDTH", r"did not exceed minimum required bandwidth"),
    ("MEMORY_BANDWIDTH", r"only achieved a memory bandwidth"),
    ("HIGH_LATENCY", r"exceeded maximum allowed latency"),
    ("GFLOPS_THRESHOLD_VIOLATION", r"which is below the threshold"),
    ("FIELD_THRESHOLD", r"detected [\d.]{1,20} \w{1,60} for gpu \d{1,4} which is above the threshold"),
    ("FIELD_VIOLATION", r"detected [\d.]{1,20} \w{1,60} for gpu \d{1,4}"),
    ("FABRIC_MANAGER_TRAINING_ERROR", r"fabric manager \(cluster uuid"),
    ("FABRIC_PROBE_STATE", r"fabric state is"),
    ("IMEX_UNHEALTHY", r"imex \w{1,20} status is"),
    ("NCCL_ERROR", r"detected nccl error"),
    ("DEVICE_COUNT_MISMATCH", r"number of devices nvml returns is different"),
    ("DENYLISTED_DRIVER", r"driver on the denylist|blacklisted driver"),
    ("PERSISTENCE_MODE", r"persistence mode for gpu \d{1,4} is (?:currently )?disabled"),
    ("BAD_CUDA_ENV", r"cuda performance-limiting environment variable"),
    ("GRAPHICS_PROCESSES", r"processes with graphics contexts open|graphics processes running"),
    ("ECC_DISABLED", r"because ecc is not enabled"),
    ("ECC_PENDING", r"ecc memory for gpu \d{1,4} is in a pending state"),
    ("CUDA_CONTEXT", r"failed to create a cuda context"),
    ("CUDA_DEVICE", r"unable to find a corresponding cuda device"),
    ("CUDA_UNBOUND", r"no longer bound to a cuda context"),
    ("CUDA_API", r"error using cuda api"),
    ("DCGM_API", r"error using dcgm api"),
    ("API_FAIL_GPU", r"api call [^ ]{1,80} failed for gpu"),
    ("API_FAIL", r"api call [^ ]{1,80} failed"),
    ("MEMORY_ALLOC_HOST", r"cannot allocate \d{1,20} bytes on the host"),
    ("MEMORY_ALLOC", r"couldn't allocate at least"),
    ("CANNOT_OPEN_LIB", r"cannot open library"),
    ("FIELD_QUERY", r"could not query field"),
    ("CANNOT_GET_STAT", r"unable to generate / collect stat"),
    ("HAD_TO_RESTORE_STATE", r"had to restore gpu state"),
    ("ABORTED", r"test was aborted early"),
    ("INTERNAL", r"internal error during the test"),
)
# Every sentence of DCGM is well below this; a longer text is not one.
_TEXT_CHARACTERS = 8192
# Both sides in lower case: a pattern that ignores case cannot be searched by its first letters.
_PATTERNS = tuple((f"DCGM_FR_{name}", re.compile(phrase)) for name, phrase in _PHRASES)


def name_of(error_id: object) -> str | None:
    """Return the name of an error id, or None for an invalid one, for "no error", and for one that is newer than this
    table.
    """
    if isinstance(error_id, bool) or not isinstance(error_id, int) or not 0 < error_id < len(_NUMBERED):
        return None
    return _NUMBERED[error_id]


def names_of(error_id: object, text: str) -> tuple[str, ...]:
    """Return the names of an error with an id and a sentence. The id counts, where it names anything."""
    numbered = name_of(error_id)
    if numbered is None or numbered in _SAY_NOTHING:
        return names_in(text) or ((numbered,) if numbered else ())
    return (numbered,)


def names_in(text: str) -> tuple[str, ...]:
    """Return the names of all errors in a text, each once: by name, else by DCGM's sentence for it."""
    text = text[:_TEXT_CHARACTERS]
    named = [_RENAMED.get(name, name) for name in _NAME.findall(text)]
    known = [name for name in named if name in NAMES and name != NAMES[0]]
    return tuple(dict.fromkeys(known or _phrased(text.lower())))


def _phrased(text: str) -> list[str]:
    """Return the names of DCGM's sentences, in the order of the text."""
    found: list[tuple[int, int, str]] = []
    for name, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            start, end = match.span()
            if not any(start < other_end and other_start < end for other_start, other_end, _ in found):
                found.append((start, end, name))
                break
    return [name for _, _, name in sorted(found)]
