"""What is well again, gone, spent or free: it is found where its news was lost, and told to those whom it concerns.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace

from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.names import INSTANCE_GONE
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Awaited, Family, JobState, NodeState, Outcome, Step, VerbName, Verdict
from nodeheal.domain.fleet.liveness import TERMINATED
from nodeheal.domain.operation import incident_owner
from nodeheal.operations.engine import conclude, machine_gone, reconcile
from nodeheal.operations.gang import GangRecord
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.intake.take_signal import take_draft
from nodeheal.services.jobs.job_nodes import leave
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.recovery.spares import claim_spare
from tests.unit.builders import gang_under_way, node, started_job, under_way, xid
from tests.unit.test_replacement import A, Pool
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, PEER, SPARE
from tests.workflows.scenarios.climbs import next_is
from tests.workflows.scenarios.held import recovered
from tests.workflows.scenarios.news import draft_of
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.turns import opened, turned

# News


def it_is_well_while_its_incident_waits() -> list[str]:
    it, mine = opened()
    waits = Decision(step=Step.WAIT, reason="it comes up", node_id=BROKEN, awaits=Awaited.SETTLED, events_seen=1)
    turned(it, mine, waits)
    under_way(it.plain, VerbName.WAIT, incident_id=mine.incident_id)
    well = xid(0, family=Family.nvml, code="ok", verdict=Verdict.OK, event_id="well")
    it.does(lambda: ingest(well, it.ports, ACTS))
    resumed = it.plain.workflows.resumed  # type: ignore[attr-defined]
    return [] if "token" in resumed else ["it is well, and who waits for that waits on"]


def a_machine_goes_that_has_an_incident() -> list[str]:
    """Its workflow has to hear that there is nothing to heal any more."""
    it, mine = opened()
    gone = draft_of(code=INSTANCE_GONE, subcode=TERMINATED, takes_node_away=True)
    it.does(lambda: take_draft(gone, it.ports, ACTS))
    events = it.plain.incidents.history(mine.incident_id).events
    return [] if INSTANCE_GONE in [event.code for event in events] else ["its incident goes on with what is gone"]


def its_group_cannot_make_another() -> list[str]:
    it = Pool()
    it.replaces()
    it.told_of_launch(failed="InsufficientInstanceCapacity")
    return [] if it.answer() is not None else ["it waits to its deadline for what will not come"]


# What was lost


def it_is_drained_at_the_deadline() -> list[str]:
    it, mine = opened()
    it.is_written(state=NodeState.ISOLATED)
    asks = mine.model_copy(update={"decision": mine.decision.model_copy(update={"step": Step.ISOLATE, "job_id": None})})
    drained = GangRecord(is_asked=True, is_drained=True).model_dump_json()
    under_way(
        it.plain,
        VerbName.ISOLATE,
        owner=incident_owner(mine.incident_id),
        incident_id=mine.incident_id,
        data_json=drained,
    )
    seen = it.does(lambda: conclude(asks, it.ports))
    return [] if seen.outcome is Outcome.DONE else [f"it is drained, and nothing runs there: {seen.reason}"]


def a_rank_stops_before_its_end_is_waited_for() -> list[str]:
    it = Moment()
    started_job(JOB, [node(BROKEN, version=1)], it.plain)
    run = it.plain.jobs.get_run("llama", 1)
    assert run is not None
    it.plain.jobs.save_run(run.with_task(replace(run.tasks[0], status="STOPPED")))
    stop = gang_under_way(it.plain, VerbName.STOP_GANG, run)
    it.does(lambda: reconcile(stop, it.ports))
    resumed = it.plain.workflows.resumed  # type: ignore[attr-defined]
    return [] if "token" in resumed else ["all ranks have stopped, and it waits to its deadline"]


# Attempts


def its_slot_is_gone_when_its_replacement_is_asked_again() -> list[str]:
    it = Pool(group="", template="lt-1", terminate_first=True)
    it.replaces()
    machine_gone(A, it.ports)
    it.ports.pools.release("demo", A)
    it.replaces(token="again")
    return [] if it.spent() == 1 else ["an attempt is there again that was spent"]


def a_lemon_is_replaced() -> list[str]:
    return next_is(recovered("inc-1", "inc-2").isolated(), Step.REPLACE)


# Whose it is


def the_only_spare_is_of_another_pool() -> list[str]:
    it, mine = opened()
    it.is_written(PEER, job_id="other-job")
    it.is_written(SPARE, pool="another")
    broken = it.plain.nodes.get(BROKEN)
    assert broken is not None
    found = it.does(lambda: claim_spare(broken, mine.incident_id, it.ports, ACTS))
    return [] if found is None else [f"{found.node_id} of pool {found.pool} stands in for a node of {broken.pool}"]


def another_job_writes_when_this_one_is_over() -> list[str]:
    it = Moment()
    other = replace(JOB, job_id="other")
    started_job(other, [node(BROKEN, version=1)], it.plain)
    over = replace(JOB, state=JobState.COMPLETED, current_run=1, checkpoints=Checkpoints(directory="/fsx/llama"))
    it.plain.job_notes.hold("/fsx/llama", "llama")
    it.does(lambda: leave(over, it.ports))
    return [] if it.plain.job_notes.hold("/fsx/llama", "next") == "next" else ["its directory is held by nobody's rank"]


def a_suspect_is_given_back_by_hand() -> list[str]:
    it = Moment()
    it.is_written(state=NodeState.SUSPECT)
    told = it.does(lambda: release_node(BROKEN, "looked at", it.ports))
    return [f"he cannot give it back: {told}"] if isinstance(told, str) else []
