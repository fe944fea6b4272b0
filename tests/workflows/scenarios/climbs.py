"""How often a fault has come, where and when, and what that makes of it; and where a node's life must not go.

Each is one history or one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.contract.vocabulary import Action, Confirmation, Family, JobState, NodeState, Outcome, Step, Verdict
from nodeheal.domain.recovery.decision_context import Observation
from nodeheal.services.jobs.sweep_jobs import sweep_jobs
from tests.unit.builders import NOW, xid
from tests.unit.step_functions import isolate_node
from tests.unit.test_decide import Story
from tests.unit.test_decide_among_others import NODE, OTHER, later, no_gpus, seen
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.turns import opened

EARLIER = NOW - timedelta(seconds=20)


def next_is(story: Story, step: Step, action: Action | None = None) -> list[str]:
    """What is wrong where another step is decided on."""
    decided = story.next()
    is_right = decided.step is step and action in (None, decided.action)
    return [] if is_right else [f"{decided.step.value} {decided.action or ''} is next: {decided.reason}"]


# Escalation steps


def its_reboots_are_spent() -> list[str]:
    story = Story(xid(79)).isolated().amid(spent={(f"node#{NODE}", Action.REBOOT): 1})
    return next_is(story.answers(Confirmation.CONFIRMED), Step.REPLACE)


def its_reboot_is_not_repeated() -> list[str]:
    return next_is(Story(xid(79)).isolated().rebooted().failed(), Step.REPLACE)


# Under other jobs


def its_accelerator_has_shown_it_under_other_jobs() -> list[str]:
    others = tuple(_here(job=job) for job in ("bert", "gpt"))
    return next_is(Story(xid(31)).amid(observations=others), Step.ISOLATE)


def all_nodes_of_its_job_show_it_too() -> list[str]:
    """However often that accelerator has shown it: this time it is the program."""
    others = tuple(_here(job=job) for job in ("bert", "gpt"))
    peers = tuple(seen(31, f"mi-{number}", observed_at=NOW + timedelta(seconds=1)) for number in range(8))
    return next_is(Story(xid(31)).amid(observations=(*others, *peers)), Step.RESTART_WORKLOAD)


def its_neighbours_accelerator_has_shown_it_under_other_jobs() -> list[str]:
    others = tuple(_here(job=job, component="0000:01:00.0") for job in ("bert", "gpt"))
    return next_is(Story(xid(31)).amid(observations=others), Step.RESTART_WORKLOAD)


def its_accelerator_has_shown_something_else_under_other_jobs() -> list[str]:
    others = tuple(_here(code=43, job=job) for job in ("bert", "gpt"))
    return next_is(Story(xid(31)).amid(observations=others), Step.RESTART_WORKLOAD)


def _here(code: int = 31, job: str = "llama", hours: float = 1, **changes: Any) -> Observation:
    return seen(code, NODE, job, observed_at=NOW - timedelta(hours=hours), **changes)


def the_last_run_has_shown_it_on_another_node() -> list[str]:
    """Seconds before: that run is over, and nobody else restarts this one."""
    story = Story(xid(31)).amid(
        observations=(seen(31, observed_at=EARLIER),), run_started_at=NOW - timedelta(seconds=5)
    )
    return next_is(story, Step.RESTART_WORKLOAD)


def no_fabric_is_told_of() -> list[str]:
    """Two nodes without that label share nothing."""
    fault = xid(10003, family=Family.sxid)
    return next_is(
        Story(fault).amid(observations=(seen(10003, OTHER, family=Family.sxid, observed_at=EARLIER),)), Step.ISOLATE
    )


# While it comes up


def its_accelerators_are_missing_when_it_comes_up() -> list[str]:
    return next_is(Story(no_gpus()).amid(booted_at=NOW), Step.WAIT)


def its_accelerators_are_missing_when_it_is_up() -> list[str]:
    return next_is(_comes_up(301), Step.ISOLATE)


def its_accelerators_are_there_when_it_is_up() -> list[str]:
    return next_is(_comes_up(301, verdict=Verdict.OK), Step.CLOSE)


def nobody_can_tell_when_it_is_up() -> list[str]:
    return next_is(_comes_up(301, verdict=Verdict.UNKNOWN), Step.ESCALATE)


def its_peers_accelerators_are_there() -> list[str]:
    return next_is(_comes_up(301, verdict=Verdict.OK, node_id=OTHER), Step.ESCALATE)


def something_else_of_it_is_there() -> list[str]:
    return next_is(_comes_up(301, verdict=Verdict.OK, code="fans"), Step.ESCALATE)


def _comes_up(seconds: int, **said: Any) -> Story:
    """Its accelerators are missing, and so long after its boot something is reported."""
    story = Story(no_gpus()).amid(booted_at=NOW).then(Outcome.TIMED_OUT)
    story.reports(no_gpus(event_id="later", observed_at=later(seconds), **said)).now = later(330)
    return story


# Places


def a_job_of_another_pool_has_lost_its_start() -> list[str]:
    """Its own pool may be paused."""
    it = Moment()
    it.plain.jobs.save(replace(JOB, pool="another", state=JobState.SUBMITTED))
    it.plain.clock.advance(120)  # type: ignore[attr-defined]
    it.does(lambda: sweep_jobs("demo", it.ports, ACTS))
    started = it.plain.workflows.jobs_started  # type: ignore[attr-defined]
    return [f"{name} is started with the pool of others" for name, _ in started]


def it_is_retired_when_it_is_to_be_isolated() -> list[str]:
    it, mine = opened()
    it.is_written(state=NodeState.RETIRED)
    asks = mine.decision.model_copy(update={"step": Step.ISOLATE, "job_id": None})
    it.does(lambda: isolate_node(mine.model_copy(update={"decision": asks, "task_token": "token"}), it.ports, ACTS))
    gone = it.plain.nodes.get(BROKEN)
    return [] if gone is not None and gone.state is NodeState.RETIRED else ["what was given up is in the pool again"]
