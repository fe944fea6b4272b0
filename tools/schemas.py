"""`make schemas`: writes the JSON Schemas of events and jobs. The model of a verb's answer comes from the verb."""

import json
from pathlib import Path

from pydantic import BaseModel

from nodeheal.contract.health_event import HealthEvent, NodeBooted, NodeHardwareReported
from nodeheal.contract.job_spec import JobSpec
from nodeheal.contract.schemas import FOLDER
from nodeheal.operations.verbs import ANSWERS


def documents() -> dict[str, type[BaseModel]]:
    """Return the model of each schema, by the name of its file."""
    answers = {detail_type.lower().replace(" ", "_"): event for detail_type, event in ANSWERS.items()}
    reports: dict[str, type[BaseModel]] = {
        "health_event": HealthEvent,
        "node_booted": NodeBooted,
        "node_hardware_reported": NodeHardwareReported,
    }
    return {**reports, "job": JobSpec, **answers}


def render() -> dict[Path, str]:
    """Return the content of each schema file."""
    return {FOLDER / f"{name}.json": _schema(model) for name, model in documents().items()}


def _schema(model: type[BaseModel]) -> str:
    # "validation": what is accepted, so a field with a default may be absent.
    return json.dumps(model.model_json_schema(mode="validation"), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path, text in render().items():
        path.write_text(text, encoding="utf-8")
