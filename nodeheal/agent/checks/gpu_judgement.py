"""Judges the readings of a node's GPUs. Pure.

What nvidia-smi shows as well is judged by the table of its parser. This module judges numbers, and changes since the
last reading.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodeheal.agent.checks.check import Problem, State
from nodeheal.agent.checks.gpu_reading import GpuReading, numbers, problem
from nodeheal.agent.checks.nvlink import judge_links
from nodeheal.agent.runtime.thresholds import (
    GPU_FABRIC,
    GPU_LASTING,
    GPU_LOW_CLOCK,
    GPU_TEMPERATURE_MARGIN,
    NVLINK_CHECKSUM_ERRORS,
    Limit,
    default_limit,
)
from nodeheal.agent.transport.event import Accelerator, verdict_of
from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers import nvidia_smi_fields
from nodeheal.parsers.tool_report import GRAVITY, ReportedFault

# States that may pass by themselves, and for how long each must have lasted.
_PASSING = {
    "NVLINK_DOWN": GPU_LASTING,
    "THERMAL_SLOWDOWN": GPU_LASTING,
    "POWER_BRAKE": GPU_LASTING,
    "FABRIC_RECOVERING": GPU_LASTING,
    "FABRIC_NOT_READY": GPU_FABRIC,
}
# NVML's clock event reasons that explain low clocks: idle, power cap, slowdowns, sync boost, heat, power brake. A clock
# that somebody has locked (0x2) does not.
_EXPLAINED = 0x1 | 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80


@dataclass(frozen=True)
class Judgement:
    """What is wrong, what is not understood, and what to remember for the next reading."""

    problems: tuple[Problem, ...]
    doubt: str
    state: State
    healthy: Mapping[int, bool] = field(default_factory=dict)  # by GPU, without those whose health is not known


def judge(readings: Sequence[GpuReading], state: State, now: float, limit: Limit = default_limit) -> Judgement:
    """Judge all readings. `now`: monotonic seconds, which go on over restarts of the agent, as the state does."""
    answering = [reading for reading in readings if not reading.error]
    answers = [answer for reading in readings for answer in _told(reading)]
    doubt = next((answer.text for answer in answers if isinstance(answer, nvidia_smi_fields.Doubt)), "")
    shown = [answer for answer in answers if isinstance(answer, Problem)]
    outright = [fault for fault in shown if fault.finding.code not in _PASSING]
    passing = [fault for fault in shown if fault.finding.code in _PASSING]
    passing += [fault for reading in answering for fault in _passing(reading, limit)]
    links, kept = judge_links(answering, state, now, limit(NVLINK_CHECKSUM_ERRORS))
    joining = {reading.component for reading in answering if reading.joins_fabric}
    for fault in links:
        if fault.finding.component not in joining:  # until it has joined, its links train
            (passing if fault.finding.code in _PASSING else outright).append(fault)
    lasting, since = _lasting(passing, state, now, limit)
    problems = (*outright, *lasting)
    return Judgement(problems, doubt, {**kept, "since": since}, _healthy(readings, problems))


def _healthy(readings: Sequence[GpuReading], problems: Sequence[Problem]) -> dict[int, bool]:
    """Return whether each GPU is healthy. A GPU whose driver state is missing or unclear is left out."""
    worst = {}
    for reading in readings:
        verdicts = [] if reading.health or reading.error else [Verdict.UNKNOWN]
        verdicts += [verdict_of(fault.finding) for fault in problems if fault.finding.component == reading.component]
        is_unclear = any(isinstance(answer, nvidia_smi_fields.Doubt) for answer in _told(reading))
        worst[reading.index] = max([*verdicts, *[Verdict.UNKNOWN] * is_unclear], key=GRAVITY.index, default=Verdict.OK)
    return {index: verdict is Verdict.OK for index, verdict in worst.items() if verdict is not Verdict.UNKNOWN}


def names_of(readings: Sequence[GpuReading]) -> dict[str, dict[str, str]]:
    """Return the other names of each GPU beside its number."""
    return {
        f"gpu:{reading.index}": {
            "pci": reading.component,
            **({"uuid": reading.uuid} if reading.uuid else {}),
            **({"serial": reading.serial} if reading.serial else {}),
        }
        for reading in readings
    }


def accelerators_of(readings: Sequence[GpuReading]) -> tuple[Accelerator, ...]:
    """Return the GPUs of a node; none where one does not answer: the others are not all that it has."""
    if any(reading.error for reading in readings):
        return ()
    return tuple(
        Accelerator(
            index=reading.index,
            component=reading.component,
            model=reading.model or None,
            serial=reading.serial or None,
            uuid=reading.uuid or None,
            memory_mib=reading.memory_mib,
            ecc_uncorrected=reading.ecc_uncorrected,
            rows_remapped=reading.rows_remapped,
            links=len(reading.links) or None,
            links_up=sum(reading.links.values()) if reading.links else None,
            temperature_celsius=reading.temperature_celsius,
        )
        for reading in readings
    )


def gauges(readings: Sequence[GpuReading], healthy: Mapping[int, bool]) -> dict[str, float]:
    """Return the measured values."""
    named = {
        f"gpu_{name}:{reading.index}": value
        for reading in readings
        for name, value in (
            ("healthy", healthy.get(reading.index)),
            ("utilisation_percent", reading.utilisation_percent),
            ("memory_used_bytes", _bytes(reading.memory_used_mib)),
            ("temperature_celsius", reading.temperature_celsius),
            ("power_watts", reading.power_watts),
        )
    }
    return {name: float(value) for name, value in named.items() if value is not None}


def _bytes(mib: float | None) -> float | None:
    return None if mib is None else mib * 2**20


def _told(reading: GpuReading) -> Iterator[Problem | nvidia_smi_fields.Doubt]:
    """Return the problems that the driver states outright."""
    if reading.error:
        yield problem(reading.error, reading.component, f"NVML answers {reading.error} for GPU {reading.index}")
        return
    shown = nvidia_smi_fields.Reading(reading.component, reading.index, tuple(reading.health.items()))
    for answer in nvidia_smi_fields.judge(shown):
        yield Problem(answer.finding, answer.finding.message) if isinstance(answer, ReportedFault) else answer


def _passing(reading: GpuReading, limit: Limit) -> Iterator[Problem]:
    """Return problems that a healthy GPU may show for a moment."""
    margin = limit(GPU_TEMPERATURE_MARGIN)
    hottest = _less(reading.temperature_limit_celsius, margin)
    memory_hottest = _less(reading.memory_limit_celsius, margin)
    if _is_over(reading.temperature_celsius, hottest):
        message = f"{reading.temperature_celsius:g} °C, the limit is {hottest:g} °C"
        yield problem("TEMPERATURE_HIGH", reading.component, message)
    elif _is_over(reading.memory_celsius, memory_hottest):
        message = f"memory at {reading.memory_celsius:g} °C, the limit is {memory_hottest:g} °C"
        yield problem("TEMPERATURE_HIGH", reading.component, message)
    if reading.is_busy:
        yield from _slow(reading, limit(GPU_LOW_CLOCK) / 100)


def _slow(reading: GpuReading, low_clock: float) -> Iterator[Problem]:
    gpu = reading.component
    if _is_over(reading.pcie_width_most, reading.pcie_width):
        message = f"PCIe link of {reading.pcie_width} lanes, {reading.pcie_width_most} are possible"
        yield problem("PCIE_WIDTH_REDUCED", gpu, message)
    if _is_over(reading.pcie_generation_most, reading.pcie_generation):
        message = f"PCIe link of generation {reading.pcie_generation}, {reading.pcie_generation_most} is possible"
        yield problem("PCIE_GENERATION_REDUCED", gpu, message)
    is_explained = reading.clock_reasons is None or reading.clock_reasons & _EXPLAINED
    low = low_clock * (reading.clock_most_mhz or 0.0)
    if _is_over(low, reading.clock_mhz) and not is_explained:
        message = f"{reading.clock_mhz:g} of {reading.clock_most_mhz:g} MHz at {reading.utilisation_percent:g} % load"
        yield problem("CLOCKS_LOW", gpu, message)


def _less(limit: float | None, margin: float) -> float | None:
    return None if limit is None else limit - margin


def _is_over(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit


def _lasting(
    passing: Sequence[Problem], state: State, now: float, limit: Limit
) -> tuple[list[Problem], dict[str, float]]:
    """Return the problems that every reading has shown for long enough, and when each was first seen."""
    before = numbers(state, "since")
    since = {_key(fault): before.get(_key(fault), now) for fault in passing}
    return [
        fault for fault in passing if now - since[_key(fault)] >= limit(_PASSING.get(fault.finding.code, GPU_LASTING))
    ], since


def _key(fault: Problem) -> str:
    return f"{fault.finding.code} {fault.finding.component}"
