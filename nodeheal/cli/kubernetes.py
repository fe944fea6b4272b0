"""Jobs of Kubernetes clusters, as operators see them: each API server is asked with the caller's own credentials."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nodeheal.cli import connect
from nodeheal.cli.cluster_views import KubernetesJobRow
from nodeheal.cli.slurm import ask_all
from nodeheal.domain.humanize import counted

if TYPE_CHECKING:
    from nodeheal.adapters.kubernetes.jobs import KubernetesJob

_MOST_NAMED = 3


@dataclass(frozen=True)
class ClusterJobs:
    """The jobs of each cluster; and why nothing is known of the other clusters."""

    known: "Mapping[str, Sequence[KubernetesJob]]"
    unknown: Mapping[str, str]


def jobs_of(clusters: Sequence[str]) -> ClusterJobs:
    """What runs on each cluster. Of one that does not answer a line on stderr says why."""
    if not clusters:
        return ClusterJobs({}, {})
    known, unknown = ask_all("Kubernetes", clusters, connect.kubernetes().all)
    return ClusterJobs(known, unknown)


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
