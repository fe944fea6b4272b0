"""Reads each event of an incident as a fault: the catalog's row, as the policy and the driver change it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import DIAGNOSE, IDLE_CHECK, NEEDS_APPROVAL, NEW_NODE, OPERATOR_REQUEST, ROUTINE_CHECKS
from nodeheal.contract.vocabulary import Action, Family, NextStepCondition, Scope, Verdict
from nodeheal.domain.faults.catalog import CatalogRow, find
from nodeheal.domain.faults.catalog import title as title_of
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.verbs import DISRUPTIVENESS, ESCALATION_STEPS, VERBS

RECOVERY_ACTION_CHANGED = "154"  # the XID in whose text the driver says what it wants done about another one
STATEMENT = f"xid/{RECOVERY_ACTION_CHANGED}"
BY_HAND = f"host/{OPERATOR_REQUEST}"
OF_NEW_NODE = f"host/{NEW_NODE}"


class _Secondary(NamedTuple):
    """The faults that explain a secondary one of the same node near them. A family stands for all of its codes."""

    roots: frozenset[str]
    on_same_component: bool = False


# By family/code: what only accompanies which other faults. XID 74 comes at every peer of a GPU that is lost or of a
# switch that fails (120 and 175 are other words for the firmware that 119 finds dead); 171 and 172 say where the error
# of a 48, 94 or 95 lies.
_DATA_LOST = _Secondary(frozenset({"xid/48", "xid/94", "xid/95"}), on_same_component=True)
_SECONDARY = {
    "xid/74": _Secondary(
        frozenset(
            {
                *("xid/79", "xid/119", "xid/120", "xid/175", STATEMENT),
                *("nvrm_other/fallen_off_bus", "nvrm_other/gpu_lost", "sxid"),
            }
        )
    ),
    "xid/171": _DATA_LOST,
    "xid/172": _DATA_LOST,
}
_UNKNOWN = "The catalog does not know this fault; a human must look."
_UNKNOWN_OWN = "A check of your own reports it, and the policy says nothing about it (overrides); a human must look."
_GRAVITY = {Verdict.OK: 0, Verdict.UNKNOWN: 1, Verdict.DEGRADED: 1, Verdict.FAILED: 2}


_Kind = tuple[Family, str, str | None, str | None, Verdict, str | None]
_OTHER_OPINIONS = re.compile(r" \([^()]*(?:\([^()]*\)[^()]*)*\)$")
_TIME = attrgetter("observed_at", "event_id")
# What makes two events of one kind.
_KIND = attrgetter("family", "code", "component", "subcode", "verdict", "product")


@dataclass(frozen=True)
class Meaning:
    """What a kind of event asks for, at any time and on any node."""

    title: str
    why: str
    ladder: tuple[Action, ...]
    next_rung: NextStepCondition = NextStepCondition.unproven
    scope: Scope = Scope.node
    is_policy: bool = False  # an operator's override: nothing wins over that


class Fault(NamedTuple):
    """One kind of fault of an incident, with its first event.

    `start`: the step of the ladder that repetition has reached.
    """

    event: HealthEvent
    meaning: Meaning
    alike: Sequence[HealthEvent] = ()  # all of this kind, in order of time
    start: int = 0
    note: str = ""  # why it is not on the first step any more

    @property
    def title(self) -> str:
        """Its name."""
        return self.meaning.title

    @property
    def why(self) -> str:
        """The reason for its action."""
        return f"{self.note} {self.meaning.why}".strip()

    @property
    def short_why(self) -> str:
        """The reason without other vendors' opinions, which stand in brackets at its end."""
        return _OTHER_OPINIONS.sub("", self.why)

    @property
    def ladder(self) -> tuple[Action, ...]:
        """The actions that may be tried, in order."""
        return self.meaning.ladder

    @property
    def next_rung(self) -> NextStepCondition:
        """The condition for the second action."""
        return self.meaning.next_rung

    @property
    def scope(self) -> Scope:
        """How far the fault reaches."""
        return self.meaning.scope

    @property
    def key(self) -> str:
        """Its family/code, as a policy spells it."""
        return f"{self.event.family.value}/{self.event.code}"

    @property
    def action(self) -> Action:
        """The action that is due now."""
        return self.meaning.ladder[self.start]

    @property
    def waits_for_job(self) -> bool:
        """Whether an action is due when the job has ended."""
        return self.meaning.next_rung is NextStepCondition.job_end and self.start == 0 and len(self.meaning.ladder) > 1

    @property
    def is_by_hand(self) -> bool:
        """Whether an operator requests it. Modes and maintenance do not block it; everything else does."""
        return self.key == BY_HAND

    @property
    def needs_approval(self) -> bool:
        """Whether it is requested in an operator's place, by somebody who may be none."""
        return self.is_by_hand and NEEDS_APPROVAL in self.event.labels

    @property
    def is_of_new_node(self) -> bool:
        """Whether the only reason is that the node has never been diagnosed."""
        return self.key == OF_NEW_NODE and not self.event.is_from_node

    @property
    def is_of_idle_node(self) -> bool:
        """Whether the only reason is that a free node has not been diagnosed for long."""
        return self.is_routine and self.event.code == IDLE_CHECK

    @property
    def is_routine(self) -> bool:
        """Whether nodeheal has the node diagnosed without any sign of a fault."""
        event = self.event
        return event.family is Family.host and event.code in ROUTINE_CHECKS and not event.is_from_node

    @property
    def is_diagnosis_by_hand(self) -> bool:
        """Whether an operator wants the node diagnosed, and back in service if it passes."""
        return self.is_by_hand and self.event.subcode == DIAGNOSE

    @property
    def needs_proof_only(self) -> bool:
        """Whether nothing is known to be wrong: the node is diagnosed first, and nothing is repaired."""
        return self.is_routine or self.is_diagnosis_by_hand

    @property
    def keeps_out(self) -> bool:
        """Whether an operator wants the node out of service and nothing else, and may work on it."""
        return self.is_by_hand and Action.ISOLATE in self.meaning.ladder and not self.is_diagnosis_by_hand

    @property
    def touches_the_node(self) -> bool:
        """Whether its action takes the node out of service."""
        return VERBS[self.action].takes_node_out

    def on_second_step(self, note: str) -> "Fault":
        """Returns the fault on the second step of its ladder, with the reason.

        Without a second step a human is asked.
        """
        meaning = self.meaning
        if len(meaning.ladder) < 2:
            meaning = replace(meaning, ladder=(*meaning.ladder, Action.ESCALATE))
        return self._replace(meaning=meaning, start=1, note=note)


@lru_cache(maxsize=4096)
def meaning_of(
    family: Family,
    code: str,
    subcode: str | None,
    verdict: Verdict,
    product: str | None,
    pool: str,
    policy: RecoveryPolicy,
) -> Meaning | None:
    """Returns what such an event asks for by itself. None: it reports no fault. An unknown fault goes to a human."""
    if verdict is Verdict.OK and code != RECOVERY_ACTION_CHANGED:
        return None
    row = find(family, code, subcode)
    title = title_of(family, code, subcode)
    override = policy.override("/".join(filter(None, (family.value, code, subcode))), pool)
    if override is not None:
        scope = row.scope if row else Scope.node
        ladder = _as_carried_out(override.ladder, policy, pool)
        return Meaning(title, f"The policy says so: {override.why}", ladder, override.next_rung, scope, is_policy=True)
    if row is None:
        return Meaning(title, _UNKNOWN_OWN if family is Family.own else _UNKNOWN, (Action.ESCALATE,))
    doubt = why_not_sure(row, verdict, product)
    if doubt:
        return Meaning(title, doubt, (Action.ESCALATE,))
    return Meaning(title, row.why, _as_carried_out(row.ladder, policy, pool), row.next_rung, row.scope)


def why_not_sure(row: CatalogRow, verdict: Verdict, product: str | None) -> str:
    """Returns why the catalog's action must not be taken on such an event. Empty: it may be taken."""
    if verdict is Verdict.UNKNOWN and row.verdict is not Verdict.UNKNOWN:
        return "It is reported as UNKNOWN: the check cannot tell. That is no reason to act, and no proof of health."
    if _GRAVITY[verdict] < _GRAVITY[row.verdict]:
        return f"It is reported as {verdict}, where the catalog expects {row.verdict}: too little to act on."
    is_destructive = any(VERBS[action].budget_group in ESCALATION_STEPS for action in row.ladder)
    if is_destructive and not row.applies_to(product):
        return f"The sources name this code for {', '.join(row.products)}, not for {product}: a human must look."
    return ""


def _as_carried_out(ladder: tuple[Action, ...], policy: RecoveryPolicy, pool: str) -> tuple[Action, ...]:
    """Replaces each verb that the pool has not switched on by the one that stands for it."""
    rules = policy.pool(pool)
    off = {action: VERBS[action].carried_out_as for action in ladder if not VERBS[action].is_on(rules)}
    return tuple(dict.fromkeys(off.get(action) or action for action in ladder))


def faults_of(events: Iterable[HealthEvent], policy: RecoveryPolicy, pool: str) -> list[Fault]:
    """Returns one fault for each kind of event, in the order of their first events. `events` are in order of time.

    A recovery action that the driver states wins over the catalog. A secondary fault asks for nothing.
    """
    kinds: dict[_Kind, list[HealthEvent]] = {}
    for event in events:
        kinds.setdefault(_KIND(event), []).append(event)
    faults = []
    stated: dict[str | None, list[Fault]] = {}
    for (family, code, component, subcode, verdict, product), alike in kinds.items():
        meaning = meaning_of(family, code, subcode, verdict, product, pool, policy)
        if meaning is not None:
            fault = Fault(alike[0], meaning, alike)
            faults.append(fault)
            if code == RECOVERY_ACTION_CHANGED and _states_an_action(alike[0]):
                stated.setdefault(component, []).append(fault)
    window = timedelta(seconds=policy.correlation.window_seconds)
    if stated:
        for statements in stated.values():
            statements.sort(key=lambda fault: _TIME(fault.alike[-1]), reverse=True)
        faults = [_as_stated(fault, stated.get(fault.event.component, []), window) for fault in faults]
    return [_as_secondary(fault, faults, window) if fault.key in _SECONDARY else fault for fault in faults]


def _as_secondary(fault: Fault, faults: Sequence[Fault], window: timedelta) -> Fault:
    """Returns the fault without an action, if another fault near it explains each of its events."""
    if fault.meaning.is_policy or fault.ladder[0] is Action.OBSERVE:
        return fault
    roots = [root for root in faults if _explains(root, fault)]
    times = [event.observed_at for root in roots for event in root.alike]
    if not all(any(abs(at - event.observed_at) <= window for at in times) for event in fault.alike):
        return fault
    named = ", ".join(dict.fromkeys(root.title for root in roots))
    why = f"It came within {window.total_seconds():g} s of {named}, which explains it and decides what is done."
    meaning = replace(fault.meaning, ladder=(Action.OBSERVE,), next_rung=NextStepCondition.unproven, why=why)
    return fault._replace(meaning=meaning)


def _explains(root: Fault, fault: Fault) -> bool:
    """Tells whether the root asks for an action itself and explains the fault."""
    rule, is_same = _SECONDARY[fault.key], root.event.component == fault.event.component
    if DISRUPTIVENESS[root.ladder[0]] <= DISRUPTIVENESS[Action.ESCALATE] or (rule.on_same_component and not is_same):
        return False
    # What the driver states about the same GPU has already become this fault's own action.
    return not rule.roots.isdisjoint({root.key, root.event.family.value}) and not (root.key == STATEMENT and is_same)


def _states_an_action(event: HealthEvent) -> bool:
    """Tells whether the driver states a recovery action. The statement "nothing" counts too."""
    return event.family is Family.xid and event.code == RECOVERY_ACTION_CHANGED and event.subcode is not None


def _as_stated(fault: Fault, stated: list[Fault], window: timedelta) -> Fault:
    """Returns the fault as the newest statement near it about the same GPU says. Secondary faults stay secondary."""
    if fault.event.family not in (Family.xid, Family.nvrm_other) or fault.ladder == (Action.OBSERVE,):
        return fault
    if fault.meaning.is_policy:
        return fault
    for statement in stated:  # newest first
        if any(abs(s.observed_at - f.observed_at) <= window for s in statement.alike for f in fault.alike):
            if statement is fault:
                return fault
            return fault._replace(
                meaning=_stated_meaning(fault.meaning, statement.meaning, str(statement.event.subcode))
            )
    return fault


@lru_cache(maxsize=1024)
def _stated_meaning(table: Meaning, statement: Meaning, subcode: str) -> Meaning:
    wanted = subcode.replace("_", " ").lower()
    why = (
        f"The driver states the recovery action itself (XID 154: {wanted}), which wins over the table. {statement.why}"
    )
    return replace(statement, title=table.title, why=why, scope=table.scope)


def was_fault_of_job(print_of_fault: str, policy: RecoveryPolicy, pool: str) -> bool:
    """Tells whether a resolved fault belonged to the job that ran then. Under the next run it is a new fault."""
    family, code, subcode, *_ = print_of_fault.split("|")
    row = find(Family(family), code, subcode or None)
    verdict = row.verdict if row else Verdict.UNKNOWN
    meaning = meaning_of(Family(family), code, subcode or None, verdict, None, pool, policy)
    return meaning is not None and meaning.ladder[0] is Action.RESTART_WORKLOAD
