"""Every check that there is. A new one is a file in this folder and a line here."""

from nodeheal.agent.checks import (
    clock_skew,
    dcgm,
    disk,
    gpu_count,
    gpu_state,
    host_load,
    memory,
    mounts,
    neuron,
    nvidia_services,
    nvidia_smi,
    processes,
    progress,
    ram_ecc,
    rdma,
)
from nodeheal.agent.checks.check import Check
from nodeheal.agent.config import AgentConfig, ConfigError

CHECKS: tuple[Check, ...] = (
    gpu_state.CHECK,
    gpu_count.CHECK,
    nvidia_smi.CHECK,
    dcgm.CHECK,
    nvidia_services.CHECK,
    neuron.CHECK,
    rdma.CHECK,
    disk.CHECK,
    mounts.CHECK,
    memory.CHECK,
    host_load.CHECK,
    ram_ecc.CHECK,
    processes.CHECK,
    clock_skew.CHECK,
    progress.CHECK,
)


def chosen(config: AgentConfig, only: tuple[str, ...] = ()) -> list[Check]:
    """Those that `only`, else the configuration names; all without. Raises ConfigError for a name that is none."""
    names = only or config.checks
    if names is None:
        return list(CHECKS)
    known = {check.name: check for check in CHECKS}
    for name in names:
        if name not in known:
            raise ConfigError(f"key 'checks': {no_check(name)}")
    return [known[name] for name in names]


def no_check(name: str) -> str:
    """That there is none of this name, in words."""
    return f"there is no check {name!r}; there are {', '.join(one.name for one in CHECKS)}"
