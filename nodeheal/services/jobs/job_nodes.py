"""How jobs share the nodes of a pool: which nodes a job may have, claims on nodes, and the line of jobs."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.contract.names import NODES_LINE, pool_line
from nodeheal.contract.vocabulary import Ending, IncidentState, JobState, Outcome
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.domain.jobs.job import CheckAnswer, GangTask, Job, Run
from nodeheal.domain.jobs.placement import Placement, choose
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.engine import signal
from nodeheal.ports import Ports
from nodeheal.services.jobs.runs import may_write, nodes_of_gang
from nodeheal.services.steps import clear_if_owner

# An SSM agent that could not reach its service sleeps for up to an hour before it tries again.
ASKED_AGAIN_SECONDS = 3_600
YOUR_TURN = "your turn"  # the answer that ends a job's wait in the line for nodes
CLAIM_TRIES = 8  # where many jobs choose in one moment, each try finds other nodes taken


def look_for_nodes(
    job: Job, pauses: Pauses, ports: Ports, policy: RecoveryPolicy, lost: Collection[str] = ()
) -> Placement:
    """Returns the nodes available now, by the pool's list, which lags. `lost`: nodes that others have taken."""
    known = [replace(n, claimed_by=None) if n.claimed_by == job.job_id else n for n in ports.nodes.in_pool(job.pool)]
    unfit = unfit_of(job, known, ports) | set(lost)
    return choose(job, known, pauses, unfit, policy.opted_out, ports.clock())


def unfit_of(job: Job, known: Sequence[Node], ports: Ports) -> frozenset[str]:
    """The nodes that did not pass a check of this submission, and are not good again since.

    They are when they have passed a diagnosis, or a human has given them back or closed what a check had opened. One
    that only has not answered, once, is asked again after a while: the job's own check is the proof.
    """
    prefix, by_id = f"{job.job_id}-{job.submission}-", {node.node_id: node for node in known}
    answers = [a for a in ports.job_notes.answers(job.job_id) if a.request_id.startswith(prefix)]
    failed = [a for a in answers if a.outcome is not Outcome.DONE and not _is_good_since(by_id.get(a.node_id), a.at)]
    failed = _not_seen_to(job, failed, ports)
    often = Counter(a.node_id for a in failed)
    again_from = ports.clock() - timedelta(seconds=ASKED_AGAIN_SECONDS)
    is_checked = {node.node_id for node in job_checks_due(job, known, ports.clock())}
    asked_again = {
        a.node_id
        for a in failed
        if often[a.node_id] == 1 and a.outcome is Outcome.UNKNOWN and a.at <= again_from and a.node_id in is_checked
    }
    return frozenset(a.node_id for a in failed if a.node_id not in asked_again)


def _not_seen_to(job: Job, failed: Sequence[CheckAnswer], ports: Ports) -> list[CheckAnswer]:
    """Leaves out nodes whose incident, opened since, was handed to a human and is closed: a person has seen them."""
    if not failed:
        return []
    since = min(answer.at for answer in failed) - timedelta(seconds=1)
    closed = list(ports.fleet_index.incidents(job.pool, IncidentState.CLOSED, since, ports.clock()))
    looked = [i for i in closed if i.ending is Ending.HANDED_TO_A_HUMAN]
    second = timedelta(seconds=1)  # the list knows the second only
    return [a for a in failed if not any(i.node_id == a.node_id and i.opened_at + second > a.at for i in looked)]


def _is_good_since(node: Node | None, at: datetime) -> bool:
    return node is not None and any(good is not None and good > at for good in (node.passed_at, node.healthy_since))


def claim(job: Job, ports: Ports, policy: RecoveryPolicy) -> Placement:
    """Nodes that are claimed for the job: all that it wants, or none, and why. Each is claimed on what is stored now;
    for one that somebody else has taken meanwhile, another one is looked for."""
    lost: set[str] = set()
    pauses = ports.pauses.read()
    for _ in range(CLAIM_TRIES):
        placement = look_for_nodes(job, pauses, ports, policy, lost)
        taken = [node.node_id for node in placement.nodes if not _claim_one(node.node_id, job, pauses, ports)]
        if not taken:
            release_claims(job, ports, but=[node.node_id for node in placement.nodes])
            return placement
        lost.update(taken)
    release_claims(job, ports)
    return Placement(why=f"{job.job_id}: other jobs are choosing nodes of pool {job.pool} just now")


def _claim_one(node_id: str, job: Job, pauses: Pauses, ports: Ports) -> bool:
    node = ports.nodes.get(node_id)
    if node is not None and node.claimed_by == job.job_id:
        return replace(node, claimed_by=None).is_available(ports.clock(), pauses)
    free = node is not None and node.is_available(ports.clock(), pauses)
    return node is not None and free and ports.nodes.save(replace(node, claimed_by=job.job_id))


def release_claims(job: Job, ports: Ports, also: Collection[str] = (), but: Collection[str] = ()) -> None:
    """Releases the nodes that are claimed for the job, by the pool's list, which lags, or that are named."""
    listed = [node.node_id for node in ports.nodes.in_pool(job.pool) if node.claimed_by == job.job_id]
    for name in dict.fromkeys([*listed, *also]):
        if name not in but:
            clear_if_owner(ports, name, claimed_by=job.job_id)


def job_checks_due(job: Job, nodes: Sequence[Node], now: datetime) -> list[Node]:
    """Those that have not passed lately, on the boot that they have."""
    if job.preflight.level == 0:
        return []
    since = now - timedelta(seconds=job.preflight.recent_seconds)
    return [n for n in nodes if n.passed_at is None or n.passed_at < max(since, n.booted_at)]


def replacement_nodes(job: Job, pauses: Pauses, ports: Ports) -> list[Node]:
    """The free nodes on which the job could go on at once, proven as its preflight asks: kept spares first."""
    able = _able(job, pauses, ports)
    due = {node.node_id for node in job_checks_due(job, able, ports.clock())}
    return [node for node in able if node.node_id not in due]


def unproven_replacement_nodes(job: Job, pauses: Pauses, ports: Ports) -> list[Node]:
    """The free nodes on which it could go on if they passed the diagnostics that its preflight asks for."""
    return job_checks_due(job, _able(job, pauses, ports), ports.clock())


def _able(job: Job, pauses: Pauses, ports: Ports) -> list[Node]:
    """Those that it has claimed already first: a launch that is repeated after a crash is to find them."""
    gang = nodes_of_gang(job.job_id, ports)
    known = [node for node in ports.nodes.in_pool(job.pool) if node.accelerators >= job.accelerators]
    allowed = [node for node in known if node.node_id not in gang and job.may_run_on(node.node_id)]
    free = [node for node in allowed if _is_free_for(job, node, pauses, ports)]
    return sorted(free, key=lambda node: (node.claimed_by is None, not node.is_spare, node.node_id))


def _is_free_for(job: Job, node: Node, pauses: Pauses, ports: Ports) -> bool:
    own = replace(node, claimed_by=None) if node.claimed_by == job.job_id else node
    return own.is_available(ports.clock(), pauses)


def claim_replacement_nodes(job: Job, count: int, ports: Ports) -> list[Node] | None:
    """So many of them, claimed for the job; None: there are too few. What was claimed for it before stays so: it may be
    what another incident is launching it on just now."""
    claimed: list[Node] = []
    new: list[Node] = []
    pauses = ports.pauses.read()
    for replacement in replacement_nodes(job, pauses, ports):
        node = ports.nodes.get(replacement.node_id)
        if len(claimed) == count or node is None or not _is_free_for(job, node, pauses, ports):
            continue
        if node.claimed_by is None:
            if not ports.nodes.save(replace(node, claimed_by=job.job_id)):
                continue
            new.append(node)
        claimed.append(node)
    if len(claimed) == count:
        return claimed
    for node in new:
        clear_if_owner(ports, node.node_id, claimed_by=job.job_id)
    return None


def free_nodes(job: Job, names: Iterable[str], ports: Ports) -> None:
    """Take the job off these nodes, except those that it still has."""
    kept = nodes_it_has(job, ports)
    for name in dict.fromkeys(names):
        if name not in kept:
            clear_if_owner(ports, name, job_id=job.job_id)


def nodes_it_has(job: Job, ports: Ports) -> frozenset[str]:
    """Where its current run is, or a rank may still write: nothing else may start there before."""
    runs = ports.jobs.runs(job.job_id)
    has_begun = not job.is_over and job.state is not JobState.SUBMITTED
    current = {t.node_id for run in runs if run.number == job.current_run and has_begun for t in run.tasks}
    return frozenset(current | {task.node_id for task in _begun(runs, job, ports) if may_write(task, ports)})


def _begun(runs: Sequence[Run], job: Job, ports: Ports) -> list[GangTask]:
    """Returns the ranks that were started, or may have been.

    A launch that died right after it recorded its run has started no rank: ranks are started only when the job points
    at the run. No event will report such ranks.
    """
    current = job.current_run
    if any(run.number > current for run in runs):
        stored = ports.jobs.get(job.job_id)  # a launch may have come since it was read
        current = stored.current_run if stored is not None else current
    return [task for run in runs for task in run.tasks if task.task_id or run.number == current]


def directory_taken(job: Job, holder: str, ports: Ports) -> str:
    """Why the job cannot have its checkpoint directory: two would write over one another."""
    mine = job.checkpoints.directory if job.checkpoints is not None else ""
    other = ports.jobs.get(holder)
    theirs = other.checkpoints.directory if other is not None and other.checkpoints is not None else mine
    both = "" if theirs == mine else f", which {mine} overlaps with"
    text = f"job {holder} writes its checkpoints to {theirs}{both}"
    return f"checkpoints.directory: {text}; give {job.job_id} another one"


def leave(job: Job, ports: Ports) -> None:
    """Releases all nodes, claims and the directory of a job that is over, except where a rank may still write."""
    runs = ports.jobs.runs(job.job_id)
    had = [task.node_id for run in runs for task in run.tasks]
    free_nodes(job, had, ports)
    release_claims(job, ports, also=had)  # a launch that crashed has not released them, and the pool's list lags
    if job.checkpoints is not None and not any(may_write(task, ports) for task in _begun(runs, job, ports)):
        ports.job_notes.release_directory(job.checkpoints.directory, job.job_id)


def call_next_job(pool: str, ports: Ports) -> str | None:
    """Wakes the first job in line after a node has become free. Returns its id. Calling too often is harmless."""
    for waiting in ports.operations.queued(pool_line(NODES_LINE, pool)):
        if signal(waiting, YOUR_TURN, ports):
            return waiting.job_request.job_id
    return None


def place_of(job: Job) -> str:
    """Where it stands in line: by priority, then by age."""
    at = job.submitted_at
    return f"{100 - job.priority:03d}#{at:%Y-%m-%dT%H:%M:%SZ}#{job.job_id}" if at else f"200#{job.job_id}"


def waits_before(job: Job, ports: Ports) -> str:
    """Why the free nodes are not for this job: another one stands in line before it. Empty: none does."""
    first = next(iter(jobs_before(job, ports)), None)
    return f"{first} stands in line before {job.job_id}" if first else ""


def jobs_before(job: Job, ports: Ports) -> list[str]:
    """The jobs that stand in the pool's line before this one, in their order."""
    ahead = [name for name, place in jobs_in_line(job.pool, ports).items() if place < place_of(job)]
    return [name for name in ahead if name != job.job_id]


def jobs_in_line(pool: str, ports: Ports) -> dict[str, str]:
    """The jobs that stand in the pool's line, in their order, each with its place."""
    standing = ports.operations.queued(pool_line(NODES_LINE, pool))
    return {operation.job_request.job_id: operation.line[1] for operation in standing if operation.line is not None}
