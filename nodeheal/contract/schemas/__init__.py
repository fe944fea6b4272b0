"""JSON Schemas, generated, committed and diffed: the events', for whoever writes an agent of their own, and job.yaml's,
for editors."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from nodeheal.contract.health_event import CheckpointFound, DiagnosticsFinished, EvidenceFrozen, HealthEvent, NodeBooted
from nodeheal.contract.job_spec import JobSpec

if TYPE_CHECKING:
    from pydantic import BaseModel

FOLDER = Path(__file__).parent
DOCUMENTS: "dict[str, type[BaseModel]]" = {
    "health_event": HealthEvent,
    "node_booted": NodeBooted,
    "diagnostics_finished": DiagnosticsFinished,
    "evidence_frozen": EvidenceFrozen,
    "job": JobSpec,
    "checkpoint_found": CheckpointFound,
}


def render() -> "dict[Path, str]":
    """What each schema file must hold."""
    return {FOLDER / f"{name}.json": _schema(model) for name, model in DOCUMENTS.items()}


def _schema(model: "type[BaseModel]") -> str:
    # "validation": what is accepted, so a field with a default may be absent.
    return json.dumps(model.model_json_schema(mode="validation"), indent=2, ensure_ascii=False) + "\n"
