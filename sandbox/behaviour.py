"""Defines how the simulated cloud misbehaves from now on. By default it does not."""

from dataclasses import dataclass, replace

ALWAYS = -1


@dataclass
class Behaviour:
    """Switches, read at each use. `no_capacity`: how many launches fail (ALWAYS: all of them)."""

    no_capacity: int = 0
    no_capacity_code: str = "InsufficientInstanceCapacity"
    full_subnets: tuple[str, ...] = ()  # where launches fail in any case
    reservation_size: int = 0  # capacity of each reservation; 0: any number
    launch_seconds: float = 0.0  # time that a new machine takes in addition to a boot
    hyperpod_recovery: str = ""  # NodeRecovery of every cluster of HyperPod; empty: as each is made
    hyperpod_refuses: str = ""  # the code with which HyperPod refuses every reboot and replacement, in `Failed`
    retry_seconds: float = 0.5  # pause of a group after a failed launch
    event_seconds: float = 0.0  # time of an event from its source to its rule's target
    task_start_seconds: float = 0.0  # time that a task is PENDING before its process starts
    cold_start_seconds: float = 0.0  # additional time of a function without an idle environment
    ssm_begin_seconds: float = 0.0  # time of a command to its node; long: the SSM agent was hibernating
    ssm_seconds_scale: float = 0.05  # of the SSM agent's and systemd's waits; 1.0: as in reality
    # A command that a power cut ends is never reported, and occupies one of its node's five workers.
    ssm_orphans: bool = False
    duplicate_events: bool = False  # every AWS event is delivered twice
    reorder_events: bool = False  # every two AWS events are swapped

    def change(self, changes: dict[str, object]) -> None:
        """Set the named switches. Raises TypeError for an unknown one."""
        changed = replace(self, **changes)  # type: ignore[arg-type]
        self.__dict__.update(changed.__dict__)

    def takes_capacity(self) -> bool:
        """Whether the next launch succeeds. A call uses up one of the requested failures."""
        if self.no_capacity > 0:
            self.no_capacity -= 1
            return False
        return self.no_capacity != ALWAYS
