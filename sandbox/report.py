"""Writes the demo's report: what was reached, when, and whether the story ended as it should. What was not reached is
null.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.timeline import NodeDrained, entries_with
from nodeheal.domain.verbs import ESCALATION_STEPS
from nodeheal.simulation.latency import NONE, Latency
from sandbox.legs import LEGS, Facts, Leg, legs_of
from sandbox.story import Story, Told

# The document that the sandbox stage deploys.
POLICY = Path(__file__).resolve().parent / "policy.json"


@dataclass(frozen=True)
class Verdict:
    """Whether the story ended as it should, and what is wrong if it did not."""

    wrong: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong


def make_report(story: Story, latency: Latency = NONE) -> dict[str, Any]:
    """Return the report as JSON. Seconds count from the fault line; those of the legs add up. `latency`: of the
    floors.
    """
    told = story.told
    history = story.ports.incidents.history(told.incident.incident_id) if told.incident else None
    recovered = _recovered_seconds(told)
    legs = _legs(story, history)
    return {
        "fault_line": story.script.fault_line,
        "detected_seconds": _since(told, history.incident.opened_at.timestamp() if history else None),
        "isolated_seconds": _since(told, _drained_at(history)),
        "recovered_seconds": recovered,
        "control_plane_seconds": _control_plane_seconds(legs) if recovered is not None else None,
        "legs": [{**asdict(leg), "floor_seconds": LEGS[leg.name].seconds(latency)} for leg in legs],
        "attempts": _attempts(story),
        "step_at_fault": told.step_at_fault,
        "resumed_from_step": told.training.resumed_from() if told.training else None,
        "final_step": told.training.last_step if told.training else None,
        "losses": told.training.losses if told.training else [],
        "finished": told.job_state is JobState.COMPLETED,
        "incident": _incident(told, history),
        "incidents": [
            {"id": one.incident.incident_id, "node": one.incident.node_id, "results": results_of(one)}
            for one in story.histories()
        ],
        "executions": story.executions(),
        "emails": [{"subject": subject, "body": body} for subject, body in told.mails],
        "owner_emails": [{"subject": subject, "body": body} for subject, body in told.owner_mails],
    }


def judge(story: Story, report: dict[str, Any]) -> Verdict:
    """Compare the report with the script's expected end."""
    script = story.script
    expected = script.expected
    wrong = []
    if report["incident"]["ending"] != expected.ending:
        wrong.append(f"the incident should have ended {expected.ending}, not {report['incident']['ending']}")
    if report["finished"] != expected.finishes:
        wrong.append(f"the job should {'' if expected.finishes else 'not '}have finished")
    if expected.finishes and report["final_step"] != script.steps:
        wrong.append(f"the job should have reached step {script.steps}, not {report['final_step']}")
    resumed = report["resumed_from_step"]
    if expected.restarts and (resumed is None or resumed < report["step_at_fault"] - script.checkpoint_every):
        wrong.append(
            f"the job should have resumed at most {script.checkpoint_every} steps before the fault, not {resumed}"
        )
    if not expected.restarts and resumed is not None:
        wrong.append("the job should not have been restarted")
    subjects = [email["subject"] for email in report["emails"]]
    if len(subjects) != len(expected.mails) or not all(map(str.startswith, sorted(subjects), sorted(expected.mails))):
        wrong.append(f"emails should have come that begin with {expected.mails}, not {subjects}")
    owned = [email["subject"] for email in report["owner_emails"]]
    if len(owned) != len(story.owner_mails) or not all(map(str.startswith, owned, story.owner_mails)):
        wrong.append(f"emails to the owner should have come that begin with {story.owner_mails}, not {owned}")
    return Verdict(tuple(wrong))


def _since(told: Told, at: float | None) -> float | None:
    return None if at is None else round(at - told.fault_at, 3)


def _drained_at(history: History | None) -> float | None:
    entries = entries_with(history.timeline, NodeDrained) if history else []
    return entries[0].at.timestamp() if entries else None


def _recovered_seconds(told: Told) -> float | None:
    """Return the seconds from the fault to the first training step after it."""
    return _since(told, told.training.first_step_at() if told.training else None)


def _legs(story: Story, history: History | None) -> list[Leg]:
    told = story.told
    if history is None:
        return []
    runs = story.ports.jobs.runs(story.script.job)
    mine = next((run for run in runs if run.incident_id == history.incident.incident_id), None)
    first_step = told.training.first_step_at(mine.number - 1) if told.training and mine else None
    return legs_of(Facts(told.fault_at, history, story.script.boot_seconds, mine, first_step))


def _control_plane_seconds(legs: list[Leg]) -> float:
    """Return the seconds without boots, diagnostics and the start of the tasks, which depend on the machine, the tools
    and the trainer.
    """
    return round(sum(leg.seconds for leg in legs if leg.name != "start"), 3)


def _attempts(story: Story) -> dict[str, int]:
    """Return the retry counters in DynamoDB of the broken node and its job."""
    limits = RecoveryPolicy.model_validate_json(POLICY.read_text("utf-8")).limits
    scope = f"node#{story.told.broken}"
    spent = story.ports.attempts.spent(scope, *(limits[action] for action in ESCALATION_STEPS))
    return {action.value: count for action, count in spent.items() if count}


def results_of(history: History) -> list[list[str]]:
    """Return the result of each step, in order: [step, outcome]."""
    return [[turn.result.step.value, turn.result.outcome.value] for turn in history.turns if turn.result is not None]


def _incident(told: Told, history: History | None) -> dict[str, Any] | None:
    if history is None:
        return None
    incident = history.incident
    return {
        "id": incident.incident_id,
        "node": incident.node_id,
        "state": incident.state,
        "ending": incident.ending,
        "summary": incident.summary,
        "policy_version": incident.policy_version,
        "results": results_of(history),
        "timeline": [
            {"seconds": _since(told, entry.at.timestamp()), "kind": entry.kind, "text": entry.text}
            for entry in history.timeline
        ],
    }
