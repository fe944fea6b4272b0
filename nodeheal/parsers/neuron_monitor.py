"""Parses the JSON of neuron-monitor (one document, or one a line) and of `neuron-ls --json-output`. Pure."""

from collections.abc import Iterator, Sequence

from nodeheal.contract.json_text import read_json
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.tool_report import ReportedFault, fault, sum_up, unknown

_FAILED, _DEGRADED = Verdict.FAILED, Verdict.DEGRADED
# Of a process that uses the devices. Model errors and bad input are the application's own.
_ERROR_SUMMARY = {
    "hardware": ("HARDWARE_ERROR", _FAILED),
    "numerical": ("NUMERICAL_ERROR", _DEGRADED),
    "generic": ("EXECUTION_FAILURE", _DEGRADED),
    "runtime": ("EXECUTION_FAILURE", _DEGRADED),
    "transient": ("EXECUTION_FAILURE", _DEGRADED),
}
_EXECUTIONS = {
    "timed_out": ("EXECUTION_TIMEOUT", _DEGRADED),
    "completed_with_err": ("EXECUTION_FAILURE", _DEGRADED),
    "completed_with_num_err": ("NUMERICAL_ERROR", _DEGRADED),
}
_HARDWARE_COUNTERS = {
    "sram_ecc_uncorrected": "SRAM_UNCORRECTABLE_ERROR",
    # neuron-monitor does not separate repairable errors.
    "mem_ecc_uncorrected": "HBM_UNCORRECTABLE_ERROR",
}
CODES = frozenset(
    f"neuron/{code}"
    for code in (
        "DEVICE_COUNT_MISMATCH",
        *_HARDWARE_COUNTERS.values(),
        *(code for code, _ in (_ERROR_SUMMARY | _EXECUTIONS).values()),
    )
)
_COUNTER_GROUPS = ("neuron_hw_counters", "neuron_device_counters")


def parse_neuron_json(text: str, expected: int = 0) -> ToolReport:
    """Return the tools' result for a node with this many devices (0: unknown). Any broken line is a doubt."""
    documents = _documents(text)
    if documents is None:
        return unknown("the JSON is not complete")
    listed = _listed_devices(documents)
    if listed is not None:
        return _judge_list(listed, expected)
    reports = [document for document in documents if isinstance(document, dict)]
    if not reports or len(reports) < len(documents) or not all(map(_is_monitor, reports)):
        return unknown("not understood as output of neuron-monitor or neuron-ls")
    faults = [defect for report in reports for defect in _faults(report, expected)]
    doubt = next((reason for report in reports for reason in _doubts(report)), "")
    return sum_up(faults, f"{len(_counters(reports[-1]))} Neuron devices show no fault", doubt)


def _documents(text: str) -> list[object] | None:
    """Parse one document, or one a line; None if any is cut off."""
    try:
        return [read_json(text)]
    except ValueError:
        pass
    try:
        return [read_json(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return None


def _listed_devices(documents: Sequence[object]) -> list[dict[str, object]] | None:
    """Return the listed devices: neuron-ls prints a list, newer versions an object with the list in it."""
    first = documents[0] if len(documents) == 1 else None
    listed = first.get("neuron_devices") if isinstance(first, dict) else first
    if not isinstance(listed, list) or not all(_is_listed(entry) for entry in listed):
        return None
    return listed


def _is_listed(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("neuron_device"), int) and "nc_count" in entry


def _judge_list(listed: list[dict[str, object]], expected: int) -> ToolReport:
    present = {entry["neuron_device"] for entry in listed}
    faults = []
    for neighbour in sorted({peer for entry in listed for peer in _peers(entry)} - present, key=str):
        message = f"a device is connected to neuron{neighbour}, which is not listed"
        faults.append(fault(_FAILED, Family.neuron, "DEVICE_COUNT_MISMATCH", f"neuron{neighbour}", message))
    if len(present) < expected and len(present) + len(faults) < expected:
        message = f"{len(present)} of {expected} Neuron devices are listed"
        faults.append(fault(_FAILED, Family.neuron, "DEVICE_COUNT_MISMATCH", None, message))
    summary = f"{len(present)} Neuron devices are listed; the list does not contain their health"
    doubt = "" if present else "no Neuron device is listed"
    return sum_up(faults, summary, doubt, "" if expected else f"{summary}: give the expected number")


def _peers(entry: dict[str, object]) -> list[int]:
    peers = entry.get("connected_to")
    return [peer for peer in peers if isinstance(peer, int)] if isinstance(peers, list) else []


def _is_monitor(report: dict[str, object]) -> bool:
    return any(key in report for key in ("neuron_runtime_data", "system_data", "neuron_hardware_info"))


def _faults(report: dict[str, object], expected: int) -> Iterator[ReportedFault]:
    for runtime in _runtimes(report):
        yield from _runtime_faults(runtime)
    counters = _counters(report)
    for device in counters:
        for name, code in _HARDWARE_COUNTERS.items():
            if _count(device.get(name)):
                component = f"neuron{_count(device.get('neuron_device_index'))}"
                yield fault(_FAILED, Family.neuron, code, component, f"{name}: {device[name]}")
    known = _count(_object(report, "neuron_hardware_info").get("neuron_device_count"))
    count = len(counters) or known
    if count and count < max(expected, known):
        message = f"{count} of {max(expected, known)} Neuron devices are counted"
        yield fault(_FAILED, Family.neuron, "DEVICE_COUNT_MISMATCH", None, message)


def _runtime_faults(runtime: dict[str, object]) -> Iterator[ReportedFault]:
    stats = _object(_object(runtime, "report"), "execution_stats")
    pid = runtime.get("pid")
    process = pid if isinstance(pid, int) and not isinstance(pid, bool) else None
    for group, meanings in (("error_summary", _ERROR_SUMMARY), ("execution_summary", _EXECUTIONS)):
        counts = _object(stats, group)
        for name, (code, verdict) in meanings.items():
            if _count(counts.get(name)):
                message = f"{group}.{name}: {counts[name]}"
                yield fault(verdict, Family.neuron, code, None, message, pid=process)


def _doubts(report: dict[str, object]) -> Iterator[str]:
    """Return the parts that the tool could not read, or that are missing."""
    for device in _counters(report):
        if not all(_is_count(device.get(name)) for name in (*_HARDWARE_COUNTERS, "neuron_device_index")):
            yield "a hardware counter is missing or not a number"
    groups = [*_groups(_object(report, "system_data")), _object(report, "neuron_hardware_info"), *_runtimes(report)]
    for runtime in _runtimes(report):
        groups += _groups(_object(runtime, "report"))
    for group in groups:
        if group.get("error"):
            yield f"neuron-monitor reports: {str(group['error'])[:200]}"
    if not _counters(report):
        yield "no device's hardware counters are shown"


def _counters(report: dict[str, object]) -> list[dict[str, object]]:
    data = _object(report, "system_data")
    groups = [_object(source, name) for source in (data, report) for name in _COUNTER_GROUPS]
    listed = next((group["neuron_devices"] for group in groups if group.get("neuron_devices")), None)
    return [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []


def _runtimes(report: dict[str, object]) -> list[dict[str, object]]:
    runtimes = report.get("neuron_runtime_data")
    return [runtime for runtime in runtimes if isinstance(runtime, dict)] if isinstance(runtimes, list) else []


def _groups(data: dict[str, object]) -> list[dict[str, object]]:
    return [group for group in data.values() if isinstance(group, dict)]


def _object(source: dict[str, object], key: str) -> dict[str, object]:
    value = source.get(key)
    return value if isinstance(value, dict) else {}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _count(value: object) -> int:
    return value if isinstance(value, int) and _is_count(value) else 0
