"""HyperPod's own drills on Kubernetes, one after the other: each is a recovery on nodes of its own."""

import time
from dataclasses import dataclass

from nodeheal.contract.names import KUBERNETES_POOL_LABEL as POOL_LABEL
from nodeheal.contract.vocabulary import Awaited, Ending, Family, JobState
from sandbox.hyperpod import arn
from sandbox.kubernetes.control_plane import KubectlError
from sandbox.kubernetes.eks import HEALTH_LABEL
from sandbox.kubernetes_story import KubernetesStory
from sandbox.script import SUBJECTS, Expected, Script
from sandbox.stories import BROKEN_LINK, FALLEN
from sandbox.story import Story, StoryError, Told

_FORMER_DRILL = BROKEN_LINK.replace(" 74,", " 73,")  # the source page injects the same line with either number
_HEALTH = HEALTH_LABEL.replace(".", r"\.")
_COLUMNS = f"NODE:.metadata.name,CORDONED:.spec.unschedulable,HEALTH:.metadata.labels.{_HEALTH}"
_PENDING_REBOOT = "UnschedulablePendingReboot"
# Two people who may patch nodes. One of them is in the group that the chart's policy lets order.
_PEOPLE = "sre"
_ADA = ("--as=ada", f"--as-group={_PEOPLE}", "--as-group=nodeheal:operators")
_GRACE = ("--as=grace", f"--as-group={_PEOPLE}")
_RECOVERED = Expected(Ending.RECOVERED, finishes=True, restarts=True, mails=(SUBJECTS[Ending.RECOVERED],))
_REPAIRED = Expected(Ending.RECOVERED, finishes=True, restarts=False, mails=(SUBJECTS[Ending.RECOVERED],))


@dataclass(frozen=True)
class HyperPodScript(Script):
    """A script of HyperPod's. `order`: what a person sets the victim's health label to, in the place of a fault."""

    provider: str = "hyperpod"
    order: str = ""


class HyperPodStory(KubernetesStory):
    """One playing of such a script."""

    def play(self) -> Told:
        """Play it, and leave nodeheal in charge."""
        try:
            return super().play()
        finally:
            self.sandbox.behave(hyperpod_recovery="")

    @property
    def _nodes_shown(self) -> tuple[str, ...]:
        """Return the command that shows the part's nodes with HyperPod's label."""
        return "get", "nodes", f"--selector={POOL_LABEL}={self.script.pool}", f"--output=custom-columns={_COLUMNS}"

    @property
    def _pods_shown(self) -> tuple[str, ...]:
        """Return the command that shows the pods of the part's job."""
        return "get", "pods", f"--selector=training.kubeflow.org/job-name={self.script.job}"

    def _break_nodes(self) -> None:
        script = self.script
        if not isinstance(script, HyperPodScript) or not script.order:
            super()._break_nodes()
            return
        told, training = self.told, self.told.training
        assert training is not None
        told.broken, told.fault_at = self.victim, time.time()
        told.step_at_fault = training.read().step_at(told.fault_at)
        self._line(told.fault_at, "fault", f"ada: kubectl {' '.join(self._words(script.order))}")
        self.kubectl(*self._words(script.order), *_ADA)
        self.sandbox.fire_schedules()  # the sweep looks once a minute; a demo does not wait

    def let_people_patch_nodes(self) -> None:
        """Give the people of the story what RBAC asks for, and no more."""
        self.kubectl("create", "clusterrole", _PEOPLE, "--verb=get,patch", "--resource=nodes")
        self.kubectl("create", "clusterrolebinding", _PEOPLE, f"--clusterrole={_PEOPLE}", f"--group={_PEOPLE}")

    def refusal_of(self, value: str, who: tuple[str, ...]) -> str:
        """Return the API server's refusal of this order. Raises StoryError where it takes it."""
        try:
            self.kubectl(*self._words(value), *who)
        except KubectlError as error:
            return str(error).splitlines()[-1]
        raise StoryError(f"{who[0]} may order {value}")

    def _words(self, value: str) -> list[str]:
        return ["label", "node", self.name_of(self.victim), f"{HEALTH_LABEL}={value}", "--overwrite"]


def _who_may_not_is_refused(story: Story) -> str:
    assert isinstance(story, HyperPodStory)
    story.let_people_patch_nodes()
    return f"grace, who may patch nodes, orders a reboot by the label: {story.refusal_of(_PENDING_REBOOT, _GRACE)}"


def _hyperpod_takes_charge(story: Story) -> str:
    story.sandbox.behave(hyperpod_recovery="Automatic")
    return "the cluster's NodeRecovery is Automatic now"


def _hyperpod_reboots(story: Story) -> str:
    """Have HyperPod repair the node once nodeheal waits for that, and the job has ended: its restart would be
    HyperPod's as well. What HyperPod does inside of AWS is played by the API's call for the same.
    """
    incident = story.told.incident
    is_awaited = incident is not None and incident.awaits is Awaited.EXTERNAL_REPAIR
    if not is_awaited or story.told.job_state is not JobState.COMPLETED:
        return ""
    story.sandbox.client("sagemaker").batch_reboot_cluster_nodes(ClusterName=arn(), NodeIds=[story.victim])
    return f"HyperPod, and not nodeheal, reboots {story.victim}"


HYPERPOD = (
    HyperPodScript(BROKEN_LINK, Family.xid, "74", pool="replaced", job="replaced", expects=_RECOVERED),
    HyperPodScript(_FORMER_DRILL, Family.xid, "73", pool="rebooted", job="rebooted", expects=_RECOVERED),
    HyperPodScript(
        f"{HEALTH_LABEL}={_PENDING_REBOOT}",
        Family.host,
        "",
        pool="ordered",
        job="ordered",
        order=_PENDING_REBOOT,
        prepares=(_who_may_not_is_refused,),
        expects=_RECOVERED,
    ),
    HyperPodScript(
        FALLEN,
        Family.xid,
        "79",
        pool="automatic",
        job="automatic",
        kills=False,
        prepares=(_hyperpod_takes_charge,),
        moves=(_hyperpod_reboots,),
        expects=_REPAIRED,
    ),
)
