"""Reads what holds when an incident has ended: its job, and the guardrail that kept nodeheal from acting."""

from dataclasses import replace

from nodeheal.contract.names import JOB_SOURCE
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Ending, Family, NextStepCondition
from nodeheal.domain.humanize import all_of
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.jobs.restarts import limit_of_application
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.verbs import VERBS
from nodeheal.ports import Ports
from nodeheal.services.notify.compose_needed import Aftermath


def read_aftermath(situation: Situation, decided: Decision, ports: Ports) -> Aftermath:
    """Reads what the email about an ended incident has to know beside its situation."""
    aftermath = Aftermath(which_restart(situation.job, situation.history.incident, ports))
    is_untouched = decided.ending is Ending.OBSERVED_ONLY and decided.is_held_back
    is_untouched = is_untouched and situation.progress.isolation is None
    return _blocked(aftermath, situation, ports) if is_untouched else aftermath


def which_restart(job: Job | None, incident: Incident, ports: Ports) -> str:
    """Says how often the job was restarted for its program, and what follows. Empty: the incident is not of that."""
    if job is None or (incident.root.source, incident.root.family) != (JOB_SOURCE, Family.task):
        return ""
    scope, limit = (allowed := limit_of_application(job)).scope, allowed.limit
    spent = ports.attempts.spent(scope, limit)[limit.group]
    often = f"It was restart {spent} of {limit.limit} in {limit.window_seconds / 3600:g} h"
    then = "That was the last: the" if spent >= limit.limit else f"When {all_of(limit.limit)} are used, the"
    text = f"{often} after a failure of the program's own (restarts.of_application)"
    return f"{text}. {then} next failure is not restarted, and goes to a human."


def _blocked(aftermath: Aftermath, situation: Situation, ports: Ports) -> Aftermath:
    """The same where a guardrail keeps nodeheal from acting. A pause, or a node that is opted out, binds operators."""
    incident, fault, policy = situation.history.incident, situation.assessment.fault, situation.policy
    node_id, now = incident.node_id, ports.clock()
    pauses = ports.pauses.read()
    held = {node_id: pauses.of_node(node_id, now), incident.pool: pauses.of_pool(incident.pool, now)}
    paused = tuple(name for name, pause in held.items() if pause is not None)
    verbs = [action for action in fault.ladder[fault.start :] if VERBS[action].takes_node_out]
    is_observed = bool(verbs) and policy.pool(incident.pool).mode_of(verbs[0]) is Mode.observe
    if not (paused or is_observed or policy.why_only_observe(node_id, incident.pool, now)):
        return aftermath
    askable = [action for action in verbs if VERBS[action].is_askable]
    may_ask = bool(askable) and not incident.needs_proof_only and not policy.why_opted_out(node_id)
    request = askable[0] if may_ask else None
    is_training = incident.job_id is not None and not situation.job_is_down and not situation.job_is_over
    at_job_end = fault.next_rung is NextStepCondition.job_end and is_training
    return replace(aftermath, is_blocked=True, paused=paused, request=request, at_job_end=at_job_end)
