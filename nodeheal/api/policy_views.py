"""Views of policy documents: the one in force, what a check says about one, and how two of them differ."""

from pydantic import JsonValue

from nodeheal.api.base_view import View
from nodeheal.contract.vocabulary import Action, NextStepCondition, Step


class PolicyCheck(View):
    """A valid document. `warnings`: what is probably not meant in it."""

    file: str
    is_valid: bool
    version: str
    warnings: tuple[str, ...]


class SettingChange(View):
    """A setting that differs, with defaults filled in. `knob`: its path in the document; `about`: what it means."""

    knob: str
    about: str
    before: JsonValue
    after: JsonValue


class Treatment(View):
    """How a policy treats a fault in a pool, the first time that it comes. `mode`: empty: no action needs one."""

    first_step: Step
    ladder: tuple[Action, ...]
    next_rung: NextStepCondition
    mode: str


class FaultChange(View):
    """A fault that would be treated differently in a pool."""

    fault: str
    name: str
    pool: str
    before: Treatment
    after: Treatment


class PolicyDiff(View):
    """What differs between two documents. `versions`: of the old one and of the new one."""

    versions: tuple[str, str]
    knobs: tuple[SettingChange, ...]
    faults: tuple[FaultChange, ...]


class PolicyInForce(View):
    """The deployment of the document in force. `version`: the document's own; where it is not valid, why."""

    version: str
    appconfig_version: int
    deployment: int
    at: str
    why: str


class PolicyDocument(PolicyInForce):
    """The document in force, with its deployment."""

    document: JsonValue
