"""Imagined incidents: what the decision core would say of a fault that has not happened."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from nodeheal import __version__
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.results import Isolated, StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Family, Outcome, Provider, SchedulerKind, Step, Verdict
from nodeheal.domain.faults.catalog import find
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decide import decide
from nodeheal.domain.recovery.decision_context import DecisionContext, node_scope
from nodeheal.domain.recovery.incident import History, Incident, Turn
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.verbs import VERBS

NODE = "mi-imagined"
JOB = "a-job"


def event_of(family: Family, code: str, subcode: str | None, pool: str, product: str | None) -> HealthEvent:
    """The fault, as the catalog expects it to be reported."""
    row = find(family, code, subcode)
    return HealthEvent(
        schema_version=1,
        event_id="imagined",
        node_id=NODE,
        cluster="imagined",
        pool=pool,
        provider=Provider.hybrid,
        scheduler=next(iter(SchedulerKind)),  # a fault means the same on all of them
        instance_id=NODE,
        boot_id="boot-1",
        observed_at=datetime.now(UTC),
        source="explain",
        family=family,
        code=code,
        subcode=subcode,
        component="0000:b9:00.0",
        verdict=row.verdict if row else Verdict.FAILED,
        product=product,
        agent_version=__version__,
    )


def history_of(event: HealthEvent, policy: RecoveryPolicy, after: Sequence[Action] = ()) -> History:
    """An incident of this fault in which each of `after` was tried, in order, and did not help."""
    incident = Incident("inc-imagined", NODE, event.pool, event, event.observed_at, policy.version, job_id=JOB)
    turns = [_turn(Step.ISOLATE, event, facts=Isolated(is_drained=True))] if after else []
    spent: dict[tuple[str, Action], int] = {}
    for number, action in enumerate(after, start=2):
        boot = f"boot-{number}"
        turns += [
            _turn(VERBS[action].step, event, action=action, boot_id=boot),
            _turn(Step.DIAGNOSE, event, Outcome.FAILED, "diagnostics failed", boot_id=boot),
        ]
        spent[node_scope(NODE), action] = spent.get((node_scope(NODE), action), 0) + 1
    # Only EC2 machines are stopped and started: where the pool wants that, it is of such.
    provider = Provider.ec2 if policy.pool(event.pool).stop_start else Provider.hybrid
    around = DecisionContext(provider=provider, spent=spent, job_is_running=not after)
    return History(incident, (event,), tuple(turns), context=around)


def _turn(
    step: Step,
    event: HealthEvent,
    outcome: Outcome = Outcome.DONE,
    reason: str = "",
    action: Action | None = None,
    **more: object,
) -> Turn:
    result = StepResult(
        step=step, node_id=NODE, outcome=outcome, reason=reason, finished_at=event.observed_at + timedelta(minutes=5)
    )
    return Turn(Decision(step=step, reason="imagined", node_id=NODE, action=action), result.model_copy(update=more))


def decided(event: HealthEvent, policy: RecoveryPolicy, after: Sequence[Action] = ()) -> Decision:
    """What comes next."""
    return decide(Situation(history_of(event, policy, after), policy), event.observed_at)
