"""What an email about an ended incident asks of its reader, each part with the command to paste."""

from collections.abc import Sequence
from dataclasses import dataclass

from nodeheal.contract.names import JOB_SOURCE, OPERATOR_REQUEST
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Ending, Escalation, NodeState, Refusal
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.jobs.gang import first_failure
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.recovery.incident import History, Incident, short_id
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.verbs import VERBS
from nodeheal.services.jobs.job_troubles import NOT_APPROVED, TELL_OWNER
from nodeheal.services.notify.compose_unmanaged_tasks import needed_for_unmanaged_tasks
from nodeheal.services.notify.layout import command, field, paragraph

# What is to be done, and a line for each command of it.
Part = tuple[str, list[str]]
_NOTHING = "nothing."


@dataclass(frozen=True)
class Aftermath:
    """What an email about an ended incident says beside its situation.

    `restarts`: which of the restarts that the job allows its program this was, in words. `is_blocked`: a guardrail kept
    nodeheal from acting on the fault. `paused`: the pool and the node whose pause that was. `request`: the verb by
    which an operator may have it done all the same. `at_job_end`: once the job has ended.
    """

    restarts: str = ""
    is_blocked: bool = False
    paused: tuple[str, ...] = ()
    request: Action | None = None
    at_job_end: bool = False


NOTHING_KNOWN = Aftermath()


def needed(parts: Sequence[Part]) -> list[str]:
    """Under one heading, numbered where it is several things."""
    [(first, commands), *others] = parts
    if not others:
        return [*field("Needed", first), *commands]
    lines = ["Needed:"]
    for number, (text, does) in enumerate(parts, start=1):
        lines += [*paragraph(f"{number}. {text}"), *does]
    return lines


def what_is_needed(
    situation: Situation, decided: Decision, node: Node, aftermath: Aftermath = NOTHING_KNOWN
) -> list[Part]:
    """What the reader has to do once the incident has ended, the first thing first."""
    history = situation.history
    ending = decided.ending or Ending.HANDED_TO_A_HUMAN
    if ending is Ending.RECOVERED:
        nothing = f"nothing now. {aftermath.restarts}" if aftermath.restarts else _NOTHING
        return [(needed_for_unmanaged_tasks(situation) or nothing, [])]
    if ending is Ending.OBSERVED_ONLY:
        return _after_observing(situation, decided, aftermath)
    parts: list[Part] = []
    if decided.escalation is Escalation.NO_CAPACITY:
        parts.append((f"free or buy a machine in place of {node.node_id}: {missing(history)}.", []))
    if node.state is NodeState.QUARANTINED:
        parts.append(_about_the_node(node, history.incident, decided))
    # After a failure of its program the ranks that still run are stopped, too.
    is_refused = decided.escalation in NOT_APPROVED and history.incident.root.source == JOB_SOURCE
    is_left_down = is_refused and not situation.job_is_over
    if (situation.has_stopped_job or is_left_down) and history.incident.job_id:
        parts.append(_about_the_job(situation, decided))
    if theirs := needed_for_unmanaged_tasks(situation):
        parts.append((theirs, []))
    and_job = " and its job as they were" if history.incident.job_id else " as it was"
    as_it_was = f"look at {node.node_id}. nodeheal has left it{and_job}."
    parts = parts or [(as_it_was, [command("nodeheal", "nodes", "show", node.node_id)])]
    if node.state not in OUT_OF_SERVICE:
        parts.append(("when you have dealt with it, close the incident:", [close_command(history.incident)]))
    return parts


def needed_at_breaker(pool: str) -> list[Part]:
    """What ends the wait of an incident while the breaker of its pool is open."""
    looks = [
        command("nodeheal", "breaker", "show", pool),
        command("nodeheal", "incidents", "list", pool, "--state", "waiting"),
        command("nodeheal", "nodes", "list", pool),
    ]
    reset = command("nodeheal", "breaker", "reset", pool, "--why", "...")
    return [
        ("see which nodes fail and which jobs wait; find what they have in common:", looks),
        ("put it right, and then (what is stale by then is dropped):", [reset]),
    ]


def needed_after_broken_workflow(incident: Incident, *, is_out: bool) -> list[Part]:
    """What is left to a human where the workflow itself broke: it has told nobody how far it came."""
    node_id = incident.node_id
    show = command("nodeheal", "nodes", "show", node_id)
    if is_out:
        ends = [command("nodeheal", "nodes", verb, node_id, "--why", "...") for verb in ("release", "retire")]
        then = f"finish it by hand, then give {node_id} back to work (release), or take it away for good (retire):"
    else:
        ends = [close_command(incident)]
        then = "when you have dealt with it, close the incident:"
    look = f"the workflow of this recovery broke off, and what it did last is not known. Look at {node_id} and its job:"
    return [(look, [show]), (then, ends)]


def close_command(incident: Incident) -> str:
    return command("nodeheal", "incidents", "close", short_id(incident.incident_id), "--why", "...")


def missing(history: History) -> str:
    """Returns what was not available at the last try."""
    results = [turn.result for turn in history.turns if turn.result is not None]
    refusals = [refused for result in results if (refused := result.refused_for(Refusal.NO_CAPACITY)) is not None]
    return (
        refusals[-1].missing.replace(".)", ")").rstrip(".")
        if refusals and refusals[-1].missing
        else "none is to be had"
    )


def is_isolated_by_hand(incident: Incident, decided: Decision) -> bool:
    """Whether all that an operator has asked for is done: the node is out of service."""
    return incident.root.code == OPERATOR_REQUEST and decided.escalation is Escalation.ISOLATED_ON_REQUEST


def give_up(job_id: str) -> list[str]:
    """The command that says of a job which is down that it stays so, with what it is for."""
    return ["If it stays down:", command("nodeheal", "jobs", "stop", job_id, "--why", "...")]


def restart(job_id: str) -> str:
    """The command that starts a submitted job once more."""
    return command("nodeheal", "jobs", "restart", job_id)


def log_of(job: Job | None, run: Run | None) -> list[str]:
    """The command that shows what the rank wrote that failed first by itself. Empty: none has."""
    broke = first_failure(run) if run is not None else None
    if job is None or run is None or broke is None:
        return []
    return [command("nodeheal", "jobs", "logs", job.job_id, "--rank", str(broke.task.rank), "--run", str(run.number))]


def _after_observing(situation: Situation, decided: Decision, aftermath: Aftermath) -> list[Part]:
    node_id = situation.history.incident.node_id
    reboot = command("nodeheal", "nodes", "reboot", node_id, "--why", "...")
    if decided.is_held_back and situation.progress.has_waited:
        return [(f"{node_id} was dropped unproven: look at it, or have it rebooted and proven with:", [reboot])]
    if not aftermath.is_blocked:
        return [("nothing; nodeheal has touched nothing.", [])]
    parts = [("look at the node, for nobody acts on it:", [command("nodeheal", "nodes", "show", node_id)])]
    if aftermath.paused:
        pauses = [command("nodeheal", "unpause", name) for name in aftermath.paused]
        parts.append(("to let nodeheal act again, end the pause:", pauses))
    if aftermath.request is not None:
        verb = VERBS[aftermath.request]
        does = command("nodeheal", "nodes", aftermath.request.value.lower(), node_id, "--why", "...")
        when = ", once its job has ended" if aftermath.at_job_end else ""
        then = " after that" if aftermath.paused else ""
        parts.append((f"to have nodeheal do what it would have done{then}, ask for {verb.with_article}{when}:", [does]))
    return parts


def _about_the_node(node: Node, incident: Incident, decided: Decision) -> Part:
    slot = "It takes no slot" if incident.is_of_new_node else "Until then it keeps its slot"
    is_asked = is_isolated_by_hand(incident, decided)
    first = "When you have done with it what you wanted, give it" if is_asked else "Repair it and give it"
    out = f"{node.node_id} stays out of service. {first} back to work (release), or take it away for good"
    return f"{out} (retire). {slot} of the disruption budget of pool {incident.pool}.", [
        command("nodeheal", "nodes", "release", node.node_id, "--why", "..."),
        command("nodeheal", "nodes", "retire", node.node_id, "--why", "..."),
    ]


def _about_the_job(situation: Situation, decided: Decision) -> Part:
    """Who starts it again, and how. Where the job has no record, nodeheal does not know how it was started."""
    incident, job = situation.history.incident, situation.job
    job_id = str(incident.job_id)
    owner = str(job.owner) if job is not None and job.owner is not None else ""
    healthy = command("nodeheal", "nodes", "list", incident.pool)
    if situation.is_fault_of_program:
        if decided.escalation in NOT_APPROVED and job is not None:
            knows = f" {owner}, if subscribed, has been told." if owner else ""
            message = (
                f"{job_id} is stopped: its restart was not approved. If it may run again as it was, start it.{knows}"
            )
            return message, [*log_of(job, situation.run), restart(job_id), *give_up(job_id)]
        if owner:
            message = f"{job_id} is stopped. {owner} looks at the program, and starts it again. {TELL_OWNER}"
            return message, [command("nodeheal", "jobs", "show", job_id)]
        again = [restart(job_id)] if job is not None else []
        look = f"{job_id} is stopped. Look at its program, then start it again"
        left = give_up(job_id) if again else []
        what = ":" if again else ", the way it was first started."
        return f"{look}{what}", [*log_of(job, situation.run), *again, *left]
    if job is not None:
        knows = f" {owner}, if subscribed, has been told that you do." if owner else ""
        message = f"{job_id} is stopped. Start it again when it has enough healthy nodes.{knows}"
        return message, [healthy, restart(job_id), *give_up(job_id)]
    return f"{job_id} is stopped. Start it again, the way it was first started, when it has enough healthy nodes:", [
        healthy
    ]
