"""Measures how fast a broken gang runs again on ready spares.

The embedded cloud with the deployed control plane, simulated nodes with real agents, and the example trainer. A GPU
falls off the bus under rank 1, while another node of the pool is free and has passed its diagnostics. Measured from the
end of the first rank, as ECS reports it, until every rank of the next run has been seen running. This includes
isolation, stopping the other rank with its grace, choosing nodes, and starting. The emulator, its functions (a process
each), the agents and the trainers share the machine's cores.
"""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from bench.recovery import say
from nodeheal.adapters.aws.policy_documents import PolicyDocuments, deployed_place
from nodeheal.domain.jobs.job import Run
from nodeheal.services.steps import save_node
from nodeheal.simulation.latency import LATENCIES
from sandbox.client import Sandbox
from sandbox.report import POLICY
from sandbox.script import JOB
from sandbox.stories import STORIES
from sandbox.story import Story

SUBMITTED, RESTARTED = 1, 2


def measure_restart(latency: str) -> dict[str, float]:
    """Return the seconds from the end of the first rank until all ranks run again, of one story in a cloud of
    its own.
    """
    with tempfile.TemporaryDirectory() as directory, Sandbox(Path(directory) / "cloud", boot_seconds=3.0) as cloud:
        cloud.deploy()
        cloud.behave(**LATENCIES[latency].of_sandbox())
        document = {**json.loads(POLICY.read_text("utf-8")), "move_job_seconds": 0}
        place = deployed_place(cloud.client("cloudformation"))
        PolicyDocuments(cloud.client("appconfig"), place).apply(
            json.dumps(document), "a job need not wait for its node"
        )
        script = replace(STORIES["fixed-by-reboot"].script, prepares=(_spare_is_ready,))
        story = Story(cloud, script, say)
        story.play()
        first, second = (_run(story, number) for number in (SUBMITTED, RESTARTED))
        assert first.ended_at is not None
        assert second.running_since is not None
        took = (second.running_since - first.ended_at).total_seconds()
        return {"gang_failure_to_all_ranks_running_s": round(took, 2)}


def _spare_is_ready(story: Story) -> str:
    """Mark the spare as if it had passed the preflight of an earlier job."""
    gang = {task.node_id for task in _run(story, SUBMITTED).tasks}
    free = [node for node in story.ports.nodes.in_pool(story.script.pool) if node.node_id not in gang]
    for node in free:
        save_node(story.ports, node, passed_at=story.ports.clock())
    return f"{', '.join(node.node_id for node in free)} has passed its diagnostics"


def _run(story: Story, number: int) -> Run:
    found = story.ports.jobs.get_run(JOB, number)
    assert found is not None
    return found
