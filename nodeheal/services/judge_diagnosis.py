"""What a node's diagnosis is worth: its own verdict, and how it compares with the node's last good run."""

from collections.abc import Mapping, Sequence

from nodeheal.contract.measures import regressions
from nodeheal.contract.steps import StepResult
from nodeheal.contract.vocabulary import Outcome, Verdict
from nodeheal.ports import Ports
from nodeheal.services.steps import save_node

FAILED_TESTS = "failed_tests"
TOLERANCE = "regression_percent"  # of the policy that it was asked under: whoever judges has no policy


def judge(
    blank: StepResult, verdict: Verdict, failed: Sequence[str], measured: Mapping[str, float], ports: Ports
) -> StepResult:
    """The result of the diagnosis. One that passed and is not worse than the last good one becomes the last good one.

    Judging the same answer twice gives the same result.
    """
    outcome, reason = judged(verdict, ", ".join(failed)[:800])
    node = ports.nodes.get(blank.node_id)
    if outcome is Outcome.DONE and node is not None and measured:
        worse = regressions(measured, node.good_run, float(blank.evidence.get(TOLERANCE, "100")))
        if worse:
            outcome, reason = Outcome.UNKNOWN, f"diagnostics passed, but {'; '.join(worse)[:800]}"
        else:
            save_node(ports, node, good_run=dict(measured))
    shown = {FAILED_TESTS: ",".join(failed)[:500]} if failed else {}
    return blank.model_copy(update={"outcome": outcome, "reason": reason, "evidence": shown})


def judged(verdict: Verdict, failed_tests: str) -> tuple[Outcome, str]:
    """What a verdict is worth. Only OK is a proof. DEGRADED (settings, not hardware) is for a human, not a swap."""
    if verdict is Verdict.OK:
        return Outcome.DONE, "diagnostics passed"
    if verdict is Verdict.DEGRADED:
        return Outcome.UNKNOWN, f"diagnostics found the node's settings wanting: {failed_tests or 'see its output'}"
    if verdict is Verdict.UNKNOWN:
        return Outcome.UNKNOWN, f"diagnostics gave no result{f' ({failed_tests})' if failed_tests else ''}"
    return Outcome.FAILED, f"diagnostics failed: {failed_tests or verdict}"
