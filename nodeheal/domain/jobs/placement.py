"""Chooses the nodes of a job. Pure: a service claims them afterwards with conditional writes."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.node import ABSENT, Node
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import Job

REASONS_NAMED = 6


@dataclass(frozen=True)
class Placement:
    """The nodes, in order of rank; or none, and why. `may_change`: waiting can help."""

    nodes: tuple[Node, ...] = ()
    why: str = ""
    may_change: bool = True


def choose(
    job: Job, known: Sequence[Node], pauses: Pauses, unfit: Collection[str], opted_out: Collection[str], now: datetime
) -> Placement:
    """Returns nodes for every rank, as near to one another as possible, and none that is `unfit` (by its id).

    `known`: all nodes of the pool. Nodes that nodeheal must not touch are chosen last, because nobody would repair
    them.
    """
    paused = pauses.why_pool_is_paused(job.pool, now)
    if paused:
        return Placement(why=f"{paused}: no job starts there")
    able = _able(job, known)
    if len(able) < job.nodes:
        return Placement(why=_too_small(job, known, able), may_change=False)
    verdicts = {node.node_id: _why_not(node, unfit, pauses, now) for node in able}
    free = [node for node in able if not verdicts[node.node_id]]
    if len(free) < job.nodes + job.spares:
        return Placement(why=_too_few(job, free, verdicts))
    return Placement(tuple(_nearest(job.nodes, free, opted_out)))


def never_fits(job: Job, known: Sequence[Node]) -> str:
    """Returns why the job would never fit into the pool as it is, and so block its line. Empty: it fits.

    It is asked at submission. A job that is queued already goes on waiting, because new nodes may come.
    """
    able = _able(job, known)
    usual = [node for node in able if not node.is_spare]
    if len(usual) >= job.nodes + job.spares:
        return ""
    kept = f", {counted(len(able) - len(usual), 'spare')} not counted" if len(able) > len(usual) else ""
    return f"{_too_small(job, known, usual)}{kept}"


def _able(job: Job, known: Sequence[Node]) -> list[Node]:
    """The nodes on which the job could run if they were free."""
    there = [node for node in known if node.state not in ABSENT and node.accelerators >= job.accelerators]
    return [node for node in there if job.may_run_on(node.node_id)]


def _why_not(node: Node, unfit: Collection[str], pauses: Pauses, now: datetime) -> str:
    """Returns why no job can start on the node now. Empty: it can."""
    if node.node_id in unfit:
        return "did not pass a check before this job"
    if node.is_spare:
        return "kept as a spare"
    if node.job_id or node.claimed_by:
        return f"has job {node.job_id or node.claimed_by}"
    if node.open_incident:
        return f"has incident {node.open_incident}"
    if pauses.of_node(node.node_id, now) is not None:
        return "paused"
    if node.state is NodeState.HEALTHY or node.is_past_probation(now):
        return ""
    if node.state is NodeState.PROBATION and node.probation_until is not None:
        until = f"is on probation until {node.probation_until:%Y-%m-%d %H:%M:%S} UTC"
        return f"{until} (`nodeheal nodes diagnose {node.node_id} --why …` proves it now)"
    return f"is {node.state}"


def _nearest(wanted: int, free: Sequence[Node], opted_out: Collection[str]) -> list[Node]:
    """Takes the rack that is just large enough; where there is none, as few racks as possible."""
    racks: dict[str, list[Node]] = defaultdict(list)
    for node in sorted(free, key=lambda node: (node.node_id in opted_out, node.node_id)):
        racks[node.rack].append(node)
    fitting = [rack for rack in racks.values() if len(rack) >= wanted]
    if fitting:
        return min(fitting, key=lambda rack: (_opted_out(rack[:wanted], opted_out), len(rack), rack[0].rack))[:wanted]
    chosen: list[Node] = []
    for rack in sorted(racks.values(), key=lambda rack: (-len(rack), rack[0].rack)):
        chosen += rack[: wanted - len(chosen)]
    return chosen


def _opted_out(nodes: Sequence[Node], opted_out: Collection[str]) -> int:
    return sum(node.node_id in opted_out for node in nodes)


def _too_small(job: Job, known: Sequence[Node], able: Sequence[Node]) -> str:
    there = sum(node.state not in ABSENT for node in known)
    each = f" with {counted(job.accelerators, 'accelerator')}" if job.accelerators else ""
    has = f"{counted(len(able), 'node')}{each}" + (f" (of {there} in all)" if there != len(able) else "")
    named = " that its file lets it run on" if job.only_nodes or job.exclude_nodes else ""
    return f"{job.job_id} wants {counted(job.nodes, 'node')}{each}{_kept(job)}, and pool {job.pool} has {has}{named}"


def _too_few(job: Job, free: Sequence[Node], verdicts: dict[str, str]) -> str:
    taken = [f"{name} {why}" for name, why in sorted(verdicts.items()) if why]
    more = f" and {len(taken) - REASONS_NAMED} more" if len(taken) > REASONS_NAMED else ""
    are = "is" if len(free) == 1 else "are"
    text = f"{job.job_id} wants {counted(job.nodes, 'node')}{_kept(job)}; {len(free)} of pool {job.pool} {are} free"
    return f"{text}; not free: {', '.join(taken[:REASONS_NAMED])}{more}" if taken else text


def _kept(job: Job) -> str:
    return f", with {job.spares} more to be left free" if job.spares else ""
