"""What Slurm says, as operators see it: one command to each cluster's controller, all at once."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from nodeheal.adapters.aws.failures import explain
from nodeheal.cli import connect
from nodeheal.cli.say import iso, say
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.errors import NodehealError
from nodeheal.domain.fleet.node import ABSENT, Node
from nodeheal.parsers.slurm import SlurmNode
from nodeheal.parsers.slurm_report import NodeOut, SlurmReport

_AT_ONCE = 16
Said = TypeVar("Said")


def clusters_of(nodes: Iterable[Node]) -> list[str]:
    """The Slurm clusters that these nodes are in."""
    return sorted(
        {node.cluster for node in nodes if node.scheduler is SchedulerKind.SLURM and node.state not in ABSENT}
    )


def reports_of(clusters: list[str]) -> dict[str, SlurmReport]:
    """What each controller reports. One that does not answer is left out, and a line on stderr says why."""
    if not clusters:
        return {}
    controller = connect.slurm()
    say(f"asking the Slurm controller of {', '.join(clusters)} …", aside=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda cluster: _answer(cluster, lambda: controller.report(cluster)), clusters)
        reports = {cluster: report for cluster, report in zip(clusters, found, strict=True) if report is not None}
    for cluster, report in reports.items():
        if report.more_nodes or report.more_jobs:
            left = f"{report.more_nodes} nodes and {report.more_jobs} jobs"
            say(f"Slurm cluster {cluster}: {left} had no room in its report; ask sinfo and squeue there", aside=True)
    return reports


def slurm_node(node: Node) -> SlurmNode | None:
    """What Slurm says of the node. None: it is no node of Slurm's, or a line on stderr says why there is no answer."""
    if not clusters_of([node]):
        return None
    controller = connect.slurm()
    say(f"asking the Slurm controller of {node.cluster} …", aside=True)
    return _answer(node.cluster, lambda: controller.node(node))


def node_at(node: Node, reports: Mapping[str, SlurmReport]) -> NodeOut | None:
    """The node, where a report has it out of service. It is looked up by the address that its agent has reported."""
    report = reports.get(node.cluster) if node.scheduler is SchedulerKind.SLURM else None
    return next((out for out in report.nodes if node.address in out.addresses), None) if report else None


def node_words(node: SlurmNode | NodeOut) -> str:
    """`drained by ada since 2026-11-27 03:50:44 UTC: new riser card`."""
    if not node.taken_by:
        return node.state
    by = (node.reason_by if node.taken_by == "a person" else "") or node.taken_by
    at = time_of(node.since)
    since = f" since {at:%Y-%m-%d %H:%M:%S} UTC" if at else ""
    return f"{node.state} by {by}{since}: {node.reason}"


def node_json(node: SlurmNode | NodeOut | None) -> dict[str, object] | None:
    """The same for programs."""
    if node is None:
        return None
    return {
        "name": node.name,
        "state": node.state,
        "reason": node.reason or None,
        "reason_by": node.reason_by or None,
        "since": iso(time_of(node.since)),
        "taken_by": node.taken_by or None,
        "summary": node_words(node),
    }


def time_of(seconds: int | None) -> datetime | None:
    """A time as Slurm has it, in epoch seconds. None: there is none, or no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (OverflowError, OSError, ValueError):
        return None


def _answer(cluster: str, ask: Callable[[], Said]) -> Said | None:
    """What it answers. None: it does not, and a line on stderr says why."""
    try:
        return ask()
    except (BotoCoreError, ClientError) as error:
        why = str(explain(error))
    except NodehealError as error:
        why = str(error)
    say(f"Slurm cluster {cluster} is not shown: {why}", aside=True)
    return None
