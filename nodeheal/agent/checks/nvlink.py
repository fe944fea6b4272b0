"""Judges the NVLinks of a node's GPUs, against one another and against earlier readings. Pure.

A link that is not up is no fault by itself: GPUs are sold with unused links. A link is down if it was up earlier in
this boot, or if most GPUs of a node with NVSwitches have the link of that number up.
"""

from collections.abc import Iterator, Sequence

from nodeheal.agent.checks.check import Problem, State
from nodeheal.agent.checks.gpu_reading import GpuReading, numbers, problem

# A few of these errors are normal; of the others, one matters.
CHECKSUMS = ("crc_flit", "crc_data")
# A reading that is older says nothing about the present.
LONGEST_SECONDS = 3600.0


def judge_links(
    readings: Sequence[GpuReading], state: State, now: float, checksum_errors: float
) -> tuple[list[Problem], State]:
    """Return links that are down, counters that rise, and what to remember.

    `checksum_errors`: the limit for errors a second.
    """
    up = _up_before(state)
    problems = [*_down(readings, up), *_rising(readings, state, now, checksum_errors)]
    for reading in readings:
        up[reading.component] = up.get(reading.component, set()) | _up(reading)
    counts = numbers(state, "link_errors") | {
        _counter(reading, kind): float(count) for reading in readings for kind, count in reading.link_errors.items()
    }
    return problems, {
        "links_up": {component: sorted(links) for component, links in up.items()},
        "link_errors": counts,
        "links_read_at": now,
    }


def _down(readings: Sequence[GpuReading], up_before: dict[str, set[int]]) -> Iterator[Problem]:
    linked = [reading for reading in readings if reading.links]
    is_switched = any(reading.has_switch for reading in linked)
    for reading in linked:
        should = up_before.get(reading.component, set())
        if is_switched:
            should = should | {
                link for link in reading.links if sum(link in _up(other) for other in linked) * 2 > len(linked)
            }
        down = sorted(link for link in should if reading.links.get(link) is False)
        if down:
            message = f"NVLink {', '.join(map(str, down))} of {len(reading.links)} is down"
            yield problem("NVLINK_DOWN", reading.component, message)


def _rising(readings: Sequence[GpuReading], state: State, now: float, checksum_errors: float) -> Iterator[Problem]:
    before, read_at = numbers(state, "link_errors"), state.get("links_read_at")
    seconds = now - read_at if isinstance(read_at, (int, float)) else 0.0
    if not 0 < seconds <= LONGEST_SECONDS:
        return
    for reading in readings:
        rises = {
            kind: count - before[_counter(reading, kind)]
            for kind, count in reading.link_errors.items()
            if _counter(reading, kind) in before
        }
        many = checksum_errors * seconds
        bad = [kind for kind, rise in rises.items() if rise > 0 and (kind not in CHECKSUMS or rise >= many)]
        if bad:
            counts = ", ".join(f"{rises[kind]:g} {kind} errors" for kind in sorted(bad))
            yield problem("NVLINK_ERRORS", reading.component, f"{counts} of its NVLinks in {seconds:.0f} s")


def _up(reading: GpuReading) -> set[int]:
    return {link for link, is_up in reading.links.items() if is_up}


def _up_before(state: State) -> dict[str, set[int]]:
    table = state.get("links_up")
    listed = table.items() if isinstance(table, dict) else ()
    return {
        str(component): {link for link in links if isinstance(link, int)}
        for component, links in listed
        if isinstance(links, list)
    }


def _counter(reading: GpuReading, kind: str) -> str:
    return f"{reading.component} {kind}"
