"""Judges the checks of a gang's nodes: each node that did not pass gets an incident."""

from datetime import datetime, timedelta
from hashlib import sha256

from nodeheal.contract.health_event import EVIDENCE_BYTES
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.names import JOB_SOURCE
from nodeheal.contract.vocabulary import Family, JobState, JobStep, Next, Outcome, Trouble, Verdict
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import CheckAnswer, Job
from nodeheal.domain.jobs.node_pairs import suspects
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations import fan_out
from nodeheal.operations.check_node import QUESTION, answers_of, due_nodes
from nodeheal.operations.network_test import verdicts_of
from nodeheal.ports import Ports
from nodeheal.services.intake.finding_about import finding_about
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs.job_steps import (
    end_of_job,
    job_of_request,
    job_result,
    network_test_or_launch,
    request_id_of,
    save_job,
    stop_if_wanted,
    to_launch,
)
from nodeheal.services.saving import node_of

ROUNDS = 10  # of choosing and checking, before a human looks at the pool
FAILED, UNANSWERED, WAY = "preflight_failed", "preflight_unanswered", "preflight_way"
DIRECTORY = "preflight_directory"
# What their findings add to a round and a node, so that each of them has an id of its own.
_MARKS = {WAY: "|way", DIRECTORY: "|directory"}
BROKE_OFF = "the checks broke off before every node could answer; they are made again"
_NAMED = 6
LEAST_SHARE = 0.5  # of the preflight's time that must have passed before silence is held against a node


def judge_checks(request: JobRequest, ports: Ports, policy: RecoveryPolicy) -> JobResult:
    """Goes to LAUNCH when all have passed, or to CHECK where the network between them is tested, too; else to CHOOSE.
    After a failed run back to ATTRIBUTE. Safe to repeat.
    """
    job = job_of_request(request, ports)
    stopped = stop_if_wanted(request, JobStep.JUDGE, job, ports)
    if stopped is not None:
        return stopped
    if request.is_of_pairs:
        return _judge_pairs(request, job, ports, policy)
    fan_out.stop_waiting(fan_out.find(request, QUESTION, ports), ports)
    answers = {answer.node_id: answer for answer in answers_of(request, ports)}
    silent = _unanswered(request, job, ports)
    is_early = bool(silent) and _broke_off(request, job, ports)
    # A node that had no time to answer is asked again, and gets no incident.
    bad = [name for name, answer in answers.items() if answer.outcome is not Outcome.DONE] + silent * (not is_early)
    for name in bad:
        _report(node_of(name, ports), answers.get(name), request, ports, policy)
    reason = BROKE_OFF if is_early and not bad else _told(bad, answers)
    save_job(ports, job.job_id, summary=reason)
    if request.is_failure:
        return job_result(request, JobStep.JUDGE, Next.ATTRIBUTE, reason, ports)
    if not bad and not is_early:
        return network_test_or_launch(request, JobStep.JUDGE, job, reason, ports, policy)
    return choose_others(request, reason, ports)


def _broke_off(request: JobRequest, job: Job, ports: Ports) -> bool:
    """Whether the sending has failed: silence so soon says nothing of a node."""
    question = fan_out.find(request, QUESTION, ports)
    if question is None:
        return not answers_of(request, ports)  # it failed before the first command
    return ports.clock() < question.deadline_at - timedelta(seconds=job.preflight.seconds * (1 - LEAST_SHARE))


def _judge_pairs(request: JobRequest, job: Job, ports: Ports, policy: RecoveryPolicy) -> JobResult:
    """A pair that fails accuses both of its nodes; several of them, the node that they share, or the network."""
    verdicts = verdicts_of(request, ports)
    bad = [pair for pair, verdict in verdicts.items() if verdict.verdict is not Verdict.OK]
    reason = "; ".join(f"{' and '.join(pair.nodes)}: {verdicts[pair].reason}" for pair in bad[:_NAMED])
    if not bad:
        proven = f"every node has passed, and the network between {counted(len(verdicts), 'pair')} of them"
        save_job(ports, job.job_id, summary=proven)
        return to_launch(request, JobStep.JUDGE, job, proven, ports)
    reason = f"{len(bad)} of {counted(len(verdicts), 'way')} between nodes did not pass: {reason}"
    save_job(ports, job.job_id, summary=reason)
    accused = suspects(bad)
    if not accused:
        why = f"{reason}. They have no node in common: look at the network first (security group, EFA)"
        return end_of_job(request, JobStep.JUDGE, JobState.FAILED, why, ports, Trouble.NODES_FAIL)
    for name in accused:
        node = node_of(name, ports)
        unclear = CheckAnswer(request_id_of(request), name, node.boot_id, Outcome.UNKNOWN, reason, ports.clock())
        ports.job_notes.note_answer(job.job_id, unclear)
        open_incident(node, WAY, Verdict.UNKNOWN, reason, unclear.at, request, ports, policy)
    return choose_others(request, reason, ports)


def choose_others(request: JobRequest, reason: str, ports: Ports) -> JobResult:
    """Chooses other nodes after some did not pass, unless that was tried too often."""
    if request.round + 1 >= ROUNDS:
        why = f"{counted(ROUNDS, 'time')} nodes were chosen, and some did not pass; the last time {reason}"
        return end_of_job(request, JobStep.JUDGE, JobState.FAILED, why, ports, Trouble.NODES_FAIL)
    return job_result(request, JobStep.JUDGE, Next.CHOOSE, reason, ports, Outcome.FAILED)


def _unanswered(request: JobRequest, job: Job, ports: Ports) -> list[str]:
    """Returns the nodes that were asked and are still due. A pass is stored with its node, which is then not due."""
    answered = {answer.node_id for answer in answers_of(request, ports)}
    return [node.node_id for node in due_nodes(request, job, ports) if node.node_id not in answered]


def _told(bad: list[str], answers: dict[str, CheckAnswer]) -> str:
    if not bad:
        return "every node has passed its diagnostics"
    reasons = [f"{name}: {answers[name].reason if name in answers else 'no answer in time'}" for name in bad[:_NAMED]]
    more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    return f"{counted(len(bad), 'node')} did not pass: {'; '.join(reasons)}{more}"


def _report(node: Node, answer: CheckAnswer | None, request: JobRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Opens the node's incident. Only a certain failure is a fault; every other answer is UNKNOWN."""
    has_failed = answer is not None and answer.outcome is Outcome.FAILED
    reason = (
        answer.reason if answer is not None else f"no answer within the preflight's time, on boot {node.boot_id[:8]}"
    )
    request_id = request_id_of(request)
    if answer is None:
        _note_silence(node, request_id, request.job_id, reason, ports)
    code, verdict = (FAILED, Verdict.FAILED) if has_failed else (UNANSWERED, Verdict.UNKNOWN)
    open_incident(
        node, code, verdict, reason, answer.at if answer is not None else ports.clock(), request, ports, policy
    )


def open_incident(
    node: Node,
    code: str,
    verdict: Verdict,
    reason: str,
    at: datetime,
    request: JobRequest,
    ports: Ports,
    policy: RecoveryPolicy,
) -> None:
    """What a check has found, as the finding of an agent would come; once a round.

    A job has no say about a node that is not its own.
    """
    if not node.is_of_job(request.job_id):
        return
    which = f"{request_id_of(request)}|{node.node_id}{_MARKS.get(code, '')}"
    event = finding_about(
        node,
        sha256(which.encode()).hexdigest()[:32],
        at,
        source=JOB_SOURCE,
        family=Family.host,
        code=code,
        verdict=verdict,
        evidence=f"{request.job_id}: {reason}"[:EVIDENCE_BYTES],
    )
    ingest(event, ports, policy)


def _note_silence(node: Node, request_id: str, job_id: str, reason: str, ports: Ports) -> None:
    """Records the silence. This job does not choose such a node again until it has passed."""
    ports.job_notes.note_answer(
        job_id, CheckAnswer(request_id, node.node_id, node.boot_id, Outcome.UNKNOWN, reason, ports.clock())
    )
