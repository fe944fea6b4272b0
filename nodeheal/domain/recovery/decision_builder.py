"""Builds decisions: fills in the fields that every decision carries."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodeheal.contract.names import DIAGNOSTICS_LEVEL
from nodeheal.contract.steps import Decision, Reservation, StandingDiagnosis
from nodeheal.contract.vocabulary import Action, Awaited, Ending, Escalation, Provider, Step
from nodeheal.domain.faults.assessment import FaultAssessment
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decision_context import accelerator_scope, job_scope, node_scope
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.verbs import verb_of_step

# Seconds that DCGM may need for its long diagnostics on a node with eight GPUs, whatever the policy expects.
_LONG_LEVELS = {3: 3_600, 4: 4 * 3_600}


def seconds_to_diagnose(level: int, policy: RecoveryPolicy) -> int:
    """Returns how long a node may take for its diagnostics."""
    return max(policy.deadlines.diagnose_seconds, _LONG_LEVELS.get(level, 0))


@dataclass(frozen=True)
class DecisionBuilder:
    """Holds what a decision is made from, and builds decisions with their reasons."""

    history: History
    policy: RecoveryPolicy
    assessment: FaultAssessment
    now: datetime

    @property
    def job_id(self) -> str | None:
        """The job that ran on the node when the incident began."""
        return self.history.incident.job_id

    def step(
        self,
        step: Step,
        reason: str,
        action: Action | None = None,
        node_id: str | None = None,
        deadline_seconds: int | None = None,
        is_move: bool = False,
    ) -> Decision:
        """Builds the decision to carry out `step`. `action`: the verb whose attempts are reserved first."""
        return self._decision(
            step=step,
            reason=reason,
            node_id=node_id or self.history.incident.node_id,
            action=action,
            deadline_seconds=deadline_seconds or self._deadline(step, action),
            reserve=self.reservations(action) if action else (),
            diagnostics_level=self._diagnostics_level() if step is Step.DIAGNOSE else None,
            is_move=is_move,
            component=(self.assessment.fault.event.component or "") if action else "",
        )

    def standing_diagnosis(self) -> StandingDiagnosis | None:
        """Returns what the node runs by itself after a reboot: what DIAGNOSE would ask it for.

        None: EC2 reboots it, and takes no command along.
        """
        if self.history.context.provider is not Provider.hybrid:
            return None
        return StandingDiagnosis(
            level=self._diagnostics_level(),
            checks=self.policy.pool(self.history.incident.pool).checks,
            tolerated_percent=self.policy.regression_percent,
            seconds=self._deadline(Step.DIAGNOSE, None),
        )

    def wait_on(
        self,
        progress: Progress,
        awaits: Awaited,
        reason: str,
        seconds: int,
        action: Action | None = None,
        key: str = "",
    ) -> Decision | None:
        """Builds a wait with one deadline for all its wake-ups. Returns None when the deadline has passed.

        `key`: the key of its page. A wait under another key is another wait.
        """
        until = progress.due.get((awaits, key)) or self.now + timedelta(seconds=max(1, seconds))
        left = math.ceil((until - self.now).total_seconds())
        return self.wait(awaits, reason, left, action, key or None, until) if left > 0 else None

    def wait(
        self,
        awaits: Awaited,
        reason: str,
        deadline_seconds: int,
        action: Action | None = None,
        page_key: str | None = None,
        due_at: datetime | None = None,
    ) -> Decision:
        """Builds a wait with a time limit. `action`: the verb that follows it."""
        return self._decision(
            step=Step.WAIT,
            awaits=awaits,
            reason=reason,
            deadline_seconds=max(1, deadline_seconds),
            action=action,
            page_key=page_key,
            due_at=due_at,
        )

    def close(self, ending: Ending, reason: str, is_held_back: bool = False, page_key: str | None = None) -> Decision:
        """Builds the decision to end the incident without a human."""
        return self._decision(
            step=Step.CLOSE, ending=ending, reason=reason, is_held_back=is_held_back, page_key=page_key
        )

    def escalate(self, code: Escalation, reason: str, page_key: str | None = None) -> Decision:
        """Builds the decision to end the incident with a human. `code` names the runbook."""
        return self._decision(
            step=Step.ESCALATE, ending=Ending.HANDED_TO_A_HUMAN, escalation=code, reason=reason, page_key=page_key
        )

    def reservations(self, action: Action) -> tuple[Reservation, ...]:
        """Returns the limits that an attempt counts against: those of the job, or of the node and its accelerator."""
        if action is Action.RESTART_WORKLOAD:
            scope = job_scope(str(self.job_id))
            ours = Reservation(scope=scope, limit=self.policy.limits[action])
            return (ours, *self.history.context.job_limits)
        if action not in self.policy.limits:
            return ()  # the policy has no limit for it: no pool uses it
        reservations = [Reservation(scope=node_scope(self.history.incident.node_id), limit=self.policy.limits[action])]
        serial, limit = self.assessment.fault.event.component_serial, self.policy.accelerator_limits.get(action)
        if serial and limit:
            reservations.append(Reservation(scope=accelerator_scope(serial), limit=limit))
        return tuple(reservations)

    def _decision(self, **fields: object) -> Decision:
        known: dict[str, object] = {
            "node_id": self.history.incident.node_id,
            "job_id": self.job_id,
            "pool": self.history.incident.pool,
            "events_seen": self.history.event_count,
            "deadline_seconds": self.policy.deadlines.quick_seconds,
            "fault": self.assessment.fault.title,
            "why": self.assessment.fault.short_why,
            "fault_at": self.assessment.fault.alike[-1].observed_at if self.assessment.fault.alike else None,
            "policy_version": self.policy.version,
        }
        return Decision.model_validate({**known, **fields})

    def _diagnostics_level(self) -> int:
        asked = self.history.incident.root.labels.get(DIAGNOSTICS_LEVEL, "")
        if self.assessment.fault.is_by_hand and asked in ("1", "2", "3", "4"):
            return int(asked)
        return self.policy.diagnostics_level_of(self.history.incident.pool)

    def _deadline(self, step: Step, action: Action | None) -> int:
        if step is Step.DIAGNOSE:
            return seconds_to_diagnose(self._diagnostics_level(), self.policy)
        return self.policy.deadlines.of(verb_of_step(step, action))
