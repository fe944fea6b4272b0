"""Reads what holds when an incident has ended: its job, and the guardrail that kept nodeheal from acting."""

from dataclasses import replace

from nodeheal.contract.names import JOB_SOURCE
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Ending, Family, NextStepCondition
from nodeheal.domain.faults.assessment import assess_faults
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.humanize import all_of
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.jobs.restarts import limit_of_application
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.domain.recovery.incident import History, Incident
from nodeheal.domain.recovery.progress import Progress, is_the_programs
from nodeheal.domain.verbs import VERBS
from nodeheal.ports import Ports
from nodeheal.services.notify.compose_needed import Situation


def read_situation(
    history: History, seen: Progress, decided: Decision, job: Job | None, ports: Ports, policy: RecoveryPolicy
) -> Situation:
    """Reads what the email about an ended incident has to know beside its history."""
    fault = assess_faults(history, policy).fault
    is_own = is_the_programs(fault, seen)
    is_shown = is_own and decided.ending is Ending.HANDED_TO_A_HUMAN
    run = ports.jobs.get_run(job.job_id, job.current_run) if job is not None and is_shown else None
    known = Situation(job, run, is_own, which_restart(job, history.incident, ports))
    is_untouched = decided.ending is Ending.OBSERVED_ONLY and decided.is_held_back and seen.isolation is None
    return _blocked(known, history.incident, fault, seen, ports, policy) if is_untouched else known


def which_restart(job: Job | None, incident: Incident, ports: Ports) -> str:
    """Says how often the job was restarted for its program, and what follows. Empty: the incident is not of that."""
    if job is None or (incident.root.source, incident.root.family) != (JOB_SOURCE, Family.task):
        return ""
    scope, limit = (allowed := limit_of_application(job)).scope, allowed.limit
    spent = ports.attempts.spent(scope, limit)[limit.group]
    often = f"It was restart {spent} of {limit.limit} in {limit.window_seconds / 3600:g} h"
    then = "That was the last: the" if spent >= limit.limit else f"When {all_of(limit.limit)} are used, the"
    told = f"{often} after a failure of the program's own (restarts.of_application)"
    return f"{told}. {then} next failure is not restarted, and goes to a human."


def _blocked(
    known: Situation, incident: Incident, fault: Fault, seen: Progress, ports: Ports, policy: RecoveryPolicy
) -> Situation:
    """The same where a guardrail keeps nodeheal from acting. A pause, or a node that is opted out, binds operators."""
    node_id, now = incident.node_id, ports.clock()
    pauses = ports.pauses.read()
    held = {node_id: pauses.of_node(node_id, now), incident.pool: pauses.of_pool(incident.pool, now)}
    paused = tuple(name for name, pause in held.items() if pause is not None)
    verbs = [action for action in fault.ladder[fault.start :] if VERBS[action].takes_node_out]
    is_observed = bool(verbs) and policy.pool(incident.pool).mode_of(verbs[0]) is Mode.observe
    if not (paused or is_observed or policy.why_only_observe(node_id, incident.pool, now)):
        return known
    askable = [action for action in verbs if VERBS[action].is_askable]
    may_ask = bool(askable) and not incident.needs_proof_only and not policy.why_opted_out(node_id)
    request = askable[0] if may_ask else None
    is_training = incident.job_id is not None and not seen.job_is_down and not seen.job_is_over
    at_job_end = fault.next_rung is NextStepCondition.job_end and is_training
    return replace(known, is_blocked=True, paused=paused, request=request, at_job_end=at_job_end)
