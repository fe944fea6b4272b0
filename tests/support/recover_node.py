"""The state machine that recovers a node, with answers for its steps."""

from typing import Any

from nodeheal.contract.vocabulary import Ending, Step
from tests.support.steps import INCIDENT, NODE, decision, result
from tests.support.walker import Sequence, Walk, walk

GIVEN = {"incident_id": INCIDENT, "node_id": NODE}


CLOSE = decision(Step.CLOSE, Ending.RECOVERED)


STEPS = {
    Step.ISOLATE: "Isolate node",
    Step.FREEZE_EVIDENCE: "Freeze evidence",
    Step.REBOOT: "Reboot node",
    Step.DIAGNOSE: "Run diagnostics",
    Step.REPLACE: "Replace node",
    Step.RETURN: "Return to service",
    Step.RESTART_WORKLOAD: "Stop gang",
}


def recover(decisions: list[Any], **changed: Any) -> Walk:
    """Walk with these decisions; every task does as it should, unless `changed` says otherwise."""
    answers: dict[str, Any] = {name: result(step) for step, name in STEPS.items()}
    answers |= {name: result(Step.RESTART_WORKLOAD) for name in ("Find checkpoint", "Launch gang")}
    answers |= {"Open incident": {}, "Page operators": {"MessageId": "1"}}
    answers |= {"Wait for approval": result(Step.WAIT), "Wait for condition": result(Step.WAIT)}
    answers |= {"Mark escalated": {}}
    answers |= {"End incident": result(Step.CLOSE)}
    answers |= {"Decide next step": Sequence(decisions)}
    return walk("recover_node", GIVEN, {**answers, **{name.replace("_", " "): a for name, a in changed.items()}})


TRANSITIONS_AT_MOST = 20  # of a recovery by reboot
