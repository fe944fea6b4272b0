"""What a failure leaves behind: faults that are settled, places in line, starts that were lost, a first look.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from typing import Any

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.names import NODES_LINE, TRAINING_HANG, pool_line
from nodeheal.contract.vocabulary import Awaited, Ending, Family, IncidentState, JobState, Next, Step, VerbName
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.recovery.incident import History, fingerprint
from nodeheal.domain.recovery.progress import read_progress
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs import job_nodes
from nodeheal.services.jobs.judge_checks import ROUNDS, choose_others
from nodeheal.services.jobs.runs import recovery_of
from nodeheal.services.jobs.start_gang import record_run, start_ranks
from nodeheal.services.jobs.sweep_jobs import sweep_jobs
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool
from nodeheal.services.recovery import build_decision_context, end_incident
from nodeheal.services.recovery.queue import wake_queue
from tests.unit.builders import NOW, job_under_way, node, under_way, xid
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, PEER
from tests.workflows.job_cluster import JobCluster, fails, finishes, is_recovered, node_of
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import world
from tests.workflows.scenarios.turns import opened, turned

AGAIN = JobRequest(job_id="llama", submission=1, round=ROUNDS - 1)


# Faults


def it_has_failed_on_its_next_boot() -> list[str]:
    """What it reports after its return is a relapse, and news when it is reported again."""
    return _is_settled(xid(74, boot_id="boot-2"))


def a_neighbour_has_failed_too() -> list[str]:
    return _is_settled(xid(74, node_id=PEER, instance_id=PEER))


def _is_settled(other: object) -> list[str]:
    it, mine = opened()
    history = it.plain.incidents.history(mine.incident_id)
    both = History(history.incident, (*history.events, other), history.turns)  # type: ignore[arg-type]
    decided = mine.decision.model_copy(update={"events_seen": 2})
    known = it.plain.nodes.get(BROKEN)
    assert known is not None
    settled = end_incident._settled(known, both, read_progress(history, ACTS), decided, ACTS)
    return [] if list(settled) == [fingerprint(xid(79))] else ["a fault is settled that nobody has dealt with"]


def its_last_run_has_failed_alike() -> list[str]:
    """That was settled for that run; and now the next one starts."""
    it = Moment()
    it.plain.jobs.save(JOB)
    it.is_written(resolved_faults={fingerprint(xid(31)): "inc-of-before", fingerprint(xid(79)): "inc-of-before"})
    run = record_run(replace(JOB, version=1), [node(BROKEN)], "mine", it.plain)
    it.does(lambda: start_ranks(JOB, run, it.ports, ACTS))
    known = it.plain.nodes.get(BROKEN)
    is_news = known is not None and list(known.resolved_faults) == [fingerprint(xid(79))]
    return [] if is_news else ["what the next run's program does wrong is taken for a repeat"]


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


def the_first_incident_in_line_is_gone() -> list[str]:
    it = Moment()
    line = pool_line(Awaited.BUDGET, "demo")
    for name, place in (("gone", "1"), ("next", "2")):
        under_way(it.plain, VerbName.WAIT, incident_id=name, token=name, line=(line, place))
    it.plain.workflows.expired.add("gone")  # type: ignore[attr-defined]
    called = it.does(lambda: wake_queue("demo", it.ports))
    return [] if called == "next" else [f"{called} is called, and nobody comes"]


# Jobs


def a_jobs_start_is_lost() -> list[str]:
    it = Moment()
    it.plain.jobs.save(replace(JOB, state=JobState.SUBMITTED))
    it.plain.clock.advance(120)  # type: ignore[attr-defined]
    it.does(lambda: sweep_jobs("demo", it.ports, ACTS))
    started = it.plain.workflows.jobs_started  # type: ignore[attr-defined]
    return [] if started == [("llama", 1)] else ["a job was submitted, and never begins"]


def a_jobs_workflow_broke() -> list[str]:
    """It is written as a human's by the state machine itself, past every function."""
    it = Moment()
    it.plain.jobs.save(JOB)
    it.is_written(claimed_by="llama")
    it.plain.jobs.jobs["llama"] = replace(JOB, state=JobState.FAILED, version=2)  # type: ignore[attr-defined]
    it.does(lambda: sweep_jobs("demo", it.ports, ACTS))
    left = it.plain.nodes.get(BROKEN)
    return [] if left is not None and left.claimed_by is None else ["a node is claimed by a job that is over"]


def nodes_were_chosen_too_often() -> list[str]:
    it = Moment()
    chosen: JobResult = choose_others(AGAIN, "some did not pass", it.plain)
    return [] if chosen.then is Next.END else ["its nodes are chosen for ever"]


def a_finding_is_under_way_when_a_run_fails() -> list[str]:
    """It comes while the failure is looked at for the second time."""
    it = JobCluster()

    def is_found(cluster: JobCluster) -> None:
        name = node_of(cluster, 1).node_id
        ingest(xid(79, node_id=name, instance_id=name), cluster.ports, cluster.policy)

    it.before["Attribute failure"] = lambda cluster: cluster.before.update({"Attribute failure": is_found})
    it.happenings = [fails(), is_recovered, finishes]
    it.submit()
    known = it.ports.incidents.incidents.values()  # type: ignore[attr-defined]
    return [f"{one.root.code} is held against its program" for one in known if one.root.family is Family.task]


def an_exit_code_says_nothing() -> list[str]:
    """Which node was at fault, only their diagnostics tell."""
    it = JobCluster()
    it.happenings = [fails(exit_code=139), is_recovered, finishes]
    it.submit()
    tested = [name for verb, name in it.commands if verb == "run-diagnostics"]
    return [] if len(tested) > len(set(tested)) else ["nobody has looked at the nodes of a run that failed"]


# Who brings it back


def the_incident_on_its_node_is_not_its_own() -> list[str]:
    """It was opened before the job came."""
    it, _ = opened()
    return _is_waited_for(it)


def the_incident_on_its_node_waits_for_its_end() -> list[str]:
    it, mine = opened()
    _is_of_the_job(it, mine.incident_id)
    turned(it, mine, mine.decision.model_copy(update={"step": Step.WAIT, "awaits": Awaited.JOB_END}))
    return _is_waited_for(it)


def the_incident_on_its_node_has_ended() -> list[str]:
    it, mine = opened()
    _is_of_the_job(it, mine.incident_id, state=IncidentState.ESCALATED, ending=Ending.HANDED_TO_A_HUMAN)
    waits = build_decision_context._may_relaunch(mine.incident_id, it.plain)
    return [*_is_waited_for(it), *(["who waits for the job's end waits for one that has ended"] if waits else [])]


def the_incident_on_its_node_has_broken_off() -> list[str]:
    """Its gang is stopped, and no workflow comes back to it: the job would stay down until somebody looks."""
    it, mine = opened()
    _is_of_the_job(it, mine.incident_id, state=IncidentState.ESCALATED)
    return _is_waited_for(it)


def _is_of_the_job(it: Moment, incident_id: str, **to: Any) -> None:
    known = it.plain.incidents.incidents  # type: ignore[attr-defined]
    known[incident_id] = replace(known[incident_id], job_id="llama", **to)


def _is_waited_for(it: Moment) -> list[str]:
    """The job has failed on that node."""
    run = Run("llama", 1, NOW, "first", (GangTask(BROKEN, 0, "boot-1", "placement", "task", "STOPPED", 1),))
    found = recovery_of(JOB, run, it.plain)
    return [f"the job is left to {found}, which does not bring it back"] if found else []
