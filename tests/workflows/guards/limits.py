"""The guards of tests/workflows/scenarios/limits.py: where each stands, and the scenario that goes wrong without it."""

from nodeheal.adapters.memory.stores import MemoryJobNotes, MemoryPoolStore
from nodeheal.domain.recovery import attempt_budget
from nodeheal.operations import isolate
from nodeheal.services.jobs import choose_nodes
from nodeheal.services.recovery import queue, reserve_attempt
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import limits as when

GUARDS = (
    # Leases
    Guard(
        "the lease of a directory",
        MemoryJobNotes.hold,
        "overlap(held, directory)",
        when.two_jobs_want_one_directory,
    ),
    Guard(
        "the look at the lease",
        choose_nodes._hold_directory,
        "holder == job.job_id",
        when.two_jobs_want_one_directory,
        "True",
    ),
    Guard(
        "whose lease is given back",
        MemoryJobNotes.let_go,
        "self.leases.get(lease_path(directory)) == job_id",
        when.two_jobs_want_one_directory,
        "True",
    ),
    # The budget
    Guard("the number of slots", MemoryPoolStore.claim, "len(held) >= slots", when.the_budget_is_full),
    Guard("one slot a node", MemoryPoolStore.claim, "node_id in held", when.an_isolation_is_repeated),
    Guard(
        "the claim of a slot",
        isolate._why_no_slot,
        "ports.pools.claim(node.pool, node.node_id, slots)",
        when.the_budget_is_full,
        "True",
    ),
    Guard(
        "the line for a slot",
        isolate._why_no_slot,
        "ahead and node.node_id not in ports.pools.holders(node.pool)",
        when.somebody_stands_in_line,
    ),
    Guard(
        "that a slot was claimed a moment ago",
        queue._free_what_a_crash_left,
        "not is_worked_on(node, ports)",
        when.the_sweep_passes_between_claim_and_mark,
        "True",
    ),
    Guard(
        "whose slot the sweep gives back",
        queue._free_what_a_crash_left,
        "node.state not in OUT_OF_SERVICE",
        when.the_sweep_passes_while_a_node_is_quarantined,
        "True",
    ),
    Guard(
        "that a slot is nobody's any more",
        queue.is_worked_on,
        "ports.incidents.incident(node.open_incident).state in (IncidentState.OPEN, IncidentState.WAITING)",
        when.a_recovery_broke_with_a_slot,
        "True",
    ),
    Guard(
        "who was called for a slot",
        queue.in_line_before,
        "t.result is not None and t.decision.awaits is Awaited.BUDGET",
        when.another_stands_in_line_behind_who_is_called,
    ),
    Guard(
        "a slot before anything is done",
        reserve_attempt.why_not_act,
        "node.node_id not in ports.pools.holders(node.pool)",
        when.the_slot_is_gone,
    ),
    # Attempts
    Guard(
        "the limit of attempts",
        attempt_budget.reserve,
        "len(counted) >= limit.limit",
        when.the_last_attempt_goes_to_another,
    ),
    Guard(
        "an attempt before anything is done",
        reserve_attempt.why_no_attempt,
        "not granted",
        when.the_last_attempt_goes_to_another,
    ),
)
