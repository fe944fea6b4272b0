"""What Slurm says, as operators see it: one command to each cluster's controller, all at once."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from shlex import quote
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from nodeheal.adapters.aws.failures import explain
from nodeheal.api import records
from nodeheal.cli import connect
from nodeheal.cli.cluster_views import SlurmJobRow, SlurmNodeView
from nodeheal.cli.say import say
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.errors import NodehealError, NotFound
from nodeheal.domain.fleet.node import ABSENT, Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import Job
from nodeheal.parsers.slurm import SlurmJob, SlurmNode
from nodeheal.parsers.slurm_report import NodeOut, SlurmReport
from nodeheal.ports import Ports

_AT_ONCE = 16
_LOOKED_AT = 1_000  # nodes of each pool
# As `jobs list` shows them: a job, a task of an array, those of it that wait, a part of a heterogeneous job.
_JOB_ID = re.compile(r"[0-9]+(_([0-9]+|\[[0-9,%:.-]+\])|\+[0-9]+)?")
Said = TypeVar("Said")


@dataclass(frozen=True)
class Reports:
    """What controllers report, by cluster; and why nothing is known of the other clusters."""

    known: Mapping[str, SlurmReport]
    unknown: Mapping[str, str]


def clusters_of(nodes: Iterable[Node], kind: SchedulerKind = SchedulerKind.SLURM) -> list[str]:
    """The clusters of this kind that these nodes are in."""
    return sorted({node.cluster.name for node in nodes if node.cluster.kind is kind and node.state not in ABSENT})


def clusters_in(pools: Iterable[str], world: Ports, kind: SchedulerKind = SchedulerKind.SLURM) -> list[str]:
    """The clusters of this kind in these pools, by the first nodes of each: a pool is of one cluster, as a rule."""
    nodes = world.fleet_index.nodes_after
    first = (node for pool in pools for node in islice(nodes(pool, page_size=_LOOKED_AT), _LOOKED_AT))
    return clusters_of(first, kind)


def reports_of(clusters: list[str]) -> Reports:
    """What each controller reports. Of one that does not answer a line on stderr says why."""
    if not clusters:
        return Reports({}, {})
    controller = connect.slurm()
    _say_whom_it_asks(clusters)
    reports, unknown = ask_all("Slurm", clusters, controller.report)
    for cluster, report in reports.items():
        if report.more_nodes or report.more_jobs:
            left = f"{report.more_nodes} nodes and {report.more_jobs} jobs"
            say(f"Slurm cluster {cluster}: {left} had no room in its report; ask sinfo and squeue there", aside=True)
    return Reports(reports, unknown)


def ask_all(
    scheduler: str, clusters: Sequence[str], ask: Callable[[str], Said]
) -> tuple[dict[str, Said], dict[str, str]]:
    """What each cluster answers, all asked at once; and why the others do not, which a line on stderr says too."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda cluster: answer_or_why(lambda: ask(cluster)), clusters))
    by_cluster = dict(zip(clusters, answers, strict=True))
    unknown = {cluster: answer for cluster, answer in by_cluster.items() if isinstance(answer, str)}
    for cluster, why in unknown.items():
        say(f"{scheduler} cluster {cluster} is not shown: {why}", aside=True)
    return {cluster: answer for cluster, answer in by_cluster.items() if not isinstance(answer, str)}, unknown


def on_slurm_of(nodes: list[Node]) -> dict[str, SlurmNodeView | None]:
    """What their controllers say of these nodes, by node id. None: nothing is known."""
    reports = reports_of(clusters_of(nodes))
    return {node.node_id: view_of(node_at(node, reports)) for node in nodes}


def slurm_node(node: Node) -> SlurmNode | str | None:
    """What Slurm says of the node, or in words why that is not known. None: it is no node of Slurm's."""
    if not clusters_of([node]):
        return None
    controller = connect.slurm()

    def ask() -> SlurmNode | str:
        address = controller.address_of(node)
        if not address:
            return f"not asked: nobody knows the address of {node.instance_id}"
        known = controller.node_at(node.cluster.name, address)
        return known or f"knows no node at {address} (cluster {node.cluster.name}), or more than one"

    return answer_or_why(ask, "not known: ")


def node_at(node: Node, reports: Reports) -> NodeOut | str | None:
    """The node, where a report has it out of service, or that nothing is known of its cluster. It is looked up by the
    address that its agent has reported."""
    if node.cluster.kind is not SchedulerKind.SLURM:
        return None
    if node.cluster.name in reports.unknown:
        return "not known"
    report = reports.known.get(node.cluster.name)
    return next((out for out in report.nodes if node.address in out.addresses), None) if report else None


def our_job(name: str, world: Ports) -> Job:
    """The job of nodeheal's. Raises NotFound, which says whom to ask where this may be a job of Slurm's."""
    try:
        return records.job(name, world)
    except NotFound:
        clusters = clusters_in(world.fleet_index.pools(), world) if _JOB_ID.fullmatch(name) else []
        if not clusters:
            raise
    where = f"{'cluster' if len(clusters) == 1 else 'one of the clusters'} {', '.join(clusters)}"
    whole, argument = name.partition("_[")[0], quote(name)  # scontrol shows no tasks that wait together
    raise NotFound(
        f"no job {name} of nodeheal's is known; if it is Slurm's, use Slurm's commands on {where}: "
        f"`scontrol show job {whole}`, `scancel {argument}`"
    )


def node_words(node: SlurmNode | NodeOut) -> str:
    """`drained by ada since 2026-11-27 03:50:44 UTC: new riser card`."""
    if not node.taken_by:
        return node.state
    state = node.state if node.state.startswith("drain") else f"set to {node.state.upper()}"
    by = (node.reason_by if node.taken_by == "a person" else "") or node.taken_by
    at = time_of(node.since)
    since = f" since {at:%Y-%m-%d %H:%M:%S} UTC" if at else ""
    return f"{state} by {by}{since}: {node.reason}"


def view_of(node: SlurmNode | NodeOut | str | None) -> SlurmNodeView | None:
    """The view of a node, or of the words in place of it."""
    if node is None:
        return None
    if isinstance(node, str):
        return SlurmNodeView(summary=node)
    return SlurmNodeView(
        name=node.name,
        state=node.state,
        reason=node.reason or None,
        reason_by=node.reason_by or None,
        since=time_of(node.since),
        taken_by=node.taken_by or None,
        summary=node_words(node),
    )


def slurm_job(job: SlurmJob, cluster: str) -> SlurmJobRow:
    """The row of a job that Slurm runs."""
    return SlurmJobRow(
        job=job.job_id,
        state=job.state,
        nodes=job.nodes,
        submitted_at=time_of(job.submitted_at),
        summary=f"{job.name} of {job.user}: {', '.join(_facts(job))}",
        run=job.restarts + (not job.waits),
        owner=job.user,
        name=job.name,
        cluster=cluster,
        partition=job.partition,
        node_list=job.node_list or None,
        may_requeue=job.may_requeue,
        restarts=job.restarts,
        exit_code=job.exit_code,
        signal=job.signal,
        started_at=time_of(job.started_at),
        ended_at=time_of(job.ended_at),
        reason=job.reason or None,
    )


def _facts(job: SlurmJob) -> Iterator[str]:
    """Where it runs, why it waits, how it ended; and what of it an operator should know."""
    if job.node_list and not job.waits:  # one that was requeued has its old nodes on record for a while
        yield f"{'ran' if job.is_over else 'runs'} on {job.node_list}"
    if job.signal:
        yield f"ended by signal {job.signal}"
    elif job.exit_code is not None:
        yield f"exit code {job.exit_code}"
    if job.reason:
        yield f"{'waits' if job.waits else 'Slurm says'}: {job.reason}"
    if job.restarts:
        yield f"restarted {counted(job.restarts, 'time')}"
    if not (job.may_requeue or job.is_over):
        yield "may not be requeued"


def time_of(seconds: int | None) -> datetime | None:
    """A time as Slurm has it, in epoch seconds. None: there is none, or no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (OverflowError, OSError, ValueError):
        return None


def _say_whom_it_asks(clusters: Iterable[str]) -> None:
    """It takes seconds: a person should know why. A script's log needs no such line."""
    if sys.stderr.isatty():
        say(f"asking the Slurm controller of {', '.join(clusters)} …", aside=True)


def answer_or_why(ask: Callable[[], Said], but: str = "") -> Said | str:
    """What it answers; or after `but` why it does not."""
    try:
        return ask()
    except (BotoCoreError, ClientError) as error:
        return f"{but}{explain(error)}"
    except NodehealError as error:
        return f"{but}{error}"
