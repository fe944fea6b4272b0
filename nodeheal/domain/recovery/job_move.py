"""Whether a job waits until its node is healed, or goes on elsewhere: what is sooner, by measured times. Pure."""

from dataclasses import dataclass
from datetime import timedelta
from statistics import median

from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, NextRung, Outcome, Provider, Step
from nodeheal.domain.faults.assessment import Case
from nodeheal.domain.humanize import counted, lasting
from nodeheal.domain.policy.policy_models import LONGEST
from nodeheal.domain.recovery import guardrails
from nodeheal.domain.recovery.decision_builder import Spell
from nodeheal.domain.recovery.ladder import next_rungs
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.verbs import VERBS


@dataclass(frozen=True)
class Expected:
    """How long something takes here, and how that is known, in words."""

    seconds: float
    told: str


def move_job(say: Spell, seen: Progress, case: Case) -> Decision | None:
    """Let the job go on without this node, where that is sooner; None: it waits, or nothing is owed.

    On nodes that have passed their diagnostics lately at once; else one free node is to pass them first, where even
    that is sooner. Asked before each rung, so a node that its reboot has not healed does not keep its job either.
    """
    if not _is_due(seen) or case.fault.action is Action.ISOLATE or not owes_job(say, seen, case):
        return None
    if guardrails.why_hands_off(say, case.fault):
        return None  # nothing is restarted there, either
    around, allowed = say.history.surroundings, say.policy.move_job_seconds
    here = _until_healed(say, seen, case)
    if seen.stand_in is not None:
        return _go(say, f"{here.told}, and {seen.stand_in.node_id} has passed its diagnostics")
    if around.free_nodes:
        free = counted(around.free_nodes, "free node of the pool has", "free nodes of the pool have")
        return _go(say, f"{here.told}, and {free} passed diagnostics") if here.seconds > allowed else None
    there = _until_proven(say)
    if not around.stand_in or here.seconds - there.seconds <= allowed:
        return None
    sooner = f"{there.told}, and {around.stand_in} is free"
    why = f"{here.told}; {sooner}: it is to pass its diagnostics, so that {say.job_id} can go on there"
    # A node that says nothing must not hold up the repair for longer than it could have saved.
    until = min(say.policy.deadlines.diagnose_seconds, int(here.seconds - allowed))
    return say.step(Step.DIAGNOSE, why, node_id=around.stand_in, is_move=True, deadline_seconds=until)


def owes_job(say: Spell, seen: Progress, case: Case) -> bool:
    """Whether the job is still to be brought back. One that had ended by itself before anything was touched is not."""
    if say.job_id is None or (seen.restart and seen.restart.outcome is Outcome.DONE):
        return False
    killed_the_job = any(fault.action is Action.RESTART_WORKLOAD for fault in case.beside)
    return case.fault.next_rung is not NextRung.job_end or killed_the_job


def _is_due(seen: Progress) -> bool:
    """Whether a rung comes next, and no move was tried: one that was refused is not tried again."""
    is_tried = seen.move is not None or seen.restart is not None
    return not is_tried and seen.returned is None and not seen.awaits_proof and not seen.is_proven


def _go(say: Spell, why: str) -> Decision:
    reason = f"{say.job_id} goes on elsewhere at once, from its last checkpoint: {why}"
    return say.step(Step.RESTART_WORKLOAD, reason, Action.RESTART_WORKLOAD, is_move=True)


def _until_healed(say: Spell, seen: Progress, case: Case) -> Expected:
    """How long the next rung takes, its proof included."""
    rungs, _ = next_rungs(case.fault, seen, say)
    if not rungs or (seen.proof is not None and seen.proof.outcome is Outcome.UNKNOWN):
        return Expected(LONGEST, "a human has to look at this node first")
    past = say.history.surroundings.recovery_seconds.get(rungs[0], ())
    return _known(f"{VERBS[rungs[0]].with_article} here", past, _at_most(say, rungs[0]))


def _until_proven(say: Spell) -> Expected:
    return _known("a diagnosis here", say.history.surroundings.proof_seconds, say.policy.deadlines.diagnose_seconds)


def _at_most(say: Spell, rung: Action) -> float:
    """What the policy allows: nobody has seen one here yet."""
    known = say.policy.deadlines
    if rung is Action.REPLACE and say.history.surroundings.provider is Provider.hybrid:
        return _until_proven(say).seconds  # a spare is swapped in at once, and diagnosed
    verb = VERBS[rung]
    stable = say.policy.stable_seconds if verb.keeps_machine else 0
    return known.of(verb) + stable + known.diagnose_seconds


def _known(what: str, past: tuple[float, ...], at_most: float) -> Expected:
    if not past:
        return Expected(at_most, f"{what} may take {lasting(timedelta(seconds=at_most))}")
    usual = median(past)
    by = "the last one" if len(past) == 1 else f"the last {len(past)}"
    return Expected(usual, f"{what} takes {lasting(timedelta(seconds=usual))} by {by}")
