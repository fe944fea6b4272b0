"""How the simulated cloud misbehaves, from now on. By default it behaves."""

from dataclasses import dataclass, replace

ALWAYS = -1


@dataclass
class Behaviour:
    """Switches, read at each use. `no_capacity`: how many launches fail (ALWAYS: all of them)."""

    no_capacity: int = 0
    no_capacity_code: str = "InsufficientInstanceCapacity"
    full_subnets: tuple[str, ...] = ()  # where there is no room for one more, whatever no_capacity says
    reservation_size: int = 0  # how many instances each capacity reservation holds; 0: any number
    launch_seconds: float = 0.0  # how much longer than a boot a new machine takes to come up
    retry_seconds: float = 0.5  # how long a group waits after a launch that failed
    event_seconds: float = 0.0  # how long an event takes from its source to its rule's target
    task_start_seconds: float = 0.0  # how long a task is PENDING before its process starts
    cold_start_seconds: float = 0.0  # how much longer a function takes that has no idle environment
    ssm_begin_seconds: float = 0.0  # how long a command takes to reach its node; long: the SSM agent was hibernating
    ssm_seconds_scale: float = 0.05  # of the seconds that the SSM agent and systemd wait; 1.0: as they really are
    ssm_orphans: bool = False  # what a power cut ends is never reported, and keeps one of its node's five workers
    duplicate_events: bool = False  # every AWS event comes twice
    reorder_events: bool = False  # every two AWS events change places

    def change(self, changes: dict[str, object]) -> None:
        """Set what is named. Raises TypeError for what does not exist."""
        changed = replace(self, **changes)  # type: ignore[arg-type]
        self.__dict__.update(changed.__dict__)

    def takes_capacity(self) -> bool:
        """Whether the next machine can be had. Asking uses up one of the failures that were ordered."""
        if self.no_capacity > 0:
            self.no_capacity -= 1
            return False
        return self.no_capacity != ALWAYS
