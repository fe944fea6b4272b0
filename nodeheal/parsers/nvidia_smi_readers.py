"""Converts nvidia-smi's other formats into readings, one for each GPU: the CSV query, the plain table and `-L`. Pure.

The XML and the plain `-q` log have their own module.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from nodeheal.parsers.nvidia_smi_fields import Reading, unreadable_code

UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ADDRESS = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?")

_FIELD_NAME = re.compile(r"([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*)(?: \[[^\[\]]{1,20}\])?")
# Names that begin a query's fields; a header has at least one of them.
_HEADERS = re.compile(
    r"(?:index|name|gpu_name|count|uuid|gpu_uuid|serial|gpu_serial|timestamp|driver_version|vbios_version|pstate"
    r"|(?:pci|ecc|memory|temperature|clocks|power|utilization|retired_pages|remapped_rows|compute_mode"
    r"|persistence_mode|fan|mig|gpu_recovery_action|reset_status|fabric)(?:[._].*)?)"
)
_NAME = re.compile(r"(?:NVIDIA|Tesla|Quadro|GeForce|A100|H100|H200|B200|GH200|GB200)\b.{0,80}")
# Values that are harmless in any field. Any other number may count errors.
_HARMLESS = re.compile(
    r"0|\d{1,9}(?:\.\d{1,4})? (?:MiB|W|%|MHz|C|KB/s|us)|P\d{1,2}|No|Not Active|None|Enabled|Disabled|Default"
    r"|\[?N/A\]?|\[Not Supported\]|\[Not Found\]|\d{2,4}\.\d{1,3}(?:\.\d{1,3}){0,3}|0x0+|\[?Requested func.{1,40}\]?"
)
_LIST_LINE = re.compile(r"GPU (\d{1,4}): .{1,100} \(UUID: (GPU-[0-9a-f-]{36})\)")
_MIG_LINE = re.compile(r"\s+MIG .{1,100} \(UUID: MIG-[\w/-]{1,100}\)")
_TABLE_GPU = re.compile(
    r"\|\s+(\d{1,4})\s+\S.{1,60}\|\s*([0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7])\s.{0,30}\|(.{1,40})\|\s*"
)
_TABLE_BORDER = re.compile(r"[+|]-{10}[-+|]*\s*")


@dataclass(frozen=True)
class GpuListing:
    """The content of one output."""

    readings: tuple[Reading, ...]
    attached: int | None = None  # the number of GPUs that the tool itself reports
    has_end: bool = False  # the format has an end mark, so nothing can be missing after it
    tells_health: bool = True  # more than a list of names
    doubt: str = ""


def address(text: str) -> str | None:
    """Return the first PCI address of a text, as the kernel writes it: 0000:53:00.0."""
    match = ADDRESS.search(text)
    return f"{int(match[1], 16):04x}:{match[2].lower()}.0" if match else None


def read_list(lines: Sequence[str]) -> GpuListing | None:
    """Parse `nvidia-smi -L`."""
    matches = [_LIST_LINE.fullmatch(line.strip()) for line in lines]
    if not any(matches):
        return None
    bad = [line for line, match in zip(lines, matches, strict=True) if not match and not _MIG_LINE.fullmatch(line)]
    readings = tuple(Reading(match[2], int(match[1]), ()) for match in matches if match)
    return GpuListing(readings, tells_health=False, doubt=f"not understood: {bad[0][:100]}" if bad else "")


def read_table(lines: Sequence[str]) -> GpuListing | None:
    """Parse plain `nvidia-smi`. It ends with the box of processes; a GPU's block ends with a border."""
    if not any("NVIDIA-SMI" in line for line in lines[:6]):
        return None
    ends = [number for number, line in enumerate(lines) if "Processes:" in line]
    rows = lines[: ends[0]] if ends else lines
    readings: list[Reading] = []
    for number, line in enumerate(rows):
        match = _TABLE_GPU.fullmatch(line)
        if match:
            readings.append(_table_reading(match, rows[number + 1 : number + 3]))
    is_whole = bool(ends) and _closes_box(lines[ends[0] + 1 :], lines[0])
    return GpuListing(tuple(readings), has_end=True, doubt="" if is_whole else "the table is cut off")


def _table_reading(match: re.Match[str], below: Sequence[str]) -> Reading:
    block = [match[0]]
    for line in below:
        if _TABLE_BORDER.fullmatch(line):
            break
        block.append(line)
    ecc = match[3].split()[-1] if match[3].split() else ""
    broken = [("shown", text) for text in _broken_words(block)]
    fields = [("index", match[1]), ("volatile_uncorr_ecc", "N/A" if ecc == "Off" else ecc), *broken]
    return Reading(address(match[2]) or match[2], int(match[1]), tuple(fields))


def _broken_words(block: Sequence[str]) -> list[str]:
    text = " ".join(block)
    return [word for word in ("ERR!", "GPU is lost", "Unknown Error", "GPU requires reset") if word in text]


def _closes_box(lines: Sequence[str], border: str) -> bool:
    """Whether a box of processes ends with a border as wide as the first."""
    filled = [line.rstrip() for line in lines if line.strip()]
    last = filled[-1] if filled else ""
    has_head = any(line.startswith("|==") for line in filled)
    widest = max((len(line) for line in filled), default=0)
    return has_head and last.startswith("+-") and last.endswith("-+") and len(last) == widest > len("+--+")


# Fields that would show a fault; a table of names and clocks contains no health.
_NO_ANSWER = re.compile(r"\[?(?:N/A|Not Supported)\]?")
_HEALTH = re.compile("ecc|remap|retired|reset|recovery|throttle|event_reasons")


def read_csv(lines: Sequence[str]) -> GpuListing | None:
    """Parse `--query-gpu=… --format=csv`, with or without its header; nvidia-smi never quotes."""
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    if not rows:
        return None
    names = _header(rows[0])
    if names is None:
        return _without_header(rows)
    whole = [row for row in rows[1:] if len(row) == len(names) and all(row)]
    doubt = "" if len(whole) == len(rows) - 1 else "a row does not have all its fields"
    counts = [row[names.index("count")] for row in whole] if "count" in names else []
    attached = max((int(count) for count in counts if re.fullmatch(r"\d{1,4}", count)), default=None)
    readings = tuple(_csv_reading(number, names, row) for number, row in enumerate(whole))
    answers = {row[column] for column, name in enumerate(names) if _HEALTH.search(name) for row in whole}
    tells_health = any(not _NO_ANSWER.fullmatch(answer) for answer in answers)
    return GpuListing(readings, attached, has_end=attached is not None, tells_health=tells_health, doubt=doubt)


def _header(row: Sequence[str]) -> list[str] | None:
    matches = [_FIELD_NAME.fullmatch(cell) for cell in row]
    names = [match[1] for match in matches if match]
    return names if len(names) == len(row) and any(_HEADERS.fullmatch(name) for name in names) else None


def _csv_reading(number: int, names: Sequence[str], row: Sequence[str]) -> Reading:
    fields = dict(zip(names, row, strict=True))
    index = fields.get("index", "")
    place = next((fields[key] for key in ("pci.bus_id", "gpu_bus_id") if key in fields), "")
    named = next((fields[key] for key in ("uuid", "gpu_uuid") if UUID.fullmatch(fields.get(key, ""))), None)
    numbered = int(index) if re.fullmatch(r"\d{1,4}", index) else None
    component = address(place) or named or f"GPU {number if numbered is None else numbered}"
    return Reading(component, numbered, tuple(zip(names, row, strict=True)))


def _without_header(rows: Sequence[Sequence[str]]) -> GpuListing | None:
    """Parse fields without names: unambiguous values count, and a number that may count errors is a doubt."""
    if not all(any(_is_identity(cell) for cell in row) or _is_numbered(rows) for row in rows):
        return None
    widths = {len(row) for row in rows}
    doubt = "a row does not have all its fields" if len(widths) > 1 else ""
    numbered = _is_numbered(rows)
    readings = []
    for number, row in enumerate(rows):
        index = int(row[0]) if numbered else None
        cells = row[1:] if numbered else row
        hidden = [cell for cell in cells if not _is_plain(cell)]
        if hidden and not doubt:
            doubt = f"{hidden[0][:60]!r} has no field name: query without noheader"
        component = next(
            (identity for identity in map(_identity, cells) if identity), f"GPU {number if index is None else index}"
        )
        readings.append(Reading(component, index, tuple((_guess(cell), cell) for cell in cells)))
    # A zero or a "No" is harmless in any field; a name or a temperature is not.
    tells_health = all(any(cell in ("0", "No", "None") for cell in row[numbered:]) for row in rows)
    return GpuListing(tuple(readings), tells_health=tells_health, doubt=doubt)


def _is_numbered(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first cells are GPU numbers: ascending, and not the only ones."""
    firsts = [row[0] for row in rows]
    if any(len(row) < 2 or not re.fullmatch(r"\d{1,4}", row[0]) for row in rows):
        return False
    numbers = [int(first) for first in firsts]
    return all(before < after for before, after in itertools.pairwise(numbers))


def _identity(cell: str) -> str | None:
    return address(cell) if ADDRESS.fullmatch(cell) else cell if UUID.fullmatch(cell) else None


def _is_identity(cell: str) -> bool:
    return _identity(cell) is not None or _NAME.fullmatch(cell) is not None


def _is_plain(cell: str) -> bool:
    return (
        _is_identity(cell)
        or bool(_HARMLESS.fullmatch(cell))
        or unreadable_code(cell) is not None
        or bool(_action(cell))
    )


def _action(cell: str) -> bool:
    return cell in ("Reset", "Reboot", "Drain P2P", "Drain and Reset")


def _guess(cell: str) -> str:
    return "gpu_recovery_action" if _action(cell) else "value"
