"""News of an older run, boot or submission, of a machine that is gone, or of another topic.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.names import INSTANCE_GONE, TRAINING_HANG
from nodeheal.contract.results import Isolated
from nodeheal.contract.vocabulary import JobState, Outcome, Step, VerbName, Verdict
from nodeheal.domain.fleet.liveness import TERMINATED
from nodeheal.operations.engine import begin
from nodeheal.operations.find_checkpoint import plan
from nodeheal.operations.handler import World
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services import sweep
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.intake.take_signal import take_draft
from nodeheal.services.intake.wakeup import on_task_change
from nodeheal.services.jobs import prepare_job
from tests.unit.builders import NOW, commands_in, node, started_job, under_way, xid
from tests.unit.test_decide import Story
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN
from tests.workflows.scenarios.news import draft_of
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.turns import opened

# Runs


def an_older_run_is_said_to_run() -> list[str]:
    return _is_said_to_run(current_run=2, summary="run 2 is under way")


def a_run_is_said_to_run_that_a_person_has_stopped() -> list[str]:
    return _is_said_to_run(state=JobState.CANCELLED, summary="stopped by ada")


def _is_said_to_run(**known: Any) -> list[str]:
    it = Moment()
    started_job(JOB, [node(BROKEN, version=1)], it.plain)
    it.job_is_written(**known)
    _tells(it, "RUNNING")
    job = it.plain.jobs.get("llama")
    return [] if job is not None and job.summary == known["summary"] else ["people read that an older run is under way"]


def it_is_submitted_again_when_its_last_rank_stops() -> list[str]:
    it = Moment()
    started_job(JOB, [node(BROKEN, version=1)], it.plain)
    it.job_is_written(state=JobState.SUBMITTED, submission=2)
    _tells(it, "STOPPED")
    job = it.plain.jobs.get("llama")
    return [] if job is not None and job.state is JobState.SUBMITTED else ["what was submitted again is not started"]


def _tells(it: Moment, status: str) -> None:
    run = it.plain.jobs.get_run("llama", 1)
    assert run is not None
    task = run.tasks[0]
    it.does(lambda: on_task_change(TaskChange("llama", 1, task.task_id, task.placement, status, 1, ""), it.ports))


# What others say


_GONE: dict[str, Any] = {"code": INSTANCE_GONE, "subcode": TERMINATED, "takes_node_away": True}


def _said(it: Moment, **said: Any) -> Any:
    return it.does(lambda: take_draft(draft_of(**said), it.ports, ACTS))


def _opened_by(it: Moment) -> list[str]:
    started: list[str] = it.plain.workflows.started  # type: ignore[attr-defined]
    return [f"{name} was opened" for name in started]


def somebody_says_that_it_is_broken() -> list[str]:
    it = Moment()
    _said(it, verdict=Verdict.FAILED)
    return [] if _opened_by(it) else ["a fault that others have seen is nobody's"]


def somebody_has_said_it_of_its_last_boot() -> list[str]:
    it = Moment()
    _said(it, verdict=Verdict.FAILED, observed_at=NOW - timedelta(hours=2))
    return _opened_by(it)


def somebody_says_something_advisory_of_a_node_with_an_incident() -> list[str]:
    it, mine = opened()
    _said(it, is_advisory=True, verdict=Verdict.FAILED)
    events = it.plain.incidents.history(mine.incident_id).events
    return [] if "said" in [event.code for event in events] else ["what could explain its fault is not with it"]


def something_older_is_said_after_another_topic() -> list[str]:
    it = Moment()
    _said(it, topic="agent", version=2, verdict=Verdict.OK)
    _said(it, topic="disk", version=1, verdict=Verdict.OK)
    _said(it, topic="agent", version=1, verdict=Verdict.FAILED)
    return _opened_by(it)


def a_machine_goes_whose_job_has_ended() -> list[str]:
    it = Moment()
    started_job(JOB, [node(BROKEN, version=1)], it.plain)
    it.job_is_written(state=JobState.COMPLETED)
    _said(it, **_GONE)
    return _opened_by(it)


def a_machine_goes_whose_boot_is_waited_for() -> list[str]:
    return [] if _goes_while_its_boot_is_waited_for(NOW) else ["its workflow waits for what will never boot"]


def a_machine_is_said_to_have_gone_before_it_came_up() -> list[str]:
    told = _goes_while_its_boot_is_waited_for(NOW - timedelta(hours=2))
    return ["the reboot of a machine that is there is given up"] if told else []


# What was lost


def an_incident_was_lost_days_ago() -> list[str]:
    """Whoever has looked at the node since would see it rebooted for what was."""
    it = Moment()
    ingest(xid(79), it.plain, ACTS)
    it.plain.clock.advance(2 * 86_400)  # type: ignore[attr-defined]
    lost = it.does(lambda: sweep._start_what_was_lost("demo", it.ports))
    return [f"{name} is started, of the day before yesterday" for name in lost]


# Checkpoints

_SAVES = Checkpoints(directory="/fsx/llama")


def _is_asked(**before: str) -> list[str]:
    """After a call that has left such a wait."""
    it = Moment()
    job = replace(JOB, checkpoints=_SAVES)
    request = JobRequest(job_id="llama", submission=1, round=0, task_token="token")
    it.plain.jobs.save(job)
    planned = plan(request, node(BROKEN), job, it.plain)
    it.plain.operations.save(replace(planned, **before))  # type: ignore[arg-type]
    it.does(lambda: begin(planned, World(it.ports)))
    asked = commands_in(it.plain).sent
    return [] if asked else ["nobody was asked, and an answer is waited for"]


def a_job_that_lives_saves_there() -> list[str]:
    return [] if _is_refused(JobState.RUNNING) else ["two jobs are to write to one directory"]


def a_job_that_is_over_has_saved_there() -> list[str]:
    told = _is_refused(JobState.COMPLETED)
    return [f"nobody writes there any more: {told}"] if told else []


def _is_refused(state: JobState) -> str | None:
    """What is said of a new job that is to write where a job of this state has written."""
    it = Moment()
    it.plain.jobs.save(replace(JOB, job_id="other", checkpoints=_SAVES, state=state))
    it.plain.jobs.listed_as_over.clear()  # type: ignore[attr-defined]  # the index lags
    told: str | None = it.does(lambda: prepare_job._refuse_taken_directory(replace(JOB, checkpoints=_SAVES), it.ports))
    return told


# Evidence


def no_evidence_is_wanted() -> list[str]:
    decided = Story(xid(79)).then(Outcome.DONE, facts=Isolated(is_drained=True)).next()
    return ["what nobody wants is collected first"] if decided.step is Step.FREEZE_EVIDENCE else []


def no_stacks_are_wanted() -> list[str]:
    hang = xid(0, family="host", code=TRAINING_HANG, component="llama/1", event_id="hang")
    decided = Story(hang).next()
    return ["what nobody wants is collected first"] if decided.step is Step.FREEZE_EVIDENCE else []


def _goes_while_its_boot_is_waited_for(at: datetime) -> bool:
    """Whether its workflow is told."""
    it, mine = opened()
    under_way(it.plain, VerbName.REBOOT, node_id=BROKEN, incident_id=mine.incident_id)
    _said(it, **_GONE, observed_at=at)
    return "token" in it.plain.workflows.resumed  # type: ignore[attr-defined]
