"""Parses the output of `dcgmi health -c -j`, of DCGM 3 and 4. Pure: text in, a report out.

dcgmi lists only problems: an overall word, then for each entity and subsystem a word and DCGM's sentences, wrapped over
several strings. It gives no error ids, so the sentences are recognised.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.dcgm_errors import NAMES, error_finding, is_left_out, names_of
from nodeheal.parsers.finding import Finding, ToolReport
from nodeheal.parsers.nvlinks import LEFT_OUT, NvLinks
from nodeheal.parsers.tool_report import ReportedFault, first_line, first_object, sum_up, unknown

# The subsystems that DCGM watches. An unknown sentence is named after its subsystem.
SYSTEMS = frozenset(
    ("PCIE", "NVLINK", "PMU", "MCU", "MEMORY", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "NVSWITCH", "CONNECTX")
)
UNNAMED = "HEALTH_UNNAMED"

CODES = frozenset(f"dcgm/{code}" for code in (*NAMES, *(f"HEALTH_{name}" for name in SYSTEMS), UNNAMED))

_OVERALL = "Overall Health"
# 0, 10 and 20 are the API's numbers for the same.
_WORDS = {
    "healthy": Verdict.OK,
    "pass": Verdict.OK,
    "0": Verdict.OK,
    "warning": Verdict.DEGRADED,
    "warn": Verdict.DEGRADED,
    "10": Verdict.DEGRADED,
    "failure": Verdict.FAILED,
    "fail": Verdict.FAILED,
    "20": Verdict.FAILED,
}


def parse_health(output: str, links: NvLinks = NvLinks.UNKNOWN) -> ToolReport:
    """Parse the results of the host engine's health watches, on a node with these NVLinks. Watches that are off, or an
    engine out of reach, are UNKNOWN.
    """
    body = first_object(output).get("body")
    overall = _value(body.get(_OVERALL)) if isinstance(body, dict) else None
    if not isinstance(body, dict) or overall is None:
        line = first_line(output)
        return unknown(f"the output is not a complete DCGM health report{f': {line}' if line else ''}")
    faults, strange = _sick(body, links), _strange_words(body)
    word = _WORDS.get(overall.lower())
    doubt = f"unknown health: {', '.join(strange)}"[:300] if strange else ""
    systems = [system for _, entity in _entities(body) for system in _systems(entity)]
    left_out = any(is_left_out(code, links) for name, system in systems for code in _codes(name, system))
    is_explained = any(word in _words_of(entity) for _, entity in _entities(body))
    if word in (Verdict.DEGRADED, Verdict.FAILED) and not is_explained:
        message = f"{_OVERALL}: {overall}"
        faults.append(ReportedFault(word, Finding(Family.dcgm, UNNAMED, None, message), "overall health"))
    report = sum_up(faults, f"the host engine sees no {'other ' if left_out else ''}fault", doubt=doubt)
    return replace(report, reason=f"{LEFT_OUT}; {report.reason}") if left_out else report


def _sick(body: dict[str, object], links: NvLinks) -> list[ReportedFault]:
    return [fault for component, entity in _entities(body) for fault in _entity_faults(component, entity, links)]


def _entities(body: dict[str, object]) -> list[tuple[str, dict[str, object]]]:
    return [
        (f"{group} {number}"[:60], entity)
        for group, entities in body.items()
        if group != _OVERALL
        for number, entity in _children(entities)
    ]


def _words_of(entity: dict[str, object]) -> list[Verdict | None]:
    """Return the health words of an entity and of its subsystems."""
    return [_word(entity), *(_word(system) for _, system in _systems(entity))]


def _systems(entity: dict[str, object]) -> list[tuple[str, dict[str, object]]]:
    return [system for name, errors in _children(entity) if name == "Errors" for system in _children(errors)]


def _entity_faults(component: str, entity: dict[str, object], links: NvLinks) -> Iterator[ReportedFault]:
    systems = _systems(entity)
    for name, system in systems:
        yield from _system_faults(component, name, system, links)
    word = _word(entity)
    if word in (Verdict.DEGRADED, Verdict.FAILED) and not any(_word(system) is word for _, system in systems):
        yield ReportedFault(word, Finding(Family.dcgm, UNNAMED, component, f"{component}: {_value(entity)}"), component)


def _system_faults(component: str, name: str, system: dict[str, object], links: NvLinks) -> Iterator[ReportedFault]:
    word = _word(system)
    for code in _codes(name, system):
        finding = error_finding(code, component, f"{name}: {_text(system) or _value(system)}", links)
        if finding is not None and word is not None:
            yield ReportedFault(finding.verdict or word, finding, name[:60])


def _codes(name: str, system: dict[str, object]) -> tuple[str, ...]:
    """Return the errors of a subsystem that is not healthy."""
    if _word(system) not in (Verdict.DEGRADED, Verdict.FAILED):
        return ()
    return names_of(system.get("error_id"), _text(system)) or (_system_code(name),)


def _text(system: dict[str, object]) -> str:
    overflow = system.get("overflow")
    return " ".join(str(line).strip() for line in overflow) if isinstance(overflow, list) else ""


def _system_code(name: str) -> str:
    """Return the code of a subsystem: `Memory system` is MEMORY."""
    system = re.sub(r"[^A-Z0-9]+", "_", name.upper().removesuffix(" SYSTEM")).strip("_")
    return f"HEALTH_{system}" if system in SYSTEMS else UNNAMED


def _strange_words(body: dict[str, object]) -> list[str]:
    """Return invalid health words: `Internal error`, or a part of one."""
    nodes = [node for group in body.values() for node in _descendants(group)]
    words = dict.fromkeys(value for node in nodes if (value := _value(node)) is not None)
    return [word for word in words if word.lower() not in _WORDS]


def _descendants(node: object, depth: int = 6) -> Iterator[dict[str, object]]:
    if isinstance(node, dict) and depth:
        yield node
        for _, child in _children(node):
            yield from _descendants(child, depth - 1)


def _children(node: object) -> list[tuple[str, dict[str, object]]]:
    children = node.get("children") if isinstance(node, dict) else None
    named = children.items() if isinstance(children, dict) else ()
    return [(str(name), child) for name, child in named if isinstance(child, dict)]


def _value(node: object) -> str | None:
    value = node.get("value") if isinstance(node, dict) else None
    return None if value is None else str(value)[:100]


def _word(node: dict[str, object]) -> Verdict | None:
    return _WORDS.get((_value(node) or "").lower())
