"""Describes the cause of a job's failure: how its ranks ended, and what its nodes reported near that time. Pure.

A secondary fault is never a cause: XID 45 says that a program was torn down, not why.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from nodeheal.contract.vocabulary import Action, Family
from nodeheal.domain.faults.catalog import find, title
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decision_context import Observation

NEAR = timedelta(seconds=60)  # a finding this close to the failure may explain it
_NAMED = 12  # ranks, and findings of each kind


def failed_at(run: Run) -> datetime | None:
    """Returns when the first rank ended badly, of those whose end has a time."""
    ends = [t.stopped_at for t in run.tasks if t.exit_code != 0 and t.stopped_at is not None]
    return min(ends, default=run.ended_at)


def rank_endings(run: Run) -> str:
    """Returns the exit codes by rank, in order of time. The first one to end is the most likely cause."""
    dated = [(task.stopped_at, task) for task in run.tasks if task.stopped_at is not None]
    ended = sorted(dated, key=lambda pair: (pair[0], pair[1].rank))
    if not ended:
        return ""
    first = ended[0][0]
    texts = [f"rank {t.rank} {_code(t)} {_after(at, first)}" for at, t in ended[:_NAMED]]
    more = f", and {len(ended) - _NAMED} more" if ended[_NAMED:] else ""
    alive = sum(not task.has_stopped for task in run.tasks)
    still = f"; {alive} of {len(run.tasks)} still ran" if alive else ""
    return f"Ranks in order of their ends: {', '.join(texts)}{more}{still}."


def findings_on_nodes(run: Run, observations: Sequence[Observation], policy: RecoveryPolicy) -> str:
    """Returns the findings on the run's nodes near its failure: first those that ask for an action."""
    at, gang = failed_at(run), {task.node_id for task in run.tasks}
    if at is None:
        return ""
    near = [s for s in observations if s.node_id in gang and abs(s.at - at) <= NEAR and s.family is not Family.task]
    near.sort(key=lambda s: (s.at, s.node_id, s.event_id))
    secondary = [s for s in near if _is_secondary(s, policy)]
    causes = [s for s in near if not _is_secondary(s, policy)]
    return " ".join(
        (
            f"Findings on its nodes within {NEAR.seconds} s: {_listed(causes, at) or 'none'}.",
            *([f"Secondary faults or notes, and no causes: {_listed(secondary, at)}."] if secondary else []),
        )
    )


def _is_secondary(observation: Observation, policy: RecoveryPolicy) -> bool:
    """Tells whether the finding is secondary by the policy, or asks for nothing by the catalog."""
    row = find(observation.family, observation.code, observation.subcode)
    is_note = row is not None and row.ladder == (Action.OBSERVE,)
    return is_note or f"{observation.family.value}/{observation.code}" in policy.correlation.secondary_faults


def _listed(observations: Sequence[Observation], failed: datetime) -> str:
    texts = [f"{s.node_id} {title(s.family, s.code, s.subcode)} {_around(s.at, failed)}" for s in observations[:_NAMED]]
    return "; ".join(texts) + (f"; and {len(observations) - _NAMED} more" if observations[_NAMED:] else "")


def _code(task: GangTask) -> str:
    if task.was_stopped:
        return "stopped as asked"
    return "without a code" if task.exit_code is None else f"with {task.exit_code}"


def _after(at: datetime, first: datetime) -> str:
    return f"at {at:%H:%M:%S} UTC" if at == first else f"{(at - first).total_seconds():.1f} s later"


def _around(at: datetime, failed: datetime) -> str:
    seconds = (at - failed).total_seconds()
    return f"{abs(seconds):.1f} s {'after' if seconds > 0 else 'before'} it"
