"""Documents that DCGM's diagnostics print."""

import json
from typing import Any

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
