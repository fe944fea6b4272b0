"""What a cloud and its nodes take by themselves: nothing worth naming, or what AWS takes as far as anybody says.

Every figure of demo, bench and simulation is given for both. The fields but the last are those of the sandbox's
Behaviour. The simulation reads the two that its own assumptions leave out: it always reckons with 0.3 s for an event,
0.2 s for a function and 40 s for a task whose image is pulled.
"""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Latency:
    """Seconds on top of what the sandbox, or the simulation, takes anyway."""

    event_seconds: float = 0.0  # of an event from its source to its rule's target
    ssm_begin_seconds: float = 0.0  # of a command from SendCommand to the first line of its script
    ssm_seconds_scale: float = 0.05  # of what the SSM agent and systemd wait on a node; 1.0: as they really do
    task_start_seconds: float = 0.0  # of a task from StartTask until its process runs, its image on the node
    cold_start_seconds: float = 0.0  # of a function that has no idle environment
    reboot_begin_seconds: float = 0.0  # from the end of a reboot's command until the node goes down; simulation only

    def of_sandbox(self) -> dict[str, float]:
        """The fields that the sandbox's Behaviour has. There nodes wait by themselves before they go down."""
        return {name: value for name, value in asdict(self).items() if name != "reboot_begin_seconds"}


NONE = Latency()
AWS = Latency(
    # Assumed, for events of callers and of services alike. AWS has announced a figure of this size (99th percentile,
    # 2024); its page was not found again.
    event_seconds=0.13,
    # Assumed: no figure is published. The agent holds a long poll, and the service has to find it.
    ssm_begin_seconds=3.0,
    # The SSM agent's and systemd's own constants, read in their sources (docs/fidelity.md).
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
