"""The guards of tests/workflows/scenarios/climbs.py: where each stands, and what goes wrong without it."""

from nodeheal.adapters.memory.stores import MemoryJobNotes
from nodeheal.domain.faults import correlation
from nodeheal.domain.fleet import node
from nodeheal.domain.recovery import decide, ladder
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import climbs as when

GUARDS = (
    # Escalation steps
    Guard(
        "that attempts are spent",
        ladder.spent_reason,
        "count >= reservation.limit.limit",
        when.its_reboots_are_spent,
    ),
    Guard(
        "which escalation steps are behind it",
        ladder.remaining_steps,
        "DISRUPTIVENESS[action] <= reached",
        when.its_reboot_is_not_repeated,
    ),
    # Under other jobs
    Guard(
        "under how many jobs it is the hardware",
        correlation._under_other_jobs,
        "len(jobs) < rules.other_jobs",
        when.its_accelerator_has_shown_it_under_other_jobs,
        "True",
    ),
    Guard(
        "on how many nodes it is the program",
        correlation._under_other_jobs,
        "len(nodes) >= rules.same_code_nodes",
        when.all_nodes_of_its_job_show_it_too,
    ),
    Guard(
        "which accelerator has shown it",
        correlation._same_place,
        "(s.node_id, s.component) == (event.node_id, event.component)",
        when.its_neighbours_accelerator_has_shown_it_under_other_jobs,
        "True",
    ),
    Guard(
        "what an accelerator has shown",
        correlation._same_place,
        "(s.family, s.code) == (event.family, event.code)",
        when.its_accelerator_has_shown_something_else_under_other_jobs,
        "True",
    ),
    Guard(
        "which run has shown it",
        correlation.nodes_with_fault,
        "started is not None and s.at < started <= event.observed_at",
        when.the_last_run_has_shown_it_on_another_node,
    ),
    Guard(
        "that a fabric has a name",
        correlation._share_fabric,
        "fabric is not None",
        when.no_fabric_is_told_of,
        "True",
    ),
    # While it comes up
    Guard(
        "that a node has time to come up",
        decide._wait_for_startup,
        "builder.now < settled_at",
        when.its_accelerators_are_missing_when_it_comes_up,
    ),
    Guard(
        "that something is still missing",
        decide._wait_for_startup,
        "last is not None and last.verdict is not Verdict.UNKNOWN",
        when.its_accelerators_are_missing_when_it_is_up,
    ),
    Guard(
        "that nothing is missing any more",
        decide._wait_for_startup,
        "last is not None and last.verdict is Verdict.OK",
        when.its_accelerators_are_there_when_it_is_up,
    ),
    Guard(
        "that nobody can tell",
        decide._wait_for_startup,
        "last.verdict is not Verdict.UNKNOWN",
        when.nobody_can_tell_when_it_is_up,
        "True",
    ),
    Guard(
        "what was said when it was up",
        decide._wait_for_startup,
        "e.observed_at >= settled_at",
        when.its_accelerators_are_missing_when_it_comes_up,
        "True",
    ),
    Guard(
        "who has come up",
        decide._wait_for_startup,
        "e.node_id == event.node_id",
        when.its_peers_accelerators_are_there,
        "True",
    ),
    Guard(
        "what was missing",
        decide._wait_for_startup,
        "(e.family, e.code, e.component, e.boot_id) == kind",
        when.something_else_of_it_is_there,
        "True",
    ),
    # Places
    Guard(
        "which pool's jobs are looked at",
        MemoryJobNotes.in_pool,
        "job.pool == pool",
        when.a_job_of_another_pool_has_lost_its_start,
        "True",
    ),
    Guard(
        "where a node's life may go",
        node.moved,
        "not may_move(node.state, target)",
        when.it_is_retired_when_it_is_to_be_isolated,
    ),
)
