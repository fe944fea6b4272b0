"""The guards of tests/workflows/scenarios/writes.py: where each stands, and the scenario that goes wrong without it."""

from nodeheal.adapters.memory.stores import (
    MemoryIncidentStore,
    MemoryJobStore,
    MemoryNodeStore,
    MemoryPoolStore,
)
from nodeheal.services import saving
from nodeheal.services.notify import deliver_notification
from nodeheal.services.recovery import decide_next_step, spares
from tests.workflows.guards.guard import Guard, not_saved, taken_for_saved
from tests.workflows.scenarios import owners
from tests.workflows.scenarios import writes as when

_TURNS = "ports.incidents.advance(replace(history.incident, turn=request.turn + 1, state=state), entries)"

GUARDS = (
    Guard(
        "the version of a node",
        MemoryNodeStore.save,
        "(stored.version if stored else 0) != node.version",
        when.two_want_the_last_spare,
    ),
    Guard(
        "the version of a node, at a pause",
        MemoryNodeStore.save,
        "(stored.version if stored else 0) != node.version",
        when.a_pause_comes_with_the_isolation,
    ),
    Guard(
        "the node's version at the opening",
        MemoryIncidentStore.open,
        "not self.nodes.save(node)",
        when.two_faults_in_one_moment,
        not_saved("self.nodes.save(node)"),
    ),
    Guard("one entry of a name", MemoryIncidentStore.append, "entry.entry_id in entries", when.two_humans_answer),
    Guard(
        "one decision a turn",
        MemoryIncidentStore.advance,
        "stored.turn != incident.turn - 1",
        when.a_turn_is_decided_twice,
    ),
    Guard(
        "the version of a run",
        MemoryJobStore.save_run,
        "(stored.version if stored else 0) != run.version",
        when.two_ranks_stop_in_one_moment,
    ),
    Guard(
        "the version of a job",
        MemoryJobStore.save,
        "(stored.version if stored else 0) != job.version",
        when.a_job_is_launched_while_it_ends,
    ),
    Guard(
        "the version of a pool",
        MemoryPoolStore.save,
        "self.get(pool.name).version != pool.version",
        when.a_pause_comes_with_the_breaker,
    ),
    Guard(
        "an email that has gone out",
        deliver_notification._deliver,
        "ports.notifier.was_sent(message.key)",
        when.an_email_is_announced_again_much_later,
    ),
    Guard(
        "the claim of a spare",
        spares.claim_spare,
        "ports.nodes.save(replace(node, open_incident=incident_id))",
        when.two_want_the_first_of_two_spares,
        taken_for_saved("ports.nodes.save(replace(node, open_incident=incident_id))"),
    ),
    Guard(
        "that a turn was written",
        decide_next_step._decide_turn,
        f"not {_TURNS}",
        when.a_turn_is_decided_twice,
        not_saved(_TURNS),
    ),
    Guard(
        "the claim of a replacement node",
        saving.save_changed,
        "save(changed)",
        owners.the_replacement_node_is_taken_before_it_is_tested,
        taken_for_saved("save(changed)"),
    ),
)
