"""What the scenarios are made of: a world that breaks where it is told to, and what is wrong with it in the end."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.contract.vocabulary import Action, Step
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.services.operators.answer_approval import answer_approval
from nodeheal.simulation.injected_failures import InjectedFailure
from tests.support.builders import NOW, xid
from tests.support.fake_cluster import BROKEN, PEER
from tests.support.fuse import Fuse
from tests.workflows.breaking_world import ACTS, BreakingWorld

RECOVERED = ("Recovered",)
HANDED_OVER = ("Escalated",)


def world(policy: RecoveryPolicy = ACTS, *injected_failures: InjectedFailure, **said: Any) -> BreakingWorld:
    """A world of its own; functions break where they are told to."""
    return BreakingWorld(Fuse(injected_failures, writes_only=True), policy, **said)


def wrong_with(it: BreakingWorld, *claims: tuple[bool, str]) -> list[str]:
    """What the invariants say, and which of these claims does not hold."""
    return [*it.faults(), *(text for holds, text in claims if not holds)]


def ends_as(it: BreakingWorld, *ends: str) -> tuple[bool, str]:
    return it.ends == ends, f"it ended as {it.ends}, and not as {ends}"


def steps_of(it: BreakingWorld) -> list[Step]:
    """What was decided, in order."""
    return [turn.decision.step for turn in it.plain.incidents.history(it.incident_id).turns]


def peers_fault() -> Any:
    return xid(79, node_id=PEER, instance_id=PEER, event_id="peer")


def answers(it: BreakingWorld, question: Question, answer: Answer, *, fused: bool = False) -> None:
    answer_approval(question, answer, "ada" if fused else "bob", "", it.ports if fused else it.plain)


def is_soon(it: BreakingWorld) -> tuple[bool, str]:
    return it.clock() - NOW < timedelta(hours=1), "it waited to its deadline"


def changes(it: BreakingWorld, name: str = BROKEN, **to: Any) -> Callable[[], object]:
    return lambda: it.plain.nodes.save(replace(it.node(name), **to))


def spent(it: BreakingWorld) -> int:
    """Reboots that count for the node now."""
    limit = it.policy.limits[Action.REBOOT]
    return it.plain.attempts.spent(node_scope(BROKEN), limit)[Action.REBOOT]
