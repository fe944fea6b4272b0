"""Write the email that an operator reads at night: what happened, what is needed, then how it came to that."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.notification import SUBJECT_CHARACTERS, Notification
from nodeheal.contract.results import EvidenceSaved, StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Ending, Escalation, Outcome, Phase, Step
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_tasks import job_text
from nodeheal.domain.humanize import counted, lasting
from nodeheal.domain.recovery.confirmation import confirmations_in
from nodeheal.domain.recovery.incident import ABOUT_DRILLS, RESTARTED, History, short_id
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.recovery.timeline import (
    ApprovalAnswered,
    RequestWithdrawn,
    TimelineEntry,
    payloads_of,
)
from nodeheal.domain.review.console_links import NO_LINKS, ConsoleLinks
from nodeheal.domain.review.review import AWAITED, DONE
from nodeheal.domain.verbs import verb_of_step
from nodeheal.services.notify.compose_needed import (
    NOTHING_KNOWN,
    Aftermath,
    Part,
    is_isolated_by_hand,
    needed,
    what_is_needed,
)
from nodeheal.services.notify.compose_unmanaged_tasks import fate_of_unmanaged_tasks
from nodeheal.services.notify.layout import command, field, link, paragraph, plain, quoted, sentence

_WORDS = {
    Ending.RECOVERED: "recovered",
    Ending.OBSERVED_ONLY: "observed only",
    Ending.HANDED_TO_A_HUMAN: "needs a human",
}
# The email has the beginning and the end of a long timeline.
_FIRST_LINES, _LAST_LINES = 10, 30
# What stands before "Needed" fits half a phone's screen, in lines of 42 characters.
_LEAD_CHARACTERS = 300
_CLAUSE = re.compile(r"; |\. (?=[A-Z])")
_BY_HAND = "an operator asked for it"


def compose(
    situation: Situation,
    decided: Decision,
    node: Node,
    console_links: ConsoleLinks = NO_LINKS,
    aftermath: Aftermath = NOTHING_KNOWN,
) -> Notification:
    """One email for one ending of one incident. Sending it twice is folded by its key."""
    history, progress = situation.history, situation.progress
    incident, ending = history.incident, decided.ending or Ending.HANDED_TO_A_HUMAN
    is_human = ending is Ending.HANDED_TO_A_HUMAN
    job = f", {incident.job_id}{_how_the_job_is(situation, ending)}" if incident.job_id else ""
    to_do = what_is_needed(situation, decided, node, aftermath)
    lead, more = in_short(history, decided, "" if progress.missing is None else progress.missing.reason)
    is_news = _is_back(situation) and decided.ending is not Ending.RECOVERED
    job_now = _runs_again(situation) if is_news else ""
    return letter(
        history,
        decided,
        subject=f"{heading(history)} {_word_of(decided, history)}: {incident.node_id}{job}: {decided.fault}",
        key=decided.page_key or f"{incident.incident_id}/{ending}",
        first=[paragraph(lead), needed(to_do)],
        happened=[*more, *facts_of(history, decided, job_now), *_tried(situation, decided)],
        severity="PAGE" if is_human and not _can_wait_until_morning(situation, decided) else "INFO",
        facts=ChannelFacts(lines_of(to_do), ending),
        console_links=console_links,
        escalation=decided.escalation,
    )


def _word_of(decided: Decision, history: History) -> str:
    ending = decided.ending or Ending.HANDED_TO_A_HUMAN
    if is_isolated_by_hand(history.incident, decided):
        return "isolated as asked"
    if ending is Ending.RECOVERED and history.incident.needs_proof_only:
        return DONE
    if ending is Ending.OBSERVED_ONLY and payloads_of(history.timeline, RequestWithdrawn):
        return "withdrawn"
    return RESTARTED if history.has_only_restarted(ending) else _WORDS[ending]


def _how_the_job_is(situation: Situation, ending: Ending) -> str:
    """A subject is read alone: it must not sound as if the job ran again, or as if it were down."""
    if situation.has_stopped_job:
        return " is down"
    if situation.progress.job_is_left_to and situation.job_is_down:
        return " still down"  # another incident brings it back
    return " runs again" if _is_back(situation) and ending is Ending.HANDED_TO_A_HUMAN else ""


def _is_back(situation: Situation) -> bool:
    """Whether this has brought the job back, and it runs."""
    restart = situation.progress.restart
    is_done = restart is not None and restart.outcome is Outcome.DONE
    return is_done and not situation.job_is_down and not situation.job_is_over


def _runs_again(situation: Situation) -> str:
    incident, progress = situation.history.incident, situation.progress
    where = "on other nodes" if progress.has_moved_job else "on the same nodes"
    where = f"with {progress.replacement} in place of {incident.node_id}" if progress.replacement else where
    return f", which runs again, {where}"


def _can_wait_until_morning(situation: Situation, decided: Decision) -> bool:
    """The job runs on a spare and only the broken node is left; or an operator has just asked for it; or it is a drill.

    Of a drill, only what it has left behind is real: a node out of service, a job that is down.
    """
    history = situation.history
    if history.is_only_a_check:
        return True  # no job needs it
    if history.is_drill and not situation.progress.is_isolated and not situation.has_stopped_job:
        return True
    return decided.escalation is Escalation.REPAIR_PENDING or is_isolated_by_hand(history.incident, decided)


def heading(history: History) -> str:
    """What the subject of every email about the incident begins with."""
    return "[nodeheal] drill:" if history.is_drill else "[nodeheal]"


@dataclass(frozen=True)
class ChannelFacts:
    """What the channels beside email are rendered from, and the email says in its own way."""

    needed: tuple[str, ...]
    ending: Ending | None = None


def lines_of(parts: Sequence[Part]) -> tuple[str, ...]:
    """What is needed as plain lines: each thing to do, then its commands."""
    return tuple(line.strip() for text, commands in parts for line in (text, *commands))


def letter(
    history: History,
    decided: Decision,
    subject: str,
    key: str,
    first: Sequence[Sequence[str]],
    happened: Sequence[str],
    severity: str,
    facts: ChannelFacts,
    console_links: ConsoleLinks,
    phase: Phase = Phase.ENDED,
    escalation: Escalation | None = None,
) -> Notification:
    """An email about an incident: first what its reader must know and do, then what happened, then where more stands.

    `first`: parts, with a blank line between.
    """
    incident = history.incident
    parts = [*first, happened, _timeline_of(history), _details(history, decided, console_links, escalation)]
    return Notification(
        key=key,
        subject=fit_subject(subject),
        body="\n\n".join("\n".join(part) for part in parts if part),
        severity=severity,
        pool=incident.pool,
        phase=phase,
        node_id=incident.node_id,
        family=incident.root.family,
        escalation=escalation,
        incident_id=incident.incident_id,
        ending=facts.ending,
        needed=facts.needed,
        link=console_links.incident(incident.incident_id),
    )


def fit_subject(subject: str) -> str:
    """SNS takes printable ASCII only, on one line. A longer one ends with a whole word, if it is not all one word."""
    line = plain(subject).encode("ascii", "replace").decode()
    if len(line) <= SUBJECT_CHARACTERS:
        return line
    room = SUBJECT_CHARACTERS - len("...")
    whole = line[: room + 1].rpartition(" ")[0].rstrip(" ,;:(")
    return f"{whole if len(whole) > room // 2 else line[:room]}..."


def in_short(history: History, decided: Decision, left_out: str = "") -> tuple[str, list[str]]:
    """(what has happened, short enough to be read first, what is to be said of it below).

    `left_out`: words in brackets that stand elsewhere in the email.
    """
    root = history.incident.root
    component = "" if root.code == OPERATOR_REQUEST else root.component  # by hand, it only names the request
    reason = decided.reason.replace(f" ({left_out})", "") if left_out else decided.reason
    after = reason.removeprefix(decided.fault)
    after = after if len(after) < len(reason) else f": {reason}"
    whole = sentence(f"{decided.fault}{f' on {component}' if component else ''}{after}" if decided.fault else reason)
    if len(whole) <= _LEAD_CHARACTERS:
        return whole, []
    ends = [clause.end() for clause in _CLAUSE.finditer(whole, 0, _LEAD_CHARACTERS)]
    if not ends:
        return whole, []
    lead, rest = whole[: ends[-1]].strip(" ;"), whole[ends[-1] :].strip()
    return sentence(lead), paragraph(sentence(rest))


def facts_of(history: History, decided: Decision, job_now: str = "") -> list[str]:
    """What every email says of an incident: where, with whose job, and why it is taken so. What `in_short` says not."""
    incident = history.incident
    return [
        *field("Node", f"{incident.node_id} (pool {incident.pool})"),
        *field("Job", f"{job_text(history)}{job_now}"),
        *([] if decided.why in decided.reason else field("Why", decided.why)),
        *(field("Drill", ABOUT_DRILLS) * history.is_drill),
    ]


def _tried(situation: Situation, decided: Decision) -> list[str]:
    """What was done about it, as far as the reason does not say it."""
    progress = situation.progress
    done = [*map(str, progress.tried), progress.replacement_failed, _tried_in_vain(progress, decided)]
    done += [progress.restart.reason] if progress.restart else []
    unsaid = [part for part in dict.fromkeys(done) if part not in decided.reason]
    answers = [answer.reason for answer in progress.approvals.values() if answer.reason not in decided.reason]
    return [
        *(field("Tried", "; ".join(unsaid)) if unsaid else []),
        *(line for answer in answers for line in field("Answered", answer)),
        *fate_of_unmanaged_tasks(situation, decided.reason),
    ]


def _tried_in_vain(progress: Progress, decided: Decision) -> str:
    """The tries of a replacement for which there was no machine: they are no escalation step that was climbed."""
    is_said = decided.escalation is Escalation.NO_CAPACITY
    if progress.missing is None or not progress.capacity_tries or progress.replacement or is_said:
        return ""
    times = counted(progress.capacity_tries, "time", "times")
    return f"a replacement, {times}, without success ({progress.missing.reason})"


def _timeline_of(history: History) -> list[str]:
    """What happened when, in few words: the reasons stand in the incident."""
    start = history.incident.root.observed_at
    entries = [(entry.at, _words_of(entry, history)) for entry in history.timeline]
    lines = [f"+{lasting(at - start)}: {plain(words, 200)}" for at, words in entries if words]
    left_out = len(lines) - _FIRST_LINES - _LAST_LINES
    if left_out > 0:
        lines[_FIRST_LINES:-_LAST_LINES] = [f"({left_out} more lines: the incident has them all)"]
    what = "request" if history.incident.root.code == OPERATOR_REQUEST else "fault"
    return [f"After the {what}:", *lines] if lines else []


def _words_of(entry: TimelineEntry, history: History) -> str:
    """Empty: nothing that a reader needs."""
    match entry.payload:
        case HealthEvent(code=code):
            return _BY_HAND if code == OPERATOR_REQUEST else entry.text.removeprefix(f"{history.incident.node_id} ")
        case ApprovalAnswered():
            return "answered"
        case Decision() as decision:
            return _words_of_decision(decision, history)
        case StepResult(outcome=outcome) if entry.turn is not None:
            return _words_of_result(history.turns[entry.turn].decision, outcome)
    return ""


def _words_of_decision(decision: Decision, history: History) -> str:
    if decision.ending is not None:
        return _word_of(decision, history)
    return f"waits for {AWAITED[decision.awaits]}" if decision.awaits is not None else ""


def _words_of_result(decision: Decision, outcome: Outcome) -> str:
    if decision.step is Step.WAIT:
        return ""
    verb = verb_of_step(decision.step, decision.action)
    if outcome is Outcome.DONE:
        return verb.done
    return f"{verb.noun or decision.step.value.lower().replace('_', ' ')}: {outcome.value.lower().replace('_', ' ')}"


def _details(history: History, decided: Decision, console_links: ConsoleLinks, code: Escalation | None) -> list[str]:
    """What the node has said, and where more stands."""
    incident = history.incident
    execution = console_links.incident(incident.incident_id)
    return [
        *quoted("Evidence", incident.root.evidence),
        *(line for confirmation in confirmations_in(history) for line in quoted("Confirmed", confirmation)),
        *_saved(history),
        *runbook(console_links, code),
        "Incident:",
        command("nodeheal", "incidents", "show", short_id(incident.incident_id)),
        *([execution] if execution else []),
        *field("Policy", decided.policy_version or incident.policy_version),
    ]


def runbook(console_links: ConsoleLinks, code: Escalation | None) -> list[str]:
    """Where the runbook of this word stands. Empty: there is no such word."""
    return link("Runbook", console_links.runbook(code)) if code is not None else []


def _saved(history: History) -> list[str]:
    """The place of the node's evidence, for a case with the vendor: each once."""
    lines: list[str] = []
    for turn in history.turns:
        evidence = turn.result.facts if turn.result is not None else None
        if (
            turn.result is None
            or not isinstance(evidence, EvidenceSaved)
            or not evidence.link
            or evidence.link in lines
        ):
            continue
        lines += [
            "Saved:" if turn.result.outcome is Outcome.DONE else "Saved (not seen to arrive in time; look there):"
        ]
        lines += [evidence.link, *([evidence.console] if evidence.console else [])]
    return lines
