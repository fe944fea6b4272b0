"""Views of what Slurm and Kubernetes say of nodes, and of the jobs that they run. They stand beside nodeheal's own."""

from typing import Literal

from nodeheal.api.base_view import Time, View
from nodeheal.api.pages import Rows
from nodeheal.api.views import JobListRow, NodeRow, NodeView
from nodeheal.contract.vocabulary import SchedulerKind


class SlurmNodeView(View):
    """A node as Slurm has it. Where only words are known, they are the summary."""

    name: str | None = None
    state: str | None = None
    reason: str | None = None
    reason_by: str | None = None
    since: Time | None = None
    taken_by: str | None = None
    summary: str


class NodeRowWithSlurm(NodeRow):
    """A node in a list, with what Slurm says of it; None: nothing is known."""

    slurm: SlurmNodeView | None


class KubernetesNodeView(View):
    """A node as Kubernetes has it, with HyperPod's labels and annotation. Where only words are known, they are the
    summary.
    """

    name: str | None = None
    is_in_service: bool | None = None
    held_by: str | None = None
    node_health_status: str | None = None
    deep_health_check_status: str | None = None
    fault_types: str | None = None
    fault_reasons: str | None = None
    fault_details: str | None = None
    summary: str


class NodeViewWithCluster(NodeView):
    """A node, with what its cluster's scheduler says of it; None: it has another one."""

    slurm: SlurmNodeView | None
    kubernetes: KubernetesNodeView | None


class ForeignJobRow(View):
    """The fields of JobListRow, in its order; what its scheduler does not say is None."""

    job: str | None = None
    state: str
    pool: None = None  # Slurm has partitions, Kubernetes has namespaces
    nodes: int | None = None
    submitted_at: Time | None = None
    summary: str
    scheduler: SchedulerKind = SchedulerKind.SLURM
    priority: None = None
    run: int | None = None
    step: None = None
    steps: None = None
    step_at: None = None
    steps_per_second: None = None
    share: None = None
    seconds_left: None = None
    step_seconds: None = None
    usual_step_seconds: None = None
    loss: None = None
    submission: None = None
    owner: str | None = None


class SlurmJobRow(ForeignJobRow):
    """A job that Slurm runs."""

    job: str
    name: str
    cluster: str
    partition: str
    node_list: str | None
    may_requeue: bool
    restarts: int
    exit_code: int | None
    signal: int | None
    started_at: Time | None
    ended_at: Time | None
    reason: str | None


class KubernetesJobRow(ForeignJobRow):
    """A job that Kubernetes runs, by its root owner. `job`: its namespace and name; `owner`: as an annotation says."""

    job: str
    scheduler: SchedulerKind = SchedulerKind.KUBERNETES
    kind: str
    namespace: str
    name: str
    cluster: str
    ranks: int
    node_names: tuple[str, ...]
    may_restart: bool
    restarts: int


class UnknownJobsRow(ForeignJobRow):
    """A cluster whose jobs are not known, in place of them: a list with it is not empty."""

    state: Literal["UNKNOWN"] = "UNKNOWN"
    cluster: str


class JobPage(Rows[JobListRow]):
    """A page of nodeheal's own jobs, and all jobs of Slurm's and Kubernetes' beside the first one."""

    slurm: tuple[SlurmJobRow | UnknownJobsRow, ...]
    kubernetes: tuple[KubernetesJobRow | UnknownJobsRow, ...]


class SlurmSubmission(View):
    """A batch script that was handed to sbatch. `job`: None: it was only tested; `sbatch`: what sbatch has said."""

    job: str | None
    scheduler: SchedulerKind = SchedulerKind.SLURM
    cluster: str | None
    arguments: tuple[str, ...]
    warnings: tuple[str, ...]
    sbatch: str
