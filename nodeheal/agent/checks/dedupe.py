"""Reports one cause once: where several checks see it, one reports it. The others return unclear and name that
check.
"""

from collections.abc import Callable
from dataclasses import replace

from nodeheal.agent.checks import gpu_count, nvidia_services
from nodeheal.agent.checks.check import CheckContext, NodeCheckResult, Problem
from nodeheal.contract.vocabulary import Family

# By NVML's error: which check reports it, and whether that check sees it. These two checks need neither library nor
# tool. A library that was opened before an upgrade does not notice the mismatch.
_REPORTED_BY: dict[str, tuple[str, Callable[[CheckContext], bool]]] = {
    "DRIVER_MISMATCH": (nvidia_services.CHECK.name, nvidia_services.sees_mismatch),
    "DRIVER_NOT_LOADED": (gpu_count.CHECK.name, gpu_count.sees_missing),
    "NO_DEVICES": (gpu_count.CHECK.name, gpu_count.sees_missing),
}


def without_duplicates(look: NodeCheckResult, place: CheckContext) -> NodeCheckResult:
    """Drop the problems that another check reports, where that check is selected and sees them."""
    others = {problem: owner for problem in look.problems if (owner := _reported_by(problem, place))}
    pointers = [f"{problem.finding.message}: see {owner}" for problem, owner in others.items()]
    kept = tuple(problem for problem in look.problems if problem not in others)
    return replace(look, problems=kept, unclear="; ".join(filter(None, (look.unclear, *pointers))))


def _reported_by(problem: Problem, place: CheckContext) -> str:
    if problem.finding.family is not Family.nvml or problem.finding.code not in _REPORTED_BY:
        return ""
    name, sees = _REPORTED_BY[problem.finding.code]
    is_chosen = place.config.checks is None or name in place.config.checks
    return name if is_chosen and sees(place) else ""
