"""The condition that shows a broken accelerator at the node's scheduler: a word for programs, and a line for people."""

import re

from nodeheal.contract.names import NEURON_ERROR
from nodeheal.contract.vocabulary import Action, Family
from nodeheal.domain.faults.diagnosis import Fault

ACCELERATORS = frozenset({Family.xid, Family.sxid, Family.dcgm, Family.nvml, Family.nvrm_other, Family.neuron})
_NOT_SHOWN = (Action.OBSERVE, Action.RESTART_WORKLOAD)  # nothing is wrong with the accelerator, or not yet
_NO_LETTER = re.compile(r"[^A-Za-z0-9_]")
_CHARACTERS = 128


def reason_of(fault: Fault) -> str | None:
    """Returns the word for the fault, for Neuron devices the one of AWS's node-problem-detector. None: it breaks no
    accelerator.
    """
    event = fault.event
    if event.family not in ACCELERATORS or fault.action in _NOT_SHOWN:
        return None
    family = NEURON_ERROR if event.family is Family.neuron else event.family.value.capitalize()
    return f"{family}{_NO_LETTER.sub('_', event.code)}"[:_CHARACTERS]


def message_of(fault: Fault, incident_id: str, *, is_drill: bool) -> str:
    """Returns the line for people: what is broken, and which incident has more."""
    component = f" on {fault.event.component}" if fault.event.component else ""
    return f"{'drill: ' if is_drill else ''}{fault.title}{component}, {incident_id}"
