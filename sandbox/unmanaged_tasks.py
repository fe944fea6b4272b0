"""Adds unmanaged tasks to the node that is to break, and checks their fate."""

from collections.abc import Mapping
from typing import Any

from nodeheal.contract import names
from sandbox.story import Story, StoryError

LENT, KEPT = "ada", "grace"  # whose task nodeheal may stop, and whose it may not
# What they run: a notebook, for example, without a GPU, in the sandbox's image.
NOTEBOOK: dict[str, Any] = {
    "family": "notebook",
    "requiresCompatibilities": ["EXTERNAL"],
    "containerDefinitions": [
        {"name": "notebook", "image": "numpy-trainer:latest", "command": ["sleep", "600"], "memory": 64}
    ],
}


def unmanaged_tasks_move_in(story: Story) -> str:
    """Start tasks of two people on the node; only one of them permits nodeheal to stop hers."""
    _start(story, LENT, {names.MANAGED_TAG: names.MANAGED_TAG_VALUE})
    _start(story, KEPT, {})
    return f"{LENT} and {KEPT} run tasks of their own on {story.victim}; {LENT}'s carries {names.MANAGED_TAG}"


def unmanaged_tasks_are_looked_for(story: Story) -> str:
    """Check that one task was stopped and started again, once, and that nodeheal did not touch the other, which the
    reboot ended.
    """
    incident = story.told.incident
    if incident is None or incident.ending is None:
        return ""
    [lent], [kept] = _tasks_of(story, LENT), _tasks_of(story, KEPT)
    successors = [_tasks_of(story, names.successor_of(one)) for one in (lent, kept)]
    told = [_task(story, one) for one in (lent, kept, *successors[0])]
    if any(task["lastStatus"] in ("PENDING", "PROVISIONING") for task in told) or told[1]["lastStatus"] != "STOPPED":
        return ""
    stopped_by_us = [incident.incident_id in task.get("stoppedReason", "") for task in told]
    ended = [task["lastStatus"] for task in told]
    if (stopped_by_us, ended, successors[1]) != ([True, False, False], ["STOPPED", "STOPPED", "RUNNING"], []):
        raise StoryError(f"tasks of {LENT}, {KEPT} and started again: {told}; and again for {KEPT}: {successors[1]}")
    return f"{LENT}'s task was stopped and runs again, once; {KEPT}'s was not touched: the reboot has ended it"


def _start(story: Story, who: str, tags: Mapping[str, str]) -> None:
    """Start a task without nodeheal, on the node that is to break."""
    ecs = story.sandbox.client("ecs")
    definition = ecs.register_task_definition(**NOTEBOOK)["taskDefinition"]["taskDefinitionArn"]
    answer = ecs.start_task(
        cluster=story.sandbox.cluster,
        taskDefinition=definition,
        containerInstances=[story.victim_handle.container_instance_arn],
        startedBy=who,
        tags=[{"key": key, "value": value} for key, value in tags.items()],
    )
    task = answer["tasks"][0]["taskArn"]
    story.wait(lambda: _task(story, task)["lastStatus"] == "RUNNING", f"{who}'s task runs")


def _task(story: Story, arn: str) -> dict[str, Any]:
    [found] = story.sandbox.client("ecs").describe_tasks(cluster=story.sandbox.cluster, tasks=[arn])["tasks"]
    return dict(found)


def _tasks_of(story: Story, started_by: str) -> list[str]:
    """Return every task that ever had this `startedBy`. ListTasks returns only the running ones."""
    ecs, cluster = story.sandbox.client("ecs"), story.sandbox.cluster
    asked = [{"family": NOTEBOOK["family"], "desiredStatus": status} for status in ("RUNNING", "STOPPED")]
    arns = [arn for one in asked for arn in ecs.list_tasks(cluster=cluster, **one)["taskArns"]]
    tasks = ecs.describe_tasks(cluster=cluster, tasks=arns)["tasks"] if arns else []
    return [task["taskArn"] for task in tasks if task.get("startedBy") == started_by]
