"""The guards of tests/workflows/scenarios/given_back.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import isolate
from nodeheal.services.operators import release_node, request_action, retire_node
from nodeheal.services.recovery import return_to_service, undo_isolation
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import given_back as when

_IS_LEFT = "is_a_humans(node, ports) or (node.drained_by_us and node.open_incident is None)"

GUARDS = (
    Guard(
        "a release that broke off",
        release_node.release_node,
        "is_left_isolated(node, ports) and retire is (node.state is NodeState.RETIRED)",
        when.a_release_breaks_off,
    ),
    Guard(
        "a retirement that broke off",
        retire_node.retire_node,
        "node.state in OUT_OF_SERVICE or is_half_done",
        when.a_retirement_breaks_off,
        "node.state in OUT_OF_SERVICE",
    ),
    Guard(
        "whose slot is freed",
        undo_isolation.undo_isolation,
        "node.state in OUT_OF_SERVICE",
        when.it_is_isolated_again_before_its_slot_is_freed,
    ),
    Guard(
        "that what is retired is not given back",
        release_node.release_node,
        "retire is (node.state is NodeState.RETIRED)",
        when.what_is_half_retired_is_released,
        "True",
    ),
    Guard(
        "that a node is out of service when it is given back",
        undo_isolation.is_left_isolated,
        "node.state in OUT_OF_SERVICE",
        when.a_quarantined_node_is_released,
    ),
    Guard(
        "that a broken isolation has left something",
        undo_isolation.is_left_isolated,
        _IS_LEFT,
        when.a_human_releases_what_is_about_to_be_isolated,
        "True",
    ),
    Guard(
        "that nobody works on what an isolation has left",
        undo_isolation.is_left_isolated,
        "node.open_incident is None",
        when.a_human_releases_what_is_being_returned,
        "True",
    ),
    Guard(
        "that there is something of ours to undo",
        undo_isolation.is_left_isolated,
        "node.drained_by_us",
        when.a_node_in_service_is_released,
        "True",
    ),
    Guard(
        "that it was not isolated anew",
        undo_isolation.undo_isolation,
        "not is_left_isolated(known, ports)",
        when.it_is_isolated_anew_while_it_is_released,
    ),
    Guard(
        "whose drain a release undoes",
        undo_isolation.undo_isolation,
        "known.drained_by_us and known.state is not NodeState.RETIRED",
        when.it_was_drained_by_people_and_is_released,
        "True",
    ),
    Guard(
        "that who is retired takes no work",
        undo_isolation.undo_isolation,
        "known.state is not NodeState.RETIRED",
        when.a_quarantined_node_is_retired,
        "True",
    ),
    Guard(
        "that a drain is remembered which is not undone",
        undo_isolation.undo_isolation,
        "known.drained_by_us and (not is_off)",
        when.a_quarantined_node_is_retired,
    ),
    Guard(
        "that a drain is forgotten once it is undone",
        undo_isolation.undo_isolation,
        "not is_off",
        when.a_quarantined_node_is_released,
        "True",
    ),
    Guard(
        "whose drain a return undoes",
        return_to_service._let_work,
        "node.drained_by_us",
        when.it_was_drained_by_people_and_recovers,
        "True",
    ),
    Guard(
        "whose drain an isolation remembers",
        isolate._record_isolated,
        "known.drained_by_us or placement.is_schedulable",
        when.it_was_drained_by_people_and_recovers,
        "True",
    ),
    Guard(
        "that an isolation which is repeated remembers its drain",
        isolate._record_isolated,
        "known.drained_by_us",
        when.its_isolation_is_repeated_after_its_drain,
    ),
    Guard(
        "what people have drained is not shown as ours",
        isolate._start,
        "record.by_us",
        when.it_was_drained_by_people_and_recovers,
        "True",
    ),
    Guard(
        "that a suspect has no fault",
        release_node._freed,
        "node.open_incident is None",
        when.a_suspect_that_fails_is_released,
        "True",
    ),
    Guard(
        "that a workflow lets go of its replacement nodes itself",
        release_node._release_replacement_nodes,
        "not is_a_humans(node, ports)",
        when.one_whose_workflow_lives_is_released,
    ),
    Guard(
        "that a workflow finds its node gone",
        release_node.release_node,
        "is_a_humans(known, ports)",
        when.one_whose_workflow_lives_is_released,
        "True",
    ),
    Guard(
        "that nothing is asked of a retired node",
        request_action.request_action,
        "node.state is NodeState.RETIRED",
        when.something_is_asked_of_a_retired_node,
    ),
    Guard(
        "that nothing is asked of a node that never spoke",
        request_action.request_action,
        "not node.has_reported",
        when.something_is_asked_of_a_node_that_never_spoke,
    ),
    Guard(
        "that nothing is asked of a node at work",
        request_action.request_action,
        "node.open_incident is not None",
        when.something_is_asked_of_a_node_at_work,
    ),
    Guard(
        "that there is one in the place of what is given up",
        request_action.request_action,
        "not _has_replacement_node(node, ports)",
        when.the_last_free_node_is_to_be_replaced,
    ),
    Guard(
        "that a node does not stand in for itself",
        request_action._has_replacement_node,
        "other.node_id != node.node_id",
        when.the_last_free_node_is_to_be_replaced,
        "True",
    ),
    Guard(
        "that who is to stand in is free",
        request_action._has_replacement_node,
        "other.is_available(now)",
        when.the_last_free_node_is_to_be_replaced,
        "True",
    ),
    Guard(
        "that a job goes on where a node is given back",
        release_node._freed,
        "goes_on",
        when.its_job_runs_on_while_it_is_given_back,
    ),
    Guard(
        "that a job has left the node that is given back",
        release_node._freed,
        "node.node_id in nodes_it_has(job, ports)",
        when.its_job_went_on_elsewhere_before_it_is_given_back,
        "True",
    ),
    Guard(
        "that what is retired has no job",
        release_node._freed,
        "not retire",
        when.it_is_retired_under_its_job,
        "True",
    ),
)
