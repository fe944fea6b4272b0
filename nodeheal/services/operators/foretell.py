"""What nodeheal would do of a fault that a node is to report: the decision core is asked as it will be then."""

from dataclasses import dataclass, replace

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, Family, Step, Verdict
from nodeheal.domain.faults.catalog import find
from nodeheal.domain.faults.drill import DcgmDrill
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import lasting
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decide import decide
from nodeheal.domain.recovery.decision_builder import DecisionBuilder
from nodeheal.domain.recovery.incident import History, Incident
from nodeheal.domain.recovery.ladder import first_step
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.verbs import VERBS
from nodeheal.parsers.dcgm_injected import XID_FIELD, counter_code, health_code
from nodeheal.parsers.kernel_line import parse_message
from nodeheal.ports import Ports
from nodeheal.services.intake.finding_about import finding_about
from nodeheal.services.intake.ingest import is_open_again
from nodeheal.services.operators.inject_fault import repeats
from nodeheal.services.recovery.pool_size import slots_of
from nodeheal.services.recovery.read_situation import read_situation

_NOT_YET = "drill"  # the id of an event and of an incident that nobody has


@dataclass(frozen=True)
class Foretold:
    """What follows, in lines. `stops_work`: whether the work on the node stops, or may. `is_seen`: by nodeheal."""

    lines: tuple[str, ...]
    stops_work: bool = False
    is_seen: bool = True
    keeps_nodes: bool = False  # the work starts again where it was


def foretell_drill(node: Node, fault: str | DcgmDrill, ports: Ports, policy: RecoveryPolicy) -> Foretold:
    """What follows where the node reports this now. `fault`: a kernel line, or a value in DCGM."""
    if isinstance(fault, DcgmDrill):
        return _of_dcgm(node, fault, ports, policy)
    known, finding = repeats(node, fault), parse_message(fault)
    if finding is None:
        return Foretold(("nodeheal reads no fault in it",))
    event = _event(node, finding.family, finding.code, finding.subcode, finding.component, ports)
    if known is not None and not is_open_again(event, node, known, ports, policy):
        return Foretold(_of_a_repeat(known, ports), is_seen=False)
    return _foretell(node, event, ports, policy)


def _of_a_repeat(known: str, ports: Ports) -> tuple[str, ...]:
    """Why no incident opens. `known`: the one before, for the same fault on the same boot."""
    turns, show = ports.incidents.history(known).turns, f"see `nodeheal incidents show {known}`"
    if not turns or not turns[-1].decision.is_held_back:
        return (f"{known} has dealt with this fault on this boot: a repeat of it opens no incident;", show)
    return (
        f"{known} was kept from acting on this fault: as long as that lasts, a repeat opens no incident;",
        "agents tell repeats up to a minute late, and one that comes when nodeheal may act is acted on;",
        show,
    )


def _of_dcgm(node: Node, drill: DcgmDrill, ports: Ports, policy: RecoveryPolicy) -> Foretold:
    by_counters = counter_code(drill.field, drill.value)
    code = by_counters or health_code(drill.field, drill.value)
    if code is None or find(Family.dcgm, code) is None:
        return Foretold(
            (
                "no health watch of DCGM 4.6 and no check reports this value: nodeheal does not see it, and opens no "
                "incident.",
                "DCGM's policies, dcgm-exporter and other clients see it if they read this field",
            ),
            is_seen=False,
        )
    lasts = "it holds until the driver's next value, so the check may miss it"
    if drill.field == XID_FIELD:
        lasts = "DCGM 4.4.1 and newer keep it until the host engine starts again; older ones do not watch XIDs"
    then = _foretell(node, _event(node, Family.dcgm, code, None, f"GPU {drill.gpu}", ports), ports, policy)
    if by_counters is not None:
        then_seen = (
            "it holds until the host engine asks the driver again, which a watch that somebody has may do sooner",
            "if the node's agent runs the check `dcgm_counters` (`checks` in its agent.toml), it reads the value",
            f"within seconds, and reports it as {code}: an incident opens then, marked as a drill; else none comes",
        )
        return replace(then, lines=(*then_seen, *then.lines))
    details = (
        lasts,
        "if the node's agent runs the check `dcgm` (`checks` in its agent.toml), it asks `dcgmi health` every five",
        f"minutes, which reports it as {code}: an incident opens then, marked as a drill; else none comes",
    )
    return replace(then, lines=(*details, *then.lines))


def _event(
    node: Node, family: Family, code: str, subcode: str | None, component: str | None, ports: Ports
) -> HealthEvent:
    row = find(family, code, subcode)
    return finding_about(
        node,
        _NOT_YET,
        ports.clock(),
        source="foretell",
        family=family,
        code=code,
        subcode=subcode,
        component=component,
        verdict=row.verdict if row else Verdict.FAILED,
        evidence=DRILL_MARK,
    )


def _foretell(node: Node, event: HealthEvent, ports: Ports, policy: RecoveryPolicy) -> Foretold:
    at = event.observed_at
    incident = Incident(_NOT_YET, node.node_id, node.pool, event, at, policy.version, job_id=node.job_id)
    situation = read_situation(History(incident, (event,), ()), ports, policy)
    # No node names an incident that is not there yet.
    context = replace(situation.history.context, is_released_or_retired=False)
    situation = replace(situation, history=replace(situation.history, context=context))
    decision = decide(situation, at)
    if decision.step is Step.CLOSE:
        return Foretold((f"nothing is touched. {decision.reason}",))
    if decision.step is Step.ESCALATE:
        return Foretold((f"nothing is touched, and a human is told. {decision.reason}",))
    if decision.step is Step.WAIT:
        return Foretold((_waits(decision, node, policy),), stops_work=True)
    real = f"what follows is real, by policy {policy.version}. {decision.reason}"
    restarts = decision.step is Step.RESTART_WORKLOAD
    return Foretold((real, *_first(situation, decision, ports)), stops_work=True, keeps_nodes=restarts)


def _waits(decision: Decision, node: Node, policy: RecoveryPolicy) -> str:
    if decision.awaits is Awaited.BREAKER:
        seconds = policy.breaker.stale_seconds
        late = f" that comes more than {lasting(seconds)} after the fault" if seconds else ""
        reset = f"`nodeheal breaker reset {node.pool} --why …`, and a reset{late} drops it"
        return f"nothing is touched before {reset}. {decision.reason}"
    if decision.awaits is Awaited.APPROVAL:
        return f"you are asked first, and nothing is touched before a yes. {decision.reason}"
    return f"nothing is touched yet. {decision.reason}"


def _first(situation: Situation, decision: Decision, ports: Ports) -> list[str]:
    """The first action, and what it waits for."""
    if decision.step is Step.RESTART_WORKLOAD:
        return ["its first action is a restart of the job; no node is touched"]
    history, policy, assessment = situation.history, situation.policy, situation.assessment
    pool = history.incident.pool
    builder = DecisionBuilder(history, policy, assessment, history.incident.opened_at)
    action, why = first_step(assessment.fault, situation.progress, builder)
    because = f", because {why}" if why else ""
    does = "it stays isolated" if action is Action.ISOLATE else f"its first action is {VERBS[action].announced}"
    held, slots = len(ports.pools.holders(pool)), slots_of(pool, ports, policy)
    full = f"before that it waits for a slot: {slots.taken(held)}"
    return [*([full] if held >= slots.total else []), f"{does}{because}"]
