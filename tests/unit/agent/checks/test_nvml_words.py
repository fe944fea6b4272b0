"""NVML's numbers in nvidia-smi's words, and which nodes load NVML."""

import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from nodeheal.agent.checks import nvml_gpu
from stacks.settings import REPOSITORY
from tests.unit.agent.checks.places import Node


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
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
    ],
)
def test_a_number_means_to_us_what_it_means_to_nvidia(ours: object, theirs: object) -> None:
    assert ours == theirs


@pytest.mark.parametrize(("gpus", "is_loaded"), [(0, False), (8, True)])
def test_only_a_node_with_gpus_loads_what_talks_to_them(tmp_path: Path, gpus: int, is_loaded: bool) -> None:
    Node(tmp_path).gpus(gpus, gpus or None)
    code = (
        "import sys; from pathlib import Path; from tests.unit.agent.checks.places import Node;"
        "from nodeheal.agent.checks.registry import chosen; place = Node(Path(sys.argv[1])).place;"
        "[check.load(place) for check in chosen(place.config)]; print('ctypes' in sys.modules)"
    )

    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert ran.stdout.strip() == str(is_loaded)
