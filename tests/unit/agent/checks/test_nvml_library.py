"""What is known of the NVIDIA library's binary interface, held to NVIDIA's own Python package."""

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from nodeheal.agent.checks import nvml, nvml_gpu, nvml_library
from nodeheal.agent.checks.nvml_library import Library, Refused
from tests.fakes.nvml import build
from tests.unit.agent.checks.places import Node

ROOT = Path(__file__).parents[4]
STRUCTURES = [
    (nvml_library.Memory, pynvml.c_nvmlMemory_t),
    (nvml_library.Rates, pynvml.c_nvmlUtilization_t),
    (nvml_library.PciInfo, pynvml.nvmlPciInfo_t),
    (nvml_library.Value, pynvml.c_nvmlValue_t),
    (nvml_library.FieldValue, pynvml.c_nvmlFieldValue_t),
    (nvml_library.Repairs, pynvml.c_nvmlRepairStatus_t),
    (nvml_library.Unrepairable, pynvml.c_nvmlUnrepairableMemory_v1_t),
    (nvml_library.Fabric, pynvml.c_nvmlGpuFabricInfo_v2_t),
    (nvml_library.ProcessInfo, pynvml.c_nvmlProcessInfo_v2_t),
    (nvml_library.EventData, pynvml.c_nvmlEventData_t),
]
Layout = list[tuple[str, int, int]]


def layout(structure: type[ctypes.Structure] | type[ctypes.Union]) -> Layout:
    """Its members: their names, where they are, how long."""
    members = [(field[0], getattr(structure, field[0])) for field in structure._fields_]
    return [(name, member.offset, member.size) for name, member in members]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("the fake library is built with gcc")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.mark.parametrize(("ours", "theirs"), STRUCTURES, ids=[ours.__name__ for ours, _ in STRUCTURES])
def test_a_structure_is_laid_out_as_nvidia_lays_it_out(
    ours: type[ctypes.Structure], theirs: type[ctypes.Structure]
) -> None:
    assert (ctypes.sizeof(ours), layout(ours)) == (ctypes.sizeof(theirs), layout(theirs))


def test_errors_of_the_memory_on_the_chip_are_counted_in_one_array_and_end_where_nvidia_has_them_end() -> None:
    ours, theirs = nvml_library.SramErrors, pynvml.c_nvmlEccSramErrorStatus_v1_t

    first, *_, last = layout(theirs)[1:]
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)
    assert layout(ours)[1][1:] == (first[1], 11 * first[2])
    assert layout(ours)[2] == last


def test_the_newer_state_of_the_fabric_has_the_older_one_in_front_and_its_sum_where_nvidia_has_it() -> None:
    ours, theirs = nvml_library.FabricSummed, pynvml.c_nvmlGpuFabricInfo_v3_t

    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)
    assert [*layout(nvml_library.Fabric), *layout(ours)] == layout(theirs)


@pytest.mark.parametrize(
    ("structure", "version"),
    [
        (nvml_library.SramErrors, pynvml.nvmlEccSramErrorStatus_v1),
        (nvml_library.Repairs, pynvml.nvmlRepairStatus_v1),
        (nvml_library.Unrepairable, pynvml.nvmlUnrepairableMemory_v1),
        (nvml_library.Fabric, pynvml.nvmlGpuFabricInfo_v2),
        (nvml_library.FabricSummed, pynvml.nvmlGpuFabricInfo_v3),
    ],
)
def test_a_structure_says_its_version_as_nvidia_spells_it(
    structure: type[ctypes.Structure], version: int, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_library, "FILE", str(library))

    filled = Library().fill(structure(), "nvmlDeviceGetRepairStatus", ctypes.c_void_p(1))

    assert filled.version == version


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (nvml_library.LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND),
        (nvml_library.FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
        (nvml.NOT_SUPPORTED, pynvml.NVML_ERROR_NOT_SUPPORTED),
        (nvml.INSUFFICIENT_SIZE, pynvml.NVML_ERROR_INSUFFICIENT_SIZE),
        (nvml.DRIVER_NOT_LOADED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED),
        (nvml.TIMEOUT, pynvml.NVML_ERROR_TIMEOUT),
        (nvml.VERSION_MISMATCH, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH),
        (nvml._XID, pynvml.nvmlEventTypeXidCriticalError),
        (nvml_gpu._UNKNOWN_ERROR, pynvml.NVML_ERROR_UNKNOWN),
        (nvml_gpu._HIGHEST, pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX),
        (nvml_gpu._SLOWDOWN, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        (nvml_gpu._MEMORY_HIGHEST, pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
        (nvml_gpu._SM_CLOCK, pynvml.NVML_CLOCK_SM),
        (nvml_gpu._SWITCH, pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH),
        (nvml_gpu._MEMORY_CELSIUS, pynvml.NVML_FI_DEV_MEMORY_TEMP),
        (nvml_gpu._RECOVERY_ACTION, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),
        (nvml_gpu._COMPLETED, pynvml.NVML_GPU_FABRIC_STATE_COMPLETED),
        (nvml_gpu._STATES.index("Not Started"), pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED),
        (nvml_gpu._STATES.index("In Progress"), pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS),
        (nvml_gpu._SUMMARIES.index("Unhealthy"), pynvml.NVML_GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY),
        (nvml_gpu._SUMMARIES.index("Limited Capacity"), pynvml.NVML_GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY),
        (
            [at for at, _ in nvml_gpu._FABRIC_FLAGS.values()],
            [
                pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW,
                pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY,
                pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY,
                pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY,
            ],
        ),
        (nvml_gpu._CONFIGURATION_SHIFT, pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION),
        (nvml_gpu._CONFIGURATION_BITS, pynvml.NVML_GPU_FABRIC_HEALTH_MASK_WIDTH_INCORRECT_CONFIGURATION),
        (
            nvml_gpu._CONFIGURATIONS.index("GPU State Invalid"),
            pynvml.NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_GPU_STATE_INVALID,
        ),
        (sorted(nvml_gpu._GONE), [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, 28]),
    ],
)
def test_a_number_means_to_us_what_it_means_to_nvidia(ours: object, theirs: object) -> None:
    assert ours == theirs


def test_every_function_that_is_called_is_one_that_nvidia_calls() -> None:
    ours, theirs = (
        set(re.findall(r'"(nvml[A-Z]\w+)"', "".join(Path(str(module.__file__)).read_text() for module in modules)))
        for modules in ((nvml, nvml_gpu), (pynvml,))
    )

    assert len(ours) > 20
    assert ours <= theirs


def test_a_function_that_this_driver_lacks_is_refused_by_name(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_library, "FILE", str(library))

    with pytest.raises(Refused, match="nvmlDeviceFlyToTheMoon") as refused:
        Library().call("nvmlDeviceFlyToTheMoon")

    assert refused.value.number == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND


def test_an_error_is_told_in_the_librarys_own_words(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_library, "FILE", str(library))

    with pytest.raises(Refused, match="error 1"):  # nobody has initialised it
        Library().number("nvmlDeviceGetCount_v2")


@pytest.mark.parametrize(("gpus", "is_loaded"), [(0, False), (8, True)])
def test_only_a_node_with_gpus_loads_what_talks_to_them(tmp_path: Path, gpus: int, is_loaded: bool) -> None:
    Node(tmp_path).gpus(gpus, gpus or None)
    code = (
        "import sys; from pathlib import Path; from tests.unit.agent.checks.places import Node;"
        "from nodeheal.agent.checks.registry import chosen; place = Node(Path(sys.argv[1])).place;"
        "[check.load(place) for check in chosen(place.config)]; print('ctypes' in sys.modules)"
    )

    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert ran.stdout.strip() == str(is_loaded)
