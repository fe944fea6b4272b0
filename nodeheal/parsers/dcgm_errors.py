"""Lists DCGM's error ids and what each says, and recognises DCGM's sentences where it gives no id.

`dcgm_errors.csv` has a row for each id: its number and name in `dcgm_errors.h`, an older name, the first version of
those that were read in which it stands, whether that header marks it as not used, and its kind. DCGM only ever appends
numbers. The catalog has a row under the same name, with what is done about it.
"""

import csv
import re
from enum import StrEnum
from pathlib import Path

from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.nvlinks import NvLinks
from nodeheal.parsers.tool_report import MESSAGE_CHARACTERS


class ErrorKind(StrEnum):
    """What an error says about the node. Only the first two are evidence of broken hardware."""

    HARDWARE = "hardware"
    FABRIC = "fabric"  # of NVLinks: it counts only where the product has them and the fabric is up
    PRECONDITION = "precondition"  # somebody uses the GPU, the test was stopped: it was not done
    UNSUPPORTED = "unsupported"  # the test cannot run on this product
    SETTING = "setting"  # a person has set it; the tests have run
    SETUP = "setup"  # DCGM, a library or the driver could not do the test
    UNKNOWN = "unknown"  # DCGM itself does not know it, or this table does not


_FILE = Path(__file__).with_name("dcgm_errors.csv")
_PREFIX = "DCGM_FR_"
with _FILE.open(encoding="utf-8", newline="") as _file:
    _ROWS = tuple(csv.DictReader(_file))
_NUMBERED = {int(row["number"]): f"{_PREFIX}{row['name']}" for row in _ROWS if row["number"]}
_KINDS = {f"{_PREFIX}{row['name']}": ErrorKind(row["kind"]) for row in _ROWS}
# DCGM has no id for recovery actions that are newer than its own table, only a sentence: one name follows its style.
NAMES = tuple(_KINDS)
# Ids that contain less than the sentence beside them.
_SAY_NOTHING = ("DCGM_FR_UNKNOWN", "DCGM_FR_UNRECOGNIZED")

_RENAMED = {f"{_PREFIX}{row['older_name']}": f"{_PREFIX}{row['name']}" for row in _ROWS if row["older_name"]}
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
    ("ECC_UNSUPPORTED", r"is not turned on or is unsupported"),
    ("L1TAG_UNSUPPORTED", r"does not support the l1 cache test"),
    ("CONCURRENT_GPUS", r"unable to run concurrent pair bandwidth test"),
    ("TEST_DISABLED", r"the [\w ]{1,60} test is skipped"),
    ("TEST_SKIPPED", r"\btest [\w ]{1,60} was skipped"),
    ("GPU_OP_MODE", r"gpu operating mode: low_dp"),
    ("EMPTY_GPU_LIST", r"no valid gpus passed to plugin"),
    ("NO_ACCESS_TO_FILE", r"could not be accessed directly"),
    ("FILE_CREATE_PERMISSIONS", r"does not have permissions to create a file"),
)
# DCGM's words for a test that it did not do, where they have no id of their own: of nvvs/plugin_src, and of the plugins
# that NVIDIA delivers without source, as people have reported them.
_NOT_DONE = re.compile(
    r"may affect the results of|\bskipping\b|is in prohibi?ted mode|of memory is free, but|free memory is less than"
    r"|incompatible cuda (?:compute capability|version)|(?:un|not )supported|cannot find dependent package"
)
# Every sentence of DCGM is well below this; a longer text is not one.
_TEXT_CHARACTERS = 8192
# Both sides in lower case: a pattern that ignores case cannot be searched by its first letters.
_PATTERNS = tuple((f"DCGM_FR_{name}", re.compile(phrase)) for name, phrase in _PHRASES)


def name_of(error_id: object) -> str | None:
    """Return the name of an error id, or None for an invalid one, for "no error", and for one that is newer than this
    table.
    """
    return _NUMBERED.get(error_id) if isinstance(error_id, int) and not isinstance(error_id, bool) else None


def kind_of(name: str, links: NvLinks) -> ErrorKind:
    """Return what an error says about a node: one of NVLinks is of the hardware where these are up, else UNKNOWN."""
    kind = _KINDS.get(name, ErrorKind.UNKNOWN)
    if kind is not ErrorKind.FABRIC:
        return kind
    return ErrorKind.HARDWARE if links is NvLinks.UP else ErrorKind.UNKNOWN


def error_finding(name: str, component: str | None, message: str, links: NvLinks) -> Finding | None:
    """Return the finding of an error. One of NVLinks is UNKNOWN unless these are up, and None where there are none."""
    if is_left_out(name, links):
        return None
    verdict = Verdict.UNKNOWN if is_about_nvlinks(name) and links is not NvLinks.UP else None
    return Finding(Family.dcgm, name, component, message[:MESSAGE_CHARACTERS], verdict=verdict)


def is_about_nvlinks(name: str) -> bool:
    """Whether an error is one of NVLinks, which says nothing where these do not exist or are not up yet."""
    return _KINDS.get(name) is ErrorKind.FABRIC


def is_left_out(name: str, links: NvLinks) -> bool:
    """Whether an error is one of NVLinks on a machine that has none."""
    return links is NvLinks.ABSENT and is_about_nvlinks(name)


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
    known = [name for name in named if name in _KINDS]
    return tuple(dict.fromkeys(known or _phrased(text.lower())))


def _phrased(text: str) -> list[str]:
    """Return the names of DCGM's sentences, in the order of the text."""
    matches: list[tuple[int, int, str]] = []
    for name, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            start, end = match.span()
            if not any(start < other_end and other_start < end for other_start, other_end, _ in matches):
                matches.append((start, end, name))
                break
    return [name for _, _, name in sorted(matches)]


def says_not_done(text: str) -> bool:
    """Whether a text without a known error says that the test was not done, rather than that it found a fault."""
    return _NOT_DONE.search(text[:_TEXT_CHARACTERS].lower()) is not None
