"""What one decision, and what follows from it, is made from: read once, and never changed."""

from dataclasses import dataclass
from functools import cached_property

from nodeheal.contract.vocabulary import Action, Outcome
from nodeheal.domain.faults.assessment import FaultAssessment, assess_faults
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.progress import Progress, read_progress


@dataclass(frozen=True)
class Situation:
    """One incident, as it is stored, with what is around it.

    `history.context`: what is around the incident; of an incident that ends, only whether its job runs. `node`, `job`,
    `run`: its own, as they were read. None: the incident has none, or they were not read. `job_is_over`: it needs no
    restart. `job_is_down`: it does not run, and no other incident is about to bring it back.
    """

    history: History
    policy: RecoveryPolicy
    node: Node | None = None
    job: Job | None = None
    run: Run | None = None
    job_is_over: bool = False
    job_is_down: bool = False

    @cached_property
    def progress(self) -> Progress:
        """What the incident has done so far."""
        return read_progress(self.history, self.policy)

    @cached_property
    def assessment(self) -> FaultAssessment:
        """What its events say, of all boots. A decision asks only those since the newest boot."""
        return assess_faults(self.history, self.policy)

    @property
    def is_fault_of_program(self) -> bool:
        """Whether the fault is taken for the job's own: no node was taken out of service for it."""
        return self.progress.isolation is None and self.assessment.fault.action is Action.RESTART_WORKLOAD

    @property
    def has_stopped_job(self) -> bool:
        """Whether the job was stopped for this recovery, or left to it, and is not restarted yet."""
        restart = self.progress.restart
        is_back = restart is not None and (restart.outcome is Outcome.DONE or bool(self.progress.job_is_left_to))
        is_ours = self.progress.is_isolated or restart is not None or self.job_is_down
        return is_ours and not is_back and not self.job_is_over
