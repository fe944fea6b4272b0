"""Jobs and nodes of Kubernetes clusters, as operators see them: each API server is asked with the caller's own
credentials.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nodeheal.cli import connect
from nodeheal.cli.cluster_views import KubernetesJobRow, KubernetesNodeView
from nodeheal.cli.slurm import answer_or_why, ask_all, clusters_of
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.fleet.holder import HeldByNodeheal, HeldBySystem
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted

if TYPE_CHECKING:
    from nodeheal.adapters.kubernetes.jobs import KubernetesJob
    from nodeheal.adapters.kubernetes.node_words import NodeWords

_MOST_NAMED = 3


@dataclass(frozen=True)
class JobsByCluster:
    """The jobs of each cluster; and why nothing is known of the other clusters."""

    known: "Mapping[str, Sequence[KubernetesJob]]"
    unknown: Mapping[str, str]


def jobs_of(clusters: Sequence[str]) -> JobsByCluster:
    """What runs on each cluster. Of one that does not answer a line on stderr says why."""
    if not clusters:
        return JobsByCluster({}, {})
    known, unknown = ask_all("Kubernetes", clusters, connect.kubernetes().all)
    return JobsByCluster(known, unknown)


def kubernetes_job(job: "KubernetesJob", cluster: str) -> KubernetesJobRow:
    """The row of a job that Kubernetes runs."""
    return KubernetesJobRow(
        job=f"{job.namespace}/{job.name}",
        state=job.state,
        nodes=len(set(job.nodes)),
        submitted_at=job.created_at,
        summary=", ".join([job.kind, *_facts(job)]),
        run=job.restarts + (job.state != "PENDING"),
        owner=job.owner or None,
        kind=job.kind,
        namespace=job.namespace,
        name=job.name,
        cluster=cluster,
        ranks=len(job.nodes),
        node_names=tuple(sorted(set(job.nodes))),
        may_restart=job.consents,
        restarts=job.restarts,
    )


def _facts(job: "KubernetesJob") -> Iterator[str]:
    """Where it runs, and what of it an operator should know."""
    names = sorted(set(job.nodes))
    if names:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        yield f"{counted(len(job.nodes), 'pod')} on {', '.join(names[:_MOST_NAMED])}{more}"
    if job.restarts:
        yield f"restarted {counted(job.restarts, 'time')}"
    if not (job.consents or job.is_over):
        yield "may not be restarted"


def node_words(node: Node) -> "NodeWords | str | None":
    """What its cluster has of the node, or in words why that is not known. None: it is no node of Kubernetes."""
    if not clusters_of([node], SchedulerKind.KUBERNETES):
        return None
    return answer_or_why(lambda: connect.kubernetes_nodes().of(node), "not known: ")


def view_of(words: "NodeWords | str | None") -> KubernetesNodeView | None:
    """The view of a node, or of the words in place of it."""
    if words is None:
        return None
    if isinstance(words, str):
        return KubernetesNodeView(summary=words)
    of_hyperpod = {
        "node_health_status": words.health,
        "deep_health_check_status": words.deep_check,
        "fault_types": words.fault_types,
        "fault_reasons": words.fault_reasons,
        "fault_details": words.fault_details,
    }
    labels = [f"{name.replace('_', '-')} {value}" for name, value in of_hyperpod.items() if value]
    holder = _holder(words)
    held = f"is {holder}" if holder else "takes pods" if words.is_in_service else "takes no pods"
    return KubernetesNodeView(
        name=words.name,
        is_in_service=words.is_in_service,
        held_by=holder or None,
        **{name: value or None for name, value in of_hyperpod.items()},
        summary="; HyperPod: ".join([f"{words.name} {held}", *([", ".join(labels)] if labels else [])]),
    )


def _holder(words: "NodeWords") -> str:
    """Who keeps the node out of service; empty: nobody."""
    match words.held_by:
        case None:
            return ""
        case HeldByNodeheal(incident):
            return f"isolated by nodeheal{f' for {incident}' if incident else ''}"
        case HeldBySystem(name, why):
            return f"kept out of service by {name}: {why}"
        case person:
            return str(person)
