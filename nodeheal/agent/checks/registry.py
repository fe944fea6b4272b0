"""Lists every check. A new check is a file in this folder and a line here."""

from nodeheal.agent.checks import (
    clock_skew,
    dcgm,
    dcgm_counters,
    disk,
    gpu_count,
    gpu_state,
    host_load,
    kubernetes_node,
    memory,
    mounts,
    neuron,
    nvidia_services,
    nvidia_smi,
    own,
    processes,
    progress,
    ram_ecc,
    rdma,
)
from nodeheal.agent.checks.check import NodeCheck
from nodeheal.agent.runtime.config import AgentConfig, ConfigError

CHECKS: tuple[NodeCheck, ...] = (
    gpu_state.CHECK,
    gpu_count.CHECK,
    nvidia_smi.CHECK,
    dcgm.CHECK,
    dcgm_counters.CHECK,
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
    kubernetes_node.CHECK,
    own.CHECK,
)


def chosen(config: AgentConfig, only: tuple[str, ...] = ()) -> list[NodeCheck]:
    """Return the checks of `only`, else those of the configuration, else all. Raises ConfigError for an unknown
    name.
    """
    names = only or config.checks
    if names is None:
        return [*CHECKS, *own.all_of(config)]
    checks: dict[str, NodeCheck] = {}
    for name in names:
        check = named(name, config)
        if check is None:
            raise ConfigError(f"key 'checks': {no_check(name)}")
        checks[name] = check
        if check is own.CHECK:
            checks |= {own_check.name: own_check for own_check in own.all_of(config)}
    return list(checks.values())


def named(name: str, config: AgentConfig) -> NodeCheck | None:
    """Return the check of this name, including an operator's own without a file; None for an invalid name."""
    if own.is_name(name):
        return own.check_of(name.removeprefix(own.PREFIX), config)
    return next((check for check in CHECKS if check.name == name), None)


def no_check(name: str) -> str:
    """Return the error text for an unknown check."""
    return f"there is no check {name!r}; there are {', '.join(check.name for check in CHECKS)}, own/NAME"
