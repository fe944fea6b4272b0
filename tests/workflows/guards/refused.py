"""The guards of tests/workflows/scenarios/refused.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import replace
from nodeheal.services.jobs import start_gang
from nodeheal.services.recovery import reserve_attempt
from tests.workflows.guards.guard import Guard, not_saved
from tests.workflows.scenarios import refused as when

GUARDS = (
    # Waits
    # Commands
    # New machines
    Guard(
        "that a new machine could be claimed",
        replace.take_new_node,
        "not claim_node(fresh.node_id, request.incident_id, ports)",
        when.another_incident_has_the_new_machine,
        not_saved("claim_node(fresh.node_id, request.incident_id, ports)"),
    ),
    Guard(
        "that a machine is new",
        replace.take_new_node,
        "record.launched != fresh.node_id and (not _may_be_new(fresh, operation, ports))",
        when.a_machine_that_has_served_is_free,
    ),
    Guard(
        "which group has made a machine",
        replace.is_made_for,
        "machine.group != record.group",
        when.another_group_makes_a_machine,
    ),
    # Attempts
    Guard(
        "that an attempt which is refused gives back what was granted",
        reserve_attempt._reserve,
        "refund_attempt(request, ports)",
        when.one_of_two_limits_is_reached,
        "None",
    ),
    Guard(
        "that a node is out of service before it is touched",
        reserve_attempt.why_not_act,
        "node.state not in states",
        when.it_serves_when_its_replacement_is_asked_for,
    ),
    Guard(
        "whose isolation it is",
        reserve_attempt.why_not_act,
        "node.open_incident != request.incident_id",
        when.another_has_isolated_it_when_its_reboot_is_asked_for,
    ),
    # Ranks
    Guard(
        "that a gang which is refused leaves nothing running",
        start_gang.start_ranks,
        "ports.scheduler_for(job).stop_rank(job.cluster, task_id, told)",
        when.its_second_rank_is_refused,
        "None",
    ),
)
