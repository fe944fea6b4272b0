"""What a person has to do about an incident as things stand now: what its email asked for, without what is done."""

from collections.abc import Callable

from nodeheal.contract.vocabulary import Awaited, Ending, IncidentState
from nodeheal.domain.fleet.node import OUT_OF_SERVICE
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.job_move import needs_no_restart
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.review.review import is_job_seen_to, is_seen_to
from nodeheal.ports import Ports
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.notify.compose_needed import (
    Part,
    close_command,
    needed_after_broken_workflow,
    needed_at_breaker,
    what_is_needed,
)
from nodeheal.services.notify.read_aftermath import read_aftermath
from nodeheal.services.recovery.read_situation import is_running


def needed_now(incident_id: str, ports: Ports, policy: Callable[[], RecoveryPolicy]) -> list[Part]:
    """The first thing first; nothing where nobody has to do anything. Raises NotFound for an unknown incident.

    `policy` is read only where it is needed.
    """
    history = ports.incidents.history(incident_id)
    incident = history.incident
    if incident.state is IncidentState.ESCALATED:
        return _after_handover(history, ports, policy)
    last = history.turns[-1] if history.turns else None
    is_held = last is not None and last.result is None and last.decision.awaits is Awaited.BREAKER
    return needed_at_breaker(incident.pool) if is_held and incident.is_under_way else []


def _after_handover(history: History, ports: Ports, policy: Callable[[], RecoveryPolicy]) -> list[Part]:
    incident = history.incident
    node = ports.nodes.get(incident.node_id)
    if node is None:
        return []
    if incident.ending is not Ending.HANDED_TO_A_HUMAN or not history.turns:
        return needed_after_broken_workflow(incident, is_out=node.state in OUT_OF_SERVICE)
    job, run = current_run(incident.job_id, ports)
    if job is not None and is_job_seen_to(job, incident):
        done = f"nothing: {job.job_id} was started again, or given up, since. To close it:"
        return [(done, [close_command(incident)])]
    rules, decided = policy(), history.turns[-1].decision
    is_over = (
        job is None
        or is_seen_to(job, incident)
        or needs_no_restart(history, job, run, rules)
        or is_running(job, run, incident, ports)
    )
    situation = Situation(history, rules, node, job, run, job_is_over=is_over, job_is_down=not is_over)
    return what_is_needed(situation, decided, node, read_aftermath(situation, decided, ports))
