"""The guards of tests/workflows/scenarios/turns.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import late_capacity, replace
from nodeheal.services.intake import liveness
from tests.workflows.guards.guard import Guard, taken_for_saved
from tests.workflows.scenarios import turns as when

_HEARD = "known == node or ports.nodes.save(known)"

GUARDS = (
    Guard(
        "that a late machine is missed",
        late_capacity.report_late,
        "broken.open_incident != operation.incident_id",
        when.a_human_has_given_it_back_when_the_late_machine_comes,
    ),
    Guard(
        "the version of a node that is silent",
        liveness._still_silent,
        _HEARD,
        when.a_silent_node_is_written_while_it_is_looked_at,
        taken_for_saved(_HEARD),
    ),
    Guard(
        "that this turn has terminated it",
        replace._replace_machine,
        "record.phase is Phase.TERMINATING",
        when.ec2_still_shows_a_machine_that_this_turn_has_terminated,
    ),
)
