"""Converts `nvidia-smi -q -x` and the plain `nvidia-smi -q` into readings, one for each GPU. Pure.

No entity of the XML is ever resolved: a document that declares one is refused before it can grow.
"""

import re
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from nodeheal.parsers.nvidia_smi_fields import Reading
from nodeheal.parsers.nvidia_smi_readers import GpuListing, address

_DEEPEST = 32  # nvidia-smi nests 7 levels
_START = re.compile(r"<\?xml\b|<!DOCTYPE nvidia_smi_log\b|<nvidia_smi_log\b")
# Long sections without health data; users choose the names of processes.
_SKIPPED = ("supported_clocks", "processes", "accounted_processes")
_COUNT = re.compile(r"\s*\d{1,4}\s*")

_LOG_LINE = re.compile(r"(?P<indent> *)(?P<key>[^:]{1,60}?) *(?:: (?P<value>.*))?")
_LOG_GPU = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")


class _Refused(Exception):
    """The document has an element that nvidia-smi never writes."""


def read_xml(text: str) -> GpuListing | None:
    """Parse `nvidia-smi -q -x`; sentences may precede the document."""
    start = _START.search(text)
    if start is None:
        return None
    try:
        root = _parse(text[start.start() :])
    except (expat.ExpatError, _Refused, ValueError) as error:
        return GpuListing((), has_end=True, doubt=f"the XML is not complete: {error}"[:200])
    if root.tag != "nvidia_smi_log":
        return GpuListing((), has_end=True, doubt="the XML is not nvidia-smi's")
    readings = tuple(_reading(gpu, number) for number, gpu in enumerate(root.findall("gpu")))
    attached = root.findtext("attached_gpus") or ""
    unnamed = any(not (reading.component and _tells_health(reading)) for reading in readings)
    doubt = "a GPU has neither address nor health data" if unnamed else ""
    return GpuListing(readings, int(attached) if _COUNT.fullmatch(attached) else None, has_end=True, doubt=doubt)


def _parse(text: str) -> Element:
    builder, parser = TreeBuilder(), expat.ParserCreate()
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise _Refused("nested too deeply")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = _refuse_entity
    parser.Parse(text.encode("utf-8", "replace"), True)
    return builder.close()


def _refuse_entity(*_: object) -> None:
    raise _Refused("it declares an entity")


def _reading(gpu: Element, number: int) -> Reading:
    fields = tuple(_leaves(gpu, ""))
    named = dict(fields)
    place = address(gpu.get("id", "")) or address(named.get("pci/pci_bus_id", ""))
    return Reading(place or named.get("uuid", ""), None, fields)


def _leaves(element: Element, path: str) -> Iterator[tuple[str, str]]:
    for child in element:
        if child.tag not in _SKIPPED:
            here = f"{path}{child.tag}"
            if len(child):
                yield from _leaves(child, f"{here}/")
            elif child.text and child.text.strip():
                yield here, child.text.strip()


def _tells_health(reading: Reading) -> bool:
    return any(
        name.split("/")[0] in ("ecc_errors", "remapped_rows", "gpu_recovery_action") for name, _ in reading.fields
    )


def read_log(lines: Sequence[str]) -> GpuListing | None:
    """Parse plain `nvidia-smi -q`: sections by indentation. A GPU is complete with its processes, its last entry."""
    if not any("NVSMI LOG" in line for line in lines[:10]):
        return None
    head, blocks = _blocks(lines)
    attached = re.search(r"Attached GPUs\s*: (\d{1,4})\s*$", head, re.MULTILINE)
    readings = tuple(Reading(address(block[0]) or block[0], None, tuple(_log_fields(block[1:]))) for block in blocks)
    is_whole = bool(readings) and all(_is_whole(block) for block in blocks)
    doubt = "" if is_whole and all(map(_tells_health, readings)) else "the log is cut off"
    return GpuListing(readings, int(attached[1]) if attached else None, has_end=attached is not None, doubt=doubt)


def _blocks(lines: Sequence[str]) -> tuple[str, list[list[str]]]:
    starts = [number for number, line in enumerate(lines) if _LOG_GPU.match(line)]
    head = "\n".join(lines[: starts[0]] if starts else lines)
    ends = [*starts[1:], len(lines)][: len(starts)]
    return head, [list(lines[start:end]) for start, end in zip(starts, ends, strict=True)]


def _is_whole(block: Sequence[str]) -> bool:
    filled = [line.strip() for line in block if line.strip()]
    at = next((number for number, line in enumerate(filled) if line.startswith("Processes")), None)
    if at is None:
        return False
    line = re.sub(r"\s+", " ", filled[at])
    # With processes, the last line of each gives its memory.
    return (
        line == "Processes : None" or re.search(r"Used GPU Memory\s*: (?:\d+ MiB|N/A|\[N/A\])$", filled[-1]) is not None
    )


def _log_fields(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    path: list[tuple[int, str]] = []
    for line in lines:
        match = _LOG_LINE.fullmatch(line[:300].rstrip())
        if match is None or not match["key"].strip():
            continue
        indent, key = len(match["indent"]), re.sub(r"[^a-z0-9]+", "_", match["key"].strip().lower())
        while path and path[-1][0] >= indent:
            path.pop()
        names = [name for _, name in path]
        if match["value"] is None:
            path.append((indent, key))
        elif not (names and names[0] == "processes"):
            yield "/".join([*names, key]), match["value"]
