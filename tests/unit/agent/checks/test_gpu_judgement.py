"""What the readings of GPUs mean."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.agent.checks.check import State
from nodeheal.agent.checks.gpu_judgement import gauges, judge
from nodeheal.agent.checks.gpu_reading import GpuReading
from nodeheal.agent.runtime.thresholds import GPU_FABRIC, GPU_LASTING
from nodeheal.domain.faults.catalog import catalog

GPU = "0000:10:00.0"
LASTING_SECONDS, FABRIC_SECONDS = GPU_LASTING.default, GPU_FABRIC.default
HEALTHY = GpuReading(
    0,
    GPU,
    temperature_celsius=60,
    temperature_limit_celsius=85,
    memory_celsius=70,
    memory_limit_celsius=95,
    utilisation_percent=98,
    pcie_width=16,
    pcie_width_most=16,
    pcie_generation=5,
    pcie_generation_most=5,
    clock_mhz=1980,
    clock_most_mhz=1980,
    clock_reasons=0,
    links=dict.fromkeys(range(18), True),
    has_switch=True,
    link_errors={"crc_flit": 0, "replay": 0},
)


def codes(*readings: GpuReading, state: State | None = None, now: float = 1000.0) -> list[str]:
    return [problem.finding.code for problem in judge(readings, state or {}, now).problems]


def after(reading: GpuReading, seconds: float, first: GpuReading | None = None) -> list[str]:
    """What the second of two looks tells."""
    state = judge([first or reading], {}, 1000.0).state
    return codes(reading, state=state, now=1000.0 + seconds)


def other(index: int = 1) -> GpuReading:
    return replace(HEALTHY, index=index, component=f"0000:{index + 16:02x}:00.0")


def test_a_healthy_gpu_at_work_has_no_problem() -> None:
    assert after(HEALTHY, LASTING_SECONDS) == []


SLOW = {
    "TEMPERATURE_HIGH": replace(HEALTHY, temperature_celsius=86),
    "PCIE_WIDTH_REDUCED": replace(HEALTHY, pcie_width=8),
    "PCIE_GENERATION_REDUCED": replace(HEALTHY, pcie_generation=1),
    "CLOCKS_LOW": replace(HEALTHY, clock_mhz=345),
    "THERMAL_SLOWDOWN": replace(HEALTHY, health={"clocks_event_reasons.active": "0x40"}),
    "POWER_BRAKE": replace(HEALTHY, health={"clocks_event_reasons.active": "0x80"}),
    "FABRIC_RECOVERING": replace(HEALTHY, health={"fabric/health/access_timeout_recovery": "True"}),
}


@pytest.mark.parametrize(("code", "reading"), SLOW.items())
def test_what_may_pass_is_told_once_it_has_lasted(code: str, reading: GpuReading) -> None:
    assert codes(reading) == []
    assert after(reading, LASTING_SECONDS - 1) == []
    assert after(reading, LASTING_SECONDS) == [code]


def test_a_gpu_has_five_minutes_to_join_the_fabric() -> None:
    reading = replace(HEALTHY, health={"fabric/state": "In Progress"})

    assert codes(reading) == []
    assert after(reading, FABRIC_SECONDS - 1) == []
    assert after(reading, FABRIC_SECONDS) == ["FABRIC_NOT_READY"]


@pytest.mark.parametrize("reading", SLOW.values())
def test_what_went_away_meanwhile_begins_anew(reading: GpuReading) -> None:
    seen = judge([reading], {}, 1000.0)
    well = judge([HEALTHY], seen.state, 1030.0)

    assert codes(reading, state=well.state, now=1000.0 + LASTING_SECONDS) == []


@pytest.mark.parametrize("code", ["PCIE_WIDTH_REDUCED", "PCIE_GENERATION_REDUCED", "CLOCKS_LOW"])
@pytest.mark.parametrize("utilisation", [0.0, None])
def test_a_gpu_at_rest_may_be_slow(code: str, utilisation: float | None) -> None:
    assert after(replace(SLOW[code], utilisation_percent=utilisation), LASTING_SECONDS) == []


def test_a_gpu_at_rest_may_not_be_hot() -> None:
    resting = replace(SLOW["TEMPERATURE_HIGH"], utilisation_percent=0.0)

    assert after(resting, LASTING_SECONDS) == ["TEMPERATURE_HIGH"]


def test_hot_memory_is_told_too() -> None:
    assert after(replace(HEALTHY, memory_celsius=96), LASTING_SECONDS) == ["TEMPERATURE_HIGH"]


@pytest.mark.parametrize("reasons", [0x1, 0x4, 0x8, 0x10, 0x20])
def test_low_clocks_with_a_reason_are_no_fault_of_their_own(reasons: int) -> None:
    assert after(replace(SLOW["CLOCKS_LOW"], clock_reasons=reasons), LASTING_SECONDS) == []


def test_a_clock_lock_that_somebody_forgot_is_told() -> None:
    assert after(replace(SLOW["CLOCKS_LOW"], clock_reasons=0x2), LASTING_SECONDS) == ["CLOCKS_LOW"]


@pytest.mark.parametrize(("health", "code"), [({"remapped_rows.pending": "1"}, "REMAP_PENDING"), ({}, None)])
def test_what_nvidia_smi_shows_too_is_judged_alike_and_at_once(health: dict[str, str], code: str | None) -> None:
    assert codes(replace(HEALTHY, health=health)) == ([code] if code else [])


def test_a_gpu_that_does_not_answer_is_told_and_the_others_are_judged() -> None:
    assert codes(GpuReading(0, GPU, error="GPU_LOST"), replace(other(), health={"remapped_rows.failure": "1"})) == [
        "GPU_LOST",
        "REMAP_FAILED",
    ]


# NVLinks ------------------------------------------------------------------------------------------------------------


def down(reading: GpuReading, *links: int) -> GpuReading:
    return replace(reading, links=dict(reading.links) | dict.fromkeys(links, False))


def test_a_link_that_was_up_before_is_down() -> None:
    alone = replace(HEALTHY, has_switch=False)
    state = judge([alone], {}, 1000.0).state

    state = judge([down(alone, 3, 11)], state, 1030.0).state

    (problem,) = judge([down(alone, 3, 11)], state, 1090.0).problems

    assert (problem.finding.code, problem.evidence) == ("NVLINK_DOWN", "NVLink 3, 11 of 18 is down")


def test_a_link_stays_down_for_as_long_as_the_boot_lasts() -> None:
    state = judge([HEALTHY], {}, 1000.0).state
    broken = down(HEALTHY, 3)

    reported = []
    for now in (1030.0, 1060.0, 1090.0, 1120.0):
        judged = judge([broken], state, now)
        state = judged.state
        reported.append([problem.finding.code for problem in judged.problems])

    assert reported == [[], [], ["NVLINK_DOWN"], ["NVLINK_DOWN"]]


def lasting_codes(*readings: GpuReading) -> list[str]:
    """The codes of readings that stay the same for as long as a passing state may last."""
    return codes(*readings, state=judge(readings, {}, 1000.0).state, now=1000.0 + LASTING_SECONDS)


def test_a_link_that_is_up_on_most_gpus_behind_switches_is_down_where_it_is_not() -> None:
    assert codes(down(HEALTHY, 3), other(1), other(2)) == []
    assert lasting_codes(down(HEALTHY, 3), other(1), other(2)) == ["NVLINK_DOWN"]


@pytest.mark.parametrize("state", ["Not Started", "In Progress"])
def test_links_of_a_gpu_that_joins_the_fabric_still_train(state: str) -> None:
    joining = replace(down(HEALTHY, 3), health={"fabric/state": state})

    assert lasting_codes(joining, other(1), other(2)) == []


def test_a_link_that_is_up_on_no_more_than_half_of_the_gpus_is_no_fault() -> None:
    assert lasting_codes(down(HEALTHY, 3), down(other(1), 3), other(2), other(3)) == []


def test_a_link_of_which_nothing_is_told_is_not_down() -> None:
    fewer = replace(HEALTHY, links=dict.fromkeys(range(6), True))

    assert codes(fewer, state=judge([HEALTHY], {}, 1000.0).state, now=1030.0) == []


def test_a_gpu_all_of_whose_links_are_down_is_found_though_it_sees_no_switch() -> None:
    dead = replace(down(HEALTHY, *range(18)), has_switch=False)

    assert lasting_codes(dead, other(1), other(2)) == ["NVLINK_DOWN"]


def test_links_without_a_bridge_are_no_fault() -> None:
    bridged = [replace(down(gpu, *range(4, 18)), has_switch=False) for gpu in (HEALTHY, other(1), other(2))]
    bare = replace(down(other(3), *range(18)), has_switch=False)

    assert lasting_codes(*bridged, bare) == []


def counted(**errors: int) -> GpuReading:
    return replace(HEALTHY, link_errors=errors)


@pytest.mark.parametrize(
    ("before", "now", "code"),
    [
        (counted(replay=7), counted(replay=7), None),
        (counted(replay=7), counted(replay=8), "NVLINK_ERRORS"),
        (counted(recovery=0), counted(recovery=1), "NVLINK_ERRORS"),
        (counted(crc_flit=0), counted(crc_flit=2999), None),
        (counted(crc_flit=0), counted(crc_flit=3000), "NVLINK_ERRORS"),
        (counted(replay=7), counted(replay=0), None),  # the driver was loaded again
        (counted(), counted(replay=7), None),
        (counted(replay=7), counted(), None),
    ],
)
def test_link_errors_are_told_where_they_rise(before: GpuReading, now: GpuReading, code: str | None) -> None:
    assert after(now, 30.0, first=before) == ([code] if code else [])


def test_old_link_errors_are_no_news_when_the_agent_starts() -> None:
    assert codes(counted(replay=10_000, crc_data=10**9)) == []


def test_a_counter_that_was_not_told_for_a_moment_is_not_forgotten() -> None:
    first = judge([counted(replay=7)], {}, 1000.0)
    second = judge([counted()], first.state, 1030.0)

    assert codes(counted(replay=9), state=second.state, now=1060.0) == ["NVLINK_ERRORS"]


# All of them --------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
STATES = st.fixed_dictionaries(dict.fromkeys(("since", "links_up", "link_errors", "links_read_at"), JSON))
NUMBERS = st.none() | st.integers(0, 2**40)


@given(STATES, st.text(max_size=10), NUMBERS, NUMBERS, NUMBERS)
def test_whatever_is_remembered_or_read_is_judged(
    state: dict[str, object], word: str, width: int | None, most: int | None, reasons: int | None
) -> None:
    reading = replace(HEALTHY, health={"gpu_recovery_action": word}, pcie_width=width, pcie_width_most=most)

    judged = judge([replace(reading, clock_reasons=reasons)], state, 1000.0)

    assert all(("nvml", problem.finding.code, "") in catalog() for problem in judged.problems)


def test_only_what_is_measured_is_a_gauge() -> None:
    assert gauges([replace(HEALTHY, power_watts=None)], {0: True}) == {
        "gpu_healthy:0": 1,
        "gpu_utilisation_percent:0": 98,
        "gpu_temperature_celsius:0": 60,
    }


def test_each_gpu_is_healthy_or_not_by_its_own_problems() -> None:
    readings = [
        replace(HEALTHY, health={"gpu_recovery_action": "None"}),
        replace(other(), health={"gpu_recovery_action": "Reboot"}),
        GpuReading(2, "0000:12:00.0", error="GPU_LOST"),
    ]

    assert judge(readings, {}, 1000.0).healthy == {0: True, 1: False, 2: False}


@pytest.mark.parametrize("health", [{"gpu_recovery_action": "Pray"}, {}])
def test_a_gpu_of_which_nobody_can_tell_is_neither_healthy_nor_unhealthy(health: dict[str, str]) -> None:
    unclear = replace(HEALTHY, health=health)

    judged = judge([unclear], {}, 1000.0)

    assert judged.healthy == {}
    assert "gpu_healthy:0" not in gauges([unclear], judged.healthy)
