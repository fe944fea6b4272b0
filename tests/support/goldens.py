"""What tools print: recordings in the shapes of their documents and sources, and kernel lines and DCGM documents."""

import json
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[1] / "golden" / "tools"


def golden(name: str) -> str:
    """The text of one recording."""
    return (DIRECTORY / name).read_text("utf-8")


def names(*patterns: str) -> list[str]:
    """The recordings whose names fit."""
    return sorted({path.name for pattern in patterns for path in DIRECTORY.glob(pattern)})


def cut_off(name: str, stride: int = 29) -> list[str]:
    """What is left of a recording cut off here and there: at every line's end, all over its end, and in between."""
    text = golden(name).rstrip()
    line_ends = [at for at, character in enumerate(text) if character == "\n"][:: 1 + len(text) // 8000]
    places = {*range(0, len(text), stride + len(text) // 400), *range(max(0, len(text) - 80), len(text))}
    return [text[:place] for place in sorted(places | set(line_ends) | {end + 1 for end in line_ends})]


def efa_cards(number: int) -> str:
    """What fi_info says of a node with so many EFA cards."""
    blocks = golden("efa_fi_info_healthy.txt").split("provider: ")[1 : 1 + 2 * number]
    return "".join(f"provider: {block}" for block in blocks)


def report(severity: str, *sections: str, number: int = 1, section_severity: str = "") -> list[str]:
    """The lines of one report; each section is its lines.

    Linux 5.15, drivers/acpi/apei/ghes.c, __ghes_print_estatus, and drivers/firmware/efi/cper.c, cper_estatus_print.
    """
    head = [
        "Hardware error from APEI Generic Hardware Error Source: 5",
        f"event severity: {severity}",
    ]
    body = [
        line
        for index, section in enumerate(sections)
        for line in (f" Error {index}, type: {section_severity or severity}", *section.splitlines())
    ]
    return [f"{{{number}}}[Hardware Error]: {line}" for line in head + body]


def pcie(address: str) -> str:
    """Linux 5.15, drivers/firmware/efi/cper.c, cper_print_pcie."""
    return (
        "  section_type: PCIe error\n  port_type: 4, root port\n  version: 3.0\n  command: 0x0547, status: 0x4010\n"
        f"  device_id: {address}\n  slot: 25\n  secondary_bus: 0xca\n  vendor_id: 0x8086, device_id: 0x347a\n"
        "  class_code: 060400\n  bridge: secondary_status: 0x2800, control: 0x0013"
    )


SLOW = "Bandwidth of GPU 1 in direction d2h of 2.00 did not exceed minimum required bandwidth of 20.00."


def dcgm_4(**statuses: str) -> str:
    """DCGM 4: results per entity and a summary per test. What fails is slow."""
    slow = {"warnings": warning(30, SLOW)}
    return document_4(
        [results_4(name, status, **(slow if status.lower() == "fail" else {})) for name, status in statuses.items()]
    )


def results_4(name: str, status: str, **more: Any) -> dict[str, Any]:
    results = [entity("GPU", 0, "Pass"), {**entity("GPU", 1, status), **more}, entity("CPU", 0, "Skip")]
    return {"name": name, "results": results, "test_summary": {"status": status}}


def warning(error_id: int, text: str, severity: int = 2) -> list[dict[str, Any]]:
    return [{"error_id": error_id, "error_category": 10, "error_severity": severity, "warning": text}]


def entity(group: str, number: int, status: str) -> dict[str, Any]:
    return {"entity_group": group, "entity_group_id": 1, "entity_id": number, "status": status}


def document_4(tests: list[dict[str, Any]]) -> str:
    categories = [{"category": "Hardware", "tests": tests}]
    return json.dumps(
        {"DCGM Diagnostic": {"test_categories": categories}, "entity_groups": [], "metadata": {"version": "4.2.3"}}
    )
