"""Finds where DCGM's host engine listens."""

from pathlib import Path

from nodeheal.agent.runtime.config import AgentConfig

# Amazon's ECS-optimised AMIs of AL2023 for GPUs start it so: scripts/al2023/gpu/install-dcgm.sh in aws/amazon-ecs-ami.
# DCGM's own default for sockets, in /tmp, is not used: any user could listen there.
SOCKET = Path("/run/nvidia-dcgm/nv-hostengine")


def dcgmi(config: AgentConfig, *arguments: str) -> list[str]:
    """Return the command for the host engine: at the configured address, else at the socket if it exists, else at
    dcgmi's default.
    """
    host = config.dcgm_host or (f"unix://{SOCKET}" if SOCKET.is_socket() else "")
    return ["dcgmi", *arguments, *(("--host", host) if host else ())]
