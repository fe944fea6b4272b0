"""Defines the latencies of a cloud and its nodes: negligible ones, or AWS's as far as they are published.

Every figure of demo, bench and simulation is given for both. The fields but the last are those of the sandbox's
Behaviour. The simulation reads the two that its own assumptions leave out: it always assumes 0.3 s for an event, 0.2 s
for a function and 40 s for a task whose image is pulled.
"""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Latency:
    """Seconds in addition to those of the sandbox, or of the simulation."""

    event_seconds: float = 0.0  # of an event from its source to its rule's target
    ssm_begin_seconds: float = 0.0  # of a command from SendCommand to the first line of its script
    ssm_seconds_scale: float = 0.05  # of the SSM agent's and systemd's waits on a node; 1.0: as in reality
    task_start_seconds: float = 0.0  # of a task from StartTask until its process runs, its image on the node
    cold_start_seconds: float = 0.0  # of a function without an idle environment
    reboot_begin_seconds: float = 0.0  # from the end of a reboot's command until the node goes down; simulation only

    def of_sandbox(self) -> dict[str, float]:
        """Return the fields of the sandbox's Behaviour. There nodes wait by themselves before they go down."""
        return {name: value for name, value in asdict(self).items() if name != "reboot_begin_seconds"}


NONE = Latency()
AWS = Latency(
    # Assumed, for events of callers and of services alike. AWS has announced a figure of this size (99th percentile,
    # 2024); its page was not found again.
    event_seconds=0.13,
    # Assumed: no figure is published. The agent holds a long poll, and the service has to find it.
    ssm_begin_seconds=3.0,
    # The SSM agent's and systemd's own constants, from their sources (docs/fidelity.md).
    ssm_seconds_scale=1.0,
    # Assumed: the ECS agent takes the task, creates and starts its container.
    task_start_seconds=2.0,
    # Published: from under 100 ms to over 1 s (Lambda Operator Guide). Assumed: 1 s, of which the sandbox's process
    # takes 0.3 s by itself.
    cold_start_seconds=0.7,
    # The agent's own constant (nodeheal/agent/node_commands/reboot.py, DELAY_SECONDS).
    reboot_begin_seconds=3.0,
)
LATENCIES = {"none": NONE, "aws": AWS}
