"""Checks Trainium and Inferentia: all devices are present, and their error counters have not grown since the last run.

The driver's counters are totals since it was loaded. An error is reported when its counter rises. What it held when the
node came up is reported once: an old error is not new because the agent restarted.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State
from nodeheal.agent.checks.hardware import Expected, expected_neuron_devices, instance_type, neuron_devices_of, text_of
from nodeheal.agent.transport.event import Accelerator
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.finding import Finding, ToolReport
from nodeheal.parsers.neuron_tools import ERROR_COUNTERS, READ, parse_neuron, parse_neuron_tree

# Where drivers place their tree, which depends on their version.
ROOTS = ("devices/virtual/neuron_device", "class/neuron_device")
LIST_COMMAND = ["neuron-ls", "--json-output"]
LIST_SECONDS, LIST_EVERY_SECONDS = 60.0, 3600.0  # the tool takes a second of CPU and rarely adds anything
MOST_FOLDERS = 2000  # of one device
COUNT_CODE = "DEVICE_COUNT_MISMATCH"
# A total counts for as long as the driver is loaded, a present counter for one process: the present one is read where
# there is no total.
_TOTAL, _PRESENT = "total", "present"
_SKIPPED = ("info", "memory_usage", "power")  # many files, and no error counter in them
_DEVICE = re.compile(r"neuron(\d{1,3})")
_NUMBER = re.compile(r"\d{1,20}")
_SINCE_LOADED, _SINCE_LOOK = "since the driver was loaded", "since the last look"


def why_not(place: CheckContext) -> str:
    """Require Neuron devices, or an instance type that has them."""
    is_there = any(folder.exists() for folder in _roots(place))
    return "" if is_there or neuron_devices_of(instance_type(place)) else "no Neuron device"


def look(place: CheckContext, state: State) -> NodeCheckResult:
    """Read the tree, and rarely run the tool: until its next run, devices that it missed stay missing."""
    expected = expected_neuron_devices(place)
    result = judge(read_tree(_roots(place)), expected, state)
    misses, asked_at, now = _told_by_tool(state), state.get("asked_at"), time.monotonic()
    if not isinstance(asked_at, (int, float)) or now - asked_at >= LIST_EVERY_SECONDS:
        answer = place.run(LIST_COMMAND, LIST_SECONDS)
        problems = tuple(_missing(parse_neuron(answer.text, expected.count)))
        misses, asked_at = {problem.finding.component: problem.evidence for problem in problems}, now
    known = {problem.finding.component for problem in result.problems}
    more = [_missed(component, message) for component, message in misses.items() if component not in known]
    kept = {**result.state, "asked_at": asked_at, "told_by_tool": list(misses.items())}
    return replace(result, problems=(*result.problems, *more), state=kept, accelerators=accelerators(_roots(place)))


def judge(tree: Mapping[str, str], expected: Expected, state: State) -> NodeCheckResult:
    """Judge a tree against the counters of the last run."""
    if not tree:
        return _none_there(expected, state)
    before, now = _counts(state), counters(tree)
    # The remaining problems of the devices concern the tree itself.
    whole = parse_neuron_tree({**tree, **dict.fromkeys(now, "0")}, expected.count)
    risen = parse_neuron_tree({**tree, **{path: _rise(now[path], before.get(path, 0)) for path in now}})
    errors = [_since_look(finding, before) for finding in risen.findings]
    return NodeCheckResult(
        tuple(_missing(whole)),
        unclear=whole.reason if whole.verdict is Verdict.UNKNOWN else "",
        state={"counters": {path: count for path, count in (before | now).items() if count}},
        happened=tuple(Problem(finding, finding.message) for finding in errors),
        summary=whole.reason,
    )


def read_tree(roots: Sequence[Path]) -> dict[str, str]:
    """Read the files that the parser needs from the first existing tree, by path below the device; an unreadable file
    is empty.
    """
    for root in roots:
        devices = sorted(root.glob("neuron[0-9]*"))
        if devices:
            return {str(path.relative_to(root)): text_of(path) for device in devices for path in _files(device)}
    return {}


def accelerators(roots: Sequence[Path]) -> tuple[Accelerator, ...]:
    """Read what each device of the first existing tree is."""
    devices = next(filter(None, (list(root.glob("neuron[0-9]*")) for root in roots)), [])
    numbered = {int(match[1]): device for device in devices if (match := _DEVICE.fullmatch(device.name))}
    return tuple(
        Accelerator(
            index=index,
            component=f"neuron{index}",
            model=text_of(device / "info/architecture/device_name") or None,
            serial=text_of(device / "info/serial_number") or None,
        )
        for index, device in sorted(numbered.items())
    )


def counters(tree: Mapping[str, str]) -> dict[str, int]:
    """The error counters of a tree."""
    named = {path: text for path, text in tree.items() if _name(Path(path)) in ERROR_COUNTERS}
    return {path: int(text) for path, text in named.items() if _NUMBER.fullmatch(text)}


def _files(device: Path) -> Iterator[Path]:
    # Devices are links below /sys/class; within a device, links lead out of it or in circles.
    waiting = [device]
    for _ in range(MOST_FOLDERS):
        if not waiting:
            return
        inside = [path for path in waiting.pop().iterdir() if not path.is_symlink() and path.name not in _SKIPPED]
        has_total = any(path.name == _TOTAL for path in inside)
        for path in inside:
            if path.is_dir():
                waiting.append(path)
            elif _name(path) in READ and not (has_total and path.name == _PRESENT):
                yield path


def _name(path: Path) -> str:
    """Return what a file counts: its name, or its folder's where that holds a total and a present count."""
    return path.parent.name if path.name in (_TOTAL, _PRESENT) else path.name


def _rise(count: int, before: int) -> str:
    """Return the growth since the last run. A smaller value means that the counter was reset."""
    return str(count - before if count >= before else count)


def _since_look(finding: Finding, before: Mapping[str, int]) -> Finding:
    return replace(finding, message=finding.message.replace(_SINCE_LOADED, _SINCE_LOOK)) if before else finding


def _missing(report: ToolReport) -> Iterator[Problem]:
    for finding in report.findings:
        if finding.code == COUNT_CODE:
            yield Problem(finding, finding.message)


def _missed(component: str | None, message: str) -> Problem:
    return Problem(Finding(Family.neuron, COUNT_CODE, component, message), message)


def _told_by_tool(state: State) -> dict[str | None, str]:
    listed = state.get("told_by_tool")
    pairs = (
        [pair for pair in listed if isinstance(pair, (list, tuple)) and len(pair) == 2]
        if isinstance(listed, list)
        else []
    )
    return {None if component is None else str(component): str(message) for component, message in pairs}


def _none_there(expected: Expected, state: State) -> NodeCheckResult:
    if not expected.count:
        return NodeCheckResult(
            unclear="the Neuron driver shows no device, and the expected number is not known", state=state
        )
    message = f"0 of {expected.count} Neuron devices are there ({expected.by})"
    finding = Finding(Family.host, "neuron_count_mismatch", None, message)
    return NodeCheckResult((Problem(finding, message),), state=state)


def _counts(state: State) -> dict[str, int]:
    table = state.get("counters")
    kept = table.items() if isinstance(table, dict) else ()
    return {str(path): count for path, count in kept if isinstance(count, int)}


def _roots(place: CheckContext) -> list[Path]:
    return [place.sys / root for root in ROOTS]


CHECK = NodeCheck(
    name="neuron",
    about="Neuron devices: all there, and their error counters",
    interval_seconds=120.0,  # a node has some thousand counters, and the kernel log reports grave errors at once
    deadline_seconds=90.0,
    why_not=why_not,
    look=look,
    settle_seconds=180.0,
)
