"""What a node's diagnosis is worth: its own verdict, and how it compares with the node's last good run."""

from collections.abc import Mapping, Sequence

from nodeheal.contract.measures import regressions
from nodeheal.contract.results import TESTS_NAMED, Diagnosed, StepResult
from nodeheal.contract.vocabulary import Outcome, Verdict
from nodeheal.ports import Ports
from nodeheal.services.steps import save_node


def judge(
    blank: StepResult, verdict: Verdict, failed: Sequence[str], measured: Mapping[str, float], ports: Ports
) -> StepResult:
    """The result of the diagnosis. One that passed and is not worse than the last good one becomes the last good one.

    Judging the same answer twice gives the same result.
    """
    outcome, reason = judged(verdict, ", ".join(failed)[:800])
    node = ports.nodes.get(blank.node_id)
    if outcome is Outcome.DONE and node is not None and measured:
        worse = regressions(measured, node.diagnostic_baseline, _tolerated_percent(blank))
        if worse:
            outcome, reason = Outcome.UNKNOWN, f"diagnostics passed, but {'; '.join(worse)[:800]}"
        else:
            save_node(ports, node, diagnostic_baseline=dict(measured))
    found = Diagnosed(failed_tests=tuple(failed[:TESTS_NAMED])) if failed else None
    return blank.model_copy(update={"outcome": outcome, "reason": reason, "facts": found})


def _tolerated_percent(blank: StepResult) -> float:
    """As the policy had it when the node was asked: the function that judges reads no policy."""
    known = blank.facts.tolerated_percent if isinstance(blank.facts, Diagnosed) else None
    return 100.0 if known is None else known


def judged(verdict: Verdict, failed_tests: str) -> tuple[Outcome, str]:
    """What a verdict is worth. Only OK is a proof. DEGRADED (settings, not hardware) is for a human, not a swap."""
    if verdict is Verdict.OK:
        return Outcome.DONE, "diagnostics passed"
    if verdict is Verdict.DEGRADED:
        return Outcome.UNKNOWN, f"diagnostics found the node's settings wanting: {failed_tests or 'see its output'}"
    if verdict is Verdict.UNKNOWN:
        return Outcome.UNKNOWN, f"diagnostics gave no result{f' ({failed_tests})' if failed_tests else ''}"
    return Outcome.FAILED, f"diagnostics failed: {failed_tests or verdict}"
