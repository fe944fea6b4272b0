"""One cause is one event: of what several checks see, one tells. The others point to it, and are unclear."""

from collections.abc import Callable
from dataclasses import replace

from nodeheal.agent.checks import gpu_count, nvidia_services
from nodeheal.agent.checks.check import CheckResult, Place, Problem
from nodeheal.contract.vocabulary import Family

# By the word that NVML has for it: who tells, and whether it sees it. These two need neither library nor tool; and a
# library that was opened before it was upgraded does not notice that it no longer fits.
_REPORTED_BY: dict[str, tuple[str, Callable[[Place], bool]]] = {
    "DRIVER_MISMATCH": (nvidia_services.CHECK.name, nvidia_services.sees_mismatch),
    "DRIVER_NOT_LOADED": (gpu_count.CHECK.name, gpu_count.sees_missing),
    "NO_DEVICES": (gpu_count.CHECK.name, gpu_count.sees_missing),
}


def without_duplicates(look: CheckResult, place: Place) -> CheckResult:
    """The look without what another check tells: one that is chosen, and sees it."""
    others = {problem: owner for problem in look.problems if (owner := _reported_by(problem, place))}
    pointers = [f"{problem.finding.message}: see {owner}" for problem, owner in others.items()]
    kept = tuple(problem for problem in look.problems if problem not in others)
    return replace(look, problems=kept, unclear="; ".join(filter(None, (look.unclear, *pointers))))


def _reported_by(problem: Problem, place: Place) -> str:
    if problem.finding.family is not Family.nvml or problem.finding.code not in _REPORTED_BY:
        return ""
    name, sees = _REPORTED_BY[problem.finding.code]
    is_chosen = place.config.checks is None or name in place.config.checks
    return name if is_chosen and sees(place) else ""
