"""A recovery as a list of events and answers, decided turn by turn."""

from dataclasses import replace

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.results import EvidenceSaved, Isolated, Replaced, StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Confirmation, Outcome
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decide import decide
from nodeheal.domain.recovery.incident import History, Incident, Turn, incident_id_of
from nodeheal.domain.recovery.situation import Situation
from tests.support.builders import ACT, NOW

SPARE = "mi-0spare"


OBSERVE = RecoveryPolicy()


class Story:
    """An incident so far. Each step is decided by the core itself, so a story cannot take a path that it would not."""

    def __init__(self, root: HealthEvent, job: str | None = "llama", policy: RecoveryPolicy = ACT) -> None:
        incident = Incident(incident_id_of(root), root.node_id, root.pool, root, NOW, policy.version, job_id=job)
        self.history = History(incident, (root,), ())
        self.policy = policy
        self.now = NOW

    def amid(self, **changes: object) -> "Story":
        """With these surroundings."""
        around = replace(self.history.context, **changes)  # type: ignore[arg-type]
        self.history = replace(self.history, context=around)
        return self

    def next(self) -> Decision:
        return decide(Situation(self.history, self.policy), self.now)

    def then(self, outcome: Outcome, reason: str = "so it went", **changes: object) -> "Story":
        decision = self.next()
        result = StepResult(
            step=decision.step, node_id=decision.node_id, outcome=outcome, reason=reason, finished_at=NOW
        ).model_copy(update=changes)
        self.history = replace(self.history, turns=(*self.history.turns, Turn(decision, result)))
        return self

    def isolated(self) -> "Story":
        """And it confirms its fault, where it is asked about it at once."""
        self.then(Outcome.DONE, facts=Isolated(is_drained=True))
        is_asked = self.next().accused is not None and not self.policy.evidence.enabled
        return self.answers(Confirmation.CONFIRMED) if is_asked else self

    def answers(self, confirmation: Confirmation, witness: str = "") -> "Story":
        """The node is asked about its fault, and says this."""
        facts = EvidenceSaved(confirmation=confirmation)
        is_heard = confirmation is not Confirmation.UNKNOWN
        reason = f"the node says {confirmation}"
        ended = Outcome.DONE if is_heard else Outcome.TIMED_OUT
        return self.then(ended, reason, facts=facts, down_reported_by=witness)

    def rebooted(self) -> "Story":
        return self.then(Outcome.DONE, "back with a new boot id", boot_id="boot-2")

    def swapped(self) -> "Story":
        return self.then(Outcome.DONE, f"swapped for spare {SPARE}", boot_id="boot-9", replacement_node_id=SPARE)

    def renewed(self, *, serves_at_once: bool = False) -> "Story":
        facts = Replaced(is_new_machine=True, serves_at_once=serves_at_once)
        why = f"swapped for new machine {SPARE}"
        return self.then(Outcome.DONE, why, boot_id="boot-9", replacement_node_id=SPARE, facts=facts)

    def passed(self) -> "Story":
        return self.then(Outcome.DONE, "diagnostics passed")

    def failed(self, reason: str = "diagnostics failed: pcie") -> "Story":
        return self.then(Outcome.FAILED, reason)

    def reports(self, event: HealthEvent) -> "Story":
        self.history = replace(self.history, events=(*self.history.events, event))
        return self


def steps_of(story: Story) -> list[str]:
    return [turn.decision.step.value for turn in story.history.turns] + [story.next().step.value]
