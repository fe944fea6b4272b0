"""Parses the state of a node's EFA and InfiniBand devices: `fi_info`, `rdma statistic show`, sysfs. Pure.

Counters are totals, on EFA even over reboots of the node: one reading shows that something happened, not when, and not
how fast. So an error counter above zero is DEGRADED at most. A list has no end mark: it is healthy only if the expected
number of devices is known.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.tool_report import ReportedFault, fault, first_line, sum_up, unknown

EFA_COUNTERS = (
    "rx_drops",
    "rdma_write_wr_err",
    "rdma_read_wr_err",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
    "retrans_bytes",
    "retrans_pkts",
    "retrans_timeout_events",
)
IB_COUNTERS = (
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "rnr_nak_retry_err",
)
_STATES = {"DOWN": "LINK_DOWN", "INIT": "LINK_INACTIVE", "ARMED": "LINK_INACTIVE", "ACTIVE_DEFER": "LINK_INACTIVE"}
CODES = frozenset(
    [
        "efa/NO_EFA_PROVIDER",
        *(f"efa/{name}" for name in EFA_COUNTERS),
        *(f"ib/{name}" for name in IB_COUNTERS),
        *(f"{family}/{code}" for family in ("efa", "ib") for code in ("DEVICE_MISSING", "LINK_DOWN", "LINK_INACTIVE")),
    ]
)
_NO_RATE = "totals: one reading gives no rate"

_PATH = re.compile(r"(?:.*/)?(?P<device>[\w.-]{1,64})/ports/(?P<port>\d{1,3})/(?:.{0,40}/)?(?P<name>\w{1,64})")
_LISTED = re.compile(r"(?P<path>.{0,300}?ports/\d{1,3}/[\w/]{1,100})(?:: ?|\s+)(?P<value>.*)")
_MORE_RULE = re.compile(r":{10,20}")
_LINK = re.compile(r"link (?P<device>[\w.-]{1,64})/(?P<port>\d{1,3})\s*(?P<rest>.*)")
_COUNTERS = re.compile(r"(?:[a-z]\w{1,60} \d{1,20}\s*){1,100}")
_PAIR = re.compile(r"([a-z]\w{1,60}) (\d{1,20})")
_LINK_STATE = re.compile(r"\bstate ([A-Z_]{2,20})\b")
_STATE = re.compile(r"\s*(?:\d: ?)?([A-Z_]{2,20})\s*")
_NOISE = re.compile(r"grep: |cat: |more: |Binary file ")
_BLOCK_KEYS = ("provider", "fabric", "domain", "version", "type", "protocol")
_BLOCK_LINE = re.compile(r"\s*(provider|fabric|domain|version|type|protocol): (.*)")


@dataclass
class _Port:
    """The parsed values of one port of one device."""

    device: str
    state: str | None = None
    counters: dict[str, int | None] = field(default_factory=dict)

    @property
    def family(self) -> Family:
        is_ib = self.device.startswith("mlx") or any(name in IB_COUNTERS for name in self.counters)
        return Family.ib if is_ib and not any(name in EFA_COUNTERS for name in self.counters) else Family.efa


_Ports = dict[tuple[str, str], _Port]


def parse_efa(text: str, expected: int = 0) -> ToolReport:
    """Parse an output or a listing of a node with this many devices (0: unknown)."""
    if re.search(r"^[ \t]*provider: |fi_getinfo|fi_info:", text, re.MULTILINE):
        return _parse_fi_info(text, expected)
    ports: _Ports = {}
    strange = _read_lines(text, ports)
    if not ports:
        line = first_line(text)
        return unknown(f"not understood as EFA or InfiniBand output: {line}" if line else "empty output")
    return _judge(ports, expected, strange, is_list=True)


def parse_efa_tree(tree: Mapping[str, str], expected: int = 0) -> ToolReport:
    """Parse a whole sysfs tree, by path; the paths contain `<device>/ports/<port>/`."""
    ports: _Ports = {}
    for path, text in tree.items():
        _place(ports, path, text)
    if not ports:
        return unknown("no port of an EFA or InfiniBand device is in the tree")
    return _judge(ports, expected, "", is_list=False)


def _unsaid(expected: int) -> str:
    """Return a hint for the reason where the number is unknown: a list has no end mark."""
    return "" if expected else "; the expected number is not known"


def _judge(ports: _Ports, expected: int, strange: str, is_list: bool) -> ToolReport:
    doubt = strange or _doubt(ports)
    faults = [defect for port in ports.values() for defect in _faults(port)]
    devices = {port.device for port in ports.values()}
    # The rest of a cut-off output may be healthy; a tree is never cut off.
    if len(devices) < expected and not (is_list and doubt):
        family = next(iter(ports.values())).family
        faults.append(_missing(family, len(devices), expected))
    unsaid = _unsaid(expected) if is_list else ""
    report = sum_up(faults, f"{len(devices)} devices show no fault{unsaid}", doubt)
    has_totals = any(defect.verdict is Verdict.DEGRADED for defect in faults)
    reason = f"{report.reason} ({_NO_RATE})" if has_totals else report.reason
    return ToolReport(report.verdict, report.failed_tests, report.failed_components, report.findings, reason)


def _missing(family: Family, count: int, expected: int) -> ReportedFault:
    return fault(Verdict.FAILED, family, "DEVICE_MISSING", None, f"{count} of {expected} devices are shown")


def _faults(port: _Port) -> Iterator[ReportedFault]:
    code = _STATES.get(port.state or "")
    if code:
        yield fault(Verdict.FAILED, port.family, code, port.device, f"state: {port.state}")
    for name, count in port.counters.items():
        if count:
            family = Family.ib if name in IB_COUNTERS else Family.efa
            yield fault(Verdict.DEGRADED, family, name, port.device, f"{name}: {count} ({_NO_RATE})")


def _doubt(ports: _Ports) -> str:
    """Return why the output may be incomplete: a port without counters that others of its family have, or nothing
    readable.
    """
    for family in (Family.efa, Family.ib):
        kin = [port for port in ports.values() if port.family is family]
        every = frozenset().union(*(port.counters for port in kin)) if kin else frozenset()
        has_states = any(port.state is not None for port in kin)
        for port in kin:
            if (not port.counters and port.state is None) or every != port.counters.keys():
                return f"{port.device} lacks some of its counters"
            if None in port.counters.values():
                return f"{port.device} has a counter that cannot be read"
            if has_states and port.state not in _STATES and port.state != "ACTIVE":
                return f"{port.device} has no valid state"
    return ""


def _place(ports: _Ports, path: str, text: str) -> bool:
    match = _PATH.fullmatch(path)
    if match is None:
        return False
    port = ports.setdefault((match["device"], match["port"]), _Port(match["device"]))
    name = match["name"]
    if name == "state" and path.endswith(f"/ports/{match['port']}/state"):
        state = _STATE.fullmatch(text)
        port.state = state[1] if state else ""
    elif name in EFA_COUNTERS + IB_COUNTERS:
        _count(port, name, text.strip())
    return True


def _count(port: _Port, name: str, text: str) -> None:
    port.counters[name] = int(text) if re.fullmatch(r"\d{1,20}", text) else None


def _read_lines(text: str, ports: _Ports) -> str:
    """Fill the ports from the output of `rdma`, `grep -r .` or `more`; returns the first line of another form."""
    strange, port, file = "", None, ""
    for line in (raw.rstrip()[:4000] for raw in text.splitlines()):
        link, listed = _LINK.fullmatch(line), _LISTED.fullmatch(line)
        if link:
            key = (link["device"], link["port"])
            port, file = ports.setdefault(key, _Port(link["device"])), ""
            understood = _read_counters(port, link["rest"])
        elif listed:
            understood = _place(ports, listed["path"], listed["value"])
        elif _MORE_RULE.fullmatch(line):
            understood = True
        elif _PATH.fullmatch(line.strip()):
            file, understood = line.strip(), True
        elif file and line.strip():
            understood, file = _place(ports, file, line), ""
        else:
            understood = not line.strip() or bool(_NOISE.match(line))
            understood = understood or (port is not None and _read_counters(port, line.strip()))
        strange = strange or ("" if understood else f"not understood: {line.strip()[:100]}")
    return strange or (f"{file[:100]} has no value" if file else "")


def _read_counters(port: _Port, text: str) -> bool:
    """Parse `name number` pairs, or `state ACTIVE physical_state LINK_UP …`."""
    state = _LINK_STATE.search(text)
    if state:
        port.state = state[1]
        return True
    for name, number in _PAIR.findall(text):
        if name in EFA_COUNTERS + IB_COUNTERS:
            _count(port, name, number)
    return not text or _COUNTERS.fullmatch(text) is not None


def _parse_fi_info(text: str, expected: int) -> ToolReport:
    if re.search(r"fi_getinfo: -61\b|No data available", text):
        line = first_line(text)
        return sum_up([fault(Verdict.FAILED, Family.efa, "NO_EFA_PROVIDER", None, line)], "")
    blocks = _blocks(text)
    if not blocks:
        return unknown(f"fi_info says: {first_line(text)}")
    whole = [block for block in blocks if _is_whole(block)]
    efa = [block for block in whole if block["provider"].split(";")[0] == "efa"]
    doubt = "" if len(whole) == len(blocks) else "an entry is cut off"
    if not efa:
        others = ", ".join(sorted({block["provider"] for block in blocks}))[:200]
        faults = [] if doubt else [fault(Verdict.FAILED, Family.efa, "NO_EFA_PROVIDER", None, f"only {others}")]
        return sum_up(faults, "", doubt)
    devices: dict[str, set[str]] = {}
    for block in efa:
        devices.setdefault(re.sub(r"-(?:rdm|dgrm|dgram)$", "", block["domain"]), set()).add(block["type"])
    if len({frozenset(types) for types in devices.values()}) > 1:
        doubt = doubt or "a device lacks an endpoint type that others have"
    faults = [_missing(Family.efa, len(devices), expected)] if len(devices) < expected and not doubt else []
    return sum_up(faults, f"{len(devices)} EFA devices are provided{_unsaid(expected)}", doubt)


def reliable_domains(text: str) -> tuple[str, ...]:
    """Return EFA's domains for reliable datagrams in the output of `fi_info`, one for each card, in its order."""
    named = [block["domain"] for block in _blocks(text) if _is_whole(block) and block["type"] == "FI_EP_RDM"]
    return tuple(dict.fromkeys(named))


def _blocks(text: str) -> list[dict[str, str]]:
    blocks: list[dict[str, str]] = []
    for line in text.splitlines():
        match = _BLOCK_LINE.fullmatch(line[:500])
        if match and match[1] == "provider":
            blocks.append({"provider": match[2].strip()})
        elif match and blocks:
            blocks[-1][match[1]] = match[2].strip()
        elif line.strip() and blocks:
            blocks[-1]["strange"] = line.strip()
    return blocks


def _is_whole(block: dict[str, str]) -> bool:
    if not all(block.get(key) for key in _BLOCK_KEYS) or "strange" in block:
        return False
    return block["provider"] != "efa" or block["protocol"] == "FI_PROTO_EFA"
