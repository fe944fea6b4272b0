"""What speaks for the cause of a failure, in words: how its ranks ended, and what its nodes reported around that. Pure.

An echo is never a cause: XID 45 says that a program was torn down, and not what tore it down.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from nodeheal.contract.vocabulary import Action, Family
from nodeheal.domain.faults.catalog import find, title
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decision_context import Sighting

NEAR = timedelta(seconds=60)  # a finding this close to the failure may explain it
_NAMED = 12  # ranks, and findings of each kind


def failed_at(run: Run) -> datetime | None:
    """When the first of its ranks ended otherwise than well, of those whose end is dated."""
    ends = [t.stopped_at for t in run.tasks if t.exit_code != 0 and t.stopped_at is not None]
    return min(ends, default=run.ended_at)


def how_it_ended(run: Run) -> str:
    """Exit codes by rank, in order of time: who ends first is the cause sooner than who ends last."""
    dated = [(task.stopped_at, task) for task in run.tasks if task.stopped_at is not None]
    ended = sorted(dated, key=lambda one: (one[0], one[1].rank))
    if not ended:
        return ""
    first = ended[0][0]
    told = [f"rank {t.rank} {_code(t)} {_after(at, first)}" for at, t in ended[:_NAMED]]
    more = f", and {len(ended) - _NAMED} more" if ended[_NAMED:] else ""
    alive = sum(not task.has_stopped for task in run.tasks)
    still = f"; {alive} of {len(run.tasks)} still ran" if alive else ""
    return f"Ranks in order of their ends: {', '.join(told)}{more}{still}."


def what_nodes_said(run: Run, sightings: Sequence[Sighting], policy: RecoveryPolicy) -> str:
    """The findings on the run's nodes around its failure: what asks for something first, then what only echoes."""
    at, gang = failed_at(run), {task.node_id for task in run.tasks}
    if at is None:
        return ""
    near = [s for s in sightings if s.node_id in gang and abs(s.at - at) <= NEAR and s.family is not Family.task]
    near.sort(key=lambda s: (s.at, s.node_id, s.event_id))
    echoes = [s for s in near if _is_echo(s, policy)]
    causes = [s for s in near if not _is_echo(s, policy)]
    return " ".join(
        (
            f"Findings on its nodes within {NEAR.seconds} s: {_listed(causes, at) or 'none'}.",
            *([f"Echoes or notes, and no causes: {_listed(echoes, at)}."] if echoes else []),
        )
    )


def _is_echo(sighting: Sighting, policy: RecoveryPolicy) -> bool:
    """Whether it follows from something else, as the policy says, or asks for nothing, as the catalog does."""
    row = find(sighting.family, sighting.code, sighting.subcode)
    is_note = row is not None and row.ladder == (Action.OBSERVE,)
    return is_note or f"{sighting.family.value}/{sighting.code}" in policy.correlation.echoes


def _listed(sightings: Sequence[Sighting], failed: datetime) -> str:
    told = [f"{s.node_id} {title(s.family, s.code, s.subcode)} {_around(s.at, failed)}" for s in sightings[:_NAMED]]
    return "; ".join(told) + (f"; and {len(sightings) - _NAMED} more" if sightings[_NAMED:] else "")


def _code(task: GangTask) -> str:
    if task.was_stopped:
        return "stopped as asked"
    return "without a code" if task.exit_code is None else f"with {task.exit_code}"


def _after(at: datetime, first: datetime) -> str:
    return f"at {at:%H:%M:%S} UTC" if at == first else f"{(at - first).total_seconds():.1f} s later"


def _around(at: datetime, failed: datetime) -> str:
    seconds = (at - failed).total_seconds()
    return f"{abs(seconds):.1f} s {'after' if seconds > 0 else 'before'} it"
