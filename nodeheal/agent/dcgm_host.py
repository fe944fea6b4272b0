"""Where DCGM's host engine listens."""

from pathlib import Path

from nodeheal.agent.config import AgentConfig

# Amazon's ECS-optimised AMIs of AL2023 for GPUs start it so: scripts/al2023/gpu/install-dcgm.sh in aws/amazon-ecs-ami.
# DCGM's own default for sockets, in /tmp, is not looked for: any user could listen there.
SOCKET = Path("/run/nvidia-dcgm/nv-hostengine")


def dcgmi(config: AgentConfig, *arguments: str) -> list[str]:
    """The command that asks the host engine: as configured, by the socket if there is one, else by dcgmi's default."""
    host = config.dcgm_host or (f"unix://{SOCKET}" if SOCKET.is_socket() else "")
    return ["dcgmi", *arguments, *(("--host", host) if host else ())]
