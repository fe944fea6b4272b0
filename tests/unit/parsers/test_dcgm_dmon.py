"""Rows of `dcgmi dmon`."""

import pytest

from nodeheal.parsers.dcgm_dmon import read_rows

# As dcgmi/DeviceMonitor.cpp of DCGM 4.5.3 pads its columns, for two GPUs.
PRINTED = """\
#Entity         DBEVL       DBEVDEV
ID
GPU 0           0           0
GPU 1           N/A         4
"""


def test_each_gpu_has_its_counters_and_a_blank_one_is_left_out() -> None:
    assert dict(read_rows(PRINTED, (311, 319))) == {0: {311: 0, 319: 0}, 1: {319: 4}}


@pytest.mark.parametrize(
    "line",
    ["", "GPU", "GPU 0", "GPU 0  1", "GPU 0  1 2 3", "GPU x  1 2", "Switch 0  1 2", "CPU 0 1 2", "xGPU 0  1 2"],
)
def test_anything_else_is_no_row(line: str) -> None:
    assert list(read_rows(line, (311, 319))) == []


@pytest.mark.parametrize("value", ["-1", "1.5", "1e9", "9" * 19, "٣"])
def test_what_is_no_count_is_left_out(value: str) -> None:
    assert dict(read_rows(f"GPU 0  {value} 3", (311, 319))) == {0: {319: 3}}
