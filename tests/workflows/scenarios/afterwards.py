"""What a failure leaves behind: faults that are settled, places in line, starts that were lost, a first look.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from typing import Any

from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.names import NODES_LINE, TRAINING_HANG, pool_line
from nodeheal.contract.vocabulary import Awaited, Family, Step, VerbName
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.services.jobs import job_nodes
from nodeheal.services.jobs.judge_checks import ROUNDS
from nodeheal.services.jobs.runs import recovery_of
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool
from tests.support.builders import NOW, job_under_way, xid
from tests.support.fake_cluster import BROKEN
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import world
from tests.workflows.scenarios.turns import opened, turned

AGAIN = JobRequest(job_id="llama", submission=1, round=ROUNDS - 1)


# Faults


def it_hangs_still_when_its_pause_is_over() -> list[str]:
    it = world()
    pause_pool("demo", 10**6, "hands off", it.plain)
    said = {"family": Family.host, "code": TRAINING_HANG, "component": "llama/1"}
    it.reports(xid(0, **said))
    pause_pool("demo", 0, "done", it.plain)
    it._ingest(xid(0, **said, event_id="again"))
    it.walk_what_was_started()
    return [] if len(it.ends) == 2 else ["a run hangs, and nobody sees to it"]


def it_repeats_while_its_node_is_paused() -> list[str]:
    it = world()
    pause_node(BROKEN, 10**6, "hands off", it.plain)
    it.reports(xid(79))
    it._ingest(xid(79, event_id="again"))
    it.walk_what_was_started()
    return [] if it.ends == ("Observed only",) else ["people are told of one fault again and again"]


# Places in line


def the_first_job_in_line_is_gone() -> list[str]:
    it = Moment()
    line = pool_line(NODES_LINE, "demo")
    for name, place in (("gone", "1"), ("next", "2")):
        job_under_way(it.plain, VerbName.AWAIT_NODES, name, token=name, line=(line, place))
    it.plain.workflows.expired.add("gone")  # type: ignore[attr-defined]
    called = it.does(lambda: job_nodes.call_next_job("demo", it.ports))
    return [] if called == "next" else [f"{called} is called, and nobody comes"]


# Who brings it back


def the_incident_on_its_node_waits_for_its_end() -> list[str]:
    it, mine = opened()
    _is_of_the_job(it, mine.incident_id)
    turned(it, mine, mine.decision.model_copy(update={"step": Step.WAIT, "awaits": Awaited.JOB_END}))
    return _is_waited_for(it)


def _is_of_the_job(it: Moment, incident_id: str, **to: Any) -> None:
    known = it.plain.incidents.incidents  # type: ignore[attr-defined]
    known[incident_id] = replace(known[incident_id], job_id="llama", **to)


def _is_waited_for(it: Moment) -> list[str]:
    """The job has failed on that node."""
    run = Run("llama", 1, NOW, "first", (GangTask(BROKEN, 0, "boot-1", "placement", "task", "STOPPED", 1),))
    found = recovery_of(JOB, run, it.plain)
    return [f"the job is left to {found}, which does not bring it back"] if found else []
