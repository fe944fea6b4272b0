"""Numbers that diagnostics measure, and when they have become worse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.measures import regressions, worse_by_percent
from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.host_heat import judge_load, read_host
from nodeheal.parsers.measures import collective_bandwidth, dcgm_bandwidths, heat

PCIE = (
    "GPU 0 GPU to Host bandwidth:\t\t24.02 GB/s, GPU 1 GPU to Host bandwidth:  22.5 GB/s, "
    "GPU 0 bidirectional latency: 5 us"
)


@pytest.mark.parametrize("output", [PCIE, PCIE.replace("\t", "\\t")])  # as text, and inside a JSON string
def test_the_slowest_gpu_counts(output: str) -> None:
    assert dcgm_bandwidths(output) == {"pcie_gpu_to_host_gb_per_s": 22.5}


@pytest.mark.parametrize("output", ["", "Avg bus bandwidth: n/a", "GPU to Host bandwidth: fast", "71 C"])
def test_what_is_no_number_is_not_measured(output: str) -> None:
    assert dcgm_bandwidths(output) | collective_bandwidth(output) | heat(output) == {}


@pytest.mark.parametrize(
    ("name", "now", "worse"), [("x_gb_per_s", 80.0, 20.0), ("x_gb_per_s", 110.0, -10.0), ("x_celsius", 120.0, 20.0)]
)
def test_the_unit_says_which_way_is_better(name: str, now: float, worse: float) -> None:
    assert worse_by_percent(name, now, 100.0) == pytest.approx(worse)


def test_only_what_is_worse_by_more_than_allowed_is_told_in_words() -> None:
    before = {"bus_gb_per_s": 100.0, "cpu_celsius": 60.0, "gone_gb_per_s": 5.0, "zero_gb_per_s": 0.0}

    told = regressions(
        {"bus_gb_per_s": 70.0, "cpu_celsius": 66.0, "new_celsius": 90.0, "zero_gb_per_s": 1.0}, before, 20
    )

    assert told == ["bus_gb_per_s is 70, 30 % worse than 100 in its last good run"]


@given(st.text(), st.text())
def test_no_listing_of_a_host_breaks_it(before: str, after: str) -> None:
    paths = "/sys/devices/system/edac/mc/mc0/ue_count: "

    assert judge_load(read_host(before + paths + "1"), read_host(after + "\n" + paths + "1")).verdict is Verdict.OK
