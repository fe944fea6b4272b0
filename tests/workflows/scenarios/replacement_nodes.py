"""Who may stand in a broken node's place, what is claimed for that, and which machine is a successor.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from typing import Any

from nodeheal.contract.job_spec import Preflight
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import NodeState, Outcome, Provider, Step
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.recovery.incident import Turn
from nodeheal.operations import launch_gang
from nodeheal.operations.verbs import conclude
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs.job_replacement_node import release_candidates, release_claims_of_move
from nodeheal.services.recovery import read_situation
from nodeheal.services.steps import result_of
from tests.support.builders import NOW, node, started_job, stored_node, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE
from tests.support.replacement_pool import A, M, N, Pool
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.races import JOB
from tests.workflows.scenarios.turns import opened

# What is claimed for a job


def its_job_was_restarted_where_it_was() -> list[str]:
    return _keeps_what_another_has_claimed(_turn(Step.RESTART_WORKLOAD))


def _turn(step: Step, *, is_move: bool = False) -> Turn:
    return Turn(Decision(step=step, reason="so", node_id=SPARE, job_id="llama", is_move=is_move))


def _keeps_what_another_has_claimed(*turns: Turn) -> list[str]:
    """An incident ends, while another one of the job has claimed a free node, and launches it there just now."""
    it, mine = opened()
    it.plain.jobs.save(JOB)
    it.is_written(SPARE, claimed_by="llama")
    history = it.plain.incidents.history(mine.incident_id)
    history = replace(history, incident=replace(history.incident, job_id="llama"), turns=turns)
    it.does(lambda: release_claims_of_move(history, it.ports))
    kept = it.plain.nodes.get(SPARE)
    return [] if kept is not None and kept.claimed_by == "llama" else ["another job may take what it is launched on"]


def its_replacement_node_is_out_of_service_when_it_is_let_go() -> list[str]:
    it, mine = opened()
    it.is_written(SPARE, state=NodeState.QUARANTINED, open_incident=mine.incident_id)
    history = it.plain.incidents.history(mine.incident_id)
    history = replace(history, turns=(_turn(Step.DIAGNOSE, is_move=True),))
    it.does(lambda: release_candidates(history, None, it.ports))
    kept = it.plain.nodes.get(SPARE)
    return [] if kept is not None and kept.state is NodeState.QUARANTINED else ["it is taken for one that may serve"]


def its_spare_is_listed_as_a_free_node_still() -> list[str]:
    """The spare has not answered its diagnosis, and the pool's list does not show yet whose it is."""
    it, mine = opened()
    job = replace(JOB, preflight=Preflight(level=1))
    first = started_job(job, [node(BROKEN, version=1)], it.plain)
    run = replace(first, tasks=tuple(replace(task, status="STOPPED") for task in first.tasks))
    listed = replace(node(SPARE), passed_at=None)
    it.plain.nodes.in_pool = lambda pool: [listed]  # type: ignore[method-assign]
    swapped = result_of(mine, it.plain, Outcome.DONE, "swapped", replacement_node_id=SPARE)
    silent = result_of(mine, it.plain, Outcome.UNKNOWN, "no answer")
    turns = (replace(_turn(Step.REPLACE), result=swapped), replace(_turn(Step.DIAGNOSE), result=silent))
    history = replace(it.plain.incidents.history(mine.incident_id), turns=turns)
    job = replace(job, current_run=1)
    found = it.does(lambda: read_situation._ways_out(history, job, run, NO_PAUSES, it.ports, ACTS))
    return ["it stands in for two nodes"] if found["replacement_node"] else []


# Where it is launched


def its_peer_has_failed_since_it_was_good() -> list[str]:
    it, mine = opened()
    ingest(xid(79, node_id=PEER, instance_id=PEER, event_id="peer"), it.plain, ACTS)
    it.is_written(PEER, healthy_since=it.plain.nodes.get(PEER).booted_at)  # type: ignore[union-attr]
    peer = stored_node(it.plain, PEER)
    why = launch_gang._why_unfit(peer, mine, it.plain, ACTS)
    return [] if why else ["a rank is started on a node that has failed"]


def a_node_that_failed_before_it_had_the_job_is_to_bring_it_back() -> list[str]:
    """Its incident knows of no job."""
    it, mine = opened()
    ingest(xid(79, node_id=PEER, instance_id=PEER, event_id="peer"), it.plain, ACTS)
    peer = stored_node(it.plain, PEER)
    left = launch_gang._left_to(mine, [peer], it.plain)
    return [f"it is left to {left}, and stays down"] if left else []


# Which machine is a successor


def a_node_comes_up_that_is_none_of_ec2s() -> list[str]:
    """EC2 refuses every question about a name that is none of its own."""
    it = Pool()
    it.ports.nodes.save(node(N, provider=Provider.hybrid))

    def malformed(machine_id: str) -> Any:
        raise ValueError("InvalidInstanceID.Malformed")

    it.machines.describe = malformed
    try:
        it.boots()
    except ValueError as refusal:
        return [f"its boot is not taken: {refusal}"]
    return []


def a_machine_that_has_served_reboots_while_another_is_owed_one() -> list[str]:
    it = Pool()
    it.replaces(A)
    it.told_of_launch("", failed="no capacity")
    it.group_makes()
    it.ports.nodes.save(node(N, provider=Provider.ec2))
    it.boots(boot_id="boot-2")
    return ["a human is told that it has just come"] if it.ports.notifier.announced else []  # type: ignore[attr-defined]


def its_launched_machine_has_rebooted_before_it_is_looked_for() -> list[str]:
    it = _launched()
    it.ports.nodes.save(node(_name(it), provider=Provider.ec2, boot_id="boot-2", past_boots=("boot-1",)))
    return [] if conclude(it.request(), it.ports).replacement_node_id else ["it is not found, and another is tried"]


def _launched() -> Pool:
    it = Pool(group="", template="lt-1")
    it.replaces()
    return it


def _name(it: Pool) -> str:
    [name] = it.machines.tokens.values()
    return str(name)


def somebody_launches_another_while_it_is_terminated() -> list[str]:
    """By hand, and of no group either."""
    it = Pool(group="", template="lt-1", terminate_first=True)
    it.replaces()
    it.machines.machines[M] = replace(it.kind, machine_id=M, launched_at=it.clock())
    it.ports.nodes.save(node(M, provider=Provider.ec2, booted_at=NOW))
    conclude(it.request(), it.ports)
    return [] if it.node(M).open_incident is None else ["a machine that somebody made for himself is taken"]
