"""The story of a Trainium node on Kubernetes: an error in a pool that is only observed, then one with recovery on.

Its nodes have the sandbox's GPUs: the kernel's lines are Neuron's, and the diagnosis of a new node is DCGM's.
"""

import json
from typing import Any

from nodeheal.adapters.kubernetes.conditions import ACCELERATOR
from nodeheal.contract import metrics, names
from nodeheal.contract.vocabulary import Ending, Family
from sandbox.kubernetes_story import CLUSTER, KubernetesStory
from sandbox.script import SUBJECTS, Expected, Script
from sandbox.story import Story, StoryError

OBSERVED_POOL = "observed"  # of sandbox/policy.json
_LINE = "neuron: NEURON_HW_ERR={} instance-id=i-0592464924bd45322 hostname=ip-172-31-61-252 nd-id=0 nc-id=0 action={}"
SRAM, DMA = "SRAM_UNCORRECTABLE_ERROR", "DMA_ERROR"
LINES = {code: _LINE.format(code, "TERMINATE_INSTANCE") for code in (SRAM, DMA)}
_LOG = "/nodeheal/ingest"


def observed_first(story: Story) -> str:
    """Break a node of a pool where recovery is off, and wait until everything shows that and nothing has been done."""
    assert isinstance(story, KubernetesStory)
    [node], _ = story.sandbox.add_kubernetes(CLUSTER, OBSERVED_POOL, 1)
    story.wait(lambda: _node_object(story, OBSERVED_POOL, node.node_id) is not None, "the observed node is registered")
    story.wait(lambda: _is_known(story, node.node_id), "its agent has reported")
    story.sandbox.inject(node, LINES[SRAM], persists=False, kill_rank=False)
    story.wait(lambda: reason_on(story, OBSERVED_POOL, node.node_id) == f"{names.NEURON_ERROR}{SRAM}", "it shows why")
    story.wait(lambda: any(SUBJECTS[Ending.OBSERVED_ONLY] in mail[0] for mail in story.sandbox.mails()), "it is told")
    found = _node_object(story, OBSERVED_POOL, node.node_id)
    if found is None or found["spec"].get("unschedulable") or "nodeheal.io" in str(found["spec"].get("taints")):
        raise StoryError(f"{node.node_id} of pool {OBSERVED_POOL} was touched, where recovery is off")
    return f"pool {OBSERVED_POOL}, recovery off: {node.node_id} shows {_shown(story, SRAM)}; nothing else is done"


def shows_its_fault(story: Story) -> str:
    """Wait until the broken node shows its fault, with recovery on."""
    assert isinstance(story, KubernetesStory)
    if reason_on(story, story.script.pool, story.victim) != f"{names.NEURON_ERROR}{DMA}":
        return ""
    return f"recovery on: {story.victim} shows {_shown(story, DMA)}; it is replaced"


def reason_on(story: KubernetesStory, pool: str, node_id: str) -> str:
    """Return the reason of the condition of ours on the node, where it is True."""
    found = _node_object(story, pool, node_id) or {"status": {}}
    conditions = found["status"].get("conditions", [])
    return next((one["reason"] for one in conditions if (one["type"], one["status"]) == (ACCELERATOR, "True")), "")


def metrics_of(story: Story, code: str) -> list[dict[str, Any]]:
    """Return what the log of ingest holds for CloudWatch about this error: an account makes a metric of it."""
    found = story.sandbox.client("logs").filter_log_events(logGroupName=_LOG)["events"]
    lines = [json.loads(each["message"]) for each in found if metrics.NEURON_HAS_ERROR[code].name in each["message"]]
    return [line for line in lines if "_aws" in line]


def _shown(story: Story, code: str) -> str:
    """Return the condition's reason, the metric and the alarm on it, each as it is read in the cloud."""
    name = metrics.NEURON_HAS_ERROR[code].name
    story.wait(lambda: bool(metrics_of(story, code)), f"the metric {name} is written")
    [alarm] = story.sandbox.client("cloudwatch").describe_alarms(AlarmNamePrefix=f"nodeheal-{name}")["MetricAlarms"]
    line = metrics_of(story, code)[0]
    [value], namespace = line[name], line["_aws"]["CloudWatchMetrics"][0]["Namespace"]
    return f"{ACCELERATOR} {name}, the metric {namespace} {name} {value:g}, which {alarm['AlarmName']} watches"


def _is_known(story: Story, node_id: str) -> bool:
    return any(node.node_id == node_id and node.address for node in story.ports.nodes.in_pool(OBSERVED_POOL))


def _node_object(story: KubernetesStory, pool: str, node_id: str) -> dict[str, Any] | None:
    nodes = story.nodes_of(pool)
    return next((node for node in nodes if node["spec"]["providerID"].endswith(f"/{node_id}")), None)


NEURON = Script(
    LINES[DMA],
    Family.neuron,
    DMA,
    provider="group",
    nodes=2,
    steps=400,  # the job must still run when the second node breaks
    prepares=(observed_first,),
    moves=(shows_its_fault,),
    expects=Expected(
        Ending.RECOVERED,
        finishes=True,
        restarts=True,
        mails=(SUBJECTS[Ending.OBSERVED_ONLY], SUBJECTS[Ending.RECOVERED]),
    ),
)
